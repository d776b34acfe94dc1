//! Work on one file that takes its turn: one thread of the pool does all of it, in order.
//!
//! ```text
//!  WRITE --+
//!  WRITE --+--> waiting --> one thread, until nothing waits --> each asker its result
//!  WRITE --+
//! ```
//!
//! A file system lets one WRITE at a time change a file. A thread for each would wait for the one
//! before it in the kernel; one for all does the next where it ended the last, without a wake-up
//! between.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::lock_order as order;
use basics::ordered::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// See the module.
#[derive(Default)]
pub(crate) struct Turns(Mutex<State, order::Turns>);

type Turn = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<Turn>,
    /// A thread does what waits, or is on its way.
    is_served: bool,
}

impl Turns {
    /// Has `work` done behind what waits already. No result comes if it panics.
    pub(crate) fn take<T: Send + 'static>(
        self: &Arc<Self>,
        runtime: &Handle,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, result) = oneshot::channel();
        let turn = move || {
            // Who asked may have gone.
            let _ = answer.send(work());
        };
        let mut state = self.lock();
        state.waiting.push_back(Box::new(turn));
        let was_served = std::mem::replace(&mut state.is_served, true);
        // The thread that is woken wants it, and may get this core at once.
        drop(state);
        if !was_served {
            let turns = Arc::clone(self);
            runtime.spawn_blocking(move || turns.serve());
        }
        result
    }

    fn serve(&self) {
        while let Some(turn) = self.next() {
            // A bug in it costs its own asker the answer, not those behind.
            let _ = catch_unwind(AssertUnwindSafe(turn));
        }
    }

    fn next(&self) -> Option<Turn> {
        let mut state = self.lock();
        let next = state.waiting.pop_front();
        state.is_served = next.is_some();
        next
    }

    fn lock(&self) -> MutexGuard<'_, State, order::Turns> {
        self.0.lock()
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Turns({} waiting)", self.lock().waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn work_is_done_in_order_and_a_panic_costs_only_its_own_result() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let turns = Arc::new(Turns::default());
        let (release, wait) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        let done = Arc::new(std::sync::Mutex::new(Vec::new()));
        let first = turns.take(runtime.handle(), move || {
            begun.send(()).unwrap();
            wait.recv().unwrap();
        });
        has_begun.recv().unwrap();
        let broken = turns.take(runtime.handle(), || panic!("a bug"));
        let late: Vec<_> = (0..10)
            .map(|number| {
                let done = Arc::clone(&done);
                turns.take(runtime.handle(), move || done.lock().unwrap().push(number))
            })
            .collect();
        assert!(done.lock().unwrap().is_empty(), "the first one is not done yet");
        release.send(()).unwrap();
        runtime.block_on(async {
            first.await.unwrap();
            assert!(broken.await.is_err());
            for result in late {
                result.await.unwrap();
            }
        });
        assert_eq!(*done.lock().unwrap(), (0..10).collect::<Vec<_>>());
        assert_eq!(runtime.block_on(turns.take(runtime.handle(), || 7)), Ok(7));
    }
}
