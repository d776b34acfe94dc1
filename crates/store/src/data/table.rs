//! A table of values by key in slots of one length: a get is one one-sided read for most keys.
//!
//! ```text
//!   0         8        12       16                64
//!   | LFTABLE1| key 4  | value 4| slots 8 | zeros | slot | slot | ...       key, value: the longest, in bytes
//!   slot      state 4 (0 never used, 1 a value, 2 removed) | key length 4 | value length 4 | CRC-32C 4 | key | value
//! ```
//!
//! A key lies in its slot by hash or one of the seven behind it. The CRC covers the slot without itself: a read that met a
//! write in the middle is read again.
//!
//! Readers are any number. A key has one writer at a time: clients that write agree on who writes which keys, and keys
//! of one probing distance belong to one writer, as [`Table::home`] tells them apart.

use super::{crc32c, u32_at, u64_at};
use crate::client::Region;
use crate::error::StoreError;
use crate::layout::wide;

/// The shape of a table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shape {
    /// The longest key in bytes.
    pub key_max: u32,
    /// The longest value in bytes.
    pub value_max: u32,
    /// Number of slots.
    pub slots: u64,
}

impl Shape {
    /// The bytes that a region needs for it.
    pub fn region_len(&self) -> u64 {
        BEGIN + self.slots * self.slot_len()
    }

