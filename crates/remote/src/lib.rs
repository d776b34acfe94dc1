//! Remote persistent memory over RDMA, whatever the control side is.
//!
//! Start at [`RemoteRegion`]: a range of a file at another machine, mapped. One-sided writes, reads and
//! commits go over a push connection; everything else (the token, the mapping, the recall, and the same
//! operations while nothing is mapped) goes through a [`Control`], whose [`Messages`] this crate does
//! not know. `client` has those of SMB2.
//!
//! [`AsyncRegion`] is a region driven by a thread of its own.
//!
//! The other side is a [`host::Host`]: engine threads that listen, admit peers by a token, and register
//! ranges of media for them.
#![forbid(unsafe_code)]

pub mod host;
mod region;
mod shared;

pub use region::{
    AsyncRegion, Control, FallbackReason, Finished, Invitation, Listener, Mapping, Messages, Path,
    Piece, Promise, Recall, RegionConfigError, RegionError, RegionSettings, RemoteRegion,
    SharedEngine, Ticket, Ways,
};
