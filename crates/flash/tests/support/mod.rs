//! A device that fails, waits and cuts short as a test tells it to; and, in a file of their own, numbers.

#![allow(dead_code, unused_imports, reason = "each program of tests uses a part")]

mod numbers;

use std::collections::BTreeSet;
use std::io;
use std::sync::{Condvar, Mutex};

use flash::{Device, Extent, MediumDevice};
use pmem::MediumError;

pub(crate) use numbers::Numbers;

/// The faults of a device at present.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Pages that cannot be read, and the errno.
    pub(crate) reads: BTreeSet<u64>,
    /// Pages that cannot be written, and the errno.
    pub(crate) writes: BTreeSet<u64>,
    pub(crate) errno: i32,
    /// Reads and writes move this many bytes at most.
    pub(crate) short: Option<usize>,
    /// Flushes fail.
    pub(crate) flush: bool,
    /// Reads wait until this is false.
    pub(crate) is_held: bool,
    pub(crate) held: usize,
    /// Writes wait until this is false.
    pub(crate) writes_are_held: bool,
    pub(crate) read_calls: usize,
    pub(crate) write_calls: usize,
    /// The device says where it was never written.
    pub(crate) is_sparse: bool,
    written: BTreeSet<u64>,
    is_poisoned: bool,
}

/// Anonymous memory as a device with faults.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: MediumDevice,
    pub(crate) faults: Mutex<Faults>,
    changed: Condvar,
}

impl Faulty {
    pub(crate) fn new(len: u64) -> &'static Self {
        let options = pmem::OpenOptions { emulate_persistence: true };
        let medium = pmem::anonymous_with(len, options).unwrap();
        let faults = Mutex::new(Faults { errno: 5, ..Faults::default() });
        Box::leak(Box::new(Self { inner: MediumDevice(medium), faults, changed: Condvar::new() }))
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults.lock().unwrap());
        self.changed.notify_all();
    }

    pub(crate) fn until_held(&self, count: usize) {
        let faults = self.faults.lock().unwrap();
        drop(self.changed.wait_while(faults, |faults| faults.held < count).unwrap());
    }

    pub(crate) fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        assert_eq!(self.inner.read(offset, &mut out).unwrap(), len);
        out
    }
}

impl Faulty {
    /// As a program of the machine that writes the file.
    pub(crate) fn zero(&self, offset: u64, len: usize) {
        assert_eq!(self.inner.write(offset, &vec![0; len]).unwrap(), len);
    }
}

/// A device of this number.
#[derive(Debug)]
pub(crate) struct On(pub(crate) &'static Faulty, pub(crate) u64);

impl Device for On {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(offset, out)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(offset, bytes)
    }

    fn persist(&self) -> Result<(), MediumError> {
        self.0.persist()
    }

    fn is_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }

    fn poison(&self) {
        self.0.poison();
    }

    fn backing(&self) -> Option<pmem::Backing> {
        Some(pmem::Backing { device: self.1, file: 0 })
    }
}

impl Device for &'static Faulty {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let mut faults = self.faults.lock().unwrap();
        faults.read_calls += 1;
        faults.held += 1;
        self.changed.notify_all();
        let mut faults = self.changed.wait_while(faults, |faults| faults.is_held).unwrap();
        faults.held -= 1;
        let pages = offset / 4096..(offset + out.len() as u64).div_ceil(4096);
        if faults.reads.range(pages).next().is_some() {
            return Err(io::Error::from_raw_os_error(faults.errno));
        }
        let len = out.len().min(faults.short.unwrap_or(usize::MAX));
        self.inner.read(offset, &mut out[..len])
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut faults = self.faults.lock().unwrap();
        faults.write_calls += 1;
        let held = |faults: &mut Faults| faults.writes_are_held;
        let mut faults = self.changed.wait_while(faults, held).unwrap();
        let pages = offset / 4096..(offset + bytes.len() as u64).div_ceil(4096);
        if faults.writes.range(pages).next().is_some() {
            return Err(io::Error::from_raw_os_error(faults.errno));
        }
        let len = bytes.len().min(faults.short.unwrap_or(usize::MAX));
        faults.written.extend(offset / 4096..(offset + len as u64).div_ceil(4096));
        self.inner.write(offset, &bytes[..len])
    }

    fn persist(&self) -> Result<(), MediumError> {
        let mut faults = self.faults.lock().unwrap();
        faults.is_poisoned |= faults.flush;
        if faults.is_poisoned { Err(MediumError::Poisoned) } else { Ok(()) }
    }

    fn is_poisoned(&self) -> bool {
        self.faults.lock().unwrap().is_poisoned
    }

    fn poison(&self) {
        self.faults.lock().unwrap().is_poisoned = true;
    }

    fn extent_at(&self, offset: u64) -> Option<Extent> {
        let faults = self.faults.lock().unwrap();
        if !faults.is_sparse {
            return None;
        }
        let page = offset / 4096;
        if faults.written.contains(&page) {
            return Some(Extent { range: offset..(page + 1) * 4096, is_hole: false });
        }
        let next = faults.written.range(page..).next().map(|page| page * 4096);
        let end = next.unwrap_or_else(|| self.inner.len().unwrap());
        Some(Extent { range: offset..end, is_hole: true })
    }
}
