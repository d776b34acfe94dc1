//! What the client sends: an AP-REQ around a ticket and an authenticator, both still sealed.
//!
//! ```text
//!  AP-REQ        6e { 30 { a0 5, a1 14, a2 { 03 options }, a3 Ticket, a4 EncryptedData } }
//!  Ticket        61 { 30 { a0 5, a1 realm, a2 service, a3 EncryptedData } }
//!  EncryptedData 30 { a0 etype, [a1 key version], a2 { 04 cipher } }
//!  PrincipalName 30 { a0 type, a1 { 30 { 1b component, .. } } }
//! ```
//!
//! [`Fields`] reads the numbered fields of a SEQUENCE, here and in what is sealed.
//!
//! Spec: RFC 4120 §5.2, §5.3, §5.5.1.

use super::TicketFault;
use super::encryption::{EncryptionType, Key};
use super::names::{COMPONENTS_MAX, Principal};
use crate::auth::der::{
    BIT_STRING, Element, GENERAL_STRING, GENERALIZED_TIME, INTEGER, OCTET_STRING, SEQUENCE,
    application, context, expect, split,
};

/// A ticket for a service and the proof that its owner sends it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ApReq<'a> {
    /// Flags: [`ApReq::USE_SESSION_KEY`], [`ApReq::MUTUAL_REQUIRED`].
    pub options: u32,
    /// The ticket.
    pub ticket: Ticket<'a>,
    /// The proof, sealed with the ticket's key.
    pub authenticator: EncryptedData<'a>,
}

impl<'a> ApReq<'a> {
    /// The ticket is sealed with the key of another ticket: user to user.
    pub const USE_SESSION_KEY: u32 = 0x4000_0000;
    /// The client wants an AP-REP.
    pub const MUTUAL_REQUIRED: u32 = 0x2000_0000;

    /// Reads an AP-REQ.
    ///
    /// # Errors
    /// It is malformed.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TicketFault> {
        let mut fields = Fields::of_message(bytes, application(14))?;
        (fields.integer(0)? == VERSION && fields.integer(1)? == 14)
            .then_some(())
            .ok_or(TicketFault::PeerMalformed)?;
        let options = bits(fields.needed(2)?)?;
        let ticket = Ticket::parse(fields.needed(3)?)?;
        let authenticator = EncryptedData::parse(fields.needed(4)?)?;
        fields.end()?;
        Ok(Self { options, ticket, authenticator })
    }
}

/// What a KDC gives a client for a service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ticket<'a> {
    /// Which service, in clear and so in whatever case the client likes.
    pub service: Principal,
    /// The rest, sealed with that service's key.
    pub part: EncryptedData<'a>,
}

impl<'a> Ticket<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, TicketFault> {
        let mut fields = Fields::of_message(bytes, application(1))?;
        if fields.integer(0)? != VERSION {
            return Err(TicketFault::PeerMalformed);
        }
        let realm = string(fields.needed(1)?)?;
        let components = name(fields.needed(2)?)?;
        let part = EncryptedData::parse(fields.needed(3)?)?;
        fields.end()?;
        Ok(Self { service: Principal { components, realm }, part })
    }
}

/// Something sealed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EncryptedData<'a> {
    /// How.
    pub encryption: EncryptionType,
    /// With which of a service's keys, if there are several.
    pub version: Option<u32>,
    /// The sealed bytes.
    pub cipher: &'a [u8],
}

impl<'a> EncryptedData<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, TicketFault> {
        let mut fields = Fields::of_sequence(bytes)?;
        let encryption = EncryptionType(int32(fields.integer(0)?)?);
        let version = fields.optional_integer(1)?.map(uint32).transpose()?;
        let cipher = octets(fields.needed(2)?)?;
        fields.end()?;
        Ok(Self { encryption, version, cipher })
    }
}

/// The numbered fields of a SEQUENCE, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The fields of a message: a SEQUENCE within the message's own tag, and nothing behind it.
    pub(super) fn of_message(bytes: &'a [u8], tag: u8) -> Result<Self, TicketFault> {
        Self::of_sequence(whole(bytes, tag)?)
    }

    /// The fields of a SEQUENCE with nothing behind it.
    pub(super) fn of_sequence(bytes: &'a [u8]) -> Result<Self, TicketFault> {
        whole(bytes, SEQUENCE).map(Self)
    }

    /// What is in field `number`, if that is the next one.
    pub(super) fn optional(&mut self, number: u8) -> Option<&'a [u8]> {
        let Element { content, rest, .. } = expect(self.0, context(number))?;
        self.0 = rest;
        Some(content)
    }

    /// What is in field `number`, which comes next.
    pub(super) fn needed(&mut self, number: u8) -> Result<&'a [u8], TicketFault> {
        self.optional(number).ok_or(TicketFault::PeerMalformed)
    }

    /// The number in field `number`.
    pub(super) fn integer(&mut self, number: u8) -> Result<i64, TicketFault> {
        self.needed(number).and_then(integer)
    }

    /// The number in field `number`, if that is the next one.
    pub(super) fn optional_integer(&mut self, number: u8) -> Result<Option<i64>, TicketFault> {
        self.optional(number).map(integer).transpose()
    }

    /// There is no further field.
    pub(super) fn end(self) -> Result<(), TicketFault> {
        if self.0.is_empty() { Ok(()) } else { Err(TicketFault::PeerMalformed) }
    }
}

/// A key: `30 { a0 type, a1 { 04 bytes } }`. `None`: of a type that is not spoken here.
pub(super) fn key(bytes: &[u8]) -> Result<(EncryptionType, Option<Key>), TicketFault> {
    let mut fields = Fields::of_sequence(bytes)?;
    let encryption = EncryptionType(int32(fields.integer(0)?)?);
    let key = octets(fields.needed(1)?)?;
    fields.end()?;
    Ok((encryption, Key::new(encryption, key)))
}

