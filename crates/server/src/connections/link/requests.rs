//! The requests of a connection that are answered later.
//!
//! Spec: MS-SMB2 §3.3.1.7 (Connection.AsyncCommandList), §3.3.5.16.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Link;
use crate::connections::pending::Pending;

impl Link {
    /// Requests that will be answered later.
    pub(crate) fn pending_count(&self) -> usize {
        self.pending.lock().len()
    }

    /// Notes that a request of a session will be answered later.
    pub(crate) fn add_pending(&self, message_id: u64, session_id: u64) -> Arc<Pending> {
        let pending = Arc::new(Pending::new(session_id));
        self.pending.lock().insert(message_id, Arc::clone(&pending));
        // Whoever let go of everything may not have seen it.
        if self.gone.load(Ordering::Acquire) {
            pending.cancel();
        }
        pending
    }

    pub(crate) fn remove_pending(&self, message_id: u64) {
        self.pending.lock().remove(&message_id);
    }

    /// A fresh async id, never 0.
    pub(crate) fn next_async_id(&self) -> u64 {
        self.next_async.fetch_add(1, Ordering::Relaxed)
    }

    /// CANCEL by message id: MS-SMB2 §3.3.5.16. Nothing is answered, found or not.
    pub(crate) fn cancel_message(&self, message_id: u64) {
        if let Some(pending) = self.pending.lock().get(&message_id) {
            pending.cancel();
        }
    }

    /// CANCEL by async id.
    pub(crate) fn cancel_async(&self, async_id: u64) {
        let matches = |pending: &&Arc<Pending>| {
            async_id != 0 && pending.async_id.load(Ordering::Acquire) == async_id
        };
        if let Some(pending) = self.pending.lock().values().find(matches) {
            pending.cancel();
        }
    }

    /// Lets go of everything that waits, when the connection has ended.
    pub(crate) fn cancel_all(&self) {
        self.gone.store(true, Ordering::SeqCst);
        let pending = self.pending.lock();
        let ends = |pending: &&Arc<Pending>| !pending.outlives();
        pending.values().filter(ends).for_each(|pending| pending.cancel());
    }

    /// Lets go of everything that a session waits for, when it has ended.
    pub(crate) fn cancel_session(&self, session_id: u64) {
        let pending = self.pending.lock();
        // Those that outlive a connection look after their session themselves.
        let ends =
            |pending: &&Arc<Pending>| pending.session_id() == session_id && !pending.outlives();
        pending.values().filter(ends).for_each(|pending| pending.cancel());
    }
}
