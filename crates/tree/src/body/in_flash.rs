//! A regular file of which a region is mapped lazily: its newest bytes are in memory of ours, not in the kernel's.
//!
//! Every operation on the bytes asks first whether the file is in flash ([`flash::find`]; one load while no file is).
//! Reads and writes of ranges then go through its pages: they find there what the clients of a region placed, and leave
//! there what these clients will read. Rejected: to write back before each and to let the kernel read and write, since an
//! engine can place in between, in a part of a page that the kernel is about to overwrite. A WRITE is in the file below
//! when it is answered, so that its client learns of a full disk. What only the kernel can do (a new length, holes, zeros)
//! it does while no page of the range is in memory and none comes in. A file does not become one in flash while the kernel
//! changes it ([`flash::to_change`]).

use std::os::fd::AsFd as _;

use flash::{Use, Way};
use rustix::io::Errno;

use super::Span;
use super::plain_file::PlainFile;
use crate::error::ShareError;

impl PlainFile {
    /// The pages of the file, if it is in flash.
    pub(super) fn in_flash(&self) -> Option<Use> {
        flash::find(self.fd.as_fd())
    }

    /// Appends bytes of the pages, up to the end of the file.
    pub(super) fn read_pages(
        &self,
        out: &mut Vec<u8>,
        (len, offset): (usize, u64),
        read: impl FnOnce(u64, &mut [u8]) -> Result<(), pmem::MediumError>,
    ) -> Result<usize, ShareError> {
        let left = self.file_size()?.saturating_sub(offset);
        let len = usize::try_from(left).map_or(len, |left| left.min(len));
        let start = out.len();
        out.resize(start + len, 0);
        match read(offset, &mut out[start..]) {
            Ok(()) => Ok(len),
            Err(error) => {
                out.truncate(start);
                Err(error.into())
            }
        }
    }

    /// Writes bytes into the pages and the file.
    pub(super) fn write_pages(
        &self,
        pages: &Use,
        bytes: &[u8],
        offset: u64,
    ) -> Result<(), ShareError> {
        let len = u64::try_from(bytes.len()).map_err(|_| ShareError::TooLarge)?;
        let end = offset.checked_add(len).filter(|end| *end <= i64::MAX.unsigned_abs());
        if end.is_none() {
            return Err(ShareError::PeerInvalid);
        }
        // A page that finds no room when it is written back is lost: so the room comes first.
        self.reserve_blocks(offset, len)?;
        pages.write_at(offset, bytes, |end| {
            Ok::<(), ShareError>(rustix::fs::ftruncate(&*self.fd, end)?)
        })
    }

    /// Lets the kernel change the file with none of these bytes in memory.
    pub(super) fn around<T>(
        &self,
        span: Span,
        change: impl FnOnce() -> Result<T, ShareError>,
    ) -> Result<T, ShareError> {
        match self.to_change()? {
            Some(Way::Pages(pages)) => {
                pages.around(span.start, span.end.saturating_sub(span.start), change)?
            }
            _by_kernel => change(),
        }
    }

    pub(super) fn file_size(&self) -> Result<u64, Errno> {
        let size = rustix::fs::fstat(&*self.fd)?.st_size;
        Ok(u64::try_from(size).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pmem::{DurabilityClass, Medium};

    use super::super::Span;
    use crate::rights::given::MayAdd;
    use crate::{DosAttributes, Entry, Residency, Share, ShareConfig, SharePath};

    const LEN: u64 = 4 << 20;

    /// A file of which a region is mapped lazily, with a budget below its length.
    fn rig() -> (tempfile::TempDir, Entry, Arc<dyn Medium>) {
        // A file system in memory is never mapped lazily.
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let config = ShareConfig {
            residency: Residency::Lazy,
            ..ShareConfig::new("data", directory.path())
        };
        let mut share = Share::open(&config).unwrap();
        share.keep_pages_in(&flash::Budget::new(1 << 20));
        let path = SharePath::parse("file").unwrap();
        let entry = share.create_file(MayAdd::TEST, &path, DosAttributes::ARCHIVE).unwrap();
        entry.write_at(b"before", 0).unwrap();
        entry.set_size(LEN).unwrap();
        let pages = share.pages_of(DurabilityClass::Storage, LEN).unwrap();
        let mappable = entry.body().unwrap().mappable().unwrap();
        let medium = mappable.map_lazily(0..LEN, pages).unwrap();
        assert!(mappable.is_mapped_lazily());
        (directory, entry, medium)
    }

    fn read(entry: &Entry, len: usize, offset: u64) -> Vec<u8> {
        let mut out = b"head".to_vec();
        let got = entry.read_at(&mut out, len, offset).unwrap();
        assert_eq!(out.len(), 4 + got);
        out.split_off(4)
    }

    #[test]
    fn reads_and_writes_of_a_file_meet_those_of_its_lazy_region() {
        let (directory, entry, medium) = rig();
        medium.place(3, b"placed").unwrap();
        assert_eq!(read(&entry, 9, 0), b"befplaced");
        entry.write_at(b"written", 4090).unwrap();
        let mut out = [0; 7];
        medium.read(4090, &mut out).unwrap();
        assert_eq!(&out, b"written");
        // A WRITE is in the file below; a placement is when it was persisted.
        let below = std::fs::read(directory.path().join("file")).unwrap();
        assert_eq!(&below[4090..4097], b"written");
        medium.persist(0, 100).unwrap();
        let below = std::fs::read(directory.path().join("file")).unwrap();
        assert_eq!(&below[..9], b"befplaced");
        assert_eq!(read(&entry, 100, LEN - 2).len(), 2, "the file ends there");
        assert!(read(&entry, 100, LEN + 7).is_empty());
    }

    #[test]
    fn a_file_grows_shrinks_and_is_zeroed_while_a_lazy_region_is_mapped() {
        let (_directory, entry, medium) = rig();
        entry.write_at(b"behind the end", LEN - 6).unwrap();
        assert_eq!(entry.data_size().unwrap(), LEN + 8);
        assert_eq!(read(&entry, 100, LEN - 6), b"behind the end");
        medium.place(8192, &[7; 8192]).unwrap();
        let zeroed = Span { start: 10_000, end: 12_000 };
        entry.body().unwrap().zero(zeroed, true).unwrap();
        let mut out = [9; 8192];
        medium.read(8192, &mut out).unwrap();
        let expected = |at: usize| if (1808..3808).contains(&at) { 0 } else { 7 };
        assert!(out.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
        let (found, _) = entry.body().unwrap().allocated(Span { start: 0, end: LEN }, 10).unwrap();
        assert!(found.iter().any(|span| span.start <= 8192 && span.end >= 16_384), "{found:?}");
        entry.set_size(9000).unwrap();
        medium.read(8192, &mut [0; 808]).unwrap();
        medium.read(9216, &mut [0; 8192]).unwrap_err();
        entry.set_size(LEN).unwrap();
        medium.read(8192, &mut out).unwrap();
        assert!(
            out[..808].iter().all(|byte| *byte == 7) && out[808..].iter().all(|byte| *byte == 0)
        );
    }
}
