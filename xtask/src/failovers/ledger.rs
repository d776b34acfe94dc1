//! What one writer has written, block by block, and what a read may therefore find.
//!
//! Each write of a block has a number. At most one write of a block is under way.
//!
//! ```text
//!   begun --> answered:  a read finds it or a later one, for ever
//!        \--> in doubt:  no answer came. A read may find it or not; if a read at another member does not find it, none will
//! ```

use std::collections::VecDeque;
use std::time::Instant;

/// Bytes of a block, which is written as a whole.
pub(super) const BLOCK: usize = 4096;

/// The blocks of one writer.
#[derive(Debug)]
pub(super) struct Ledger {
    writer: usize,
    began: Instant,
    blocks: Vec<Block>,
}

#[derive(Clone, Debug, Default)]
struct Block {
    /// The number of the newest write.
    begun: u64,
    /// The newest write that is known to be there: answered, or seen.
    known: u64,
    /// Later ones that may be there, each with the member to which it was sent.
    in_doubt: Vec<(u64, usize)>,
    /// What happened to it last.
    notes: VecDeque<Note>,
}

#[derive(Clone, Copy, Debug)]
struct Note {
    at_us: u128,
    what: &'static str,
    write: u64,
    member: usize,
}

impl Ledger {
    pub(super) fn new(writer: usize, blocks: usize, began: Instant) -> Self {
        Self { writer, began, blocks: vec![Block::default(); blocks] }
    }

    pub(super) const fn len(&self) -> usize {
        self.blocks.len()
    }

    /// A write begins, at a member: its bytes.
    pub(super) fn begin(&mut self, at: usize, member: usize, bytes: &mut [u8]) -> u64 {
        let write = self.blocks[at].begun + 1;
        self.blocks[at].begun = write;
        self.note(at, "begun", write, member);
        stamp(bytes, self.writer, at, write);
        write
    }

    /// The newest write of a block was answered.
    pub(super) fn answered(&mut self, at: usize, member: usize) {
        let block = &mut self.blocks[at];
        block.known = block.begun;
        block.in_doubt.clear();
        let write = block.begun;
        self.note(at, "answered", write, member);
    }

    /// The newest write of a block was not answered.
    pub(super) fn doubts(&mut self, at: usize, member: usize) {
        let write = self.blocks[at].begun;
        self.blocks[at].in_doubt.push((write, member));
        self.note(at, "in doubt", write, member);
    }

    /// The blocks that a read has to settle.
    pub(super) fn in_doubt(&self) -> Vec<usize> {
        (0..self.len()).filter(|at| !self.blocks[*at].in_doubt.is_empty()).collect()
    }

    /// Judges what a read of a block found, while no write of it is under way.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what happened to the block before.
    pub(super) fn judge(&mut self, at: usize, member: usize, found: &[u8]) -> Result<(), String> {
        let Some(write) = written(found, self.writer, at) else {
            return Err(self.wrong(at, member, "holds what nobody wrote as a whole", found));
        };
        let block = &mut self.blocks[at];
        let may_be = write == block.known || block.in_doubt.iter().any(|(it, _)| *it == write);
        if !may_be {
            let what = match write {
                _ if write < block.known => "has lost an answered write, or one that was seen",
                _ => "holds a write that was not there before",
            };
            return Err(self.wrong(at, member, what, found));
        }
        block.known = write;
        // Those that another member got are settled: they are nowhere.
        block.in_doubt.retain(|(it, sent_to)| *it > write && *sent_to == member);
        self.note(at, "found", write, member);
        Ok(())
    }

    fn note(&mut self, at: usize, what: &'static str, write: u64, member: usize) {
        let note = Note { at_us: self.began.elapsed().as_micros(), what, write, member };
        let notes = &mut self.blocks[at].notes;
        if notes.len() == NOTES {
            notes.pop_front();
        }
        notes.push_back(note);
    }

    fn wrong(&self, at: usize, member: usize, what: &str, found: &[u8]) -> String {
        let block = &self.blocks[at];
        let sectors: Vec<String> = found
            .chunks(512)
            .map(|sector| match sector.first_chunk::<8>() {
                Some(number) => format!("{:#x}", u64::from_le_bytes(*number)),
                None => "?".to_owned(),
            })
            .collect();
        let mut text = format!(
            "block {at} of writer {} {what}: read at member {member}, {} us; known {}, in doubt {:?}; \
             its sectors begin with {}",
            self.writer,
            self.began.elapsed().as_micros(),
            block.known,
            block.in_doubt,
            sectors.join(" "),
        );
        for note in &block.notes {
            let Note { at_us, what, write, member } = note;
            text.push_str(&format!("\n      {at_us} us: write {write} {what}, member {member}"));
        }
        text
    }
}

