//! Why a run could not be made, which says nothing of the programs in it.

use std::io;
use std::path::{Path, PathBuf};

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A file or program could not be used.
    #[error("{doing} {path:?}: {error}")]
    Io { doing: &'static str, path: PathBuf, error: io::Error },
    /// The kernel refused what tracing needs.
    #[error("the kernel refuses what a simulation needs (ptrace, seccomp): {0}")]
    Kernel(#[from] io::Error),
    /// A program made a system call that no simulation knows.
    #[error("{0}")]
    Unknown(String),
    /// The command line asks for what there is not.
    #[error("{0}")]
    Usage(String),
}

impl Failure {
    pub(crate) fn io(doing: &'static str, path: impl AsRef<Path>, error: io::Error) -> Self {
        Self::Io { doing, path: path.as_ref().to_owned(), error }
    }
}

impl From<nix::Error> for Failure {
    fn from(error: nix::Error) -> Self {
        Self::Kernel(error.into())
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Kernel(error.into())
    }
}
