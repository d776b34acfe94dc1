//! A device that can be written over another one, which stays as it is: what is written goes to a store, a sparse file.
//!
//! ```text
//!   read, write, trim -->  Overlay  <-- preserve(range), by whoever is about to change the base
//!                         /       \
//!          granule here? /         \ granule not here
//!                  store            base
//!   (4 KiB at its own offset)      (a volume that goes on changing)
//! ```
//!
//! An overlay shows its base as the base was when the overlay was made. Whoever changes the base afterwards first calls
//! [`Overlay::preserve`], which copies the present bytes into the store. Then a reader never meets the change:
//!
//! * A reader holds the lock of the granule's region, shared, while it reads the base. `preserve` holds the lock alone: it
//!   returns after the last reader that has decided for the base.
//! * A granule that has left [`Place::Base`] never goes back there. Readers that come after `preserve` read the store.
//!
//! So nobody needs a guard while the base changes. Writers of the overlay hold the lock alone as well: a part of a granule is
//! completed from the base under the lock under which it is then noted as stored.
//!
//! The store has a bound. A write of the overlay that finds no room is refused. A granule that cannot be kept ends the
//! overlay: each later request fails with [`BlockError::MediaNotKept`], and the base goes on.

mod states;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use block::{BlockDevice, BlockError, Extent, Geometry, State, Survives, Zeroing};
use pmem::DurabilityClass;
use rustix::fs::FallocateFlags;

use self::states::{GRANULES, Place, Regions};

/// A writable device over a base that stays as it is. Its changes end with it: nothing of it is durable, and its flush does
/// nothing.
#[derive(Debug)]
pub struct Overlay {
    base: Arc<dyn BlockDevice>,
    /// Bytes of the base that belong to the overlay: those behind came later.
    base_len: u64,
    block: u32,
    /// Bytes of a granule: [`GRANULE`], or a block of the base if that is longer.
    granule: u64,
    size: AtomicU64,
    store: File,
    bytes_max: u64,
    held: AtomicU64,
    ended: OnceLock<Ended>,
    /// Region `n` has the lock with number `n` modulo [`LOCKS`].
    locks: Box<[RwLock<Regions>]>,
}

/// Why an overlay shows nothing any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Ended {
    /// The bytes that have to be kept are more than the store may hold.
    #[error("more has changed than the {bytes_max} bytes of the store can keep")]
    ConfigOutgrown {
        /// The bound.
        bytes_max: u64,
    },
    /// The store cannot be written; the disk may be full.
    #[error("the store failed: {0}")]
    MediaStore(BlockError),
}

impl Overlay {
    /// An overlay over `base` whose changes go to `store`, an empty file that nobody else writes, up to `bytes_max` bytes.
    ///
    /// The store has to be on a file system that allows sparse files as long as the base.
    pub fn new(base: Arc<dyn BlockDevice>, store: File, bytes_max: u64) -> Self {
        let Geometry { size, block, .. } = base.geometry();
        Self {
            base,
            base_len: size,
            block,
            granule: GRANULE.max(u64::from(block)),
            size: AtomicU64::new(size),
            store,
            bytes_max,
            held: AtomicU64::new(0),
            ended: OnceLock::new(),
            locks: (0..LOCKS).map(|_| RwLock::default()).collect(),
        }
    }

    /// [`Overlay::new`] with a store in `directory` that has no name and goes with the overlay.
    ///
    /// # Errors
    ///
    /// The directory takes no file.
    pub fn unnamed(
        base: Arc<dyn BlockDevice>,
        directory: &Path,
        bytes_max: u64,
    ) -> io::Result<Self> {
        Ok(Self::new(base, tempfile::tempfile_in(directory)?, bytes_max))
    }

    /// Bytes that the store holds.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Why the overlay shows nothing any more; `None` while it does.
    pub fn ended(&self) -> Option<Ended> {
        self.ended.get().copied()
    }

    /// Ends the overlay at `size`, if it is longer: what lies behind in the base is none of it. It may grow again.
    pub fn end_at(&self, size: u64) {
        self.size.fetch_min(size, Ordering::AcqRel);
    }

    /// Keeps what the base has in the range now. The caller may change the range of the base once this has returned,
    /// whatever it returned.
    ///
    /// # Errors
    ///
    /// The bytes could not be kept, now or earlier: the overlay has ended.
    pub fn preserve(&self, offset: u64, len: u64) -> Result<(), Ended> {
        let end = offset.saturating_add(len).min(self.base_len);
        for (from, to) in self.parts(offset, end) {
            // An overlay that has ended takes the lock as well: a reader that came before the end may still read the base.
            let mut regions = self.alone(from);
            if self.ended().is_none() {
                self.preserve_part(&mut regions, from, to).unwrap_or_else(|ended| self.end(ended));
            }
        }
        self.ended().map_or(Ok(()), Err)
    }

