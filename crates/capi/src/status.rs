//! What a function of the C library returns.

use std::ffi::CStr;

use client::{ClientError, ErrorKind, RegionConfigError, RegionError};
use store::meta::MetaError;
use store::{CallError, StoreError, wire};

/// How a call ended. `landfast_error_text` has the sentence that names the object and the reason.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(i32)]
pub enum Status {
    /// It was done.
    Ok = 0,
    /// An argument is no pointer, no UTF-8, no known flag, or out of its bounds.
    BadArgument = 1,
    /// The handle names nothing that this process has open: it was closed, never was one, or is of before a fork.
    BadHandle = 2,
    /// As many handles of this kind are open as there may be.
    TooManyHandles = 3,
    /// The address is none.
    BadUrl = 4,
    /// There is no connection to the server, or it is lost.
    Connection = 5,
    /// The server did not admit the user.
    Logon = 6,
    /// The file, a directory on its path, or the share does not exist.
    NotFound = 7,
    /// The name exists already.
    Exists = 8,
    /// The user lacks the right.
    AccessDenied = 9,
    /// Another open or lock is in the way.
    InUse = 10,
    /// The medium or a quota is full.
    NoSpace = 11,
    /// The medium cannot be written.
    ReadOnly = 12,
    /// The medium failed. What was not committed is not durable, and nothing is tried again.
    Media = 13,
    /// It is a directory.
    IsDirectory = 14,
    /// It is no directory.
    NotDirectory = 15,
    /// The directory is not empty.
    NotEmpty = 16,
    /// The name is none.
    BadName = 17,
    /// The server does not do this.
    NotSupported = 18,
    /// The server refused for another reason: `landfast_error_ntstatus` has its status.
    Refused = 19,
    /// The server broke the protocol, or did not prove itself.
    Protocol = 20,
    /// The range lies outside the region or the file.
    OutOfRange = 21,
    /// An atomic write must lie at a multiple of 8.
    Misaligned = 22,
    /// More bytes than one operation takes.
    TooLong = 23,
    /// As many operations are submitted as the region takes: wait for one first.
    QueueFull = 24,
    /// No operation is submitted.
    NothingOutstanding = 25,
    /// The oldest operation has not ended yet.
    NotYet = 26,
    /// An earlier failure broke the region: `landfast_region_lost` names the bytes. Map the file again.
    Broken = 27,
    /// `LANDFAST_MAP_REQUIRE_PUSH` was asked for, and the server does not push; or push mode has ended.
    NoPush = 28,
    /// This machine gave no thread, memory or random numbers.
    Host = 29,
    /// A fault of this library; the process is as sound as before. Please report it.
    Internal = 30,
    /// The connection ended during an atomic operation of a store: it took effect or it did not.
    InDoubt = 31,
}

