//! What a session still does: requests that change something, and the closing of what it had open.
//!
//! ```text
//!          begin +1, done -1            begin is refused
//!  +-------+            end   +--------+      the last one is done      +---------+
//!  | Going |----------------->| Ending |------------------------------->| Settled |
//!  +-------+                  +--------+                                +---------+
//! ```
//!
//! A client that has lost its connection logs on anew, names the session it had, and reads what its
//! files hold now. What it asked for before must not change them behind its back: its logon is
//! answered when the old session is settled.
//!
//! Spec: MS-SMB2 §3.3.5.5.3 (PreviousSessionId), §3.3.7.1 (outstanding requests).

use std::sync::Arc;

use tokio::sync::Notify;

use crate::shared::{AtomicU64, Ordering};

/// Counts what a session does.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// How much is under way, and [`ENDED`].
    state: AtomicU64,
    settled: Notify,
}

/// Something under way, until dropped.
#[derive(Debug)]
pub(crate) struct Working(Arc<Work>);

impl Work {
    /// Counts something that begins; `None` once the session has ended.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<Working> {
        let before = self.state.fetch_add(1, Ordering::AcqRel);
        let working = Working(Arc::clone(self));
        (before & ENDED == 0).then_some(working)
    }

    /// Ends the session. For the first who does, who closes what it had: that counts too.
    pub(crate) fn end(self: &Arc<Self>) -> Option<Working> {
        let before = self.state.fetch_add(1, Ordering::AcqRel);
        let working = Working(Arc::clone(self));
        let is_first =
            before & ENDED == 0 && self.state.fetch_or(ENDED, Ordering::AcqRel) & ENDED == 0;
        is_first.then_some(working)
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.state.load(Ordering::Acquire) & ENDED != 0
    }

    /// Whether the session has ended and changes nothing any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.state.load(Ordering::Acquire) == ENDED
    }

    /// Returns once it is settled.
    pub(crate) async fn settled(&self) {
        basics::until(&self.settled, || self.is_settled()).await;
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if self.0.state.fetch_sub(1, Ordering::AcqRel) == ENDED + 1 {
            self.0.settled.notify_waiters();
        }
    }
}

/// The bit that no count reaches.
const ENDED: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn it_is_settled_when_it_has_ended_and_the_last_request_is_done() {
        let work = Arc::new(Work::default());
        let mut settled = Box::pin(work.settled());
        let mut look =
            || settled.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(());
        let first = work.begin().unwrap();
        let closing = work.end().unwrap();
        assert!(work.end().is_none(), "once");
        assert!(work.begin().is_none(), "nothing begins any more");
        assert!(!look(), "two are under way");
        drop(closing);
        assert!(!look() && !work.is_settled());
        drop(first);
        assert!(look() && work.is_settled());
    }

    #[test]
    fn a_session_that_does_nothing_is_not_settled_before_it_ends() {
        let work = Arc::new(Work::default());
        drop(work.begin());
        assert!(!work.is_ended() && !work.is_settled());
        drop(work.end());
        assert!(work.is_ended() && work.is_settled());
    }

    #[test]
    fn nothing_begins_behind_one_that_was_seen_to_be_settled() {
        for _ in 0..200 {
            let work = Arc::new(Work::default());
            std::thread::scope(|scope| {
                let begun = scope.spawn(|| {
                    let begun = work.begin();
                    // Whoever has begun is waited for.
                    begun.map(|_working| work.is_settled())
                });
                drop(work.end());
                assert_ne!(begun.join().unwrap(), Some(true));
            });
        }
    }
}
