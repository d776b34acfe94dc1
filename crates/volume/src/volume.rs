//! A volume: its arenas one after the other, as one block device.

use std::fs::File;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use block::{BlockDevice, BlockError, Extent, Geometry, State, Survives, Zeroing};
use pmem::{Medium, OpenOptions};
use rustix::fs::FlockOperation;

use crate::arena::Arena;
use crate::grow::{self, Source};
use crate::layout::ARENAS_MAX;
use crate::open::{Access, find_arenas};
use crate::{Damage, LayoutVersion, VolumeError};

/// A volume in use. Each of its sectors is old or new after a crash, whole, and new once its write has returned:
/// every write is durable, so a flush has nothing to do.
#[derive(Debug)]
pub struct Volume {
    arenas: Box<[OnceLock<Box<Arena>>]>,
    count: AtomicUsize,
    /// Sectors of all arenas.
    sectors: AtomicU64,
    sector: u32,
    version: LayoutVersion,
    uuid: [u8; 16],
    access: Access,
    info_damage: Vec<Damage>,
    medium: Arc<dyn Medium>,
    /// The file, if the volume has one that can grow; held for a change of the size.
    file: Option<Mutex<Source>>,
}

/// What an arena is, for people.
#[derive(Clone, Debug)]
pub struct ArenaFacts {
    /// Where it begins in the medium.
    pub start: u64,
    /// Its bytes, structure included.
    pub len: u64,
    /// Its sectors.
    pub sectors: u32,
    /// Its lanes: writes at the same time.
    pub lanes: usize,
    /// Lanes that carry no writes because the medium has lost their free block.
    pub lanes_lost: usize,
    /// Where its map begins in the medium.
    pub map: u64,
    /// Where its flog begins in the medium.
    pub flog: u64,
    /// Why it takes no changes.
    pub damage: Option<Damage>,
}

impl Volume {
    /// Opens the volume of a medium, and ends the writes that a crash has interrupted.
    ///
    /// # Errors
    ///
    /// [`VolumeError::PeerForeign`], [`VolumeError::MediaDamaged`], [`VolumeError::Medium`]. A damaged flog or map
    /// makes its arena read-only instead: [`Volume::damage`].
    pub fn open(medium: Arc<dyn Medium>, access: Access) -> Result<Self, VolumeError> {
        let found = find_arenas(&medium)?;
        let (first, mut info_damage) = (&found[0].info, Vec::new());
        let (sector, version, uuid) = (first.layout.sector, first.version, first.uuid);
        let arenas: Box<[OnceLock<Box<Arena>>]> =
            (0..ARENAS_MAX).map(|_| OnceLock::new()).collect();
        let (count, mut sectors) = (found.len(), 0);
        for (number, found) in found.into_iter().enumerate() {
            let place =
                arenas.get(number).ok_or(VolumeError::ConfigTooManyArenas { most: ARENAS_MAX })?;
            info_damage.extend(found.info_damage);
            if found.info.layout.sector != sector {
                return Err(VolumeError::ConfigSector { sector: found.info.layout.sector });
            }
            let arena = Arena::open(found.structure, number, access, found.error_flag)?;
            sectors += u64::from(arena.sectors());
            let _ = place.set(Box::new(arena));
        }
        let (count, sectors) = (AtomicUsize::new(count), AtomicU64::new(sectors));
        Ok(Self {
            arenas,
            count,
            sectors,
            sector,
            version,
            uuid,
            access,
            info_damage,
            medium,
            file: None,
        })
    }

    /// Opens the volume that fills a file, and keeps others from opening it until the volume is dropped.
    ///
    /// # Errors
    ///
    /// As [`Volume::open`]; [`VolumeError::ConfigInUse`] while another program, or another part of this one, has it.
    pub fn open_file(
        file: File,
        options: OpenOptions,
        access: Access,
    ) -> Result<Self, VolumeError> {
        lock(&file)?;
        let medium = pmem::map_file(&file, pmem::length(&file)?, options)?;
        let volume = Self::open(medium, access)?;
        Ok(Self { file: Some(Mutex::new(Source { file, options })), ..volume })
    }

    /// The damage that was found so far: of info blocks, which can be repaired while the volume is not in use, and of
    /// arenas that take no changes because of it.
    pub fn damage(&self) -> Vec<Damage> {
        let arenas = self.arenas().filter_map(Arena::damage);
        self.info_damage.iter().copied().chain(arenas).collect()
    }

    /// What the arenas are.
    pub fn arena_facts(&self) -> Vec<ArenaFacts> {
        let facts = |arena: &Arena| {
            let layout = &arena.structure.layout;
            ArenaFacts {
                start: layout.start,
                len: layout.len(),
                sectors: layout.sectors,
                lanes: arena.lanes(),
                lanes_lost: arena.lanes_lost(),
                map: layout.entry_at(0),
                flog: layout.group_at(0),
                damage: arena.damage(),
            }
        };
        self.arenas().map(facts).collect()
    }

    /// The version of the layout.
    pub fn version(&self) -> LayoutVersion {
        self.version
    }

