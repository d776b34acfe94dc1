//! Errors as Python knows them: `OSError` with the `errno` that a local file would give, so that `FileNotFoundError` and its
//! kin are raised; and the errors that only regions have.

use client::{ClientError, ErrorKind, RegionError};
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use store::StoreError;

create_exception!(
    _landfast,
    LandfastError,
    PyOSError,
    "A region, a server or a connection failed in a way that no errno names."
);
create_exception!(
    _landfast,
    RegionBroken,
    LandfastError,
    "An earlier failure broke the region: `Region.lost` names the bytes that no commit had confirmed. Map the file again."
);

/// A call failed, on this object.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) object: String,
    pub(crate) error: Reason,
}

/// Why.
#[derive(Debug)]
pub(crate) enum Reason {
    Client(ClientError),
    Region(RegionError),
    Store(StoreError),
}

impl Fault {
    pub(crate) fn client(object: &str) -> impl FnOnce(ClientError) -> Self + use<> {
        let object = object.to_owned();
        move |error| Self { object, error: Reason::Client(error) }
    }

    pub(crate) fn region(object: &str) -> impl FnOnce(RegionError) -> Self + use<> {
        let object = object.to_owned();
        move |error| Self { object, error: Reason::Region(error) }
    }

    pub(crate) fn store(object: &str) -> impl FnOnce(StoreError) -> Self + use<> {
        let object = object.to_owned();
        move |error| Self { object, error: Reason::Store(error) }
    }

    /// The exception.
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        match self.error {
            Reason::Client(error) => of_client(py, &self.object, &error),
            Reason::Store(error) => of_store(py, &self.object, &error),
            Reason::Region(RegionError::Server(error)) => of_client(py, &self.object, &error),
            Reason::Region(
                error @ (RegionError::OutOfRange { .. }
                | RegionError::Misaligned { .. }
                | RegionError::TooLong { .. }
                | RegionError::NothingOutstanding),
            ) => PyValueError::new_err(format!("{}: {error}", self.object)),
            Reason::Region(RegionError::QueueFull) => {
                PyOSError::new_err((libc_errno::EAGAIN, RegionError::QueueFull.to_string()))
            }
            Reason::Region(error @ RegionError::CommitRefused { .. }) => {
                PyOSError::new_err((libc_errno::EOPNOTSUPP, format!("{}: {error}", self.object)))
            }
            Reason::Region(error @ RegionError::Broken) => {
                RegionBroken::new_err(format!("{}: {error}", self.object))
            }
            Reason::Region(error) => LandfastError::new_err(format!("{}: {error}", self.object)),
        }
    }
}

fn of_store(py: Python<'_>, object: &str, error: &StoreError) -> PyErr {
    use store::wire::Status;
    let name = match error {
        StoreError::ConfigName(_)
        | StoreError::ConfigRegion { .. }
        | StoreError::OutOfRange { .. }
        | StoreError::Misaligned(_)
        | StoreError::NothingOutstanding => {
            return PyValueError::new_err(format!("{object}: {error}"));
        }
        StoreError::NoRegion(_) => "ENOENT",
        StoreError::Exists(_) => "EEXIST",
        StoreError::NeedsKey(_) | StoreError::TokenUnfit(_) | StoreError::ReadOnly(_) => "EACCES",
        StoreError::NotReady(_) | StoreError::Rebuilding(_) | StoreError::Busy { .. } => "EBUSY",
        StoreError::Place { .. } | StoreError::Full(_) => "ENOSPC",
        StoreError::SwapOfCopies(_) | StoreError::Volatile { .. } => "EOPNOTSUPP",
        StoreError::QueueFull(_) | StoreError::WritesFull(_) | StoreError::Host { .. } => "EAGAIN",
        StoreError::Timeout => "ETIMEDOUT",
        StoreError::ServerLost { .. }
        | StoreError::NotMapped { .. }
        | StoreError::Unreachable { .. } => "ECONNABORTED",
        StoreError::Server { source, .. } => match source.status() {
            None => "ECONNABORTED",
            Some(Status::DENIED | Status::EXPIRED | Status::REVOKED) => "EACCES",
            Some(Status::NO_SPACE) => "ENOSPC",
            Some(_) => return LandfastError::new_err(format!("{object}: {error}")),
        },
        StoreError::Garbled { .. } | StoreError::Record { .. } | StoreError::Lost { .. } => "EIO",
        _ => return LandfastError::new_err(format!("{object}: {error}")),
    };
    numbered(py, name, object, error.to_string())
}

fn of_client(py: Python<'_>, object: &str, error: &ClientError) -> PyErr {
    let name = match error.kind() {
        ErrorKind::NotFound => "ENOENT",
        ErrorKind::AlreadyExists => "EEXIST",
        ErrorKind::AccessDenied | ErrorKind::Logon => "EACCES",
        ErrorKind::InUse => "EBUSY",
        ErrorKind::NoSpace => "ENOSPC",
        ErrorKind::ReadOnly => "EROFS",
        ErrorKind::Media => "EIO",
        ErrorKind::IsDirectory => "EISDIR",
        ErrorKind::NotADirectory => "ENOTDIR",
        ErrorKind::NotEmpty => "ENOTEMPTY",
        ErrorKind::InvalidName => "EINVAL",
        ErrorKind::NotSupported => "EOPNOTSUPP",
        ErrorKind::Connection => "ECONNABORTED",
        ErrorKind::Protocol => "EPROTO",
        ErrorKind::Config => {
            return PyValueError::new_err(format!("{object}: {error}"));
        }
        ErrorKind::Host => "EAGAIN",
        _ => return LandfastError::new_err(format!("{object}: {error}")),
    };
    numbered(py, name, object, error.to_string())
}

fn numbered(py: Python<'_>, name: &str, object: &str, why: String) -> PyErr {
    let number = py.import("errno").and_then(|errno| errno.getattr(name)).and_then(|n| n.extract());
    match number {
        Ok::<i32, _>(number) => PyOSError::new_err((number, why, object.to_owned())),
        Err(missing) => missing,
    }
}

pub(crate) fn forked() -> PyErr {
    LandfastError::new_err("this was opened before the process forked: connect again in the child")
}

pub(crate) fn closed() -> PyErr {
    PyValueError::new_err("I/O operation on a closed file, region or client")
}

pub(crate) fn beyond() -> PyErr {
    PyValueError::new_err("offset and length go beyond the region")
}

pub(crate) fn internal() -> PyErr {
    LandfastError::new_err("a fault of this library ended the call: please report it")
}

pub(crate) fn host(error: &std::io::Error) -> PyErr {
    LandfastError::new_err(format!("this machine starts no thread: {error}"))
}

/// `errno` has the same number on every Linux.
mod libc_errno {
    pub(super) const EAGAIN: i32 = 11;
    pub(super) const EOPNOTSUPP: i32 = 95;
}
