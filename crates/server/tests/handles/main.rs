//! Opens and what is written through them: what waits, what lasts, what comes back after a crash.
#![allow(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "this program is all tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod borrowed;
mod deletion;
mod durable;
mod outage;
mod persistent;
mod reads_and_locks;
mod start;
mod stream_handles;
mod under_way;
mod write_back;
mod write_through;
