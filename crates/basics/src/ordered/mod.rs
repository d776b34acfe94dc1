//! Locks whose order the program checks each time that it takes one.
//!
//! Each lock has a [`Rank`], which stands in its type. A thread may take a lock if the rank is above the ranks of all
//! locks that the thread holds; so no circle of threads can wait for each other. A lock of the ranks from [`LEAVES`]
//! on is a leaf: while a thread holds it, the thread takes no other lock, not even another leaf.
//!
//! ```text
//!  rank      0 1 2 ..                      32 .. 63
//!            outermost --> innermost       leaves: beside each other, one at a time
//!  held      0 0 1 ..                      a bit for each rank, in a word of the thread
//! ```
//!
//! A lock that is taken out of order is reported with an error in the log, once for each pair of ranks, and taken all
//! the same: order is a promise of the program, and a service that runs is worth more than the promise. Where the
//! environment variable [`VARIABLE`] is `panic`, as in every test of this repository, the thread panics instead,
//! before it waits. Locks may be released in any order. A poisoned lock is taken like any other: a panic leaves the
//! state as consistent as the code before it did.

mod condvar;
mod held;
mod mutex;
mod rank;
mod rwlock;

pub use condvar::Condvar;
pub use held::VARIABLE;
pub use mutex::{AllGuards, Mutex, MutexGuard};
pub use rank::{LEAVES, RANKS, Rank};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(test)]
mod tests;
