//! SQLite's C interface, as far as this crate uses it.
//!
//! Spec: sqlite3.h and sqlite3ext.h of SQLite 3.31 and later; the structures only grow at their end.

#![allow(unsafe_code, reason = "function pointers of C")]

use std::ffi::{c_char, c_int, c_void};

/// `sqlite3_file`: the head of an open file; what follows belongs to the VFS.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct File {
    pub(crate) methods: *const IoMethods,
}

/// `sqlite3_vfs`, version 2.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Vfs {
    pub(crate) version: c_int,
    pub(crate) file_len: c_int,
    pub(crate) path_max: c_int,
    pub(crate) next: *mut Self,
    pub(crate) name: *const c_char,
    pub(crate) data: *mut c_void,
    pub(crate) open: Option<
        unsafe extern "C" fn(*mut Self, *const c_char, *mut File, c_int, *mut c_int) -> c_int,
    >,
    pub(crate) delete: Option<unsafe extern "C" fn(*mut Self, *const c_char, c_int) -> c_int>,
    pub(crate) access:
        Option<unsafe extern "C" fn(*mut Self, *const c_char, c_int, *mut c_int) -> c_int>,
    pub(crate) full_path:
        Option<unsafe extern "C" fn(*mut Self, *const c_char, c_int, *mut c_char) -> c_int>,
    /// Four functions on shared objects, randomness, sleep, time, last error, time again.
    pub(crate) rest: [*const c_void; 9],
    /// Version 3, which is not offered.
    pub(crate) system_calls: [*const c_void; 3],
}

/// `sqlite3_io_methods`, version 3.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct IoMethods {
    pub(crate) version: c_int,
    pub(crate) close: unsafe extern "C" fn(*mut File) -> c_int,
    pub(crate) read: unsafe extern "C" fn(*mut File, *mut c_void, c_int, i64) -> c_int,
    pub(crate) write: unsafe extern "C" fn(*mut File, *const c_void, c_int, i64) -> c_int,
    pub(crate) truncate: unsafe extern "C" fn(*mut File, i64) -> c_int,
    pub(crate) sync: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub(crate) file_size: unsafe extern "C" fn(*mut File, *mut i64) -> c_int,
    pub(crate) lock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub(crate) unlock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub(crate) check_reserved: unsafe extern "C" fn(*mut File, *mut c_int) -> c_int,
    pub(crate) control: unsafe extern "C" fn(*mut File, c_int, *mut c_void) -> c_int,
    pub(crate) sector_size: unsafe extern "C" fn(*mut File) -> c_int,
    pub(crate) characteristics: unsafe extern "C" fn(*mut File) -> c_int,
    pub(crate) shm_map:
        Option<unsafe extern "C" fn(*mut File, c_int, c_int, c_int, *mut *mut c_void) -> c_int>,
    pub(crate) shm_lock: Option<unsafe extern "C" fn(*mut File, c_int, c_int, c_int) -> c_int>,
    pub(crate) shm_barrier: Option<unsafe extern "C" fn(*mut File)>,
    pub(crate) shm_unmap: Option<unsafe extern "C" fn(*mut File, c_int) -> c_int>,
    pub(crate) fetch:
        Option<unsafe extern "C" fn(*mut File, i64, c_int, *mut *mut c_void) -> c_int>,
    pub(crate) unfetch: Option<unsafe extern "C" fn(*mut File, i64, *mut c_void) -> c_int>,
}

const _: () = assert!(size_of::<Vfs>() == 168 && size_of::<IoMethods>() == 152);

/// A function of SQLite's table, before its type is known.
pub(crate) type Slot = Option<unsafe extern "C" fn()>;

/// Places of functions in `sqlite3_api_routines`.
pub(crate) mod slot {
    pub(crate) const CREATE_FUNCTION: usize = 45;
    pub(crate) const MPRINTF: usize = 69;
    pub(crate) const RESULT_TEXT: usize = 85;
    pub(crate) const VFS_FIND: usize = 141;
    pub(crate) const VFS_REGISTER: usize = 142;
    pub(crate) const LOG: usize = 167;
    pub(crate) const URI_PARAMETER: usize = 189;
    /// With the names of the members, for the test.
    #[cfg(test)]
    pub(crate) const ALL: [(&str, usize); 7] = [
        ("create_function", CREATE_FUNCTION),
        ("mprintf", MPRINTF),
        ("result_text", RESULT_TEXT),
        ("vfs_find", VFS_FIND),
        ("vfs_register", VFS_REGISTER),
        ("log", LOG),
        ("uri_parameter", URI_PARAMETER),
    ];
}

