//! The engine threads: each owns an RDMA engine, and handles all its events.
//!
//! ```text
//!   control side (tokio)                          engine thread
//!   --------------------                          -------------
//!   HostHandle::register, deregister, disconnect  turn: commands -> poll -> events -> posts
//!      | bounded queue, Waker                        |            |
//!      +-------------------------------------------->|            +--> Gate::admit, gone   (push connections)
//!      <------------ oneshot replies ----------------+            +--> Handler             (all others)
//! ```
//!
//! Rules of these threads, for all code that runs on them ([`Gate`], [`Handler`]):
//!
//! - it never waits: not for a lock held over work, not for a device, not for a peer. It sleeps
//!   only in the engine's own `wait`;
//! - one-sided writes, reads and flushes of push peers happen inside `poll` and `wait`: they
//!   cause no event, so no code here runs for them and nothing is allocated;
//! - every queue into it is bounded by a named constant, and a full queue makes the sender wait.
//!
//! There may be several such threads, each with an engine of its own; they share only gate and program.
//! The first thread listens, and `lanes` chooses the thread that serves a connection.

mod command;
mod gate;
mod handle;
mod handler;
mod lanes;
mod owners;
mod push_side;
mod registrar;
mod registration;
mod request;
mod start;
mod thread;
mod token_gate;
mod tokens;

pub use gate::{Gate, Verdict};
pub use handle::{HostError, HostHandle, PushConnection};
pub use handler::{Handler, PushOnly};
pub use registrar::{Later, Registrar};
pub use registration::{Committing, NotRegistered, Registration, Stage};
pub use request::Request;
pub use start::{Host, HostOptions, OpenHost};
pub use token_gate::{Token, TokenError, TokenGate};
pub use tokens::TokenTable;
