//! Why the memory of a member cannot be used.

use std::io;
use std::path::PathBuf;

use log::Lsn;
use pmem::{MapError, MediumError};
use thiserror::Error;

use crate::format::FormatError;
use crate::names::{GroupId, MemberId};

/// Why a call of a [`super::Ring`] did nothing, or cannot be relied on.
#[derive(Debug, Error)]
pub enum RingError {
    /// The medium failed, or does not do what was asked.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// The caller's: the room is not free.
    #[error(
        "{len} bytes at {lsn} do not fit: the ring keeps what lies from {start} on and ends at {limit}"
    )]
    NoRoom {
        /// Where the bytes begin.
        lsn: Lsn,
        /// How many they are.
        len: u64,
        /// The oldest record that is kept.
        start: Lsn,
        /// Behind the last byte that fits.
        limit: Lsn,
    },
    /// The caller's: a record would cross the end of the ring.
    #[error("a record of {len} bytes at {lsn} would cross the end of the ring")]
    Crosses {
        /// Where the record begins.
        lsn: Lsn,
        /// How long it is.
        len: u64,
    },
    /// The caller's: there is no room for a page of a dirty map.
    #[error("there is no room for the dirty map of {member} at offset {offset}")]
    NoMap {
        /// Whose map.
        member: MemberId,
        /// Where in its persistent form.
        offset: u64,
    },
    /// The caller's: a label is not newer than the one in force.
    #[error("label {stored} is not newer than label {found}")]
    Sequence {
        /// The sequence of the label in force.
        found: u64,
        /// That of the new one.
        stored: u64,
    },
    /// The memory belongs to another group.
    #[error("this is the log of group {found}, not of {wanted}")]
    OtherGroup {
        /// Whose it is.
        found: GroupId,
        /// Whose it should be.
        wanted: GroupId,
    },
    /// The memory is that of another member.
    #[error("this is the log of {found}, not of {wanted}")]
    OtherMember {
        /// Whose it is.
        found: MemberId,
        /// Whose it should be.
        wanted: MemberId,
    },
    /// Neither slot holds a label that can be used.
    #[error("label at byte 0: {first}; label at byte 4096: {second}")]
    NoLabel {
        /// Why the first slot does not.
        first: FormatError,
        /// Why the second one does not.
        second: FormatError,
    },
    /// The memory is shorter than its label says.
    #[error("the log was cut: it has {has} bytes, its label says {needs}")]
    Truncated {
        /// Bytes there are.
        has: u64,
        /// Bytes there were.
        needs: u64,
    },
    /// The memory is too short for what is to be made there.
    #[error("{has} bytes are too few for a log of {needs}")]
    TooShort {
        /// Bytes there are.
        has: u64,
        /// Bytes wanted.
        needs: u64,
    },
    /// The caller's: no memory can be divided like this.
    #[error("a ring of {capacity} bytes cannot be made: it must be a multiple of 4096")]
    Geometry {
        /// The capacity that was wanted.
        capacity: u64,
    },
    /// Something else lies where a log is to be made.
    #[error("there is something already: bytes that are not zero at byte {offset}")]
    Foreign {
        /// Where it begins.
        offset: u64,
    },
    /// A log lies where one is to be made.
    #[error("there is a log of group {0} already")]
    Exists(GroupId),
}

/// Why a file is no ring.
#[derive(Debug, Error)]
#[error("{path}: {cause}")]
pub struct OpenError {
    /// The file.
    pub path: PathBuf,
    /// Why not.
    #[source]
    pub cause: OpenCause,
}

/// See [`OpenError`].
#[derive(Debug, Error)]
pub enum OpenCause {
    /// Another program uses it.
    #[error("another program has this log open")]
    InUse,
    /// The operating system did not open, lock or flush it.
    #[error("cannot open the log: {0}")]
    Open(io::Error),
    /// The file system has no room.
    #[error("cannot reserve {len} bytes for the log: {cause}")]
    Reserve {
        /// Bytes wanted.
        len: u64,
        /// Why not.
        cause: io::Error,
    },
    /// The file cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// Its content is not that of a ring.
    #[error(transparent)]
    Ring(#[from] RingError),
}
