//! What is said over connections: frames, compounds, sessions and their channels, and who may say what.
#![allow(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "this program is all tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod channels;
mod compounds;
mod frames;
mod guests;
mod kerberos;
mod nonces;
mod overtaking;
mod pipes;
mod previous;
mod protocol;
mod reload;
mod report;
mod rights;
mod secrecy;
mod unproven;
