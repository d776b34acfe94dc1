//! A block device as the bytes of a file in a share.
//!
//! ```text
//!   READ, WRITE of any offset and length --> AnyAlignment --> BlockDevice, sector by sector
//!   FLUSH, write-through               --> flush
//!   SET_ZERO_DATA, FILE_LEVEL_TRIM     --> zeroes; trim
//!   QUERY_ALLOCATED_RANGES             --> status
//!   end of file                        --> the size of the device, for good
//!   push mode                          --> refused: the blocks of a sector move, and stores in memory would tear it
//! ```
//!
//! It stands here because it knows both sides: `tree` is below `block` and knows no devices, and `block` knows no share.
//!
//! Spec: ours; MS-FSA §2.1.5.9 for the controls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use block::{AnyAlignment, BlockDevice, BlockError, Extent, Geometry, State, Survives, Zeroing};
use pmem::DurabilityClass;
use rustix::io::Errno;
use tree::{Body, Flushes, InlineIo, MapRefusal, Mappable, ShareError, Span};

/// See the module.
#[derive(Debug)]
pub(crate) struct DeviceFile {
    /// Exchanged where the share becomes writable; requests under way keep it.
    device: RwLock<AnyAlignment<Arc<dyn BlockDevice>>>,
    /// Bytes may have been lost: no flush succeeds any more.
    is_poisoned: AtomicBool,
    /// When bytes were last changed, in nanoseconds since 1970. The file that stands for the device is not written to.
    written_ns: AtomicU64,
}

impl DeviceFile {
    /// The file of a device that nobody else serves.
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self {
            device: RwLock::new(AnyAlignment::new(device)),
            is_poisoned: AtomicBool::new(false),
            // Who served it before may have written to it: it counts as changed once more.
            written_ns: AtomicU64::new(now_ns()),
        }
    }

    /// Whether the device takes no writes.
    pub(super) fn is_read_only(&self) -> bool {
        self.device().geometry().is_read_only
    }

    /// Puts what `open` opens in place of the device, which is closed first: a volume is open once. Requests wait
    /// meanwhile. Where `open` fails, the device is what `back` opens; where that fails too, every request fails from then
    /// on.
    ///
    /// # Errors
    /// What `open` says.
    pub(super) fn exchange<E>(
        &self,
        open: impl FnOnce() -> Result<Arc<dyn BlockDevice>, E>,
        back: impl FnOnce() -> Result<Arc<dyn BlockDevice>, E>,
    ) -> Result<(), E> {
        let mut device = self.device.write().unwrap_or_else(PoisonError::into_inner);
        let closed = Arc::new(Closed(device.geometry())) as Arc<dyn BlockDevice>;
        *device = AnyAlignment::new(Arc::clone(&closed));
        let opened = open();
        let (in_place, outcome) = match opened {
            Ok(opened) => (opened, Ok(())),
            Err(error) => (back().unwrap_or(closed), Err(error)),
        };
        *device = AnyAlignment::new(in_place);
        outcome
    }

    fn device(&self) -> RwLockReadGuard<'_, AnyAlignment<Arc<dyn BlockDevice>>> {
        self.device.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn len(&self) -> u64 {
        self.device().geometry().size
    }

    // The time moves before the change and after it: a reader between two looks at the time sees one of both.
    fn change(
        &self,
        change: impl FnOnce(&AnyAlignment<Arc<dyn BlockDevice>>) -> Result<(), BlockError>,
    ) -> Result<(), ShareError> {
        self.written_ns.fetch_max(now_ns(), Ordering::AcqRel);
        let changed = change(&self.device()).map_err(error_of);
        self.written_ns.fetch_max(now_ns(), Ordering::AcqRel);
        changed
    }

    // The part of a span that lies in the device.
    fn within(&self, span: Span) -> Option<(u64, u64)> {
        let end = span.end.min(self.len());
        (span.start < end).then(|| (span.start, end - span.start))
    }
}

impl Body for DeviceFile {
    fn class(&self) -> DurabilityClass {
        self.device().geometry().class
    }

