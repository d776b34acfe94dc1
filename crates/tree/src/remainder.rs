//! The rest of a READ's answer: bytes of a file in memory (tmpfs), read while the answer is sent.
//!
//! ```text
//!  whole:      read 1 MiB ----------------> send 1 MiB
//!  in pieces:  read, send, read, send, ...       each piece is still in the core's cache
//! ```
//!
//! The answer announces its length before the bytes are read, so files whose bytes may fail to
//! come, or take long, are read whole first. Bytes that are truncated meanwhile read as zeros, as
//! for a local program whose file is truncated while it reads.
//!
//! Measured (Linux 6.18, 1 MiB, plain): 7 % less time on tmpfs, nothing on ext4, whose pages are
//! found faster.

use std::sync::Arc;

use super::entry::Entry;
use super::error::ShareError;
use super::inline::InlineIo;

/// See the module.
#[derive(Debug)]
pub struct Remainder {
    entry: Arc<Entry>,
    offset: u64,
    len: usize,
}

impl Remainder {
    /// The bytes at `offset`, if the file is in memory.
    pub fn in_memory(entry: &Arc<Entry>, offset: u64, len: usize) -> Option<Self> {
        let is_in_memory = entry.inline_io() == InlineIo::Everything;
        is_in_memory.then(|| Self { entry: Arc::clone(entry), offset, len })
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.len
    }

    /// Appends the next bytes, `max` at most, without waiting.
    ///
    /// # Errors
    /// The error of the file. The answer cannot be finished then.
    pub fn try_read(&mut self, out: &mut Vec<u8>, max: usize) -> Result<(), ShareError> {
        let len = self.len.min(max);
        let got = self.entry.try_read_at(out, len, self.offset)?;
        out.resize(out.len() + len - got, 0);
        self.offset += len as u64;
        self.len -= len;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::given::MayAdd;
    use crate::{DosAttributes, Share, ShareConfig, SharePath};

    fn entry_in(directory: &str) -> (tempfile::TempDir, Arc<Entry>) {
        let dir = tempfile::tempdir_in(directory).unwrap();
        let share = Share::open(&ShareConfig::new("data", dir.path())).unwrap();
        let path = SharePath::parse("f").unwrap();
        let entry = share.create_file(MayAdd::TEST, &path, DosAttributes::default()).unwrap();
        (dir, Arc::new(entry))
    }

    #[test]
    fn bytes_truncated_during_a_read_are_zeros() {
        let (_dir, entry) = entry_in("/dev/shm");
        entry.write_at(&[7; 10_000], 0).unwrap();
        let mut rest = Remainder::in_memory(&entry, 1000, 9000).unwrap();
        let mut out = vec![1];
        rest.try_read(&mut out, 4000).unwrap();
        assert_eq!((rest.left(), out.len()), (5000, 4001));
        entry.set_size(6000).unwrap();
        rest.try_read(&mut out, usize::MAX).unwrap();
        assert_eq!((rest.left(), out.len()), (0, 9001));
        assert!(out[1..5001].iter().all(|byte| *byte == 7), "what was there");
        assert!(out[5001..].iter().all(|byte| *byte == 0), "what was lost");
    }

    #[test]
    fn files_on_a_disk_are_read_before_their_answer_is_sent() {
        let (_dir, entry) = entry_in("/var/tmp");
        assert!(Remainder::in_memory(&entry, 0, 1).is_none(), "/var/tmp is on a disk");
    }
}
