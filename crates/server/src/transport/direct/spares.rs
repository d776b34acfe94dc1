//! Buffers of one connection that are used again: small transfers allocate nothing in the long
//! run.

/// See the module. Holds little, whatever passes through it.
#[derive(Debug, Default)]
pub(super) struct Spares {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spares {
    /// An empty buffer: the one that was used last, while its memory is warm.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// Keeps a buffer for the next transfer, if it is worth it.
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

/// The frame, the bytes and the answer of each of 21 requests that are under way at once.
const BUFFERS_MAX: usize = 64;
/// As long as what is handled on the engine thread.
const LEN_MAX: usize = 64 * 1024;
/// An eighth of what the receive buffers of a connection take.
const BYTES_MAX: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_empty_and_is_bounded() {
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
