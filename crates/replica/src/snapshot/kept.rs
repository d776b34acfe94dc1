//! A volume as it was: blocks are copied, durably, before the volume changes there.
//!
//! ```text
//!   preserve(range) -- granules not kept yet --> slots, then their entries, one persist --> map in memory
//!                                                                                              |
//!                                    only now may the caller change the volume             readers find the slot
//! ```
//!
//! Granules are kept in batches, one at a time: no entry of a batch is written before the batch before it is durable. So
//! after a crash only the entries of the newest batch are in doubt. The volume has not changed where they are, so an entry
//! whose slot is not whole is void, and the volume still has the bytes.
//!
//! Readers and `preserve` keep out of each other's way as in [`crate::overlay`]: a reader holds the lock of the granule,
//! shared, while it reads the volume, and `preserve` takes it alone to note the granule.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use block::{BlockDevice, BlockError, Extent, Geometry, State, Survives, Zeroing};
use pmem::{DurabilityClass, Medium, MediumError};

use super::format::{
    ENTRY_LEN, Entry, HEAD_LEN, HEAD_USED, Head, KEPT_GRANULE, SLOTS_MAX, What, checksum,
};

/// A volume as it was, for reading.
#[derive(Debug)]
pub struct Kept {
    base: Arc<dyn BlockDevice>,
    medium: Arc<dyn Medium>,
    head: Head,
    /// Granule `n` is in the map with number `n` modulo [`LOCKS`].
    maps: Box<[RwLock<HashMap<u64, Place>>]>,
    writer: Mutex<Writer>,
}

/// Where a granule is that has left the volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Slot(u64),
    Zeroes,
    Lost,
}

#[derive(Debug)]
struct Writer {
    slot: u64,
    batch: u64,
    failed: Option<KeepError>,
}

/// Why blocks cannot be kept, or what was kept cannot be opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum KeepError {
    /// The blocks that have changed are more than the file may hold.
    #[error("more blocks have changed than the snapshot can keep")]
    ConfigOutgrown,
    /// The volume is too small: it is another one.
    #[error("the snapshot is of a volume of {kept} bytes, and this one has {found}")]
    ConfigOtherVolume {
        /// Size of the volume that was kept.
        kept: u64,
        /// Size of the volume that was given.
        found: u64,
    },
    /// The file's head is damaged or foreign.
    #[error("the file does not hold kept blocks of this snapshot")]
    MediaDamaged,
    /// The file cannot be written, read or made durable.
    #[error("the blocks cannot be kept: {0}")]
    MediaKept(MediumError),
    /// The volume cannot be made durable, so that what it is now could be undone by a crash.
    #[error("the volume failed: {0}")]
    MediaVolume(BlockError),
}

impl From<MediumError> for KeepError {
    fn from(error: MediumError) -> Self {
        Self::MediaKept(error)
    }
}

impl Kept {
    /// Bytes of the file for a volume of `size` bytes of which at most `bytes_max` are kept.
    pub fn file_len(size: u64, bytes_max: u64) -> u64 {
        head(0, size, 0, bytes_max).file_len()
    }

    /// Begins to keep `base`, volume number `volume`, in `medium`, which is zeroes and as long as [`Kept::file_len`] says.
    ///
    /// # Durability
    ///
    /// *After* `Ok` the file can be opened after a crash, and the volume is durable as it is now.
    ///
    /// # Errors
    ///
    /// See [`KeepError`].
    pub fn create(
        base: Arc<dyn BlockDevice>,
        medium: Arc<dyn Medium>,
        id: u64,
        volume: u32,
        bytes_max: u64,
    ) -> Result<Self, KeepError> {
        base.flush().map_err(KeepError::MediaVolume)?;
        let head = head(id, base.geometry().size, volume, bytes_max);
        medium.place(0, &head.emit())?;
        medium.persist(0, HEAD_LEN)?;
        Ok(Self::with(base, medium, head, Writer { slot: 0, batch: 1, failed: None }))
    }

