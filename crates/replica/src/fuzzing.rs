//! The doors for the fuzz targets to what lies behind module `wire`.

pub use crate::wire::fuzzing::{Several, Stray, greeting};
