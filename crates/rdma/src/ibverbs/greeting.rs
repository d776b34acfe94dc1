//! What both ends say about themselves at the front of the private data.
//!
//! ```text
//!  0    1    2       3      4
//!  +----+----+-------+------+--------------------+---------+
//!  | 4c | 56 | flags | len  | the application's  | zeros   |
//!  +----+----+-------+------+--------------------+---------+
//! ```
//!
//! Over InfiniBand and RoCE the connection manager hands over a field of fixed length, filled up
//! with zeros, so the length has to be said. The flags are what the speaker's device answers. An
//! end that heard no greeting sends none: the field is then the peer's application's as it is.
//! Over iWARP the length is known, and a `soft` peer speaks of itself in its own way
//! ([`iwarp::mpa::Profile`]): its words are taken off, and not answered, which tells it to keep to
//! the RFCs.

use bitflags::bitflags;

use super::sys::device::Features;

bitflags! {
    /// What an end answers beyond writes and reads.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub(super) struct Answers: u8 {
        /// Flushes, as far as the memory allows.
        const FLUSH = 1;
        /// Atomic writes.
        const ATOMIC_WRITE = 2;
    }
}

impl Answers {
    /// What an end with such a device answers.
    pub(super) fn of(features: &Features) -> Self {
        let mut answers = Self::empty();
        answers.set(Self::FLUSH, features.flush);
        answers.set(Self::ATOMIC_WRITE, features.atomic_write);
        answers
    }
}

/// Private data as it travels.
pub(super) fn emit(answers: Answers, data: &[u8]) -> Vec<u8> {
    let len = u8::try_from(data.len()).expect("checked against what fits");
    let mut out = Vec::with_capacity(HEADER_LEN + data.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[answers.bits(), len]);
    out.extend_from_slice(data);
    out
}

/// What the peer answers, if it greets, and what its application said.
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
/// Bytes in front of the application's.
pub(super) const HEADER_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_that_the_connection_manager_adds_are_not_the_applications() {
        let mut field = emit(Answers::FLUSH, b"token\0");
        assert_eq!(field, b"LV\x01\x06token\0");
        field.resize(56, 0);
        assert_eq!(parse(&field, false), (Some(Answers::FLUSH), &b"token\0"[..]));
    }

    #[test]
    fn what_is_no_greeting_is_the_applications() {
        for field in [&b""[..], b"LV", b"LV\x00\x09short", &[0x20, 0, 0, 0, 1, 0, 0, 0]] {
            assert_eq!(parse(field, false), (None, field));
        }
        assert_eq!(parse(b"LV\x00\x00", true), (None, &b"LV\x00\x00"[..]), "iWARP needs none");
    }

    #[test]
    fn what_soft_says_of_itself_over_iwarp_is_taken_off() {
        let flags = iwarp::mpa::ProfileFlags::empty();
        let profile = iwarp::mpa::Profile::new(flags, u16::MAX.into(), &[]).unwrap();
        let mut field = Vec::new();
        profile.emit(b"words", &mut field).unwrap();
        assert_eq!(parse(&field, true), (None, &b"words"[..]));
    }
}
