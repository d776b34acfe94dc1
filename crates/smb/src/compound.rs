//! Several PDUs in one frame, chained by NextCommand.
//!
//! ```text
//!  0              next          next + next'
//!  +--------+----+--------+----+--------+------+
//!  | header |body| header |body| header | body |     every header 8-aligned in the frame;
//!  +--------+----+--------+----+--------+------+     padding belongs to the PDU before it
//!   next ---------^ next' ------^ 0
//! ```
//!
//! Spec: MS-SMB2 §2.2.1.2 (NextCommand), §3.2.4.1.4, §3.3.5.2.7.

use std::ops::Range;

use crate::header::Header;
use crate::parse_error::{Field, ParseError};
use crate::wire;

/// PDUs one frame may carry: as many as a connection has credits at most, since each costs one. Clients that
/// look at a whole directory chain three for each file in it.
pub const COMPOUND_PDUS_MAX: usize = 8_192;

/// The PDUs of a frame, in order, each from its header to the next one, padding included.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    frame: &'a [u8],
    next: Option<usize>,
    seen: usize,
}

/// Walks `frame`. After an error the walk is over.
pub fn walk(frame: &[u8]) -> Walk<'_> {
    Walk { frame, next: Some(0), seen: 0 }
}

impl<'a> Walk<'a> {
    fn step(&mut self, start: usize) -> Result<(Range<usize>, Header), ParseError> {
        let frame = self.frame;
        self.seen += 1;
        wire::limit(Field::Compound, self.seen, COMPOUND_PDUS_MAX)?;
        let pdu = frame.get(start..).unwrap_or_default();
        let header = Header::parse(pdu)?;
        let offset = header.next_command;
        if offset == 0 {
            return Ok((start..frame.len(), header));
        }
        if !offset.is_multiple_of(8) {
            return Err(ParseError::PeerAlignment { field: Field::Next, offset, align: 8 });
        }
        let len = usize::try_from(offset).unwrap_or(usize::MAX);
        // The next PDU must at least have room for its header.
        let room = len.checked_add(Header::LEN).is_some_and(|end| end <= pdu.len());
        if len < Header::LEN || !room {
            let got = pdu.len();
            return Err(ParseError::PeerOffset { field: Field::Next, offset, length: 64, got });
        }
        self.next = Some(start + len);
        Ok((start..start + len, header))
    }

    /// The bytes of a range this walk returned.
    pub fn pdu(&self, range: Range<usize>) -> &'a [u8] {
        &self.frame[range]
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<(Range<usize>, Header), ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.next.take()?;
        Some(self.step(start))
    }
}

/// Builds a frame of one or more PDUs at the end of a buffer.
///
/// Sign after [`CompoundWriter::finish`]: padding and NextCommand are part of what is signed.
#[derive(Debug)]
pub struct CompoundWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    pdus: Vec<usize>,
}

impl<'a> CompoundWriter<'a> {
    /// Starts a frame at the present end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        Self { out, start, pdus: Vec::new() }
    }

    /// Appends a PDU: emits `header`, then calls `body` to append the rest.
    pub fn push(&mut self, header: &Header, body: impl FnOnce(&mut Vec<u8>)) {
        if let Some(&last) = self.pdus.last() {
            wire::pad(self.out, self.start, 8);
            let next = wire::length32(self.out.len() - last);
            wire::patch_u32(self.out, last + NEXT_COMMAND, next);
        }
        self.pdus.push(self.out.len());
        Header { next_command: 0, ..*header }.emit(self.out);
        body(self.out);
    }

    /// Where each PDU lies in the buffer.
    pub fn finish(self) -> Vec<Range<usize>> {
        let ends = self.pdus.iter().skip(1).copied().chain([self.out.len()]);
        self.pdus.iter().zip(ends).map(|(&start, end)| start..end).collect()
    }
}

const NEXT_COMMAND: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use crate::header::MessageId;

    fn frame(bodies: &[usize]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = CompoundWriter::new(&mut out);
        for (id, &len) in (0..).zip(bodies) {
            let header = Header::request(Command::ECHO, MessageId(id));
            writer.push(&header, |out| out.resize(out.len() + len, 0xaa));
        }
        writer.finish();
        out
    }

    #[test]
    fn a_compound_is_split_into_the_pdus_it_was_built_from() {
        let frame = frame(&[4, 8, 3]);
        let walked: Vec<_> = walk(&frame).map(Result::unwrap).collect();
        let ranges: Vec<_> = walked.iter().map(|(range, _)| range.clone()).collect();
        assert_eq!(ranges, [0..72, 72..144, 144..211]);
        assert_eq!(walked[2].1.message_id, MessageId(2));
    }

    #[test]
    fn a_next_command_that_is_odd_small_or_beyond_the_frame_ends_the_walk() {
        for next in [1u32, 8, 63, 68, 80, 0xffff_fff8] {
            let mut bytes = frame(&[4, 4]);
            wire::patch_u32(&mut bytes, NEXT_COMMAND, next);
            let mut walk = walk(&bytes);
            assert!(walk.next().unwrap().is_err(), "{next}");
            assert!(walk.next().is_none());
        }
    }

    #[test]
    fn a_frame_of_too_many_pdus_is_refused_at_the_limit() {
        let bytes = frame(&[0; COMPOUND_PDUS_MAX + 1]);
        let results: Vec<_> = walk(&bytes).collect();
        assert_eq!(results.len(), COMPOUND_PDUS_MAX + 1);
        results[COMPOUND_PDUS_MAX].as_ref().unwrap_err();
    }
}
