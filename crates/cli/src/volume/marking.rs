//! A volume of mode file that is marked as one when a client first writes to it.
//!
//! From then on its bytes may look like anything, a volume of mode block too, and the mark says what it is. A file that a command
//! opened, and then was refused, stays as it was: the mark is what `landfast volume remove` goes by. It is on the disk before
//! the first bytes are: without it they could be those of a volume of mode block, which an opening repairs.

use std::fs::File;
use std::sync::OnceLock;

use block::{BlockDevice, BlockError, Extent, FileDevice, Geometry, Survives, Zeroing};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::args::Mode;

/// See the module.
#[derive(Debug)]
pub(super) struct Marking {
    device: FileDevice,
    file: File,
    is_marked: OnceLock<()>,
}

impl Marking {
    /// The device of a file; `file` is the same file.
    pub(super) fn new(device: FileDevice, file: File) -> Self {
        Self { device, file, is_marked: OnceLock::new() }
    }

    fn changed(&self) -> Result<&FileDevice, BlockError> {
        if self.is_marked.get().is_none() {
            mark(&self.file, Mode::File)?;
            // A flush of the bytes writes no attribute.
            rustix::fs::fsync(&self.file)?;
            let _ = self.is_marked.set(());
        }
        Ok(&self.device)
    }
}

impl BlockDevice for Marking {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        self.device.read(offset, out)
    }

    fn write(&self, offset: u64, bytes: &[u8], survives: Survives) -> Result<(), BlockError> {
        self.changed()?.write(offset, bytes, survives)
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.device.flush()
    }

    fn trim(&self, offset: u64, len: u64, survives: Survives) -> Result<(), BlockError> {
        self.changed()?.trim(offset, len, survives)
    }

    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        zeroing: Zeroing,
        survives: Survives,
    ) -> Result<(), BlockError> {
        self.changed()?.write_zeroes(offset, len, zeroing, survives)
    }

    fn status(&self, offset: u64, len: u64) -> Result<Extent, BlockError> {
        self.device.status(offset, len)
    }

    fn resize(&self, size: u64) -> Result<u64, BlockError> {
        self.changed()?.resize(size)
    }
}

/// Marks a volume of mode file or dax, which has no bytes of its own that could say what it is. A file system without
/// extended attributes has none to mark it by: the volume can be used all the same, and is not listed.
///
/// # Errors
/// There is no room for it.
pub(super) fn mark(file: &File, mode: Mode) -> Result<(), Errno> {
    let value: &[u8] = if mode == Mode::Dax { DAX } else { FILE };
    match rustix::fs::fsetxattr(file, MARK, value, XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}

/// The mode that a file is marked with.
pub(super) fn marked(file: &File) -> Option<Mode> {
    let mut value = [0_u8; 8];
    let len = rustix::fs::fgetxattr(file, MARK, &mut value).ok()?;
    match value.get(..len)? {
        FILE => Some(Mode::File),
        DAX => Some(Mode::Dax),
        _ => None,
    }
}

/// Whether a file is marked as a volume.
pub(super) fn is_marked(file: &File) -> bool {
    marked(file).is_some()
}

const MARK: &str = "user.landfast.volume";
const FILE: &[u8] = b"file";
const DAX: &[u8] = b"dax";
