//! The records of metadata: JSON that this module alone reads and writes (docs/store.md has the format).
//!
//! `parse` is the door for bytes of others: what it returns can be used without a further look.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use pmem::DurabilityClass;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ids::{ClientId, KeyMark, RegionId, StoreId, is_name};
use crate::layout::Striping;

/// A region: where its bytes are.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RegionRecord {
    /// The version of the format.
    pub format: u32,
    /// The region for good; a later region of the same name has another number.
    pub id: RegionId,
    /// Length in bytes.
    pub size: u64,
    /// Bytes that lie together on a server.
    pub unit: u64,
    /// Copies that are wanted of each piece.
    pub copies: u32,
    /// The durability class of all copies.
    pub class: Class,
    /// Grows when the copies that a write has to reach become more: mappings of earlier epochs end.
    pub epoch: u64,
    /// Grows when tokens are revoked: daemons refuse earlier ones.
    pub generation: u64,
    /// Whether it is ready.
    pub state: RegionState,
    /// The client with which the region goes; `None`: it stays until it is freed.
    pub owner: Option<ClientId>,
    /// The pieces, in order.
    pub pieces: Vec<PieceRecord>,
}

/// The life of a region.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegionState {
    /// Its pieces are being made; if its maker dies it is removed.
    Creating,
    /// It can be mapped.
    Ready,
    /// Its pieces are being removed.
    Freeing,
}

/// One piece and its copies, the first one of those in sync first in rank.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PieceRecord {
    /// The copies, on different servers.
    pub copies: Vec<CopyRecord>,
}

/// One copy of a piece.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CopyRecord {
    /// The server's name.
    pub server: String,
    /// Whether it has everything that was acknowledged.
    pub state: CopyState,
}

/// What a copy is worth.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyState {
    /// It has every acknowledged write: it may be read, and every write must reach it.
    InSync,
    /// It is being filled: every write must reach it, after the copies in sync, and nobody reads it.
    Syncing,
    /// A write was acknowledged without it: nobody uses it.
    Stale,
}

/// A durability class in JSON.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Memory that power loss erases.
    Volatile,
    /// A disk.
    Storage,
    /// Persistent memory.
    Pmem,
}

impl From<DurabilityClass> for Class {
    fn from(class: DurabilityClass) -> Self {
        match class {
            DurabilityClass::Volatile => Self::Volatile,
            DurabilityClass::Storage => Self::Storage,
            DurabilityClass::Pmem => Self::Pmem,
        }
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Volatile => "volatile",
            Self::Storage => "storage",
            Self::Pmem => "pmem",
        })
    }
}

/// A daemon that holds pieces.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServerRecord {
    /// The version of the format.
    pub format: u32,
    /// Where it takes control messages.
    pub control: SocketAddr,
    /// The class of its pieces.
    pub class: Class,
    /// Whether commits of volatile memory are answered as if they were durable.
    pub emulated: bool,
    /// Bytes that it may give to pieces.
    pub capacity: u64,
    /// Bytes of them that are free.
    pub free: u64,
    /// Grows with each start of the daemon, and each time when it was declared dead.
    pub incarnation: u64,
    /// Grows with each sign of life.
    pub beat: u64,
    /// After this time without a new beat, by the watch of whoever looks, the daemon may be declared dead.
    pub lease_ms: u64,
    /// Whether it serves.
    pub state: ServerState,
}

/// Whether a daemon serves.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerState {
    /// It does, as long as its beats go on.
    Alive,
    /// It was declared dead, or has stopped.
    Dead,
}

/// A client that owns regions, or writes to regions of several copies.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClientRecord {
    /// The version of the format.
    pub format: u32,
    /// Grows with each sign of life.
    pub beat: u64,
    /// After this time without a new beat the client may be declared dead.
    pub lease_ms: u64,
    /// Whether it was declared dead.
    pub dead: bool,
    /// The names of the regions with several copies that it has mapped to write.
    pub writes: BTreeSet<String>,
}

/// The store itself.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StoreRecord {
    /// The version of the format.
    pub format: u32,
    /// Its number.
    pub id: StoreId,
    /// Of which key it is; none in a store that an earlier version made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyMark>,
}

impl StoreRecord {
    /// The record of a store.
    pub fn new(id: StoreId, key: KeyMark) -> Self {
        Self { format: FORMAT, id, key: Some(key) }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// The bytes are no record, or a record that cannot be.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: Self = json(bytes)?;
        match (record.format == FORMAT, record.id.0 != 0) {
            (true, true) => Ok(record),
            (false, _) => Err(RecordError::Nonsense("format")),
            _ => Err(RecordError::Nonsense("id")),
        }
    }

    /// The record as bytes.
    pub fn emit(&self) -> Vec<u8> {
        emit(self)
    }
}

impl RegionRecord {
    /// The striping.
    pub fn striping(&self) -> Striping {
        let width = u32::try_from(self.pieces.len()).expect("checked when it was read");
        Striping { size: self.size, unit: self.unit, width }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// The bytes are no record, or a record that cannot be.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: Self = json(bytes)?;
        record.check()?;
        Ok(record)
    }

    /// The record as bytes.
    pub fn emit(&self) -> Vec<u8> {
        emit(self)
    }

