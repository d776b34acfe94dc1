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
//! | `table` | all peers of the engine thread; which of them have work to do |
//! | `peer` | one connection: its parts, its beginning and its end |
//! | `incoming`, `inspect` | from receive buffers to SMB2 messages, and the thread that handles those |
//! | `outgoing`, `invalidations` | from answers to Sends; which Send invalidates which token |
//! | `transfers`, `cursor`, `staging` | RDMA Reads and Writes in bounded pieces |
//! | `spares` | reusable buffers of one connection |
//! | `held` | what requests hold before they are looked at, counted |
//! | `progress` | how long a peer may leave answers, or bytes that the server asks for |
//! | `receives` | the posted receive buffers of one connection |
//! | `mailbox`, `remote` | the path from other threads to a peer: [`super::Outbox`], [`super::RemoteMemory`] |
//! | `private_data` | the private data of kernels in the connection request |
//!
//! A small WRITE by RDMA is read from the client *before* its request is handled, so that the
//! handling finds the bytes in memory and stays on the thread. This trusts the client with nothing:
//! the server reads the client's own memory, at addresses that the client named, into a bounded
//! buffer.
//!
//! Spec: MS-SMBD; MS-SMB2 §3.3.5.12 and §3.3.5.13 (RDMA channels).

mod cursor;
mod error;
mod held;
mod incoming;
mod inspect;
mod invalidations;
mod mailbox;
mod outgoing;
mod peer;
mod private_data;
mod progress;
mod receives;
mod remote;
mod spares;
mod staging;
mod table;
mod tests;
mod transfers;

#[cfg(any(test, feature = "fuzzing"))]
pub use inspect::first_look;
pub(crate) use table::Direct;