pub(crate) type CreateFunction = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    c_int,
    c_int,
    *mut c_void,
    Option<unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_void)>,
    *const c_void,
    *const c_void,
) -> c_int;
pub(crate) type Mprintf = unsafe extern "C" fn(*const c_char, ...) -> *mut c_char;
pub(crate) type ResultText = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    c_int,
    Option<unsafe extern "C" fn(*mut c_void)>,
);
pub(crate) type VfsFind = unsafe extern "C" fn(*const c_char) -> *mut Vfs;
pub(crate) type VfsRegister = unsafe extern "C" fn(*mut Vfs, c_int) -> c_int;
pub(crate) type Log = unsafe extern "C" fn(c_int, *const c_char, ...);
pub(crate) type UriParameter = unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char;

pub(crate) const OK: c_int = 0;
pub(crate) const ERROR: c_int = 1;
pub(crate) const BUSY: c_int = 5;
pub(crate) const NOTFOUND: c_int = 12;
pub(crate) const CANTOPEN: c_int = 14;
pub(crate) const OK_LOAD_PERMANENTLY: c_int = 256;
const IOERR: c_int = 10;
pub(crate) const IOERR_READ: c_int = IOERR | 1 << 8;
pub(crate) const IOERR_SHORT_READ: c_int = IOERR | 2 << 8;
pub(crate) const IOERR_WRITE: c_int = IOERR | 3 << 8;
pub(crate) const IOERR_FSYNC: c_int = IOERR | 4 << 8;
pub(crate) const IOERR_TRUNCATE: c_int = IOERR | 6 << 8;
pub(crate) const IOERR_FSTAT: c_int = IOERR | 7 << 8;
pub(crate) const IOERR_UNLOCK: c_int = IOERR | 8 << 8;
pub(crate) const IOERR_DELETE: c_int = IOERR | 10 << 8;
pub(crate) const IOERR_DELETE_NOENT: c_int = IOERR | 23 << 8;
pub(crate) const IOERR_LOCK: c_int = IOERR | 15 << 8;
pub(crate) const IOERR_ACCESS: c_int = IOERR | 13 << 8;
pub(crate) const IOERR_CLOSE: c_int = IOERR | 16 << 8;

pub(crate) const OPEN_READONLY: c_int = 0x1;
pub(crate) const OPEN_CREATE: c_int = 0x4;
pub(crate) const OPEN_DELETEONCLOSE: c_int = 0x8;
pub(crate) const OPEN_MAIN_DB: c_int = 0x100;
pub(crate) const OPEN_MAIN_JOURNAL: c_int = 0x800;
pub(crate) const OPEN_WAL: c_int = 0x8_0000;

pub(crate) const LOCK_NONE: c_int = 0;
pub(crate) const LOCK_SHARED: c_int = 1;
pub(crate) const LOCK_RESERVED: c_int = 2;
pub(crate) const LOCK_PENDING: c_int = 3;
pub(crate) const LOCK_EXCLUSIVE: c_int = 4;

pub(crate) const SHM_UNLOCK: c_int = 1;
pub(crate) const SHM_EXCLUSIVE: c_int = 8;
/// Index of the lock of whoever writes to the write-ahead log.
pub(crate) const WAL_WRITE_LOCK: c_int = 0;

pub(crate) const FCNTL_PRAGMA: c_int = 14;
pub(crate) const ACCESS_EXISTS: c_int = 0;
pub(crate) const UTF8: c_int = 1;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_places_of_the_functions_are_those_of_the_header() {
        let dir = tempfile::tempdir().unwrap();
        let mut program = String::from(
            "#include <sqlite3ext.h>\n#include <stdio.h>\n#include <stddef.h>\nint main(void){\n",
        );
        for (name, _) in slot::ALL {
            program +=
                &format!("printf(\"%zu \",offsetof(sqlite3_api_routines,{name})/sizeof(void*));\n");
        }
        program += "printf(\"%zu %zu\",sizeof(sqlite3_vfs),sizeof(sqlite3_io_methods));return 0;}";
        let source = dir.path().join("a.c");
        std::fs::write(&source, program).unwrap();
        let built = dir.path().join("a");
        let compiled = Command::new("cc").arg(&source).arg("-o").arg(&built).status().unwrap();
        assert!(compiled.success(), "install libsqlite3-dev");
        let said = Command::new(&built).output().unwrap();
        let mut expected: Vec<String> =
            slot::ALL.iter().map(|(_, place)| place.to_string()).collect();
        expected.extend([size_of::<Vfs>().to_string(), size_of::<IoMethods>().to_string()]);
        assert_eq!(String::from_utf8(said.stdout).unwrap(), expected.join(" "));
    }
}
