//! Why a call failed, and the text of a thread's latest failure.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use client::{ClientError, RegionError};
use smb::NtStatus;
use store::StoreError;
use store::token::KeyError;
use thiserror::Error;

use crate::kind::Kind;
use crate::status::Status;

/// Why a call failed. The text names the object.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// An argument must not be null.
    #[error("the argument `{0}` is null")]
    Null(&'static str),
    /// A pointer does not fit the type that it points to.
    #[error("the argument `{0}` is not aligned for its type")]
    Unaligned(&'static str),
    /// A text is no UTF-8.
    #[error("the argument `{0}` is no UTF-8")]
    Utf8(&'static str),
    /// A length is no length.
    #[error("the argument `{0}` is {1}, more than any memory has")]
    Length(&'static str, usize),
    /// A number is none of those known.
    #[error("the argument `{what}` is {value}: {why}")]
    Value {
        /// The argument.
        what: &'static str,
        /// What was given.
        value: u64,
        /// What would do.
        why: &'static str,
    },
    /// A handle names nothing that is open.
    #[error("no {kind} is open under handle {id:#x}: it was closed, or never was one")]
    Handle {
        /// The kind of the handle.
        kind: Kind,
        /// Its number.
        id: u64,
    },
    /// What the handle names belongs to the process that this one was forked from.
    #[error(
        "the {kind} under handle {id:#x} was opened before this process was forked: connect again in the child"
    )]
    Forked {
        /// The kind of the handle.
        kind: Kind,
        /// Its number.
        id: u64,
    },
    /// As many handles are open as there may be.
    #[error("{max} {kind}s are open in this process: close one first")]
    TooManyHandles {
        /// The kind of the handle.
        kind: Kind,
        /// The bound.
        max: u32,
    },
    /// A call of the client failed.
    #[error("cannot {doing} {object}: {error}")]
    Client {
        /// What was to be done.
        doing: &'static str,
        /// To what: an address or a path.
        object: String,
        /// The reason.
        error: ClientError,
    },
    /// A call on a region failed.
    #[error("cannot {doing} the region of {object}: {error}")]
    Region {
        /// What was to be done.
        doing: &'static str,
        /// The path of the file.
        object: String,
        /// The reason.
        error: RegionError,
    },
    /// A call on a striped store or a region of it failed.
    #[error("cannot {doing} {object}: {error}")]
    Store {
        /// What was to be done.
        doing: &'static str,
        /// To what: a region, or the place of the metadata.
        object: String,
        /// The reason.
        error: StoreError,
    },
    /// No store where one was named.
    #[error(
        "there is no store at {place}: name the metadata's directory, which the first daemon makes"
    )]
    NoStore {
        /// The place.
        place: String,
    },
    /// No key beside metadata in etcd.
    #[error(
        "the store at {place} has no key beside its metadata: name the file of its key, or an empty text for none"
    )]
    NoKey {
        /// The place.
        place: String,
    },
    /// The store's key cannot be used.
    #[error("the key of the store: {0}")]
    Key(KeyError),
    /// The server does not push, and the caller wants nothing else.
    #[error("{object} is not in push mode, which LANDFAST_MAP_REQUIRE_PUSH asks for: {path}")]
    NoPush {
        /// The path of the file.
        object: String,
        /// The path that operations would take, with the reason.
        path: client::Path,
    },
    /// The oldest operation has not ended.
    #[error("the oldest operation has not ended yet")]
    NotYet,
    /// A call on the same region panicked before.
    #[error("an earlier fault of this library left the region in an unknown state: unmap it")]
    Unknown,
    /// This call panicked.
    #[error("a fault of this library ended the call: {0}")]
    Panicked(String),
}

impl Fault {
    pub(crate) fn client(
        doing: &'static str,
        object: impl Into<String>,
    ) -> impl FnOnce(ClientError) -> Self {
        let object = object.into();
        move |error| Self::Client { doing, object, error }
    }

    pub(crate) fn store(
        doing: &'static str,
        object: &str,
    ) -> impl FnOnce(StoreError) -> Self + use<> {
        let object = object.to_owned();
        move |error| Self::Store { doing, object, error }
    }

    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Null(_)
            | Self::Unaligned(_)
            | Self::Utf8(_)
            | Self::Length(..)
            | Self::Value { .. } => Status::BadArgument,
            Self::Handle { .. } | Self::Forked { .. } => Status::BadHandle,
            Self::TooManyHandles { .. } => Status::TooManyHandles,
            Self::Client { error, .. } => Status::from(error),
            Self::Region { error, .. } => Status::from(error),
            Self::Store { error, .. } => Status::from(error),
            Self::NoStore { .. } => Status::NotFound,
            Self::NoKey { .. } => Status::BadArgument,
            Self::Key(KeyError::Garbled(_)) => Status::Media,
            Self::Key(_) => Status::AccessDenied,
            Self::NoPush { .. } => Status::NoPush,
            Self::NotYet => Status::NotYet,
            Self::Unknown => Status::Broken,
            Self::Panicked(_) => Status::Internal,
        }
    }

    fn nt_status(&self) -> NtStatus {
        let (Self::Client { error, .. } | Self::Region { error: RegionError::Server(error), .. }) =
            self
        else {
            return NtStatus::SUCCESS;
        };
        error.status().unwrap_or(NtStatus::SUCCESS)
    }

    /// Keeps the text for `landfast_error_text` of this thread, and gives the status.
    pub(crate) fn keep(&self) -> Status {
        let mut text = self.to_string();
        text.retain(|sign| sign != '\0');
        let text = CString::new(text).unwrap_or_default();
        let nt_status = self.nt_status().0;
        // A thread that is ending keeps nothing.
        let _ = LATEST.try_with(|latest| *latest.borrow_mut() = Latest { text, nt_status });
        self.status()
    }
}

/// A thread's latest failure.
#[derive(Debug, Default)]
struct Latest {
    text: CString,
    nt_status: u32,
}

thread_local! {
    static LATEST: RefCell<Latest> = RefCell::new(Latest::default());
}

/// The text of this thread's latest failure, which lives until the thread's next one.
pub(crate) fn latest_text() -> *const c_char {
    LATEST.try_with(|latest| latest.borrow().text.as_ptr()).unwrap_or(NOTHING)
}

/// The server's status in this thread's latest failure, 0 if it was none of the server's.
pub(crate) fn latest_nt_status() -> u32 {
    LATEST.try_with(|latest| latest.borrow().nt_status).unwrap_or(0)
}

/// For a thread that is ending.
const NOTHING: *const c_char = c"".as_ptr();
