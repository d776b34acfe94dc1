//! In the place of an eventfd: a count under a lock, and who waits for it.

use loom::sync::{Condvar, Mutex};

use super::error::EngineError;
use super::waker::WakeReceiver;

/// See the module.
#[derive(Debug)]
pub(super) struct Doorbell {
    count: Mutex<u64>,
    rung: Condvar,
}

impl Doorbell {
    pub(super) fn new() -> Result<Self, EngineError> {
        Ok(Self { count: Mutex::new(0), rung: Condvar::new() })
    }

    pub(super) fn ring(&self) {
        *self.count.lock().expect("no model panics under it") += 1;
        self.rung.notify_one();
    }

    pub(super) fn silence(&self) {
        *self.count.lock().expect("no model panics under it") = 0;
    }
}

impl WakeReceiver {
    /// What an engine does with the descriptor: waits until it is readable.
    pub(crate) fn wait(&self) {
        let doorbell = self.doorbell();
        let mut count = doorbell.count.lock().expect("no model panics under it");
        while *count == 0 {
            count = doorbell.rung.wait(count).expect("no model panics under it");
        }
    }
}
