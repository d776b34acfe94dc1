//! Clients of other makers, and the client of SMB Direct that the tests have of their own.
#![allow(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "this program is all tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod kernel;
mod smb_direct;
mod smbclient;
mod unusual;
