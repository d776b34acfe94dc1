//! Reusable buffers of one connection: small transfers allocate nothing in the long run.
//!
//! They lie by their capacity, so that what waits in a queue holds little more than its bytes: a short request that took
//! the buffer of a long transfer would hold all of that, and count as short.

/// See the module. The memory it keeps is bounded.
#[derive(Debug, Default)]
pub(super) struct Spares {
    /// Of 512 bytes and more, of 1 KiB and more, and so on.
    classes: [Vec<Vec<u8>>; CLASSES],
    count: usize,
    bytes: usize,
}

impl Spares {
    /// An empty buffer with room for `len` bytes, and for less than four times that or 1 KiB: the last one used, while
    /// its memory is in the cache. Without room where `len` is longer than what is kept.
    pub(super) fn take(&mut self, len: usize) -> Vec<u8> {
        if len > LEN_MAX {
            return Vec::new();
        }
        let len = len.max(LEN_MIN).next_power_of_two();
        let Some(buffer) = self.classes[class_of(len)].pop() else {
            return Vec::with_capacity(len);
        };
        self.count -= 1;
        self.bytes -= buffer.capacity();
        buffer
    }

    /// Keeps a buffer for the next transfer, if it is of a useful size.
    pub(super) fn keep(&mut self, mut buffer: Vec<u8>) {
        let len = buffer.capacity();
        let fits = self.count < BUFFERS_MAX && self.bytes + len <= BYTES_MAX;
        if fits && (LEN_MIN..=LEN_MAX).contains(&len) {
            buffer.clear();
            self.count += 1;
            self.bytes += len;
            self.classes[class_of(len)].push(buffer);
        }
    }
}

// Of a capacity: all buffers of a class are at least as long as the shortest of it.
fn class_of(len: usize) -> usize {
    usize::try_from(len.ilog2() - LEN_MIN.ilog2()).expect("32 bits fit usize")
}

/// The frame, the bytes and the answer of each of 21 requests in progress at once.
const BUFFERS_MAX: usize = 64;
/// The shortest buffer: most requests and answers fit.
const LEN_MIN: usize = 512;
/// The longest transfer that the engine thread handles.
const LEN_MAX: usize = 64 * 1024;
const CLASSES: usize = (LEN_MAX.ilog2() - LEN_MIN.ilog2()) as usize + 1;
/// An eighth of the memory of a connection's receive buffers.
const BYTES_MAX: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_buffers_are_returned_empty_and_are_bounded() {
        let mut spares = Spares::default();
        spares.keep(Vec::new());
        spares.keep(vec![7; LEN_MAX + 1]);
        assert_eq!((spares.count, spares.bytes), (0, 0), "neither nothing nor too much is kept");
        for _ in 0..100 {
            spares.keep(vec![7; LEN_MAX]);
        }
        assert_eq!(spares.count, BYTES_MAX / LEN_MAX);
        while spares.count > 0 {
            let buffer = spares.take(LEN_MAX);
            assert!(buffer.is_empty() && buffer.capacity() == LEN_MAX);
        }
        assert_eq!(spares.bytes, 0);
        for _ in 0..100 {
            spares.keep(vec![7; LEN_MIN]);
        }
        assert_eq!(spares.count, BUFFERS_MAX);
    }

    #[test]
    fn a_short_request_never_takes_the_buffer_of_a_long_one() {
        let mut spares = Spares::default();
        for len in [600, 1024, 1500, 4096, 5000, LEN_MAX] {
            spares.keep(Vec::with_capacity(len));
        }
        for len in [1, 130, 511, 512, 513, 1000, 1024, 1025, 4096, 4097, LEN_MAX] {
            let capacity = spares.take(len).capacity();
            assert!(
                (len.max(LEN_MIN)..(4 * len).max(2 * LEN_MIN)).contains(&capacity),
                "{len}: {capacity}"
            );
        }
    }
}
