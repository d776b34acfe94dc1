//! Why a daemon does not start.

use std::net::SocketAddr;
use std::path::PathBuf;

use rdma::EngineError;
use thiserror::Error;

use crate::meta::MetaError;
use crate::meta::record::RecordError;

/// Why a daemon does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HostError {
    /// The name is none.
    #[error(
        "a store's server cannot be called {name:?}: 1 to 128 letters, digits, dots, dashes and underscores"
    )]
    ConfigName {
        /// The name.
        name: String,
    },
    /// A daemon of this name runs.
    #[error("a server {name} of this store is running: give this one another name")]
    ConfigTwice {
        /// The name.
        name: String,
    },
    /// The directory is another server's.
    #[error("{} holds the pieces of server {owner}: start it as {owner}, or take another directory", path.display())]
    ConfigOwner {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: String,
        /// Who wants it.
        name: String,
    },
    /// The directory is another store's.
    #[error(
        "{} holds pieces of store {owner}, and the metadata named are of store {found}: the daemon would take every piece \
         for a remnant and remove it. Name the metadata of {owner}, or another directory", path.display()
    )]
    ConfigStore {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: String,
        /// Whose the metadata are.
        found: String,
    },
    /// The directory is none of a store.
    #[error(
        "{} is no directory of a store, and {} lies in it: a daemon makes and removes files in its directory. Name one that \
         is new or empty", path.display(), found.display()
    )]
    ConfigForeign {
        /// The directory.
        path: PathBuf,
        /// A file in it.
        found: PathBuf,
    },
    /// The key is none of the store.
    #[error(
        "store {store} has another key than this daemon was given, which would refuse every client: copy the key file of the \
         store's first daemon"
    )]
    ConfigKey {
        /// The store.
        store: String,
    },
    /// A daemon runs in the directory.
    #[error("a daemon is running in {}: stop it first, or take another directory", path.display())]
    ConfigInUse {
        /// The directory.
        path: PathBuf,
    },
    /// The store's own record is none.
    #[error("the record store of the metadata is damaged: {0}")]
    ConfigRecord(RecordError),
    /// The directory cannot be used.
    #[error("the directory of the store {}: {source}", path.display())]
    Directory {
        /// The directory or a file in it.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// RDMA.
    #[error("RDMA: {0}")]
    Engine(#[from] EngineError),
    /// No random numbers.
    #[error("this machine gave no random numbers")]
    Random,
    /// A thread was not started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// The metadata.
    #[error(transparent)]
    Meta(#[from] MetaError),
}
