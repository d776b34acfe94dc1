//! When this client is in the metadata, and the thread that says that it lives.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Shared, Store};
use crate::error::StoreError;

impl Store {
    /// From now on the metadata says that this client lives.
    pub(super) fn join(&self) -> Result<(), StoreError> {
        let membership = &self.0.membership;
        let is_new = membership.is_new();
        membership.say()?;
        if is_new {
            let shared = Arc::downgrade(&self.0);
            let pause = membership.lease() / BEATS_PER_LEASE;
            let thread = std::thread::Builder::new().name("store-client".into());
            let started = thread.spawn(move || live(&shared, pause));
            started.map_err(|error| StoreError::Host { what: "thread", why: error.to_string() })?;
        }
        Ok(())
    }

    /// Notes that this client writes to a region of several copies.
    pub(super) fn note_writer(&self, name: &str) -> Result<(), StoreError> {
        self.join()?;
        self.0.membership.add_write(name)
    }
}

impl Shared {
    /// A mapping of the region is gone, and nothing that was written by it is unanswered.
    pub(super) fn forget_writer(&self, name: &str) {
        self.membership.end_write(name);
    }
}

fn live(shared: &Weak<Shared>, pause: Duration) {
    loop {
        // Not one long sleep: the client may end meanwhile.
        for _ in 0..LOOKS_PER_BEAT {
            std::thread::sleep(pause / LOOKS_PER_BEAT);
            let is_over = shared.upgrade().is_none_or(|one| one.closed.load(Ordering::Acquire));
            if is_over {
                return;
            }
        }
        let Some(shared) = shared.upgrade() else { return };
        if let Err(error) = shared.membership.say() {
            tracing::warn!(%error, "the metadata did not take this client's sign of life");
        }
    }
}

const BEATS_PER_LEASE: u32 = 4;
const LOOKS_PER_BEAT: u32 = 8;
