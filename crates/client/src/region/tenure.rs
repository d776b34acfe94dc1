//! Whether what was written under a mapping may be written again.
//!
//! ```text
//!            begin (MAP)             a break arrives             settled, or time over
//!  (not ours) ---------> ours ----------------------> ours ------------------------> (not ours)
//!                        may be written again          what is being written
//!                        from the beginning            again may be finished
//! ```
//!
//! Nobody else could change the file while the lease was ours, so the same bytes at the same place
//! changed nothing. Once the lease is given away, another client may have written there, and made
//! it durable: to write the older bytes again would undo that. A break that has arrived is as good as
//! an end for a replay that has not begun: how long ago the server sent it, and whether it has
//! waited long enough since, nobody here knows.

use tokio::sync::{Mutex, MutexGuard};

use crate::connection::BreakCount;

/// See the module.
#[derive(Debug)]
pub(super) struct Tenure {
    /// Absent where there is no lease, and nothing to be sure of.
    breaks: Option<BreakCount>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_ours: bool,
    /// Breaks that had arrived before the mapping.
    breaks_before: u64,
}

/// While somebody has it the lease is not given away.
#[derive(Debug)]
pub(super) struct Hold<'a>(#[expect(dead_code, reason = "it is held")] MutexGuard<'a, State>);

impl Tenure {
    pub(super) fn new(breaks: Option<BreakCount>) -> Self {
        Self { breaks, state: Mutex::default() }
    }

    /// The region is about to be mapped, which the server allows under a whole lease alone.
    pub(super) async fn begin(&self) {
        let breaks_before = self.arrived();
        *self.state.lock().await = State { is_ours: self.breaks.is_some(), breaks_before };
    }

    /// Whether a replay may begin. Asked after an answer of the server's that came later than the
    /// last byte that the region could take.
    pub(super) async fn is_whole(&self) -> bool {
        let state = self.state.lock().await;
        state.is_ours && state.breaks_before == self.arrived()
    }

    /// The right to write something again; `None` once the lease was given away.
    pub(super) async fn hold(&self) -> Option<Hold<'_>> {
        let state = self.state.lock().await;
        state.is_ours.then_some(Hold(state))
    }

    /// The lease is about to be given away. On return nothing is being written again.
    pub(super) async fn end(&self) {
        self.state.lock().await.is_ours = false;
    }

    fn arrived(&self) -> u64 {
        self.breaks.as_ref().map_or(0, BreakCount::now)
    }
}
