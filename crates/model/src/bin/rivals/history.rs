//! What a holder has done, and what the file may hold after it.

use std::ops::Range;

use crate::plan::{BLOCK, BLOCKS, content, wide};

/// See the module.
#[derive(Debug)]
pub(crate) struct History {
    written: u64,
    blocks: Vec<Block>,
    pointer: Block,
    /// The latest write, if the call that made it has failed: the region need not know of it.
    failed: Option<u64>,
    /// The block that each published write is in.
    published: Vec<(u64, usize)>,
    /// The rival has the file: nobody else begins to write.
    pub(crate) is_taken: bool,
    /// A request of the holder was not answered: the server may still carry it out.
    pub(crate) is_uncertain: bool,
    /// Blocks that held their latest write when the rival had the file, and the pointer.
    whole: Vec<bool>,
    pub(crate) faults: Vec<String>,
    /// What was done, in order: to be read where there is a fault.
    pub(crate) done: Vec<String>,
}

/// The writes that a word of a block may be of.
#[derive(Clone, Debug)]
struct Block {
    certain: u64,
    later: Vec<u64>,
}

/// What a commit confirms: the writes so far of some blocks.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    blocks: Range<usize>,
    until: u64,
}

impl Block {
    fn latest(&self) -> u64 {
        self.later.last().copied().unwrap_or(self.certain)
    }

    fn confirm(&mut self, until: u64) {
        if let Some(latest) = self.later.iter().copied().filter(|number| *number <= until).max() {
            self.certain = self.certain.max(latest);
        }
        let certain = self.certain;
        self.later.retain(|number| *number > certain);
    }

    fn allows(&self, number: u64) -> bool {
        number == self.certain || self.later.contains(&number)
    }
}

impl History {
    /// Of a file whose blocks hold these writes for certain, and whose pointer names none.
    pub(crate) fn new(written: u64, numbers: &[u64]) -> Self {
        let certain = |number: &u64| Block { certain: *number, later: Vec::new() };
        Self {
            written,
            blocks: numbers.iter().map(certain).collect(),
            pointer: certain(&0),
            failed: None,
            published: Vec::new(),
            is_taken: false,
            is_uncertain: false,
            whole: Vec::new(),
            faults: Vec::new(),
            done: Vec::new(),
        }
    }

    /// The number of the latest write.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// A number for a write of somebody else.
    pub(crate) fn number(&mut self) -> u64 {
        self.written += 1;
        self.written
    }

    /// The number of a write of the holder that begins.
    pub(crate) fn writes(&mut self, blocks: Range<usize>) -> u64 {
        self.written += 1;
        self.done.push(format!("write {} to {blocks:?}", self.written));
        self.blocks[blocks].iter_mut().for_each(|block| block.later.push(self.written));
        self.written
    }

    /// The call that made the latest write has failed, and the holder makes no other.
    pub(crate) fn fails(&mut self) {
        self.done.push("the call fails".to_owned());
        self.failed = Some(self.written);
    }

    /// The pointer is about to name the latest write, which is in `block`.
    pub(crate) fn publishes(&mut self, block: usize) -> u64 {
        self.done.push(format!("publish {}", self.written));
        self.pointer.later.push(self.written);
        self.published.push((self.written, block));
        self.written
    }

    /// A commit of these blocks is submitted; index [`BLOCKS`] is the pointer.
    pub(crate) fn commits(&mut self, blocks: Range<usize>) -> Commit {
        self.done.push(format!("commit {blocks:?} until {}", self.written));
        Commit { blocks, until: self.written }
    }

    /// A commit was acknowledged.
    pub(crate) fn committed(&mut self, commit: &Commit) {
        self.done.push(format!("acknowledged: {commit:?}"));
        for index in commit.blocks.clone() {
            let block = if index == BLOCKS { &mut self.pointer } else { &mut self.blocks[index] };
            let was_open = block.later.first().is_some_and(|number| *number <= commit.until);
            let is_latest = block.latest() <= commit.until;
            block.confirm(commit.until);
            // Too late to have happened since: the rival has looked already.
            if self.is_taken && was_open && is_latest && !self.whole[index] {
                self.faults.push(format!(
                    "a commit of block {index} is acknowledged whose bytes were not there when the lease was given away"
                ));
            }
        }
    }

    /// The holder has read a block of its own.
    pub(crate) fn read(&mut self, block: usize, seen: &[u8]) {
        let latest = self.blocks[block].latest();
        if seen != content(latest, block) {
            let first = seen.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            let fault = format!(
                "the holder read {first:#x} at the front of block {block}, write {latest} expected"
            );
            self.faults.push(fault);
        }
    }

