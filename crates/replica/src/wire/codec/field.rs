//! The fields of a body, each with its width, and with what it may hold.

use log::Lsn;

use super::error::WireError;
use crate::format::{Extent, NUMBER_MAX, RECORD_ALIGN, VOLUME_LEN_MAX, VOLUMES_MAX};
use crate::message::{EXTENTS_MAX, Ticket};
use crate::names::{
    EPOCH_NUMBER_MAX, EPOCHS_MAX, Epoch, EpochStart, GroupId, History, MemberId, MemberSet,
};

/// A value that lies in a body.
pub(in crate::wire) trait Field: Sized {
    /// Appends it, or says why the other end would refuse it.
    fn put(&self, field: &'static str, out: &mut Vec<u8>) -> Result<(), WireError>;

    /// Takes it from the front.
    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError>;
}

/// Appends fields.
#[derive(Debug)]
pub(in crate::wire) struct Put<'o>(&'o mut Vec<u8>);

impl<'o> Put<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>) -> Self {
        Self(out)
    }

    pub(in crate::wire) fn field(
        &mut self,
        name: &'static str,
        value: &impl Field,
    ) -> Result<(), WireError> {
        value.put(name, self.0)
    }

    /// Several LSNs in a row.
    pub(super) fn lsns<const N: usize>(
        &mut self,
        name: &'static str,
        lsns: [Lsn; N],
    ) -> Result<(), WireError> {
        lsns.iter().try_for_each(|lsn| lsn.put(name, self.0))
    }
}

/// Takes fields from the front of a body.
#[derive(Debug)]
pub(in crate::wire) struct Take<'b>(&'b [u8]);

impl<'b> Take<'b> {
    pub(in crate::wire) fn new(body: &'b [u8]) -> Self {
        Self(body)
    }

    /// Bytes that nobody has taken.
    pub(in crate::wire) fn left(&self) -> usize {
        self.0.len()
    }

    pub(in crate::wire) fn field<T: Field>(&mut self, name: &'static str) -> Result<T, WireError> {
        T::take(name, self)
    }

    pub(super) fn lsns<const N: usize>(
        &mut self,
        name: &'static str,
    ) -> Result<[Lsn; N], WireError> {
        let mut lsns = [Lsn(0); N];
        for lsn in &mut lsns {
            *lsn = self.field(name)?;
        }
        Ok(lsns)
    }

    fn bytes<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(WireError::PeerShort(field))?;
        self.0 = rest;
        Ok(*bytes)
    }

    /// The entries of a list of `count`, each of `entry_len` bytes, all of which are there before memory is taken.
    fn list<T: Field>(
        &mut self,
        field: &'static str,
        (count, max): (usize, usize),
        entry_len: usize,
    ) -> Result<Vec<T>, WireError> {
        if count > max {
            return Err(WireError::Count { field, count, max });
        }
        if self.0.len() < count * entry_len {
            return Err(WireError::PeerShort(field));
        }
        (0..count).map(|_| self.field(field)).collect()
    }
}

/// Puts the count of a list, if it is within its bound.
fn put_count(
    field: &'static str,
    (count, max): (usize, usize),
    out: &mut Vec<u8>,
    is_byte: bool,
) -> Result<(), WireError> {
    let wide = u32::try_from(count).ok().filter(|_| count <= max);
    let bytes = wide.ok_or(WireError::Count { field, count, max })?.to_le_bytes();
    out.extend_from_slice(if is_byte { &bytes[..1] } else { &bytes });
    Ok(())
}

fn sound(is_sound: bool, field: &'static str) -> Result<(), WireError> {
    if is_sound { Ok(()) } else { Err(WireError::Value(field)) }
}

impl Field for u8 {
    fn put(&self, _: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        out.push(*self);
        Ok(())
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        take.bytes(field).map(|[byte]| byte)
    }
}

/// A port on which something listens.
impl Field for u16 {
    fn put(&self, field: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        sound(*self > 0, field)?;
        out.extend_from_slice(&self.to_le_bytes());
        Ok(())
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        let port = take.bytes(field).map(Self::from_le_bytes)?;
        sound(port > 0, field)?;
        Ok(port)
    }
}

impl Field for u32 {
    fn put(&self, _: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        out.extend_from_slice(&self.to_le_bytes());
        Ok(())
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        take.bytes(field).map(Self::from_le_bytes)
    }
}

impl Field for u64 {
    fn put(&self, _: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        out.extend_from_slice(&self.to_le_bytes());
        Ok(())
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        take.bytes(field).map(Self::from_le_bytes)
    }
}

impl Field for bool {
    fn put(&self, _: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        out.push(u8::from(*self));
        Ok(())
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        match take.field::<u8>(field)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Value(field)),
        }
    }
}

/// Records begin at multiples of [`RECORD_ALIGN`]; no sum of an LSN and a length may wrap.
impl Field for Lsn {
    fn put(&self, field: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        sound(self.0 <= NUMBER_MAX && self.0.is_multiple_of(RECORD_ALIGN), field)?;
        self.0.put(field, out)
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        let lsn = Self(take.field(field)?);
        sound(lsn.0 <= NUMBER_MAX && lsn.0.is_multiple_of(RECORD_ALIGN), field)?;
        Ok(lsn)
    }
}

impl Field for GroupId {
    fn put(&self, _: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        out.extend_from_slice(&self.0);
        Ok(())
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        take.bytes(field).map(Self)
    }
}

