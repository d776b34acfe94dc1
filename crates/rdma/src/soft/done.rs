//! What workers have done and the engine has not seen yet.
//!
//! ```text
//!   worker: push into the queue, any := true --nudge--> engine: has_any? take all, any := false
//! ```
//!
//! Both change `any` under the lock of the queue; an engine that is about to sleep looks at it without
//! ([`crate::interface::Waker::nudge`] says why it misses nothing).

use std::collections::VecDeque;
use std::sync::PoisonError;

use crate::interface::Waker;
use crate::shared::{AtomicBool, Mutex, MutexGuard, Ordering};

/// See the module.
#[derive(Debug)]
pub(crate) struct Done<T> {
    queue: Mutex<VecDeque<T>>,
    any: AtomicBool,
    waker: Waker,
}

impl<T> Done<T> {
    /// Nothing yet; `waker` wakes the engine, `room` is there from the start.
    pub(crate) fn new(waker: Waker, room: usize) -> Self {
        let queue = Mutex::new(VecDeque::with_capacity(room));
        Self { queue, any: AtomicBool::new(false), waker }
    }

    /// Hands something to the engine.
    pub(crate) fn push(&self, done: impl IntoIterator<Item = T>) {
        {
            let mut queue = self.queue();
            queue.extend(done);
            self.any.store(true, Ordering::Release);
        }
        self.waker.nudge();
    }

    /// Whether there is something. One load.
    pub(crate) fn has_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Exchanges `collected`, which is empty, for what is there. Costs a load while nothing is.
    pub(crate) fn take(&self, collected: &mut VecDeque<T>) {
        if self.any.load(Ordering::Relaxed) {
            let mut queue = self.queue();
            self.any.store(false, Ordering::Relaxed);
            std::mem::swap(&mut *queue, collected);
        }
    }

    // No code under the lock can panic half way, so the queue behind a poisoned lock is sound.
    fn queue(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
