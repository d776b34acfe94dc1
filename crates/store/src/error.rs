//! Why an operation of a store failed.

use thiserror::Error;

use crate::client::CallError;
use crate::meta::MetaError;
use crate::meta::record::{Class, RecordError};
use crate::place::PlaceError;

/// An operation of a store failed. What was acknowledged before stays.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The name is none.
    #[error(
        "a region cannot be called {0:?}: 1 to 128 letters, digits, dots, dashes and underscores, no dot first"
    )]
    ConfigName(String),
    /// A property of a region that cannot be.
    #[error("{what} of a region cannot be {found}: {expected}")]
    ConfigRegion {
        /// The property.
        what: &'static str,
        /// What was asked for.
        found: u64,
        /// What can be.
        expected: &'static str,
    },
    /// A region of the name exists.
    #[error("region {0} exists already: take another name, or free it first")]
    Exists(String),
    /// No region of the name.
    #[error("the store has no region {0}")]
    NoRegion(String),
    /// The region is being made or removed.
    #[error("region {0} is being made or removed")]
    NotReady(String),
    /// The operation needs the store's key.
    #[error("{0} needs the store's key: a token is not enough")]
    NeedsKey(&'static str),
    /// The token is for another region, or allows less.
    #[error("the token is for another region than {0}, or does not allow this")]
    TokenUnfit(String),
    /// No place for the region.
    #[error("{source}")]
    Place {
        /// Why.
        #[from]
        source: PlaceError,
    },
    /// The range reaches beyond the region.
    #[error("{len} bytes at {offset} do not fit a region of {limit}")]
    OutOfRange {
        /// Where the range begins.
        offset: u64,
        /// Its length.
        len: u64,
        /// Length of the region.
        limit: u64,
    },
    /// An atomic operation must lie at a multiple of 8.
    #[error("offset {0} of an atomic operation is not a multiple of 8")]
    Misaligned(u64),
    /// The region was mapped to read.
    #[error("region {0} is mapped to read, not to write")]
    ReadOnly(String),
    /// Compare-and-swap of several copies.
    #[error(
        "compare-and-swap needs one order of all clients' swaps, which {0} copies do not have without a round of \
         agreement: use a region of one copy, or fetch-and-add"
    )]
    SwapOfCopies(u32),
    /// A commit of memory that forgets.
    #[error(
        "region {name} is of class {class}: a power failure erases it, so nothing can be committed (its daemons \
         answer commits only with --emulate-persistence)"
    )]
    Volatile {
        /// The region.
        name: String,
        /// Its class.
        class: Class,
    },
    /// As many operations as are allowed are submitted and not taken.
    #[error("{0} operations are submitted and not taken: take completions first")]
    QueueFull(usize),
    /// More regions with copies than a client may write to at a time.
    #[error(
        "this client has mapped {0} regions of several copies to write, which is the bound: drop some, or open another store"
    )]
    WritesFull(usize),
    /// No operation is submitted.
    #[error("no operation is outstanding")]
    NothingOutstanding,
    /// It is not known whether an atomic operation took effect.
    #[error(
        "server {0} was lost during an atomic operation: it took effect or it did not, and its number is not known"
    )]
    InDoubt(String),
    /// Bytes that were written and not committed may be gone.
    #[error(
        "server {server} lost power: what this client wrote to region {name} since its last commit may be gone there; read it, or write it again"
    )]
    Lost {
        /// The region.
        name: String,
        /// The server.
        server: String,
    },
    /// A server has the only copy of what is asked for and cannot be reached.
    #[error(
        "server {server}, which has the only copy in sync of piece {piece} of region {name}: {why}"
    )]
    ServerLost {
        /// The server.
        server: String,
        /// The region.
        name: String,
        /// The piece.
        piece: u32,
        /// What was found last.
        why: String,
    },
    /// The region could not be mapped again after a loss.
    #[error("region {name} could not be mapped again: {why}")]
    NotMapped {
        /// The region.
        name: String,
        /// Why.
        why: String,
    },
    /// A daemon refused or did not answer.
    #[error("server {server}: {source}")]
    Server {
        /// The server.
        server: String,
        /// Why.
        source: CallError,
    },
    /// No RDMA connection.
    #[error("server {server} gave no RDMA connection: {why}")]
    Unreachable {
        /// The server.
        server: String,
        /// Why.
        why: String,
    },
    /// Another client is filling the region's copies.
    #[error("another client is rebuilding region {0}: wait until it is done")]
    Rebuilding(String),
    /// A chunk changed each time it was copied.
    #[error(
        "piece {piece} of region {name} is written to without a pause, and a chunk of it was never copied as it stood"
    )]
    Busy {
        /// The region.
        name: String,
        /// The piece.
        piece: u32,
    },
    /// This client was declared dead: its regions may have been freed.
    #[error(
        "this client gave no sign of life for too long and was declared dead: open the store again"
    )]
    Fenced,
    /// The daemon that keeps a region's counters has started anew.
    #[error("the counters of region {0} are lost: the daemon that kept them has started anew")]
    NotesLost(String),
    /// Nothing happened in time.
    #[error("nothing happened in time")]
    Timeout,
    /// A structure's bytes in a region are none.
    #[error("region {name} holds no {what}, or one of another shape")]
    Garbled {
        /// The region.
        name: String,
        /// The structure.
        what: &'static str,
    },
    /// No room in a structure.
    #[error("the {0} is full")]
    Full(&'static str),
    /// A record of metadata is none.
    #[error("the record {key} is damaged: {source}")]
    Record {
        /// The key.
        key: String,
        /// Why.
        source: RecordError,
    },
    /// Metadata.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// This machine gave no RDMA engine, memory, thread or random numbers.
    #[error("this machine gave no {what}: {why}")]
    Host {
        /// What.
        what: &'static str,
        /// Why.
        why: String,
    },
}
