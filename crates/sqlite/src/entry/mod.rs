//! The entry of the extension, and the functions that SQLite calls.
//!
//! Safety rules of this module:
//! - A `*mut File` that SQLite passes to a method is the one that `open` filled: its head is `OurFile`, and, for a database
//!   of this machine, an open file of SQLite's own VFS lies behind that. SQLite calls no two methods of one file at once.
//! - Names are strings that end with a zero and outlive the call. Buffers have the length that is given.
//! - The table of functions and the own VFS live as long as the process: the extension is loaded for good.
//! - No panic crosses into C.

#![allow(unsafe_code, reason = "the interface of SQLite is one of C")]

mod database;
mod host;
mod own;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use self::database::DATABASE;
use self::host::{
    HOST, Host, INNER, OurFile, function, guarded, inner_of, params_of, text_of, told,
};
use self::own::OWN;
use crate::abi::{self, File, Slot, Vfs, slot};
use crate::params::Params;
use crate::share;
use crate::vfs::{Opened, Refused};

/// Called by `sqlite3_load_extension`.
///
/// # Safety
///
/// `table` is the `sqlite3_api_routines` of SQLite 3.31 or later.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "the program that loads the extension looks for it")]
pub unsafe extern "C" fn sqlite3_extension_init(
    database: *mut c_void,
    _error: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    guarded(abi::ERROR, || {
        let table: *const Slot = table.cast();
        let Some(version) = function!(table, LIBVERSION_NUMBER, unsafe extern "C" fn() -> c_int)
        else {
            return abi::ERROR;
        };
        // SAFETY: the function takes nothing.
        if unsafe { version() } < SQLITE_VERSION_MIN {
            return abi::ERROR;
        }
        register(table, database)
    })
}

fn register(table: *const Slot, database: *mut c_void) -> c_int {
    let (Some(find), Some(register), Some(create)) = (
        function!(table, slot::VFS_FIND, abi::VfsFind),
        function!(table, slot::VFS_REGISTER, abi::VfsRegister),
        function!(table, slot::CREATE_FUNCTION, abi::CreateFunction),
    ) else {
        return abi::ERROR;
    };
    if HOST.get().is_none() {
        // SAFETY: null asks for the default VFS.
        let inner = unsafe { find(ptr::null()) };
        if inner.is_null() || HOST.set(Host { table, inner }).is_err() {
            return abi::ERROR;
        }
        // SAFETY: SQLite gave the pointer.
        let mut ours = unsafe { *inner };
        ours.version = ours.version.min(2);
        ours.file_len += c_int::try_from(INNER).expect("16");
        ours.path_max = ours.path_max.max(NAME_MAX);
        ours.next = ptr::null_mut();
        ours.name = VFS_NAME.as_ptr();
        ours.open = Some(vfs_open);
        ours.delete = Some(vfs_delete);
        ours.access = Some(vfs_access);
        ours.full_path = Some(vfs_full_path);
        // SAFETY: the structure is never freed.
        let code = unsafe { register(Box::into_raw(Box::new(ours)), 0) };
        if code != abi::OK {
            return code;
        }
    }
    // SAFETY: the name is constant, and the function fits its type.
    let code = unsafe {
        create(
            database,
            c"landfast_version".as_ptr(),
            0,
            abi::UTF8,
            ptr::null_mut(),
            Some(version_of),
            ptr::null(),
            ptr::null(),
        )
    };
    if code == abi::OK { abi::OK_LOAD_PERMANENTLY } else { code }
}

unsafe extern "C" fn version_of(context: *mut c_void, _count: c_int, _values: *mut *mut c_void) {
    let Some(host) = HOST.get() else { return };
    if let Some(answer) = function!(host.table, slot::RESULT_TEXT, abi::ResultText) {
        // SAFETY: the text is constant, which null as destructor says.
        unsafe { answer(context, VERSION.as_ptr(), -1, None) };
    }
}

