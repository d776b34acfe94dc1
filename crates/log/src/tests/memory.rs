//! Members on ranges of one medium, so that one crash meets all of them; each can be made to fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pmem::{Medium, MediumError};

use crate::store::{Store, StoreError, Worth};
use crate::{CreateOptions, Lsn, OpenOptions, TailLog};

/// Bytes of a member: labels and the smallest ring.
pub(super) const MEMBER_LEN: u64 = 8192 + 4096;

/// A range of a medium as a store.
#[derive(Debug)]
pub(super) struct Part {
    medium: Arc<dyn Medium>,
    base: u64,
    len: u64,
    fails: Arc<AtomicBool>,
}

impl Part {
    pub(super) fn of(medium: &Arc<dyn Medium>, number: u64) -> (Box<dyn Store>, Arc<AtomicBool>) {
        let fails = Arc::new(AtomicBool::new(false));
        let part = Self {
            medium: Arc::clone(medium),
            base: number * MEMBER_LEN,
            len: MEMBER_LEN,
            fails: Arc::clone(&fails),
        };
        (Box::new(part), fails)
    }

    /// Any range.
    pub(super) fn range(medium: &Arc<dyn Medium>, base: u64, len: u64) -> Box<dyn Store> {
        Box::new(Self { medium: Arc::clone(medium), base, len, fails: Arc::default() })
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(StoreError::new(MediumError::MediaIo(5)));
        }
        Ok(())
    }
}

impl Store for Part {
    fn len(&self) -> u64 {
        self.len
    }

    fn worth(&self) -> Worth {
        Worth { class: self.medium.class(), is_emulated: false, is_remote: false }
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.check()?;
        self.medium.read(self.base + offset, out).map_err(StoreError::new)
    }

    fn place(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.check()?;
        self.medium.place(self.base + offset, bytes).map_err(StoreError::new)
    }

    fn begin_commit(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.check()?;
        self.medium.persist(self.base + offset, len).map_err(StoreError::new)
    }

    fn end_commit(&mut self) -> Result<(), StoreError> {
        self.check()
    }

    fn settle(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.check()?;
        self.medium.persist_foreign(self.base + offset, len).map_err(StoreError::new)
    }
}

/// All members of a medium.
pub(super) fn parts(medium: &Arc<dyn Medium>) -> Vec<Box<dyn Store>> {
    (0..medium.len() / MEMBER_LEN).map(|number| Part::of(medium, number).0).collect()
}

/// Memory for so many members, which keeps nothing durable but says so.
pub(super) fn in_memory(members: u64) -> Arc<dyn Medium> {
    let emulated = pmem::OpenOptions { emulate_persistence: true };
    pmem::anonymous_with(members * MEMBER_LEN, emulated).unwrap()
}

pub(super) fn create(medium: &Arc<dyn Medium>) -> TailLog {
    TailLog::create(parts(medium), &CreateOptions::default()).unwrap()
}

pub(super) fn open(medium: &Arc<dyn Medium>) -> TailLog {
    TailLog::open(parts(medium), &OpenOptions::default()).unwrap()
}

/// All records that a log has.
pub(super) fn records(log: &TailLog) -> Vec<(Lsn, Vec<u8>)> {
    log.replay(log.start_lsn()).unwrap().map(Result::unwrap).collect()
}
