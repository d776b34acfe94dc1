//! `landfast volume create`, `resize` and `remove`.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt as _, OpenOptionsExt};
use std::path::Path;

use pmem::DurabilityClass;
use rustix::fs::FallocateFlags;
use volume::{Access, Format, LayoutVersion};

use super::args::{Create, Layout, Mode, Remove, Resize};
use super::{VolumeFailure, look, marking, opened};
use crate::failure::Failure;
use crate::output;

/// Makes a volume.
pub(crate) fn run(options: &Create) -> Result<(), Failure> {
    let path = &options.path;
    let failed = Failure::volume("cannot make the volume", path);
    let is_device = fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device());
    let file = match (is_device, options.size) {
        (true, None) => opened::file(path, Access::ReadWrite).map_err(&failed)?,
        (false, Some(size)) => new_file(path, size).map_err(&failed)?,
        _ => return Err(failed(VolumeFailure::Size)),
    };
    let made = make(options, &file, is_device);
    if made.is_err() && !is_device {
        // It was not there before.
        let _ = fs::remove_file(path);
    }
    let mode = made.map_err(&failed)?;
    if mode != Mode::Block {
        marking::mark(&file, mode).map_err(|errno| failed(std::io::Error::from(errno).into()))?;
    }
    if !is_device {
        // What clients flush is durable in the volume, and so its name has to be.
        let named = file.sync_all().and_then(|()| sync_directory_of(path));
        named.map_err(|error| failed(error.into()))?;
    }
    let found = file.metadata().map_err(|error| failed(error.into()))?;
    let (has, len) = (found.blocks().saturating_mul(512), found.len());
    drop(file);
    output::say(&look::describe(path).map_err(failed)?)?;
    // Whoever fills it finds the disk full at some write, and not now.
    match found.is_file() && has < len {
        true => output::say(&format!(
            "{has} of its {len} bytes are taken from the file system now, the rest as it is written\n"
        )),
        false => Ok(()),
    }
}

fn new_file(path: &Path, size: u64) -> Result<File, VolumeFailure> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
    if let Err(error) = file.set_len(size) {
        let _ = fs::remove_file(path);
        return Err(error.into());
    }
    Ok(file)
}

fn make(options: &Create, file: &File, is_device: bool) -> Result<Mode, VolumeFailure> {
    let class = pmem::classify(file)?;
    let default = if class == DurabilityClass::Storage { Mode::File } else { Mode::Block };
    let mode = options.mode.unwrap_or(default);
    if class == DurabilityClass::Volatile && !options.emulate_persistence {
        return Err(VolumeFailure::Volatile);
    }
    if mode == Mode::File {
        return match options.size {
            // Its end would belong to no sector.
            Some(size) if size == 0 || size % SECTOR_OF_FILES != 0 => Err(VolumeFailure::Sectors),
            _ => Ok(mode),
        };
    }
    if mode == Mode::Dax && (is_device || class == DurabilityClass::Storage) {
        return Err(VolumeFailure::NotDax);
    }
    opened::lock(file)?;
    if !is_device {
        // A store to a page without a block would need one when the disk may be full.
        let len = options.size.unwrap_or_default();
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len)
            .map_err(std::io::Error::from)?;
    }
    if mode == Mode::Dax {
        return Ok(mode);
    }
    let medium = opened::medium(file, options.emulate_persistence)?;
    if opened::mode(&medium) == Mode::Block && !options.overwrite {
        return Err(VolumeFailure::Exists);
    }
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).map_err(|error| std::io::Error::other(error.to_string()))?;
    // RFC 9562 §5.4: a random identity says that it is one.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    let version = match options.layout {
        Layout::V1_1 => LayoutVersion::V1_1,
        Layout::V2_0 => LayoutVersion::V2_0,
    };
    if medium.len() < LEN_MIN {
        let (len, least) = (medium.len(), LEN_MIN);
        return Err(volume::VolumeError::ConfigTooSmall { len, least }.into());
    }
    volume::create(&medium, Format { version, ..Format::linux(options.sector, uuid) })?;
    Ok(mode)
}

/// Grows a volume.
pub(crate) fn resize(options: &Resize) -> Result<(), Failure> {
    let failed = Failure::volume("cannot grow the volume", &options.path);
    // Growing appends zeros, and marks the file as a volume: nobody means that of another file.
    refuse_other_files(&options.path).map_err(&failed)?;
    let opened = opened::device(&options.path, Access::ReadWrite, options.emulate_persistence);
    let (device, _) = opened.map_err(&failed)?;
    let has = device.geometry().size;
    if options.size < has {
        return Err(failed(VolumeFailure::Shrinks { has }));
    }
    let size = device.resize(options.size).map_err(|error| failed(error.into()))?;
    output::say(&format!("{size} bytes\n"))
}

fn refuse_other_files(path: &Path) -> Result<(), VolumeFailure> {
    let file = opened::file(path, Access::ReadOnly)?;
    if file.metadata()?.is_file() && !opened::is_volume(&file)? {
        return Err(VolumeFailure::NotGrown);
    }
    Ok(())
}

/// Removes a volume's file.
pub(crate) fn remove(options: &Remove) -> Result<(), Failure> {
    let failed = Failure::volume("cannot remove the volume", &options.path);
    let unlink = || -> Result<(), VolumeFailure> {
        let file = opened::file(&options.path, Access::ReadWrite)?;
        // What goes is the name: of a link it would be the link's, and the volume would stay.
        let is_regular = fs::symlink_metadata(&options.path)?.is_file();
        let is_volume = opened::is_volume(&file)?;
        if !is_regular {
            return Err(VolumeFailure::NoFile);
        }
        if !is_volume {
            return Err(VolumeFailure::Unmarked);
        }
        opened::lock(&file)?;
        fs::remove_file(&options.path)?;
        Ok(sync_directory_of(&options.path)?)
    };
    unlink().map_err(failed)
}

fn sync_directory_of(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// The sectors of a volume that is its bytes alone.
const SECTOR_OF_FILES: u64 = 512;
/// The smallest volume that Linux opens: an arena of 16 MiB behind the free page.
const LEN_MIN: u64 = (16 << 20) + 4096;
