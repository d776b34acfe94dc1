//! Stores of several daemons, each a process of its own that can be killed.
#![cfg(test)]

mod clients;
mod copies;
mod daemon;
mod etcd;
mod model;
mod regions;
#[path = "../../../../tests/skipped.rs"]
mod skipped;
mod structures;
mod tokens;