    /// Writes `bytes` as a part of what the overlay is to show from the start; without room the overlay ends.
    ///
    /// # Errors
    ///
    /// As [`BlockDevice::write`]; [`BlockError::MediaNotKept`] if the overlay has ended.
    pub fn load(&self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.geometry().check_change(offset, bytes.len() as u64)?;
        self.or_end(self.write_all(offset, bytes))
    }

    /// [`Overlay::load`] of zeroes.
    ///
    /// # Errors
    ///
    /// As [`Overlay::load`].
    pub fn load_zeroes(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.geometry().check_change(offset, len)?;
        self.or_end(self.zero_all(offset, len))
    }

    fn or_end(&self, done: Result<(), Refused>) -> Result<(), BlockError> {
        done.map_err(|refused| {
            self.end(match refused {
                Refused::NoRoom => Ended::ConfigOutgrown { bytes_max: self.bytes_max },
                Refused::Device(error) => Ended::MediaStore(error),
            });
            BlockError::MediaNotKept
        })
    }

    /// Notes that the overlay shows nothing any more, and gives its space back.
    fn end(&self, ended: Ended) {
        if self.ended.set(ended).is_ok() {
            tracing::warn!(%ended, "an overlay has ended");
            // A reader under way finds the store short, and says what later ones say. A file that keeps its space
            // keeps it until the overlay is dropped.
            let _ = self.store.set_len(0);
        }
    }

    fn check_shown(&self) -> Result<(), BlockError> {
        self.ended().map_or(Ok(()), |_| Err(BlockError::MediaNotKept))
    }

    const fn region_len(&self) -> u64 {
        self.granule * GRANULES as u64
    }

    /// The range, cut at the edges of regions.
    fn parts(&self, offset: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let region = self.region_len();
        let mut at = offset;
        std::iter::from_fn(move || {
            let from = at;
            if from >= end {
                return None;
            }
            at = from.saturating_add(region - from % region).min(end);
            Some((from, at))
        })
    }

    fn lock_of(&self, offset: u64) -> &RwLock<Regions> {
        let number = usize::try_from(offset / self.region_len() % LOCKS as u64);
        &self.locks[number.expect("below LOCKS")]
    }

