//! From what a share says to what goes over the wire: the one place that decides.
//!
//! Spec: MS-ERREF §2.3, MS-SMB2 §3.3.5.9 and its siblings.

use std::io::{self, ErrorKind};

use smb::NtStatus;
use tree::ShareError;

/// The status that tells a client of this failure.
pub(crate) fn status_of(error: ShareError) -> NtStatus {
    match error {
        // MS-FSA §2.1.5.1: a store without streams refuses their names as invalid.
        ShareError::PeerNameInvalid | ShareError::PeerStreamUnsupported => {
            NtStatus::OBJECT_NAME_INVALID
        }
        ShareError::PeerEaName => NtStatus::INVALID_EA_NAME,
        ShareError::EaTooLarge => NtStatus::EA_TOO_LARGE,
        ShareError::EasUnsupported => NtStatus::EAS_NOT_SUPPORTED,
        ShareError::PeerPathSyntax => NtStatus::OBJECT_PATH_SYNTAX_BAD,
        ShareError::NotFound => NtStatus::OBJECT_NAME_NOT_FOUND,
        ShareError::PathNotFound => NtStatus::OBJECT_PATH_NOT_FOUND,
        ShareError::Exists => NtStatus::OBJECT_NAME_COLLISION,
        ShareError::IsDirectory => NtStatus::FILE_IS_A_DIRECTORY,
        // As of a directory: MS-SMB2 §3.3.5.12, §3.3.5.13.
        ShareError::NoBytes => NtStatus::INVALID_DEVICE_REQUEST,
        ShareError::NotDirectory => NtStatus::NOT_A_DIRECTORY,
        ShareError::DirectoryNotEmpty => NtStatus::DIRECTORY_NOT_EMPTY,
        ShareError::AccessDenied | ShareError::SpecialFile => NtStatus::ACCESS_DENIED,
        ShareError::ConfigReadOnly => NtStatus::MEDIA_WRITE_PROTECTED,
        ShareError::NotPrivileged => NtStatus::PRIVILEGE_NOT_HELD,
        ShareError::CannotDelete => NtStatus::CANNOT_DELETE,
        ShareError::CrossDevice => NtStatus::NOT_SAME_DEVICE,
        ShareError::PeerInvalid => NtStatus::INVALID_PARAMETER,
        ShareError::Unsupported => NtStatus::NOT_SUPPORTED,
        ShareError::DiskFull | ShareError::TooLarge => NtStatus::DISK_FULL,
        ShareError::HandlesExhausted => NtStatus::INSUFFICIENT_RESOURCES,
        // Only the forms that may block reach the wire; they never say so.
        ShareError::WouldBlock => NtStatus::UNSUCCESSFUL,
        ShareError::MediaIo(_) => NtStatus::IO_DEVICE_ERROR,
        ShareError::MediaPoisoned => NtStatus::DATA_ERROR,
    }
}

/// What a client is told where the log of persistent opens takes no record.
pub(crate) fn status_of_log(error: &io::Error) -> NtStatus {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => NtStatus::DISK_FULL,
        _ => NtStatus::IO_DEVICE_ERROR,
    }
}

/// An outcome of a share, as a client is told it.
pub(crate) trait OrStatus<T> {
    /// The outcome, with [`status_of`] a failure.
    fn or_status(self) -> Result<T, NtStatus>;
}

impl<T> OrStatus<T> for Result<T, ShareError> {
    fn or_status(self) -> Result<T, NtStatus> {
        self.map_err(status_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_is_an_error_on_the_wire() {
        for error in [
            ShareError::PeerNameInvalid,
            ShareError::PeerPathSyntax,
            ShareError::NotFound,
            ShareError::Exists,
            ShareError::DiskFull,
            ShareError::ConfigReadOnly,
            ShareError::WouldBlock,
            ShareError::MediaIo(rustix::io::Errno::IO),
        ] {
            assert!(status_of(error).is_error(), "{error}");
        }
    }
}
