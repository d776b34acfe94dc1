//! The entry of the extension, and the functions that SQLite calls.
//!
//! Safety rules of this module:
//! - A `*mut File` that SQLite passes to a method is the one that `open` filled: its head is `OurFile`, and, for a database
//!   of this machine, an open file of SQLite's own VFS lies behind that. SQLite calls no two methods of one file at once.
//! - Names are strings that end with a zero and outlive the call. Buffers have the length that is given.
//! - The table of functions and the own VFS live as long as the process: the extension is loaded for good.
//! - No panic crosses into C.

#![allow(unsafe_code, reason = "the interface of SQLite is one of C")]

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;
use std::sync::OnceLock;

use crate::abi::{self, File, IoMethods, Slot, Vfs, slot};
use crate::params::Params;
use crate::share;
use crate::vfs::{Opened, Refused};

/// An open file as SQLite sees it.
#[repr(C)]
struct OurFile {
    head: File,
    opened: *mut Opened,
}

/// Where the file of SQLite's own VFS lies behind ours: a multiple of what any structure of C wants.
const INNER: usize = 16;
const _: () = assert!(size_of::<OurFile>() <= INNER);

/// What the extension keeps of SQLite.
struct Host {
    table: *const Slot,
    inner: *mut Vfs,
}

// SAFETY: the table is constant, and SQLite's own VFS may be called from any thread.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

static HOST: OnceLock<Host> = OnceLock::new();

/// A function of the table, as the type that it has there.
macro_rules! function {
    ($table:expr, $slot:expr, $type:ty) => {{
        // SAFETY: the table has more entries than any slot (the version was checked), and the
        // entry has this type (a test compares the places with the header).
        let entry = unsafe { *$table.add($slot) };
        // SAFETY: as above; both are pointers to functions.
        entry.map(|entry| unsafe { std::mem::transmute::<unsafe extern "C" fn(), $type>(entry) })
    }};
}

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

/// The file of SQLite's own VFS behind ours.
///
/// # Safety
///
/// `file` has the length that our VFS asks for.
unsafe fn inner_of(file: *mut File) -> *mut File {
    // SAFETY: by the caller.
    unsafe { file.byte_add(INNER) }
}

/// What our file is.
///
/// # Safety
///
/// `file` is one that `vfs_open` filled, and no other reference to its state lives.
unsafe fn opened<'f>(file: *mut File) -> &'f mut Opened {
    let ours: *mut OurFile = file.cast();
    // SAFETY: by the caller.
    let state = unsafe { (*ours).opened };
    // SAFETY: the pointer is that of a box which `close` frees.
    unsafe { &mut *state }
}

/// The methods of the file of SQLite's own VFS.
///
/// # Safety
///
/// `file` is a database of this machine that `vfs_open` filled.
unsafe fn inner_methods<'f>(file: *mut File) -> (&'f IoMethods, *mut File) {
    // SAFETY: by the caller.
    let inner = unsafe { inner_of(file) };
    // SAFETY: the own VFS has filled the file.
    let methods = unsafe { (*inner).methods };
    // SAFETY: methods are constant.
    (unsafe { &*methods }, inner)
}

unsafe extern "C" fn own_close(file: *mut File) -> c_int {
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
fn pragma(file: &Opened, arguments: *mut *mut c_char) -> c_int {
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

/// Methods of a database of this machine: SQLite's own, with hooks.
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

static DATABASE: IoMethods = IoMethods {
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

/// Version 1: there is no shared memory.
static OWN: IoMethods = IoMethods {
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

fn code_of(outcome: Result<(), Refused>) -> c_int {
    outcome.map_or_else(|refused| told(&refused), |()| abi::OK)
}

/// Tells SQLite's log why, and returns the code.
fn told(refused: &Refused) -> c_int {
    let text = CString::new(format!("landfast: {}", refused.why));
    if let (Ok(text), Some(host)) = (text, HOST.get())
        && refused.code != abi::IOERR_DELETE_NOENT
        && let Some(log) = function!(host.table, slot::LOG, abi::Log)
    {
        // SAFETY: the format takes one string.
        unsafe { log(refused.code, c"%s".as_ptr(), text.as_ptr()) };
    }
    refused.code
}

fn text_of<'n>(name: *const c_char) -> Cow<'n, str> {
    if name.is_null() {
        return Cow::Borrowed("");
    }
    // SAFETY: SQLite's string.
    unsafe { CStr::from_ptr(name) }.to_string_lossy()
}

/// What the URI says from which SQLite made the name.
fn params_of(host: &Host, name: *const c_char) -> Result<Params, Refused> {
    let Some(value) = function!(host.table, slot::URI_PARAMETER, abi::UriParameter) else {
        return Err(Refused::new(abi::CANTOPEN, "this SQLite has no URI parameters"));
    };
    let value_of = |key: &str| {
        let key = CString::new(key).ok()?;
        // SAFETY: the name is one that SQLite made for a database, a journal or a write-ahead log.
        let found = unsafe { value(name, key.as_ptr()) };
        (!found.is_null()).then(|| text_of(found).into_owned())
    };
    Params::parse(value_of).map_err(|error| Refused::new(abi::CANTOPEN, error))
}

/// A panic becomes an error of SQLite.
fn guarded(code: c_int, act: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(code)
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
