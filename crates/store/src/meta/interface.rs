//! What metadata does, whatever keeps them.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// A value and its version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The value.
    pub value: Vec<u8>,
    /// The version, greater with each change of the key; never 0.
    pub version: u64,
}

/// A change of one key.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The key.
    pub key: &'a str,
    /// The new value; `None` removes the key.
    pub value: Option<&'a [u8]>,
    /// Whether the change survives power loss once it is answered.
    pub durable: bool,
}

/// Keys, values and versions, shared by all daemons and clients of a store.
pub trait Meta: Debug + Send + Sync {
    /// The value of a key.
    ///
    /// # Errors
    /// The metadata cannot be reached.
    fn get(&self, key: &str) -> Result<Option<Entry>, MetaError>;

    /// All keys that begin with `prefix`, in order, at one moment or, for a file, each at a moment of the call.
    ///
    /// # Errors
    /// The metadata cannot be reached.
    fn list(&self, prefix: &str) -> Result<Vec<(String, Entry)>, MetaError>;

    /// Changes one key if every key of `only_if` has the version named; `None`: it is absent. Returns the new version
    /// (0 for a removal), or `None` if a key had another version and nothing was changed.
    ///
    /// # Errors
    /// The metadata cannot be reached; the change may then have been made.
    fn swap(
        &self,
        change: Change<'_>,
        only_if: &[(&str, Option<u64>)],
    ) -> Result<Option<u64>, MetaError>;
}

/// Why metadata could not be read or changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MetaError {
    /// The place is none.
    #[error("{place} is no place of metadata: name a directory, or etcd://HOST:PORT/NAME")]
    ConfigPlace {
        /// What was named.
        place: String,
    },
    /// The directory is none of a store.
    #[error(
        "{} holds no metadata of a store, and {} lies in it: name a directory that is new or empty", path.display(), found.display()
    )]
    ConfigForeign {
        /// The directory.
        path: PathBuf,
        /// A file in it.
        found: PathBuf,
    },
    /// The file system refused.
    #[error("metadata {}: {source}", path.display())]
    HostFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is no record.
    #[error("metadata {}: the file is damaged", .0.display())]
    MediaGarbled(PathBuf),
    /// Etcd did not answer.
    #[error("etcd at {endpoint} did not answer: {source}")]
    PeerSilent {
        /// The endpoint that was asked last.
        endpoint: String,
        /// Why.
        source: Box<ureq::Error>,
    },
    /// Etcd refused.
    #[error("etcd at {endpoint} refused with HTTP status {status}")]
    PeerRefused {
        /// The endpoint.
        endpoint: String,
        /// The status.
        status: u16,
    },
    /// Etcd answered nonsense.
    #[error("etcd at {endpoint} answered what is no answer")]
    PeerGarbled {
        /// The endpoint.
        endpoint: String,
    },
}

/// Endpoints of etcd at most.
pub const ENDPOINTS_MAX: usize = 16;
/// How long one endpoint is waited for.
pub(crate) const ENDPOINT_PATIENCE: Duration = Duration::from_secs(2);
