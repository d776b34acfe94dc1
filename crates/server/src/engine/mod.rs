//! The engine threads: each owns an RDMA engine, and handles all its events.
//!
//! ```text
//!   control side (tokio)                       engine thread
//!   --------------------                       -------------
//!   Handle::register, deregister, disconnect   Turn: commands -> poll -> events -> posts
//!      | bounded queue, Waker                     |            |
//!      +----------------------------------------->|            +--> Gate::admit, gone   (push)
//!      <------------ oneshot replies -------------+            +--> transport::direct (SMB Direct)
//! ```
//!
//! Rules of these threads, for all code that runs on them ([`Gate`], `transport::direct`):
//!
//! - it never waits: not for a lock held over work, not for a device, not for a peer. It sleeps
//!   only in the engine's own `wait`;
//! - one-sided writes, reads and flushes of push peers happen inside `poll` and `wait`: they
//!   cause no event, so no code here runs for them and nothing is allocated;
//! - every queue into it is bounded by a named constant, and a full queue makes the sender wait.
//!
//! There may be several such threads, each with an engine of its own; they share only the server.
//! The first thread listens, and `lanes` chooses the thread that serves a connection.
//!
//! Connection requests whose private data is a push token go to the [`Gate`]; all others are
//! SMB Direct.

mod bridge;
mod command;
mod gate;
mod handle;
mod lanes;
mod owners;
mod push_side;
mod request;
mod start;
mod thread;

#[cfg(test)]
mod tests;

pub(crate) use bridge::PushBridge;
pub(crate) use gate::Gate;
pub(crate) use start::{EngineOptions, EngineThreads, OpenEngine};