    /// Opens what [`Kept::create`] began, after a crash as well.
    ///
    /// # Durability
    ///
    /// *After* `Ok` every granule that the device does not read from the volume is durable in the file.
    ///
    /// # Errors
    ///
    /// See [`KeepError`].
    pub fn open(
        base: Arc<dyn BlockDevice>,
        medium: Arc<dyn Medium>,
        id: u64,
        volume: u32,
    ) -> Result<Self, KeepError> {
        let mut bytes = [0; HEAD_USED];
        medium.read(0, &mut bytes)?;
        let head = Head::parse(&bytes).filter(|head| (head.id, head.volume) == (id, volume));
        let head = head.filter(|head| head.file_len() <= medium.len());
        let head = head.ok_or(KeepError::MediaDamaged)?;
        let found = base.geometry().size;
        if found < head.size {
            return Err(KeepError::ConfigOtherVolume { kept: head.size, found });
        }
        let kept = Self::with(base, medium, head, Writer { slot: 0, batch: 1, failed: None });
        kept.recover()?;
        Ok(kept)
    }

    fn with(
        base: Arc<dyn BlockDevice>,
        medium: Arc<dyn Medium>,
        head: Head,
        writer: Writer,
    ) -> Self {
        let maps = (0..LOCKS).map(|_| RwLock::default()).collect();
        Self { base, medium, head, maps, writer: Mutex::new(writer) }
    }

