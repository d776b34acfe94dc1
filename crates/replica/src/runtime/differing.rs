//! What a destination has found to differ from what its source had: it is said to each source that comes, until copies of it come.

use log::Lsn;

use crate::format::Extent;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Differing(Vec<(Lsn, Extent)>);

impl Differing {
    /// A comparison at this point of the order has found a range.
    pub(super) fn note(&mut self, lsn: Lsn, extent: Extent) {
        self.0.retain(|(_, of)| *of != extent);
        self.0.push((lsn, extent));
        if self.0.len() > DIFFERING_MAX {
            self.join(extent.volume);
        }
    }

    /// Bytes of a range have come from the source.
    pub(super) fn is_copied(&mut self, copied: Extent) {
        self.0.retain(|(_, of)| !meet(*of, copied));
    }

    /// All of it, oldest first.
    pub(super) fn all(&self) -> Vec<(Lsn, Extent)> {
        self.0.clone()
    }

    // All of a volume's ranges, and what lies between them, become one: more is copied than has to be.
    fn join(&mut self, volume: u8) {
        let of = |it: &(Lsn, Extent)| it.1.volume == volume;
        let joined = self.0.iter().filter(|it| of(it)).copied().reduce(|(lsn, a), (other, b)| {
            let offset = a.offset.min(b.offset);
            let end = (a.offset + a.len).max(b.offset + b.len);
            (lsn.max(other), Extent { volume, offset, len: end - offset })
        });
        self.0.retain(|it| !of(it));
        self.0.extend(joined);
    }
}

fn meet(one: Extent, other: Extent) -> bool {
    one.volume == other.volume
        && one.offset < other.offset + other.len
        && other.offset < one.offset + one.len
}

/// Ranges that are kept apart, of all volumes.
const DIFFERING_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(volume: u8, number: u64) -> Extent {
        Extent { volume, offset: number * 8192, len: 4096 }
    }

    #[test]
    fn what_differs_is_kept_until_a_copy_of_it_comes() {
        let mut differing = Differing::default();
        differing.note(Lsn(64), extent(0, 0));
        differing.note(Lsn(128), extent(1, 0));
        differing.note(Lsn(192), extent(0, 0));
        assert_eq!(differing.all(), [(Lsn(128), extent(1, 0)), (Lsn(192), extent(0, 0))]);
        differing.is_copied(Extent { volume: 0, offset: 4096, len: 4096 });
        assert_eq!(differing.all().len(), 2);
        differing.is_copied(Extent { volume: 0, offset: 0, len: 64 });
        assert_eq!(differing.all(), [(Lsn(128), extent(1, 0))]);
    }

    #[test]
    fn ranges_beyond_the_bound_become_one_that_has_them_all() {
        let mut differing = Differing::default();
        differing.note(Lsn(64), extent(1, 7));
        let most = u64::try_from(DIFFERING_MAX).unwrap();
        (0..most).for_each(|number| differing.note(Lsn(64 * number), extent(0, number)));
        let all = Extent { volume: 0, offset: 0, len: (most - 1) * 8192 + 4096 };
        assert_eq!(differing.all(), [(Lsn(64), extent(1, 7)), (Lsn(64 * (most - 1)), all)]);
    }
}
