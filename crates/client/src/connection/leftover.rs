//! What is left to do for a request whose caller has stopped waiting.
//!
//! ```text
//!   caller drops a PendingResponse --answered?--> no:  CANCEL where that ends a wait; the leftover waits for the answer
//!                                        \------> yes: settled at once
//! ```
//!
//! So a caller may stop waiting at any time: memory that the server may still reach is lent to nobody else before
//! the answer, and a file that the answer opens is closed.

use smb::create::CreateResponse;
use smb::{CloseRequest, Command, MessageId, SessionId, TreeId};
use tokio::sync::oneshot;

use super::detached::Detached;
use super::open_requests::Answer;
use super::{Response, Shared};
use crate::transport::direct::Slots;

/// See the module.
#[derive(Debug)]
pub(crate) enum Leftover {
    /// Memory that the server may use until it answers. Dropped, it is free again.
    Memory(#[expect(dead_code, reason = "it is held")] Slots),
    /// The answer opens a file on this tree, which is to be closed.
    File {
        tree: TreeId,
        /// The share wants encryption even if the session does not.
        encrypt: bool,
    },
}

impl Shared {
    /// The caller of a request has stopped waiting.
    pub(super) fn abandon(
        &self,
        message_id: MessageId,
        answer: &mut oneshot::Receiver<Answer>,
        leftover: Option<Leftover>,
    ) {
        let kept = self.lock_open().abandon(message_id, leftover);
        match kept {
            Ok(command) if is_cancellable(command) => self.cancel(message_id),
            Ok(_) => {}
            Err(leftover) => {
                if let (Some(leftover), Ok(Ok(response))) = (leftover, answer.try_recv()) {
                    self.settle(leftover, &response);
                }
            }
        }
    }

    /// Does what is left to do once the answer is there.
    pub(super) fn settle(&self, leftover: Leftover, response: &Response) {
        let Leftover::File { tree, encrypt } = leftover else { return };
        let header = response.header();
        if !header.status.is_success() {
            return;
        }
        if let Ok(opened) = CreateResponse::parse(response.pdu()) {
            self.close_file(header.session_id, tree, encrypt, opened.file_id);
        }
    }

    /// Closes a file without waiting for the answer.
    pub(super) fn close_file(
        &self,
        session: SessionId,
        tree: TreeId,
        encrypt: bool,
        file_id: smb::FileId,
    ) {
        let mut body = Vec::new();
        CloseRequest { query_attributes: false, file_id }.emit(&mut body);
        let (command, session) = (Command::CLOSE, Some(session));
        self.send_or_later(Detached { command, session, tree, encrypt, body });
    }
}

/// Whether the end of a request is a wait that a CANCEL ends, and nothing that the caller asked for is lost with
/// it.
fn is_cancellable(command: Command) -> bool {
    matches!(
        command,
        Command::CREATE
            | Command::IOCTL
            | Command::LOCK
            | Command::READ
            | Command::QUERY_DIRECTORY
            | Command::CHANGE_NOTIFY
    )
}