    fn share(&self, offset: u64) -> RwLockReadGuard<'_, Regions> {
        self.lock_of(offset).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self, offset: u64) -> RwLockWriteGuard<'_, Regions> {
        self.lock_of(offset).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a granule in its region.
    fn index_of(&self, offset: u64) -> usize {
        usize::try_from(offset % self.region_len() / self.granule).expect("below GRANULES")
    }

    /// The granules that `from..to`, a range of one region, touches: the first one's number, and how many.
    fn granules_of(&self, from: u64, to: u64) -> (usize, usize) {
        let first = self.index_of(from);
        (first, self.index_of(to - 1) - first + 1)
    }

    /// Takes room for `granules` in the store.
    fn reserve(&self, granules: usize) -> Result<(), Refused> {
        let wanted = granules as u64 * self.granule;
        let taken = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(wanted).filter(|held| *held <= self.bytes_max)
        });
        taken.map(drop).map_err(|_| Refused::NoRoom)
    }

    fn release(&self, granules: usize) {
        self.held.fetch_sub(granules as u64 * self.granule, Ordering::Relaxed);
    }

    /// Bytes of the base, and zeroes behind its end.
    fn read_base(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        let there = self.base_len.saturating_sub(offset).min(out.len() as u64);
        let (base, behind) = out.split_at_mut(index(there));
        behind.fill(0);
        match base {
            [] => Ok(()),
            _ => self.base.read(offset, base),
        }
    }

    fn read_part(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        let regions = self.share(offset);
        self.check_shown()?;
        let region = regions.region(offset / self.region_len());
        let end = offset + out.len() as u64;
        let mut at = offset;
        while at < end {
            let (first, count) = self.granules_of(at, end);
            let (place, run) = region.run(first, count);
            let until = (at - at % self.granule + run as u64 * self.granule).min(end);
            let part = &mut out[index(at - offset)..index(until - offset)];
            match place {
                Place::Base => self.read_base(at, part)?,
                Place::Store => {
                    self.store.read_exact_at(part, at).map_err(|error| failed(&error))?
                }
                Place::Zero => part.fill(0),
                Place::Lost => return Err(BlockError::MediaLost { offset: at }),
            }
            at = until;
        }
        // The end of an overlay cuts its store, and a writer under way may make the store long again: then holes were read.
        self.check_shown()
    }

    /// Completes the granule at `start` in the store, if it is not there.
    fn complete(&self, place: Place, start: u64) -> Result<(), BlockError> {
        let mut whole = vec![0; index(self.granule)];
        match place {
            Place::Store => return Ok(()),
            Place::Base => self.read_base(start, &mut whole)?,
            Place::Zero => {}
            Place::Lost => return Err(BlockError::MediaLost { offset: start }),
        }
        self.put(start, &whole)
    }

    fn put(&self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.store.write_all_at(bytes, offset).map_err(|error| failed(&error))
    }

    fn write_all(&self, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        for (from, to) in self.parts(offset, offset + bytes.len() as u64) {
            let part = &bytes[index(from - offset)..index(to - offset)];
            self.write_part(&mut self.alone(from), from, part)?;
        }
        Ok(())
    }

    fn zero_all(&self, offset: u64, len: u64) -> Result<(), Refused> {
        for (from, to) in self.parts(offset, offset + len) {
            let mut regions = self.alone(from);
            let (first, last) = (from.next_multiple_of(self.granule), to - to % self.granule);
            if first >= last {
                self.write_part(&mut regions, from, &vec![0; index(to - from)])?;
                continue;
            }
            for (from, to) in [(from, first), (last, to)] {
                if from < to {
                    self.write_part(&mut regions, from, &vec![0; index(to - from)])?;
                }
            }
            self.drop_part(&mut regions, first, last)?;
        }
        Ok(())
    }

    fn write_part(&self, regions: &mut Regions, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        self.check_shown()?;
        let end = offset + bytes.len() as u64;
        let (first, count) = self.granules_of(offset, end);
        let region = regions.region_mut(offset / self.region_len());
        let touched = first..first + count;
        let fresh = touched.clone().filter(|it| region.place(*it) != Place::Store).count();
        self.reserve(fresh)?;
        let write = || {
            let (head, tail) =
                (offset - offset % self.granule, (end - 1) - (end - 1) % self.granule);
            if offset != head || (end - head) < self.granule {
                self.complete(region.place(first), head)?;
            }
            if tail != head && !end.is_multiple_of(self.granule) {
                self.complete(region.place(first + count - 1), tail)?;
            }
            self.put(offset, bytes)
        };
        write().inspect_err(|_| self.release(fresh))?;
        touched.for_each(|it| region.set(it, Place::Store));
        Ok(())
    }

    /// Makes whole granules zeroes.
    fn drop_part(&self, regions: &mut Regions, from: u64, to: u64) -> Result<(), BlockError> {
        self.check_shown()?;
        let (first, count) = self.granules_of(from, to);
        let region = regions.region_mut(from / self.region_len());
        let touched = first..first + count;
        let stored = touched.clone().filter(|it| region.place(*it) == Place::Store).count();
        touched.for_each(|it| region.set(it, Place::Zero));
        if stored > 0 {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Where the file system cannot free the space, the next write of the granule uses it again.
            let _ = rustix::fs::fallocate(&self.store, how, from, to - from);
            self.release(stored);
        }
        Ok(())
    }

    fn preserve_part(&self, regions: &mut Regions, from: u64, to: u64) -> Result<(), Ended> {
        let (mut at, end) = self.around(from, to);
        let region_number = at / self.region_len();
        while at < end {
            let (first, count) = self.granules_of(at, end);
            let (place, run) = regions.region(region_number).run(first, count);
            let until = at + run as u64 * self.granule;
            if place == Place::Base {
                self.preserve_run(regions, at, until)?;
            }
            at = until;
        }
        Ok(())
    }

    /// The whole granules that hold a range.
    fn around(&self, from: u64, to: u64) -> (u64, u64) {
        (from - from % self.granule, to.next_multiple_of(self.granule))
    }

    /// Keeps granules that are in the base.
    fn preserve_run(&self, regions: &mut Regions, from: u64, to: u64) -> Result<(), Ended> {
        let region = regions.region_mut(from / self.region_len());
        let mut at = from;
        while at < to {
            let asked = to.min(self.base_len) - at;
            // A base that cannot tell is read.
            let extent = self.base.status(at, asked).ok();
            let zeroes = extent.filter(|it| it.state != State::Data).map_or(0, |it| it.len);
            // The granule in which the base ends is zeroes if the base's part of it is.
            let zeroes = if zeroes == asked { to - at } else { zeroes - zeroes % self.granule };
            let data = extent.map_or(asked, |it| it.len).next_multiple_of(self.granule);
            let (until, place) = match zeroes {
                0 => (at + data.min(to - at), Place::Store),
                _ => (at + zeroes, Place::Zero),
            };
            let mut granules = self.granules_of(at, until);
            if place == Place::Store {
                self.keep(region, at, until)?;
                granules.1 = 0;
            }
            (granules.0..granules.0 + granules.1).for_each(|it| region.set(it, place));
            at = until;
        }
        Ok(())
    }

    /// Copies whole granules of the base into the store.
    fn keep(&self, region: &mut states::Region, from: u64, to: u64) -> Result<(), Ended> {
        let (first, count) = self.granules_of(from, to);
        let mut bytes = vec![0; index(to - from)];
        let is_read = self.read_base(from, &mut bytes).is_ok();
        for at in 0..count {
            let start = from + at as u64 * self.granule;
            let part = &mut bytes[index(start - from)..][..index(self.granule)];
            // One block that is lost does not lose its neighbours.
            if !is_read && self.read_base(start, part).is_err() {
                region.set(first + at, Place::Lost);
                continue;
            }
            let outgrown = Ended::ConfigOutgrown { bytes_max: self.bytes_max };
            self.reserve(1).map_err(|_| outgrown)?;
            region.set(first + at, Place::Store);
        }
        self.put(from, &bytes).map_err(Ended::MediaStore)
    }
}