impl Status {
    /// The name, as the header writes it.
    pub(crate) const fn name(self) -> &'static CStr {
        match self {
            Self::Ok => c"LANDFAST_STATUS_OK",
            Self::BadArgument => c"LANDFAST_STATUS_BAD_ARGUMENT",
            Self::BadHandle => c"LANDFAST_STATUS_BAD_HANDLE",
            Self::TooManyHandles => c"LANDFAST_STATUS_TOO_MANY_HANDLES",
            Self::BadUrl => c"LANDFAST_STATUS_BAD_URL",
            Self::Connection => c"LANDFAST_STATUS_CONNECTION",
            Self::Logon => c"LANDFAST_STATUS_LOGON",
            Self::NotFound => c"LANDFAST_STATUS_NOT_FOUND",
            Self::Exists => c"LANDFAST_STATUS_EXISTS",
            Self::AccessDenied => c"LANDFAST_STATUS_ACCESS_DENIED",
            Self::InUse => c"LANDFAST_STATUS_IN_USE",
            Self::NoSpace => c"LANDFAST_STATUS_NO_SPACE",
            Self::ReadOnly => c"LANDFAST_STATUS_READ_ONLY",
            Self::Media => c"LANDFAST_STATUS_MEDIA",
            Self::IsDirectory => c"LANDFAST_STATUS_IS_DIRECTORY",
            Self::NotDirectory => c"LANDFAST_STATUS_NOT_DIRECTORY",
            Self::NotEmpty => c"LANDFAST_STATUS_NOT_EMPTY",
            Self::BadName => c"LANDFAST_STATUS_BAD_NAME",
            Self::NotSupported => c"LANDFAST_STATUS_NOT_SUPPORTED",
            Self::Refused => c"LANDFAST_STATUS_REFUSED",
            Self::Protocol => c"LANDFAST_STATUS_PROTOCOL",
            Self::OutOfRange => c"LANDFAST_STATUS_OUT_OF_RANGE",
            Self::Misaligned => c"LANDFAST_STATUS_MISALIGNED",
            Self::TooLong => c"LANDFAST_STATUS_TOO_LONG",
            Self::QueueFull => c"LANDFAST_STATUS_QUEUE_FULL",
            Self::NothingOutstanding => c"LANDFAST_STATUS_NOTHING_OUTSTANDING",
            Self::NotYet => c"LANDFAST_STATUS_NOT_YET",
            Self::Broken => c"LANDFAST_STATUS_BROKEN",
            Self::NoPush => c"LANDFAST_STATUS_NO_PUSH",
            Self::Host => c"LANDFAST_STATUS_HOST",
            Self::Internal => c"LANDFAST_STATUS_INTERNAL",
            Self::InDoubt => c"LANDFAST_STATUS_IN_DOUBT",
        }
    }

    pub(crate) const ALL: [Self; 32] = [
        Self::Ok,
        Self::BadArgument,
        Self::BadHandle,
        Self::TooManyHandles,
        Self::BadUrl,
        Self::Connection,
        Self::Logon,
        Self::NotFound,
        Self::Exists,
        Self::AccessDenied,
        Self::InUse,
        Self::NoSpace,
        Self::ReadOnly,
        Self::Media,
        Self::IsDirectory,
        Self::NotDirectory,
        Self::NotEmpty,
        Self::BadName,
        Self::NotSupported,
        Self::Refused,
        Self::Protocol,
        Self::OutOfRange,
        Self::Misaligned,
        Self::TooLong,
        Self::QueueFull,
        Self::NothingOutstanding,
        Self::NotYet,
        Self::Broken,
        Self::NoPush,
        Self::Host,
        Self::Internal,
        Self::InDoubt,
    ];
}

impl From<&ClientError> for Status {
    fn from(error: &ClientError) -> Self {
        match error {
            ClientError::ConfigUrl(_) => return Self::BadUrl,
            ClientError::ConfigRange { .. }
            | ClientError::ConfigRegion(
                RegionConfigError::EmptyRange(_) | RegionConfigError::FileTooShort { .. },
            ) => return Self::OutOfRange,
            ClientError::ConfigTooLong { .. } => return Self::TooLong,
            _ => {}
        }
        match error.kind() {
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::AlreadyExists => Self::Exists,
            ErrorKind::AccessDenied => Self::AccessDenied,
            ErrorKind::Logon => Self::Logon,
            ErrorKind::InUse => Self::InUse,
            ErrorKind::NoSpace => Self::NoSpace,
            ErrorKind::ReadOnly => Self::ReadOnly,
            ErrorKind::Media => Self::Media,
            ErrorKind::IsDirectory => Self::IsDirectory,
            ErrorKind::NotADirectory => Self::NotDirectory,
            ErrorKind::NotEmpty => Self::NotEmpty,
            ErrorKind::InvalidName => Self::BadName,
            ErrorKind::NotSupported => Self::NotSupported,
            ErrorKind::Connection => Self::Connection,
            ErrorKind::Protocol => Self::Protocol,
            ErrorKind::Config => Self::BadArgument,
            ErrorKind::Host => Self::Host,
            _ => Self::Refused,
        }
    }
}

