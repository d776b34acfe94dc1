//! The label: what a member knows for certain about itself and the group.
//!
//! ```text
//!   0 "LFREPLIC" 8 | version 4 | crc 4 | group 16 | sequence 8 | capacity 8 |
//!  48 member 1 | maps 1 | volumes 1 | flags 1 | pages of a volume 4 | start 8 | committed 8 |
//!  72 start chain 4 | in sync 1 | contents 1 | epochs 1 | positions known 1 | set version 8 | mixed until 8 |
//!  96 bound 8 | positions 8 x 8 | handed to 1 | suspended 1 | 0 6 | key check 8 | 0 8 |
//! 192 epochs 64 x (number 4 | restart 4 | nonce 8 | start 8 | flags 4 | 0 4) |
//!2240 sizes 16 x 8 | zeros to 4096
//! ```
//! Little-endian. The version is 4 where epochs are sealed, 3 where members are suspended, 2 where a member is named to which the source handed over, and
//! 1 otherwise: a program that does not know what that means refuses such a label, and reads all others. The checksum is CRC-32C of the 4096 bytes with the field zero; the store that makes it right is the one
//! that changes the label. Of two sound labels the one with the greater sequence is in force.
//!
//! Spec: ours, docs/replica-format.md.

use log::Lsn;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FormatError, NUMBER_MAX, RECORD_ALIGN, VOLUME_LEN_MAX, VOLUMES_MAX, crc32c};
use crate::dirty::{DIRTY_PAGE_LEN, DIRTY_PAGES};
use crate::names::{
    EPOCHS_MAX, Epoch, EpochStart, GroupId, History, MEMBERS_MAX, MemberId, MemberSet,
};

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    group: [u8; 16],
    sequence: U64,
    capacity: U64,
    member: u8,
    maps: u8,
    volumes: u8,
    flags: u8,
    volume_pages: U32,
    start: U64,
    committed: U64,
    start_chain: U32,
    in_sync: u8,
    contents: u8,
    epochs_len: u8,
    known: u8,
    set_version: U64,
    mixed_until: U64,
    bound: U64,
    positions: [U64; MEMBERS_MAX as usize],
    handed_to: u8,
    suspended: u8,
    padding: [u8; 6],
    key_check: U64,
    reserved_before: [u8; 8],
    epochs: [WireEpoch; EPOCHS_MAX],
    sizes: [U64; VOLUMES_MAX as usize],
    reserved:
        [u8; LABEL_LEN - 192 - size_of::<WireEpoch>() * EPOCHS_MAX - 8 * VOLUMES_MAX as usize],
}

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireEpoch {
    number: U32,
    restart: U32,
    nonce: U64,
    start: U64,
    flags: U32,
    padding: U32,
}

const _: () = assert!(size_of::<Wire>() == LABEL_LEN);

/// Bytes of a label, and from one slot to the next.
pub(crate) const LABEL_LEN: usize = 4096;
/// Smallest ring, and what its capacity is a multiple of.
pub(crate) const CAPACITY_MIN: u64 = 4096;
const MAGIC: [u8; 8] = *b"LFREPLIC";
const VERSION: u32 = 1;
/// Of a label that names to whom its source has handed over.
const VERSION_HANDED: u32 = 2;
/// Of a label that names members to whom its source sends nothing.
const VERSION_SUSPENDED: u32 = 3;
/// Of a label whose history has sealed epochs.
const VERSION_SEALED: u32 = 4;
/// Flag of a label: the member was the source.
const SOURCE: u8 = 1;
/// Flag of an epoch: its source was promoted by force.
const FORCED: u32 = 1;
/// Flag of an epoch: its records are sealed.
const SEALED: u32 = 2;
const CONSISTENT: u8 = 0;
const MIXED: u8 = 1;
const MIXED_UNTIL: u8 = 2;

