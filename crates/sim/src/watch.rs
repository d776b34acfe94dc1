//! A program that computes for ever makes no call, so nothing of this process would ever run again: it is killed.
//!
//! Only here does a run look at the host's clock, and only where it has failed.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What computes now, as another thread sees it.
#[derive(Debug, Default)]
pub(crate) struct Watch(Arc<Mutex<Seen>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    steps: u64,
    computes: Option<Pid>,
}

impl Watch {
    /// Begins to look, until this is dropped.
    pub(crate) fn begin() -> Self {
        let watch = Self::default();
        let seen = Arc::downgrade(&watch.0);
        std::thread::spawn(move || look(&seen));
        watch
    }

    /// A thread of `process` goes on, in this step of the run.
    pub(crate) fn goes_on(&self, steps: u64, process: Pid) {
        *self.seen() = Seen { steps, computes: Some(process) };
    }

    /// It has stopped.
    pub(crate) fn stops(&self) {
        self.seen().computes = None;
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn look(seen: &Weak<Mutex<Seen>>) {
    let mut before = Seen::default();
    let mut looks = 0;
    loop {
        std::thread::sleep(PAUSE);
        let Some(now) = seen.upgrade() else { return };
        let now = *now.lock().unwrap_or_else(PoisonError::into_inner);
        looks = if now == before { looks + 1 } else { 0 };
        before = now;
        if let Some(process) = now.computes.filter(|_| looks == LOOKS) {
            eprintln!(
                "landfast-sim: a program computes for {} s without a call, and is killed",
                LOOKS / 2
            );
            let _ = kill(process, Signal::SIGKILL);
        }
    }
}

const PAUSE: Duration = Duration::from_millis(500);
/// Half minutes of a host that has other things to do are no reason.
const LOOKS: u32 = 60;
