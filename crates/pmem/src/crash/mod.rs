//! Crash images: every content that a medium may have if the power fails at any moment of a recorded run.
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
//! group-commit code of the real media and records the requests of that code to the machine: stores,
//! write-backs, fences; or writes and flushes. [`check`] walks the log, and at each point tries
//! every legal state, or a sample if there are too many. [`Sabotage`] makes the machine
//! ignore one kind of request: a check that accepts a sabotaged machine proves nothing.
//!
//! # Legal states
//!
//! *Persistent memory.* Bytes become durable in aligned words of 8; a placement that covers a
//! word in part may tear there by the byte. Cached stores to one cache line become durable in the
//! order they were made, lines independently of each other, and at any time, since a cache may
//! evict any line. Streamed words become durable independently of each other. A streamed word is
//! durable after a fence of the **same** CPU; a cached store is durable after a write-back of its
//! line and then a fence of the **same** CPU.
//!
//! *Storage.* Bytes become durable in sectors of 512. After a crash a sector holds any version
//! that it had since its last flush. A flush makes the writes durable that came before the flush
//! **began**, and only once the flush has ended.
//!
//! Every thread counts as a CPU of its own, which is the worst case of a scheduler.
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