impl BlockDevice for Overlay {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: self.size.load(Ordering::Acquire),
            block: self.block,
            is_atomic: false,
            is_read_only: false,
            class: DurabilityClass::Volatile,
            may_wait: true,
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        self.geometry().check_read(offset, out.len() as u64)?;
        for (from, to) in self.parts(offset, offset + out.len() as u64) {
            self.read_part(from, &mut out[index(from - offset)..index(to - offset)])?;
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8], _survives: Survives) -> Result<(), BlockError> {
        self.geometry().check_change(offset, bytes.len() as u64)?;
        Ok(self.write_all(offset, bytes)?)
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.check_shown()
    }

    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        // No space is ever set aside: the store is bounded as a whole.
        _zeroing: Zeroing,
        _survives: Survives,
    ) -> Result<(), BlockError> {
        self.geometry().check_change(offset, len)?;
        Ok(self.zero_all(offset, len)?)
    }

    fn status(&self, offset: u64, len: u64) -> Result<Extent, BlockError> {
        self.geometry().check_status(offset, len)?;
        let (_, end) = self.parts(offset, offset + len).next().expect("the range is not empty");
        let regions = self.share(offset);
        self.check_shown()?;
        let (first, count) = self.granules_of(offset, end);
        let (place, run) = regions.region(offset / self.region_len()).run(first, count);
        let until = (offset - offset % self.granule + run as u64 * self.granule).min(end);
        let len = until - offset;
        match place {
            Place::Base if offset < self.base_len => {
                self.base.status(offset, len.min(self.base_len - offset))
            }
            Place::Base | Place::Zero => Ok(Extent { len, state: State::Hole }),
            Place::Store | Place::Lost => Ok(Extent { len, state: State::Data }),
        }
    }

    fn resize(&self, size: u64) -> Result<u64, BlockError> {
        if size > SIZE_MAX {
            return Err(BlockError::ConfigFixedSize);
        }
        let size = size.next_multiple_of(u64::from(self.block));
        let present = self.size.fetch_max(size, Ordering::AcqRel);
        if size < present {
            return Err(BlockError::ConfigFixedSize);
        }
        Ok(size)
    }
}

/// Why an overlay takes no change.
#[derive(Clone, Copy, Debug)]
enum Refused {
    /// The store has reached its bound.
    NoRoom,
    Device(BlockError),
}

impl From<BlockError> for Refused {
    fn from(error: BlockError) -> Self {
        Self::Device(error)
    }
}

impl From<Refused> for BlockError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoRoom => Self::MediaFull,
            Refused::Device(error) => error,
        }
    }
}

fn failed(error: &io::Error) -> BlockError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return BlockError::MediaNotKept;
    }
    let errno = rustix::io::Errno::from_io_error(error);
    errno.map_or(BlockError::MediaIo(rustix::io::Errno::IO.raw_os_error()), BlockError::from)
}

/// A length in memory: at most a region, or a buffer that is there.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("no more than a buffer in memory")
}

/// Bytes of a granule, unless the base's blocks are longer: the smallest write that file systems make.
pub const GRANULE: u64 = 4096;
/// Bytes of an overlay at most: no file is longer, and sums of offsets do not wrap.
const SIZE_MAX: u64 = 1 << 62;
/// Locks of an overlay: requests of different regions seldom meet in one.
const LOCKS: usize = 64;
