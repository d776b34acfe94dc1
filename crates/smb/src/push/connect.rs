//! Private data of the push connection: a proof of the token goes there, the connection's id comes back.
//!
//! ```text
//!  request, 48 bytes                               reply, 24 bytes
//!  0       4         6      8       12  16    48   0       4         6      8        12  16   24
//!  +-------+---------+------+-------+---+-----+    +-------+---------+------+--------+---+----+
//!  | 'LFPC'| version | size | flags | 0 |proof|    | 'LFPR'| version | size | status | 0 | id |
//!  +-------+---------+------+-------+---+-----+    +-------+---------+------+--------+---+----+
//! ```
//!
//! The server chooses the token, and the addresses that the client dials. So the client sends no byte of the
//! token: whoever listens at an address gets bytes that nobody has chosen, and that are good for that address
//! alone.
//!
//! Spec: docs/push-mode.md, "Push connection".

use std::fmt;

use super::layout::{self, put_u32, put_u64};
use super::token::{PushToken, is_equal};
use super::{PushAddress, PushConnectionId};
use crate::crypto::derive;
use crate::parse_error::{Field, ParseError};
use crate::status::NtStatus;
use crate::wire::Reader;

impl PushToken {
    /// What whoever has the token shows to the listener at an address of its grant.
    pub fn proof(&self, address: PushAddress) -> PushProof {
        let mut entry = Vec::with_capacity(PushAddress::LEN);
        address.emit(&mut entry);
        PushProof(derive(self.expose(), PROOF_LABEL, &entry))
    }
}

/// Shows that its sender has the token of a grant, for one address of the grant. Does not print; compares in
/// constant time.
#[derive(Clone)]
pub struct PushProof([u8; Self::LEN]);

impl PushProof {
    /// Bytes on the wire.
    pub const LEN: usize = 32;

    /// Wraps bytes of the wire.
    pub fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }
}

impl PartialEq for PushProof {
    fn eq(&self, other: &Self) -> bool {
        is_equal(&self.0, &other.0)
    }
}

impl Eq for PushProof {}

impl fmt::Debug for PushProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PushProof(..)")
    }
}

/// What a client sends with its connection request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PushConnect {
    /// That of the dialled address, by the token of the create response.
    pub proof: PushProof,
}

impl PushConnect {
    /// Bytes on the wire.
    pub const LEN: usize = 48;

    /// Reads private data.
    ///
    /// # Errors
    /// Malformed, another magic or another version.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = open(bytes, REQUEST_MAGIC, Self::LEN)?;
        reader.u64()?;
        Ok(Self { proof: PushProof::new(reader.array()?) })
    }

    /// Appends private data.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&REQUEST_MAGIC);
        layout::begin(out, 48);
        put_u64(out, 0);
        out.extend_from_slice(&self.proof.0);
    }
}

/// What the server answers, in its accept or reject.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PushAccept {
    /// SUCCESS in an accept; ACCESS_DENIED for the proof of no valid token,
    /// REVISION_MISMATCH for another version, INSUFFICIENT_RESOURCES at a limit.
    pub status: NtStatus,
    /// Names the connection in MAP; 0 in a reject.
    pub push_connection_id: PushConnectionId,
}

impl PushAccept {
    /// Bytes on the wire.
    pub const LEN: usize = 24;

    /// Reads private data.
    ///
    /// # Errors
    /// Malformed, another magic or another version.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = open(bytes, REPLY_MAGIC, Self::LEN)?;
        let status = NtStatus(reader.u32()?);
        reader.u32()?;
        Ok(Self { status, push_connection_id: PushConnectionId(reader.u64()?) })
    }

    /// Appends private data.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&REPLY_MAGIC);
        layout::begin(out, 24);
        put_u32(out, self.status.0);
        put_u32(out, 0);
        put_u64(out, self.push_connection_id.0);
    }
}

/// Checks magic, version and size; the size counts from the magic. Returns what follows.
fn open(bytes: &[u8], magic: [u8; 4], len: usize) -> Result<Reader<'_>, ParseError> {
    let mut reader = Reader::new(bytes);
    let got: [u8; 4] = reader.array()?;
    if got != magic {
        return Err(ParseError::PeerProtocolId(u32::from_be_bytes(got)));
    }
    let version = reader.u16()?;
    if version != super::VERSION {
        return Err(ParseError::PeerPushVersion(version));
    }
    let size = reader.u16()?;
    if usize::from(size) < len {
        return Err(ParseError::PeerValue { field: Field::Size, value: u64::from(size) });
    }
    if usize::from(size) > bytes.len() {
        return Err(ParseError::PeerTruncated { need: usize::from(size), got: bytes.len() });
    }
    Ok(reader)
}

/// The label of the key derivation (SP 800-108) of a proof.
const PROOF_LABEL: &[u8] = b"LandfastPushAddress";
const REQUEST_MAGIC: [u8; 4] = *b"LFPC";
const REPLY_MAGIC: [u8; 4] = *b"LFPR";
