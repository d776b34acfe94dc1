//! What an operator changes at a member that runs.

use std::num::NonZeroU64;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::{Member, Rpo};
use crate::core::{Event, Lane, Tuning};
use crate::wire::Policy;

/// What may change at any time; the rest of a [`super::Setup`] is for the whole life of a [`Member`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// What the core decides by.
    pub tuning: Tuning,
    /// How payloads are packed from the next write on.
    pub compression: Policy,
    /// How far asynchronous members may be behind.
    pub rpo: Option<Rpo>,
    /// Bytes that a link sends in a second at most.
    pub bandwidth: Option<NonZeroU64>,
}

impl Member {
    /// Takes other settings; they hold from when this returns.
    pub fn configure(&self, settings: &Settings) {
        let inner = &self.inner;
        *inner.compression.write().unwrap_or_else(PoisonError::into_inner) = settings.compression;
        inner.wire.options.bandwidth.set(settings.bandwidth);
        let (hub, mut state) = (&inner.hub, inner.hub.lock());
        state.core.tune(&settings.tuning);
        state.lag.set(settings.rpo);
        hub.step_locked(&mut state, Event::Tick);
        // Who waits for more members in sync, or for a member that was too far behind, may go on.
        state.writers.wake_waiting();
    }

    /// Returns once what an operator has wanted by now is durable, as far as it lies in the label; `false` where it will not be.
    pub fn is_kept(&self) -> bool {
        let hub = &self.inner.hub;
        let mut state = hub.lock();
        let wanted = state.core.label().sequence;
        while state.core.stored() < wanted {
            if state.ends || state.core.has_failed() {
                return false;
            }
            state = hub.wait(Lane::Label, state);
        }
        true
    }

    /// Fails all requests that wait, and all that come from now on: for a member that ends.
    pub fn fail_requests(&self) {
        let hub = &self.inner.hub;
        let mut state = hub.lock();
        hub.tenure.store(0, Ordering::Release);
        state.writers.stop();
    }
}
