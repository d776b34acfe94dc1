//! Why a command on a store fails.

use std::path::PathBuf;

use store::StoreError;
use store::host::HostError;
use store::meta::MetaError;
use store::token::{KeyError, TokenTextError};

/// See the module.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreFailure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Meta(#[from] MetaError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Token(#[from] TokenTextError),
    #[error("the daemon of the store: {0}")]
    Host(#[from] HostError),
    #[error(
        "metadata in etcd have no key beside them: name the store's key with --key-file (--store-key)"
    )]
    NoKeyFile,
    #[error(
        "there is no store at {place}: LANDFAST_STORE or --meta names the metadata's directory"
    )]
    NoStore { place: String },
    #[error(
        "{missing} copies are still missing: no server of the class has room for them, or is there"
    )]
    Missing { missing: u32 },
    #[error(
        "{missing} copies are still missing, {silent} of them at servers that do not answer and are not known to be dead yet"
    )]
    Silent { missing: u32, silent: u32 },
    #[error("{} is not the key of this store, whose servers would refuse it", path.display())]
    WrongKey { path: PathBuf },
    #[error(
        "region {name} is there already, and a benchmark overwrites its bytes: name a region to be made and removed, or have \
         {name} overwritten with --existing"
    )]
    Measured { name: String },
    #[error("a block of {block} bytes does not fit the region, which has {len}")]
    Block { block: u64, len: u64 },
}

impl StoreFailure {
    /// What the person at the terminal can do.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Missing { .. } | Self::Store(StoreError::Place { .. }) => {
                Some("landfast store servers shows classes, room and state")
            }
            Self::Silent { .. } => Some(
                "10 s after a server has died its copies can be filled elsewhere: rebuild again then",
            ),
            Self::Store(StoreError::ServerLost { .. } | StoreError::Unreachable { .. }) => Some(
                "start the server again with the same name and directory: its pieces are there",
            ),
            Self::Store(StoreError::NoRegion(_)) => Some("landfast store list shows the regions"),
            Self::Store(StoreError::Volatile { .. }) => {
                Some("without --durable the bytes are at every copy when the command ends")
            }
            Self::NoStore { .. } => {
                Some("the first daemon makes it: landfast store serve DIRECTORY")
            }
            Self::Key(KeyError::File { .. }) | Self::WrongKey { .. } | Self::NoKeyFile => {
                Some("the first daemon makes the file; the others get a copy of it")
            }
            _ => None,
        }
    }
}
