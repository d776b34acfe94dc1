//! What lies behind the functions that SQLite calls: its table, its own VFS, the files that it has open.
//!
//! Safety rules of this module: those of [`entry`](super).

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crate::abi::{self, File, IoMethods, Slot, Vfs, slot};
use crate::params::Params;
use crate::vfs::{Opened, Refused};

/// An open file as SQLite sees it.
#[repr(C)]
pub(super) struct OurFile {
    pub(super) head: File,
    pub(super) opened: *mut Opened,
}

/// Where the file of SQLite's own VFS lies behind ours: a multiple of what any structure of C wants.
pub(super) const INNER: usize = 16;
const _: () = assert!(size_of::<OurFile>() <= INNER);

/// What the extension keeps of SQLite.
pub(super) struct Host {
    pub(super) table: *const Slot,
    pub(super) inner: *mut Vfs,
}

// SAFETY: the table is constant, and SQLite's own VFS may be called from any thread.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

pub(super) static HOST: OnceLock<Host> = OnceLock::new();

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
pub(super) use function;

/// The file of SQLite's own VFS behind ours.
///
/// # Safety
///
/// `file` has the length that our VFS asks for.
pub(super) unsafe fn inner_of(file: *mut File) -> *mut File {
    // SAFETY: by the caller.
    unsafe { file.byte_add(INNER) }
}

/// What our file is.
///
/// # Safety
///
/// `file` is one that `vfs_open` filled, and no other reference to its state lives.
pub(super) unsafe fn opened<'f>(file: *mut File) -> &'f mut Opened {
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
pub(super) unsafe fn inner_methods<'f>(file: *mut File) -> (&'f IoMethods, *mut File) {
    // SAFETY: by the caller.
    let inner = unsafe { inner_of(file) };
    // SAFETY: the own VFS has filled the file.
    let methods = unsafe { (*inner).methods };
    // SAFETY: methods are constant.
    (unsafe { &*methods }, inner)
}

pub(super) fn code_of(outcome: Result<(), Refused>) -> c_int {
    outcome.map_or_else(|refused| told(&refused), |()| abi::OK)
}

/// Tells SQLite's log why, and returns the code.
pub(super) fn told(refused: &Refused) -> c_int {
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

pub(super) fn text_of<'n>(name: *const c_char) -> Cow<'n, str> {
    if name.is_null() {
        return Cow::Borrowed("");
    }
    // SAFETY: SQLite's string.
    unsafe { CStr::from_ptr(name) }.to_string_lossy()
}

/// What the URI says from which SQLite made the name.
pub(super) fn params_of(host: &Host, name: *const c_char) -> Result<Params, Refused> {
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
pub(super) fn guarded(code: c_int, act: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(code)
}
