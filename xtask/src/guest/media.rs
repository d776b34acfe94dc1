//! What is on the medium itself after the power was cut, before anything is mounted again.
//!
//! The stream of commits (`crates/model/src/bin/commit_stream.rs`) fills block `n % 256` with words
//! that name the write and their place:
//!
//! ```text
//!  63            16 15        0
//!  +---------------+-----------+
//!  | write, n      | word of   |    512 words a block; wherever the file system has put it, it is
//!  |               | the block |    found by what it says
//!  +---------------+-----------+
//! ```
//!
//! One more block begins with a pointer: the last write that was published, which must be there
//! whether or not its acknowledgement arrived.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read as _};
use std::path::Path;

use crate::failure::Failure;

/// What was found on a medium.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Found {
    /// The write that the pointer names, if the stream had one.
    pub(super) published: Option<u64>,
    /// Writes that should be there and are not.
    pub(super) missing: Vec<u64>,
}

impl Found {
    /// Everything was there, and the stream had a pointer.
    pub(super) fn sound(&self) -> Result<(), String> {
        match (self.missing.as_slice(), self.published) {
            ([], Some(_)) => Ok(()),
            ([], None) => Err("there is no pointer to what was published".to_owned()),
            ([first, ..], _) => {
                Err(format!("{} writes are not there, first {first}", self.missing.len()))
            }
        }
    }
}

/// Looks through the medium for each of the last writes that were acknowledged or published, or later
/// ones in their place.
pub(super) fn inspect(medium: &Path, acknowledged: u64, sent: u64) -> Result<Found, Failure> {
    let failed = || Failure::io("reading", medium);
    let mut reader = BufReader::with_capacity(1 << 20, File::open(medium).map_err(failed())?);
    let mut found: HashMap<u64, Vec<Page>> = HashMap::new();
    let mut published = None;
    let mut bytes = vec![0; BLOCK];
    loop {
        match reader.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(failed()(error)),
        }
        if let Some((block, page)) = Page::read(&bytes) {
            found.entry(block).or_default().push(page);
        }
        published = published.max(pointer(&bytes));
    }
    let last = acknowledged.max(published.unwrap_or(0));
    let wanted = last.saturating_sub(BLOCKS) + 1..=last;
    let is_there = |number: &u64| {
        let pages = found.get(&(number % BLOCKS)).into_iter().flatten();
        pages.clone().any(|page| *number <= page.first && page.last <= sent)
    };
    let missing = wanted.filter(|number| !is_there(number)).collect();
    Ok(Found { published, missing })
}

/// What a block points to, if it is the one that does.
fn pointer(bytes: &[u8]) -> Option<u64> {
    let (first, rest) = bytes.split_first_chunk()?;
    rest.chunks_exact(8).all(|word| word == POINTER_MARK).then(|| u64::from_le_bytes(*first))
}

/// The earliest and the latest write that left words in a block.
#[derive(Clone, Copy, Debug)]
struct Page {
    first: u64,
    last: u64,
}

impl Page {
    /// The block a page holds, if every word of it is of one.
    fn read(bytes: &[u8]) -> Option<(u64, Self)> {
        let mut page = Self { first: u64::MAX, last: 0 };
        let mut block = None;
        for (index, word) in (0..).zip(bytes.chunks_exact(8)) {
            let word = u64::from_le_bytes(word.try_into().ok()?);
            let number = word >> 16;
            if word & 0xffff != index
                || number == 0
                || *block.get_or_insert(number % BLOCKS) != number % BLOCKS
            {
                return None;
            }
            page.first = page.first.min(number);
            page.last = page.last.max(number);
        }
        Some((block?, page))
    }
}

const BLOCK: usize = 4096;
const BLOCKS: u64 = 256;
const POINTER_MARK: &[u8] = b"pointer!";

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u64) -> Vec<u8> {
        (0..512).flat_map(|index| (number << 16 | index).to_le_bytes()).collect()
    }

    #[test]
    fn a_write_is_found_wherever_it_lies_and_missed_where_it_is_not() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut medium = vec![7; 3 * BLOCK];
        // 300 is the last that was acknowledged: 45..=300 must be there, or what follows them.
        (45..=300).rev().for_each(|number| medium.extend(block(number)));
        let write = |file: &mut tempfile::NamedTempFile, medium: &[u8]| {
            use std::io::{Seek as _, Write as _};
            file.rewind().unwrap();
            file.write_all(medium).unwrap();
        };
        write(&mut file, &medium);
        let sound = Found::default();
        assert_eq!(inspect(file.path(), 300, 308).unwrap(), sound);
        // Half of 301, which was on its way, is in the place of 45.
        let at = medium.len() - BLOCK;
        medium[at..at + 2048].copy_from_slice(&block(301)[..2048]);
        write(&mut file, &medium);
        assert_eq!(inspect(file.path(), 300, 308).unwrap(), sound);
        assert_eq!(inspect(file.path(), 300, 300).unwrap().missing, [45], "nobody sent 301");
        // One word of 100 is older.
        let at = (3 + 200) * BLOCK;
        assert_eq!(medium[at + 2], 100);
        medium[at..at + 8].fill(0);
        write(&mut file, &medium);
        assert_eq!(inspect(file.path(), 300, 308).unwrap().missing, [100]);
    }

    #[test]
    fn a_write_that_is_pointed_to_must_be_there_though_nobody_heard_of_it() {
        let mut medium = [&301_u64.to_le_bytes()[..], &POINTER_MARK.repeat(511)].concat();
        (45..=300).for_each(|number| medium.extend(block(number)));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &medium).unwrap();
        let found = inspect(file.path(), 300, 308).unwrap();
        assert_eq!(found, Found { published: Some(301), missing: vec![301] });
    }
}
