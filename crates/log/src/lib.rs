//! The tail of a log: memory that takes the newest records of a log at the speed of a store and a fence.
//!
//! Start at [`TailLog`]. Its members are [`Store`]s: a file or other memory of this machine ([`LocalStore`]), or a
//! region of another one, mapped for push mode ([`RemoteStore`]). With several members each commit is at all that are
//! in sync before it returns, and the log survives the loss of all but one.
//!
//! ```text
//!   TailLog -> staging (records are encoded) -> mirror (members in sync) -> store (local | remote)
//!      open -> scan (finds the tail)          create, label, record: the format
//!   Destager -> archive (a file or device that takes full blocks)       AsyncLog: the same for async code
//! ```
//!
//! docs/tail-log.md describes the format and what a crash leaves.
#![forbid(unsafe_code)]

mod archive;
mod create;
mod destager;
mod direct;
mod error;
mod format;
mod gate;
mod in_async;
mod lsn;
mod members;
mod mirror;
mod open;
mod options;
#[cfg(test)]
mod planted;
mod replay;
mod ring;
mod scan;
mod seal;
mod staging;
mod store;
mod tail_log;
#[cfg(test)]
mod tests;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub use archive::{Archive, ArchiveReplay};
pub use create::is_blank;
pub use destager::{DestageOptions, DestageStatus, Destager};
pub use error::LogError;
pub use format::LabelError;
pub use in_async::AsyncLog;
pub use lsn::{Generation, Lsn};
pub use members::{MEMBERS_MAX, MemberSet};
pub use options::{CreateOptions, MasterKey, OpenOptions};
pub use replay::Replay;
pub use store::{
    COMMITS_MAX, DeviceStore, LocalStore, LocalStoreError, RemoteStore, Store, StoreError, Worth,
};
pub use tail_log::{Status, TailLog};