    /// The identity that the volume was made with.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    pub(crate) fn arenas(&self) -> impl Iterator<Item = &Arena> {
        self.arenas.iter().map_while(|arena| arena.get().map(|arena| &**arena))
    }

    /// Adds an arena at the end; readers and writers of the others notice nothing.
    fn append(&self, arena: Arena) {
        let (number, more) = (self.count.load(Ordering::Acquire), u64::from(arena.sectors()));
        let _ = self.arenas[number].set(Box::new(arena));
        self.count.store(number + 1, Ordering::Release);
        self.sectors.fetch_add(more, Ordering::AcqRel);
    }

    fn size(&self) -> u64 {
        self.sectors.load(Ordering::Acquire) * u64::from(self.sector)
    }

    /// Calls `each` for every run of sectors that lies in one arena, with the first sector, their number and where the
    /// run begins in the request; errors come back with their place in the volume.
    fn runs(
        &self,
        offset: u64,
        len: u64,
        mut each: impl FnMut(&Arena, u32, u32, usize) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let step = u64::from(self.sector);
        let (mut first, mut left, mut done, mut before) = (offset / step, len / step, 0_u64, 0_u64);
        for arena in self.arenas() {
            if left == 0 {
                break;
            }
            let sectors = u64::from(arena.sectors());
            if first < sectors {
                let count = left.min(sectors - first);
                let at = usize::try_from(done * step).expect("inside of a buffer");
                each(arena, narrow(first), narrow(count), at)
                    .map_err(|error| shift(error, before * step))?;
                (first, left, done) = (first + count, left - count, done + count);
            }
            (first, before) = (first - sectors.min(first), before + sectors);
        }
        Ok(())
    }

    fn geometry_now(&self) -> Geometry {
        Geometry {
            size: self.size(),
            block: self.sector,
            is_atomic: true,
            is_read_only: self.access == Access::ReadOnly,
            class: self.medium.class(),
            may_wait: self.medium.class() == pmem::DurabilityClass::Storage,
        }
    }
}

impl BlockDevice for Volume {
    fn geometry(&self) -> Geometry {
        self.geometry_now()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        self.geometry_now().check_read(offset, length_of(out))?;
        let step = sector_len(self.sector);
        self.runs(offset, length_of(out), |arena, first, count, at| {
            let reader = arena.enter();
            for (sector, at) in (first..first + count).zip((at..).step_by(step)) {
                arena.read(&reader, sector, &mut out[at..at + step])?;
            }
            Ok(())
        })
    }

    fn write(&self, offset: u64, bytes: &[u8], _survives: Survives) -> Result<(), BlockError> {
        self.geometry_now().check_change(offset, length_of(bytes))?;
        let step = sector_len(self.sector);
        self.runs(offset, length_of(bytes), |arena, first, count, at| {
            for (sector, at) in (first..first + count).zip((at..).step_by(step)) {
                arena.write(sector, &bytes[at..at + step])?;
            }
            Ok(())
        })
    }

    /// Every change was durable when its call returned; an arena whose medium failed says so here too.
    fn flush(&self) -> Result<(), BlockError> {
        let failed = |damage: Damage| damage.fault == crate::Fault::Medium;
        match self.arenas().filter_map(Arena::damage).any(failed) {
            true => Err(BlockError::MediaPoisoned),
            false => Ok(()),
        }
    }

    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        _zeroing: Zeroing,
        _survives: Survives,
    ) -> Result<(), BlockError> {
        self.geometry_now().check_change(offset, len)?;
        self.runs(offset, len, |arena, first, count, _| {
            (first..first + count).try_for_each(|sector| arena.zero(sector))
        })
    }

    fn status(&self, offset: u64, len: u64) -> Result<Extent, BlockError> {
        self.geometry_now().check_status(offset, len)?;
        let (step, mut found) = (u64::from(self.sector), None);
        // The first run tells; the arena after it would only make the extent longer.
        self.runs(offset, len.min(STATUS_SECTORS_MAX * step), |arena, first, count, _| {
            if found.is_none() {
                found = Some(arena.state(first, count)?);
            }
            Ok(())
        })?;
        let (is_zero, sectors) = found.unwrap_or((false, 1));
        let state = if is_zero { State::Zero } else { State::Data };
        Ok(Extent { len: u64::from(sectors) * step, state })
    }

    /// Adds an arena of 16 MiB or more, so the device may grow by more than was asked for.
    fn resize(&self, size: u64) -> Result<u64, BlockError> {
        if self.access == Access::ReadOnly {
            return Err(BlockError::ConfigReadOnly);
        }
        let file = self.file.as_ref().ok_or(BlockError::ConfigFixedSize)?;
        let source = file.lock().unwrap_or_else(PoisonError::into_inner);
        let present = self.size();
        if size <= present {
            return if size == present { Ok(present) } else { Err(BlockError::ConfigFixedSize) };
        }
        let last = self.arenas().last().ok_or(BlockError::ConfigFixedSize)?;
        let number = self.count.load(Ordering::Acquire);
        if number == ARENAS_MAX {
            return Err(BlockError::ConfigFixedSize);
        }
        self.append(grow::add_arena(&source, last, number, size - present)?);
        Ok(self.size())
    }
}

/// Keeps other programs, and other opens of this one, away from a volume's file.
pub(crate) fn lock(file: &File) -> Result<(), VolumeError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(VolumeError::ConfigInUse),
        Err(errno) => Err(errno.into()),
    }
}

/// Adds where an arena begins in the volume to the place that an error names.
fn shift(error: BlockError, by: u64) -> BlockError {
    match error {
        BlockError::MediaLost { offset } => BlockError::MediaLost { offset: offset + by },
        BlockError::MediaDamaged { offset } => BlockError::MediaDamaged { offset: offset + by },
        other => other,
    }
}

fn narrow(sectors: u64) -> u32 {
    u32::try_from(sectors).expect("no more than an arena has")
}

fn sector_len(sector: u32) -> usize {
    usize::try_from(sector).expect("4096 at most")
}

fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("no supported machine has more than 64 address bits")
}

/// Sectors whose state one call tells: 512 KiB of the map.
const STATUS_SECTORS_MAX: u64 = 128 << 10;
