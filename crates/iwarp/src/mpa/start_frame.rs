//! The Request and Reply frames that begin a connection.
//!
//! ```text
//!  0                                16      17      18         20            20 + n
//!  +--------------------------------+-------+-------+----------+-------------+
//!  | "MPA ID Req Frame" or "..Rep.." | flags | rev   | length n | private data|
//!  +--------------------------------+-------+-------+----------+-------------+
//! ```
//!
//! No CRC and no marker covers them.
//!
//! Spec: RFC 5044 §7.1.1, RFC 6581 §6. Big-endian.

use bitflags::bitflags;
use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::error::PRIVATE_DATA_FIELD_MAX;
use super::{MpaError, Revision};

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    key: [u8; KEY_LEN],
    flags: u8,
    revision: u8,
    private_data_len: U16,
}

const _: () = assert!(size_of::<Header>() == HEADER_LEN);

/// The kind of a start-up frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StartKind {
    /// The Request, from the end that dialled.
    Request,
    /// The Reply, from the end that listened.
    Reply,
}

bitflags! {
    /// The flag byte of a start-up frame. Unknown bits survive: siw uses 0x08 and echoes it.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct StartFlags: u8 {
        /// M: the sender wants markers in the frames that it receives.
        const MARKERS = 0x80;
        /// C: the sender wants CRCs; both ends then use them.
        const CRC = 0x40;
        /// R: the connection is rejected. Only in a Reply.
        const REJECTED = 0x20;
        /// S: private data begins with IRD and ORD. Only from revision 2 on.
        const ENHANCED = 0x10;
        const _ = !0;
    }
}

/// A start-up frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StartRepr<'b> {
    /// The kind: Request or Reply.
    pub kind: StartKind,
    /// The flag byte.
    pub flags: StartFlags,
    /// The revision field.
    pub revision: Revision,
    /// All of the private data, IRD and ORD included if they are there.
    pub private_data: &'b [u8],
}

impl<'b> StartRepr<'b> {
    /// Reads a frame of the kind that is due at the front of `bytes`.
    ///
    /// # Errors
    ///
    /// [`StartError::Incomplete`] asks for more bytes; every other error is the peer's fault, and is
    /// found as early as possible.
    pub fn parse(due: StartKind, bytes: &'b [u8]) -> Result<Self, StartError> {
        check_key(due, bytes)?;
        let Ok((header, rest)) = Header::ref_from_prefix(bytes) else {
            return Err(StartError::Incomplete { missing: HEADER_LEN - bytes.len() });
        };
        let len = usize::from(header.private_data_len.get());
        if len > PRIVATE_DATA_FIELD_MAX {
            return Err(MpaError::PeerPrivateDataTooLong { got: len }.into());
        }
        let Some(private_data) = rest.get(..len) else {
            return Err(StartError::Incomplete { missing: len - rest.len() });
        };
        Ok(Self {
            kind: due,
            flags: StartFlags::from_bits_retain(header.flags),
            revision: Revision(header.revision),
            private_data,
        })
    }

    /// Appends the frame to `out`.
    ///
    /// # Errors
    ///
    /// More private data than fits is refused.
    pub fn emit(&self, out: &mut Vec<u8>) -> Result<(), MpaError> {
        let got = self.private_data.len();
        if got > PRIVATE_DATA_FIELD_MAX {
            let limit = PRIVATE_DATA_FIELD_MAX;
            return Err(MpaError::ConfigPrivateDataTooLong { got, limit });
        }
        let header = Header {
            key: *key(self.kind),
            flags: self.flags.bits(),
            revision: self.revision.0,
            private_data_len: U16::new(u16::try_from(got).expect("within the field's maximum")),
        };
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(self.private_data);
        Ok(())
    }
}

/// The reason why the bytes give no frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StartError {
    /// The rest of the frame has not arrived yet.
    #[error("at least {missing} more bytes are needed")]
    Incomplete {
        /// How many more bytes to wait for at least.
        missing: usize,
    },
    /// The start-up has failed.
    #[error(transparent)]
    Failed(#[from] MpaError),
}

/// Compares as much of the key as there is.
fn check_key(due: StartKind, bytes: &[u8]) -> Result<(), MpaError> {
    let begins = |kind| bytes.iter().zip(key(kind)).all(|(got, want)| got == want);
    match due {
        _ if begins(due) => Ok(()),
        StartKind::Request if begins(StartKind::Reply) => Err(MpaError::PeerIsResponder),
        StartKind::Reply if begins(StartKind::Request) => Err(MpaError::PeerIsInitiator),
        StartKind::Request | StartKind::Reply => Err(MpaError::PeerKey),
    }
}

fn key(kind: StartKind) -> &'static [u8; KEY_LEN] {
    match kind {
        StartKind::Request => b"MPA ID Req Frame",
        StartKind::Reply => b"MPA ID Rep Frame",
    }
}

const KEY_LEN: usize = 16;
const HEADER_LEN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    // The Request of siw 6.12, captured on the wire: revision 2, S, IRD and ORD 1.
    const SIW: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x04\x00\x01\x00\x01";

    #[test]
    fn the_request_of_siw_parses_and_emits() {
        let repr = StartRepr {
            kind: StartKind::Request,
            flags: StartFlags::ENHANCED,
            revision: Revision::RFC_6581,
            private_data: &[0, 1, 0, 1],
        };
        assert_eq!(StartRepr::parse(StartKind::Request, SIW), Ok(repr));
        let mut out = Vec::new();
        repr.emit(&mut out).unwrap();
        assert_eq!(out, SIW);
    }

    #[test]
    fn the_missing_byte_count_is_reported() {
        for len in 0..SIW.len() {
            let missing = if len < 20 { 20 - len } else { 24 - len };
            let parsed = StartRepr::parse(StartKind::Request, &SIW[..len]);
            assert_eq!(parsed, Err(StartError::Incomplete { missing }));
        }
    }

    #[test]
    fn a_wrong_key_is_refused_at_its_first_wrong_byte() {
        let refused = |due, bytes: &[u8]| StartRepr::parse(due, bytes).unwrap_err();
        let failed = StartError::Failed;
        assert_eq!(refused(StartKind::Request, b"G"), failed(MpaError::PeerKey));
        let reply = b"MPA ID Rep";
        assert_eq!(refused(StartKind::Request, reply), failed(MpaError::PeerIsResponder));
        assert_eq!(refused(StartKind::Reply, SIW), failed(MpaError::PeerIsInitiator));
    }

    #[test]
    fn private_data_above_the_limit_is_refused_both_ways() {
        let mut bytes = SIW.to_vec();
        bytes[18..20].copy_from_slice(&[2, 1]);
        let failed = StartError::Failed(MpaError::PeerPrivateDataTooLong { got: 513 });
        assert_eq!(StartRepr::parse(StartKind::Request, &bytes), Err(failed));
        bytes[18..20].copy_from_slice(&[2, 0]);
        bytes.resize(20 + 512, 0);
        let parsed = StartRepr::parse(StartKind::Request, &bytes).unwrap();
        assert_eq!(parsed.private_data.len(), 512);
        let refused = MpaError::ConfigPrivateDataTooLong { got: 513, limit: 512 };
        let longer = StartRepr { private_data: &[0; 513], ..parsed };
        assert_eq!(longer.emit(&mut Vec::new()), Err(refused));
    }
}
