//! A program whose control side is not SMB: what it builds on regions, and what it hosts.

#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod control;
mod hosting;
mod log;
mod server;
mod structures;
