//! One named test for each class of bug that ksmbd, the SMB server of the Linux kernel, has had.
//!
//! | class | here | and beside |
//! |---|---|---|
//! | lifetime of session, channel and durable open | `lifetime`, `durable` | `tests/handles/durable.rs`, `tests/connections/channels.rs` |
//! | lengths | `lengths` | the fuzz targets; `client/tests/attack/controls.rs` |
//! | state confusion on bind | `binding` | `tests/connections/channels.rs`: another user, a stranger's key, a wrong password, a session that has ended |
//! | exhaustion before login | `exhaustion` | `tests/bounds/admission.rs`, `tests/connections/protocol.rs`; `cargo xtask flood` |
//! | credit bookkeeping | `credits` | `tests/connections/protocol.rs`; unit tests of `connections/window.rs` |
//!
//! The server runs in this process: a thread of its that panics is counted, whichever test it is of, so this is a
//! program of its own. Every test ends by asking for that, for an honest client, and for what was left behind.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

#[path = "../support/mod.rs"]
mod support;

mod binding;
mod credits;
mod durable;
mod exhaustion;
mod lengths;
mod lifetime;
mod peer;
