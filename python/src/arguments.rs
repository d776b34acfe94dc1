//! Arguments of Python in the words of the client.

use std::time::Duration;

use client::{ConnectOptions, FileStat, OpenOptions, Path, RegionSettings, SmbUrl};
use pmem::DurabilityClass;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use smb::create::{AccessMask, CreateDisposition};
use smb::info::{DirectoryEntry, FileAttributes};
use smb::push::{Durability, PushRequest, Rights};

/// The address, with the user and the password that the caller names beside it.
pub(crate) fn address(
    url: &str,
    user: Option<String>,
    password: Option<String>,
) -> PyResult<(SmbUrl, ConnectOptions)> {
    // One address for both worlds: fsspec calls it landfast.
    let text = match url.strip_prefix("landfast://") {
        Some(rest) => format!("smb://{rest}"),
        None => url.to_owned(),
    };
    // The text may hold a password, so the message does not repeat it.
    let parsed = text.parse::<SmbUrl>().map_err(|error| PyValueError::new_err(error.to_string()));
    let mut address = parsed?;
    if let Some(user) = user {
        address.user = user;
    }
    if let Some(password) = password {
        address.password = password.into();
    }
    let address = address.with_password_of_environment();
    // Symbolic links can be seen, where a call asks for them.
    let options = ConnectOptions { posix: true, ..ConnectOptions::for_user_of(&address) };
    Ok((address, options))
}

/// A mode of `open`: r, w, a or x, with + for both directions; always bytes.
pub(crate) fn opening(mode: &str) -> PyResult<OpenOptions> {
    let letters: String = mode.chars().filter(|letter| *letter != 'b').collect();
    let read = AccessMask::FILE_GENERIC_READ;
    // A position at the end needs the length.
    let write = AccessMask::FILE_GENERIC_WRITE | AccessMask::READ_ATTRIBUTES;
    let (access, disposition) = match letters.as_str() {
        "r" => (read, CreateDisposition::OPEN),
        "r+" => (read | write, CreateDisposition::OPEN),
        "w" => (write, CreateDisposition::OVERWRITE_IF),
        "w+" => (read | write, CreateDisposition::OVERWRITE_IF),
        "a" => (write, CreateDisposition::OPEN_IF),
        "a+" => (read | write, CreateDisposition::OPEN_IF),
        "x" => (write, CreateDisposition::CREATE),
        "x+" => (read | write, CreateDisposition::CREATE),
        _ => {
            let why = format!("mode {mode:?}: choose rb, wb, ab or xb, with + for both directions");
            return Err(PyValueError::new_err(why));
        }
    };
    Ok(OpenOptions { access, disposition, ..OpenOptions::read() })
}

/// How to map: the least class, emulation, and the bounds of the queue.
pub(crate) fn mapping(
    durability: &str,
    accept_emulated: bool,
    outstanding: usize,
    unconfirmed: usize,
    timeout: f64,
    same_host: bool,
    provider: &str,
) -> PyResult<(OpenOptions, RegionSettings)> {
    let class = match durability {
        "any" => Durability::ANY,
        "volatile" => Durability::VOLATILE,
        "storage" => Durability::STORAGE,
        "pmem" => Durability::PMEM,
        _ => {
            let why = format!("durability {durability:?}: choose any, volatile, storage or pmem");
            return Err(PyValueError::new_err(why));
        }
    };
    let push = PushRequest {
        rights: Rights::READ
            | Rights::WRITE
            | Rights::FLUSH
            | Rights::ATOMIC_WRITE
            | Rights::VERIFY,
        durability: class,
        accept_emulated,
        regions_max: 1,
    };
    let answer_timeout = Duration::try_from_secs_f64(timeout)
        .map_err(|error| PyValueError::new_err(format!("timeout: {error}")))?;
    let provider = provider.parse().map_err(|_| {
        PyValueError::new_err(format!("provider {provider:?}: choose soft, shm or verbs"))
    })?;
    let settings = RegionSettings {
        unconfirmed_bytes: unconfirmed,
        outstanding_max: outstanding,
        answer_timeout,
        same_host,
        provider,
        ..RegionSettings::default()
    };
    Ok((OpenOptions::read_write().with_push(push), settings))
}

/// What is known of a file, as fsspec calls it.
pub(crate) fn stat_dict<'py>(py: Python<'py>, stat: &FileStat) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("size", stat.len)?;
    dict.set_item("type", kind(stat.attributes))?;
    dict.set_item("created", seconds(stat.creation_time))?;
    dict.set_item("mtime", seconds(stat.last_write_time))?;
    dict.set_item("allocated", stat.allocation_size)?;
    Ok(dict)
}

/// An entry of a listing, as `Client.list` gives it.
pub(crate) fn entry_dict<'py>(
    py: Python<'py>,
    entry: &DirectoryEntry,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", entry.name.as_str())?;
    dict.set_item("size", entry.end_of_file)?;
    dict.set_item("type", kind(entry.attributes))?;
    dict.set_item("created", seconds(entry.creation_time))?;
    dict.set_item("mtime", seconds(entry.last_write_time))?;
    dict.set_item("allocated", entry.allocation_size)?;
    Ok(dict)
}

fn kind(attributes: FileAttributes) -> &'static str {
    if attributes.contains(FileAttributes::DIRECTORY) { "directory" } else { "file" }
}

/// Says of a link that it is one, where links were not to be followed.
pub(crate) fn mark_link(
    dict: &Bound<'_, PyDict>,
    attributes: FileAttributes,
    follow: bool,
) -> PyResult<()> {
    match !follow && attributes.contains(FileAttributes::REPARSE_POINT) {
        true => dict.set_item("type", "link"),
        false => Ok(()),
    }
}

/// Seconds since 1970.
#[allow(
    clippy::cast_precision_loss,
    reason = "a float has 100 ns of today's times, as a file's time has"
)]
fn seconds(time: smb::FileTime) -> f64 {
    time.to_unix_ns() as f64 / 1e9
}

/// The class of a commit, where the server says it.
pub(crate) fn class_name(path: &Path) -> Option<&'static str> {
    Some(match path.promise()?.class {
        DurabilityClass::Pmem => "pmem",
        DurabilityClass::Storage => "storage",
        DurabilityClass::Volatile => "volatile",
    })
}
