//! Room for records: a log whose disk is full refuses what would make it longer, and goes on.
//!
//! Blocks are reserved a piece at a time, before the records that need them are written. The last
//! [`KEPT`] bytes are for records that give something back: whoever holds a lock on a full disk can release it. A file system that
//! reserves nothing tells of a full disk when the record is written; what the file got of it then is cut off.

use std::fs::File;
use std::io;
use std::io::Seek as _;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// What a record is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum For {
    /// It records something more.
    More,
    /// It gives something back: a lock, an open, or a file that is to go.
    Less,
}

/// The room of one file.
#[derive(Debug)]
pub(super) struct Room {
    /// Where its records end.
    end: u64,
    /// Blocks are reserved up to here; `None` where the file system reserves none.
    reserved: Option<u64>,
}

impl Room {
    /// Of a file that has its first records.
    pub(super) fn of(end: u64, file: &File) -> Self {
        let mut room = Self { end, reserved: Some(end) };
        // A disk that is full now may have room when the first record comes.
        let _ = room.reserve(file, KEPT);
        room
    }

    /// Where its records end.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Makes room for one more record of so many bytes.
    ///
    /// # Errors
    ///
    /// The disk is full; nothing is written.
    pub(super) fn make(&mut self, file: &File, len: u64, purpose: For) -> io::Result<()> {
        let Some(reserved) = self.reserved else { return Ok(()) };
        let kept = if purpose == For::More { KEPT } else { 0 };
        if self.end + len + kept <= reserved {
            return Ok(());
        }
        match self.reserve(file, len + KEPT) {
            Err(error) if is_full(&error) && self.end + len + kept <= reserved => Ok(()),
            done => done,
        }
    }

    /// A record was written.
    pub(super) fn used(&mut self, len: u64) {
        self.end += len;
    }

    /// Cuts off what a full disk took of a record. `false`: that failed, and nobody knows where the file ends.
    pub(super) fn forget_tail(&mut self, file: &mut File) -> bool {
        // What was reserved behind the end goes with it.
        self.reserved = self.reserved.map(|_| self.end);
        file.set_len(self.end).is_ok() && file.seek(io::SeekFrom::Start(self.end)).is_ok()
    }

    fn reserve(&mut self, file: &File, more: u64) -> io::Result<()> {
        let Some(reserved) = self.reserved else { return Ok(()) };
        let until = (self.end + more).next_multiple_of(PIECE);
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, reserved, until - reserved) {
            Ok(()) => {
                self.reserved = Some(until);
                Ok(())
            }
            Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => Err(errno.into()),
            Err(_) => {
                self.reserved = None;
                Ok(())
            }
        }
    }
}

/// Whether a disk, or a quota of it, has no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Bytes that are reserved at once.
const PIECE: u64 = 256 << 10;
/// Bytes for records that give something back: some 1,000 of them.
const KEPT: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gives_back_has_room_where_nothing_more_is_recorded() {
        let file = tempfile::tempfile().unwrap();
        let mut room = Room { end: 100, reserved: Some(100 + KEPT) };
        room.make(&file, 1, For::Less).unwrap();
        assert_eq!(room.reserved, Some(100 + KEPT), "there is enough");
        room.make(&file, 1, For::More).unwrap();
        assert_eq!(room.reserved, Some(PIECE));
    }
}
