//! Decides whether bytes written under a mapping may be written again.
//!
//! ```text
//!            begin (MAP)             a break arrives             settled, or time over
//!  (not ours) ---------> ours ----------------------> ours ------------------------> (not ours)
//!                        may be written again          what is being written
//!                        from the beginning,           again may be finished,
//!                        if the server says so         in the time the server gives
//! ```
//!
//! While this client held the lease no other client could change the file, so writing the same bytes
//! to the same place changed nothing. Once the lease is given away, another client may have written
//! there, and made its bytes durable: writing the older bytes again would undo that. A break that has
//! arrived forbids a replay that has not begun: this client does not know when the server sent the
//! break, nor whether it has waited long enough since.
//!
//! That no break has arrived says little: a break is not signed, may be lost, and may be on its way for longer than the server
//! waits for its answer. So a replay begins only when the server says, in a signed answer, that the lease is as it was
//! ([`Tenure::assure`]). From when that was asked the lease is sure for as long as the server waits for the answer to a break.
//! Half of that time is for writing again, the other half for the last such request on its way.

use std::time::{Duration, Instant};

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
    /// Nobody else gets the lease before; absent where the server has not said so since the mapping.
    sure_until: Option<Instant>,
}

/// A guard; while it exists the lease is not given away.
#[derive(Debug)]
pub(super) struct Hold<'a>(#[expect(dead_code, reason = "it is held")] MutexGuard<'a, State>);

impl Tenure {
    pub(super) fn new(breaks: Option<BreakCount>) -> Self {
        let (is_ours, breaks_before, sure_until) = (false, 0, None);
        Self { state: Mutex::new(State { breaks, is_ours, breaks_before, sure_until }) }
    }

    /// Called before the region is mapped, which the server allows only under a complete lease.
    pub(super) async fn begin(&self) {
        let mut state = self.state.lock().await;
        state.breaks_before = state.arrived();
        state.is_ours = state.breaks.is_some();
        state.sure_until = None;
    }

    /// Called when the lease is held over another connection, `whole` as it was. `breaks` counts from before the
    /// server was asked for it.
    pub(super) async fn go_on(&self, breaks: Option<BreakCount>, whole: bool) {
        let mut state = self.state.lock().await;
        let is_ours = state.is_whole() && whole && breaks.is_some();
        *state = State { breaks, is_ours, breaks_before: 0, sure_until: None };
    }

    /// The server was asked at `asked`, and has said that the lease is whole and that it waits for `break_timeout` for the answer to a
    /// break. Whether a replay may begin. The server's answer was later than the last byte that the region could take.
    pub(super) async fn assure(&self, asked: Instant, break_timeout: Duration) -> bool {
        let mut state = self.state.lock().await;
        let is_whole = state.is_whole();
        // What has ended is not sure for any longer.
        state.sure_until = if is_whole { asked.checked_add(break_timeout / 2) } else { None };
        is_whole
    }

    /// Whether the time that the server gave is not over.
    pub(super) async fn is_sure(&self, now: Instant) -> bool {
        self.state.lock().await.is_sure(now)
    }

    /// The right to write bytes again, at `now`; `None` once the lease was given away, or may have been.
    pub(super) async fn hold(&self, now: Instant) -> Option<Hold<'_>> {
        let state = self.state.lock().await;
        (state.is_ours && state.is_sure(now)).then_some(Hold(state))
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

    fn is_sure(&self, now: Instant) -> bool {
        self.sure_until.is_some_and(|until| now < until)
    }

    fn arrived(&self) -> u64 {
        self.breaks.as_ref().map_or(0, BreakCount::now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    async fn is_held(tenure: &Tenure, now: Instant) -> bool {
        tenure.hold(now).await.is_some()
    }

    #[tokio::test]
    async fn bytes_are_written_again_only_in_the_time_that_the_server_gives() {
        let (breaks, asked) = (BreakCount::default(), Instant::now());
        let tenure = Tenure::new(Some(breaks));
        assert!(!tenure.assure(asked, TIMEOUT).await, "nothing is mapped");
        tenure.begin().await;
        assert!(!is_held(&tenure, asked).await, "the server has not said that the lease is whole");
        assert!(tenure.assure(asked, TIMEOUT).await);
        assert!(is_held(&tenure, asked + TIMEOUT / 3).await);
        assert!(!is_held(&tenure, asked + TIMEOUT / 2).await);
        // By another session nothing is sure before the server was asked there.
        tenure.go_on(Some(BreakCount::default()), true).await;
        assert!(!is_held(&tenure, asked).await);
        assert!(tenure.assure(asked, TIMEOUT).await && is_held(&tenure, asked).await);
        tenure.end().await;
        assert!(!is_held(&tenure, asked).await);
    }

    #[tokio::test]
    async fn a_break_that_has_arrived_forbids_a_replay_that_has_not_begun() {
        let (breaks, asked) = (BreakCount::default(), Instant::now());
        let tenure = Tenure::new(Some(breaks.clone()));
        // Of an earlier mapping.
        breaks.arrive();
        tenure.begin().await;
        assert!(tenure.assure(asked, TIMEOUT).await);
        breaks.arrive();
        assert!(is_held(&tenure, asked).await, "what is being written again may be finished");
        assert!(!tenure.assure(asked, TIMEOUT).await && !is_held(&tenure, asked).await);
        tenure.begin().await;
        assert!(tenure.assure(asked, TIMEOUT).await, "mapped again");
    }

    #[tokio::test]
    async fn without_a_lease_nothing_is_written_again() {
        let tenure = Tenure::new(None);
        tenure.begin().await;
        let asked = Instant::now();
        assert!(!tenure.assure(asked, TIMEOUT).await && !is_held(&tenure, asked).await);
    }

    #[tokio::test]
    async fn a_lease_that_goes_on_is_ours_if_it_was_whole_all_the_time() {
        for (arrives, whole, has_lease, is_ours) in [
            (false, true, true, true),
            (true, true, true, false),
            (false, false, true, false),
            (false, true, false, false),
        ] {
            let (breaks, asked) = (BreakCount::default(), Instant::now());
            let tenure = Tenure::new(Some(breaks.clone()));
            tenure.begin().await;
            if arrives {
                breaks.arrive();
            }
            let later = BreakCount::default();
            tenure.go_on(has_lease.then(|| later.clone()), whole).await;
            let assured = tenure.assure(asked, TIMEOUT).await;
            assert_eq!(assured, is_ours, "{arrives} {whole} {has_lease}");
            later.arrive();
            assert!(!tenure.assure(asked, TIMEOUT).await, "a break of the lease as it is held now");
        }
    }
}
