//! From what a share says to what goes over the wire: the one place that decides.
//!
//! Spec: MS-ERREF §2.3, MS-SMB2 §3.3.5.9 and its siblings.

use smb::NtStatus;

use crate::share::ShareError;

impl From<ShareError> for NtStatus {
    fn from(error: ShareError) -> Self {
        match error {
            // MS-FSA §2.1.5.1: a store without streams refuses their names as invalid.
            ShareError::PeerNameInvalid | ShareError::PeerStreamUnsupported => {
                Self::OBJECT_NAME_INVALID
            }
            ShareError::PeerEaName => Self::INVALID_EA_NAME,
            ShareError::EaTooLarge => Self::EA_TOO_LARGE,
            ShareError::EasUnsupported => Self::EAS_NOT_SUPPORTED,
            ShareError::PeerPathSyntax => Self::OBJECT_PATH_SYNTAX_BAD,
            ShareError::NotFound => Self::OBJECT_NAME_NOT_FOUND,
            ShareError::PathNotFound => Self::OBJECT_PATH_NOT_FOUND,
            ShareError::Exists => Self::OBJECT_NAME_COLLISION,
            ShareError::IsDirectory => Self::FILE_IS_A_DIRECTORY,
            // As of a directory: MS-SMB2 §3.3.5.12, §3.3.5.13.
            ShareError::NoBytes => Self::INVALID_DEVICE_REQUEST,
            ShareError::NotDirectory => Self::NOT_A_DIRECTORY,
            ShareError::DirectoryNotEmpty => Self::DIRECTORY_NOT_EMPTY,
            ShareError::AccessDenied | ShareError::SpecialFile => Self::ACCESS_DENIED,
            ShareError::ConfigReadOnly => Self::MEDIA_WRITE_PROTECTED,
            ShareError::NotPrivileged => Self::PRIVILEGE_NOT_HELD,
            ShareError::CannotDelete => Self::CANNOT_DELETE,
            ShareError::CrossDevice => Self::NOT_SAME_DEVICE,
            ShareError::PeerInvalid => Self::INVALID_PARAMETER,
            ShareError::Unsupported => Self::NOT_SUPPORTED,
            ShareError::DiskFull | ShareError::TooLarge => Self::DISK_FULL,
            ShareError::HandlesExhausted => Self::INSUFFICIENT_RESOURCES,
            // Only the forms that may block reach the wire; they never say so.
            ShareError::WouldBlock => Self::UNSUCCESSFUL,
            ShareError::MediaIo(_) => Self::IO_DEVICE_ERROR,
        }
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
            assert!(NtStatus::from(error).is_error(), "{error}");
        }
    }
}
