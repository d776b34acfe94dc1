//! The server: what peers write as names and patterns, the first look at their frames, and all of
//! it behind one connection.

pub(crate) mod connection;
pub(crate) mod direct;
pub(crate) mod names;
