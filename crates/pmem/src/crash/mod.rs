//! Crash images: what a medium may hold when the power fails, for any moment of a recorded run.
//!
//! ```text
//!   test --place, persist--> Recorder --events--> Log
//!     |                                            | cut after every event
//!     +-- "this is durable now" --> AckLog         v
//!                                     \       CrashPoint: base image + writes that may be lost
//!                                      \           | any legal choice
//!                                       +------> image + what was acknowledged -> your check
//! ```
//!
//! A [`Recorder`] is a [`crate::Medium`] over plain memory. It runs the placement, persist and
//! group-commit code of the real media and records what that code asks of the machine: stores,
//! write-backs, fences; or writes and flushes. [`check`] walks the log, and at each point tries
//! every legal state, or a sample where there are too many. [`Sabotage`] makes the machine
//! forget an order it was given: a test suite that does not notice is not worth having.
//!
//! # What is legal
//!
//! *Persistent memory.* Bytes become durable in aligned words of 8; a placement that covers a
//! word in part may tear there by the byte. Cached stores to one cache line become durable in the
//! order they were made, lines independently of each other, and at any time, since a cache may
//! evict a line unasked. Streamed words become durable each for itself. What a fence of the
//! **same** CPU followed is durable: streamed words, and of cached ones those before a write-back
//! of their line that the fence followed.
//!
//! *Storage.* Bytes become durable in sectors of 512. A sector not flushed since may hold any
//! version it ever had since the last flush. A flush makes durable what was written before it
//! **began**, and only once it has ended.
//!
//! Every thread counts as a CPU of its own, which is the worst that a scheduler can do.
//!
//! Spec: Raad et al., "Persistency Semantics of the Intel-x86 Architecture" (2020), per-line
//! order; Intel SDM vol. 1 §10.4.6.2 for streamed stores.

mod check;
mod event;
mod point;
mod recorder;
mod replay;

pub use check::{AckLog, Budget, CrashState, StateId, Violation, check};
pub use event::{Event, Log};
pub use point::CrashPoint;
pub use recorder::{Recorder, Sabotage};
pub use replay::Replay;