/// Fills a block: its first word is the write's number, all others depend on it, on the writer and on the block.
fn stamp(bytes: &mut [u8], writer: usize, at: usize, write: u64) {
    let place = u64::try_from(writer << 32 | at).unwrap_or(u64::MAX);
    let mut state = write.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place.rotate_left(17);
    for (number, word) in bytes.chunks_exact_mut(8).enumerate() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let value = if number == 0 { write } else { state };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// The number of the write whose bytes these are; 0 for a block that was never written.
fn written(found: &[u8], writer: usize, at: usize) -> Option<u64> {
    let write = u64::from_le_bytes(*found.first_chunk()?);
    let mut wanted = [0; BLOCK];
    if write > 0 {
        stamp(&mut wanted, writer, at, write);
    }
    (found == wanted).then_some(write)
}

/// Notes that are kept of a block.
const NOTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        Ledger::new(3, 2, Instant::now())
    }

    #[test]
    fn an_answered_write_has_to_be_found() {
        let mut ledger = ledger();
        let (mut first, mut second) = ([0; BLOCK], [0; BLOCK]);
        ledger.begin(1, 0, &mut first);
        ledger.answered(1, 0);
        ledger.judge(1, 0, &first).unwrap();
        ledger.begin(1, 0, &mut second);
        ledger.answered(1, 0);
        ledger.judge(1, 1, &second).unwrap();
        let lost = ledger.judge(1, 1, &first).unwrap_err();
        assert!(lost.contains("has lost"), "{lost}");
        assert!(lost.contains("write 2 answered"), "{lost}");
    }

    #[test]
    fn a_write_in_doubt_may_be_found_but_not_after_another_member_lacked_it() {
        let mut ledger = ledger();
        let (mut first, mut second) = ([0; BLOCK], [0; BLOCK]);
        ledger.begin(0, 0, &mut first);
        ledger.answered(0, 0);
        ledger.begin(0, 0, &mut second);
        ledger.doubts(0, 0);
        assert_eq!(ledger.in_doubt(), [0]);
        // At the member that got it, it may still come.
        ledger.judge(0, 0, &first).unwrap();
        assert_eq!(ledger.in_doubt(), [0]);
        ledger.judge(0, 1, &first).unwrap();
        let back = ledger.judge(0, 1, &second).unwrap_err();
        assert!(back.contains("was not there before"), "{back}");
    }

    #[test]
    fn a_write_in_doubt_that_was_found_stays() {
        let mut ledger = ledger();
        let (mut first, mut second) = ([0; BLOCK], [0; BLOCK]);
        ledger.begin(0, 0, &mut first);
        ledger.answered(0, 0);
        ledger.begin(0, 0, &mut second);
        ledger.doubts(0, 0);
        ledger.judge(0, 1, &second).unwrap();
        ledger.judge(0, 1, &first).unwrap_err();
    }

    #[test]
    fn a_block_of_two_writes_is_no_write() {
        let mut ledger = ledger();
        let (mut first, mut second) = ([0; BLOCK], [0; BLOCK]);
        for bytes in [&mut first, &mut second] {
            ledger.begin(0, 0, bytes);
            ledger.answered(0, 0);
        }
        second[512..1024].copy_from_slice(&first[512..1024]);
        let torn = ledger.judge(0, 0, &second).unwrap_err();
        assert!(torn.contains("as a whole"), "{torn}");
    }

    #[test]
    fn blocks_of_other_places_and_writers_are_told_apart() {
        let (mut one, mut other) = ([0; BLOCK], [0; BLOCK]);
        stamp(&mut one, 1, 0, 5);
        stamp(&mut other, 0, 1, 5);
        assert_eq!(written(&one, 1, 0), Some(5));
        assert_eq!(written(&one, 0, 1), None);
        assert_eq!(written(&other, 1, 0), None);
        assert_eq!(written(&[0; BLOCK], 7, 7), Some(0));
    }
}