    // A flush of a device may wait whatever its class.
    fn inline_io(&self) -> InlineIo {
        InlineIo::CachedReads
    }

    fn size(&self) -> Result<u64, ShareError> {
        Ok(self.len())
    }

    fn last_write(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.written_ns.load(Ordering::Acquire)))
    }

    fn try_read_at(&self, out: &mut Vec<u8>, len: usize, offset: u64) -> Result<usize, ShareError> {
        // The guard goes before another one is taken.
        let may_wait = self.device().geometry().may_wait;
        match may_wait {
            true => Err(ShareError::WouldBlock),
            false => self.read_at(out, len, offset),
        }
    }

    fn read_at(&self, out: &mut Vec<u8>, len: usize, offset: u64) -> Result<usize, ShareError> {
        let left = self.len().saturating_sub(offset);
        let len = usize::try_from(left).map_or(len, |left| left.min(len));
        if len == 0 {
            return Ok(0);
        }
        let start = out.len();
        out.resize(start + len, 0);
        let read = self.device().read(offset, &mut out[start..]);
        read.inspect_err(|_| out.truncate(start)).map_err(error_of)?;
        Ok(len)
    }

    fn try_write_at(&self, bytes: &[u8], offset: u64) -> Result<(), ShareError> {
        // The guard goes before another one is taken.
        let may_wait = self.device().geometry().may_wait;
        match may_wait {
            true => Err(ShareError::WouldBlock),
            false => self.write_at(bytes, offset),
        }
    }

    /// Writes all of `bytes`, or nothing if they do not fit.
    ///
    /// # Durability
    ///
    /// A crash before the next flush leaves each sector old or new, where the device keeps sectors whole.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), ShareError> {
        self.change(|device| device.write(offset, bytes, Survives::Placed))
    }

    fn persist(&self, _flushes: &dyn Flushes) -> Result<(), ShareError> {
        if self.is_poisoned.load(Ordering::Acquire) {
            return Err(ShareError::MediaPoisoned);
        }
        self.device().flush().map_err(error_of).inspect_err(|_| {
            self.is_poisoned.store(true, Ordering::Release);
        })
    }

    fn poison(&self, _flushes: &dyn Flushes) {
        self.is_poisoned.store(true, Ordering::Release);
    }

    fn is_sparse(&self) -> bool {
        true
    }

    fn zero(&self, span: Span, is_sparse: bool) -> Result<(), ShareError> {
        let zeroing = if is_sparse { Zeroing::MayFree } else { Zeroing::KeepSpace };
        let Some((offset, len)) = self.within(span) else { return Ok(()) };
        self.change(|device| device.write_zeroes(offset, len, zeroing, Survives::Placed))
    }

    fn trim(&self, span: Span, _is_sparse: bool) -> Result<(), ShareError> {
        let Some((offset, len)) = self.within(span) else { return Ok(()) };
        self.change(|device| device.trim(offset, len, Survives::Placed))
    }

    // What is not looked at any more counts as bytes: a client that reads them finds what is there.
    fn allocated(&self, span: Span, count_max: usize) -> Result<(Vec<Span>, bool), ShareError> {
        let mut found: Vec<Span> = Vec::new();
        let Some((mut at, len)) = self.within(span) else { return Ok((found, false)) };
        let device = self.device();
        let end = at + len;
        let mut looks = 0;
        while at < end {
            let len = end - at;
            let (len, state) = match looks < LOOKS_MAX {
                true => {
                    let extent = device.status(at, len).map_err(error_of)?;
                    (extent.len.clamp(1, len), extent.state)
                }
                false => (len, State::Data),
            };
            looks += 1;
            if state == State::Data {
                let count = found.len();
                match found.last_mut() {
                    Some(last) if last.end == at => last.end = at + len,
                    _ if count == count_max => return Ok((found, true)),
                    _ => found.push(Span { start: at, end: at + len }),
                }
            }
            at += len;
        }
        Ok((found, false))
    }

    fn mappable(&self) -> Result<&dyn Mappable, MapRefusal> {
        Err(MapRefusal::SectorAtomic)
    }
}

