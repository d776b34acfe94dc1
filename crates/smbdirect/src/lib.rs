//! SMB Direct without sockets: how SMB2 messages travel over an RDMA connection.
//!
//! Bytes and the time go in, bytes and deadlines come out; the caller owns the queue pair, the
//! receive buffers and the clock. A tour in the order of a connection's life:
//!
//! 1. [`Config`] holds the limits of this side; it refuses sizes that the side's buffers cannot hold.
//! 2. [`Initiator`] or [`Acceptor`] exchanges [`NegotiateRequest`] and [`NegotiateResponse`], the
//!    only two messages that are not [`DataTransfer`]s, and ends in an [`Agreement`].
//! 3. [`Connection`] carries whole SMB2 messages from then on: it cuts them into fragments
//!    straight into the caller's transmit buffer, puts received fragments together, grants and
//!    spends credits, and notices a peer that has gone silent.
//! 4. [`Descriptors`] name peer memory inside SMB2 READ and WRITE, for the server's RDMA.
//! 5. [`CloseReason`] says why a connection ended and [`Blame`] which side caused the end.
//!
//! ```text
//!   caller                       Connection                            peer
//!   send(message, token) ------> queue --poll_transmit--> RDMA Send -------->
//!   receives_posted(n) --------> credits to grant
//!   <-- whole message <--------- reassembly <--handle_receive-- RDMA Recv <---
//! ```
//!
//! Spec: MS-SMBD (SMB2 Remote Direct Memory Access Transport Protocol). Little-endian throughout.

#![forbid(unsafe_code)]

mod config;
mod connection;
mod credits;
mod data_transfer;
mod descriptor;
mod error;
mod keepalive;
mod negotiate;
mod reassembly;
mod send_queue;

pub use config::{
    Config, ConfigError, FRAGMENTED_SIZE_FLOOR, FRAGMENTED_SIZE_MAX, MESSAGE_SIZE_FLOOR,
    MESSAGE_SIZE_MAX, RECEIVE_CREDITS_FLOOR,
};
pub use connection::{Connection, Transmit};
pub use data_transfer::DataTransfer;
pub use descriptor::{
    BufferDescriptor, DESCRIPTORS_MAX, DescriptorError, Descriptors, RemotePiece, RemotePieces,
    Token,
};
pub use error::{Blame, CloseReason};
pub use keepalive::{IDLE_TIMEOUT, KEEPALIVE_TIMEOUT};
pub use negotiate::{
    Acceptor, Agreement, Initiator, NEGOTIATE_TIMEOUT, NegotiateRequest, NegotiateResponse, Offer,
    Status, VERSION,
};
pub use send_queue::{SEND_QUEUE_MAX, SendError, Unsent};
