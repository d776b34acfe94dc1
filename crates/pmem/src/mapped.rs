//! A file as memory: persistent memory through MAP_SYNC or devdax, or tmpfs.

use std::fs::File;

use rustix::io::Errno;

use crate::lines::Memory;
use crate::mapping::Mapping;
use crate::presence::{CHUNK, Presence, Touch};
use crate::{AtomicOp, DirectMemory, MapError, MediumError, arch};

/// The first bytes of a file, mapped shared.
#[derive(Debug)]
pub(crate) struct MappedFile {
    mapping: Mapping,
    presence: Presence,
    /// Kept to ask the file's length when a page cannot be fetched.
    file: File,
}

impl MappedFile {
    pub(crate) fn new(file: File, mapping: Mapping) -> Result<Self, MapError> {
        let presence = Presence::absent(mapping.len())?;
        Ok(Self { mapping, presence, file })
    }

    /// The kernel reports a page beyond the end of the file and a full file system alike.
    fn why_no_page(&self, end: usize) -> MediumError {
        match rustix::fs::fstat(&self.file) {
            Ok(stat) if usize::try_from(stat.st_size).is_ok_and(|size| size < end) => {
                MediumError::Truncated
            }
            Ok(_) => Errno::NOSPC.into(),
            Err(errno) => errno.into(),
        }
    }
}

impl Memory for MappedFile {
    fn len(&self) -> usize {
        self.mapping.len()
    }

    fn direct(&self) -> Option<DirectMemory> {
        Some(self.mapping.direct())
    }

    fn is_present(&self, offset: usize, len: usize, touch: Touch) -> bool {
        self.presence.covers(offset, len, touch)
    }

    /// Fetches whole chunks, so that the next access nearby finds them.
    fn populate(&self, offset: usize, len: usize, touch: Touch) -> Result<(), MediumError> {
        let first = offset & !(CHUNK - 1);
        // Up to isize::MAX, so the next multiple exists.
        let end = (offset + len).next_multiple_of(CHUNK).min(self.mapping.len());
        match self.mapping.populate(first, end - first, touch == Touch::Write) {
            Ok(()) => {
                self.presence.note(first, end - first, touch);
                self.mapping.health()
            }
            Err(Errno::FAULT) => Err(self.why_no_page(end)),
            Err(errno) => Err(errno.into()),
        }
    }

    fn health(&self) -> Result<(), MediumError> {
        self.mapping.health()
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
