//! Bytes that have arrived and are not used yet.

/// A buffer that keeps its memory, initialised, for what arrives next.
#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// The bytes that have arrived.
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The first `count` bytes have been used.
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        // A long write is rare; its memory is not kept for the next, nor for the beginning of it.
        let unread = self.end - self.start;
        if self.bytes.len() > KEPT_MAX.max(2 * unread) {
            let mut bytes = Vec::new();
            if unread > 0 {
                bytes.resize(unread.max(LEN_MIN), 0);
                bytes[..unread].copy_from_slice(self.unread());
            }
            *self = Self { bytes, start: 0, end: unread };
        }
    }

    /// Room for bytes to come: enough for a message of `wanted` bytes that begins at the first unread byte.
    pub(super) fn room(&mut self, wanted: usize) -> &mut [u8] {
        let wanted = wanted.max(self.end - self.start + ROOM_MIN);
        if self.start + wanted > self.bytes.len() && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let len = (self.start + wanted).max(LEN_MIN);
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Room for `len` bytes that have been decrypted, behind those that have arrived.
    pub(super) fn room_behind(&mut self, len: usize) -> &mut [u8] {
        let wanted = self.end - self.start + len;
        &mut self.room(wanted)[..len]
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.bytes.len()
    }

    /// The first `count` bytes of the room have arrived.
    pub(super) fn arrived(&mut self, count: usize) {
        self.end += count;
    }
}

/// Bytes read at once at least.
const ROOM_MIN: usize = 4 << 10;
/// Bytes of the buffer: requests of 4 KiB arrive by dozens, those of 128 KiB whole.
const LEN_MIN: usize = 256 << 10;
/// Memory that an idle connection keeps.
const KEPT_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_in_the_order_they_arrived_however_they_are_cut() {
        let mut input = Input::default();
        let (mut sent, mut read) = (0_u8, 0_u8);
        for (arrive, use_) in [(5, 3), (100, 90), (0, 12), (250, 100), (3, 153)] {
            let room = input.room(8);
            for byte in &mut room[..arrive] {
                *byte = sent;
                sent = sent.wrapping_add(1);
            }
            input.arrived(arrive);
            for byte in &input.unread()[..use_] {
                assert_eq!(*byte, read);
                read = read.wrapping_add(1);
            }
            input.consume(use_);
        }
        assert_eq!(input.unread(), []);
    }

    #[test]
    fn bytes_behind_a_nearly_full_buffer_get_room() {
        let mut input = Input::default();
        input.room_behind(LEN_MIN - 100).fill(1);
        input.arrived(LEN_MIN - 100);
        input.room_behind(16 << 10).fill(2);
        input.arrived(16 << 10);
        assert_eq!(input.unread().len(), LEN_MIN - 100 + (16 << 10));
    }

    #[test]
    fn a_connection_that_has_begun_its_next_request_keeps_no_memory_of_a_long_write() {
        const LONG: usize = 31 << 20;
        for begun in [0, 1, 28, LEN_MIN, 1 << 20] {
            let mut input = Input::default();
            let room = input.room(LONG + begun);
            room[LONG..LONG + begun].fill(7);
            input.arrived(LONG + begun);
            input.consume(LONG);
            assert_eq!(input.unread(), vec![7; begun]);
            assert!(input.held() <= KEPT_MAX.max(2 * begun), "{} for {begun}", input.held());
        }
    }

    #[test]
    fn a_message_longer_than_the_buffer_gets_room() {
        let mut input = Input::default();
        input.room(28)[..28].fill(1);
        input.arrived(28);
        assert!(input.room(4 << 20).len() >= (4 << 20) - 28);
        assert_eq!(input.unread(), [1; 28]);
    }
}
