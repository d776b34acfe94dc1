//! A medium for tests that has nothing of its own but what a medium must have, and notes what it is asked to persist.
#![cfg(test)]

use std::sync::Mutex;

use crate::{AtomicOp, DurabilityClass, Medium, MediumError, StoreGranularity};

/// Bytes, and the ranges that were persisted.
#[derive(Debug)]
pub(crate) struct Bare {
    pub(crate) bytes: Mutex<Vec<u8>>,
    pub(crate) persisted: Mutex<Vec<(u64, u64)>>,
}

impl Bare {
    pub(crate) fn new(len: usize) -> Self {
        Self { bytes: Mutex::new(vec![0; len]), persisted: Mutex::default() }
    }
}

impl Medium for Bare {
    fn class(&self) -> DurabilityClass {
        DurabilityClass::Storage
    }

    fn store_granularity(&self) -> StoreGranularity {
        StoreGranularity::Page
    }

    fn len(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }

    fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.place(offset, bytes)
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.read(offset, out)
    }

    fn try_persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.persist(offset, len)
    }

    fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.atomic(offset, op)
    }

    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        let start = usize::try_from(offset).unwrap();
        self.bytes.lock().unwrap()[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        let start = usize::try_from(offset).unwrap();
        out.copy_from_slice(&self.bytes.lock().unwrap()[start..start + out.len()]);
        Ok(())
    }

    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.persisted.lock().unwrap().push((offset, len));
        Ok(())
    }

    fn atomic(&self, _offset: u64, _op: AtomicOp) -> Result<u64, MediumError> {
        Ok(0)
    }

    fn prepare(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        Ok(())
    }
}
