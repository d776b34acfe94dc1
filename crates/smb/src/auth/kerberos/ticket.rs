//! What was sealed: the ticket's inside, and the authenticator's.
//!
//! ```text
//!  EncTicketPart 63 { 30 { a0 flags, a1 key, a2 realm, a3 name, a4 transited, a5 authtime,
//!                  [a6 starttime], a7 endtime, [a8 renew-till], [a9 addresses], [aa restrictions] } }
//!  Authenticator 62 { 30 { a0 5, a1 realm, a2 name, [a3 checksum], a4 microseconds, a5 time,
//!                  [a6 subkey], [a7 sequence], [a8 restrictions] } }
//! ```
//!
//! Both were sealed by somebody who has the key; they are parsed as if a stranger had written them.
//!
//! Spec: RFC 4120 §5.3, §5.5.1, §5.2.6; RFC 4121 §4.1.1.

use super::TicketFault;
use super::encryption::{EncryptionType, Key};
use super::message::{
    Fields, VERSION, bits, int32, key, name, octets, string, time, uint32, whole,
};
use super::names::Principal;
use crate::auth::der::{SEQUENCE, application, split};

/// The inside of a ticket.
#[derive(Debug)]
pub(super) struct TicketPart {
    pub(super) flags: u32,
    /// Shared by the client and us. `None`: of a type that is not spoken here.
    pub(super) key: (EncryptionType, Option<Key>),
    pub(super) client: Principal,
    /// In seconds since 1970, as the next one.
    pub(super) start: i64,
    pub(super) end: i64,
}

impl TicketPart {
    /// The KDC says not to take it.
    pub(super) const INVALID: u32 = 0x0100_0000;

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, TicketFault> {
        let mut fields = Fields::of_message(bytes, application(3))?;
        let flags = bits(fields.needed(0)?)?;
        let key = key(fields.needed(1)?)?;
        let realm = string(fields.needed(2)?)?;
        let components = name(fields.needed(3)?)?;
        // Only owners of our own realm come in, however many others they came through.
        let _transited = fields.needed(4)?;
        let authenticated = time(fields.needed(5)?)?;
        let start = fields.optional(6).map(time).transpose()?;
        let end = time(fields.needed(7)?)?;
        let _renewable = fields.optional(8).map(time).transpose()?;
        // Deviates: RFC 4120 §3.2.3 compares them with the client's address. Tickets have none unless they
        // are asked for, and a translation of addresses makes them wrong.
        let _addresses = fields.optional(9);
        fields.optional(10).map_or(Ok(()), check_restrictions)?;
        fields.end()?;
        let client = Principal { components, realm };
        Ok(Self { flags, key, client, start: start.unwrap_or(authenticated), end })
    }
}

/// The inside of an authenticator.
#[derive(Debug)]
pub(super) struct Authenticator {
    pub(super) client: Principal,
    /// Seconds since 1970, and microseconds.
    pub(super) time: (i64, u32),
    /// A key that the client prefers to the ticket's.
    pub(super) subkey: Option<(EncryptionType, Option<Key>)>,
    pub(super) sequence: u32,
    /// What the client asks of GSS.
    pub(super) gss_flags: u32,
}

impl Authenticator {
    /// GSS_C_DCE_STYLE: three legs instead of two.
    pub(super) const DCE_STYLE: u32 = 0x1000;

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, TicketFault> {
        let mut fields = Fields::of_message(bytes, application(2))?;
        if fields.integer(0)? != VERSION {
            return Err(TicketFault::PeerMalformed);
        }
        let realm = string(fields.needed(1)?)?;
        let components = name(fields.needed(2)?)?;
        // RFC 4121 §4.1.1 wants it; impacket leaves it out, and other servers do not mind.
        let gss_flags = fields.optional(3).map_or(Ok(0), gss_flags)?;
        let microseconds = uint32(fields.integer(4)?)?;
        let seconds = time(fields.needed(5)?)?;
        let subkey = fields.optional(6).map(key).transpose()?;
        let sequence = fields.optional_integer(7)?.map(uint32).transpose()?;
        fields.optional(8).map_or(Ok(()), check_restrictions)?;
        fields.end()?;
        if microseconds > 999_999 {
            return Err(TicketFault::PeerMalformed);
        }
        let client = Principal { components, realm };
        let sequence = sequence.unwrap_or(0);
        Ok(Self { client, time: (seconds, microseconds), subkey, sequence, gss_flags })
    }
}

