//! What an engine promises whatever waits, and faults planted in it that are found.

mod answers;
mod commits;
mod shared_memory;
#[path = "../../../tests/support/mod.rs"]
mod support;
