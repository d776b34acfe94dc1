//! Watches whether the server still answers.
//!
//! ```text
//!   silent, owes an answer .................................. the connection fails
//!   silent, owes only what it said may take long ............ ECHO, which it then owes (where
//!                                                             there is a session)
//!   a request open for longer than a call may take .......... its call fails, and is cancelled
//! ```
//!
//! Without this task a server that hangs, or whose machine vanished, would leave callers waiting
//! for ever. Only complete silence counts: a single request may take long on a slow link behind
//! others.
//!
//! Spec: MS-SMB2 §3.2.6.1.

use std::sync::Weak;
use std::time::Duration;

use smb::{Command, TreeId};

use super::Shared;
use super::detached::{self, Detached};
use super::open_requests::Silence;
use crate::error::ConnectionError;

/// The watching task. Ends when the connection does.
pub(super) async fn run(shared: Weak<Shared>, patience: Duration) {
    loop {
        tokio::time::sleep((patience / LOOKS).max(PAUSE_MIN)).await;
        let Some(shared) = shared.upgrade() else { return };
        let silence = shared.lock_open().silence(shared.now(), patience);
        match silence {
            Silence::Short => {}
            Silence::Suspicious => {
                shared.send_detached(&echo());
            }
            Silence::TooLong => return shared.fail(ConnectionError::PeerSilent),
        }
        let late = shared.lock_open().give_up_late(shared.now());
        late.into_iter().for_each(|message_id| shared.cancel(message_id));
    }
}

fn echo() -> Detached {
    let (session, tree, body) = (None, TreeId(0), detached::empty());
    Detached { command: Command::ECHO, session, tree, encrypt: false, body }
}

// A silence is noticed at most a fifth later than it should be.
const LOOKS: u32 = 5;
const PAUSE_MIN: Duration = Duration::from_millis(1);
