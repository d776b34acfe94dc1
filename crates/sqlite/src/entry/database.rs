//! Methods of a database of this machine: those of SQLite's own VFS, with hooks.
//!
//! Safety rules of this module: those of [`entry`](super).

use std::ffi::{c_int, c_void};

use super::host::{guarded, inner_methods, opened, told};
use super::own::{own_close, pragma};
use crate::abi::{self, File, IoMethods};
use crate::vfs::Refused;

/// The same method of SQLite's own VFS, unless the file fails.
macro_rules! forward {
    ($file:ident, $code:expr, |$methods:ident, $inner:ident| $call:expr) => {
        guarded($code, || {
            // SAFETY: by the rules of this module.
            if unsafe { opened($file) }.fails() {
                return $code;
            }
            // SAFETY: as above.
            let ($methods, $inner) = unsafe { inner_methods($file) };
            // SAFETY: the arguments are SQLite's.
            unsafe { $call }
        })
    };
}

unsafe extern "C" fn database_close(file: *mut File) -> c_int {
    guarded(abi::IOERR_CLOSE, || {
        // SAFETY: by the rules of this module.
        let (methods, inner) = unsafe { inner_methods(file) };
        // SAFETY: SQLite closes a file once.
        let code = unsafe { (methods.close)(inner) };
        // SAFETY: as above.
        let own = unsafe { own_close(file) };
        if code == abi::OK { own } else { code }
    })
}

unsafe extern "C" fn database_read(
    file: *mut File,
    out: *mut c_void,
    len: c_int,
    at: i64,
) -> c_int {
    forward!(file, abi::IOERR_READ, |methods, inner| (methods.read)(inner, out, len, at))
}

unsafe extern "C" fn database_write(
    file: *mut File,
    bytes: *const c_void,
    len: c_int,
    at: i64,
) -> c_int {
    forward!(file, abi::IOERR_WRITE, |methods, inner| (methods.write)(inner, bytes, len, at))
}

unsafe extern "C" fn database_truncate(file: *mut File, len: i64) -> c_int {
    forward!(file, abi::IOERR_TRUNCATE, |methods, inner| (methods.truncate)(inner, len))
}

unsafe extern "C" fn database_sync(file: *mut File, flags: c_int) -> c_int {
    forward!(file, abi::IOERR_FSYNC, |methods, inner| (methods.sync)(inner, flags))
}

unsafe extern "C" fn database_file_size(file: *mut File, len: *mut i64) -> c_int {
    forward!(file, abi::IOERR_FSTAT, |methods, inner| (methods.file_size)(inner, len))
}

unsafe extern "C" fn database_lock(file: *mut File, level: c_int) -> c_int {
    forward!(file, abi::IOERR_LOCK, |methods, inner| (methods.lock)(inner, level))
}

unsafe extern "C" fn database_unlock(file: *mut File, level: c_int) -> c_int {
    // SAFETY: by the rules of this module.
    let (methods, inner) = unsafe { inner_methods(file) };
    // SAFETY: the arguments are SQLite's.
    unsafe { (methods.unlock)(inner, level) }
}

unsafe extern "C" fn database_check_reserved(file: *mut File, answer: *mut c_int) -> c_int {
    forward!(file, abi::IOERR_LOCK, |methods, inner| (methods.check_reserved)(inner, answer))
}

unsafe extern "C" fn database_control(
    file: *mut File,
    what: c_int,
    argument: *mut c_void,
) -> c_int {
    guarded(abi::ERROR, || {
        if what == abi::FCNTL_PRAGMA {
            // SAFETY: by the rules of this module.
            let code = pragma(unsafe { opened(file) }, argument.cast());
            if code != abi::NOTFOUND {
                return code;
            }
        }
        // SAFETY: by the rules of this module.
        let (methods, inner) = unsafe { inner_methods(file) };
        // SAFETY: the arguments are SQLite's.
        unsafe { (methods.control)(inner, what, argument) }
    })
}

