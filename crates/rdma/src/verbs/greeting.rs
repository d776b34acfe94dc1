//! The greeting of both ends at the front of the private data.
//!
//! ```text
//!  0    1    2       3      4
//!  +----+----+-------+------+--------------------+---------+
//!  | 4c | 56 | flags | len  | the application's  | zeros   |
//!  +----+----+-------+------+--------------------+---------+
//! ```
//!
//! Over InfiniBand and RoCE the connection manager hands over a field of fixed length, filled up
//! with zeros, so the greeting carries the length. The flags say what the device of the sender
//! answers. An end that received no greeting sends none: the whole field then belongs to the
//! application of the peer. Over iWARP the length is known, and a `soft` peer announces its own
//! profile ([`iwarp::mpa::Profile`]): this end removes that announcement and does not answer it,
//! which tells the peer to keep to the RFCs.

use bitflags::bitflags;

use super::sys::device::Features;

bitflags! {
    /// The operations that an end answers beyond writes and reads.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub(super) struct Answers: u8 {
        /// Flushes, if the memory allows them.
        const FLUSH = 1;
        /// Atomic writes.
        const ATOMIC_WRITE = 2;
    }
}

impl Answers {
    /// The operations that an end with such a device answers.
    pub(super) fn of(features: &Features) -> Self {
        let mut answers = Self::empty();
        answers.set(Self::FLUSH, features.flush);
        answers.set(Self::ATOMIC_WRITE, features.atomic_write);
        answers
    }
}

/// The private data as it is sent.
pub(super) fn emit(answers: Answers, data: &[u8]) -> Vec<u8> {
    let len = u8::try_from(data.len()).expect("checked against what fits");
    let mut out = Vec::with_capacity(HEADER_LEN + data.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[answers.bits(), len]);
    out.extend_from_slice(data);
    out
}

/// The operations that the peer answers, if it sent a greeting, and the private data of its
/// application.
pub(super) fn parse(field: &[u8], is_iwarp: bool) -> (Option<Answers>, &[u8]) {
    if is_iwarp {
        let ulp = iwarp::mpa::Profile::parse(field).map_or(field, |(_, ulp)| ulp);
        return (None, ulp);
    }
    if let Some(([first, second, flags, len], rest)) = field.split_first_chunk::<HEADER_LEN>()
        && [*first, *second] == MAGIC
        && let Some(data) = rest.get(..usize::from(*len))
    {
        return (Some(Answers::from_bits_retain(*flags)), data);
    }
    (None, field)
}

const MAGIC: [u8; 2] = *b"LV";
/// Bytes in front of the private data of the application.
pub(super) const HEADER_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_added_by_the_connection_manager_are_removed_from_private_data() {
        let mut field = emit(Answers::FLUSH, b"token\0");
        assert_eq!(field, b"LV\x01\x06token\0");
        field.resize(56, 0);
        assert_eq!(parse(&field, false), (Some(Answers::FLUSH), &b"token\0"[..]));
    }

    #[test]
    fn private_data_without_a_greeting_goes_to_the_application_whole() {
        for field in [&b""[..], b"LV", b"LV\x00\x09short", &[0x20, 0, 0, 0, 1, 0, 0, 0]] {
            assert_eq!(parse(field, false), (None, field));
        }
        assert_eq!(parse(b"LV\x00\x00", true), (None, &b"LV\x00\x00"[..]), "iWARP needs none");
    }

    #[test]
    fn the_announcement_of_a_soft_peer_over_iwarp_is_removed() {
        let flags = iwarp::mpa::ProfileFlags::empty();
        let profile = iwarp::mpa::Profile::new(flags, u16::MAX.into(), &[]).unwrap();
        let mut field = Vec::new();
        profile.emit(b"words", &mut field).unwrap();
        assert_eq!(parse(&field, true), (None, &b"words"[..]));
    }
}
