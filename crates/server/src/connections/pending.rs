//! A request that is answered later, as those see it who may end it before: CANCEL, the end of its session or connection.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// A request that is answered later.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    session_id: u64,
    /// 0 until an interim answer named one.
    pub(crate) async_id: AtomicU64,
    cancelled: AtomicBool,
    /// The answer is wanted though this connection is gone: over another of the session's.
    outlives: AtomicBool,
    cancel: Notify,
}

impl Pending {
    pub(super) fn new(session_id: u64) -> Self {
        Self { session_id, ..Self::default() }
    }

    pub(super) fn session_id(&self) -> u64 {
        self.session_id
    }

    /// Whether the end of the connection is no reason to give up.
    pub(super) fn outlives(&self) -> bool {
        self.outlives.load(Ordering::Acquire)
    }

    /// From now on the end of the connection is no reason to give up.
    pub(crate) fn outlive(&self) {
        self.outlives.store(true, Ordering::Release);
    }

    /// Returns once the client has sent CANCEL or is gone.
    pub(crate) async fn cancelled(&self) {
        basics::until(&self.cancel, || self.cancelled.load(Ordering::Acquire)).await;
    }

    /// It is not waited for any more.
    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.cancel.notify_waiters();
    }
}
