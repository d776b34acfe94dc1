//! SMB client and remote mapped regions.
//!
//! - [`Client`] is a session on one share: connect, list, delete, rename, [`Client::open`], and
//!   [`Client::map`], which is the door to push mode.
//! - [`File`] is an open file: read, write, flush, metadata, controls, its [`Lease`].
//! - [`FailoverClient`] and [`FailoverFile`] are a session and an open file that come back, at the same server or at
//!   another one that serves the share.
//! - [`blocking`] is both of them without async; a mapped [`Region`] is driven by its owner there.
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
mod failover;
mod file;
mod itself;
mod kind;
mod options;
mod path;
mod region;
mod session;
pub mod transport;
mod tree;
mod url;

pub use client::{Client, initiator};
pub use connection::{LeaseBreak, Negotiated};
pub use error::{ClientError, ConnectionError};
pub use failover::{FailoverClient, FailoverFile};
pub use file::{File, FileStat, Instance, Lasting, Lease, OpenOptions, RangeLock};
pub use kind::ErrorKind;
pub use options::{ConnectOptions, Protection};
pub use region::{AsyncRegion, FallbackReason, Path, Region, RegionError, Smb2};
pub use remote::{Finished, RegionConfigError, RegionSettings, Ticket};
pub use url::{PASSWORD_VARIABLE, SmbUrl, UrlError};
