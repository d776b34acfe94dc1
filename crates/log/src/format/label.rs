//! The label: what a member of a log knows of the log beside its records.
//!
//! ```text
//!   0 "LFTAILOG" 8 | version 4 | crc 4 | id 16 | sequence 8 | generation 4 | flags 4 | capacity 8 |
//!  56 start lsn 8 | opened lsn 8 | set epoch 8 | in sync 4 | unit 4 | members 1 | member 1 | least 1 | 0 |
//!  92 key check 16 | settled lsn 8 (of an archive) | reserved 12
//! ```
//! Little-endian, 128 bytes. The label with sequence `n` lies in slot `n % 2`; of two sound labels the one with the
//! greater sequence is in force. The store that changes a label is the one that makes its checksum right.
//!
//! Spec: ours, docs/tail-log.md.

use thiserror::Error;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{ALIGNMENT, LogId, crc32c};
use crate::lsn::{Generation, Lsn};
use crate::members::{MEMBERS_MAX, MemberSet};

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    id: LogId,
    sequence: U64,
    generation: U32,
    flags: U32,
    capacity: U64,
    start: U64,
    opened: U64,
    set_epoch: U64,
    in_sync: U32,
    unit: U32,
    members: u8,
    member: u8,
    least_in_sync: u8,
    padding: u8,
    key_check: [u8; 16],
    settled: U64,
    reserved: [u8; 12],
}

const _: () = assert!(size_of::<Wire>() == LABEL_LEN);

/// Bytes of a label.
pub(crate) const LABEL_LEN: usize = 128;
/// Bytes from one slot to the next: no unit of any medium has parts of both.
pub(crate) const SLOT_LEN: u64 = 4096;
/// Smallest ring.
pub(crate) const CAPACITY_MIN: u64 = 4096;
pub(crate) const MAGIC: [u8; 8] = *b"LFTAILOG";
const VERSION: u32 = 1;
/// Records were sealed by one key for all openings. No log is made so any more.
const SEALED_BY_ONE_KEY: u32 = 1;
const SEALED: u32 = 4;
const ARCHIVE: u32 = 2;

/// What a member knows of its log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Label {
    /// Names the log.
    pub(crate) id: LogId,
    /// How many labels this member has had.
    pub(crate) sequence: u64,
    /// The ownership that may append.
    pub(crate) generation: Generation,
    /// Whether records are sealed, and what tells whether a key is the log's.
    pub(crate) key_check: Option<[u8; 16]>,
    /// Bytes of the ring.
    pub(crate) capacity: u64,
    /// The oldest record that is kept.
    pub(crate) start: Lsn,
    /// Where the log ended when this generation began: what lies before is durable, and records of other generations
    /// that lie behind were not in the log then and never will be.
    pub(crate) opened: Lsn,
    /// Commits end at multiples of this many bytes.
    pub(crate) unit: u32,
    /// Grows with each opening and each change of the set of members in sync.
    pub(crate) set_epoch: u64,
    /// The members that have every acknowledged record.
    pub(crate) in_sync: MemberSet,
    /// How many members the log has, in sync or not.
    pub(crate) members: u8,
    /// Which member this is.
    pub(crate) member: u8,
    /// The log stops when fewer are in sync.
    pub(crate) least_in_sync: u8,
    /// Of an archive: what is known to be durable there. No member has it.
    pub(crate) settled: Option<Lsn>,
}

impl Label {
    /// Reads the label of a slot.
    ///
    /// # Errors
    ///
    /// The first reason that the bytes are no label of a log that this version can open.
    pub(crate) fn parse(bytes: &[u8; LABEL_LEN]) -> Result<Self, LabelError> {
        let wire = Wire::read_from_bytes(bytes).map_err(|_| LabelError::NoLabel)?;
        if wire.magic != MAGIC {
            return Err(LabelError::NoLabel);
        }
        if wire.crc.get() != checksum(wire) {
            return Err(LabelError::Checksum);
        }
        if wire.version.get() != VERSION {
            return Err(LabelError::Version { found: wire.version.get(), known: VERSION });
        }
        if wire.flags.get() & SEALED_BY_ONE_KEY != 0 {
            return Err(LabelError::SealedByOneKey);
        }
        let label = Self {
            id: wire.id,
            sequence: wire.sequence.get(),
            generation: Generation(wire.generation.get()),
            key_check: (wire.flags.get() & SEALED != 0).then_some(wire.key_check),
            capacity: wire.capacity.get(),
            start: Lsn(wire.start.get()),
            opened: Lsn(wire.opened.get()),
            unit: wire.unit.get(),
            set_epoch: wire.set_epoch.get(),
            in_sync: MemberSet::from_bits(wire.in_sync.get()),
            members: wire.members,
            member: wire.member,
            least_in_sync: wire.least_in_sync,
            settled: (wire.flags.get() & ARCHIVE != 0).then_some(Lsn(wire.settled.get())),
        };
        if label.is_sound() && wire.flags.get() & !(SEALED | ARCHIVE) == 0 {
            Ok(label)
        } else {
            Err(LabelError::Nonsense)
        }
    }

