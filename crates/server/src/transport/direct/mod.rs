//! SMB Direct: SMB2 messages over RDMA, on the engine thread.
//!
//! ```text
//!   engine events                    Peer                                 tokio
//!   -------------                    ----                                 -----
//!   Recv --> Receives --> smbdirect --> inspect --+--> Connection::handle (READ, WRITE, FLUSH,
//!                                                 |       ECHO that are small: here and now)
//!                                                 +--> the same on a task, "away" (the rest)
//!                                                           |
//!   Write, Send <-- outgoing <-- items <-- Mailbox <--------+---- Outbox, RemoteMemory
//!   Read ---------> transfers --> staging --> bytes for WRITE
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `table` | all peers of the engine thread; who has work to do |
//! | `peer` | one connection: its parts, its beginning and its end |
//! | `incoming`, `inspect` | from receive buffers to SMB2 messages, and where those are handled |
//! | `outgoing`, `invalidations` | from answers to Sends; which Send invalidates what |
//! | `transfers`, `cursor`, `staging` | RDMA Reads and Writes in bounded pieces |
//! | `spares` | buffers of one connection that are used again |
//! | `receives` | the posted receive buffers of one connection |
//! | `mailbox`, `remote` | how other threads reach a peer: [`super::Outbox`], [`super::RemoteMemory`] |
//! | `private_data` | what kernels put into the connection request |
//!
//! A small WRITE by RDMA is read from the client *before* its request is handled, so that the
//! handling finds its bytes at hand and nothing leaves the thread. What is trusted for that is
//! nothing: the client's own memory, at addresses it named, is read into a bounded buffer.
//!
//! Spec: MS-SMBD; MS-SMB2 §3.3.5.12 and §3.3.5.13 (RDMA channels).

mod cursor;
mod error;
mod incoming;
mod inspect;
mod invalidations;
mod mailbox;
mod outgoing;
mod peer;
mod private_data;
mod receives;
mod remote;
mod spares;
mod staging;
mod table;
mod transfers;

pub use inspect::first_look;
pub(crate) use table::{Direct, DirectId, Request};