impl From<&RegionError> for Status {
    fn from(error: &RegionError) -> Self {
        match error {
            RegionError::OutOfRange { .. } => Self::OutOfRange,
            RegionError::Misaligned { .. } => Self::Misaligned,
            RegionError::TooLong { .. } => Self::TooLong,
            RegionError::QueueFull => Self::QueueFull,
            RegionError::NothingOutstanding => Self::NothingOutstanding,
            RegionError::Server(error) => Self::from(error),
            RegionError::PushEnded => Self::NoPush,
            RegionError::CommitRefused { .. } => Self::NotSupported,
            RegionError::Broken => Self::Broken,
            _ => Self::Internal,
        }
    }
}

impl From<&StoreError> for Status {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::ConfigName(_) => Self::BadName,
            StoreError::ConfigRegion { .. } => Self::BadArgument,
            StoreError::Exists(_) => Self::Exists,
            StoreError::NoRegion(_) => Self::NotFound,
            StoreError::NeedsKey(_) | StoreError::TokenUnfit(_) | StoreError::ReadOnly(_) => {
                Self::AccessDenied
            }
            StoreError::NotReady(_) | StoreError::Rebuilding(_) | StoreError::Busy { .. } => {
                Self::InUse
            }
            StoreError::Place { .. } | StoreError::Full(_) => Self::NoSpace,
            StoreError::OutOfRange { .. } => Self::OutOfRange,
            StoreError::Misaligned(_) => Self::Misaligned,
            StoreError::SwapOfCopies(_) | StoreError::Volatile { .. } => Self::NotSupported,
            StoreError::QueueFull(_) => Self::QueueFull,
            StoreError::WritesFull(_) => Self::TooManyHandles,
            StoreError::NothingOutstanding => Self::NothingOutstanding,
            StoreError::InDoubt(_) => Self::InDoubt,
            StoreError::ServerLost { .. }
            | StoreError::NotMapped { .. }
            | StoreError::Unreachable { .. }
            | StoreError::NotesLost(_) => Self::Connection,
            StoreError::Server { source, .. } => Self::from(source),
            StoreError::Fenced | StoreError::Lost { .. } => Self::Broken,
            StoreError::Timeout => Self::NotYet,
            StoreError::Garbled { .. } | StoreError::Record { .. } => Self::Media,
            StoreError::Meta(MetaError::ConfigPlace { .. }) => Self::BadUrl,
            StoreError::Meta(MetaError::HostFile { .. }) | StoreError::Host { .. } => Self::Host,
            StoreError::Meta(MetaError::MediaGarbled(_)) => Self::Media,
            StoreError::Meta(_) => Self::Connection,
            _ => Self::Refused,
        }
    }
}

impl From<&CallError> for Status {
    fn from(error: &CallError) -> Self {
        match error.status() {
            Some(wire::Status::DENIED | wire::Status::EXPIRED | wire::Status::REVOKED) => {
                Self::AccessDenied
            }
            Some(wire::Status::NO_SPACE) => Self::NoSpace,
            Some(wire::Status::FENCED) => Self::Broken,
            Some(wire::Status::EXISTS) => Self::Exists,
            Some(_) => Self::Refused,
            None => Self::Connection,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_their_bounds_are_bad_arguments_and_ranges_out_of_range() {
        let of_region = |error| Status::from(&ClientError::ConfigRegion(error));
        let timeout = RegionConfigError::AnswerTimeout(std::time::Duration::ZERO);
        for option in
            [RegionConfigError::OutstandingMax(0), RegionConfigError::UnconfirmedBytes(0), timeout]
        {
            assert_eq!(of_region(option), Status::BadArgument);
        }
        assert_eq!(of_region(RegionConfigError::EmptyRange(7..7)), Status::OutOfRange);
        let short = RegionConfigError::FileTooShort { len: 1, end: 2 };
        assert_eq!(of_region(short), Status::OutOfRange);
        let range = ClientError::ConfigRange { offset: u64::MAX, len: 10 };
        assert_eq!(Status::from(&range), Status::OutOfRange);
    }

    #[test]
    fn every_status_has_its_number_as_place() {
        for (number, status) in (0..).zip(Status::ALL) {
            assert_eq!(status as i32, number);
        }
    }
}
