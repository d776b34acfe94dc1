//! The push state of one open: the rights it was granted, and the wait for recalls.

use std::sync::atomic::{AtomicU64, Ordering};

use smb::push::Rights;
use tokio::sync::Notify;

/// Push's part of an open, there once push was granted.
#[derive(Debug)]
pub(crate) struct OpenPush {
    /// Rights that regions of this open can have.
    pub(crate) rights: Rights,
    /// Notified when a region is recalled, a newer wait came, or the open ended.
    pub(crate) events: Notify,
    wait: AtomicU64,
}

impl OpenPush {
    pub(crate) fn new(rights: Rights) -> Self {
        Self { rights, events: Notify::new(), wait: AtomicU64::new(0) }
    }

    /// Starts a wait, which ends an earlier wait.
    pub(crate) fn begin_wait(&self) -> u64 {
        let ticket = self.wait.fetch_add(1, Ordering::AcqRel) + 1;
        self.events.notify_waiters();
        ticket
    }

    /// Whether no later wait has begun.
    pub(crate) fn is_latest(&self, ticket: u64) -> bool {
        self.wait.load(Ordering::Acquire) == ticket
    }
}