    fn is_sound(&self) -> bool {
        let unit = u64::from(self.unit);
        (CAPACITY_MIN..=u64::MAX / 4).contains(&self.capacity)
            && unit.is_power_of_two()
            && (ALIGNMENT..=CAPACITY_MIN).contains(&unit)
            && self.capacity.is_multiple_of(CAPACITY_MIN)
            && self.start.0 <= u64::MAX / 4
            && self.start.0.is_multiple_of(ALIGNMENT)
            && self.opened.0 <= u64::MAX / 4
            && self.opened.0.is_multiple_of(ALIGNMENT)
            // Each of these grows by one with an opening.
            && self.generation.0 < u32::MAX
            && self.sequence <= u64::MAX / 4
            && self.set_epoch <= u64::MAX / 4
            && (1..=MEMBERS_MAX).contains(&usize::from(self.members))
            && self.member < self.members
            && (1..=self.members).contains(&self.least_in_sync)
            && !self.in_sync.is_empty()
            && self.in_sync.is_within(self.members)
            && self
                .settled
                .is_none_or(|lsn| lsn.0 <= u64::MAX / 4 && lsn.0.is_multiple_of(ALIGNMENT))
    }

    /// The bytes of the label.
    pub(crate) fn emit(&self) -> [u8; LABEL_LEN] {
        let sealed = if self.key_check.is_some() { SEALED } else { 0 };
        let archive = if self.settled.is_some() { ARCHIVE } else { 0 };
        let mut wire = Wire {
            magic: MAGIC,
            version: VERSION.into(),
            crc: U32::ZERO,
            id: self.id,
            sequence: self.sequence.into(),
            generation: self.generation.0.into(),
            flags: (sealed | archive).into(),
            capacity: self.capacity.into(),
            start: self.start.0.into(),
            opened: self.opened.0.into(),
            unit: self.unit.into(),
            set_epoch: self.set_epoch.into(),
            in_sync: self.in_sync.bits().into(),
            members: self.members,
            member: self.member,
            least_in_sync: self.least_in_sync,
            padding: 0,
            key_check: self.key_check.unwrap_or_default(),
            settled: self.settled.unwrap_or_default().0.into(),
            reserved: [0; 12],
        };
        wire.crc = checksum(wire).into();
        zerocopy::transmute!(wire)
    }

    /// Where in the member's memory the label lies.
    pub(crate) fn slot(&self) -> u64 {
        (self.sequence % 2) * SLOT_LEN
    }
}

fn checksum(mut wire: Wire) -> u32 {
    wire.crc = U32::ZERO;
    crc32c(&[wire.as_bytes()])
}

/// Why bytes are no label.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum LabelError {
    /// There is no label of a log.
    #[error("there is no log")]
    NoLabel,
    /// The label is damaged, or was being written in a crash.
    #[error("the label of the log is damaged")]
    Checksum,
    /// An archive, which is no member: [`crate::Archive`] opens it.
    #[error("this is the archive of a log, and no member of one")]
    Archive,
    /// A member of a log, which is no archive.
    #[error("this is a member of a log, and no archive")]
    Member,
    /// Another version of this program made the log.
    #[error("the log has format version {found}, this program knows {known}")]
    Version {
        /// The version of the log.
        found: u32,
        /// The version that this program writes.
        known: u32,
    },
    /// An earlier version of this program sealed the records, in a form that this version does not open.
    #[error(
        "an earlier version of this program sealed the log by one key for all openings: empty the log with that version, \
         and make a new one"
    )]
    SealedByOneKey,
    /// The checksum is right and the numbers are not.
    #[error("the label of the log holds numbers that no log has")]
    Nonsense,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label() -> Label {
        Label {
            id: *b"sixteen bytes id",
            sequence: 3,
            generation: Generation(2),
            key_check: None,
            capacity: 8192,
            start: Lsn(64),
            opened: Lsn(128),
            unit: 64,
            set_epoch: 1,
            in_sync: MemberSet::of(&[0, 1]),
            members: 2,
            member: 1,
            least_in_sync: 1,
            settled: None,
        }
    }

    #[test]
    fn what_was_emitted_parses_to_the_same_label() {
        assert_eq!(Label::parse(&label().emit()), Ok(label()));
        let sealed = Label { key_check: Some([7; 16]), ..label() };
        assert_eq!(Label::parse(&sealed.emit()), Ok(sealed));
        let archive = Label { settled: Some(Lsn(192)), ..label() };
        assert_eq!(Label::parse(&archive.emit()), Ok(archive));
        assert_eq!(label().slot(), SLOT_LEN);
    }

    #[test]
    fn a_label_with_one_changed_bit_is_refused() {
        let bytes = label().emit();
        for bit in 0..LABEL_LEN * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Label::parse(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_label_with_numbers_of_no_log_is_refused() {
        let nonsense = [
            Label { capacity: 0, ..label() },
            Label { capacity: 4096 + 64, ..label() },
            Label { unit: 48, ..label() },
            Label { start: Lsn(1), ..label() },
            Label { opened: Lsn(1), ..label() },
            Label { generation: Generation(u32::MAX), ..label() },
            Label { sequence: u64::MAX, ..label() },
            Label { set_epoch: u64::MAX, ..label() },
            Label { member: 2, ..label() },
            Label { least_in_sync: 3, ..label() },
            Label { in_sync: MemberSet::of(&[2]), ..label() },
            Label { in_sync: MemberSet::from_bits(0), ..label() },
        ];
        for label in nonsense {
            assert_eq!(Label::parse(&label.emit()), Err(LabelError::Nonsense), "{label:?}");
        }
    }
}
