//! A shuffle: every mapper writes the run that it has for each reducer where that reducer reads it, one-sidedly and
//! without a word to anybody, since all offsets follow from the sizes.
//!
//! ```text
//!   | reducer 0: run of mapper 0 | run of mapper 1 | ... | reducer 1: run of mapper 0 | ... |
//! ```

use crate::client::Region;
use crate::error::StoreError;
use crate::layout::wide;

/// Where each run lies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ShufflePlan {
    mappers: usize,
    /// Where the run of a mapper for a reducer begins, by reducer, then mapper; then the end of all.
    begins: Vec<u64>,
}

impl ShufflePlan {
    /// The plan of `sizes[mapper][reducer]`, in bytes; `None` for rows of different lengths, or a sum beyond 64 bits.
    pub fn new(sizes: &[Vec<u64>]) -> Option<Self> {
        let reducers = sizes.first().map_or(0, Vec::len);
        if sizes.iter().any(|row| row.len() != reducers) {
            return None;
        }
        let (mut begins, mut at) = (Vec::with_capacity(sizes.len() * reducers + 1), 0_u64);
        for reducer in 0..reducers {
            for row in sizes {
                begins.push(at);
                at = at.checked_add(row[reducer])?;
            }
        }
        begins.push(at);
        Some(Self { mappers: sizes.len(), begins })
    }

    /// The bytes that a region needs for it.
    pub fn region_len(&self) -> u64 {
        self.begins.last().copied().unwrap_or(0)
    }

    /// Where a run lies: offset and length.
    pub fn run(&self, mapper: usize, reducer: usize) -> (u64, u64) {
        let at = reducer * self.mappers + mapper;
        (self.begins[at], self.begins[at + 1] - self.begins[at])
    }

    /// Where all runs of a reducer lie: offset and length.
    pub fn partition(&self, reducer: usize) -> (u64, u64) {
        let (from, to) = (reducer * self.mappers, (reducer + 1) * self.mappers);
        (self.begins[from], self.begins[to] - self.begins[from])
    }

    /// Writes runs of a mapper, all at once.
    ///
    /// # Errors
    /// A run has another length than the plan says; the region cannot be written.
    pub fn write(
        &self,
        region: &Region,
        mapper: usize,
        runs: &[(usize, &[u8])],
    ) -> Result<(), StoreError> {
        let mut writes = Vec::with_capacity(runs.len());
        for (reducer, bytes) in runs {
            let (offset, len) = self.run(mapper, *reducer);
            if wide(bytes.len()) != len {
                let (len, limit) = (wide(bytes.len()), len);
                return Err(StoreError::OutOfRange { offset, len, limit });
            }
            writes.push((offset, *bytes));
        }
        region.write_many(&writes)
    }

    /// Reads all runs of a reducer, in the order of the mappers.
    ///
    /// # Errors
    /// The region cannot be read.
    pub fn read(&self, region: &Region, reducer: usize) -> Result<Vec<u8>, StoreError> {
        let (offset, len) = self.partition(reducer);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        region.read(offset, &mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_lie_by_reducer_and_then_by_mapper_without_gaps() {
        let plan = ShufflePlan::new(&[vec![3, 5], vec![0, 7]]).unwrap();
        assert_eq!((plan.run(0, 0), plan.run(1, 0)), ((0, 3), (3, 0)));
        assert_eq!((plan.run(0, 1), plan.run(1, 1)), ((3, 5), (8, 7)));
        assert_eq!((plan.partition(1), plan.region_len()), ((3, 12), 15));
        assert_eq!(ShufflePlan::new(&[vec![1], vec![1, 2]]), None);
        assert_eq!(ShufflePlan::new(&[vec![u64::MAX], vec![1]]), None);
    }
}
