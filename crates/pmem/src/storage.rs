//! A medium on a disk file system: bytes go in by `pwrite`, never by a store.
//!
//! A store to a page that was written back since its last store costs about 11 µs on ext4 (the page
//! is write-protected and faults); a `pwrite` costs no fault, and reports a full disk as an error
//! instead of a signal. A placement or a persist may always wait (ext4 answers buffered
//! RWF_NOWAIT writes with EOPNOTSUPP), so their `try_` forms leave the work to the plain forms; a read
//! of the page cache need not wait, with `preadv2(RWF_NOWAIT)`.
//!
//! Spec: preadv2(2), fdatasync(2), pwrite(2).

use std::io;
use std::sync::Arc;

use crate::commit_group::{CommitGroup, Extent, Group, SyncTarget};
use crate::medium::{check_bounds, check_word, length_of};
use crate::{AtomicOp, Backing, DurabilityClass, Medium, MediumError, StoreGranularity};

/// The operations on a file that this medium is made of.
///
/// In production the device is a file; the crash recorder is another implementation, so that crash
/// images come from the code below.
pub(crate) trait Device: Send + Sync + std::fmt::Debug {
    type Target: SyncTarget;
    fn group(&self) -> &Group<Self::Target>;
    /// Persists and remembers a failure for the whole process; by default only the group remembers it.
    fn persist(&self) -> Result<(), MediumError> {
        self.group().persist(Extent::Bytes)
    }
    /// See [`Medium::backing`].
    fn backing(&self) -> Option<Backing> {
        None
    }
    /// Present length, which other processes may change.
    fn len(&self) -> io::Result<u64>;
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize>;
    /// As `read_at`, but fails or returns fewer bytes rather than wait.
    fn read_at_once(&self, offset: u64, out: &mut [u8]) -> io::Result<usize>;
    /// Asks for the range to be read ahead.
    fn read_ahead(&self, offset: u64, len: u64) -> io::Result<()>;
}

/// The [`Medium`] over any [`Device`].
#[derive(Debug)]
pub(crate) struct StorageMedium<D> {
    device: D,
    len: u64,
    writable: bool,
}

impl<D: Device> StorageMedium<D> {
    pub(crate) fn new(device: D, len: u64, writable: bool) -> Self {
        Self { device, len, writable }
    }

    fn check_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        check_bounds(offset, length_of(bytes), self.len)?;
        self.check_writable()
    }

    fn check_atomic(&self, offset: u64) -> Result<(), MediumError> {
        check_word(offset, self.len)?;
        self.check_writable()
    }

    fn check_writable(&self) -> Result<(), MediumError> {
        if self.writable { Ok(()) } else { Err(MediumError::ReadOnly) }
    }

    /// Refuses a `pwrite` past the end, which would make a shrunken file longer again. A process
    /// that shrinks the file between this check and the write still gets a longer file: only a
    /// mapping could prevent that. The server recalls its regions before it truncates.
    fn check_not_shrunk(&self, end: u64) -> Result<(), MediumError> {
        if self.device.len().map_err(media_error)? < end {
            return Err(MediumError::Truncated);
        }
        Ok(())
    }

    fn write_all(&self, mut offset: u64, mut bytes: &[u8]) -> Result<(), MediumError> {
        while !bytes.is_empty() {
            match self.device.write_at(offset, bytes) {
                Ok(0) => return Err(MediumError::MediaIo(libc::ENOSPC)),
                Ok(written) => {
                    bytes = &bytes[written..];
                    offset += length_of_count(written);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(media_error(error)),
            }
        }
        Ok(())
    }
}

impl<D: Device> Medium for StorageMedium<D> {
    fn class(&self) -> DurabilityClass {
        DurabilityClass::Storage
    }

