//! Which of the directories that are remembered the server forgets for the names of another one.
//!
//! ```text
//!  room for both? -- no --> of the share that has most, the one not used for longest goes --> room for both?
//!       yes: remembered          the share of the new one has most, and nothing else: that is not remembered
//! ```
//!
//! So a share that has no more than its part of the whole loses nothing to another one, and a share that is alone has all
//! of it. [`crate::state::FairShare`] would leave half of the room to shares that there may never be.

/// Room that directories share, or what one of them takes of it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Size {
    pub(super) directories: usize,
    pub(super) names: usize,
}

impl Size {
    /// Of one directory.
    pub(super) fn of(names: usize) -> Self {
        Self { directories: 1, names }
    }

    fn add(&mut self, other: Self) {
        self.directories += other.directories;
        self.names += other.names;
    }

    fn subtract(&mut self, other: Self) {
        self.directories -= other.directories;
        self.names -= other.names;
    }
}

/// A directory that is remembered, or is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<K> {
    pub(super) key: K,
    /// The share that has read it; `None` if there is no such share any more.
    pub(super) share: Option<usize>,
    pub(super) size: Size,
    /// Counts uses: the smallest is of the one not used for longest.
    pub(super) used: u64,
}

/// The directories that have to go so that `new` can be remembered within `room`; `None` if that would take room from
/// shares that have less.
pub(super) fn for_another<K: Copy>(
    room: Size,
    new: Candidate<K>,
    mut held: Vec<Candidate<K>>,
) -> Option<Vec<K>> {
    let mut taken = Size::default();
    let mut of_shares: Vec<(Option<usize>, Size)> = Vec::new();
    for one in held.iter().chain([&new]) {
        taken.add(one.size);
        match of_shares.iter_mut().find(|(share, _)| *share == one.share) {
            Some((_, size)) => size.add(one.size),
            None => of_shares.push((one.share, one.size)),
        }
    }
    let mut gone = Vec::new();
    loop {
        let scarce = if taken.directories > room.directories {
            |size: &Size| size.directories
        } else if taken.names > room.names {
            |size: &Size| size.names
        } else {
            return Some(gone);
        };
        let most = of_shares.iter().map(|(_, size)| scarce(size)).max().unwrap_or(0);
        let has_most =
            |share| of_shares.iter().any(|(known, size)| *known == share && scarce(size) == most);
        // What nobody can ask for any more goes first.
        let is_nobodys = held.iter().any(|one| one.share.is_none());
        let may_go = |one: &Candidate<K>| match one.share {
            None => true,
            share => !is_nobodys && has_most(share),
        };
        let candidates = held.iter().enumerate().filter(|(_, one)| may_go(one));
        let (index, _) = candidates.min_by_key(|(_, one)| one.used)?;
        let one = held.swap_remove(index);
        taken.subtract(one.size);
        let of_share = of_shares.iter_mut().find(|(share, _)| *share == one.share);
        of_share.expect("counted above").1.subtract(one.size);
        gone.push(one.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Size = Size { directories: 8, names: 1_000 };

    /// Shares by number; those at the front are not used for longest.
    fn held(sizes: &[(usize, usize)]) -> Vec<Candidate<usize>> {
        let candidate = |(key, (share, names)): (usize, &(usize, usize))| Candidate {
            key,
            share: Some(*share),
            size: Size::of(*names),
            used: key as u64,
        };
        sizes.iter().enumerate().map(candidate).collect()
    }

    fn forgotten(sizes: &[(usize, usize)], new: (usize, usize)) -> Option<Vec<usize>> {
        let all = [sizes, &[new]].concat();
        let mut held = held(&all);
        let new = held.pop().unwrap();
        for_another(ROOM, new, held)
    }

    #[test]
    fn a_share_that_is_alone_has_all_the_room() {
        assert_eq!(forgotten(&[(1, 10); 7], (1, 10)), Some(vec![]));
        assert_eq!(forgotten(&[(1, 10); 8], (1, 10)), Some(vec![0]));
        assert_eq!(forgotten(&[(1, 400), (1, 400)], (1, 1_000)), Some(vec![0, 1]));
    }

    #[test]
    fn directories_of_the_share_that_has_most_go_first() {
        let mut sizes = vec![(2, 10)];
        sizes.extend([(1, 10); 7]);
        assert_eq!(forgotten(&sizes, (1, 10)), Some(vec![1]));
        assert_eq!(forgotten(&sizes, (2, 10)), Some(vec![1]));
        assert_eq!(forgotten(&sizes, (3, 10)), Some(vec![1]));
        // Each has its half: of two shares with equally many, the directory not used for longest goes.
        let halves = [(2, 10), (1, 10), (2, 10), (1, 10), (2, 10), (1, 10), (2, 10), (1, 10)];
        assert_eq!(forgotten(&halves, (2, 10)), Some(vec![0]));
        assert_eq!(forgotten(&halves, (3, 10)), Some(vec![0]));
    }

    #[test]
    fn a_directory_that_would_take_names_of_smaller_shares_is_not_remembered() {
        assert_eq!(forgotten(&[(2, 300), (1, 300)], (1, 800)), None);
        assert_eq!(forgotten(&[(2, 300), (1, 300)], (1, 700)), Some(vec![1]));
        assert_eq!(forgotten(&[(2, 600), (1, 300)], (1, 200)), Some(vec![0]));
    }

    #[test]
    fn directories_of_a_share_that_is_gone_go_before_all_others() {
        let mut held = held(&[(1, 500), (2, 200), (2, 200)]);
        held[2].share = None;
        let new = Candidate { key: 3, share: Some(2), size: Size::of(300), used: 3 };
        assert_eq!(for_another(ROOM, new, held), Some(vec![2]));
    }
}
