//! Promises of an engine under waiting work, and planted faults that the tests detect.

mod answers;
mod commits;
mod shared_memory;
#[path = "../../../tests/support/mod.rs"]
mod support;