unsafe extern "C" fn vfs_open(
    _vfs: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives memory for a file.
    unsafe { (*file).methods = ptr::null() };
    guarded(abi::CANTOPEN, || {
        let Some(host) = HOST.get() else { return abi::CANTOPEN };
        // A temporary file has no name.
        if name.is_null() {
            return inner_open(host, name, file, flags, out_flags);
        }
        let text = text_of(name);
        // Other names carry no parameters.
        let named = flags & (abi::OPEN_MAIN_DB | abi::OPEN_MAIN_JOURNAL | abi::OPEN_WAL) != 0;
        let params = if named {
            params_of(host, name)
        } else {
            Params::parse(|_| None).map_err(|error| Refused::new(abi::CANTOPEN, error))
        };
        let opened = params.and_then(|params| Opened::open(&text, flags, &params));
        match opened {
            Ok(None) => inner_open(host, name, file, flags, out_flags),
            Ok(Some(opened)) => {
                let methods = match &opened {
                    Opened::Database(_) => {
                        // SAFETY: the file is as long as ours and that of the own VFS together.
                        let inner = unsafe { inner_of(file) };
                        let code = inner_open(host, name, inner, flags, out_flags);
                        if code != abi::OK {
                            return code;
                        }
                        &DATABASE
                    }
                    Opened::Wal(_) | Opened::Share { .. } => {
                        if !out_flags.is_null() {
                            // SAFETY: SQLite gives room for the flags, or null.
                            unsafe { *out_flags = flags };
                        }
                        &OWN
                    }
                };
                let ours: *mut OurFile = file.cast();
                let opened = Box::into_raw(Box::new(opened));
                // SAFETY: the memory is long enough for the head of our file.
                unsafe { ours.write(OurFile { head: File { methods }, opened }) };
                abi::OK
            }
            Err(refused) => told(&refused),
        }
    })
}

fn inner_open(
    host: &Host,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: the VFS lives for ever.
    let Some(open) = (unsafe { (*host.inner).open }) else { return abi::CANTOPEN };
    // SAFETY: the arguments are SQLite's.
    unsafe { open(host.inner, name, file, flags, out_flags) }
}

unsafe extern "C" fn vfs_delete(_vfs: *mut Vfs, name: *const c_char, durably: c_int) -> c_int {
    guarded(abi::IOERR_DELETE, || {
        let Some(host) = HOST.get() else { return abi::IOERR_DELETE };
        let text = text_of(name);
        // Of the files that SQLite deletes, only this one may have a log.
        let params = if text.ends_with("-wal") {
            params_of(host, name)
        } else {
            Params::parse(|_| None).map_err(|error| Refused::new(abi::IOERR_DELETE, error))
        };
        let deleted = params.and_then(|params| Opened::delete(&text, durably != 0, &params));
        match deleted {
            Ok(true) => abi::OK,
            Ok(false) => {
                // SAFETY: the VFS lives for ever.
                let Some(delete) = (unsafe { (*host.inner).delete }) else {
                    return abi::IOERR_DELETE;
                };
                // SAFETY: the arguments are SQLite's.
                unsafe { delete(host.inner, name, durably) }
            }
            Err(refused) => told(&refused),
        }
    })
}

unsafe extern "C" fn vfs_access(
    _vfs: *mut Vfs,
    name: *const c_char,
    what: c_int,
    answer: *mut c_int,
) -> c_int {
    guarded(abi::IOERR_ACCESS, || {
        let Some(host) = HOST.get() else { return abi::IOERR_ACCESS };
        let text = text_of(name);
        let known = if what == abi::ACCESS_EXISTS || share::is_share(&text) {
            Opened::exists(&text)
        } else {
            Ok(None)
        };
        match known {
            Ok(Some(exists)) => {
                // SAFETY: SQLite gives room for the answer.
                unsafe { *answer = c_int::from(exists) };
                abi::OK
            }
            Ok(None) => {
                // SAFETY: the VFS lives for ever.
                let Some(access) = (unsafe { (*host.inner).access }) else {
                    return abi::IOERR_ACCESS;
                };
                // SAFETY: the arguments are SQLite's.
                unsafe { access(host.inner, name, what, answer) }
            }
            Err(refused) => told(&refused),
        }
    })
}

unsafe extern "C" fn vfs_full_path(
    _vfs: *mut Vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    guarded(abi::CANTOPEN, || {
        let Some(host) = HOST.get() else { return abi::CANTOPEN };
        if !share::is_share(&text_of(name)) {
            // SAFETY: the VFS lives for ever.
            let Some(full_path) = (unsafe { (*host.inner).full_path }) else {
                return abi::CANTOPEN;
            };
            // SAFETY: the arguments are SQLite's.
            return unsafe { full_path(host.inner, name, room, out) };
        }
        // SAFETY: SQLite's string.
        let bytes = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
        if usize::try_from(room).is_ok_and(|room| bytes.len() <= room) {
            // SAFETY: there is room for all bytes, as was compared.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len()) };
            abi::OK
        } else {
            abi::CANTOPEN
        }
    })
}

const LIBVERSION_NUMBER: usize = 67;
/// The first whose names of journals and write-ahead logs carry the parameters of the URI.
const SQLITE_VERSION_MIN: c_int = 3_031_000;
const VFS_NAME: &CStr = c"landfast";
/// Longest name: an address with user and password.
const NAME_MAX: c_int = 2048;
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("the version has no zero"),
    };
