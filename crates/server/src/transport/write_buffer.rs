//! The send buffer of a connection: memory that grows with the answers and is freed when they get
//! small.
//!
//! ```text
//!  4 KiB       kept for as long as the connection lives
//!  256 KiB     kept while it is used; given back once nothing came or went for a second or two
//!  2.5 MiB     kept while large answers come, where there is room for that (`spare_room`): given back as well after 256 small
//!              ones in a row, and once there was none for a second or two
//!  beyond      never kept
//! ```
//!
//! So a client that reads in small or in large pieces costs no allocation per answer, and a client
//! that once read a large piece does not hold its memory for ever.

use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    bytes: Vec<u8>,
    /// How many bytes of it were sent.
    start: usize,
    small_in_a_row: u32,
    /// A large answer left since [`WriteBuffer::look`].
    had_large: bool,
}

impl WriteBuffer {
    /// The bytes to send, for appending.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The bytes to send.
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Notes that `sent` bytes more were sent, not all of them.
    pub(super) fn advance(&mut self, sent: usize) {
        self.start += sent;
    }

    /// Takes over a frame instead of copying it. No other bytes may be waiting.
    pub(super) fn replace(&mut self, frame: Vec<u8>) {
        debug_assert!(self.bytes.is_empty());
        self.bytes = frame;
    }

    /// To be called behind each answer: gives memory back that it took and does not need, unless that may be kept.
    pub(super) fn settle(&mut self, may_keep: impl FnOnce(usize) -> bool) {
        let capacity = self.bytes.capacity();
        if capacity - self.bytes.len() > BUSY_KEEP && (capacity > KEEP_MAX || !may_keep(capacity)) {
            self.bytes.shrink_to(BUSY_KEEP);
        }
    }

    /// Notes that all bytes were sent. `may_keep`: whether so many bytes may be kept for the next answer.
    pub(super) fn sent(&mut self, may_keep: impl FnOnce(usize) -> bool) {
        let len = self.bytes.len();
        self.bytes.clear();
        self.start = 0;
        let capacity = self.bytes.capacity();
        self.had_large |= len > BUSY_KEEP;
        self.small_in_a_row = if len > BUSY_KEEP { 0 } else { self.small_in_a_row + 1 };
        let is_over = || capacity > KEEP_MAX || self.small_in_a_row >= SMALL_RUN;
        if capacity > BUSY_KEEP && (is_over() || !may_keep(capacity)) {
            self.shrink(BUSY_KEEP);
        }
    }

    /// Whether [`WriteBuffer::look`] would give memory back.
    pub(super) fn is_large(&self) -> bool {
        self.bytes.capacity() > IDLE_KEEP
    }

    /// Whether it has memory of which only so much is kept as there is room.
    pub(super) fn has_spare(&self) -> bool {
        self.bytes.capacity() > BUSY_KEEP
    }

    /// To be called each [`IDLE`]: frees memory of large answers where none has left since the last call, and of all
    /// answers where nothing has.
    pub(super) fn look(&mut self, was_busy: bool) {
        if !was_busy {
            self.shrink(IDLE_KEEP);
        } else if !self.had_large && self.has_spare() {
            self.shrink(BUSY_KEEP);
        }
        self.had_large = false;
    }

    fn shrink(&mut self, keep: usize) {
        // What has not left stays where it is.
        self.bytes.shrink_to(keep);
        self.small_in_a_row = 0;
    }
}

/// The least time without input and output before memory is freed.
pub(super) const IDLE: Duration = Duration::from_secs(1);
/// Kept by an idle connection.
const IDLE_KEEP: usize = 4 * 1024;
/// Room for gathered small answers: up to `WRITE_AT`, and one READ of 64 KiB more.
const BUSY_KEEP: usize = 256 * 1024;
/// An answer of 1 MiB, the READ of most clients, in memory that doubled when its last bytes were
/// appended.
const KEEP_MAX: usize = 5 << 19;
/// So many small answers in a row show that large answers are over.
const SMALL_RUN: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn send(buffer: &mut WriteBuffer, len: usize) {
        buffer.bytes().resize(len, 0);
        buffer.sent(|_| true);
        assert!(buffer.as_slice().is_empty());
    }

    #[test]
    fn the_memory_of_a_large_answer_is_freed_after_small_ones() {
        let mut buffer = WriteBuffer::default();
        send(&mut buffer, 1 << 20);
        for _ in 0..SMALL_RUN {
            send(&mut buffer, 500);
        }
        assert!(buffer.bytes.capacity() <= BUSY_KEEP);
    }

    #[test]
    fn an_idle_connection_keeps_little_memory() {
        let mut buffer = WriteBuffer::default();
        send(&mut buffer, 1 << 20);
        assert!(buffer.is_large());
        buffer.look(false);
        assert!(!buffer.is_large() && buffer.bytes.capacity() <= IDLE_KEEP);
    }

    #[test]
    fn the_memory_of_large_answers_is_kept_where_there_is_room_and_while_they_come() {
        let mut buffer = WriteBuffer::default();
        buffer.bytes().resize(1 << 20, 0);
        buffer.sent(|bytes| bytes < 1 << 20);
        assert!(!buffer.has_spare(), "there is no room");
        send(&mut buffer, 1 << 20);
        buffer.look(true);
        assert!(buffer.has_spare(), "one has left");
        send(&mut buffer, 500);
        buffer.look(true);
        assert!(!buffer.has_spare() && buffer.is_large(), "small ones left alone");
    }

    #[test]
    fn a_short_answer_that_waits_keeps_no_memory_of_a_long_one() {
        for (len, may_keep, has_spare) in
            [(8 << 20, true, false), (1 << 20, false, false), (1 << 20, true, true)]
        {
            let mut buffer = WriteBuffer::default();
            buffer.bytes().resize(len, 0);
            // It has failed.
            buffer.bytes().truncate(137);
            buffer.settle(|_| may_keep);
            assert_eq!((buffer.as_slice().len(), buffer.has_spare()), (137, has_spare), "{len}");
        }
    }

    #[test]
    fn answers_of_one_size_take_no_new_memory() {
        for len in [500, 64 * 1024, 200 * 1024, 1 << 20] {
            let mut buffer = WriteBuffer::default();
            send(&mut buffer, len);
            let first = buffer.bytes.as_ptr();
            for _ in 0..2 * SMALL_RUN {
                send(&mut buffer, len);
                assert_eq!(buffer.bytes.as_ptr(), first, "answers of {len} bytes");
            }
        }
    }

    #[test]
    fn an_answer_that_grows_after_its_bytes_takes_no_new_memory_either() {
        let mut buffer = WriteBuffer::default();
        let mut place = None;
        for _ in 0..20 {
            buffer.bytes().resize(84 + (1 << 20), 0);
            buffer.bytes().extend_from_slice(&[0; 8]);
            let now = buffer.bytes.as_ptr();
            assert_eq!(*place.get_or_insert(now), now);
            buffer.sent(|_| true);
        }
    }

    #[test]
    fn a_giant_answer_is_never_kept() {
        let mut buffer = WriteBuffer::default();
        send(&mut buffer, KEEP_MAX + 1);
        assert!(buffer.bytes.capacity() <= BUSY_KEEP);
    }
}