/// How much room a member's memory has for what.
///
/// ```text
///      0 label | 4096 label | 8192 dirty map of member 0 | of member 1 ... | ring of records
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Geometry {
    /// Bytes of the ring; the same at every member.
    pub capacity: u64,
    /// Members for whose dirty maps there is room.
    pub maps: u8,
    /// Volumes for whose dirty bits there is room.
    pub volumes: u8,
    /// Pages of dirty bits of each volume.
    pub volume_pages: u32,
}

impl Geometry {
    /// Room for the maps of all members and of `volumes` volumes of any size.
    pub const fn new(capacity: u64, volumes: u8) -> Self {
        Self { capacity, maps: MEMBERS_MAX, volumes, volume_pages: DIRTY_PAGES }
    }

    /// Whether memory can be divided so.
    pub fn is_sound(&self) -> bool {
        (CAPACITY_MIN..=NUMBER_MAX).contains(&self.capacity)
            && self.capacity.is_multiple_of(CAPACITY_MIN)
            && self.maps <= MEMBERS_MAX
            && self.volumes <= VOLUMES_MAX
            && self.volume_pages <= DIRTY_PAGES
    }

    /// Where the label of a slot lies.
    pub(crate) const fn label(slot: u8) -> u64 {
        slot as u64 * LABEL_LEN as u64
    }

    /// Bytes of one dirty map.
    pub(crate) fn map_len(&self) -> u64 {
        u64::from(self.volumes) * u64::from(self.volume_pages) * DIRTY_PAGE_LEN as u64
    }

    /// Where the dirty map of a member lies, if there is room for it.
    pub(crate) fn map(&self, member: MemberId) -> Option<u64> {
        let before = Self::label(2);
        (member.0 < self.maps).then(|| before + u64::from(member.0) * self.map_len())
    }

    /// Where the ring begins.
    pub fn ring(&self) -> u64 {
        Self::label(2) + u64::from(self.maps) * self.map_len()
    }

    /// Bytes of all.
    pub fn total(&self) -> u64 {
        self.ring() + self.capacity
    }
}

/// What a member keeps beside its ring. Two slots; the sound one with the greater sequence is in force.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Label {
    /// The group.
    pub group: GroupId,
    /// Which member this is.
    pub member: MemberId,
    /// How many labels the member has had.
    pub sequence: u64,
    /// The epochs that made the order. The bytes of the ring at an LSN count only if they are of the epoch that the
    /// history has there.
    pub history: History,
    /// Oldest record that the ring keeps. Everything below it is durable in the volumes.
    pub start: Lsn,
    /// Checksum of the header of the record before `start`, which the record there names.
    pub start_chain: u32,
    /// Everything below this is known to be committed.
    pub committed: Lsn,
    /// What the volumes hold is below this, if the member is no source and knows of no later committed record.
    pub bound: Lsn,
    /// Who has every acknowledged record, as far as this member knows.
    pub in_sync: MemberSet,
    /// How often `in_sync` has changed in this epoch.
    pub set_version: u64,
    /// Whether this member was the source when the label was stored.
    pub is_source: bool,
    /// At the source: the member that was, or is about to be, told to take over. It may be the source by now.
    pub handed_to: Option<MemberId>,
    /// At the source: members to whom an operator has it send nothing until they are resumed.
    pub suspended: MemberSet,
    /// Where bytes from `start` on may be of a sealed epoch: [`super::RecordKeys::check`] of the keys; otherwise 0.
    pub key_check: u64,
    /// What the volumes of this member hold.
    pub contents: Contents,
    /// At the source: what it knows of the other members.
    pub positions: [Position; MEMBERS_MAX as usize],
    /// Bytes of each volume where the ring's oldest record lies; 0 where that is not recorded: the operator's file says it.
    pub sizes: [u64; VOLUMES_MAX as usize],
}