unsafe extern "C" fn database_sector_size(file: *mut File) -> c_int {
    // SAFETY: by the rules of this module.
    let (methods, inner) = unsafe { inner_methods(file) };
    // SAFETY: the arguments are SQLite's.
    unsafe { (methods.sector_size)(inner) }
}

unsafe extern "C" fn database_characteristics(file: *mut File) -> c_int {
    // SAFETY: by the rules of this module.
    let (methods, inner) = unsafe { inner_methods(file) };
    // SAFETY: the arguments are SQLite's.
    unsafe { (methods.characteristics)(inner) }
}

unsafe extern "C" fn database_shm_map(
    file: *mut File,
    region: c_int,
    len: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: by the rules of this module.
    let (methods, inner) = unsafe { inner_methods(file) };
    let Some(map) = methods.shm_map else { return abi::IOERR_LOCK };
    // SAFETY: the arguments are SQLite's.
    unsafe { map(inner, region, len, extend, out) }
}

/// The lock of the writer is when the log has to be this process's, and when its bytes have to be durable.
unsafe extern "C" fn database_shm_lock(
    file: *mut File,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    guarded(abi::IOERR_LOCK, || {
        // SAFETY: by the rules of this module.
        let (methods, inner) = unsafe { inner_methods(file) };
        let Some(lock) = methods.shm_lock else { return abi::IOERR_LOCK };
        // SAFETY: by the rules of this module.
        let wal = unsafe { opened(file) }.wal();
        let is_writer = flags & abi::SHM_EXCLUSIVE != 0 && first == abi::WAL_WRITE_LOCK;
        let Some(wal) = wal.filter(|_| is_writer) else {
            // SAFETY: the arguments are SQLite's.
            return unsafe { lock(inner, first, count, flags) };
        };
        if flags & abi::SHM_UNLOCK != 0 {
            let ended = wal.end();
            // SAFETY: the arguments are SQLite's.
            let code = unsafe { lock(inner, first, count, flags) };
            return match ended {
                Ok(()) => code,
                Err(error) => told(&Refused::new(abi::IOERR_FSYNC, error)),
            };
        }
        // SAFETY: the arguments are SQLite's.
        let code = unsafe { lock(inner, first, count, flags) };
        if code != abi::OK {
            return code;
        }
        match wal.begin() {
            Ok(()) => abi::OK,
            Err(error) => {
                let unlock = abi::SHM_UNLOCK | abi::SHM_EXCLUSIVE;
                // SAFETY: the lock was taken above.
                unsafe { lock(inner, first, count, unlock) };
                let code = if error.is_busy() { abi::BUSY } else { abi::IOERR_LOCK };
                told(&Refused::new(code, error))
            }
        }
    })
}

unsafe extern "C" fn database_shm_barrier(file: *mut File) {
    // SAFETY: by the rules of this module.
    let (methods, inner) = unsafe { inner_methods(file) };
    if let Some(barrier) = methods.shm_barrier {
        // SAFETY: the argument is an open file.
        unsafe { barrier(inner) };
    }
}

unsafe extern "C" fn database_shm_unmap(file: *mut File, delete: c_int) -> c_int {
    // SAFETY: by the rules of this module.
    let (methods, inner) = unsafe { inner_methods(file) };
    // SAFETY: the arguments are SQLite's.
    methods.shm_unmap.map_or(abi::OK, |unmap| unsafe { unmap(inner, delete) })
}

pub(super) static DATABASE: IoMethods = IoMethods {
    version: 2,
    close: database_close,
    read: database_read,
    write: database_write,
    truncate: database_truncate,
    sync: database_sync,
    file_size: database_file_size,
    lock: database_lock,
    unlock: database_unlock,
    check_reserved: database_check_reserved,
    control: database_control,
    sector_size: database_sector_size,
    characteristics: database_characteristics,
    shm_map: Some(database_shm_map),
    shm_lock: Some(database_shm_lock),
    shm_barrier: Some(database_shm_barrier),
    shm_unmap: Some(database_shm_unmap),
    fetch: None,
    unfetch: None,
};
