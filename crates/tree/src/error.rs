//! The error of operations on a share's directory tree.
//!
//! The variants follow the outcomes of MS-FSA, not errno: only this file (errno and errors of media in) and
//! `server/src/status.rs` (NTSTATUS out) translate.

use pmem::MediumError;
use rustix::io::Errno;
use thiserror::Error;

/// An operation on a share failed; the variant says who is to blame.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ShareError {
    /// The peer's name contains something a Windows name cannot hold.
    #[error("the name is not a valid file name")]
    PeerNameInvalid,
    /// The peer's path tries to leave the share.
    #[error("the path is malformed or leads outside the share")]
    PeerPathSyntax,
    /// The peer names a stream, and the file system of the share has no room to bind one.
    #[error("named streams need a file system with user xattrs")]
    PeerStreamUnsupported,
    /// The peer gives an extended attribute a name it cannot have.
    #[error("the name is not one of an extended attribute")]
    PeerEaName,
    /// More extended attributes than the file system can hold for one file.
    #[error("the extended attributes do not fit")]
    EaTooLarge,
    /// The file system has no user xattrs.
    #[error("extended attributes are not supported here")]
    EasUnsupported,
    /// The last component does not exist.
    #[error("no such file")]
    NotFound,
    /// A directory of the path does not exist.
    #[error("no such directory on the path")]
    PathNotFound,
    /// An object with this name exists already.
    #[error("the name is taken")]
    Exists,
    /// The object is a directory and a file was asked for.
    #[error("it is a directory")]
    IsDirectory,
    /// The object is a file and a directory was asked for.
    #[error("it is not a directory")]
    NotDirectory,
    /// The object is a symbolic link, and the request needs bytes.
    #[error("a symbolic link has no bytes")]
    NoBytes,
    /// The directory still has entries.
    #[error("the directory is not empty")]
    DirectoryNotEmpty,
    /// The operating system, or the way the share is exported, forbids it.
    #[error("access denied")]
    AccessDenied,
    /// The share is exported read-only.
    #[error("the share is read-only")]
    ConfigReadOnly,
    /// The file carries the read-only attribute and was to be deleted.
    #[error("the file is read-only and cannot be deleted")]
    CannotDelete,
    /// Source and target lie on different file systems.
    #[error("source and target are on different devices")]
    CrossDevice,
    /// An argument is out of range for the file system.
    #[error("invalid argument")]
    PeerInvalid,
    /// The server runs as a user who may not change owners, or the change would give away the
    /// server's own rights.
    #[error(
        "the server has no right to do this: owners need CAP_CHOWN, set-user-ID is never given"
    )]
    NotPrivileged,
    /// The file system does not support the operation.
    #[error("the file system does not support this")]
    Unsupported,
    /// No space, or a quota was reached.
    #[error("the disk is full")]
    DiskFull,
    /// The size exceeds what the file system can hold.
    #[error("the file would be too large")]
    TooLarge,
    /// Too many open files in this process: raise the limit or close some.
    #[error("out of file handles")]
    HandlesExhausted,
    /// The operation would have to wait for a device: use the blocking form on a worker.
    #[error("the operation would block")]
    WouldBlock,
    /// An object that the server does not serve: a device, a socket, a pipe.
    #[error("not a regular file or directory")]
    SpecialFile,
    /// The medium failed.
    #[error("the medium failed with {0}")]
    MediaIo(Errno),
    /// A flush of the file has failed, so it is unknown which bytes are durable, and stays unknown.
    #[error("a flush of the file has failed")]
    MediaPoisoned,
}

impl From<Errno> for ShareError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::NotFound,
            Errno::EXIST => Self::Exists,
            Errno::ISDIR => Self::IsDirectory,
            Errno::NOTDIR => Self::NotDirectory,
            Errno::NOTEMPTY => Self::DirectoryNotEmpty,
            Errno::ACCESS | Errno::PERM | Errno::TXTBSY => Self::AccessDenied,
            Errno::ROFS => Self::ConfigReadOnly,
            Errno::NAMETOOLONG | Errno::ILSEQ => Self::PeerNameInvalid,
            Errno::INVAL => Self::PeerInvalid,
            Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => Self::Unsupported,
            Errno::NOSPC | Errno::DQUOT => Self::DiskFull,
            Errno::FBIG | Errno::OVERFLOW => Self::TooLarge,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::HandlesExhausted,
            Errno::AGAIN => Self::WouldBlock,
            Errno::NXIO | Errno::NODEV => Self::SpecialFile,
            other => Self::MediaIo(other),
        }
    }
}

impl From<MediumError> for ShareError {
    fn from(error: MediumError) -> Self {
        match error {
            MediumError::WouldBlock => Self::WouldBlock,
            MediumError::ReadOnly => Self::ConfigReadOnly,
            MediumError::OutOfBounds { .. } | MediumError::Misaligned { .. } => Self::PeerInvalid,
            MediumError::MediaIo(errno) => Self::MediaIo(Errno::from_raw_os_error(errno)),
            MediumError::Truncated | MediumError::VolatileRefused => Self::MediaIo(Errno::IO),
            MediumError::Poisoned => Self::MediaPoisoned,
        }
    }
}

/// The meaning of errno in path resolution: `openat2` returns `EXDEV` when a symbolic link leads
/// out of the share and `ELOOP` when links never end.
pub(super) fn from_resolution(errno: Errno) -> ShareError {
    match errno {
        Errno::XDEV | Errno::LOOP => ShareError::AccessDenied,
        other => ShareError::from(other),
    }
}
