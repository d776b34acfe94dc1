//! A range of a file in flash as a [`Medium`].

use std::sync::Arc;

use pmem::{AtomicOp, Backing, DurabilityClass, Fetcher, Medium, MediumError, StoreGranularity};

use crate::fetch::Flights;
use crate::file::FlashFile;
use crate::pieces::pages_of;
use crate::registry::Use;

/// The first bytes of a file in flash. All media of one file share its pages.
#[derive(Debug)]
pub struct FlashMedium {
    file: Use,
    len: u64,
    writable: bool,
}

impl FlashMedium {
    pub(crate) fn new(file: Use, len: u64, writable: bool) -> Self {
        file.expect_len(len);
        Self { file, len, writable }
    }

    /// The file.
    pub fn file(&self) -> &Arc<FlashFile> {
        self.file.file()
    }

    fn check(&self, offset: u64, len: usize, writes: bool) -> Result<(), MediumError> {
        let len = u64::try_from(len).expect("64 address bits at most");
        self.check_range(offset, len)?;
        if writes && !self.writable { Err(MediumError::ReadOnly) } else { Ok(()) }
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        let limit = self.len;
        let is_inside = offset <= limit && len <= limit - offset;
        if is_inside { Ok(()) } else { Err(MediumError::OutOfBounds { offset, len, limit }) }
    }

    fn check_word(&self, offset: u64) -> Result<(), MediumError> {
        if !offset.is_multiple_of(AtomicOp::LEN) {
            return Err(MediumError::Misaligned { offset });
        }
        self.check(offset, 8, true)
    }
}

impl Medium for FlashMedium {
    fn class(&self) -> DurabilityClass {
        DurabilityClass::Storage
    }

    fn store_granularity(&self) -> StoreGranularity {
        StoreGranularity::Page
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn backing(&self) -> Option<Backing> {
        self.file.backing()
    }

    fn is_written_later(&self) -> bool {
        true
    }

    fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.check(offset, bytes.len(), true)?;
        self.file.try_place(offset, bytes)
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.check(offset, out.len(), false)?;
        self.file.try_read(offset, out)
    }

    fn new_fetcher(&self) -> Option<Box<dyn Fetcher>> {
        Flights::open().map(|flights| Box::new(flights) as _)
    }

    fn try_fetch(
        &self,
        fetcher: &mut dyn Fetcher,
        offset: u64,
        len: u64,
        tag: Option<u64>,
    ) -> bool {
        let Some(flights) = fetcher.as_any().downcast_mut::<Flights>() else { return false };
        let is_inside = self.check_range(offset, len).is_ok();
        is_inside && self.file.file().fetch(flights, pages_of(offset, len), tag)
    }

    fn try_persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.check_range(offset, len)?;
        match self.file.device.is_poisoned() {
            true => Err(MediumError::Poisoned),
            false => Err(MediumError::WouldBlock),
        }
    }

    fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.check_word(offset)?;
        self.file.try_atomic(offset, op)
    }

    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.check(offset, bytes.len(), true)?;
        self.file.place(offset, bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.check(offset, out.len(), false)?;
        self.file.read(offset, out)
    }

    fn write_back(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.check_range(offset, len)?;
        self.file.write_back(pages_of(offset, len))
    }

    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.check_range(offset, len)?;
        self.file.persist(offset, len)
    }

    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.check_word(offset)?;
        self.file.atomic(offset, op)
    }

    // Nothing is made present: pages come when they are asked for.
    fn prepare(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.check_range(offset, len)
    }
}
