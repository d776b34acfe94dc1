//! SMB client and remote mapped regions.
//!
//! - [`Client`] is a session on one share: connect, list, delete, rename, [`Client::open`].
//! - [`File`] is an open file: read, write, flush, metadata, controls, its [`Lease`].
//! - [`blocking`] is both of them without async, and the door to push mode: a mapped [`Region`].
//! - [`transport`] is the seam below: TCP, SMB Direct ([`transport::direct`], to be given to
//!   [`Client::over`]), or whatever else carries frames.
//!
//! An error says who is to blame and what the server answered: [`ClientError`].
#![forbid(unsafe_code)]

pub mod blocking;
mod client;
mod connection;
mod directory;
mod error;
mod file;
mod options;
mod region;
mod session;
pub mod transport;
mod tree;
mod url;

pub use client::{Client, initiator};
pub use connection::{LeaseBreak, Negotiated};
pub use error::{ClientError, ConnectionError};
pub use file::{File, FileStat, Lease, OpenOptions};
pub use options::{ConnectOptions, Protection};
pub use region::{AsyncRegion, FallbackReason, Path, Region, RegionError, Smb2};
pub use remote::{Finished, RegionConfigError, RegionSettings, Ticket};
pub use url::{SmbUrl, UrlError};
