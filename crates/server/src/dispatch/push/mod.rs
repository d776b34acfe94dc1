//! The controls of push mode, and its create context, as a client asks for them.
//!
//! Spec: docs/push-mode.md.

mod map;
mod mapped;
mod offer;
mod under_lease;
mod wait;

pub(crate) use map::control;
pub(crate) use offer::offer;
