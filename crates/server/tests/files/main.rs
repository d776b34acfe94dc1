//! The tree below a share: names, streams, ranges, mounts, modes.
#![allow(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "this program is all tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod clones;
mod facts;
mod making;
mod mounts;
mod names;
mod overlap;
mod overwriting;
mod posix;
mod ranges;
mod streams;
mod taken;
