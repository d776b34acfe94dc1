//! Stores of several daemons, each a process of its own that can be killed.
#![cfg(test)]

mod between;
mod clients;
mod copies;
mod daemon;
mod etcd;
mod hostile;
mod keeping;
mod model;
mod regions;
mod returned;
#[path = "../../../../tests/skipped.rs"]
mod skipped;
mod structures;
mod tokens;
