//! Reassembles the fragments of an SMB2 message, in one bounded buffer per connection.
//!
//! A message of one fragment stays in its receive buffer and is not copied. The reassembly buffer grows
//! with the bytes received, never with the announced length: an announcement alone costs no memory.
//!
//! Spec: MS-SMBD §3.1.5.8.

use crate::data_transfer::DataTransfer;
use crate::error::CloseReason;

/// The message being received.
#[derive(Debug)]
pub(crate) struct Reassembly {
    buffer: Vec<u8>,
    missing: u32,
    size_max: u32,
    was_used: bool,
    taken: u64,
}

impl Reassembly {
    /// An empty reassembly for messages of at most `size_max` bytes.
    pub(crate) fn new(size_max: u32) -> Self {
        Self { buffer: Vec::new(), missing: 0, size_max, was_used: false, taken: 0 }
    }

    /// Takes one fragment; returns the message after its last fragment.
    pub(crate) fn push<'a>(
        &'a mut self,
        header: &DataTransfer,
        payload: &'a [u8],
    ) -> Result<Option<&'a [u8]>, CloseReason> {
        if payload.is_empty() {
            // Credits and keepalives may travel between the fragments of a message.
            return Ok(None);
        }
        let total = payload.len() as u64 + u64::from(header.remaining);
        if self.missing == 0 {
            if total > u64::from(self.size_max) {
                return Err(CloseReason::PeerFragmentedTooLong { total, max: self.size_max });
            }
            if header.remaining == 0 {
                return Ok(Some(payload));
            }
            self.buffer.clear();
        } else if total != u64::from(self.missing) {
            let expected = self.missing;
            return Err(CloseReason::PeerFragmentMismatch { expected, claimed: total });
        }
        self.missing = header.remaining;
        self.was_used = true;
        self.taken += payload.len() as u64;
        self.append(payload);
        Ok((self.missing == 0).then_some(&self.buffer[..]))
    }

    /// Gives the buffer back to the allocator unless a message is half received.
    pub(crate) fn release(&mut self) {
        if self.missing == 0 {
            self.buffer = Vec::new();
        }
    }

    /// Whether the rest of a message is awaited.
    pub(crate) fn is_mid_message(&self) -> bool {
        self.missing > 0
    }

    /// Bytes of messages of several fragments that have come since the start.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes of its memory.
    pub(crate) fn bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Releases the buffer, if no fragment has come since the last call.
    pub(crate) fn release_idle(&mut self) {
        if !std::mem::take(&mut self.was_used) {
            self.release();
        }
    }

    /// Grows the buffer by doubling, but never beyond the length of the present message.
    fn append(&mut self, payload: &[u8]) {
        let need = self.buffer.len() + payload.len();
        if need > self.buffer.capacity() {
            let rest = usize::try_from(self.missing).unwrap_or(usize::MAX);
            let whole = need.saturating_add(rest);
            let want = need.max(self.buffer.capacity() * 2).min(whole);
            self.buffer.reserve_exact(want - self.buffer.len());
        }
        self.buffer.extend_from_slice(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(remaining: u32) -> DataTransfer {
        DataTransfer {
            credits_requested: 1,
            credits_granted: 0,
            response_requested: false,
            remaining,
        }
    }

    #[test]
    fn credits_and_padding_are_no_progress_of_a_half_message() {
        let mut reassembly = Reassembly::new(1000);
        assert!(reassembly.push(&fragment(900), &[7; 100]).unwrap().is_none());
        for _ in 0..10 {
            assert!(reassembly.push(&fragment(0), &[]).unwrap().is_none());
        }
        assert_eq!(reassembly.taken(), 100);
        assert!(reassembly.push(&fragment(899), &[7]).unwrap().is_none());
        assert_eq!(reassembly.taken(), 101);
    }

    #[test]
    fn a_message_of_one_fragment_is_not_copied() {
        let mut reassembly = Reassembly::new(100);
        let payload = [7; 100];
        let message = reassembly.push(&fragment(0), &payload).unwrap().unwrap();
        assert_eq!(message.as_ptr(), payload.as_ptr());
    }

    #[test]
    fn fragments_are_joined_in_order_and_the_buffer_is_reused() {
        let mut reassembly = Reassembly::new(100);
        for _ in 0..2 {
            assert_eq!(reassembly.push(&fragment(3), b"ab"), Ok(None));
            assert_eq!(reassembly.push(&fragment(0), b""), Ok(None), "only credits");
            assert_eq!(reassembly.push(&fragment(1), b"cd"), Ok(None));
            assert_eq!(reassembly.push(&fragment(0), b"e"), Ok(Some(&b"abcde"[..])));
        }
    }

    #[test]
    fn a_message_larger_than_agreed_is_refused_at_its_first_fragment() {
        let mut reassembly = Reassembly::new(100);
        let refused = |total| Err(CloseReason::PeerFragmentedTooLong { total, max: 100 });
        assert_eq!(reassembly.push(&fragment(99), b"ab"), refused(101));
        assert_eq!(reassembly.push(&fragment(u32::MAX), b"ab"), refused(4_294_967_297));
        assert_eq!(reassembly.push(&fragment(0), &[0; 101]), refused(101));
        assert_eq!(reassembly.push(&fragment(98), b"ab"), Ok(None));
    }

    #[test]
    fn a_fragment_that_does_not_continue_the_message_is_refused() {
        for (remaining, payload, claimed) in
            [(1, &b"c"[..], 2), (2, b"cd", 4), (0, b"cdef", 4), (0, b"c", 1)]
        {
            let mut reassembly = Reassembly::new(100);
            assert_eq!(reassembly.push(&fragment(3), b"ab"), Ok(None));
            let mismatch = CloseReason::PeerFragmentMismatch { expected: 3, claimed };
            assert_eq!(reassembly.push(&fragment(remaining), payload), Err(mismatch));
        }
    }

    #[test]
    fn memory_grows_with_received_bytes_and_not_with_announced_bytes() {
        let mut reassembly = Reassembly::new(1 << 20);
        reassembly.push(&fragment((1 << 20) - 64), &[0; 64]).unwrap();
        assert!(reassembly.buffer.capacity() <= 128);
        reassembly.release();
        assert_eq!(reassembly.buffer.len(), 64, "a half received message is kept");
    }

    #[test]
    fn the_buffer_doubles_when_it_is_full_and_not_before() {
        let mut reassembly = Reassembly::new(1 << 16);
        for fragments in 1..=64_u32 {
            reassembly.push(&fragment((64 - fragments) << 10), &[0; 1 << 10]).unwrap();
            let wanted = usize::try_from(fragments.next_power_of_two() << 10).unwrap();
            assert_eq!(reassembly.bytes(), wanted, "after {fragments} KiB of 64");
        }
    }
}
