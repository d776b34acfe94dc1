//! What an operator may change of a member's configuration while it runs.

use super::config::{Config, Congestion, Mode};
use super::{Core, Role};
use crate::names::MemberId;

/// The part of a [`Config`] that may change at any time, each member at its own moment: none of it says what is in a record or
/// in a label, and every decision asks for it anew.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tuning {
    /// The mode of each member, this one included.
    pub modes: Vec<(MemberId, Mode)>,
    /// See [`Config::least_in_sync`].
    pub least_in_sync: u32,
    /// See [`Config::congestion`].
    pub congestion: Congestion,
    /// See [`Config::window`].
    pub window: u64,
    /// See [`Config::silence_ns`].
    pub silence_ns: u64,
    /// See [`Config::retention_ns`].
    pub retention_ns: u64,
}

impl Config {
    /// What of it may change.
    pub fn tuning(&self) -> Tuning {
        let mut modes = self.others.clone();
        modes.push((self.me, self.my_mode));
        Tuning {
            modes,
            least_in_sync: self.least_in_sync,
            congestion: self.congestion,
            window: self.window,
            silence_ns: self.silence_ns,
            retention_ns: self.retention_ns,
        }
    }
}

impl Core {
    /// Takes other values. What follows from them is done with the next event.
    pub fn tune(&mut self, tuning: &Tuning) {
        let me = self.config.me;
        for (member, mode) in &tuning.modes {
            if *member == me {
                self.config.my_mode = *mode;
            }
            let of = self.config.others.iter_mut().find(|(of, _)| of == member);
            if let Some((_, configured)) = of {
                *configured = *mode;
            }
            if let Role::Source(source) = &mut self.role
                && let Some(other) = source.peer_mut(*member)
            {
                other.mode = *mode;
            }
        }
        self.config.least_in_sync = tuning.least_in_sync;
        self.config.congestion = tuning.congestion;
        self.config.window = tuning.window;
        self.config.silence_ns = tuning.silence_ns;
        self.config.retention_ns = tuning.retention_ns;
    }
}
