//! Stores of several daemons, each a process of its own that can be killed.

mod copies;
mod daemon;
mod model;
mod regions;
mod structures;
mod tokens;
