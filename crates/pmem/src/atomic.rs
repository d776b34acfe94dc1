//! The atomic operations that a peer may request, as pure functions on one 64-bit word.
//!
//! Spec: RFC 7306 §5.1.1 (FetchAdd and its mask), §5.1.2 (CmpSwap and its masks);
//! draft-talpey-rdma-commit §3 (Atomic Write).

/// An operation on one aligned 64-bit word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AtomicOp {
    /// Replaces the word.
    Store(u64),
    /// Adds a number to the word, field by field.
    FetchAdd {
        /// The number to add.
        add: u64,
        /// The topmost bit of each field; no carry leaves that bit. Zero means one field of 64 bits.
        mask: u64,
    },
    /// Replaces some bits if some bits are as expected.
    CompareSwap {
        /// The expected value of the word.
        compare: u64,
        /// The bits to compare. Zero compares no bit and always succeeds.
        compare_mask: u64,
        /// The new value of the word.
        swap: u64,
        /// The bits to replace.
        swap_mask: u64,
    },
}

impl AtomicOp {
    /// Bytes an operation works on; also the alignment it needs.
    pub const LEN: u64 = 8;

    /// The word that replaces `previous`, or `None` when the word stays as it is.
    pub fn apply(self, previous: u64) -> Option<u64> {
        match self {
            Self::Store(value) => Some(value),
            Self::FetchAdd { add, mask } => Some(add_in_fields(previous, add, mask)),
            Self::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                let equal = (previous ^ compare) & compare_mask == 0;
                equal.then_some((previous & !swap_mask) | (swap & swap_mask))
            }
        }
    }
}

/// RFC 7306 §5.1.1: a full adder from bit 0 up whose carry is dropped behind every mask bit.
///
/// With the tops cleared no field can carry out of itself; the carry that reaches a top is then
/// combined with the two top bits, and what would leave the top is lost, as it should be.
fn add_in_fields(a: u64, b: u64, tops: u64) -> u64 {
    let below_tops = (a & !tops).wrapping_add(b & !tops);
    below_tops ^ ((a ^ b) & tops)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The loop of RFC 7306 §5.1.1, bit by bit, as the RFC has it.
    fn rfc_fetch_add(original: u64, add: u64, mask: u64) -> u64 {
        let mut carry = 0;
        let mut result = 0;
        for bit in 0..64 {
            let sum = carry + ((original >> bit) & 1) + ((add >> bit) & 1);
            carry = if (mask >> bit) & 1 == 1 { 0 } else { sum >> 1 };
            result |= (sum & 1) << bit;
        }
        result
    }

    #[test]
    fn a_carry_stops_at_the_top_of_its_field() {
        let op = AtomicOp::FetchAdd { add: 0x01_01, mask: 0x80_80 };
        assert_eq!(op.apply(0x00_ff), Some(0x01_00));
        let op = AtomicOp::FetchAdd { add: 0x01_01, mask: 0x80_00 };
        assert_eq!(op.apply(0x00_ff), Some(0x02_00));
    }

    #[test]
    fn without_a_mask_the_whole_word_wraps() {
        assert_eq!(AtomicOp::FetchAdd { add: 2, mask: 0 }.apply(u64::MAX), Some(1));
    }

    #[test]
    fn compare_swap_compares_and_replaces_only_masked_bits() {
        let op = AtomicOp::CompareSwap {
            compare: 0xab,
            compare_mask: 0xff,
            swap: 0x1234,
            swap_mask: 0xff00,
        };
        assert_eq!(op.apply(0x55ab), Some(0x12ab));
        assert_eq!(op.apply(0x55ac), None);
    }

    proptest! {
        #[test]
        fn masked_addition_matches_the_bitwise_adder_of_the_rfc(a: u64, b: u64, mask: u64) {
            let sum = AtomicOp::FetchAdd { add: b, mask }.apply(a);
            prop_assert_eq!(sum, Some(rfc_fetch_add(a, b, mask)));
        }
    }
}