/// What is left of a device that could not be opened again.
#[derive(Debug)]
struct Closed(Geometry);

impl BlockDevice for Closed {
    fn geometry(&self) -> Geometry {
        self.0
    }

    fn read(&self, _offset: u64, _out: &mut [u8]) -> Result<(), BlockError> {
        Err(CLOSED)
    }

    fn write(&self, _: u64, _: &[u8], _: Survives) -> Result<(), BlockError> {
        Err(CLOSED)
    }

    fn flush(&self) -> Result<(), BlockError> {
        Err(CLOSED)
    }

    fn write_zeroes(&self, _: u64, _: u64, _: Zeroing, _: Survives) -> Result<(), BlockError> {
        Err(CLOSED)
    }

    fn status(&self, _offset: u64, _len: u64) -> Result<Extent, BlockError> {
        Err(CLOSED)
    }

    fn resize(&self, _size: u64) -> Result<u64, BlockError> {
        Err(CLOSED)
    }
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

fn error_of(error: BlockError) -> ShareError {
    match error {
        BlockError::PeerBeyondEnd { .. } | BlockError::PeerUnaligned { .. } => {
            ShareError::PeerInvalid
        }
        // A device does not grow.
        BlockError::PeerNoRoom { .. } | BlockError::MediaFull => ShareError::DiskFull,
        BlockError::ConfigReadOnly => ShareError::ConfigReadOnly,
        BlockError::ConfigFixedSize => ShareError::Unsupported,
        BlockError::MediaPoisoned => ShareError::MediaPoisoned,
        BlockError::ConfigElsewhere
        | BlockError::ConfigVolatile
        | BlockError::MediaLost { .. }
        | BlockError::MediaDamaged { .. }
        | BlockError::MediaNotKept
        | BlockError::MediaIo(_)
        | BlockError::MediaTruncated => {
            ShareError::MediaIo(Errno::from_raw_os_error(error.errno()))
        }
    }
}

const CLOSED: BlockError = BlockError::MediaIo(Errno::NODEV.raw_os_error());
/// How often one request asks a device for the state of its blocks: each look is one seek, or a pass over some pages of
/// the map.
const LOOKS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::AtomicUsize;

    use block::FileDevice;

    use super::*;

    struct NoGroup;

    impl Flushes for NoGroup {
        fn group_of(
            &self,
            _file: std::os::fd::BorrowedFd<'_>,
        ) -> Result<&pmem::CommitGroup, ShareError> {
            panic!("a device is flushed by itself");
        }
    }

