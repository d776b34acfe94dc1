//! Leases: caching rights that belong to a client's key, not to one handle.
//!
//! ```text
//!  0           16      20      24           32            48      50     52
//!  +-----------+-------+-------+------------+-------------+-------+------+
//!  | key       | state | flags | duration 0 | parent key  | epoch | 0    |
//!  +-----------+-------+-------+------------+-------------+-------+------+
//!  |<------------- v1: 32 bytes ------------>|<------ v2: 52 bytes ------>|
//! ```
//!
//! Spec: MS-SMB2 §2.2.13.2.8, §2.2.13.2.10, §2.2.14.2.10, §2.2.14.2.11.

use crate::parse_error::ParseError;
use crate::wire::Reader;

/// Names a lease, chosen by the client.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LeaseKey(pub [u8; 16]);

bitflags::bitflags! {
    /// What may be cached.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct LeaseState: u32 {
        /// Reads.
        const READ = 0x01;
        /// Handles.
        const HANDLE = 0x02;
        /// Writes.
        const WRITE = 0x04;
        const _ = !0;
    }
}

/// A lease as asked for or granted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lease {
    /// Its name.
    pub key: LeaseKey,
    /// What may be cached.
    pub state: LeaseState,
    /// In a response: a break is under way.
    pub break_in_progress: bool,
    /// What only version 2 has.
    pub version: LeaseVersion,
}

/// Which of the two layouts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LeaseVersion {
    /// 2.1.
    V1,
    /// 3.0 and later.
    V2 {
        /// Lease of the directory the file is in.
        parent: Option<LeaseKey>,
        /// Counts changes of state.
        epoch: u16,
    },
}

impl Lease {
    pub(super) fn parse(data: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(data);
        let key = LeaseKey(reader.array()?);
        let state = LeaseState::from_bits_retain(reader.u32()?);
        let flags = reader.u32()?;
        reader.u64()?;
        // MS-SMB2 §3.3.5.9.11: the length of the data tells the versions apart.
        let version = if reader.rest().is_empty() {
            LeaseVersion::V1
        } else {
            let parent = LeaseKey(reader.array()?);
            let epoch = reader.u16()?;
            let parent = (flags & PARENT_KEY_SET != 0).then_some(parent);
            LeaseVersion::V2 { parent, epoch }
        };
        let break_in_progress = flags & BREAK_IN_PROGRESS != 0;
        Ok(Self { key, state, break_in_progress, version })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let mut flags = if self.break_in_progress { BREAK_IN_PROGRESS } else { 0 };
        if let LeaseVersion::V2 { parent: Some(_), .. } = self.version {
            flags |= PARENT_KEY_SET;
        }
        out.extend_from_slice(&self.key.0);
        out.extend_from_slice(&self.state.bits().to_le_bytes());
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        if let LeaseVersion::V2 { parent, epoch } = self.version {
            out.extend_from_slice(&parent.map_or([0; 16], |key| key.0));
            out.extend_from_slice(&epoch.to_le_bytes());
            out.extend_from_slice(&[0; 2]);
        }
    }
}

const BREAK_IN_PROGRESS: u32 = 0x02;
const PARENT_KEY_SET: u32 = 0x04;
