//! Promises of a log, on memory that fails, forgets and crashes.

mod crash_images;
mod members;
mod memory;
mod stories;
