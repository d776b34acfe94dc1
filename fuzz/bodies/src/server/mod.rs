//! The server: what peers write as names and patterns, and the first look at their frames.

pub(crate) mod direct;
pub(crate) mod names;
