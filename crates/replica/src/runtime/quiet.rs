//! A moment at which a source's volumes hold everything that is in the order, and nothing else: writers wait so long.

use std::time::Duration;

use log::Lsn;

use super::inner::Inner;
use crate::view::ViewError;

impl Inner {
    /// Has `make` make a view at such a moment. Writers that have no place yet wait until it has.
    pub(super) fn while_quiet<T>(
        &self,
        make: impl FnOnce(Lsn) -> Result<T, ViewError>,
    ) -> Result<T, ViewError> {
        let hub = &self.hub;
        hub.lock().writers.held += 1;
        let made = self.wait_for_quiet().and_then(make);
        let mut state = hub.lock();
        state.writers.held -= 1;
        if state.writers.held == 0 {
            state.writers.wake_waiting();
        }
        made
    }

    /// Waits until all that has a place in the order is in the volumes.
    fn wait_for_quiet(&self) -> Result<Lsn, ViewError> {
        let hub = &self.hub;
        let (tenure, until) = (hub.tenure(), hub.now() + PATIENCE_NS);
        let mut state = hub.lock();
        loop {
            if tenure == 0 || hub.tenure() != tenure {
                return Err(ViewError::ConfigSource);
            }
            let end = state.core.kept().1;
            if state.core.applied() >= end && state.writers.inside == 0 && !hub.may_be_old() {
                return Ok(end);
            }
            if hub.now() > until {
                return Err(ViewError::ConfigBusy);
            }
            let waited = hub.dialers.wait_timeout(state, LOOK_EVERY);
            state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
    }
}

/// How long writers may be held up, in nanoseconds.
const PATIENCE_NS: u64 = 1_000_000_000;
const LOOK_EVERY: Duration = Duration::from_millis(1);
