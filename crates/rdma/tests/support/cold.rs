//! Storage whose bytes are cached from a moment that the test chooses.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use pmem::{AtomicOp, DurabilityClass, Medium, MediumError, StoreGranularity};

/// A file on storage whose second half is not cached at first.
#[derive(Debug)]
pub(crate) struct Cold {
    inner: Arc<dyn Medium>,
    /// From now on the whole file is cached.
    pub(crate) warm: AtomicBool,
    /// Reads that would have blocked.
    pub(crate) misses: AtomicU64,
    /// Persists and atomics that began; each waits for a permit.
    pub(crate) begun: AtomicU64,
    stores: Mutex<Receiver<()>>,
    /// Each read by a worker waits for a permit.
    fetches: Mutex<Receiver<()>>,
}

/// Permits that let operations end: persists and atomics, and reads by workers.
#[derive(Debug)]
pub(crate) struct Permits {
    pub(crate) store: Sender<()>,
    pub(crate) fetch: Sender<()>,
}

impl Cold {
    pub(crate) fn new(inner: Arc<dyn Medium>) -> (Arc<Self>, Permits) {
        let ((store, stores), (fetch, fetches)) = (channel(), channel());
        let cold = Self {
            inner,
            warm: AtomicBool::new(false),
            misses: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            stores: Mutex::new(stores),
            fetches: Mutex::new(fetches),
        };
        (Arc::new(cold), Permits { store, fetch })
    }

    fn wait(gate: &Mutex<Receiver<()>>) -> Result<(), MediumError> {
        gate.lock().unwrap().recv().map_err(|_| MediumError::MediaIo(5))
    }
}

impl Medium for Cold {
    fn class(&self) -> DurabilityClass {
        DurabilityClass::Storage
    }

    fn store_granularity(&self) -> StoreGranularity {
        StoreGranularity::Page
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn try_place(&self, _offset: u64, _bytes: &[u8]) -> Result<(), MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        let end = offset + u64::try_from(out.len()).unwrap();
        if end > self.len() / 2 && !self.warm.load(Ordering::SeqCst) {
            self.misses.fetch_add(1, Ordering::SeqCst);
            return Err(MediumError::WouldBlock);
        }
        self.inner.read(offset, out)
    }

    fn try_persist(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn try_atomic(&self, _offset: u64, _op: AtomicOp) -> Result<u64, MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.inner.place(offset, bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        Self::wait(&self.fetches)?;
        self.inner.read(offset, out)
    }

    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Self::wait(&self.stores)?;
        self.inner.persist(offset, len)
    }

    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Self::wait(&self.stores)?;
        self.inner.atomic(offset, op)
    }

    fn prepare(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        Ok(())
    }
}
