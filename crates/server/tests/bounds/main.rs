//! What peers can make the server hold and spend, and what becomes of it when they vanish or a bug meets them (docs/limits.md).
#![allow(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "this program is all tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod admission;
mod at_hand;
mod inline;
mod ledger;
mod limits;
mod logons;
mod long_reads;
mod panics;
mod vanished;
mod waiting;
