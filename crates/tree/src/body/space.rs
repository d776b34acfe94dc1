//! Whether a file system has room for what is to be reserved: fallocate(2) keeps what it had taken when it finds the
//! disk full, and nobody can give that back who does not know what others have written there meanwhile.

use std::ops::Range;
use std::os::fd::AsFd;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::extents;

/// Whether a range of the file can certainly not be reserved, since the file has too few blocks and its file system
/// too few to give.
pub(super) fn is_lacking(file: impl AsFd, range: Range<u64>) -> bool {
    let Ok(system) = rustix::fs::fstatvfs(&file) else { return false };
    let available = system.f_bavail.saturating_mul(system.f_frsize);
    // Without a bound of their own some file systems in memory say that they have no blocks at all.
    let is_bounded = system.f_blocks > 0;
    is_bounded && len(&range) > available && lack(file, &range) > available
}

// Bytes of the range that certainly have no blocks. Blocks of the file that nobody can place count as if they lay in the range:
// those that the file system has beside the extents it lists; where it lists none, those that were reserved and not written,
// and all blocks of a file of many pieces.
fn lack(file: impl AsFd, range: &Range<u64>) -> u64 {
    let Placed { within, everywhere } =
        listed(&file, range).or_else(|| written(&file, range)).unwrap_or_default();
    // Behind it: what is written meanwhile counts as if it lay in the range.
    let Ok(stat) = rustix::fs::fstat(file) else { return 0 };
    let allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK);
    let elsewhere = allocated.saturating_sub(everywhere);
    len(range).saturating_sub(within).saturating_sub(elsewhere)
}

/// Bytes of a file that have blocks at a known place.
#[derive(Clone, Copy, Debug, Default)]
struct Placed {
    within: u64,
    everywhere: u64,
}

impl Placed {
    fn add(&mut self, piece: Range<u64>, range: &Range<u64>) {
        self.everywhere += len(&piece);
        self.within += len(&(piece.start.max(range.start)..piece.end.min(range.end)));
    }
}

// Those in the extents that the file system lists, reserved ones among them. `None`: it lists none, or the extents are too many.
fn listed(file: impl AsFd, range: &Range<u64>) -> Option<Placed> {
    let mut placed = Placed::default();
    extents::for_each(file, |extent| placed.add(extent, range))?;
    Some(placed)
}

// Those that were written. `None`: in more pieces than are looked at, or it cannot be told. Nobody uses the position this moves.
fn written(file: impl AsFd, range: &Range<u64>) -> Option<Placed> {
    let mut found = Placed::default();
    let mut at = 0;
    for _ in 0..PIECES_MAX {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Nothing but a hole up to the end.
            Err(Errno::NXIO) => return Some(found),
            Err(_) => return None,
        };
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start)).ok()?;
        found.add(start..end, range);
        at = end;
    }
    None
}

fn len(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// What `st_blocks` counts in, in bytes.
const BLOCK: u64 = 512;
/// Pieces of a file that are looked at, one after the other; some milliseconds.
const PIECES_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use rustix::fs::FallocateFlags;

    use super::*;

    #[test]
    fn blocks_that_a_file_has_outside_of_a_range_do_not_count_for_it() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        let lack = |start: u64, end: u64| lack(&file, &(start << 20..end << 20));
        assert_eq!(lack(0, 4), 4 << 20);
        file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
        assert_eq!(lack(0, 1), 0);
        // A file system may need blocks to find the others by.
        let about = |lack: u64, expected: u64| lack <= expected && lack + (64 << 10) >= expected;
        assert!(about(lack(1, 4), 3 << 20), "{}", lack(1, 4));
        assert!(about(lack(0, 4), 3 << 20), "{}", lack(0, 4));
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 2 << 20, 2 << 20).unwrap();
        assert!(about(lack(1, 4), 1 << 20), "{}", lack(1, 4));
        assert_eq!(lack(2, 4), 0);
    }

    #[test]
    fn blocks_outside_of_a_range_do_not_count_for_it_however_many_pieces_a_file_has() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        let pieces = PIECES_MAX as u64 + 1;
        (0..pieces).for_each(|at| file.write_all_at(&[1; 4096], at * 8192).unwrap());
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 32 << 20, 8 << 20).unwrap();
        // A file system that lists no extents tells nobody.
        if listed(&file, &(0..0)).is_some() {
            let lack = lack(&file, &(64 << 20..80 << 20));
            // It may need blocks to find the others by.
            assert!(lack <= 16 << 20 && lack + (256 << 10) >= 16 << 20, "{lack}");
        }
    }

    #[test]
    fn a_range_longer_than_the_disk_is_refused_before_anything_is_taken() {
        let file = tempfile::tempfile().unwrap();
        assert!(is_lacking(&file, 0..u64::MAX));
        assert!(!is_lacking(&file, 0..1));
    }
}
