//! How a file becomes a medium.

use std::fs::File;
use std::io;
use std::sync::Arc;

use pmem::Medium;
use rustix::fs::OFlags;

use crate::device::Device;
use crate::file::FlashFile;
use crate::medium::FlashMedium;
use crate::pool::Share;
use crate::registry::{Use, use_of};

/// Opens the first `len` bytes of `file` as a medium whose pages are in `share`. Takes the same time for any length, and
/// pins nothing.
///
/// A file that is in flash already stays in the share where it is.
///
/// # Errors
///
/// The file cannot be examined or opened again, is shorter, or is not open for reading.
pub fn map_file(file: &File, len: u64, share: &Share) -> io::Result<Arc<dyn Medium>> {
    let mode = rustix::fs::fcntl_getfl(file)? & OFlags::RWMODE;
    let is_too_short = file.metadata()?.len() < len;
    if mode == OFlags::WRONLY || is_too_short {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let used = use_of(file, share)?;
    Ok(Arc::new(FlashMedium::new(used, len, mode == OFlags::RDWR)))
}

/// [`map_file`] of a file that is in flash already, whatever share its pages are in.
///
/// # Errors
///
/// As [`map_file`].
pub fn map_found(file: &File, used: Use, len: u64) -> io::Result<Arc<dyn Medium>> {
    let share = used.file().share().clone();
    drop(used);
    map_file(file, len, &share)
}

/// A device as a medium, which nobody else knows: for tests and crash images.
///
/// # Errors
///
/// The device cannot be asked for its length.
pub fn map_device(device: Box<dyn Device>, share: &Share) -> io::Result<FlashMedium> {
    let len = device.len()?;
    let file = FlashFile::new(share.clone(), device)?;
    Ok(FlashMedium::new(Use::alone(&file), len, true))
}
