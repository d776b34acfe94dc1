//! What an error is to a caller who does not know SMB: the words of C's `errno` and of Python's exceptions.

use smb::NtStatus;

use crate::error::ClientError;

/// The kind of a [`ClientError`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file, a directory on its path, or the share does not exist.
    NotFound,
    /// The name exists already.
    AlreadyExists,
    /// The user lacks the right.
    AccessDenied,
    /// The server did not admit the user: name, password, or an account that may not log on.
    Logon,
    /// Another open or lock excludes this one, or the file is about to go.
    InUse,
    /// The medium or a quota is full.
    NoSpace,
    /// The medium or the share cannot be written.
    ReadOnly,
    /// The medium failed.
    Media,
    /// It is a directory.
    IsDirectory,
    /// It is no directory.
    NotADirectory,
    /// The directory is not empty.
    NotEmpty,
    /// The name is none.
    InvalidName,
    /// The server does not know or do this.
    NotSupported,
    /// The server refused for another reason.
    Refused,
    /// The connection is gone, or there never was one.
    Connection,
    /// The server broke the protocol, or did not prove itself.
    Protocol,
    /// The caller asked for what cannot be.
    Config,
    /// This machine gave no thread or random numbers.
    Host,
}

impl ClientError {
    /// What the error is to a caller who does not know SMB.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::PeerStatus { status, .. } => ErrorKind::of(*status),
            Self::PeerMalformed { .. }
            | Self::PeerShortWrite { .. }
            | Self::PeerDialect(_)
            | Self::PeerNegotiation
            | Self::PeerUnproven(_)
            | Self::PeerListing { .. }
            | Self::PeerListingEndless => ErrorKind::Protocol,
            Self::PeerNotPersistent => ErrorKind::NotSupported,
            Self::Authentication(_) | Self::ConfigSigning => ErrorKind::Logon,
            Self::Connection(_) => ErrorKind::Connection,
            Self::ConfigName(_) => ErrorKind::InvalidName,
            Self::ConfigUrl(_)
            | Self::ConfigTooLong { .. }
            | Self::ConfigRange { .. }
            | Self::ConfigEncryption
            | Self::ConfigRegion(_) => ErrorKind::Config,
            Self::HostThread | Self::HostRandom => ErrorKind::Host,
        }
    }
}

impl ErrorKind {
    /// The kind of a server's status.
    pub fn of(status: NtStatus) -> Self {
        match status {
            NtStatus::OBJECT_NAME_NOT_FOUND
            | NtStatus::OBJECT_PATH_NOT_FOUND
            | NtStatus::NO_SUCH_FILE
            | NtStatus::NOT_FOUND
            | NtStatus::BAD_NETWORK_NAME => Self::NotFound,
            NtStatus::OBJECT_NAME_COLLISION => Self::AlreadyExists,
            NtStatus::ACCESS_DENIED
            | NtStatus::NETWORK_ACCESS_DENIED
            | NtStatus::PRIVILEGE_NOT_HELD
            | NtStatus::CANNOT_DELETE => Self::AccessDenied,
            NtStatus::LOGON_FAILURE
            | NtStatus::ACCOUNT_RESTRICTION
            | NtStatus::ACCOUNT_DISABLED
            | NtStatus::ACCOUNT_LOCKED_OUT
            | NtStatus::PASSWORD_EXPIRED
            | NtStatus::NO_SUCH_USER => Self::Logon,
            NtStatus::SHARING_VIOLATION
            | NtStatus::FILE_LOCK_CONFLICT
            | NtStatus::LOCK_NOT_GRANTED
            | NtStatus::DELETE_PENDING
            | NtStatus::USER_MAPPED_FILE
            | NtStatus::OPLOCK_NOT_GRANTED => Self::InUse,
            NtStatus::DISK_FULL => Self::NoSpace,
            NtStatus::MEDIA_WRITE_PROTECTED => Self::ReadOnly,
            NtStatus::DATA_ERROR | NtStatus::IO_DEVICE_ERROR => Self::Media,
            NtStatus::FILE_IS_A_DIRECTORY => Self::IsDirectory,
            NtStatus::NOT_A_DIRECTORY => Self::NotADirectory,
            NtStatus::DIRECTORY_NOT_EMPTY => Self::NotEmpty,
            NtStatus::OBJECT_NAME_INVALID
            | NtStatus::OBJECT_PATH_SYNTAX_BAD
            | NtStatus::NAME_TOO_LONG => Self::InvalidName,
            NtStatus::NOT_SUPPORTED
            | NtStatus::NOT_IMPLEMENTED
            | NtStatus::INVALID_DEVICE_REQUEST => Self::NotSupported,
            NtStatus::USER_SESSION_DELETED
            | NtStatus::NETWORK_NAME_DELETED
            | NtStatus::NETWORK_SESSION_EXPIRED
            | NtStatus::CONNECTION_DISCONNECTED
            | NtStatus::CONNECTION_RESET => Self::Connection,
            _ => Self::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use smb::Command;

    use super::*;

    #[test]
    fn a_status_is_told_in_the_words_of_errno() {
        let kind = |status| ClientError::PeerStatus { command: Command::CREATE, status }.kind();
        assert_eq!(kind(NtStatus::OBJECT_PATH_NOT_FOUND), ErrorKind::NotFound);
        assert_eq!(kind(NtStatus::OBJECT_NAME_COLLISION), ErrorKind::AlreadyExists);
        assert_eq!(kind(NtStatus(0xc123_4567)), ErrorKind::Refused);
    }
}