    fn file_device(len: u64) -> (tempfile::TempDir, DeviceFile) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        file.set_len(len).unwrap();
        let device = FileDevice::new(file).unwrap();
        (directory, DeviceFile::new(Arc::new(device)))
    }

    #[test]
    fn any_range_of_a_device_is_read_and_written_and_nothing_beyond_its_end() {
        let (_directory, body) = file_device(8192);
        body.write_at(b"across two sectors", 505).unwrap();
        body.persist(&NoGroup).unwrap();
        let mut out = b"before".to_vec();
        assert_eq!(body.read_at(&mut out, 18, 505), Ok(18));
        assert_eq!(out, *b"beforeacross two sectors");
        assert_eq!(body.write_at(&[1; 100], 8100), Err(ShareError::DiskFull));
        assert_eq!(body.write_at(&[1], u64::MAX), Err(ShareError::DiskFull));
        out.clear();
        assert_eq!(body.read_at(&mut out, 100, 8100), Ok(92));
        assert_eq!(out, [0; 92]);
        for offset in [8192, 8193, u64::MAX] {
            assert_eq!(body.read_at(&mut out, 1, offset), Ok(0));
        }
        assert_eq!(body.resize(1), Err(ShareError::Unsupported));
        assert!(matches!(body.mappable(), Err(MapRefusal::SectorAtomic)));
        assert!(body.kernel_file().is_none());
    }

    #[test]
    fn each_change_of_bytes_moves_the_time_of_the_last_write() {
        let (_directory, body) = file_device(1 << 20);
        let all = Span { start: 0, end: u64::MAX };
        let changes: [&dyn Fn() -> Result<(), ShareError>; 3] =
            [&|| body.write_at(b"x", 0), &|| body.zero(all, true), &|| body.trim(all, true)];
        for change in changes {
            let before = body.last_write().unwrap();
            change().unwrap();
            assert!(body.last_write().unwrap() > before);
            let after = body.last_write();
            body.persist(&NoGroup).unwrap();
            body.read_at(&mut Vec::new(), 10, 0).unwrap();
            assert_eq!(body.last_write(), after, "no change");
        }
    }

    #[test]
    fn zeroes_and_trimmed_ranges_read_as_zeroes_and_free_their_room() {
        let (_directory, body) = file_device(1 << 20);
        body.write_at(&[7; 1 << 20], 0).unwrap();
        let all = Span { start: 0, end: u64::MAX };
        assert_eq!(body.allocated(all, 8).unwrap(), (vec![Span { start: 0, end: 1 << 20 }], false));
        body.zero(Span { start: 100_000, end: 300_000 }, true).unwrap();
        body.trim(Span { start: 500_000, end: u64::MAX }, true).unwrap();
        body.trim(Span { start: 1 << 20, end: u64::MAX }, true).unwrap();
        let mut out = Vec::new();
        body.read_at(&mut out, 1 << 20, 0).unwrap();
        let is_zero = |at: usize| (100_000..300_000).contains(&at) || at >= 500_000;
        assert!(out.iter().enumerate().all(|(at, byte)| *byte == if is_zero(at) { 0 } else { 7 }));
        let (spans, is_more) = body.allocated(all, 8).unwrap();
        assert!(!is_more && spans.iter().map(|span| span.end - span.start).sum::<u64>() < 600_000);
        let (first, is_more) = body.allocated(all, 1).unwrap();
        assert_eq!((first.len(), is_more), (1, spans.len() > 1));
    }

    #[test]
    fn no_flush_of_a_device_succeeds_once_bytes_may_be_lost() {
        let (_directory, body) = file_device(4096);
        body.persist(&NoGroup).unwrap();
        body.poison(&NoGroup);
        assert_eq!(body.persist(&NoGroup), Err(ShareError::MediaPoisoned));
    }
    /// Blocks in turn that are bytes and holes.
    #[derive(Debug)]
    struct Fragments(AtomicUsize);

    impl BlockDevice for Fragments {
        fn geometry(&self) -> Geometry {
            Geometry {
                size: 1 << 40,
                block: 512,
                is_atomic: true,
                is_read_only: false,
                class: DurabilityClass::Pmem,
                may_wait: false,
            }
        }

        fn read(&self, _offset: u64, _out: &mut [u8]) -> Result<(), BlockError> {
            Ok(())
        }

        fn write(&self, _: u64, _: &[u8], _: Survives) -> Result<(), BlockError> {
            Ok(())
        }

        fn flush(&self) -> Result<(), BlockError> {
            Ok(())
        }

        fn write_zeroes(&self, _: u64, _: u64, _: Zeroing, _: Survives) -> Result<(), BlockError> {
            Ok(())
        }

        fn status(&self, offset: u64, len: u64) -> Result<Extent, BlockError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let state = if (offset / 512).is_multiple_of(2) { State::Data } else { State::Hole };
            Ok(Extent { len: len.min(512), state })
        }

        fn resize(&self, _size: u64) -> Result<u64, BlockError> {
            Err(BlockError::ConfigFixedSize)
        }
    }

    #[test]
    fn a_request_looks_at_a_bounded_number_of_extents() {
        let device = Arc::new(Fragments(AtomicUsize::new(0)));
        let body = DeviceFile::new(Arc::clone(&device) as Arc<dyn BlockDevice>);
        let (spans, is_more) = body.allocated(Span { start: 0, end: 1 << 40 }, usize::MAX).unwrap();
        assert_eq!((device.0.load(Ordering::Relaxed), is_more), (LOOKS_MAX, false));
        // The rest counts as bytes.
        assert_eq!(spans.last(), Some(&Span { start: LOOKS_MAX as u64 * 512, end: 1 << 40 }));
    }
}