    fn store_granularity(&self) -> StoreGranularity {
        StoreGranularity::Page
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn backing(&self) -> Option<Backing> {
        self.device.backing()
    }

    fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.check_place(offset, bytes)?;
        if bytes.is_empty() { Ok(()) } else { Err(MediumError::WouldBlock) }
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        check_bounds(offset, length_of(out), self.len)?;
        if out.is_empty() {
            return Ok(());
        }
        match self.device.read_at_once(offset, out) {
            Ok(count) if count == out.len() => Ok(()),
            // The rest is not cached, or the file ends here: the waiting form tells which.
            Ok(_) => Err(MediumError::WouldBlock),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EOPNOTSUPP | libc::EINTR) => Err(MediumError::WouldBlock),
                _ => Err(media_error(error)),
            },
        }
    }

    fn try_persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        check_bounds(offset, len, self.len)?;
        match self.device.group().is_poisoned() {
            true => Err(MediumError::Poisoned),
            false => Err(MediumError::WouldBlock),
        }
    }

    fn try_atomic(&self, offset: u64, _op: AtomicOp) -> Result<u64, MediumError> {
        self.check_atomic(offset)?;
        Err(MediumError::WouldBlock)
    }

    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.check_place(offset, bytes)?;
        self.check_not_shrunk(offset + length_of(bytes))?;
        self.write_all(offset, bytes)
    }

    fn read(&self, mut offset: u64, mut out: &mut [u8]) -> Result<(), MediumError> {
        check_bounds(offset, length_of(out), self.len)?;
        while !out.is_empty() {
            match self.device.read_at(offset, out) {
                Ok(0) => return Err(MediumError::Truncated),
                Ok(count) => {
                    out = &mut out[count..];
                    offset += length_of_count(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(media_error(error)),
            }
        }
        Ok(())
    }

    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        check_bounds(offset, len, self.len)?;
        self.device.persist()
    }

    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.check_atomic(offset)?;
        let _turn = self.device.group().atomics();
        let mut word = [0; 8];
        self.read(offset, &mut word)?;
        let previous = native_word(word);
        if let Some(next) = op.apply(previous) {
            self.check_not_shrunk(offset + AtomicOp::LEN)?;
            self.write_all(offset, &native_bytes(next))?;
        }
        Ok(previous)
    }

    fn prepare(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        check_bounds(offset, len, self.len)?;
        self.device.read_ahead(offset, len).map_err(media_error)
    }
}

/// A file, reached by system calls.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) file: std::fs::File,
    pub(crate) group: CommitGroup,
}

impl Device for Disk {
    type Target = crate::commit_group::SyncedFile;

    fn group(&self) -> &Group<Self::Target> {
        self.group.group()
    }

    fn persist(&self) -> Result<(), MediumError> {
        self.group.persist()
    }

    fn backing(&self) -> Option<Backing> {
        Some(self.group.backing())
    }

    fn len(&self) -> io::Result<u64> {
        let size = rustix::fs::fstat(&self.file)?.st_size;
        Ok(u64::try_from(size).expect("a file's size is not negative"))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::pwrite(&self.file, bytes, offset)?)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::pread(&self.file, out, offset)?)
    }

    fn read_at_once(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let mut parts = [io::IoSliceMut::new(out)];
        let flags = rustix::io::ReadWriteFlags::NOWAIT;
        Ok(rustix::io::preadv2(&self.file, &mut parts, offset, flags)?)
    }

    fn read_ahead(&self, offset: u64, len: u64) -> io::Result<()> {
        // A length of zero would mean: to the end of the file.
        let Some(len) = std::num::NonZeroU64::new(len) else { return Ok(()) };
        Ok(rustix::fs::fadvise(&self.file, offset, Some(len), rustix::fs::Advice::WillNeed)?)
    }
}

/// Words are native-endian, as the CPU's own atomic operations on a mapping are.
#[expect(clippy::host_endian_bytes, reason = "a word in memory, not on a wire")]
pub(crate) fn native_word(bytes: [u8; 8]) -> u64 {
    u64::from_ne_bytes(bytes)
}

#[expect(clippy::host_endian_bytes, reason = "a word in memory, not on a wire")]
pub(crate) fn native_bytes(word: u64) -> [u8; 8] {
    word.to_ne_bytes()
}

fn length_of_count(count: usize) -> u64 {
    u64::try_from(count).expect("no supported machine has more than 64 address bits")
}