    /// Bytes of granules that are kept, and how many may be.
    pub fn held(&self) -> (u64, u64) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        (writer.slot * KEPT_GRANULE, self.head.slots * KEPT_GRANULE)
    }

    /// Keeps what the volume has in the ranges now, each an offset and a length, if that is not kept yet. Ranges that
    /// are given together share persists: up to [`BATCH_MAX`] granules one.
    ///
    /// # Durability
    ///
    /// *After* `Ok` the caller may change the ranges of the volume: the bytes of the snapshot survive a crash. After an error
    /// the caller must not change them, unless it gives the snapshot up.
    ///
    /// # Errors
    ///
    /// See [`KeepError`]. After any error but [`KeepError::ConfigOutgrown`], nothing is kept any more.
    pub fn preserve_durably(&self, ranges: &[(u64, u64)]) -> Result<(), KeepError> {
        let missing = || {
            let granules = ranges.iter().flat_map(|(offset, len)| self.granules(*offset, *len));
            granules.filter(|granule| self.place(*granule).is_none())
        };
        if missing().next().is_none() {
            return Ok(());
        }
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failed) = writer.failed {
            return Err(failed);
        }
        let (mut batch, mut rest) = (Vec::with_capacity(BATCH_MAX), missing());
        loop {
            batch.clear();
            while batch.len() < BATCH_MAX
                && let Some(granule) = rest.next()
            {
                if !batch.contains(&granule) {
                    batch.push(granule);
                }
            }
            if batch.is_empty() {
                return Ok(());
            }
            self.keep(&mut writer, &batch).inspect_err(|error| {
                if *error != KeepError::ConfigOutgrown {
                    writer.failed = Some(*error);
                }
            })?;
        }
    }

    /// The granules of the volume that a range touches.
    fn granules(&self, offset: u64, len: u64) -> std::ops::Range<u64> {
        let end = offset.saturating_add(len).min(self.head.size);
        if offset >= end {
            return 0..0;
        }
        offset / KEPT_GRANULE..end.div_ceil(KEPT_GRANULE)
    }

    /// Keeps granules as a batch.
    fn keep(&self, writer: &mut Writer, granules: &[u64]) -> Result<(), KeepError> {
        let (first, count) = (writer.slot, granules.len() as u64);
        if count > self.head.slots - first {
            return Err(KeepError::ConfigOutgrown);
        }
        let mut entries = Vec::with_capacity(granules.len() * ENTRY_LEN);
        let mut places = Vec::with_capacity(granules.len());
        for (slot, granule) in (first..).zip(granules) {
            let what = self.copy(slot, *granule)?;
            let entry = Entry { granule: *granule, batch: writer.batch, what };
            entries.extend(entry.emit(self.head.id, slot));
            places.extend(place_of(what, slot).map(|place| (*granule, place)));
        }
        let from = self.head.entry_at(first);
        self.medium.place(from, &entries)?;
        // The entries, and the slots, which lie behind them.
        self.medium.persist(from, self.head.slot_at(first + count) - from)?;
        writer.slot += count;
        writer.batch += 1;
        places.into_iter().for_each(|(granule, place)| self.note(granule, place));
        Ok(())
    }

    /// Copies a granule of the volume into a slot.
    fn copy(&self, slot: u64, granule: u64) -> Result<What, KeepError> {
        let (start, len) = self.granule(granule);
        let is_hole = self.base.status(start, len);
        if is_hole.is_ok_and(|it| it.len == len && it.state != State::Data) {
            return Ok(What::Zeroes);
        }
        let mut bytes = vec![0; index(len)];
        if self.base.read(start, &mut bytes).is_err() {
            return Ok(What::Lost);
        }
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(What::Zeroes);
        }
        self.medium.place(self.head.slot_at(slot), &bytes)?;
        let len = u32::try_from(len).expect("at most a granule");
        Ok(What::Bytes { sum: checksum(&[&bytes]), len })
    }

    /// Where a granule begins, and its length: the last one of a volume may be shorter.
    fn granule(&self, number: u64) -> (u64, u64) {
        let start = number * KEPT_GRANULE;
        (start, KEPT_GRANULE.min(self.head.size - start))
    }

    /// Reads the entries, and makes those void that were under way when the power failed.
    fn recover(&self) -> Result<(), KeepError> {
        let mut found: Vec<(u64, Entry)> = Vec::new();
        let mut slot = 0;
        // A batch of which no entry is whole is followed by none.
        let mut gap = 0;
        while slot < self.head.slots && gap < BATCH_MAX {
            let count = (BATCH_MAX as u64).min(self.head.slots - slot);
            let mut bytes = vec![0; index(count) * ENTRY_LEN];
            self.medium.read(self.head.entry_at(slot), &mut bytes)?;
            for entry in bytes.as_chunks().0 {
                gap += 1;
                if let Some(entry) = Entry::parse(entry, self.head.id, slot) {
                    found.push((slot, entry));
                    gap = 0;
                }
                slot += 1;
            }
        }
        let newest = found.iter().map(|(_, entry)| entry.batch).max().unwrap_or(0);
        for (slot, entry) in &mut found {
            let is_known = entry.granule < self.head.size.div_ceil(KEPT_GRANULE);
            if entry.what != What::Void && !is_known {
                return Err(KeepError::MediaDamaged);
            }
            if entry.batch == newest && !self.is_whole(*slot, entry.what)? {
                entry.what = What::Void;
                let bytes = entry.emit(self.head.id, *slot);
                self.medium.place(self.head.entry_at(*slot), &bytes)?;
            }
            if let Some(place) = place_of(entry.what, *slot) {
                self.note(entry.granule, place);
            }
        }
        // What a program that was killed had placed counts from here on.
        self.medium.persist(0, self.head.file_len())?;
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.slot = found.last().map_or(0, |(slot, _)| slot + 1);
        writer.batch = newest + 1;
        Ok(())
    }

    fn is_whole(&self, slot: u64, what: What) -> Result<bool, KeepError> {
        let What::Bytes { sum, len } = what else { return Ok(true) };
        let mut bytes = vec![0; index(u64::from(len))];
        self.medium.read(self.head.slot_at(slot), &mut bytes)?;
        Ok(checksum(&[&bytes]) == sum)
    }

    fn map(&self, granule: u64) -> &RwLock<HashMap<u64, Place>> {
        &self.maps[usize::try_from(granule % LOCKS).expect("below LOCKS")]
    }

    fn place(&self, granule: u64) -> Option<Place> {
        let map = self.map(granule).read().unwrap_or_else(PoisonError::into_inner);
        map.get(&granule).copied()
    }

    /// Waits for readers of the volume's granule, and shows later ones where it is.
    fn note(&self, granule: u64, place: Place) {
        let mut map = self.map(granule).write().unwrap_or_else(PoisonError::into_inner);
        map.insert(granule, place);
    }

    fn read_part(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        let granule = offset / KEPT_GRANULE;
        let map = self.map(granule).read().unwrap_or_else(PoisonError::into_inner);
        match map.get(&granule) {
            None => self.base.read(offset, out),
            Some(Place::Slot(slot)) => {
                Ok(self.medium.read(self.head.slot_at(*slot) + offset % KEPT_GRANULE, out)?)
            }
            Some(Place::Zeroes) => {
                out.fill(0);
                Ok(())
            }
            Some(Place::Lost) => Err(BlockError::MediaLost { offset }),
        }
    }
}

