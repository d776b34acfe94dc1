//! The frames of one file that became dirty since somebody looked: a stack that placements fill without a lock.
//!
//! ```text
//!   placement:  frame queued already: dirty again             else: enter -> queued, dirty -> push -> leave
//!   look:       wait until nobody is between enter and leave -> take the whole stack
//! ```
//!
//! Between the flag and the push a frame says that it is queued and cannot be found. A placement of another thread that
//! meets the flag pushes nothing, and may then ask for its bytes to be durable: so a look waits for those who are between.
//! That is a few instructions, and the processor's time that a thread between them has to wait for.

use crate::header::{DIRTY, Header, NONE, QUEUED};
use crate::shared::{AtomicU32, Ordering, yield_now};

/// See the module.
#[derive(Debug)]
pub(crate) struct Stack {
    top: AtomicU32,
    /// Threads between the flag and the push.
    entering: AtomicU32,
}

impl Stack {
    pub(crate) fn new() -> Self {
        Self { top: AtomicU32::new(NONE), entering: AtomicU32::new(0) }
    }

    /// Notes that bytes were placed in a page. `true`: the page was clean. Waits for nothing.
    pub(crate) fn note(&self, header: &Header, frame: u32) -> bool {
        if header.placed_again() {
            return false;
        }
        // Before the flag: who sees the flag and then looks finds this thread, or the frame.
        self.entering.fetch_add(1, Ordering::AcqRel);
        let before = header.placed();
        if before & QUEUED == 0 {
            self.push(header, frame);
        }
        self.entering.fetch_sub(1, Ordering::AcqRel);
        before & DIRTY == 0
    }

    fn push(&self, header: &Header, frame: u32) {
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            header.dirty_next.store(top, Ordering::Relaxed);
            let swap =
                self.top.compare_exchange_weak(top, frame, Ordering::AcqRel, Ordering::Relaxed);
            match swap {
                Ok(_) => return,
                Err(found) => top = found,
            }
        }
    }

    /// Takes every frame in which bytes were placed before the call. One thread at a time.
    pub(crate) fn take<'t>(&self, header: impl Fn(u32) -> &'t Header, mut each: impl FnMut(u32)) {
        while self.entering.load(Ordering::Acquire) != 0 {
            yield_now();
        }
        let mut at = self.top.swap(NONE, Ordering::AcqRel);
        while at != NONE {
            let next = header(at).dirty_next.load(Ordering::Relaxed);
            each(at);
            at = next;
        }
    }
}