    fn check(&self) -> Result<(), RecordError> {
        let is = |is_so: bool, what| if is_so { Ok(()) } else { Err(RecordError::Nonsense(what)) };
        is(self.format == FORMAT, "format")?;
        is(self.id.0 != 0, "id")?;
        is((1..=SIZE_MAX).contains(&self.size), "size")?;
        is((UNIT_MIN..=SIZE_MAX).contains(&self.unit) && self.unit.is_multiple_of(8), "unit")?;
        is((1..=COPIES_MAX).contains(&self.copies), "copies")?;
        is((1..=PIECES_MAX).contains(&self.pieces.len()), "pieces")?;
        for piece in &self.pieces {
            let names: BTreeSet<_> = piece.copies.iter().map(|copy| &copy.server).collect();
            is(names.len() == piece.copies.len(), "a server twice")?;
            is((1..=PIECE_COPIES_MAX).contains(&names.len()), "copies of a piece")?;
            is(names.iter().all(|name| is_name(name)), "server")?;
        }
        Ok(())
    }
}

impl ServerRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// The bytes are no record, or a record that cannot be.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: Self = json(bytes)?;
        let is_lease = (LEASE_MS_MIN..=LEASE_MS_MAX).contains(&record.lease_ms);
        match (record.format == FORMAT, is_lease, record.free <= record.capacity) {
            (true, true, true) => Ok(record),
            (false, ..) => Err(RecordError::Nonsense("format")),
            (_, false, _) => Err(RecordError::Nonsense("lease_ms")),
            _ => Err(RecordError::Nonsense("free")),
        }
    }

    /// The record as bytes.
    pub fn emit(&self) -> Vec<u8> {
        emit(self)
    }
}

impl ClientRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// The bytes are no record, or a record that cannot be.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: Self = json(bytes)?;
        if record.format != FORMAT {
            return Err(RecordError::Nonsense("format"));
        }
        if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&record.lease_ms) {
            return Err(RecordError::Nonsense("lease_ms"));
        }
        if record.writes.len() > CLIENT_WRITES_MAX
            || !record.writes.iter().all(|name| is_name(name))
        {
            return Err(RecordError::Nonsense("writes"));
        }
        Ok(record)
    }

    /// The record as bytes.
    pub fn emit(&self) -> Vec<u8> {
        emit(self)
    }
}

fn json<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Result<T, RecordError> {
    if bytes.len() > RECORD_MAX {
        return Err(RecordError::TooLong { len: bytes.len() });
    }
    serde_json::from_slice(bytes).map_err(|_| RecordError::Syntax)
}

fn emit<T: Serialize>(record: &T) -> Vec<u8> {
    serde_json::to_vec(record).expect("numbers and texts have a form in JSON")
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum RecordError {
    /// More bytes than a record has.
    #[error("{len} bytes are more than a record has")]
    TooLong {
        /// The number.
        len: usize,
    },
    /// No JSON of a record.
    #[error("this is no JSON of a record")]
    Syntax,
    /// A value that cannot be.
    #[error("the value of {0} cannot be")]
    Nonsense(&'static str),
}

/// The version of the format.
pub const FORMAT: u32 = 1;
/// Bytes of a record at most: below etcd's bound of a value, 1.5 MiB.
pub const RECORD_MAX: usize = 1 << 20;
/// The longest region: 1 PiB.
pub const SIZE_MAX: u64 = 1 << 50;
/// The smallest unit.
pub const UNIT_MIN: u64 = 4096;
/// Pieces of a region at most, with three copies below [`RECORD_MAX`].
pub const PIECES_MAX: usize = 1024;
/// Copies that can be wanted.
pub const COPIES_MAX: u32 = 3;
/// Copies of a piece that a record lists, stale ones and those being filled included.
pub const PIECE_COPIES_MAX: usize = 8;
/// Regions with copies that one client writes to at a time.
pub const CLIENT_WRITES_MAX: usize = 1024;
const LEASE_MS_MIN: u64 = 50;
const LEASE_MS_MAX: u64 = 300_000;

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: &str = r#"{"format":1,"id":"00000000000000ff","size":10000,"unit":4096,"copies":2,"class":"volatile","epoch":3,"generation":1,"state":"ready","owner":null,"pieces":[{"copies":[{"server":"a","state":"in-sync"},{"server":"b","state":"stale"}]}]}"#;

    #[test]
    fn a_region_record_is_read_as_the_document_writes_it() {
        let record = RegionRecord::parse(REGION.as_bytes()).unwrap();
        assert_eq!((record.id, record.size, record.epoch), (RegionId(255), 10_000, 3));
        assert_eq!(record.pieces[0].copies[1].state, CopyState::Stale);
        assert_eq!(RegionRecord::parse(&record.emit()), Ok(record));
    }

    #[test]
    fn records_that_cannot_be_are_refused_by_the_name_of_the_value() {
        for (old, new, value) in [
            ("\"format\":1", "\"format\":2", "format"),
            ("10000", "0", "size"),
            ("4096", "100", "unit"),
            ("\"copies\":2", "\"copies\":4", "copies"),
            ("\"b\"", "\"a\"", "a server twice"),
            ("\"b\"", "\"../b\"", "server"),
            ("00000000000000ff", "0000000000000000", "id"),
        ] {
            let text = REGION.replace(old, new);
            assert_eq!(RegionRecord::parse(text.as_bytes()), Err(RecordError::Nonsense(value)));
        }
        for text in ["", "{}", "[]", &REGION[1..]] {
            assert_eq!(RegionRecord::parse(text.as_bytes()), Err(RecordError::Syntax));
        }
        let long = vec![b' '; RECORD_MAX + 1];
        assert!(matches!(RegionRecord::parse(&long), Err(RecordError::TooLong { .. })));
    }
}