/// RFC 4121 §4.1.1: length u32 (16) | channel bindings | flags u32 | delegation. The bindings are those
/// of a layer below; SMB has none to compare with, as with Windows unless it is told otherwise.
fn gss_flags(bytes: &[u8]) -> Result<u32, TicketFault> {
    let mut fields = Fields::of_sequence(bytes)?;
    let kind = fields.integer(0)?;
    let checksum = octets(fields.needed(1)?)?;
    fields.end()?;
    match (kind, checksum.split_first_chunk::<24>()) {
        (GSS_CHECKSUM, Some((head, _))) if head[..4] == [16, 0, 0, 0] => {
            Ok(u32::from_le_bytes([head[20], head[21], head[22], head[23]]))
        }
        _ => Err(TicketFault::PeerMalformed),
    }
}

/// RFC 4120 §5.2.6: what is in here only takes rights away, so one that is not understood ends it; unless
/// it stands within AD-IF-RELEVANT, as the lists of groups do that Windows sends.
fn check_restrictions(bytes: &[u8]) -> Result<(), TicketFault> {
    let mut list = whole(bytes, SEQUENCE)?;
    while !list.is_empty() {
        let element = split(list).ok_or(TicketFault::PeerMalformed)?;
        let mut fields = Fields::of_sequence(element.whole)?;
        let kind = int32(fields.integer(0)?)?;
        let _data = octets(fields.needed(1)?)?;
        fields.end()?;
        if !matches!(kind, IF_RELEVANT | KDC_ISSUED | WINDOWS_PAC) {
            return Err(TicketFault::PeerRestriction(kind));
        }
        list = element.rest;
    }
    Ok(())
}

const GSS_CHECKSUM: i64 = 0x8003;
const IF_RELEVANT: i32 = 1;
const KDC_ISSUED: i32 = 4;
const WINDOWS_PAC: i32 = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::der::{context, wrap};

    fn integer(number: u32) -> Vec<u8> {
        wrap(2, &[&[0], &number.to_be_bytes()[..]].concat())
    }

    fn fields(fields: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let all: Vec<_> = fields.iter().map(|(at, field)| wrap(context(*at), field)).collect();
        wrap(SEQUENCE, &all.concat())
    }

    #[test]
    fn flags_of_gss_are_taken_from_behind_bindings_of_sixteen_bytes() {
        let checksum = |kind: u32, length: u8| {
            let mut content = [0; 24];
            content[0] = length;
            content[20..].copy_from_slice(&0x1002_u32.to_le_bytes());
            fields(&[(0, integer(kind)), (1, wrap(4, &content))])
        };
        assert_eq!(gss_flags(&checksum(0x8003, 16)), Ok(0x1002));
        for (kind, length) in [(0x8003, 17), (0x8004, 16)] {
            assert_eq!(gss_flags(&checksum(kind, length)), Err(TicketFault::PeerMalformed));
        }
    }

    #[test]
    fn a_restriction_that_is_not_understood_ends_the_logon() {
        let restriction = |kind| fields(&[(0, integer(kind)), (1, wrap(4, b"data"))]);
        let known = [1, 4, 128].map(restriction).concat();
        assert_eq!(check_restrictions(&wrap(SEQUENCE, &known)), Ok(()));
        let foreign = [restriction(1), restriction(7)].concat();
        let refused = check_restrictions(&wrap(SEQUENCE, &foreign));
        assert_eq!(refused, Err(TicketFault::PeerRestriction(7)));
    }

    #[test]
    fn a_second_has_a_million_microseconds() {
        let parsed = |microseconds| {
            let name = fields(&[(0, integer(1)), (1, wrap(SEQUENCE, &wrap(0x1b, b"alice")))]);
            let inside = fields(&[
                (0, integer(5)),
                (1, wrap(0x1b, b"R")),
                (2, name),
                (4, integer(microseconds)),
                (5, wrap(0x18, b"20260101000000Z")),
            ]);
            Authenticator::parse(&wrap(application(2), &inside)).map(|parsed| parsed.time.1)
        };
        assert_eq!(parsed(999_999), Ok(999_999));
        for microseconds in [1_000_000, 2_000_000] {
            assert_eq!(parsed(microseconds), Err(TicketFault::PeerMalformed));
        }
    }
}
