//! Bytes on their way to a client, in memory that is used again.

use std::fmt;

/// Bytes to send. What was sent leaves its memory, initialised, to what comes next: a reply of 128 KiB costs no
/// clearing of its space.
#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    end: usize,
}

impl Output {
    /// Nothing to send.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), end: 0 }
    }

    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.end
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Forgets the bytes, which were sent. Memory that a few long replies took is given back.
    pub fn clear(&mut self) {
        self.end = 0;
        if self.bytes.len() > KEPT_MAX {
            self.bytes = Vec::new();
        }
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.space(bytes.len()).copy_from_slice(bytes);
    }

    pub(crate) fn put_u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    pub(crate) fn put_u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    pub(crate) fn put_u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }

    /// The next `len` bytes, which the caller overwrites: they hold whatever was sent there before.
    pub(crate) fn space(&mut self, len: usize) -> &mut [u8] {
        let (start, end) = (self.end, self.end + len);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.end = end;
        &mut self.bytes[start..end]
    }

    /// Takes back what was put since the output had `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.end = self.end.min(len);
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("len", &self.end).finish_non_exhaustive()
    }
}

/// Memory that an idle connection keeps.
const KEPT_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_back_is_overwritten_by_what_comes_next() {
        let mut output = Output::new();
        output.put_u32(1);
        output.put_u64(2);
        output.truncate(4);
        output.put_u16(3);
        assert_eq!(output.as_bytes(), [0, 0, 0, 1, 0, 3]);
        output.clear();
        assert!(output.is_empty());
    }
}