    /// The rival has the file, and this is what it holds.
    pub(crate) fn taken(&mut self, region: &[u8]) {
        self.done.push("the rival has the file".to_owned());
        self.is_taken = true;
        let pointer =
            region[BLOCKS * BLOCK..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        if !self.pointer.allows(pointer) {
            let fault = format!("the pointer names write {pointer}: {:?}", self.pointer);
            self.faults.push(fault);
        }
        if let Some((number, block)) = self.published.iter().find(|(number, _)| *number == pointer)
        {
            self.blocks[*block].confirm(*number);
        }
        for (index, block) in self.blocks.iter().enumerate() {
            let bytes = &region[index * BLOCK..][..BLOCK];
            self.whole.push(bytes == content(block.latest(), index));
            let odd = bytes.chunks_exact(8).enumerate().find(|(at, word)| {
                let word = word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                word & 0xffff != wide(index) << 8 | wide(*at) || !block.allows(word >> 16)
            });
            if let Some((at, word)) = odd {
                self.faults.push(format!(
                    "block {index} holds {word:02x?} at word {at} when its lease was given away: {block:?}"
                ));
            }
        }
        self.whole.push(pointer == self.pointer.latest());
    }

    /// The region broke, and named these bytes as not confirmed.
    pub(crate) fn broke(&mut self, lost: &[Range<u64>]) {
        for index in 0..BLOCKS {
            let (start, end) = (wide(index * BLOCK), wide((index + 1) * BLOCK));
            let is_named = lost.iter().any(|range| range.start <= start && end <= range.end);
            let block = &self.blocks[index];
            if !self.whole[index] && !is_named && self.failed != Some(block.latest()) {
                self.faults.push(format!(
                    "the region broke without naming block {index}, which has not come whole: {block:?}, {lost:?}"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(numbers: &[u64]) -> Vec<u8> {
        let blocks = numbers.iter().enumerate();
        let mut bytes: Vec<u8> = blocks.flat_map(|(at, number)| content(*number, at)).collect();
        bytes.resize(bytes.len() + BLOCK, 0);
        bytes
    }

    #[test]
    fn a_file_without_an_acknowledged_write_is_a_fault() {
        let mut numbers = vec![1; BLOCKS];
        let mut history = History::new(1, &numbers);
        let number = history.writes(2..4);
        let commit = history.commits(2..3);
        history.committed(&commit);
        numbers[3] = number;
        history.taken(&file(&numbers));
        assert_eq!(history.faults.len(), 1, "{:?}", history.faults);
        assert!(history.faults[0].starts_with("block 2 "), "{:?}", history.faults);
    }

    #[test]
    fn a_write_without_commit_may_be_there_or_not() {
        for is_there in [false, true] {
            let mut numbers = vec![1; BLOCKS];
            let mut history = History::new(1, &numbers);
            let number = history.writes(0..1);
            numbers[0] = if is_there { number } else { 1 };
            history.taken(&file(&numbers));
            assert!(history.faults.is_empty(), "{:?}", history.faults);
            let late = history.commits(0..BLOCKS);
            history.committed(&late);
            assert_eq!(history.faults.is_empty(), is_there, "{:?}", history.faults);
        }
    }

    #[test]
    fn a_pointer_to_a_write_that_is_not_there_is_a_fault() {
        let numbers = vec![1; BLOCKS];
        let mut history = History::new(1, &numbers);
        history.writes(5..6);
        let published = history.publishes(5);
        let mut seen = file(&numbers);
        seen[BLOCKS * BLOCK..][..8].copy_from_slice(&published.to_le_bytes());
        history.taken(&seen);
        assert_eq!(history.faults.len(), 1, "{:?}", history.faults);
        assert!(history.faults[0].starts_with("block 5 "), "{:?}", history.faults);
    }

    #[test]
    fn a_broken_region_that_names_no_lost_block_is_a_fault() {
        let numbers = vec![1; BLOCKS];
        let mut history = History::new(1, &numbers);
        history.writes(7..8);
        history.taken(&file(&numbers));
        history.broke(std::slice::from_ref(&(7 * 1024..8 * 1024)));
        assert!(history.faults.is_empty(), "{:?}", history.faults);
        history.broke(std::slice::from_ref(&(0..1024)));
        assert_eq!(history.faults.len(), 1, "{:?}", history.faults);
    }
}
