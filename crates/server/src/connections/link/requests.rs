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

    /// CANCEL by message id: MS-SMB2 §3.3.5.16. Nothing is answered, found or not.
    pub(crate) fn cancel_message(&self, message_id: u64) {
        if let Some(pending) = self.pending.lock().get(&message_id) {
            pending.cancel();
        }
    }

    /// CANCEL by async id: one look, however many requests wait. A CANCEL costs no credits.
    pub(crate) fn cancel_async(&self, async_id: u64) {
        let message_id = message_id_of(async_id);
        if let Some(pending) = self.pending.lock().get(&message_id)
            && async_id != 0
            && pending.async_id.load(Ordering::Acquire) == async_id
        {
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

/// The async id of a request: never 0, as no request has the last message id (MS-SMB2 §3.2.5.1.2 reserves it).
pub(crate) fn async_id_of(message_id: u64) -> u64 {
    message_id.wrapping_add(1)
}

fn message_id_of(async_id: u64) -> u64 {
    async_id.wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push::tests::rig::{Rig, silent_link};

    #[tokio::test]
    async fn a_cancel_of_an_async_id_ends_that_request_alone() {
        let link = silent_link(&Rig::new(), None);
        let pending: Vec<_> = (5..8).map(|id| link.add_pending(id, 1)).collect();
        let is_cancelled = |at: usize| {
            let mut waits = std::pin::pin!(pending[at].cancelled());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            waits.as_mut().poll(&mut context).is_ready()
        };
        // Nobody was told of it yet.
        link.cancel_async(async_id_of(6));
        link.cancel_async(0);
        assert!(!(0..3).any(is_cancelled));
        pending[1].async_id.store(async_id_of(6), Ordering::Release);
        link.cancel_async(async_id_of(6));
        assert_eq!([0, 1, 2].map(is_cancelled), [false, true, false]);
    }
}
