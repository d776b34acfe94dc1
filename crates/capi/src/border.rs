//! The border: pointers of C become references here, and a panic ends here.
//!
//! Safety rules of this module:
//! - A pointer is compared with null and with the alignment of its type before anything else; what cannot be checked (that the
//!   memory is there, is as long as was said, and that nobody changes it during the call) is the caller's promise, which
//!   each entry repeats under `# Safety`.
//! - A reference that is made of a pointer does not outlive the call. The exception is the destination of a submitted read,
//!   which `waiting` keeps as a pointer and writes to until that read has ended or the region is unmapped.
//! - No panic crosses into C: every entry runs in [`guarded`].

#![allow(unsafe_code, reason = "pointers of C")]

use std::any::Any;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use crate::fault::Fault;
use crate::status::Status;

/// Runs the body of an entry: a failure is kept for the thread, and a panic becomes one.
pub(crate) fn guarded(act: impl FnOnce() -> Result<(), Fault>) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(act));
    match outcome {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(fault)) => fault.keep(),
        Err(panic) => Fault::Panicked(message_of(&*panic)).keep(),
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// A text that must be there.
///
/// # Safety
/// `text` is null, or a string that ends with a zero and does not change during the call.
pub(crate) unsafe fn text<'a>(what: &'static str, text: *const c_char) -> Result<&'a str, Fault> {
    // SAFETY: by the caller.
    unsafe { optional_text(what, text) }?.ok_or(Fault::Null(what))
}

/// A text that may be left out by null.
///
/// # Safety
/// As of [`text`].
pub(crate) unsafe fn optional_text<'a>(
    what: &'static str,
    text: *const c_char,
) -> Result<Option<&'a str>, Fault> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null; the rest is the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Fault::Utf8(what))
}

/// Bytes to read. Of length 0 the pointer may be anything.
///
/// # Safety
/// `bytes` points to `len` bytes that do not change during the call, or is null.
pub(crate) unsafe fn bytes<'a>(
    what: &'static str,
    bytes: *const c_void,
    len: usize,
) -> Result<&'a [u8], Fault> {
    check_span(what, bytes, len)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: neither null nor too long; the rest is the caller's promise.
    Ok(unsafe { slice::from_raw_parts(bytes.cast(), len) })
}

/// Bytes to fill. Of length 0 the pointer may be anything.
///
/// # Safety
/// `bytes` points to `len` bytes that only this call uses, or is null.
pub(crate) unsafe fn bytes_mut<'a>(
    what: &'static str,
    bytes: *mut c_void,
    len: usize,
) -> Result<&'a mut [u8], Fault> {
    check_span(what, bytes, len)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: neither null nor too long; the rest is the caller's promise.
    Ok(unsafe { slice::from_raw_parts_mut(bytes.cast(), len) })
}

fn check_span(what: &'static str, bytes: *const c_void, len: usize) -> Result<(), Fault> {
    if bytes.is_null() && len > 0 {
        return Err(Fault::Null(what));
    }
    match isize::try_from(len) {
        Ok(_) => Ok(()),
        Err(_) => Err(Fault::Length(what, len)),
    }
}

/// Structures of the caller's, one behind the other. Of length 0 the pointer may be anything.
///
/// # Safety
/// `values` points to `count` of them that do not change during the call, or is null.
pub(crate) unsafe fn array<'a, T>(
    what: &'static str,
    values: *const T,
    count: usize,
) -> Result<&'a [T], Fault> {
    if count == 0 {
        return Ok(&[]);
    }
    let len = count.checked_mul(size_of::<T>()).ok_or(Fault::Length(what, count))?;
    check_span(what, values.cast(), len)?;
    if !values.is_aligned() {
        return Err(Fault::Unaligned(what));
    }
    // SAFETY: neither null, nor unaligned, nor too long; the rest is the caller's promise.
    Ok(unsafe { slice::from_raw_parts(values, count) })
}

/// A structure of the caller's, or none for null.
///
/// # Safety
/// `value` is null, or points to a `T` that does not change during the call.
pub(crate) unsafe fn structure<'a, T>(
    what: &'static str,
    value: *const T,
) -> Result<Option<&'a T>, Fault> {
    if !value.is_aligned() {
        return Err(Fault::Unaligned(what));
    }
    // SAFETY: null or aligned; the rest is the caller's promise.
    Ok(unsafe { value.as_ref() })
}

/// The place for an answer.
#[derive(Debug)]
pub(crate) struct Place<T>(*mut T);

impl<T> Place<T> {
    /// Checks the pointer, before anything is done whose outcome would go there.
    ///
    /// # Safety
    /// `place` is null, or points to room for a `T` that only this call uses.
    pub(crate) unsafe fn new(what: &'static str, place: *mut T) -> Result<Self, Fault> {
        // SAFETY: by the caller.
        unsafe { Self::optional(what, place) }?.ok_or(Fault::Null(what))
    }

    /// A place that null leaves out.
    ///
    /// # Safety
    /// As of [`Place::new`].
    pub(crate) unsafe fn optional(
        what: &'static str,
        place: *mut T,
    ) -> Result<Option<Self>, Fault> {
        match place {
            place if place.is_null() => Ok(None),
            place if !place.is_aligned() => Err(Fault::Unaligned(what)),
            place => Ok(Some(Self(place))),
        }
    }

    /// Writes the answer.
    pub(crate) fn set(self, value: T) {
        // SAFETY: checked by `new`, whose caller promised the rest.
        unsafe { self.0.write(value) };
    }
}

/// Memory that an operation fills after the call that named it.
#[derive(Debug)]
pub(crate) struct Destination {
    start: *mut u8,
    len: usize,
}

// SAFETY: the caller's promise of `Destination::new` is for the process, not for a thread.
unsafe impl Send for Destination {}

impl Destination {
    /// Checks the pointer.
    ///
    /// # Safety
    /// `start` points to `len` bytes, or is null; from now on until the operation has ended only this library uses them.
    pub(crate) unsafe fn new(
        what: &'static str,
        start: *mut c_void,
        len: usize,
    ) -> Result<Self, Fault> {
        check_span(what, start, len)?;
        Ok(Self { start: start.cast(), len })
    }

    /// The memory.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: checked by `new`, whose caller promised the rest.
        unsafe { slice::from_raw_parts_mut(self.start, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status_with_its_text() {
        let status = guarded(|| panic!("{}", "out of order"));
        assert_eq!(status, Status::Internal);
        // SAFETY: the text of this thread.
        let text = unsafe { CStr::from_ptr(crate::fault::latest_text()) };
        assert!(text.to_str().unwrap().ends_with("out of order"), "{text:?}");
    }

    #[test]
    fn null_and_what_is_no_text_are_refused_by_name() {
        // SAFETY: null.
        let none = unsafe { text("url", std::ptr::null()) };
        // SAFETY: a string that ends with a zero.
        let bad = unsafe { text("url", c"\xff".as_ptr()) };
        assert_eq!(none.unwrap_err().to_string(), "the argument `url` is null");
        assert_eq!(bad.unwrap_err().to_string(), "the argument `url` is no UTF-8");
    }
}