impl Label {
    /// The label's bytes.
    ///
    /// # Panics
    ///
    /// If the numbers are those of no label: [`Label::decode`] would refuse them after a crash.
    pub fn encode(&self, geometry: &Geometry) -> [u8; LABEL_LEN] {
        assert!(self.is_sound() && geometry.is_sound(), "a label that nobody could read: {self:?}");
        let (contents, mixed_until) = match self.contents {
            Contents::Consistent => (CONSISTENT, Lsn(0)),
            Contents::Mixed => (MIXED, Lsn(0)),
            Contents::MixedUntil(until) => (MIXED_UNTIL, until),
        };
        let (mut known, mut positions) = (0, [U64::ZERO; MEMBERS_MAX as usize]);
        for (at, position) in self.positions.iter().enumerate() {
            if let Position::Has(lsn) = position {
                known |= 1 << at;
                positions[at] = lsn.0.into();
            }
        }
        let mut epochs = [WireEpoch::new_zeroed(); EPOCHS_MAX];
        for (wire, epoch) in epochs.iter_mut().zip(self.history.epochs()) {
            *wire = WireEpoch {
                number: epoch.epoch.number.into(),
                restart: epoch.epoch.restart.into(),
                nonce: epoch.epoch.nonce.into(),
                start: epoch.start.0.into(),
                flags: flags_of(epoch).into(),
                padding: U32::ZERO,
            };
        }
        let mut wire = Wire {
            magic: MAGIC,
            version: self.version().into(),
            crc: U32::ZERO,
            group: self.group.0,
            sequence: self.sequence.into(),
            capacity: geometry.capacity.into(),
            member: self.member.0,
            maps: geometry.maps,
            volumes: geometry.volumes,
            flags: if self.is_source { SOURCE } else { 0 },
            volume_pages: geometry.volume_pages.into(),
            start: self.start.0.into(),
            committed: self.committed.0.into(),
            start_chain: self.start_chain.into(),
            in_sync: self.in_sync.0,
            contents,
            epochs_len: u8::try_from(self.history.epochs().len()).expect("at most EPOCHS_MAX"),
            known,
            set_version: self.set_version.into(),
            mixed_until: mixed_until.0.into(),
            bound: self.bound.0.into(),
            positions,
            handed_to: self.handed_to.map_or(0, |member| member.0 + 1),
            suspended: self.suspended.0,
            padding: [0; _],
            key_check: self.key_check.into(),
            reserved_before: [0; _],
            epochs,
            sizes: self.sizes.map(U64::new),
            reserved: [0; _],
        };
        wire.crc = checksum(&wire).into();
        zerocopy::transmute!(wire)
    }

    /// The label in the bytes of a slot, and how the member's memory is divided.
    ///
    /// # Errors
    ///
    /// The first reason why the bytes are no label that this version can use.
    pub fn decode(bytes: &[u8; LABEL_LEN]) -> Result<(Self, Geometry), FormatError> {
        let wire = Wire::ref_from_bytes(bytes).map_err(|_| FormatError::NoLabel)?;
        if wire.magic != MAGIC {
            return Err(FormatError::NoLabel);
        }
        if wire.crc.get() != checksum(wire) {
            return Err(FormatError::LabelChecksum);
        }
        let found = wire.version.get();
        if !matches!(found, VERSION | VERSION_HANDED | VERSION_SUSPENDED | VERSION_SEALED) {
            return Err(FormatError::LabelVersion { found, known: VERSION_SEALED });
        }
        let label = Self::of(wire).ok_or(FormatError::LabelNumbers)?;
        // What has no meaning is zero, so that a later version can give it one.
        if label.0.encode(&label.1) == *bytes { Ok(label) } else { Err(FormatError::LabelNumbers) }
    }

    fn version(&self) -> u32 {
        match self.handed_to {
            _ if self.history.is_sealed() => VERSION_SEALED,
            _ if self.suspended != MemberSet::NONE => VERSION_SUSPENDED,
            Some(_) => VERSION_HANDED,
            None => VERSION,
        }
    }

