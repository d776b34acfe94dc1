//! Reusable buffers of one connection: small transfers allocate nothing in the long run.

/// See the module. The memory it keeps is bounded.
#[derive(Debug, Default)]
pub(super) struct Spares {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spares {
    /// An empty buffer: the last one used, while its memory is in the cache.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// Keeps a buffer for the next transfer, if it is of a useful size.
    pub(super) fn keep(&mut self, mut buffer: Vec<u8>) {
        let len = buffer.capacity();
        let fits = self.buffers.len() < BUFFERS_MAX && self.bytes + len <= BYTES_MAX;
        if fits && (1..=LEN_MAX).contains(&len) {
            buffer.clear();
            self.bytes += len;
            self.buffers.push(buffer);
        }
    }
}

/// The frame, the bytes and the answer of each of 21 requests in progress at once.
const BUFFERS_MAX: usize = 64;
/// The longest transfer that the engine thread handles.
const LEN_MAX: usize = 64 * 1024;
/// An eighth of the memory of a connection's receive buffers.
const BYTES_MAX: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_buffers_are_returned_empty_and_are_bounded() {
        let mut spares = Spares::default();
        assert_eq!(spares.take().capacity(), 0);
        spares.keep(Vec::new());
        spares.keep(vec![7; LEN_MAX + 1]);
        assert_eq!(spares.take().capacity(), 0, "neither nothing nor too much is kept");
        for _ in 0..100 {
            spares.keep(vec![7; LEN_MAX]);
        }
        assert_eq!(spares.buffers.len(), BYTES_MAX / LEN_MAX);
        while spares.bytes > 0 {
            let buffer = spares.take();
            assert!(buffer.is_empty() && buffer.capacity() == LEN_MAX);
        }
        for _ in 0..100 {
            spares.keep(vec![7; 100]);
        }
        assert_eq!(spares.buffers.len(), BUFFERS_MAX);
    }
}