impl BlockDevice for Kept {
    fn geometry(&self) -> Geometry {
        let base = self.base.geometry();
        let class = self.medium.class();
        Geometry {
            size: self.head.size,
            is_read_only: true,
            class: if base.class.keeps(class) { class } else { base.class },
            may_wait: base.may_wait || class == DurabilityClass::Storage,
            ..base
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        self.geometry().check_read(offset, out.len() as u64)?;
        let (mut at, end) = (offset, offset + out.len() as u64);
        while at < end {
            let until = (at - at % KEPT_GRANULE + KEPT_GRANULE).min(end);
            self.read_part(at, &mut out[index(at - offset)..index(until - offset)])?;
            at = until;
        }
        Ok(())
    }

    fn write(&self, _offset: u64, _bytes: &[u8], _survives: Survives) -> Result<(), BlockError> {
        Err(BlockError::ConfigReadOnly)
    }

    fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    fn write_zeroes(
        &self,
        _offset: u64,
        _len: u64,
        _zeroing: Zeroing,
        _survives: Survives,
    ) -> Result<(), BlockError> {
        Err(BlockError::ConfigReadOnly)
    }

    fn status(&self, offset: u64, len: u64) -> Result<Extent, BlockError> {
        self.geometry().check_status(offset, len)?;
        let granule = offset / KEPT_GRANULE;
        let len = len.min(KEPT_GRANULE - offset % KEPT_GRANULE);
        let map = self.map(granule).read().unwrap_or_else(PoisonError::into_inner);
        match map.get(&granule) {
            None => self.base.status(offset, len),
            Some(Place::Zeroes) => Ok(Extent { len, state: State::Hole }),
            Some(Place::Slot(_) | Place::Lost) => Ok(Extent { len, state: State::Data }),
        }
    }

    fn resize(&self, _size: u64) -> Result<u64, BlockError> {
        Err(BlockError::ConfigFixedSize)
    }
}

fn head(id: u64, size: u64, volume: u32, bytes_max: u64) -> Head {
    let granules = size.div_ceil(KEPT_GRANULE);
    // Each crash may leave slots of a batch behind that hold nothing.
    let slots = (bytes_max / KEPT_GRANULE).min(granules + SPARE).min(SLOTS_MAX);
    Head { id, size, volume, slots }
}

const fn place_of(what: What, slot: u64) -> Option<Place> {
    match what {
        What::Bytes { .. } => Some(Place::Slot(slot)),
        What::Zeroes => Some(Place::Zeroes),
        What::Lost => Some(Place::Lost),
        What::Void => None,
    }
}

/// A length in memory: a granule, a batch, or a buffer that is there.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("no more than a buffer in memory")
}

/// Granules that one persist makes durable at most: 4 MiB, which an `fdatasync` is not felt beside.
pub const BATCH_MAX: usize = 64;
/// Slots for what crashes waste: 64 crashes, each in the middle of the longest batch.
const SPARE: u64 = 4096;
const LOCKS: u64 = 64;
