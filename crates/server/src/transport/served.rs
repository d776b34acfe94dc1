//! A connection and its place among the connections: both end together, whatever happens.
//!
//! ```text
//!   Served --end, or dropped--> sessions, opens, locks end (on a thread of their user) --> the place is free
//!        \--dropped by a panic--> the same, and the panic is counted
//! ```
//!
//! A task or a thread that owns one may panic, be aborted or be forgotten: the state that the peer held never
//! outlives the owner.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use tokio::sync::mpsc;

use super::admission::Admission;
use crate::connections::Link;
use crate::dispatch::{Connection, end_of_connection};
use crate::service::{Core, Kept};
use crate::state::ends::{Over, spawn_end};

/// See the module.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) connection: Connection,
    /// `None` once the end has begun.
    admission: Option<Admission>,
}

impl Served {
    pub(super) fn new(connection: Connection, admission: Admission) -> Self {
        Self { connection, admission: Some(admission) }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.connection.core
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.connection.link
    }

    /// See [`Admission::is_stranger`].
    pub(super) fn is_stranger(&self) -> bool {
        self.admission.as_ref().is_some_and(Admission::is_stranger)
    }

    /// See [`Admission::is_evictable`].
    pub(super) fn is_evictable(&self) -> bool {
        self.admission.as_ref().is_some_and(Admission::is_evictable)
    }

    /// See [`Admission::look`].
    pub(super) fn look(&mut self) {
        if let Some(admission) = &mut self.admission {
            admission.look(&self.connection.link);
        }
    }

    /// Ends the connection, and returns once nothing of it is left.
    pub(super) async fn end(mut self) {
        if let Some(mut ending) = self.begin_end() {
            // Nothing is sent: it is over when nobody could.
            let _ = ending.recv().await;
        }
    }

    // A connection without sessions costs no thread; one with sessions may have thousands of files, which other threads close.
    fn begin_end(&mut self) -> Option<mpsc::Receiver<()>> {
        let admission = self.admission.take()?;
        let link = Arc::clone(&self.connection.link);
        let core = Arc::clone(&self.connection.core);
        let runtime = core.runtime.clone();
        let takes_long = self.connection.has_sessions() || thread::panicking();
        let (alive, ending) = mpsc::channel(1);
        let end = move || {
            let kept: Kept = Arc::new((admission, alive));
            let ended = catch_unwind(AssertUnwindSafe(|| {
                end_of_connection(&core, &link, &kept);
            }));
            if ended.is_err() {
                core.note_panic("the end of a connection");
            }
        };
        if !takes_long {
            end();
            return None;
        }
        drop(match self.connection.link.holder() {
            Some(account) => spawn_end(&runtime, (&account, Over::nothing()), end),
            // Nobody has logged on, and a bug is met at most once for each of them.
            None => runtime.spawn_blocking(end),
        });
        Some(ending)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if thread::panicking() {
            self.connection.core.note_panic("a connection");
        }
        drop(self.begin_end());
    }
}