impl Field for Ticket {
    fn put(&self, _: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        out.extend_from_slice(&self.0);
        Ok(())
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        take.bytes(field).map(Self)
    }
}

impl Field for MemberId {
    fn put(&self, field: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        self.0.put(field, out)
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        take.field(field).map(Self)
    }
}

impl Field for MemberSet {
    fn put(&self, field: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        self.0.put(field, out)
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        take.field(field).map(Self)
    }
}

impl Field for Epoch {
    fn put(&self, field: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        sound(self.number.max(self.restart) <= EPOCH_NUMBER_MAX, field)?;
        self.number.put(field, out)?;
        self.restart.put(field, out)?;
        self.nonce.put(field, out)
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        let (number, restart) = (take.field::<u32>(field)?, take.field::<u32>(field)?);
        let epoch = Self { number, restart, nonce: take.field(field)? };
        sound(number.max(restart) <= EPOCH_NUMBER_MAX, field)?;
        Ok(epoch)
    }
}

impl Field for EpochStart {
    fn put(&self, field: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        self.epoch.put(field, out)?;
        self.start.put(field, out)?;
        let flags =
            if self.is_forced { FORCED } else { 0 } | if self.is_sealed { SEALED } else { 0 };
        flags.put(field, out)
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        let (epoch, start) = (take.field(field)?, take.field(field)?);
        let flags = take.field::<u8>(field)?;
        sound(flags & !(FORCED | SEALED) == 0, field)?;
        Ok(Self { epoch, start, is_forced: flags & FORCED != 0, is_sealed: flags & SEALED != 0 })
    }
}

impl Field for History {
    fn put(&self, field: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        let epochs = self.epochs();
        put_count(field, (epochs.len(), EPOCHS_MAX), out, true)?;
        epochs.iter().try_for_each(|epoch| epoch.put(field, out))
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        let count = usize::from(take.field::<u8>(field)?);
        let epochs = take.list(field, (count, EPOCHS_MAX), EPOCH_START_LEN)?;
        Self::new(epochs).ok_or(WireError::Value(field))
    }
}

/// Not empty, and within the largest volume.
impl Field for Extent {
    fn put(&self, field: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        sound(is_extent(self), field)?;
        self.volume.put(field, out)?;
        self.offset.put(field, out)?;
        self.len.put(field, out)
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        let (volume, offset, len) = (take.field(field)?, take.field(field)?, take.field(field)?);
        let extent = Self { volume, offset, len };
        sound(is_extent(&extent), field)?;
        Ok(extent)
    }
}

fn is_extent(extent: &Extent) -> bool {
    let end = extent.offset.checked_add(extent.len);
    extent.volume < VOLUMES_MAX && extent.len > 0 && end.is_some_and(|end| end <= VOLUME_LEN_MAX)
}

/// What the records of a ring change.
impl Field for (Lsn, Extent) {
    fn put(&self, field: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        self.0.put(field, out)?;
        self.1.put(field, out)
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        Ok((take.field(field)?, take.field(field)?))
    }
}

impl Field for Vec<(Lsn, Extent)> {
    fn put(&self, field: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        put_count(field, (self.len(), EXTENTS_MAX), out, false)?;
        self.iter().try_for_each(|entry| entry.put(field, out))
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        let count = usize::try_from(take.field::<u32>(field)?).unwrap_or(usize::MAX);
        take.list(field, (count, EXTENTS_MAX), RECENT_LEN)
    }
}

/// A digest of a range.
impl Field for [u8; 16] {
    fn put(&self, _: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        out.extend_from_slice(self);
        Ok(())
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        take.bytes(field)
    }
}

impl Field for Vec<[u8; 16]> {
    fn put(&self, field: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        put_count(field, (self.len(), DIGESTS_MAX), out, false)?;
        self.iter().try_for_each(|digest| digest.put(field, out))
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        let count = usize::try_from(take.field::<u32>(field)?).unwrap_or(usize::MAX);
        take.list(field, (count, DIGESTS_MAX), 16)
    }
}

/// Sizes of volumes.
impl Field for Vec<u64> {
    fn put(&self, field: &'static str, out: &mut Vec<u8>) -> Result<(), WireError> {
        put_count(field, (self.len(), usize::from(VOLUMES_MAX)), out, true)?;
        sound(self.iter().all(|size| *size <= VOLUME_LEN_MAX), field)?;
        self.iter().try_for_each(|size| size.put(field, out))
    }

    fn take(field: &'static str, take: &mut Take<'_>) -> Result<Self, WireError> {
        let count = usize::from(take.field::<u8>(field)?);
        let sizes = take.list(field, (count, usize::from(VOLUMES_MAX)), 8)?;
        sound(sizes.iter().all(|size| *size <= VOLUME_LEN_MAX), field)?;
        Ok(sizes)
    }
}

/// Digests of one [`crate::message::Message::Digests`] at most: those of 64 MiB.
pub const DIGESTS_MAX: usize = 1024;
/// Bytes of an epoch and where it begins.
pub(super) const EPOCH_START_LEN: usize = 16 + 8 + 1;
/// Flags of an epoch.
const FORCED: u8 = 1;
const SEALED: u8 = 2;
/// Bytes of an LSN and an extent.
pub(super) const RECENT_LEN: usize = 8 + 17;
