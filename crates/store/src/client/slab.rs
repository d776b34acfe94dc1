//! Entries under small numbers that are used again.

use std::ops::{Index, IndexMut};

/// See the module.
#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// The number that the next entry gets.
    pub(super) fn next(&self) -> usize {
        self.free.last().copied().unwrap_or(self.entries.len())
    }

    pub(super) fn insert(&mut self, entry: T) -> usize {
        match self.free.pop() {
            Some(index) => {
                self.entries[index] = Some(entry);
                index
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() - 1
            }
        }
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<T> {
        let entry = self.entries.get_mut(index)?.take()?;
        self.free.push(index);
        Some(entry)
    }

    pub(super) fn get(&self, index: usize) -> Option<&T> {
        self.entries.get(index)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.entries.get_mut(index)?.as_mut()
    }

    /// All numbers are below it.
    pub(super) fn bound(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.entries.len()).filter(|index| self.entries[*index].is_some())
    }
}

impl<T> Index<usize> for Slab<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        self.get(index).expect("the number is of an entry that is there")
    }
}

impl<T> IndexMut<usize> for Slab<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        self.get_mut(index).expect("the number is of an entry that is there")
    }
}
