//! How a thread of a pool is woken, by threads that may wait for nothing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

/// See the module.
#[derive(Debug)]
pub(crate) struct Bell {
    thread: OnceLock<Thread>,
    is_urgent: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { thread: OnceLock::new(), is_urgent: AtomicBool::new(false) }
    }

    /// The thread that hears it.
    pub(crate) fn belongs_to(&self, thread: &Thread) {
        let _ = self.thread.set(thread.clone());
    }

    pub(crate) fn ring(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Somebody waits for the thread's work.
    pub(crate) fn ring_urgently(&self) {
        self.is_urgent.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether somebody waits; asks once.
    pub(crate) fn take_urgent(&self) -> bool {
        self.is_urgent.swap(false, Ordering::AcqRel)
    }
}
