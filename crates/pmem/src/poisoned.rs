//! Inodes whose flush has failed: every later persist of them fails, for as long as the process lives.
//!
//! ```text
//!  the first DESCRIPTORS_MAX   with a descriptor: no other file gets the inode number
//!  the next NUMBERS_MAX        by inode number: a later file that gets the number is poisoned, too
//!  one more                    by file system: its entries and descriptors are dropped, all its files refused
//! ```
//!
//! Each step refuses more files than the step before and forgets no failure. A file system that has lost bytes of so many
//! files is broken, or full beneath its files (quotas of NFS, thin volumes), and needs its operator.

use std::collections::{HashMap, HashSet};

/// An inode: the number of its file system, and its inode number there.
pub type Inode = (u64, u64);

/// The record of all poisoned inodes; a keeper `K` holds an inode open, so that no other file gets its number.
#[derive(Debug)]
pub struct Poisoned<K> {
    kept: HashMap<Inode, K>,
    numbers: HashSet<Inode>,
    /// Refused file systems; at most as many as were mounted.
    file_systems: HashSet<u64>,
}

/// The result of noting an inode.
#[derive(Debug)]
#[must_use = "what is released may take locks when it is dropped"]
pub enum Noted<K> {
    /// The inode is remembered with its keeper.
    Kept,
    /// The inode is remembered without the keeper, which the caller drops.
    Released(K),
    /// No flush on this file system succeeds any more; the caller drops these keepers of its inodes.
    FileSystem(u64, Vec<K>),
}

impl<K> Poisoned<K> {
    /// An empty record.
    pub fn new() -> Self {
        Self { kept: HashMap::new(), numbers: HashSet::new(), file_systems: HashSet::new() }
    }

    /// Remembers an inode. A second note of the same inode changes nothing.
    pub fn note(&mut self, inode: Inode, keeper: K) -> Noted<K> {
        if self.contains(inode) {
            return Noted::Released(keeper);
        }
        if self.kept.len() < DESCRIPTORS_MAX {
            self.kept.insert(inode, keeper);
            return Noted::Kept;
        }
        if self.numbers.len() < NUMBERS_MAX {
            self.numbers.insert(inode);
            return Noted::Released(keeper);
        }
        self.refuse_file_system(inode.0, Some(keeper))
    }

    /// Remembers an inode for which the caller has no keeper.
    pub fn note_number(&mut self, inode: Inode) -> Noted<K> {
        if self.contains(inode) {
            return Noted::Kept;
        }
        if self.numbers.len() < NUMBERS_MAX {
            self.numbers.insert(inode);
            return Noted::Kept;
        }
        self.refuse_file_system(inode.0, None)
    }

    fn refuse_file_system(&mut self, file_system: u64, keeper: Option<K>) -> Noted<K> {
        self.file_systems.insert(file_system);
        self.numbers.retain(|(of, _)| *of != file_system);
        let covered = self.kept.extract_if(|(of, _), _| *of == file_system);
        let released = covered.map(|(_, keeper)| keeper).chain(keeper).collect();
        Noted::FileSystem(file_system, released)
    }

    /// Whether a flush of the inode has failed, or may be taken to have failed.
    pub fn contains(&self, inode: Inode) -> bool {
        self.kept.contains_key(&inode)
            || self.numbers.contains(&inode)
            || self.file_systems.contains(&inode.0)
    }
}

impl<K> Default for Poisoned<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// Most descriptors kept: a small part of the descriptors that a server keeps free of long holds by peers.
pub(crate) const DESCRIPTORS_MAX: usize = 64;
/// Most inode numbers remembered without a descriptor: 2 MiB.
pub(crate) const NUMBERS_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(poisoned: &mut Poisoned<&str>, file_system: u64) -> u64 {
        let all = u64::try_from(DESCRIPTORS_MAX + NUMBERS_MAX).unwrap();
        for inode in 0..all {
            let kept = matches!(poisoned.note((file_system, inode), ""), Noted::Kept);
            assert_eq!(kept, inode < u64::try_from(DESCRIPTORS_MAX).unwrap());
        }
        all
    }

    #[test]
    fn a_bounded_number_of_inodes_keeps_a_descriptor_and_none_is_forgotten() {
        let mut poisoned = Poisoned::new();
        let all = fill(&mut poisoned, 1);
        assert_eq!((poisoned.kept.len(), poisoned.numbers.len()), (DESCRIPTORS_MAX, NUMBERS_MAX));
        assert!((0..all).all(|inode| poisoned.contains((1, inode))));
        assert!(!poisoned.contains((1, all)) && !poisoned.contains((2, 0)));
        let known = poisoned.note((1, 0), "again");
        assert!(matches!(known, Noted::Released("again")));
    }

    #[test]
    fn a_file_system_with_too_many_failures_is_refused_as_a_whole() {
        let mut poisoned = Poisoned::new();
        let all = fill(&mut poisoned, 1);
        let Noted::FileSystem(1, released) = poisoned.note((1, all), "last") else {
            panic!("all places are taken")
        };
        assert_eq!(released.len(), DESCRIPTORS_MAX + 1);
        assert_eq!((poisoned.kept.len(), poisoned.numbers.len()), (0, 0), "it stands for them");
        assert!(poisoned.contains((1, 0)) && poisoned.contains((1, u64::MAX)));
        assert!(!poisoned.contains((2, 0)));
        assert!(matches!(poisoned.note((2, 0), ""), Noted::Kept), "others go on");
    }

    #[test]
    fn a_failure_of_an_inode_without_a_descriptor_is_remembered() {
        let mut poisoned = Poisoned::<()>::new();
        assert!(matches!(poisoned.note_number((1, 7)), Noted::Kept));
        assert!(poisoned.contains((1, 7)) && !poisoned.contains((1, 8)));
    }

    #[test]
    fn inodes_without_a_descriptor_are_bounded_too() {
        let mut poisoned = Poisoned::<()>::new();
        for inode in 0..u64::try_from(NUMBERS_MAX).unwrap() {
            assert!(matches!(poisoned.note_number((1, inode)), Noted::Kept), "{inode}");
        }
        assert!(matches!(poisoned.note_number((1, 7)), Noted::Kept), "it is known");
        assert!(matches!(poisoned.note_number((1, u64::MAX)), Noted::FileSystem(1, _)));
    }
}
