//! Why an operation on a logged file failed.

use std::io;

use log::{LocalStoreError, LogError, StoreError};
use thiserror::Error;

use crate::record::RecordError;
use crate::side::SideError;

/// An operation on a logged file failed. What was committed before stays in the log.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoggedError {
    /// The caller's: the file was left with commits in its log, and no log is there.
    #[error("the last commits of this file are in a log that is not there")]
    ConfigLogGone,
    /// The caller's: the log belongs to another file.
    #[error(
        "the log is that of another file (its key is {found:#018x}, this file's is {own:#018x})"
    )]
    ConfigOtherFile {
        /// Key in the record.
        found: u64,
        /// Key of this file.
        own: u64,
    },
    /// The caller's: the last commits are in a log, and another one is there.
    #[error(
        "the last commits of this file are in another log than the one that is there: bring that one, or remove this one \
         and give the commits up"
    )]
    ConfigOtherLog,
    /// The caller's: the file would be longer than an offset can say.
    #[error("a write of {len} bytes at {offset} is beyond what a file can be")]
    ConfigBeyondEnd {
        /// Where.
        offset: u64,
        /// Bytes.
        len: usize,
    },
    /// The log failed.
    #[error("the log: {0}")]
    Log(#[from] LogError),
    /// A member of the log on this machine cannot be opened.
    #[error("the log: {0}")]
    Member(#[from] LocalStoreError),
    /// A member of the log at a server cannot be opened.
    #[error("the log: {0}")]
    RemoteMember(#[from] StoreError),
    /// The share of a member cannot be reached.
    #[error("the log's server: {0}")]
    Share(#[from] client::ClientError),
    /// A record of the log is none of ours.
    #[error("a record of the log: {0}")]
    Record(#[from] RecordError),
    /// The file that says which log belongs to the base.
    #[error(transparent)]
    Side(#[from] SideError),
    /// The file below failed.
    #[error("the file: {0}")]
    Base(#[from] io::Error),
    /// An earlier flush of the file below failed. What was committed is in the log: open the file again.
    #[error(
        "an earlier flush of the file failed; the log has what was committed: open the file again"
    )]
    FlushFailed,
    /// The operating system gave no random numbers.
    #[error("this machine gave no random numbers")]
    Random,
}
