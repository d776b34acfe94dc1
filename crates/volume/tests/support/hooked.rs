//! A medium whose calls a test may answer in its place.

use std::fmt;
use std::sync::Arc;

use pmem::{AtomicOp, DurabilityClass, Medium, MediumError, StoreGranularity};

type OnRead = dyn Fn(&dyn Medium, u64, &mut [u8]) -> Result<(), MediumError> + Send + Sync;
type OnPlace = dyn Fn(&dyn Medium, u64, &[u8]) -> Result<(), MediumError> + Send + Sync;
type OnPersist = dyn Fn(&dyn Medium, u64, u64) -> Result<(), MediumError> + Send + Sync;

/// A medium, and what stands in for three of its calls. Each is given the medium below.
pub(crate) struct Hooked {
    inner: Arc<dyn Medium>,
    pub(crate) on_read: Box<OnRead>,
    pub(crate) on_place: Box<OnPlace>,
    pub(crate) on_persist: Box<OnPersist>,
}

impl Hooked {
    /// A medium that changes nothing.
    pub(crate) fn new(inner: Arc<dyn Medium>) -> Self {
        Self {
            inner,
            on_read: Box::new(|medium, offset, out| medium.read(offset, out)),
            on_place: Box::new(|medium, offset, bytes| medium.place(offset, bytes)),
            on_persist: Box::new(|medium, offset, len| medium.persist(offset, len)),
        }
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hooked").field(&self.inner).finish()
    }
}

impl Medium for Hooked {
    fn class(&self) -> DurabilityClass {
        self.inner.class()
    }

    fn store_granularity(&self) -> StoreGranularity {
        self.inner.store_granularity()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.inner.try_place(offset, bytes)
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.inner.try_read(offset, out)
    }

    fn try_persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.inner.try_persist(offset, len)
    }

    fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.inner.try_atomic(offset, op)
    }

    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        (self.on_place)(&*self.inner, offset, bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        (self.on_read)(&*self.inner, offset, out)
    }

    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        (self.on_persist)(&*self.inner, offset, len)
    }

    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.inner.atomic(offset, op)
    }

    fn prepare(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.inner.prepare(offset, len)
    }
}