    fn slot_len(&self) -> u64 {
        (SLOT_HEAD + u64::from(self.key_max) + u64::from(self.value_max)).next_multiple_of(64)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Table {
    region: Region,
    shape: Shape,
    slot_len: usize,
}

/// What a slot holds.
enum Slot {
    Never,
    Removed,
    Value { key: Vec<u8>, value: Vec<u8> },
}

impl Table {
    /// Makes an empty table of a region of zeros.
    ///
    /// # Errors
    /// The region is too short, or cannot be written.
    pub fn create(region: Region, shape: Shape) -> Result<Self, StoreError> {
        if shape.slots < PROBES || shape.region_len() > region.len() {
            return Err(StoreError::Full("region of a table"));
        }
        let mut head = [0; 64];
        head[..8].copy_from_slice(MAGIC);
        head[8..12].copy_from_slice(&shape.key_max.to_le_bytes());
        head[12..16].copy_from_slice(&shape.value_max.to_le_bytes());
        head[16..24].copy_from_slice(&shape.slots.to_le_bytes());
        region.write(0, &head)?;
        Ok(Self::of(region, shape))
    }

    /// The table of a region.
    ///
    /// # Errors
    /// The region holds no table, or cannot be read.
    pub fn open(region: Region) -> Result<Self, StoreError> {
        let mut head = [0; 24];
        region.read(0, &mut head)?;
        let shape = Shape {
            key_max: u32_at(&head, 8),
            value_max: u32_at(&head, 12),
            slots: u64_at(&head, 16),
        };
        let fits = shape
            .slots
            .checked_mul(shape.slot_len())
            .and_then(|len| len.checked_add(BEGIN))
            .is_some_and(|len| len <= region.len());
        if head[..8] != *MAGIC || shape.slots < PROBES || !fits {
            return Err(StoreError::Garbled { name: region.name().to_owned(), what: "table" });
        }
        Ok(Self::of(region, shape))
    }

    fn of(region: Region, shape: Shape) -> Self {
        let slot_len = usize::try_from(shape.slot_len()).expect("a slot is below 8 GiB");
        Self { region, shape, slot_len }
    }

    /// The slot where a key is looked for first.
    pub fn home(&self, key: &[u8]) -> u64 {
        // FNV-1a, then the upper half: the table's shape is what the hash depends on.
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        (hash ^ (hash >> 32)) % self.shape.slots
    }

    /// Where the slot lies in which a key is looked for first: offset and length in the region. For clients that have
    /// many gets under way by [`Region::submit_read`]; [`Table::look`] says what the bytes hold.
    pub fn place(&self, key: &[u8]) -> (u64, usize) {
        (BEGIN + self.home(key) * wide(self.slot_len), self.slot_len)
    }

    /// The value of a key in the bytes of its first slot; `None`: ask [`Table::get`], which looks further.
    pub fn look(&self, key: &[u8], slot: &[u8]) -> Option<Vec<u8>> {
        match self.parse(slot)? {
            Slot::Value { key: found, value } if found == key => Some(value),
            _ => None,
        }
    }

    /// The region.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The region cannot be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        for probe in 0..PROBES {
            match self.slot((self.home(key) + probe) % self.shape.slots)? {
                Slot::Value { key: found, value } if found == key => return Ok(Some(value)),
                Slot::Never => return Ok(None),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Stores a value; visible to every reader on return.
    ///
    /// # Errors
    /// [`StoreError::Full`]: key or value is too long, or all slots of the key are taken; else the region cannot be
    /// written.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let is_long = |len: usize, max: u32| wide(len) > u64::from(max);
        if is_long(key.len(), self.shape.key_max) || is_long(value.len(), self.shape.value_max) {
            return Err(StoreError::Full("slot of a table"));
        }
        let at = self.find(key)?.ok_or(StoreError::Full("table"))?;
        self.store(at, 1, key, value)
    }

    /// Removes a key; whether it was there.
    ///
    /// # Errors
    /// The region cannot be read or written.
    pub fn remove(&self, key: &[u8]) -> Result<bool, StoreError> {
        let Some(at) = self.find(key)? else { return Ok(false) };
        match self.slot(at)? {
            Slot::Value { key: found, .. } if found == key => {
                self.store(at, 2, &[], &[])?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The slot of a key, or the first one free for it.
    fn find(&self, key: &[u8]) -> Result<Option<u64>, StoreError> {
        let mut free = None;
        for probe in 0..PROBES {
            let at = (self.home(key) + probe) % self.shape.slots;
            match self.slot(at)? {
                Slot::Value { key: found, .. } if found == key => return Ok(Some(at)),
                Slot::Value { .. } => {}
                Slot::Removed => free = free.or(Some(at)),
                Slot::Never => return Ok(free.or(Some(at))),
            }
        }
        Ok(free)
    }

    fn slot(&self, at: u64) -> Result<Slot, StoreError> {
        let mut bytes = vec![0; self.slot_len];
        for _ in 0..TORN_READS_MAX {
            self.region.read(BEGIN + at * wide(self.slot_len), &mut bytes)?;
            if let Some(slot) = self.parse(&bytes) {
                return Ok(slot);
            }
        }
        Err(StoreError::Garbled { name: self.region.name().to_owned(), what: "slot of a table" })
    }

    fn parse(&self, bytes: &[u8]) -> Option<Slot> {
        let (state, key, value) = (u32_at(bytes, 0), u32_at(bytes, 4), u32_at(bytes, 8));
        if state == 0 {
            return Some(Slot::Never);
        }
        if key > self.shape.key_max || value > self.shape.value_max {
            return None;
        }
        let head = usize::try_from(SLOT_HEAD).expect("16");
        let (key, value) = (usize::try_from(key).ok()?, usize::try_from(value).ok()?);
        let end = head + key + value;
        (crc32c(&[&bytes[..12], &bytes[head..end]]) == u32_at(bytes, 12)).then_some(())?;
        let (key, value) = (bytes[head..head + key].to_vec(), bytes[head + key..end].to_vec());
        if state == 1 { Some(Slot::Value { key, value }) } else { Some(Slot::Removed) }
    }

    fn store(&self, at: u64, state: u32, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("it was compared").to_le_bytes();
        let mut slot = Vec::with_capacity(self.slot_len);
        slot.extend(state.to_le_bytes());
        slot.extend(len(key));
        slot.extend(len(value));
        slot.extend(crc32c(&[&slot[..12], key, value]).to_le_bytes());
        slot.extend_from_slice(key);
        slot.extend_from_slice(value);
        self.region.write(BEGIN + at * wide(self.slot_len), &slot)
    }
}

const MAGIC: &[u8; 8] = b"LFTABLE1";
const BEGIN: u64 = 64;
const SLOT_HEAD: u64 = 16;
/// Slots that a key may lie in.
const PROBES: u64 = 8;
/// How often a slot that is being written is read again.
const TORN_READS_MAX: usize = 1000;
