//! Names: what lies in a share, by path.

#![allow(unsafe_code, reason = "functions for C")]

use std::ffi::{CString, c_char, c_void};

use crate::border::{self, Place, guarded};
use crate::fault::Fault;
use crate::handles::{CLIENTS, ClientHandle};
use crate::status::Status;
use crate::types::{Entry, EntryFunction, FileInfo, nanoseconds};

/// What is known of a file or directory.
///
/// # Safety
/// `path` is a string that ends with a zero; `info` has room for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_stat(
    client: ClientHandle,
    path: *const c_char,
    info: *mut FileInfo,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let place = unsafe { Place::new("info", info) }?;
        // SAFETY: by the caller.
        let path = unsafe { border::text("path", path) }?;
        let stat = CLIENTS.find(client.id)?.client.stat(path);
        place.set(FileInfo::from(stat.map_err(Fault::client("look at", path))?));
        Ok(())
    })
}

/// Calls `function` with each entry of a directory, in the server's order; "" is the share itself.
///
/// # Safety
/// `path` is a string that ends with a zero; `function` does as its type says, with `user_data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_list(
    client: ClientHandle,
    path: *const c_char,
    function: EntryFunction,
    user_data: *mut c_void,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let path = unsafe { border::text("path", path) }?;
        let function = function.ok_or(Fault::Null("function"))?;
        let listed = CLIENTS.find(client.id)?.client.list(path);
        for found in listed.map_err(Fault::client("list", path))? {
            // The client refuses names with a zero.
            let name = CString::new(found.name.as_str()).unwrap_or_default();
            let info = FileInfo {
                size: found.end_of_file,
                allocated: found.allocation_size,
                created_ns: nanoseconds(found.creation_time),
                modified_ns: nanoseconds(found.last_write_time),
                is_directory: u32::from(
                    found.attributes.contains(smb::info::FileAttributes::DIRECTORY),
                ),
                reserved: 0,
            };
            let entry = Entry { name: name.as_ptr(), info };
            // SAFETY: by the caller; the entry lives during the call.
            if unsafe { function(user_data, &raw const entry) } != 0 {
                break;
            }
        }
        Ok(())
    })
}

/// Makes a directory.
///
/// # Safety
/// `path` is a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_make_directory(
    client: ClientHandle,
    path: *const c_char,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let path = unsafe { border::text("path", path) }?;
        let made = CLIENTS.find(client.id)?.client.create_directory(path);
        made.map_err(Fault::client("make the directory", path))
    })
}

/// Deletes a file, or an empty directory.
///
/// # Safety
/// `path` is a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_remove(client: ClientHandle, path: *const c_char) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let path = unsafe { border::text("path", path) }?;
        let removed = CLIENTS.find(client.id)?.client.delete(path);
        removed.map_err(Fault::client("delete", path))
    })
}

/// Gives a file or directory another path on the same share. `replace`: 1 replaces a file of that name, 0 fails then.
///
/// # Safety
/// `from` and `to` are strings that end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn landfast_rename(
    client: ClientHandle,
    from: *const c_char,
    to: *const c_char,
    replace: u32,
) -> Status {
    guarded(|| {
        // SAFETY: by the caller.
        let from = unsafe { border::text("from", from) }?;
        // SAFETY: by the caller.
        let to = unsafe { border::text("to", to) }?;
        if replace > 1 {
            let (what, value) = ("replace", replace.into());
            return Err(Fault::Value { what, value, why: "choose 0 or 1" });
        }
        let renamed = CLIENTS.find(client.id)?.client.rename(from, to, replace == 1);
        renamed.map_err(Fault::client("rename", format!("{from} to {to}")))
    })
}
