//! Requests whose answers no caller waits for: ECHO, acknowledgements of breaks, CLOSE of what was given up.
//!
//! ```text
//!   send_or_later --credit free?--> sent
//!                       \ no: [ later ] --the next answer brings credits--> sent
//! ```
//!
//! A CLOSE that is not sent leaves the file open, for everybody, as long as the session lasts.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

use smb::{Command, Empty, Header, MessageId, Route, SessionId, TreeId};

use super::{FIXED_PARTS, PROCESS_ID, Request, SessionSecurity, Shared};
use crate::transport::OutFrame;

/// One such request.
#[derive(Debug)]
pub(super) struct Detached {
    pub(super) command: Command,
    /// The session of the request; any session if there is none.
    pub(super) session: Option<SessionId>,
    pub(super) tree: TreeId,
    /// The share wants encryption even if the session does not.
    pub(super) encrypt: bool,
    /// What follows the header.
    pub(super) body: Vec<u8>,
}

impl Shared {
    /// Sends a request as soon as there is a credit for it.
    pub(super) fn send_or_later(&self, request: Detached) {
        if self.send_detached(&request) {
            return;
        }
        let mut later = self.later();
        if later.len() < LATER_MAX {
            later.push_back(request);
        }
    }

    /// Sends what waits, as far as the credits go.
    pub(super) fn send_waiting(&self) {
        loop {
            let Some(request) = self.later().pop_front() else { return };
            if !self.send_detached(&request) {
                self.later().push_front(request);
                return;
            }
        }
    }

    /// Sends a request if there is a credit for it; `false` if there is none. Without its session the request
    /// means nothing, and is done with.
    pub(super) fn send_detached(&self, asked: &Detached) -> bool {
        let Some(session) = self.session_of(asked.session) else { return true };
        let Some(ask) = self.credits.try_acquire(1) else { return self.lock_open().has_failed() };
        let request = Request {
            tree: asked.tree,
            encrypt: asked.encrypt,
            ..Request::new(asked.command).session(&session)
        };
        let protection = request.protection(false);
        let expected = request.expected(protection);
        let registered = self.lock_open().register(1, expected, self.now(), self.deadline());
        let Ok((turn, _)) = registered else { return true };
        let message_id = MessageId(turn.message_id());
        let header = Header {
            credit_charge: 1,
            credits: ask,
            session_id: session.id(),
            route: Route::Sync { process_id: PROCESS_ID, tree_id: asked.tree },
            ..Header::request(asked.command, message_id)
        };
        let mut frame = OutFrame::new(FIXED_PARTS, |out| {
            header.emit(out);
            out.extend_from_slice(&asked.body);
        });
        let sent = self.protect(&mut frame, Some(&session), protection, turn);
        if let Err(error) = sent.and_then(|()| self.sender.send(frame)) {
            self.fail(error);
        }
        true
    }

    fn session_of(&self, id: Option<SessionId>) -> Option<Arc<SessionSecurity>> {
        match id {
            Some(id) => self.session(id),
            None => self.any_session(),
        }
    }

    pub(super) fn any_session(&self) -> Option<Arc<SessionSecurity>> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        sessions.values().next().cloned()
    }

    fn later(&self) -> MutexGuard<'_, VecDeque<Detached>> {
        self.later.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of a request that says nothing.
pub(super) fn empty() -> Vec<u8> {
    let mut body = Vec::new();
    Empty.emit(&mut body);
    body
}

/// Requests that wait for credits. What is beyond is dropped: the server times a break out, and closes a file
/// with its session.
const LATER_MAX: usize = 8192;
