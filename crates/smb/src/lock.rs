//! LOCK request: byte range locks. The response is [`crate::Empty`].
//!
//! ```text
//!  64   66      68         72         88
//!  +----+-------+----------+----------+-----------------------------------------------
//!  | 48 | count | sequence | file id  | count x (offset u64, length u64, flags u32, 0)
//!  +----+-------+----------+----------+-----------------------------------------------
//! ```
//!
//! Spec: MS-SMB2 §2.2.26.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::header::{FileId, Header, WireFileId};
use crate::parse_error::{Field, ParseError};
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    structure_size: U16,
    lock_count: U16,
    lock_sequence: U32,
    file_id: WireFileId,
}

const _: () = assert!(size_of::<Wire>() == 24);

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireElement {
    offset: U64,
    length: U64,
    flags: U32,
    reserved: U32,
}

/// Takes or gives back byte range locks, all or none.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LockRequest {
    /// Sequence number (low 4 bits) and index (28 bits) for replay detection.
    pub lock_sequence: u32,
    /// Which open.
    pub file_id: FileId,
    /// At least one.
    pub locks: Vec<LockElement>,
}

/// One range.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LockElement {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Kind of lock, or unlock.
    pub flags: LockFlags,
}

impl LockRequest {
    /// Bytes of the longest body.
    pub const LEN_MAX: usize = size_of::<Wire>() + LOCKS_MAX * size_of::<WireElement>();

    /// Reads a request.
    ///
    /// # Errors
    /// Malformed, no element, or more than [`LOCKS_MAX`].
    pub fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<Wire>(pdu, 48)?;
        let count = usize::from(wire.lock_count.get());
        // MS-SMB2 §3.3.5.14: no element is STATUS_INVALID_PARAMETER.
        if count == 0 {
            return Err(ParseError::PeerValue { field: Field::Locks, value: 0 });
        }
        wire::limit(Field::Locks, count, LOCKS_MAX)?;
        let mut rest = &pdu[Header::LEN + size_of::<Wire>()..];
        let mut locks = Vec::with_capacity(count);
        for _ in 0..count {
            let element;
            (element, rest) = wire::view::<WireElement>(rest)?;
            locks.push(LockElement {
                offset: element.offset.get(),
                length: element.length.get(),
                flags: LockFlags::from_bits_retain(element.flags.get()),
            });
        }
        let lock_sequence = wire.lock_sequence.get();
        Ok(Self { lock_sequence, file_id: wire.file_id.into(), locks })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        wire::put(
            out,
            &Wire {
                structure_size: U16::new(48),
                lock_count: U16::new(wire::length16(self.locks.len())),
                lock_sequence: U32::new(self.lock_sequence),
                file_id: self.file_id.into(),
            },
        );
        for lock in &self.locks {
            wire::put(
                out,
                &WireElement {
                    offset: U64::new(lock.offset),
                    length: U64::new(lock.length),
                    flags: U32::new(lock.flags.bits()),
                    reserved: U32::new(0),
                },
            );
        }
    }
}

bitflags::bitflags! {
    /// Kind of a lock element.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct LockFlags: u32 {
        /// Others may read.
        const SHARED = 0x0000_0001;
        /// Others may do nothing.
        const EXCLUSIVE = 0x0000_0002;
        /// Gives the lock back.
        const UNLOCK = 0x0000_0004;
        /// Does not wait.
        const FAIL_IMMEDIATELY = 0x0000_0010;
        const _ = !0;
    }
}

/// Elements of one request: room for every client seen, and a bound on the work of one request.
pub const LOCKS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, MessageId};

    #[test]
    fn a_request_of_more_locks_than_the_limit_is_refused() {
        let request = |count: usize| {
            let flags = LockFlags::EXCLUSIVE;
            let locks = vec![LockElement { offset: 0, length: 1, flags }; count];
            let mut pdu = Vec::new();
            Header::request(Command::LOCK, MessageId(1)).emit(&mut pdu);
            LockRequest { lock_sequence: 0, file_id: FileId::RELATED, locks }.emit(&mut pdu);
            LockRequest::parse(&pdu).map(|request| request.locks.len())
        };
        assert_eq!(request(LOCKS_MAX), Ok(LOCKS_MAX));
        request(LOCKS_MAX + 1).unwrap_err();
    }
}