fn media_error(error: io::Error) -> MediumError {
    MediumError::MediaIo(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Opens a file as a storage medium.
pub(crate) fn open(file: std::fs::File, len: u64, writable: bool) -> io::Result<Arc<dyn Medium>> {
    let group = CommitGroup::of(&file)?;
    Ok(Arc::new(StorageMedium::new(Disk { file, group }, len, writable)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A full disk that also fails to flush, and is interrupted before every second access.
    #[derive(Debug)]
    struct Broken {
        group: Group<Flush>,
        room: u64,
        accesses: AtomicU64,
    }

    impl Broken {
        fn interrupted(&self) -> io::Result<()> {
            let is_even = self.accesses.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
            if is_even { Err(io::Error::from_raw_os_error(libc::EINTR)) } else { Ok(()) }
        }
    }

    #[derive(Debug)]
    struct Flush;

    impl SyncTarget for Flush {
        fn sync(&self, _extent: Extent) -> io::Result<()> {
            Err(io::Error::from_raw_os_error(libc::EIO))
        }
    }

    impl Device for Broken {
        type Target = Flush;

        fn group(&self) -> &Group<Flush> {
            &self.group
        }

        fn len(&self) -> io::Result<u64> {
            Ok(64)
        }

        /// Writes two bytes at a time, as a device may, until there is no room.
        fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
            self.interrupted()?;
            let count = bytes.len().min(2);
            if offset < self.room {
                Ok(count)
            } else {
                Err(io::Error::from_raw_os_error(libc::ENOSPC))
            }
        }

        /// Reads two bytes at a time, each of which says where it is.
        fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
            self.interrupted()?;
            if offset >= 60 {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            let count = out.len().min(2);
            (offset..)
                .zip(&mut out[..count])
                .for_each(|(at, byte)| *byte = u8::try_from(at).unwrap());
            Ok(count)
        }

        fn read_at_once(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
            match offset {
                0 => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
                8 => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
                16 => Err(io::Error::from_raw_os_error(libc::EIO)),
                _ => Ok(out.len() - 1),
            }
        }

        fn read_ahead(&self, _offset: u64, _len: u64) -> io::Result<()> {
            Ok(())
        }
    }

    fn broken() -> StorageMedium<Broken> {
        StorageMedium::new(
            Broken { group: Group::new(Flush), room: 8, accesses: AtomicU64::new(0) },
            64,
            true,
        )
    }

    #[test]
    fn a_failed_flush_is_never_retried_into_success() {
        let medium = broken();
        assert_eq!(medium.try_persist(0, 1), Err(MediumError::WouldBlock));
        assert_eq!(medium.persist(0, 1), Err(MediumError::Poisoned));
        assert_eq!(medium.persist(0, 1), Err(MediumError::Poisoned));
        assert_eq!(medium.try_persist(0, 1), Err(MediumError::Poisoned));
    }

    #[test]
    fn short_writes_and_reads_go_on_where_they_stopped() {
        let medium = broken();
        assert_eq!(medium.place(0, &[1; 8]), Ok(()));
        assert_eq!(medium.place(0, &[1; 9]), Err(MediumError::MediaIo(libc::ENOSPC)));
        let mut out = [0; 5];
        assert_eq!(medium.read(3, &mut out), Ok(()));
        assert_eq!(out, [3, 4, 5, 6, 7]);
        assert_eq!(medium.read(58, &mut out), Err(MediumError::MediaIo(libc::EIO)));
        assert_eq!(medium.len(), 64);
    }

    // The kernel flushes no /dev/zero: EINVAL.
    #[test]
    #[cfg_attr(miri, ignore = "a real file")]
    fn a_persist_of_a_file_is_a_flush_of_the_file() {
        let file = std::fs::File::open("/dev/zero").unwrap();
        let group = CommitGroup::of(&file).unwrap();
        assert_eq!(Disk { file, group }.persist(), Err(MediumError::Poisoned));
    }

    #[test]
    fn a_read_that_would_wait_is_left_to_the_waiting_form() {
        let medium = broken();
        let mut out = [0; 4];
        for offset in [0, 8, 24] {
            assert_eq!(medium.try_read(offset, &mut out), Err(MediumError::WouldBlock));
        }
        assert_eq!(medium.try_read(16, &mut out), Err(MediumError::MediaIo(libc::EIO)));
    }
}
