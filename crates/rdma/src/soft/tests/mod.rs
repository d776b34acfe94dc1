//! What an engine promises whatever waits, and faults planted in it that are found.

mod answers;
mod commits;
#[path = "../../../tests/support/mod.rs"]
mod support;
