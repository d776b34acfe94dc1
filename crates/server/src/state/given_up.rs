//! Opens that somebody asks for while no client is there to be told: they are closed soon.

use basics::ordered::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::serial::OpenSerial;
use crate::lock_order as order;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct GivenUp {
    serials: Mutex<Vec<OpenSerial>, order::GivenUp>,
    changed: Notify,
}

impl GivenUp {
    /// Somebody asks for what these hold.
    pub(crate) fn add(&self, serials: &[OpenSerial]) {
        if !serials.is_empty() {
            self.lock().extend_from_slice(serials);
            self.changed.notify_one();
        }
    }

    /// Takes all of them.
    pub(crate) fn take(&self) -> Vec<OpenSerial> {
        std::mem::take(&mut *self.lock())
    }

    /// Wakes whoever waits for a [change](Self::changed).
    pub(crate) fn notify(&self) {
        self.changed.notify_one();
    }

    /// Returns once there may be something to do.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OpenSerial>, order::GivenUp> {
        self.serials.lock()
    }
}
