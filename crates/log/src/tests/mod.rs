//! Promises of a log, on memory that fails, forgets and crashes.

mod behaving;
mod crash_destaging;
mod crash_direct;
mod crash_images;
mod destaging;
mod direct_failures;
mod ends;
mod flushes;
mod in_async;
mod labels;
mod members;
mod memory;
mod stories;
