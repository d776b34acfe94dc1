//! Inodes whose flush has failed: nothing of them is called durable any more, for as long as the process lives.
//!
//! ```text
//!  the first DESCRIPTORS_MAX   with a descriptor: no other file gets the inode number
//!  the next NUMBERS_MAX        by inode number: a later file that is given the number is poisoned, too
//!  one more                    its whole file system: what is known of its inodes, descriptors as well, goes
//! ```
//!
//! Each step refuses more than the one before and forgets no failure. A file system that has lost bytes of so many
//! files is broken, or full beneath its files (quotas of NFS, thin volumes), and needs its operator.

use std::collections::{HashMap, HashSet};

/// An inode: the number of its file system, and its own there.
pub type Inode = (u64, u64);

/// What is remembered of all of them; `K` keeps an inode number from another file.
#[derive(Debug)]
pub struct Poisoned<K> {
    kept: HashMap<Inode, K>,
    numbers: HashSet<Inode>,
    /// As many as were mounted.
    file_systems: HashSet<u64>,
}

/// What has become of an inode.
#[derive(Debug)]
#[must_use = "what is released may take locks when it is dropped"]
pub enum Noted<K> {
    /// It is remembered with its keeper.
    Kept,
    /// It is remembered, and the keeper not needed.
    Released(K),
    /// No flush on this file system succeeds any more; of its inodes these keepers are not needed.
    FileSystem(u64, Vec<K>),
}

impl<K> Poisoned<K> {
    /// None yet.
    pub fn new() -> Self {
        Self { kept: HashMap::new(), numbers: HashSet::new(), file_systems: HashSet::new() }
    }

    /// Remembers an inode. Noted again, it is known already.
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

    /// Remembers an inode of which there is no keeper.
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

/// Descriptors kept: a small part of those that a server keeps for what no peer holds for long.
pub(crate) const DESCRIPTORS_MAX: usize = 64;
/// Inode numbers remembered without one: 2 MiB.
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
    fn a_file_system_of_too_many_failures_is_refused_whole() {
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
}
