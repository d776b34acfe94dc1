//! Records of 100 bytes as gensort makes them: ten random bytes are the key.
//!
//! ```text
//!   0        10   12                       44          48                         96          100
//!   | key 10 | 00 11 | number, 32 digits hex | 88 99 aa bb | 12 digits, each 4 times | cc dd ee ff |
//! ```

use crc_fast::CrcAlgorithm;

/// Makes records one after the other.
#[derive(Debug)]
pub(super) struct Generator {
    number: u128,
    state: u128,
}

impl Generator {
    /// Begins at a record.
    pub(super) fn at(number: u64) -> Self {
        // The state after `number` steps, in as many steps as the number has bits.
        let mut sum = 0_u128;
        let (mut step_factor, mut step_sum) = (FACTOR, SUMMAND);
        let mut left = number;
        while left > 0 {
            if left & 1 == 1 {
                sum = sum.wrapping_mul(step_factor).wrapping_add(step_sum);
            }
            step_sum = step_sum.wrapping_mul(step_factor.wrapping_add(1));
            step_factor = step_factor.wrapping_mul(step_factor);
            left >>= 1;
        }
        Self { number: number.into(), state: sum }
    }

    /// Appends the next record.
    pub(super) fn push(&mut self, out: &mut Vec<u8>) {
        self.state = self.state.wrapping_mul(FACTOR).wrapping_add(SUMMAND);
        let random = self.state.to_be_bytes();
        out.extend_from_slice(&random[..KEY]);
        out.extend([0x00, 0x11]);
        out.extend(format!("{:032X}", self.number).bytes());
        out.extend([0x88, 0x99, 0xaa, 0xbb]);
        for byte in &random[10..] {
            for digit in [byte >> 4, byte & 15] {
                out.extend([HEX[usize::from(digit)]; 4]);
            }
        }
        out.extend([0xcc, 0xdd, 0xee, 0xff]);
        self.number += 1;
    }
}

/// What a set of records is, whatever their order, and whether they are in order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Summary {
    pub(super) records: u64,
    /// The sum of the records' CRC-32, as valsort has it.
    pub(super) checksum: u128,
    pub(super) is_ordered: bool,
    first: Option<[u8; KEY]>,
    last: Option<[u8; KEY]>,
}

impl Summary {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut found = Self { is_ordered: true, ..Self::default() };
        for record in bytes.chunks_exact(RECORD) {
            let key = key(record);
            found.records += 1;
            found.checksum += u128::from(crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, record));
            found.is_ordered &= found.last.is_none_or(|last| last <= key);
            found.first = found.first.or(Some(key));
            found.last = Some(key);
        }
        found
    }

    /// This set and one behind it.
    pub(super) fn then(self, next: Self) -> Self {
        let meet = match (self.last, next.first) {
            (Some(last), Some(first)) => last <= first,
            _ => true,
        };
        Self {
            records: self.records + next.records,
            checksum: self.checksum + next.checksum,
            is_ordered: self.is_ordered && next.is_ordered && meet,
            first: self.first.or(next.first),
            last: next.last.or(self.last),
        }
    }

    /// Whether both are the same records.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        (self.records, self.checksum) == (other.records, other.checksum)
    }
}

/// The reducer of a record: keys are spread evenly.
pub(super) fn reducer(record: &[u8], reducers: usize) -> usize {
    let head = u32::from_be_bytes([record[0], record[1], record[2], record[3]]);
    let wide = u64::from(head) * u64::try_from(reducers).expect("few reducers");
    usize::try_from(wide >> 32).expect("below the number of reducers")
}

/// Sorts records by their keys.
pub(super) fn sort(bytes: &[u8]) -> Vec<u8> {
    // Keys and places are sorted, and each record is moved once.
    let mut order: Vec<([u8; KEY], u32)> =
        (0..).zip(bytes.chunks_exact(RECORD)).map(|(at, record)| (key(record), at)).collect();
    order.sort_unstable();
    let mut out = Vec::with_capacity(bytes.len());
    for (_, at) in order {
        let begin = usize::try_from(at).expect("32 bits") * RECORD;
        out.extend_from_slice(&bytes[begin..begin + RECORD]);
    }
    out
}

fn key(record: &[u8]) -> [u8; KEY] {
    record[..KEY].try_into().expect("a record is longer than its key")
}

/// Bytes of a record.
pub(super) const RECORD: usize = 100;
const KEY: usize = 10;
const FACTOR: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;
const SUMMAND: u128 = 0x4A69_6D47_7261_7952_4950_2020_2020_2001;
const HEX: &[u8; 16] = b"0123456789ABCDEF";

#[cfg(test)]
mod tests {
    use super::*;

    fn made(from: u64, count: usize) -> Vec<u8> {
        let (mut generator, mut out) = (Generator::at(from), Vec::new());
        (0..count).for_each(|_| generator.push(&mut out));
        out
    }

    #[test]
    fn a_generator_that_begins_later_makes_the_same_records() {
        let whole = made(0, 1000);
        assert_eq!(whole.len(), 1000 * RECORD);
        assert!(whole[777 * RECORD..] == made(777, 223));
        assert_eq!(&whole[RECORD + 12..RECORD + 44], b"00000000000000000000000000000001");
    }

    #[test]
    fn a_record_that_is_lost_changed_or_out_of_order_is_noticed() {
        let whole = made(5, 100);
        let before = Summary::of(&whole);
        assert!(!before.is_ordered);
        let sorted = sort(&whole);
        let after = Summary::of(&sorted);
        assert!(after.is_ordered && after.is_of(&before));
        assert!(!Summary::of(&sorted[RECORD..]).is_of(&before));
        let mut changed = sorted.clone();
        changed[50] ^= 1;
        assert!(!Summary::of(&changed).is_of(&before));
        let (low, high) = sorted.split_at(50 * RECORD);
        let (low, high) = (Summary::of(low), Summary::of(high));
        assert!(low.then(high).is_ordered && !high.then(low).is_ordered);
        assert!((0..100).all(|at| reducer(&whole[at * RECORD..], 7) < 7));
    }
}