    /// `None` if a number is that of no label.
    fn of(wire: &Wire) -> Option<(Self, Geometry)> {
        let geometry = Geometry {
            capacity: wire.capacity.get(),
            maps: wire.maps,
            volumes: wire.volumes,
            volume_pages: wire.volume_pages.get(),
        };
        let (epochs, _) = wire.epochs.split_at_checked(usize::from(wire.epochs_len))?;
        let epochs = epochs.iter().map(|epoch| EpochStart {
            epoch: Epoch {
                number: epoch.number.get(),
                restart: epoch.restart.get(),
                nonce: epoch.nonce.get(),
            },
            start: Lsn(epoch.start.get()),
            is_forced: epoch.flags.get() & FORCED != 0,
            is_sealed: epoch.flags.get() & SEALED != 0,
        });
        let contents = match wire.contents {
            CONSISTENT => Contents::Consistent,
            MIXED => Contents::Mixed,
            MIXED_UNTIL => Contents::MixedUntil(Lsn(wire.mixed_until.get())),
            _ => return None,
        };
        let mut positions = [Position::Unknown; MEMBERS_MAX as usize];
        for (at, (position, lsn)) in positions.iter_mut().zip(wire.positions).enumerate() {
            if wire.known & (1 << at) != 0 {
                *position = Position::Has(Lsn(lsn.get()));
            }
        }
        let label = Self {
            group: GroupId(wire.group),
            member: MemberId(wire.member),
            sequence: wire.sequence.get(),
            history: History::new(epochs.collect())?,
            start: Lsn(wire.start.get()),
            start_chain: wire.start_chain.get(),
            committed: Lsn(wire.committed.get()),
            bound: Lsn(wire.bound.get()),
            in_sync: MemberSet(wire.in_sync),
            set_version: wire.set_version.get(),
            is_source: wire.flags & SOURCE != 0,
            handed_to: wire.handed_to.checked_sub(1).map(MemberId),
            suspended: MemberSet(wire.suspended),
            key_check: wire.key_check.get(),
            contents,
            positions,
            sizes: wire.sizes.map(U64::get),
        };
        (label.is_sound() && geometry.is_sound()).then_some((label, geometry))
    }

    /// Whether a label may have these numbers.
    pub fn is_sound(&self) -> bool {
        let is_address = |lsn: Lsn| lsn.0 <= NUMBER_MAX && lsn.0.is_multiple_of(RECORD_ALIGN);
        let until = match self.contents {
            Contents::MixedUntil(until) => until,
            Contents::Consistent | Contents::Mixed => Lsn(0),
        };
        let positions = self.positions.iter().map(|position| match position {
            Position::Has(lsn) => *lsn,
            Position::Unknown => Lsn(0),
        });
        // Only a source hands over, and not to itself.
        let is_handed_well = self
            .handed_to
            .is_none_or(|to| self.is_source && to.0 < MEMBERS_MAX && to != self.member);
        self.member.0 < MEMBERS_MAX
            && is_handed_well
            && !self.suspended.contains(self.member)
            && (self.key_check == 0 || self.history.is_sealed())
            && is_address(self.start)
            && is_address(self.committed)
            && is_address(self.bound)
            && is_address(until)
            && positions.into_iter().all(is_address)
            && self.sizes.iter().all(|size| *size <= VOLUME_LEN_MAX)
            && self.history.epochs().iter().all(|epoch| is_address(epoch.start))
    }
}

fn flags_of(epoch: &EpochStart) -> u32 {
    let forced = if epoch.is_forced { FORCED } else { 0 };
    forced | if epoch.is_sealed { SEALED } else { 0 }
}

fn checksum(wire: &Wire) -> u32 {
    let bytes = wire.as_bytes();
    // The field itself counts as zeros.
    crc32c(&[&bytes[..12], &[0; 4], &bytes[16..]])
}

/// What the volumes of a member hold.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Contents {
    /// What the records up to some LSN made of them: a copy at one moment.
    #[default]
    Consistent,
    /// Blocks of several moments; copies are missing.
    Mixed,
    /// All copies are there: a copy at one moment once everything below the LSN is applied.
    MixedUntil(Lsn),
}

