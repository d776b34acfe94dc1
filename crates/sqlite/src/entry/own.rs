//! Methods of a file that is ours alone: a write-ahead log, or a file of a share.
//!
//! Safety rules of this module: those of [`entry`](super).

use std::ffi::{CString, c_char, c_int, c_void};
use std::slice;

use super::host::{HOST, OurFile, code_of, function, guarded, opened, text_of, told};
use crate::abi::{self, File, IoMethods, slot};
use crate::vfs::Opened;

pub(super) unsafe extern "C" fn own_close(file: *mut File) -> c_int {
    guarded(abi::IOERR_CLOSE, || {
        let ours: *mut OurFile = file.cast();
        // SAFETY: by the rules of this module.
        let state = unsafe { (*ours).opened };
        // SAFETY: the pointer came from a box, and SQLite uses the file no more.
        match unsafe { Box::from_raw(state) }.close() {
            Ok(()) => abi::OK,
            Err(refused) => told(&refused),
        }
    })
}

unsafe extern "C" fn own_read(file: *mut File, out: *mut c_void, len: c_int, at: i64) -> c_int {
    guarded(abi::IOERR_READ, || {
        let (Ok(len), Ok(at)) = (usize::try_from(len), u64::try_from(at)) else {
            return abi::IOERR_READ;
        };
        // SAFETY: SQLite gives so many bytes.
        let out = unsafe { slice::from_raw_parts_mut(out.cast(), len) };
        // SAFETY: by the rules of this module.
        match unsafe { opened(file) }.read(at, out) {
            Ok(true) => abi::OK,
            Ok(false) => abi::IOERR_SHORT_READ,
            Err(refused) => told(&refused),
        }
    })
}

unsafe extern "C" fn own_write(
    file: *mut File,
    bytes: *const c_void,
    len: c_int,
    at: i64,
) -> c_int {
    guarded(abi::IOERR_WRITE, || {
        let (Ok(len), Ok(at)) = (usize::try_from(len), u64::try_from(at)) else {
            return abi::IOERR_WRITE;
        };
        // SAFETY: SQLite gives so many bytes.
        let bytes = unsafe { slice::from_raw_parts(bytes.cast(), len) };
        // SAFETY: by the rules of this module.
        code_of(unsafe { opened(file) }.write(at, bytes))
    })
}

unsafe extern "C" fn own_truncate(file: *mut File, len: i64) -> c_int {
    guarded(abi::IOERR_TRUNCATE, || {
        let Ok(len) = u64::try_from(len) else { return abi::IOERR_TRUNCATE };
        // SAFETY: by the rules of this module.
        code_of(unsafe { opened(file) }.truncate(len))
    })
}

unsafe extern "C" fn own_sync(file: *mut File, _flags: c_int) -> c_int {
    // SAFETY: by the rules of this module.
    guarded(abi::IOERR_FSYNC, || code_of(unsafe { opened(file) }.sync()))
}

unsafe extern "C" fn own_file_size(file: *mut File, len: *mut i64) -> c_int {
    guarded(abi::IOERR_FSTAT, || {
        // SAFETY: by the rules of this module.
        match unsafe { opened(file) }.len() {
            Ok(found) => {
                let Ok(found) = i64::try_from(found) else { return abi::IOERR_FSTAT };
                // SAFETY: SQLite gives room for the length.
                unsafe { *len = found };
                abi::OK
            }
            Err(refused) => told(&refused),
        }
    })
}

unsafe extern "C" fn own_lock(file: *mut File, level: c_int) -> c_int {
    guarded(abi::IOERR_LOCK, || {
        // SAFETY: by the rules of this module.
        match unsafe { opened(file) }.lock(level) {
            Ok(true) => abi::OK,
            Ok(false) => abi::BUSY,
            Err(refused) => told(&refused),
        }
    })
}

unsafe extern "C" fn own_unlock(file: *mut File, level: c_int) -> c_int {
    // SAFETY: by the rules of this module.
    guarded(abi::IOERR_UNLOCK, || code_of(unsafe { opened(file) }.unlock(level)))
}

unsafe extern "C" fn own_check_reserved(file: *mut File, answer: *mut c_int) -> c_int {
    guarded(abi::IOERR_LOCK, || {
        // SAFETY: by the rules of this module.
        match unsafe { opened(file) }.is_reserved() {
            Ok(is_reserved) => {
                // SAFETY: SQLite gives room for the answer.
                unsafe { *answer = c_int::from(is_reserved) };
                abi::OK
            }
            Err(refused) => told(&refused),
        }
    })
}

unsafe extern "C" fn own_control(file: *mut File, what: c_int, argument: *mut c_void) -> c_int {
    guarded(abi::ERROR, || {
        // SAFETY: by the rules of this module.
        let file = unsafe { opened(file) };
        if what == abi::FCNTL_PRAGMA { pragma(file, argument.cast()) } else { abi::NOTFOUND }
    })
}

/// `PRAGMA landfast`: SQLite passes room for the answer, the name and the value.
pub(super) fn pragma(file: &Opened, arguments: *mut *mut c_char) -> c_int {
    // SAFETY: SQLite passes three strings.
    let second = unsafe { arguments.add(1) };
    // SAFETY: as above.
    let name = unsafe { *second };
    let answer = file.pragma(&text_of(name)).and_then(|answer| CString::new(answer).ok());
    let (Some(answer), Some(host)) = (answer, HOST.get()) else { return abi::NOTFOUND };
    let Some(print) = function!(host.table, slot::MPRINTF, abi::Mprintf) else {
        return abi::NOTFOUND;
    };
    // SAFETY: the format takes one string.
    let copy = unsafe { print(c"%s".as_ptr(), answer.as_ptr()) };
    // SAFETY: SQLite frees what it gets there.
    unsafe { *arguments = copy };
    abi::OK
}

unsafe extern "C" fn own_sector_size(_file: *mut File) -> c_int {
    4096
}

unsafe extern "C" fn own_characteristics(_file: *mut File) -> c_int {
    0
}

/// Version 1: there is no shared memory.
pub(super) static OWN: IoMethods = IoMethods {
    version: 1,
    close: own_close,
    read: own_read,
    write: own_write,
    truncate: own_truncate,
    sync: own_sync,
    file_size: own_file_size,
    lock: own_lock,
    unlock: own_unlock,
    check_reserved: own_check_reserved,
    control: own_control,
    sector_size: own_sector_size,
    characteristics: own_characteristics,
    shm_map: None,
    shm_lock: None,
    shm_barrier: None,
    shm_unmap: None,
    fetch: None,
    unfetch: None,
};
