//! A store that behaves in one way otherwise than the store below it.

use std::fmt::Debug;

use crate::store::{Store, StoreError, Worth};

/// The way; whatever is not said here is as of the store below.
pub(super) trait Behaviour: Debug + Send {
    fn worth(&self, below: &dyn Store) -> Worth {
        below.worth()
    }

    fn read(&mut self, below: &mut dyn Store, at: u64, out: &mut [u8]) -> Result<(), StoreError> {
        below.read(at, out)
    }

    fn place(&mut self, below: &mut dyn Store, at: u64, bytes: &[u8]) -> Result<(), StoreError> {
        below.place(at, bytes)
    }
}

/// The store below, and how this one behaves.
#[derive(Debug)]
pub(super) struct Behaving<B>(pub(super) Box<dyn Store>, pub(super) B);

impl<B: Behaviour> Store for Behaving<B> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn worth(&self) -> Worth {
        self.1.worth(&*self.0)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.1.read(&mut *self.0, offset, out)
    }

    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.1.place(&mut *self.0, offset, bytes)
    }

    fn begin_commit(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.0.begin_commit(offset, len)
    }

    fn end_commit(&mut self) -> Result<(), StoreError> {
        self.0.end_commit()
    }

    fn settle(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.0.settle(offset, len)
    }
}
