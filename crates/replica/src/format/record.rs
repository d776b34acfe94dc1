//! A record: one change of one volume, and its place in the order of the group.

use log::Lsn;

/// Bytes of a record's header; the payload follows, then zeros to a multiple of [`RECORD_ALIGN`].
pub const RECORD_HEADER_LEN: u64 = 64;
/// Records begin at multiples of this.
pub const RECORD_ALIGN: u64 = 64;
/// Bytes of a payload at most. A longer write is several records.
pub const PAYLOAD_MAX: u32 = 1 << 20;
/// Volumes of a group at most.
pub const VOLUMES_MAX: u8 = 16;

/// What a record does. The numbers are those of the format.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Kind {
    /// The payload is written.
    Write = 1,
    /// The range reads as zeroes afterwards, and may lose its space.
    Trim = 2,
    /// The range reads as zeroes afterwards, and keeps its space.
    Zero = 3,
    /// The payload is the digest of the range as all records before this one left it: 16 bytes.
    Verify = 4,
    /// A point with a name, which is the payload: UTF-8, 1 to 255 bytes.
    Mark = 5,
    /// The volume has `len` bytes from here on.
    Resize = 6,
    /// A source has begun an epoch: the payload is its nonce, 8 bytes.
    Epoch = 7,
    /// Nothing: fills what is left at the end of the ring. No payload is stored.
    Pad = 8,
}

/// How a payload lies in the ring. The numbers are those of the format.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Encoding {
    /// As it is.
    #[default]
    Plain = 0,
    /// Compressed by LZ4, a block without a frame.
    Lz4 = 1,
    /// Compressed by Zstandard.
    Zstd = 2,
}

/// A record, without its payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Record {
    /// Its address in the order of the group; a multiple of [`RECORD_ALIGN`]. It lies in the ring at `lsn % capacity`,
    /// and does not cross the end of the ring.
    pub lsn: Lsn,
    /// [`crate::Epoch::tag`] of the epoch whose source made it.
    pub epoch: u32,
    /// Checksum of the header of the record before it; 0 where there is none.
    pub chain: u32,
    /// What it does.
    pub kind: Kind,
    /// How its payload is stored.
    pub encoding: Encoding,
    /// The volume, below [`VOLUMES_MAX`]; 0 where it concerns none.
    pub volume: u8,
    /// Bytes of payload as they lie in the ring; of [`Kind::Pad`], bytes to the end of the ring behind the header.
    pub stored: u32,
    /// Where in the volume the range begins, in bytes.
    pub offset: u64,
    /// Length of the range, in bytes; of [`Kind::Write`] also that of the payload once it is decoded.
    pub len: u64,
    /// When the source made it: nanoseconds since 1970. Says how old a copy is; nothing is decided by it.
    pub time_ns: u64,
    /// Everything below this was committed when the record was made.
    pub committed: Lsn,
}

impl Record {
    /// Bytes from the start of the record to the start of the next one.
    pub const fn span(&self) -> u64 {
        (RECORD_HEADER_LEN + self.stored as u64).next_multiple_of(RECORD_ALIGN)
    }

    /// The LSN of the next record.
    pub fn end(&self) -> Lsn {
        self.lsn.plus(self.span())
    }

    /// The bytes of a volume that the record changes.
    pub fn changes(&self) -> Option<Extent> {
        match self.kind {
            Kind::Write | Kind::Trim | Kind::Zero => {
                Some(Extent { volume: self.volume, offset: self.offset, len: self.len })
            }
            Kind::Verify | Kind::Mark | Kind::Resize | Kind::Epoch | Kind::Pad => None,
        }
    }
}

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Extent {
    /// The volume.
    pub volume: u8,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub len: u64,
}
