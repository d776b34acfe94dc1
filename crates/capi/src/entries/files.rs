//! Open files.

#![allow(unsafe_code, reason = "functions for C")]

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use client::OpenOptions;
use smb::create::{AccessMask, CreateDisposition};

use crate::border::{self, Place, guarded};
use crate::fault::Fault;
use crate::handles::{CLIENTS, ClientHandle, FILES, FileHandle, Opened};
use crate::status::Status;
use crate::types::{
    LANDFAST_CREATE, LANDFAST_EXCLUSIVE, LANDFAST_READ, LANDFAST_TRUNCATE, LANDFAST_WRITE,
};

/// Opens a file of the share. `flags`: `LANDFAST_READ`, `LANDFAST_WRITE`, and with the latter `LANDFAST_CREATE`,
/// `LANDFAST_TRUNCATE` and `LANDFAST_EXCLUSIVE`. Slashes separate the names of `path`.
///
/// # Safety
/// `path` is a string that ends with a zero; `file` has room for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_open(
    client: ClientHandle,
    path: *const c_char,
    flags: u32,
    file: *mut FileHandle,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let place = unsafe { Place::new("file", file) }?;
        // SAFETY: by the caller.
        let path = unsafe { border::text("path", path) }?;
        let options = options_of(flags)?;
        let session = CLIENTS.find(client.id)?;
        let opened = session.client.open(path, &options).map_err(Fault::client("open", path))?;
        let id = FILES.add(Opened { file: opened, path: path.to_owned() })?;
        place.set(FileHandle { id });
        Ok(())
    })
}

fn options_of(flags: u32) -> Result<OpenOptions, Fault> {
    let has = |flag: u32| flags & flag != 0;
    let refuse = |why| Err(Fault::Value { what: "flags", value: flags.into(), why });
    if flags & !KNOWN != 0 {
        return refuse("it has a bit that is no flag of landfast_open");
    }
    if !has(LANDFAST_READ | LANDFAST_WRITE) {
        return refuse("name LANDFAST_READ, LANDFAST_WRITE or both");
    }
    if !has(LANDFAST_WRITE) && has(LANDFAST_CREATE | LANDFAST_TRUNCATE) {
        return refuse("LANDFAST_CREATE and LANDFAST_TRUNCATE need LANDFAST_WRITE");
    }
    if has(LANDFAST_EXCLUSIVE) && !has(LANDFAST_CREATE) {
        return refuse("LANDFAST_EXCLUSIVE needs LANDFAST_CREATE");
    }
    let disposition = match (has(LANDFAST_CREATE), has(LANDFAST_TRUNCATE), has(LANDFAST_EXCLUSIVE))
    {
        (_, _, true) => CreateDisposition::CREATE,
        (true, true, _) => CreateDisposition::OVERWRITE_IF,
        (true, false, _) => CreateDisposition::OPEN_IF,
        (false, true, _) => CreateDisposition::OVERWRITE,
        (false, false, _) => CreateDisposition::OPEN,
    };
    // The length is told to whoever may write, too.
    let mut access = AccessMask::READ_ATTRIBUTES;
    if has(LANDFAST_READ) {
        access |= AccessMask::FILE_GENERIC_READ;
    }
    if has(LANDFAST_WRITE) {
        access |= AccessMask::FILE_GENERIC_WRITE;
    }
    Ok(OpenOptions { access, disposition, ..OpenOptions::read() })
}

/// Reads up to `len` bytes at `offset`. `got` is the number of bytes: fewer than `len` only at the end of the file.
///
/// # Safety
/// `buffer` has room for `len` bytes that only this call uses; `got` has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_read(
    file: FileHandle,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
    got: *mut usize,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let place = unsafe { Place::new("got", got) }?;
        // SAFETY: by the caller.
        let buffer = unsafe { border::bytes_mut("buffer", buffer, len) }?;
        let opened = FILES.find(file.id)?;
        let read = opened.file.read_at(offset, buffer);
        place.set(read.map_err(Fault::client("read", opened.path.as_str()))?);
        Ok(())
    })
}

/// Writes all `len` bytes at `offset`, and makes the file longer where it ends before. Nothing is durable before
/// `landfast_flush`. After a failure any part may have been written.
///
/// # Safety
/// `bytes` points to `len` bytes that do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_write(
    file: FileHandle,
    offset: u64,
    bytes: *const c_void,
    len: usize,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let bytes = unsafe { border::bytes("bytes", bytes, len) }?;
        let opened = FILES.find(file.id)?;
        let written = opened.file.write_at(offset, bytes);
        written.map_err(Fault::client("write", opened.path.as_str()))
    })
}

/// Returns when every write that was answered before the call is durable, in the class of the server's medium. After a
/// failure it is unknown which of the writes are durable: a further flush says nothing about them.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_flush(file: FileHandle) -> Status {
    guarded(|| {
        let opened = FILES.find(file.id)?;
        opened.file.flush().map_err(Fault::client("flush", opened.path.as_str()))
    })
}

/// The length of an open file, in bytes.
///
/// # Safety
/// `size` has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_file_size(file: FileHandle, size: *mut u64) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let place = unsafe { Place::new("size", size) }?;
        let opened = FILES.find(file.id)?;
        let stat = opened.file.stat().map_err(Fault::client("look at", opened.path.as_str()))?;
        place.set(stat.len);
        Ok(())
    })
}

/// Makes a file shorter, or longer by zeros.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_set_size(file: FileHandle, size: u64) -> Status {
    guarded(|| {
        let opened = FILES.find(file.id)?;
        let set = opened.file.set_len(size);
        set.map_err(Fault::client("set the length of", opened.path.as_str()))
    })
}

/// Closes a file. It makes nothing durable. While another thread uses the file, it is closed after that use, and what the
/// server says to that is not reported.
#[unsafe(no_mangle)]
pub extern "C" fn landfast_close(file: FileHandle) -> Status {
    guarded(|| match Arc::try_unwrap(FILES.take(file.id)?) {
        Ok(Opened { file, path }) => file.close().map_err(Fault::client("close", path)),
        Err(_) => Ok(()),
    })
}

const KNOWN: u32 =
    LANDFAST_READ | LANDFAST_WRITE | LANDFAST_CREATE | LANDFAST_TRUNCATE | LANDFAST_EXCLUSIVE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        for flags in
            [0, 4, 8, 32, LANDFAST_READ | LANDFAST_CREATE, LANDFAST_WRITE | LANDFAST_EXCLUSIVE]
        {
            let fault = options_of(flags).unwrap_err();
            assert_eq!(fault.status(), Status::BadArgument, "{flags}");
        }
    }

    #[test]
    fn flags_choose_what_becomes_of_a_file_that_exists() {
        let chosen = |flags| options_of(LANDFAST_WRITE | flags).unwrap().disposition;
        assert_eq!(chosen(0), CreateDisposition::OPEN);
        assert_eq!(chosen(LANDFAST_CREATE), CreateDisposition::OPEN_IF);
        assert_eq!(chosen(LANDFAST_TRUNCATE), CreateDisposition::OVERWRITE);
        assert_eq!(chosen(LANDFAST_CREATE | LANDFAST_TRUNCATE), CreateDisposition::OVERWRITE_IF);
        assert_eq!(chosen(LANDFAST_CREATE | LANDFAST_EXCLUSIVE), CreateDisposition::CREATE);
    }
}
