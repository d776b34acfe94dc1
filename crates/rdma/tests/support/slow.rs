//! Media that block or fail on purpose.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};

use pmem::{AtomicOp, Backing, DurabilityClass, Medium, MediumError, StoreGranularity};

/// A medium on which some operations have to wait.
#[derive(Debug)]
pub(crate) struct Slow {
    inner: Arc<dyn Medium>,
    /// The `try_` forms that report that they would block.
    pub(crate) blocks: Blocks,
    /// The place that the medium reports.
    pub(crate) backing: OnceLock<Backing>,
    /// Each persist takes one permit and waits for it.
    gate: Option<Mutex<Receiver<()>>>,
    /// Persists that began.
    pub(crate) begun: AtomicU64,
    /// Each read takes one permit and waits for it, once there is a gate.
    read_gate: OnceLock<Mutex<Receiver<()>>>,
    /// Reads that began behind the gate.
    pub(crate) reads_begun: AtomicU64,
    /// Every operation fails from now on.
    pub(crate) broken: AtomicBool,
    /// Every operation panics from now on.
    pub(crate) panics: AtomicBool,
    /// The operations carried out, in order: 'w' place, 'p' persist, 'a' atomic, 'r' read.
    pub(crate) log: Mutex<String>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Blocks {
    pub(crate) place: bool,
    pub(crate) read: bool,
    pub(crate) persist: bool,
    pub(crate) atomic: bool,
}

impl Blocks {
    pub(crate) const ALL: Self = Self { place: true, read: true, persist: true, atomic: true };
    pub(crate) const PERSIST: Self =
        Self { place: false, read: false, persist: true, atomic: false };
}

impl Slow {
    pub(crate) fn new(len: u64, blocks: Blocks) -> Arc<Self> {
        Self::build(len, blocks, None)
    }

    /// Every persist waits for a permit.
    pub(crate) fn gated(len: u64, blocks: Blocks) -> (Arc<Self>, Sender<()>) {
        let (permit, gate) = channel();
        (Self::build(len, blocks, Some(Mutex::new(gate))), permit)
    }

    /// The same, on a device.
    pub(crate) fn on(self: Arc<Self>, device: u64, file: u64) -> Arc<Self> {
        self.backing.set(Backing { device, file }).unwrap();
        self
    }

    /// From now on every read waits for a permit.
    pub(crate) fn gate_reads(&self) -> Sender<()> {
        let (permit, gate) = channel();
        self.read_gate.set(Mutex::new(gate)).unwrap();
        permit
    }

    fn build(len: u64, blocks: Blocks, gate: Option<Mutex<Receiver<()>>>) -> Arc<Self> {
        Arc::new(Self {
            inner: super::memory(len),
            blocks,
            backing: OnceLock::new(),
            gate,
            begun: AtomicU64::new(0),
            read_gate: OnceLock::new(),
            reads_begun: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            log: Mutex::new(String::new()),
        })
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    fn note(&self, what: char) -> Result<(), MediumError> {
        assert!(!self.panics.load(Ordering::SeqCst), "a bug of the medium's");
        if self.broken.load(Ordering::SeqCst) {
            return Err(MediumError::MediaIo(5));
        }
        self.log.lock().unwrap().push(what);
        Ok(())
    }

    fn unless(&self, blocks: bool) -> Result<(), MediumError> {
        if blocks { Err(MediumError::WouldBlock) } else { Ok(()) }
    }
}

impl Medium for Slow {
    fn class(&self) -> DurabilityClass {
        DurabilityClass::Storage
    }

    fn store_granularity(&self) -> StoreGranularity {
        StoreGranularity::Page
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn backing(&self) -> Option<Backing> {
        self.backing.get().copied()
    }

    fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.unless(self.blocks.place)?;
        self.place(offset, bytes)
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.unless(self.blocks.read)?;
        self.read(offset, out)
    }

    fn try_persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.unless(self.blocks.persist)?;
        self.persist(offset, len)
    }

    fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.unless(self.blocks.atomic)?;
        self.atomic(offset, op)
    }

    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.note('w')?;
        self.inner.place(offset, bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        if let Some(gate) = self.read_gate.get() {
            self.reads_begun.fetch_add(1, Ordering::SeqCst);
            gate.lock().unwrap().recv().map_err(|_| MediumError::MediaIo(5))?;
        }
        self.note('r')?;
        self.inner.read(offset, out)
    }

    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        if let Some(gate) = &self.gate {
            gate.lock().unwrap().recv().map_err(|_| MediumError::MediaIo(5))?;
        }
        self.note('p')?;
        self.inner.persist(offset, len)
    }

    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.note('a')?;
        self.inner.atomic(offset, op)
    }

    fn prepare(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.inner.prepare(offset, len)
    }
}
