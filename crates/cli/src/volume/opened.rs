//! A volume's file, opened: of which mode it is, and its device.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use block::{BlockDevice, FileDevice};
use pmem::Medium;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use volume::{Access, Volume, VolumeError};

use super::VolumeFailure;
use super::args::Mode;
use super::marking::{Marking, is_marked, marked};

/// Opens a volume's file.
pub(super) fn file(path: &Path, access: Access) -> Result<File, VolumeFailure> {
    // A pipe that nobody writes to would never open; it is refused for what it is.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag");
    let mut options = OpenOptions::new();
    options.read(true).write(access == Access::ReadWrite).custom_flags(flags);
    Ok(options.open(path)?)
}

/// Which mode a file is of. Whatever looks like a volume of mode block, however damaged, is none of mode file: its
/// bytes are no disk, and whoever wrote to them as such would destroy it.
pub(super) fn mode(medium: &Arc<dyn Medium>) -> Mode {
    let last_page = medium.len().saturating_sub(medium.len() % 4096 + 4096);
    let is_block = Volume::open(Arc::clone(medium), Access::ReadOnly).is_ok()
        || [0, 4096, last_page].into_iter().any(|at| {
            let mut first = [0; 16];
            medium.read(at, &mut first).is_ok() && volume::has_signature(&first)
        });
    if is_block { Mode::Block } else { Mode::File }
}

/// The name of the mode of a file that is a volume: its bytes or its mark say so.
pub(crate) fn mode_of(file: &File) -> Option<&'static str> {
    match marked(file) {
        Some(Mode::File) => return Some("file"),
        Some(Mode::Dax) => return Some("dax"),
        Some(Mode::Block) | None => {}
    }
    (mode(&medium(file, false).ok()?) == Mode::Block).then_some("block")
}

/// All bytes of a file as a medium.
pub(super) fn medium(file: &File, emulate: bool) -> Result<Arc<dyn Medium>, VolumeFailure> {
    let options = pmem::OpenOptions { emulate_persistence: emulate };
    Ok(pmem::map_file(file, pmem::length(file)?, options)?)
}

/// The volume of a file as a device, and its mode. Nobody else can open it meanwhile.
pub(super) fn device(
    path: &Path,
    access: Access,
    emulate: bool,
) -> Result<(Arc<dyn BlockDevice>, Mode), VolumeFailure> {
    let mut file = file(path, access)?;
    if access == Access::ReadWrite && file.metadata()?.file_type().is_block_device() {
        file = alone(path)?;
    }
    let options = pmem::OpenOptions { emulate_persistence: emulate };
    // A block device has no class of its own here, and no layout: its disk keeps its sectors whole.
    let class = pmem::classify(&file).ok();
    let is_plain = class.is_none();
    check_fit(&file, access, emulate)?;
    // What clients write to a volume of mode file may look like anything: the mark decides, not the bytes.
    if is_plain || is_marked(&file) || mode(&medium(&file, emulate)?) == Mode::File {
        lock(&file)?;
        if is_plain || access == Access::ReadOnly {
            return Ok((Arc::new(FileDevice::new(file)?), Mode::File));
        }
        let again = file.try_clone()?;
        return Ok((Arc::new(Marking::new(FileDevice::new(file)?, again)), Mode::File));
    }
    Ok((Arc::new(Volume::open_file(file, options, access)?), Mode::Block))
}

/// Looks whether [`device`] would take a file, and takes and changes nothing: a server that runs may have it open. What
/// it returns keeps nobody from the volume, and a volume of mode block in it takes no writes.
pub(super) fn look(
    path: &Path,
    access: Access,
    emulate: bool,
) -> Result<Arc<dyn BlockDevice>, VolumeFailure> {
    let mut file = file(path, Access::ReadOnly)?;
    if access == Access::ReadWrite && file.metadata()?.is_file() {
        // Whoever may read it may not be let write.
        file = self::file(path, access)?;
    }
    let class = pmem::classify(&file).ok();
    check_fit(&file, access, emulate)?;
    if class.is_some() && !is_marked(&file) {
        let medium = medium(&file, emulate)?;
        if mode(&medium) == Mode::Block {
            return Ok(Arc::new(Volume::open(medium, Access::ReadOnly)?));
        }
    }
    Ok(Arc::new(FileDevice::new(file)?))
}

/// What is no disk, and what loses what is written to it, whatever its bytes are.
fn check_fit(file: &File, access: Access, emulate: bool) -> Result<(), VolumeFailure> {
    if marked(file) == Some(Mode::Dax) {
        return Err(VolumeFailure::Mapped);
    }
    if access == Access::ReadWrite && !emulate && pmem::is_in_memory(file) {
        return Err(VolumeFailure::Volatile);
    }
    Ok(())
}

/// A disk that nobody else of this system uses from now on: not what is mounted, and nothing mounts it meanwhile.
fn alone(path: &Path) -> Result<File, VolumeFailure> {
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::EXCL).bits()).expect("flags");
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    opened.map_err(|error| match error.kind() {
        std::io::ErrorKind::ResourceBusy => VolumeFailure::Taken,
        _ => error.into(),
    })
}

/// Keeps others from opening a volume of mode file; mode block has a lock of its own.
pub(crate) fn lock(file: &File) -> Result<(), VolumeFailure> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(VolumeError::ConfigInUse.into()),
        Err(errno) => Err(std::io::Error::from(errno).into()),
    }
}

/// Whether a file is a volume: its mark or its bytes say so.
pub(super) fn is_volume(file: &File) -> Result<bool, VolumeFailure> {
    Ok(is_marked(file) || mode(&medium(file, false)?) == Mode::Block)
}
