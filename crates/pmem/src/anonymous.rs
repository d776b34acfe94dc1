//! Zeroed memory without a file: the buffers of an engine, and tests.

use std::sync::Arc;

use crate::lines::{LineMedium, Memory, Worth};
use crate::mapping::Mapping;
use crate::presence::Touch;
use crate::{AtomicOp, DirectMemory, MapError, Medium, MediumError, OpenOptions, arch};

/// Zeroed [`crate::DurabilityClass::Volatile`] memory of `len` bytes, in constant time.
///
/// The memory is always present: the first touch of a page costs a fault of about half a
/// microsecond, and that fault waits for nothing.
///
/// # Errors
///
/// When the address space or the mappings of the process are used up.
pub fn anonymous(len: u64) -> Result<Arc<dyn Medium>, MapError> {
    anonymous_with(len, OpenOptions::default())
}

/// [`anonymous`] with options, for tests that want persistence emulated.
///
/// # Errors
///
/// As [`anonymous`].
pub fn anonymous_with(len: u64, options: OpenOptions) -> Result<Arc<dyn Medium>, MapError> {
    let len = usize::try_from(len).map_err(|_| MapError::ConfigTooLong { len })?;
    let memory = AnonymousMemory { mapping: Mapping::anonymous(len)? };
    let worth = if options.emulate_persistence { Worth::Emulated } else { Worth::Nothing };
    Ok(Arc::new(LineMedium::new(memory, worth, true)))
}

#[derive(Debug)]
struct AnonymousMemory {
    mapping: Mapping,
}

impl Memory for AnonymousMemory {
    fn len(&self) -> usize {
        self.mapping.len()
    }

    fn direct(&self) -> Option<DirectMemory> {
        Some(self.mapping.direct(0))
    }

    fn is_present(&self, _offset: usize, _len: usize, _touch: Touch) -> bool {
        true
    }

    fn populate(&self, offset: usize, len: usize, touch: Touch) -> Result<(), MediumError> {
        Ok(self.mapping.populate(offset, len, touch == Touch::Write)?)
    }

    fn health(&self, _offset: usize, _len: usize) -> Result<(), MediumError> {
        Ok(())
    }

    fn load(&self, offset: usize, out: &mut [u8]) {
        self.mapping.window().load(offset, out);
    }

    fn store(&self, offset: usize, bytes: &[u8]) {
        self.mapping.window().store(offset, bytes);
    }

    fn stream(&self, offset: usize, bytes: &[u8]) {
        self.mapping.window().stream(offset, bytes);
    }

    fn write_back(&self, offset: usize, len: usize) {
        self.mapping.window().write_back(offset, len);
    }

    fn drain(&self) {
        arch::drain();
    }

    fn atomic(&self, offset: usize, op: AtomicOp) -> u64 {
        self.mapping.window().atomic(offset, op)
    }
}
