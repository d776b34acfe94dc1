//! The first word of enhanced private data: queue depths and the ready-to-receive message.
//!
//! ```text
//!  0   1   2              16  17  18              32
//!  +---+---+--------------+---+---+---------------+
//!  | A | B | IRD          | C | D | ORD           |
//!  +---+---+--------------+---+---+---------------+
//! ```
//!
//! Spec: RFC 6581 §9. Big-endian.

use bitflags::bitflags;

use super::ReadyKind;

/// The enhanced connection establishment data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EnhancedRepr {
    /// Control flags B, C and D, if flag A announces a ready-to-receive message.
    pub ready: Option<ReadySet>,
    /// IRD: requests that the sender takes; [`EnhancedRepr::BY_ULP`] leaves the depth to the ULP.
    pub ird: u16,
    /// ORD: requests that the sender wants to make; [`EnhancedRepr::BY_ULP`] leaves the depth to the ULP.
    pub ord: u16,
}

bitflags! {
    /// A set of ready-to-receive messages.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct ReadySet: u8 {
        /// Control flag C.
        const WRITE = 1;
        /// Control flag D.
        const READ = 2;
        /// Control flag B.
        const SEND = 4;
    }
}

impl ReadySet {
    /// The set that holds `kind` alone.
    pub fn only(kind: ReadyKind) -> Self {
        match kind {
            ReadyKind::Write => Self::WRITE,
            ReadyKind::Read => Self::READ,
            ReadyKind::Send => Self::SEND,
        }
    }

    /// The preferred kind of this set. A Write costs neither end anything; a Read needs a credit for a
    /// request; a Send takes a receive of the ULP.
    pub fn preferred(self, reads_allowed: bool) -> Option<ReadyKind> {
        if self.contains(Self::WRITE) {
            Some(ReadyKind::Write)
        } else if self.contains(Self::READ) && reads_allowed {
            Some(ReadyKind::Read)
        } else if self.contains(Self::SEND) {
            Some(ReadyKind::Send)
        } else {
            None
        }
    }
}

impl EnhancedRepr {
    /// Bytes the word takes on the wire.
    pub const LEN: usize = 4;
    /// The depth that means "not negotiated here".
    pub const BY_ULP: u16 = 0x3fff;

    /// Splits private data into the word and what follows it.
    pub fn parse(private_data: &[u8]) -> Option<(Self, &[u8])> {
        let ([a, b, c, d], rest) = private_data.split_first_chunk::<{ Self::LEN }>()?;
        let (first, second) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
        let mut ready = ReadySet::empty();
        ready.set(ReadySet::SEND, first & SECOND_FLAG != 0);
        ready.set(ReadySet::WRITE, second & FIRST_FLAG != 0);
        ready.set(ReadySet::READ, second & SECOND_FLAG != 0);
        // RFC 6581 §9.2: without A the other three must be ignored.
        let ready = (first & FIRST_FLAG != 0).then_some(ready);
        Some((Self { ready, ird: first & DEPTH, ord: second & DEPTH }, rest))
    }

    /// The inverse of [`EnhancedRepr::parse`]. Cannot fail; only the low 14 bits of a depth are kept.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let ready = self.ready.unwrap_or(ReadySet::empty());
        let first = flag(self.ready.is_some(), FIRST_FLAG)
            | flag(ready.contains(ReadySet::SEND), SECOND_FLAG)
            | (self.ird & DEPTH);
        let second = flag(ready.contains(ReadySet::WRITE), FIRST_FLAG)
            | flag(ready.contains(ReadySet::READ), SECOND_FLAG)
            | (self.ord & DEPTH);
        let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
        [a, b, c, d]
    }
}

const FIRST_FLAG: u16 = 0x8000;
const SECOND_FLAG: u16 = 0x4000;
const DEPTH: u16 = 0x3fff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_its_bit() {
        let word = |ready| EnhancedRepr { ready, ird: 0x20, ord: 0x1ffe }.emit();
        assert_eq!(word(None), [0x00, 0x20, 0x1f, 0xfe]);
        assert_eq!(word(Some(ReadySet::empty())), [0x80, 0x20, 0x1f, 0xfe]);
        assert_eq!(word(Some(ReadySet::SEND)), [0xc0, 0x20, 0x1f, 0xfe]);
        assert_eq!(word(Some(ReadySet::WRITE)), [0x80, 0x20, 0x9f, 0xfe]);
        assert_eq!(word(Some(ReadySet::READ)), [0x80, 0x20, 0x5f, 0xfe]);
        for ready in [None, Some(ReadySet::empty()), Some(ReadySet::all())] {
            let repr = EnhancedRepr { ready, ird: 1, ord: EnhancedRepr::BY_ULP };
            assert_eq!(EnhancedRepr::parse(&repr.emit()), Some((repr, &[][..])));
        }
    }

    #[test]
    fn without_flag_a_the_other_control_flags_are_ignored() {
        let (repr, rest) = EnhancedRepr::parse(&[0x40, 1, 0xc0, 2, 9]).unwrap();
        assert_eq!(repr, EnhancedRepr { ready: None, ird: 1, ord: 2 });
        assert_eq!(rest, [9]);
        assert_eq!(EnhancedRepr::parse(&[0, 1, 0]), None);
    }

    #[test]
    fn a_ready_write_is_preferred_and_a_ready_read_needs_credit() {
        assert_eq!(ReadySet::all().preferred(true), Some(ReadyKind::Write));
        let rest = ReadySet::READ | ReadySet::SEND;
        assert_eq!(rest.preferred(true), Some(ReadyKind::Read));
        assert_eq!(rest.preferred(false), Some(ReadyKind::Send));
        assert_eq!(ReadySet::READ.preferred(false), None);
    }
}