/// What a source knows of another member, and has made durable.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Position {
    /// Nothing: it gets a copy of all that is not a hole.
    #[default]
    Unknown,
    /// It had everything below the LSN. What it lacks of the records from there to the ring's start, its dirty map says, and what
    /// it lacked before.
    Has(Lsn),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label() -> Label {
        let start = |number, nonce, start, is_forced| EpochStart {
            epoch: Epoch { number, restart: 5, nonce },
            start: Lsn(start),
            is_forced,
            is_sealed: false,
        };
        let mut positions = [Position::Unknown; 8];
        positions[2] = Position::Has(Lsn(0x1080));
        Label {
            group: GroupId(*b"sixteen bytes id"),
            member: MemberId(1),
            sequence: 3,
            history: History::new(vec![start(1, 0x1111, 0, false), start(4, 0x2222, 0x1040, true)])
                .unwrap(),
            start: Lsn(0x1000),
            start_chain: 0x0102_0304,
            committed: Lsn(0x1100),
            bound: Lsn(0x1140),
            in_sync: MemberSet(0b110),
            set_version: 9,
            is_source: true,
            handed_to: None,
            suspended: MemberSet::NONE,
            key_check: 0,
            contents: Contents::MixedUntil(Lsn(0x10c0)),
            positions,
            sizes: [0; _],
        }
    }

    const GEOMETRY: Geometry = Geometry { capacity: 8192, maps: 3, volumes: 2, volume_pages: 1 };

    /// The bytes of the document, made by another program, before the zeros.
    const GOLDEN: &str = include_str!("label.golden");

    /// Those of a label that names a member, which differ from the others where the document says.
    const GOLDEN_HANDED: &str = include_str!("label-handed.golden");

    fn golden() -> [u8; LABEL_LEN] {
        bytes_of(GOLDEN)
    }

    fn bytes_of(text: &str) -> [u8; LABEL_LEN] {
        let mut bytes = [0; LABEL_LEN];
        for (out, byte) in bytes.iter_mut().zip(text.split_whitespace()) {
            *out = u8::from_str_radix(byte, 16).unwrap();
        }
        bytes
    }

    #[test]
    fn a_label_has_the_bytes_of_the_document() {
        assert_eq!(label().encode(&GEOMETRY), golden());
        assert_eq!(Label::decode(&golden()), Ok((label(), GEOMETRY)));
        let document = include_str!("../../../../docs/replica-format.md");
        assert!(document.contains(GOLDEN.trim()), "the document shows other bytes");
    }

    #[test]
    fn a_label_that_names_to_whom_its_source_handed_over_has_the_bytes_of_the_document() {
        let handed = Label { handed_to: Some(MemberId(2)), ..label() };
        assert_eq!(handed.encode(&GEOMETRY), bytes_of(GOLDEN_HANDED));
        assert_eq!(Label::decode(&bytes_of(GOLDEN_HANDED)), Ok((handed, GEOMETRY)));
        let document = include_str!("../../../../docs/replica-format.md");
        let line = |at: usize| GOLDEN_HANDED.lines().nth(at).unwrap();
        // The version with the checksum, and the member.
        assert!(document.contains(line(0)) && document.contains(line(10)));
    }

    #[test]
    fn a_label_that_names_suspended_members_has_them_in_one_byte_and_another_version() {
        for handed_to in [None, Some(MemberId(2))] {
            let suspended = Label { suspended: MemberSet(0b101), handed_to, ..label() };
            let bytes = suspended.encode(&GEOMETRY);
            assert_eq!((bytes[8], bytes[169]), (3, 0b101));
            assert_eq!(Label::decode(&bytes), Ok((suspended, GEOMETRY)));
        }
    }

    #[test]
    fn a_label_whose_history_has_sealed_epochs_says_so_and_has_a_check_of_the_keys() {
        let mut epochs = label().history.epochs().to_vec();
        epochs[0].is_sealed = true;
        let history = History::new(epochs).unwrap();
        let sealed = Label { history, key_check: 0x0102_0304_0506_0708, ..label() };
        let bytes = sealed.encode(&GEOMETRY);
        assert_eq!((bytes[8], bytes[192 + 24]), (4, 2));
        assert_eq!(bytes[176..184], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(Label::decode(&bytes), Ok((sealed, GEOMETRY)));
    }

    #[test]
    fn a_label_with_one_changed_bit_is_refused() {
        for bit in (0..LABEL_LEN * 8).step_by(7) {
            let mut damaged = golden();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let expected = if bit < 64 { FormatError::NoLabel } else { FormatError::LabelChecksum };
            assert_eq!(Label::decode(&damaged), Err(expected), "bit {bit}");
        }
    }

    /// The bytes of a label that no member stores, with the right checksum.
    fn forged(change: impl FnOnce(&mut Wire)) -> [u8; LABEL_LEN] {
        let mut wire: Wire = zerocopy::transmute!(golden());
        change(&mut wire);
        wire.crc = checksum(&wire).into();
        zerocopy::transmute!(wire)
    }

    #[test]
    fn a_label_of_another_version_says_so() {
        let found = FormatError::LabelVersion { found: 5, known: 4 };
        assert_eq!(Label::decode(&forged(|wire| wire.version = 5.into())), Err(found));
    }

    #[test]
    fn a_label_with_numbers_of_no_member_is_refused() {
        let changes: [fn(&mut Wire); 31] = [
            // A version says whether epochs are sealed, and then alone there is a check of keys.
            |wire| wire.version = 4.into(),
            |wire| wire.key_check = 7.into(),
            |wire| (wire.version, wire.epochs[0].flags) = (4.into(), 4.into()),
            // A version says whether members are suspended; none suspends itself.
            |wire| wire.suspended = 4,
            |wire| wire.version = 3.into(),
            |wire| (wire.version, wire.suspended) = (3.into(), 2),
            |wire| wire.capacity = 0.into(),
            |wire| wire.capacity = 4097.into(),
            |wire| wire.capacity = u64::MAX.into(),
            |wire| wire.member = MEMBERS_MAX,
            |wire| wire.maps = MEMBERS_MAX + 1,
            |wire| wire.volumes = VOLUMES_MAX + 1,
            |wire| wire.volume_pages = (DIRTY_PAGES + 1).into(),
            |wire| wire.flags = 2,
            |wire| wire.start = 1.into(),
            |wire| wire.committed = u64::MAX.into(),
            |wire| wire.contents = 3,
            |wire| wire.epochs_len = 65,
            |wire| wire.epochs_len = 1,
            |wire| wire.epochs[1].start = 1.into(),
            |wire| wire.epochs[1].number = 1.into(),
            |wire| wire.epochs[0].flags = 2.into(),
            |wire| wire.positions[0] = 64.into(),
            |wire| wire.contents = MIXED,
            |wire| wire.reserved[9] = 1,
            // A version says whether a member is named.
            |wire| wire.handed_to = 3,
            |wire| wire.version = 2.into(),
            |wire| (wire.version, wire.handed_to) = (2.into(), MEMBERS_MAX + 1),
            |wire| (wire.version, wire.handed_to) = (2.into(), 2),
            |wire| (wire.version, wire.handed_to, wire.flags) = (2.into(), 3, 0),
            |wire| (wire.version, wire.handed_to, wire.padding[0]) = (2.into(), 3, 1),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let refused = Label::decode(&forged(change));
            assert_eq!(refused, Err(FormatError::LabelNumbers), "change {at}");
        }
    }

    #[test]
    fn the_parts_of_a_members_memory_lie_behind_each_other() {
        assert_eq!(GEOMETRY.map(MemberId(2)), Some(8192 + 2 * 8192));
        assert_eq!(GEOMETRY.map(MemberId(3)), None);
        assert_eq!((GEOMETRY.ring(), GEOMETRY.total()), (32_768, 40_960));
        let whole = Geometry::new(64 << 20, VOLUMES_MAX);
        assert_eq!(whole.ring(), 8192 + 8 * 16 * 258 * 4096);
    }
}
