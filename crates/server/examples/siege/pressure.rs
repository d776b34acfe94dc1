//! Attacks that go on while the honest client works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Threads that attack again and again, until dropped.
pub(crate) struct Pressure {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Pressure {
    /// A thread for each attack; each call of one is one more try.
    pub(crate) fn of<A: FnMut() + Send + 'static>(attacks: impl IntoIterator<Item = A>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let spawn = |mut attack: A| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    attack();
                }
            })
        };
        let threads = attacks.into_iter().map(spawn).collect();
        Self { is_over, threads }
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}
