//! The frames and signatures of GSS around Kerberos.
//!
//! ```text
//!  60 { 06 kerberos, 01 00, AP-REQ }     60 { 06 kerberos, 02 00, AP-REP }
//!
//!  0    2     3                8            16
//!  +----+-----+----------------+------------+----------+
//!  |0404|flags| ff ff ff ff ff | sequence   | checksum |   over the message, then these 16 bytes
//!  +----+-----+----------------+------------+----------+
//! ```
//!
//! Spec: RFC 2743 §3.1, RFC 4121 §4.1, §4.2.6.1; MS-KILE §3.1.1 (the second identifier).

use aws_lc_rs::constant_time;

use super::encryption::{Key, Usage};
use super::{ApReq, TicketFault};
use crate::auth::der::{APPLICATION_0, OBJECT_ID, expect, wrap};

/// 1.2.840.113554.1.2.2.
pub(in crate::auth) const KERBEROS_OID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2];
/// 1.2.840.48018.1.2.2: what Windows 2000 made of it, and everybody still sends.
pub(in crate::auth) const MICROSOFT_OID: &[u8] = &[0x2a, 0x86, 0x48, 0x82, 0xf7, 0x12, 1, 2, 2];

/// Whether a token is a GSS frame of Kerberos.
pub(in crate::auth) fn is_kerberos(token: &[u8]) -> bool {
    let oid = expect(token, APPLICATION_0).and_then(|frame| expect(frame.content, OBJECT_ID));
    oid.is_some_and(|oid| [KERBEROS_OID, MICROSOFT_OID].contains(&oid.content))
}

/// The AP-REQ in a client's token.
pub(super) fn ap_req(token: &[u8]) -> Result<ApReq<'_>, TicketFault> {
    let frame = expect(token, APPLICATION_0).ok_or(TicketFault::PeerMalformed)?;
    let oid = expect(frame.content, OBJECT_ID).ok_or(TicketFault::PeerMalformed)?;
    match oid.rest.split_first_chunk::<2>() {
        Some(([1, 0], message)) if frame.rest.is_empty() => ApReq::parse(message),
        // A TGT-REQ: user to user.
        Some(([4, 0], _)) => Err(TicketFault::PeerForm),
        _ => Err(TicketFault::PeerMalformed),
    }
}

/// The server's token with an AP-REP.
pub(super) fn ap_rep(message: &[u8]) -> Vec<u8> {
    wrap(APPLICATION_0, &[&wrap(OBJECT_ID, KERBEROS_OID)[..], &[2, 0], message].concat())
}

/// What both sides sign with, once the exchange is over.
#[derive(Debug)]
pub(super) struct Signer {
    /// The one of the authenticator, else of the ticket.
    pub(super) initiator: Key,
    /// The one of the AP-REP.
    pub(super) acceptor: Option<Key>,
    /// The number of our next signature.
    pub(super) sequence: u32,
}

impl Signer {
    /// Our signature.
    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let of_acceptor = if self.acceptor.is_some() { ACCEPTOR_SUBKEY } else { 0 };
        let key = self.acceptor.as_ref().unwrap_or(&self.initiator);
        let head = head(SENT_BY_ACCEPTOR | of_acceptor, u64::from(self.sequence));
        let checksum = key.checksum(Usage::ACCEPTOR_SIGN, &[message, &head]);
        [&head[..], &checksum].concat()
    }

    /// Whether the client has signed the message.
    pub(super) fn is_signed(&self, message: &[u8], token: &[u8]) -> bool {
        let Some((head, checksum)) = token.split_first_chunk::<HEAD>() else { return false };
        let flags = head[2];
        // A client that has not seen the AP-REP yet has no other key than its own.
        let key = match (flags & ACCEPTOR_SUBKEY != 0, &self.acceptor) {
            (true, Some(key)) => key,
            (false, _) => &self.initiator,
            (true, None) => return false,
        };
        let is_theirs = flags & (SENT_BY_ACCEPTOR | SEALED) == 0;
        let is_framed = head[..2] == TOKEN_ID && head[3..8] == [0xff; 5];
        let expected = key.checksum(Usage::INITIATOR_SIGN, &[message, head]);
        is_theirs
            && is_framed
            && constant_time::verify_slices_are_equal(&expected, checksum).is_ok()
    }
}

fn head(flags: u8, sequence: u64) -> [u8; HEAD] {
    let mut head = [0xff; HEAD];
    head[..2].copy_from_slice(&TOKEN_ID);
    head[2] = flags;
    head[8..].copy_from_slice(&sequence.to_be_bytes());
    head
}

const HEAD: usize = 16;
const TOKEN_ID: [u8; 2] = [4, 4];
// RFC 4121 §4.2.2.
const SENT_BY_ACCEPTOR: u8 = 1;
const SEALED: u8 = 2;
const ACCEPTOR_SUBKEY: u8 = 4;
