//! The disk below the programs' files: what was written and not flushed can be lost, in whole or in part.
//!
//! Files are on a file system in memory. Each write's bytes, and those that it replaces, are kept until a flush that
//! began after it has ended. A power failure takes all of them back and gives some of them again, sector by sector.
//!
//! A flush that fails has lost what it covers, and no later one finds it: kernels take such pages for written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::chance::Chance;

/// What of the disk a seed decides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wear {
    /// A flush of so many fails; 0 for none.
    pub(crate) error_one_in: u64,
    /// Nanoseconds that the slowest flush takes.
    pub(crate) slowest: u64,
    /// A request for room of so many finds the disk full, and so do all of the time behind it; 0 for none.
    pub(crate) full_one_in: u64,
    /// A write of so many takes its time, up to that of the slowest flush; 0 for none.
    pub(crate) slow_one_in: u64,
}

/// What is written and not flushed.
#[derive(Debug)]
pub(crate) struct Disk {
    files: BTreeMap<u64, Unflushed>,
    chance: Chance,
    pub(crate) wear: Wear,
    full_until: u64,
}

#[derive(Debug)]
struct Unflushed {
    file: File,
    // How many were made, and those that are not flushed.
    made: u64,
    writes: Vec<Write>,
}

#[derive(Debug)]
struct Write {
    number: u64,
    // A flush that covered it has failed.
    is_lost: bool,
    offset: u64,
    // Shorter than `after` where the file ended.
    before: Vec<u8>,
    after: Vec<u8>,
}

/// A flush under way: what it covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flush {
    inode: u64,
    covers: u64,
    pub(crate) failure: Option<i32>,
    pub(crate) takes: u64,
}

impl Disk {
    pub(crate) fn new(chance: Chance, wear: Wear) -> Self {
        Self { files: BTreeMap::new(), chance, wear, full_until: 0 }
    }

    /// Whether somebody who needs room now gets none.
    pub(crate) fn is_full(&mut self, now: u64) -> bool {
        let one_in = self.wear.full_one_in;
        if one_in == 0 {
            return false;
        }
        if now >= self.full_until && self.chance.happens(1, one_in) {
            self.full_until = now + self.chance.skewed(1, FULL_MAX);
        }
        now < self.full_until
    }

    /// How long a write takes, if that is long.
    pub(crate) fn slow_write(&self) -> Option<u64> {
        let Wear { slow_one_in, slowest, .. } = self.wear;
        let is_slow = slow_one_in > 0 && self.chance.happens(1, slow_one_in);
        is_slow.then(|| self.chance.skewed(20_000, slowest.max(20_000)))
    }

    /// A write is about to happen.
    pub(crate) fn writes(
        &mut self,
        inode: u64,
        file: &File,
        offset: u64,
        after: Vec<u8>,
    ) -> io::Result<()> {
        let mut before = vec![0; after.len()];
        let mut read = 0;
        while read < before.len() {
            match file.read_at(&mut before[read..], offset + read as u64)? {
                0 => break,
                more => read += more,
            }
        }
        before.truncate(read);
        let unflushed = match self.files.entry(inode) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(Unflushed { file: file.try_clone()?, made: 0, writes: Vec::new() })
            }
        };
        unflushed.made += 1;
        let number = unflushed.made;
        unflushed.writes.push(Write { number, is_lost: false, offset, before, after });
        Ok(())
    }

    /// A flush begins.
    pub(crate) fn begins_flush(&self, now: u64, inode: u64) -> Flush {
        let covers = self.files.get(&inode).map_or(0, |file| file.made);
        let Wear { error_one_in, slowest, .. } = self.wear;
        let fails = error_one_in > 0 && self.chance.happens(1, error_one_in);
        // File systems choose the place of a block when they flush it, and a full disk has none.
        let error = if now < self.full_until { libc::ENOSPC } else { libc::EIO };
        let failure = fails.then_some(error);
        let takes = self.chance.skewed(20_000, slowest.max(20_000));
        Flush { inode, covers, failure, takes }
    }

    /// A flush has ended. Where it went well, what was written before it began is durable.
    pub(crate) fn ends_flush(&mut self, flush: &Flush) {
        let Some(file) = self.files.get_mut(&flush.inode) else { return };
        let is_covered = |write: &Write| write.number <= flush.covers;
        if flush.failure.is_some() {
            file.writes.iter_mut().filter(|write| is_covered(write)).for_each(|write| {
                write.is_lost = true;
            });
            return;
        }
        let durable: Vec<_> = file
            .writes
            .extract_if(.., |write| is_covered(write) && !write.is_lost)
            .map(|write| (write.number, write.range()))
            .collect();
        // What was lost and is written again is there: the later bytes are.
        file.writes.retain(|write| {
            let (start, end) = write.range();
            let is_replaced = |(number, (from, to)): &(u64, (u64, u64))| {
                *number > write.number && *from < end && start < *to
            };
            !durable.iter().any(is_replaced)
        });
    }

    /// The power fails: of what is not flushed, any sectors survive.
    pub(crate) fn power_fails(&mut self) -> io::Result<()> {
        for Unflushed { file, writes, .. } in std::mem::take(&mut self.files).into_values() {
            for write in writes.iter().rev() {
                let len = file.metadata()?.len();
                let there = usize::try_from(len.saturating_sub(write.offset)).unwrap_or(0);
                file.write_all_at(&write.before[..write.before.len().min(there)], write.offset)?;
                if write.before.len() < write.after.len() && there > write.before.len() {
                    file.set_len(write.offset + write.before.len() as u64)?;
                }
            }
            for write in &writes {
                let mut offset = write.offset;
                let mut rest = write.after.as_slice();
                while !rest.is_empty() {
                    let sector = (SECTOR - offset % SECTOR).min(rest.len() as u64);
                    let (head, tail) = rest.split_at(usize::try_from(sector).unwrap_or(rest.len()));
                    if self.chance.happens(1, 2) {
                        file.write_all_at(head, offset)?;
                    }
                    (offset, rest) = (offset + sector, tail);
                }
            }
        }
        Ok(())
    }
}

impl Write {
    // Its first byte, and the one behind its last.
    fn range(&self) -> (u64, u64) {
        (self.offset, self.offset + self.after.len() as u64)
    }
}

/// The longest that a disk stays full.
const FULL_MAX: u64 = 500_000_000;

/// What a disk writes whole.
const SECTOR: u64 = 512;
