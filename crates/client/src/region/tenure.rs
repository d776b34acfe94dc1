//! Decides whether bytes written under a mapping may be written again.
//!
//! ```text
//!            begin (MAP)             a break arrives             settled, or time over
//!  (not ours) ---------> ours ----------------------> ours ------------------------> (not ours)
//!                        may be written again          what is being written
//!                        from the beginning            again may be finished
//! ```
//!
//! While this client held the lease no other client could change the file, so writing the same bytes
//! to the same place changed nothing. Once the lease is given away, another client may have written
//! there, and made its bytes durable: writing the older bytes again would undo that. A break that has
//! arrived forbids a replay that has not begun: this client does not know when the server sent the
//! break, nor whether it has waited long enough since.

use tokio::sync::{Mutex, MutexGuard};

use crate::connection::BreakCount;

/// See the module.
#[derive(Debug)]
pub(super) struct Tenure {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Absent if there is no lease; then no replay is allowed.
    breaks: Option<BreakCount>,
    is_ours: bool,
    /// Breaks that had arrived before the mapping.
    breaks_before: u64,
}

/// A guard; while it exists the lease is not given away.
#[derive(Debug)]
pub(super) struct Hold<'a>(#[expect(dead_code, reason = "it is held")] MutexGuard<'a, State>);

impl Tenure {
    pub(super) fn new(breaks: Option<BreakCount>) -> Self {
        Self { state: Mutex::new(State { breaks, is_ours: false, breaks_before: 0 }) }
    }

    /// Called before the region is mapped, which the server allows only under a complete lease.
    pub(super) async fn begin(&self) {
        let mut state = self.state.lock().await;
        state.breaks_before = state.arrived();
        state.is_ours = state.breaks.is_some();
    }

    /// Called when the lease is held over another connection, `whole` as it was. `breaks` counts from before the
    /// server was asked for it.
    pub(super) async fn go_on(&self, breaks: Option<BreakCount>, whole: bool) {
        let mut state = self.state.lock().await;
        let is_ours = state.is_whole() && whole && breaks.is_some();
        *state = State { breaks, is_ours, breaks_before: 0 };
    }

    /// Whether a replay may begin. The caller asks after an answer of the server that came later
    /// than the last byte that the region could take.
    pub(super) async fn is_whole(&self) -> bool {
        self.state.lock().await.is_whole()
    }

    /// The right to write bytes again; `None` once the lease was given away.
    pub(super) async fn hold(&self) -> Option<Hold<'_>> {
        let state = self.state.lock().await;
        state.is_ours.then_some(Hold(state))
    }

    /// Called before the lease is given away. On return no bytes are being written again.
    pub(super) async fn end(&self) {
        self.state.lock().await.is_ours = false;
    }
}

impl State {
    fn is_whole(&self) -> bool {
        self.is_ours && self.breaks_before == self.arrived()
    }

    fn arrived(&self) -> u64 {
        self.breaks.as_ref().map_or(0, BreakCount::now)
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn a_break_that_has_arrived_forbids_a_replay_that_has_not_begun() {
        runtime().block_on(async {
            let breaks = BreakCount::default();
            let tenure = Tenure::new(Some(breaks.clone()));
            assert!(!tenure.is_whole().await && tenure.hold().await.is_none(), "nothing is mapped");
            // Of an earlier mapping.
            breaks.arrive();
            tenure.begin().await;
            assert!(tenure.is_whole().await);
            breaks.arrive();
            assert!(!tenure.is_whole().await);
            assert!(tenure.hold().await.is_some(), "what is being written again may be finished");
            tenure.end().await;
            assert!(tenure.hold().await.is_none());
            tenure.begin().await;
            assert!(tenure.is_whole().await, "mapped again");
        });
    }

    #[test]
    fn without_a_lease_nothing_is_written_again() {
        runtime().block_on(async {
            let tenure = Tenure::new(None);
            tenure.begin().await;
            assert!(!tenure.is_whole().await && tenure.hold().await.is_none());
        });
    }

    #[test]
    fn a_lease_that_goes_on_is_ours_if_it_was_whole_all_the_time() {
        runtime().block_on(async {
            for (arrives, whole, has_lease, is_ours) in [
                (false, true, true, true),
                (true, true, true, false),
                (false, false, true, false),
                (false, true, false, false),
            ] {
                let breaks = BreakCount::default();
                let tenure = Tenure::new(Some(breaks.clone()));
                tenure.begin().await;
                if arrives {
                    breaks.arrive();
                }
                let later = BreakCount::default();
                tenure.go_on(has_lease.then(|| later.clone()), whole).await;
                assert_eq!(tenure.is_whole().await, is_ours, "{arrives} {whole} {has_lease}");
                later.arrive();
                assert!(!tenure.is_whole().await, "a break of the lease as it is held now");
            }
        });
    }
}
