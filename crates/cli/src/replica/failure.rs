//! Why a command on a group fails.

use std::io;
use std::path::PathBuf;

use crate::volume::VolumeFailure;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplicaFailure {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Syntax { path: PathBuf, source: Box<toml::de::Error> },
    #[error("{}: {why}", path.display())]
    Group { path: PathBuf, why: String },
    #[error("{what} {text:?}: write {form}")]
    Written { what: &'static str, text: String, form: &'static str },
    #[error("the group has no member {name:?}; it has {known}")]
    NoMember { name: String, known: String },
    #[error("the group has no volume {0:?}")]
    NoVolume(String),
    #[error("others may read {}, which holds the secret of the group: chmod 600 it", .0.display())]
    Open(PathBuf),
    #[error("no random numbers: {0}")]
    Random(String),
    #[error(transparent)]
    Ring(#[from] replica::ring::OpenError),
    #[error("{}: {source}", path.display())]
    Volume { path: PathBuf, source: VolumeFailure },
    #[error("{} has {found} bytes, and the volume has {wanted}", path.display())]
    Size { path: PathBuf, found: u64, wanted: u64 },
    #[error(transparent)]
    Start(#[from] replica::runtime::StartError),
    #[error("the links of the member: {0}")]
    Link(#[from] replica::wire::LinkError),
    #[error("the identity of the member: {0}")]
    Identity(#[from] replica::wire::IdentityError),
    #[error("the witness: {0}")]
    Witness(#[from] replica::witness::WitnessError),
    #[error("the threads of the promoter: {0}")]
    Promoter(io::Error),
    #[error("no member of the group runs on this machine: no socket answers at {}", .0)]
    Nobody(String),
    #[error("several members of the group run on this machine ({names}): name one with {option}")]
    Several { names: String, option: &'static str },
    #[error("member {name} does not run on this machine: no socket answers at {}", path.display())]
    Away { name: String, path: PathBuf },
    #[error("the member at {}: {why}", path.display())]
    Control { path: PathBuf, why: String },
    #[error("{0}")]
    Refused(String),
    #[error("measuring to {member}: {source}")]
    NoAnswer { member: String, source: replica::wire::LinkError },
    #[error(transparent)]
    Disk(#[from] replica::topology::DiskError),
    #[error("not in force: {0}")]
    NotInForce(String),
    #[error("these members have not compared everything: {0}")]
    NotCompared(String),
    #[error("{0} ranges differed, and are copied from the source")]
    Differs(usize),
    #[error("the name of a directory is no UTF-8")]
    DirectoryName,
}

impl ReplicaFailure {
    /// What the person at the terminal can do.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Nobody(_) | Self::Away { .. } => Some(
                "landfast replica serve runs a member; the socket is for the user that runs it",
            ),
            Self::Volume { source: VolumeFailure::Io(source), .. }
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Some(
                    "landfast replica prepare FILE MEMBER makes the log and the volumes of a member first",
                )
            }
            Self::Volume { source, .. } => source.hint(),
            Self::NoAnswer { .. } => Some(
                "on the other machine: landfast replica test-topology FILE MEMBER --answer, while its member does not run",
            ),
            Self::NotInForce(_) => Some(
                "landfast replica apply FILE --dry-run says why, and what to do: most of it is to end the member and start it again",
            ),
            Self::NotCompared(_) => {
                Some("landfast replica status shows them; verify again once they follow")
            }
            Self::Differs(_) => Some(
                "the disks or the memory of that member changed what was written: look at them, and verify again",
            ),
            Self::File { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
                Some("a group is described there already: take another name, or remove the file")
            }
            _ => None,
        }
    }
}