/// The components of a principal's name; its type says nothing that anybody compares.
pub(super) fn name(bytes: &[u8]) -> Result<Vec<String>, TicketFault> {
    let mut fields = Fields::of_sequence(bytes)?;
    let _name_type = fields.integer(0)?;
    let mut list = whole(fields.needed(1)?, SEQUENCE)?;
    fields.end()?;
    let mut components = Vec::new();
    while !list.is_empty() {
        let component = split(list).ok_or(TicketFault::PeerMalformed)?;
        if components.len() == COMPONENTS_MAX {
            return Err(TicketFault::PeerMalformed);
        }
        components.push(string(component.whole)?);
        list = component.rest;
    }
    Ok(components)
}

/// A KerberosString. RFC 4120 §5.2.1 wants ASCII; everybody sends UTF-8 where that is not enough.
pub(super) fn string(bytes: &[u8]) -> Result<String, TicketFault> {
    let text = std::str::from_utf8(whole(bytes, GENERAL_STRING)?).ok();
    text.map(str::to_owned).ok_or(TicketFault::PeerMalformed)
}

/// The bytes of an OCTET STRING.
pub(super) fn octets(bytes: &[u8]) -> Result<&[u8], TicketFault> {
    whole(bytes, OCTET_STRING)
}

/// The first 32 bits of a BIT STRING, the first one topmost.
pub(super) fn bits(bytes: &[u8]) -> Result<u32, TicketFault> {
    match whole(bytes, BIT_STRING)? {
        [0..8, bits @ ..] => {
            let mut first = [0; 4];
            first.iter_mut().zip(bits).for_each(|(to, from)| *to = *from);
            Ok(u32::from_be_bytes(first))
        }
        _ => Err(TicketFault::PeerMalformed),
    }
}

/// Seconds since 1970 of `YYYYMMDDHHMMSSZ`, the only form RFC 4120 §5.2.3 allows.
pub(super) fn time(bytes: &[u8]) -> Result<i64, TicketFault> {
    let text = whole(bytes, GENERALIZED_TIME)?;
    let [digits @ .., b'Z'] = text else { return Err(TicketFault::PeerMalformed) };
    if digits.len() != 14 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(TicketFault::PeerMalformed);
    }
    let number = |from: usize, len: usize| {
        digits[from..from + len].iter().fold(0, |sum, digit| 10 * sum + i64::from(digit - b'0'))
    };
    let [month, day] = [number(4, 2), number(6, 2)];
    let [hour, minute, second] = [number(8, 2), number(10, 2), number(12, 2)];
    // 60: a leap second.
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return Err(TicketFault::PeerMalformed);
    }
    Ok(days(number(0, 4), month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Days since 1970 of a date of the Gregorian calendar. Years are counted from March, so that the day
/// that some have and others have not is the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - DAYS_TO_1970
}

fn integer(bytes: &[u8]) -> Result<i64, TicketFault> {
    match whole(bytes, INTEGER)? {
        digits @ [first, ..] if digits.len() <= 8 => {
            let sign = if first & 0x80 == 0 { 0 } else { -1 };
            Ok(digits.iter().fold(sign, |sum, digit| sum << 8 | i64::from(*digit)))
        }
        _ => Err(TicketFault::PeerMalformed),
    }
}

pub(super) fn int32(value: i64) -> Result<i32, TicketFault> {
    i32::try_from(value).map_err(|_| TicketFault::PeerMalformed)
}

/// A UInt32. Old implementations write those with the top bit as if they were negative.
pub(super) fn uint32(value: i64) -> Result<u32, TicketFault> {
    let negative = || i32::try_from(value).ok().map(i32::cast_unsigned);
    u32::try_from(value).ok().or_else(negative).ok_or(TicketFault::PeerMalformed)
}

/// The content of the one element that the bytes are.
pub(super) fn whole(bytes: &[u8], tag: u8) -> Result<&[u8], TicketFault> {
    expect(bytes, tag)
        .filter(|element| element.rest.is_empty())
        .map(|element| element.content)
        .ok_or(TicketFault::PeerMalformed)
}

/// pvno and tkt-vno.
pub(super) const VERSION: i64 = 5;
// From 0000-03-01 on.
const DAYS_TO_1970: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        let at = |text: &str| time(&crate::auth::der::wrap(GENERALIZED_TIME, text.as_bytes()));
        assert_eq!(at("19700101000000Z"), Ok(0));
        assert_eq!(at("20000229235959Z"), Ok(951_868_799));
        assert_eq!(at("20261121165035Z"), Ok(1_795_279_835));
        assert_eq!(at("21000301000000Z"), Ok(4_107_542_400));
        for wrong in ["20261121165035", "20261321165035Z", "2026112116503Z", "2026112116503aZ", "Z"]
        {
            assert_eq!(at(wrong), Err(TicketFault::PeerMalformed), "{wrong}");
        }
    }

    #[test]
    fn integers_of_either_sign_are_read_and_longer_ones_refused() {
        let number = |content: &[u8]| integer(&crate::auth::der::wrap(INTEGER, content));
        assert_eq!(number(&[0x12]), Ok(0x12));
        assert_eq!(number(&[0x00, 0xff, 0xff, 0xff, 0xff]).and_then(uint32), Ok(u32::MAX));
        assert_eq!(number(&[0xff]).and_then(uint32), Ok(u32::MAX));
        assert_eq!(number(&[0xff, 0x76]), Ok(-138));
        number(&[]).unwrap_err();
        number(&[1; 9]).unwrap_err();
        uint32(1 << 32).unwrap_err();
    }
}
