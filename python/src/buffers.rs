//! Memory of Python objects: whatever has the buffer protocol (bytes, bytearray, memoryview, numpy arrays), without a copy.
//!
//! Safety rules of this module:
//! - Python keeps exported memory in its place until the export ends, and an export is held as long as its bytes are used.
//! - Only memory in one piece is taken, and only writable memory is written to.
//! - Python lets other threads change exported memory while a call runs without the GIL, as for `socket.send` and
//!   `readinto` of any file: the guide tells callers not to. Bytes that are changed meanwhile arrive old or new; nothing but the
//!   bytes depends on them.

#![allow(unsafe_code, reason = "memory of Python objects")]

use std::slice;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;

/// Exported memory to read from.
#[derive(Debug)]
pub(crate) struct Source(PyUntypedBuffer);

/// Exported memory to write to.
#[derive(Debug)]
pub(crate) struct Target(PyUntypedBuffer);

impl Source {
    /// Exports the memory of `object`.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        in_one_piece(object).map(Self)
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the rules of this module.
        unsafe { slice::from_raw_parts(self.0.buf_ptr().cast_const().cast(), self.0.len_bytes()) }
    }
}

impl Target {
    /// Exports the memory of `object`, which must be writable.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = in_one_piece(object)?;
        if buffer.readonly() {
            return Err(PyValueError::new_err("the buffer is read-only"));
        }
        Ok(Self(buffer))
    }

    /// How many bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// The bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        if self.0.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: the rules of this module.
        unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

/// No two overlap: each is filled by itself.
pub(crate) fn check_apart<'t>(targets: impl Iterator<Item = &'t Target>) -> PyResult<()> {
    let memory = targets.map(|one| (one.0.buf_ptr().addr(), one.len()));
    let mut ranges: Vec<(usize, usize)> = memory.filter(|(_, len)| *len > 0).collect();
    ranges.sort_unstable();
    if ranges.windows(2).any(|two| two[1].0 - two[0].0 < two[0].1) {
        return Err(PyValueError::new_err("the buffers overlap"));
    }
    Ok(())
}

fn in_one_piece(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    if !buffer.is_c_contiguous() {
        let why = "the buffer is not in one piece: numpy.ascontiguousarray makes a copy that is";
        return Err(PyBufferError::new_err(why));
    }
    Ok(buffer)
}
