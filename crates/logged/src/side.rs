//! The file beside the base that says whether the last commits are in a log, and in which.
//!
//! ```text
//!   0   8  LFLOGGED
//!   8   4  version, 2
//!  12   4  state: 0 the base has everything, 1 the log is needed
//!  16   8  key of the file, random; every record of its log has it
//!  24  16  id of the log, or zeros while it is about to be made
//!  40   4  checksum, CRC-32C of the bytes before
//! ```
//! The one write of all 44 bytes commits a change. Version 1 has no id, and its checksum at 24.

use std::io;

use crc_fast::{CrcAlgorithm, checksum};
use thiserror::Error;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::base::Base;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    magic: [u8; 8],
    version: U32,
    state: U32,
    key: U64,
}

const HEAD_LEN: usize = size_of::<Wire>();
const ID_LEN: usize = 16;
const SUM_LEN: usize = 4;
/// Bytes of version 1 and of version 2.
const LENGTHS: [usize; 2] = [HEAD_LEN + SUM_LEN, HEAD_LEN + ID_LEN + SUM_LEN];
const LEN_MAX: usize = LENGTHS[1];
const _: () = assert!(LENGTHS[0] == 28 && LENGTHS[1] == 44);
const MAGIC: [u8; 8] = *b"LFLOGGED";

/// Whether the log is needed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SideState {
    /// The base has everything.
    Settled,
    /// The last commits are in the log.
    InLog,
}

/// What the file says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Side {
    /// Key of the file.
    pub key: u64,
    /// Whether the log is needed.
    pub state: SideState,
    /// Id of the log, or zeros while it is about to be made; a file of version 1 has none.
    pub log: Option<[u8; ID_LEN]>,
}

impl Side {
    /// Reads the bytes of the file; `None` if there are none.
    ///
    /// # Errors
    ///
    /// The bytes are none that [`Side::emit`] writes.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, SideError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (wire, rest) = Wire::ref_from_prefix(bytes).map_err(|_| SideError::MediaNoSide)?;
        if wire.magic != MAGIC {
            return Err(SideError::MediaNoSide);
        }
        let version = wire.version.get();
        let log = match (version, rest.len()) {
            (1, SUM_LEN) => None,
            (2, _) => Some(*rest.first_chunk().ok_or(SideError::MediaNoSide)?),
            (1, _) => return Err(SideError::MediaNoSide),
            _ => return Err(SideError::MediaVersion { version }),
        };
        let (covered, stored) = bytes.split_last_chunk().ok_or(SideError::MediaNoSide)?;
        let is_whole =
            LENGTHS.contains(&bytes.len()) && bytes.len() == LENGTHS[usize::from(log.is_some())];
        if !is_whole || u32::from_le_bytes(*stored) != sum(covered) {
            return Err(SideError::MediaNoSide);
        }
        let state = match wire.state.get() {
            0 => SideState::Settled,
            1 => SideState::InLog,
            _ => return Err(SideError::MediaNoSide),
        };
        Ok(Some(Self { key: wire.key.get(), state, log }))
    }

    /// The bytes of the file.
    pub fn emit(&self) -> Vec<u8> {
        let state = match self.state {
            SideState::Settled => 0,
            SideState::InLog => 1,
        };
        let version = if self.log.is_some() { 2 } else { 1 };
        let wire = Wire {
            magic: MAGIC,
            version: U32::new(version),
            state: U32::new(state),
            key: U64::new(self.key),
        };
        let mut out = wire.as_bytes().to_vec();
        out.extend_from_slice(self.log.as_ref().map_or(&[], |id| &id[..]));
        let sum = sum(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the file.
    ///
    /// # Errors
    ///
    /// [`SideError::Read`], or as [`Side::parse`].
    pub fn load(file: &dyn Base) -> Result<Option<Self>, SideError> {
        let mut bytes = [0; LEN_MAX + 1];
        let count = file.read(0, &mut bytes).map_err(SideError::Read)?;
        Self::parse(&bytes[..count])
    }

    /// Writes the file.
    ///
    /// # Durability
    ///
    /// On `Ok` the file says this. The caller makes the name of a new file durable.
    ///
    /// # Errors
    ///
    /// [`SideError::Write`].
    pub fn store(&self, file: &dyn Base) -> Result<(), SideError> {
        file.write(0, &self.emit()).and_then(|()| file.flush()).map_err(SideError::Write)
    }
}

fn sum(bytes: &[u8]) -> u32 {
    u32::try_from(checksum(CrcAlgorithm::Crc32Iscsi, bytes)).expect("a CRC of 32 bits")
}

/// The file beside the base cannot be used.
#[derive(Debug, Error)]
pub enum SideError {
    /// It is something else, or damaged.
    #[error("the file that names the log is damaged, or none of Landfast")]
    MediaNoSide,
    /// It is of a later version.
    #[error("the file that names the log has version {version}, this program knows 1 and 2")]
    MediaVersion {
        /// Its version.
        version: u32,
    },
    /// It cannot be read.
    #[error("the file that names the log cannot be read: {0}")]
    Read(io::Error),
    /// It cannot be written.
    #[error("the file that names the log cannot be written: {0}")]
    Write(io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_side_file_is_refused() {
        for log in [None, Some([3; 16])] {
            let side = Side { key: 77, state: SideState::InLog, log };
            let bytes = side.emit();
            assert_eq!(Side::parse(&bytes).unwrap(), Some(side));
            assert_eq!(Side::parse(&[]).unwrap(), None);
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                Side::parse(&damaged).unwrap_err();
                assert_eq!(Side::parse(&bytes[..at]).is_err(), at > 0);
            }
        }
    }
}
