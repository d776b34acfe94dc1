//! Decides the durability class of a file and opens the file as a medium of that class.
//!
//! ```text
//!  character device of subsystem dax ------------------> pmem     (mapped)
//!  regular file on tmpfs or ramfs, or on a file system
//!  over memory (`beneath`) -----------------------------> volatile (mapped)
//!  regular file whose file system grants MAP_SYNC -----> pmem     (mapped)
//!  any other regular file -----------------------------> storage  (pread, pwrite, fdatasync)
//! ```
//!
//! A DAX file on a CPU that cannot write cache lines back is storage too: its file system makes
//! `pwrite` durable.
//!
//! Spec: mmap(2) MAP_SYNC, statfs(2); Linux Documentation/filesystems/dax.rst.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use crate::guard::{MAPPINGS_MAX, WatchError};
use crate::lines::{LineMedium, Worth};
use crate::mapped::MappedFile;
use crate::mapping::{MapHow, Mapping, MappingError};
use crate::{DurabilityClass, Medium, arch, beneath, storage};

/// How to open a medium.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OpenOptions {
    /// Lets persist succeed on volatile memory, and places bytes as on persistent memory, so that
    /// the timing is that of persistent memory. The option is for tests and benches, and a program
    /// that sets it says so to its operator. The class stays [`DurabilityClass::Volatile`].
    pub emulate_persistence: bool,
}

/// Opens the first `len` bytes of `file` as a medium of the best class the file can hold.
///
/// The call takes the same time for any length. The medium has its own descriptor; a file opened for
/// reading only gives a medium that refuses placement.
///
/// # Errors
///
/// When `file` is shorter than `len`, is of a kind that has no durability class, is not open for
/// reading, or the operating system refuses.
pub fn map_file(file: &File, len: u64, options: OpenOptions) -> Result<Arc<dyn Medium>, MapError> {
    map_range(file, 0..len, options)
}

/// [`map_file`] of a range of the file, with the offsets of the file. Mapped memory takes address space for the range
/// alone, and what lies before the range, in whole pages or units of a device, is out of bounds. A medium of class
/// storage is not mapped, and reaches what lies before its range too.
///
/// # Errors
///
/// As [`map_file`].
pub fn map_range(
    file: &File,
    range: Range<u64>,
    options: OpenOptions,
) -> Result<Arc<dyn Medium>, MapError> {
    let len = range.end;
    let kind = Kind::of(file)?;
    let size = kind.size(file)?;
    if len > size {
        return Err(MapError::ConfigBeyondEnd { len, size });
    }
    let writable = is_writable(file)?;
    let own = file.try_clone().map_err(|error| MapError::MediaOpen(errno_of(&error)))?;
    let page = rustix::param::page_size();
    let (worth, how) = match kind {
        Kind::Storage => {
            let opened = storage::open(own, len, writable);
            return opened.map_err(|error| MapError::MediaOpen(errno_of(&error)));
        }
        Kind::Memory => {
            let emulated = options.emulate_persistence;
            let worth = if emulated { Worth::Emulated } else { Worth::Nothing };
            (worth, MapHow { writable, synchronous: false, unit: page })
        }
        Kind::Dax => (Worth::Durable, MapHow { writable, synchronous: true, unit: page }),
        // A devdax device has no file system whose metadata MAP_SYNC would have to make durable.
        Kind::DaxDevice { align, .. } => {
            (Worth::Durable, MapHow { writable, synchronous: false, unit: align })
        }
    };
    let address = |offset| usize::try_from(offset).map_err(|_| MapError::ConfigTooLong { len });
    let (start, end) = (address(range.start)?.min(address(len)?), address(len)?);
    let base = start - start % how.unit;
    let from = u64::try_from(base).map_err(|_| MapError::ConfigTooLong { len })?;
    let mapping = Mapping::of_file(file, (from, end - base), how)?;
    let is_filled_to_read = matches!(kind, Kind::Memory);
    let memory = MappedFile::new(own, mapping, base, is_filled_to_read)?;
    Ok(Arc::new(LineMedium::new(memory, worth, writable)))
}

/// The class that [`map_file`] would give `file`.
///
/// # Errors
///
/// When the file is of a kind that has no class, or cannot be examined.
pub fn classify(file: &File) -> Result<DurabilityClass, MapError> {
    Ok(match Kind::of(file)? {
        Kind::Storage => DurabilityClass::Storage,
        Kind::Memory => DurabilityClass::Volatile,
        Kind::Dax | Kind::DaxDevice { .. } => DurabilityClass::Pmem,
    })
}

/// The most bytes of `file` that [`map_file`] maps: the length of the file, or of its device.
///
/// # Errors
///
/// When the file is of a kind that has no class, or cannot be examined.
pub fn length(file: &File) -> Result<u64, MapError> {
    Kind::of(file)?.size(file)
}

/// The kind of memory or storage behind a file.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A file system that writes pages back.
    Storage,
    /// A file system in ordinary memory, or over it.
    Memory,
    /// A file of a DAX file system that grants MAP_SYNC.
    Dax,
    /// A whole device of persistent memory.
    DaxDevice {
        /// Alignment of a mapping: its length is a multiple of this.
        align: usize,
        /// Size of the device in bytes.
        size: u64,
    },
}

impl Kind {
    fn of(file: &File) -> Result<Self, MapError> {
        let stat = rustix::fs::fstat(file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::of_regular(file),
            FileType::CharacterDevice => Self::of_device(stat.st_rdev),
            _ => Err(MapError::ConfigNotMappable),
        }
    }

    fn of_regular(file: &File) -> Result<Self, MapError> {
        let magic = rustix::fs::fstatfs(file)?.f_type;
        if beneath::is_made_of_memory(magic) {
            return Ok(Self::Memory);
        }
        // hugetlbfs: huge pages of ordinary memory, not durable, and without read(2) and write(2) of tmpfs.
        if magic == HUGETLBFS_MAGIC {
            return Err(MapError::ConfigNotMappable);
        }
        if !arch::has_write_back() {
            return Ok(Self::written_back(file));
        }
        let writable = is_writable(file)?;
        let how = MapHow { writable, synchronous: true, unit: rustix::param::page_size() };
        match Mapping::of_file(file, (0, 1), how) {
            Ok(_) => Ok(Self::Dax),
            // EOPNOTSUPP: not DAX, or persistent memory that cannot promise MAP_SYNC (virtio-pmem).
            // EINVAL: a kernel before 4.15. ENODEV: no mappings on this file system at all.
            Err(MappingError::Map(Errno::OPNOTSUPP | Errno::INVAL | Errno::NODEV)) => {
                Ok(Self::written_back(file))
            }
            Err(error) => Err(error.into()),
        }
    }

    // Of a file whose pages the kernel writes back.
    fn written_back(file: &File) -> Self {
        if beneath::is_in_memory(file) { Self::Memory } else { Self::Storage }
    }

    fn of_device(device: u64) -> Result<Self, MapError> {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let folder = std::path::PathBuf::from(format!("/sys/dev/char/{major}:{minor}"));
        let subsystem = std::fs::canonicalize(folder.join("subsystem"));
        if !subsystem.is_ok_and(|path| path.ends_with("dax")) {
            return Err(MapError::ConfigNotMappable);
        }
        if !arch::has_write_back() {
            return Err(MapError::ConfigNoCacheWriteBack);
        }
        let number = |name| {
            let text = std::fs::read_to_string(folder.join(name));
            text.ok().and_then(|text| text.trim().parse::<u64>().ok())
        };
        let size = number("size").ok_or(MapError::MediaDevice)?;
        // Kernels before 5.1 do not report the alignment; 2 MiB was their only default.
        let align = number("align").unwrap_or(2 << 20);
        let align = usize::try_from(align).map_err(|_| MapError::MediaDevice)?;
        if !align.is_power_of_two() {
            return Err(MapError::MediaDevice);
        }
        Ok(Self::DaxDevice { align, size })
    }

    fn size(self, file: &File) -> Result<u64, MapError> {
        if let Self::DaxDevice { size, .. } = self {
            return Ok(size);
        }
        let size = rustix::fs::fstat(file)?.st_size;
        Ok(u64::try_from(size).expect("a file's size is not negative"))
    }
}

fn is_writable(file: &File) -> Result<bool, MapError> {
    match rustix::fs::fcntl_getfl(file)? & OFlags::RWMODE {
        OFlags::RDWR => Ok(true),
        OFlags::WRONLY => Err(MapError::ConfigNotReadable),
        _ => Ok(false),
    }
}

/// Why a file or a length gives no medium.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MapError {
    /// The caller wants more bytes than the file has.
    #[error("{len} bytes wanted of a file of {size}")]
    ConfigBeyondEnd {
        /// Bytes wanted.
        len: u64,
        /// Bytes the file has.
        size: u64,
    },
    /// The length does not fit the address space.
    #[error("{len} bytes do not fit the address space")]
    ConfigTooLong {
        /// Bytes wanted.
        len: u64,
    },
    /// The file is a directory, a pipe, a block device or another kind without a durability class.
    #[error("only regular files and devdax devices have a durability class")]
    ConfigNotMappable,
    /// The file is open for writing only.
    #[error("the file is not open for reading")]
    ConfigNotReadable,
    /// The CPU has no instruction that writes cache lines back, and the device offers no other way.
    #[error("this CPU cannot write cache lines back to a devdax device")]
    ConfigNoCacheWriteBack,
    /// The process has as many mappings as it may have.
    #[error("no more than {MAPPINGS_MAX} mappings at once")]
    ConfigMappingsExhausted,
    /// The device does not describe itself as devdax devices do.
    #[error("the device does not tell its size and alignment")]
    MediaDevice,
    /// Examining, duplicating or opening the file failed; the number is the `errno`.
    #[error("file cannot be opened: {}", std::io::Error::from_raw_os_error(*.0))]
    MediaOpen(i32),
    /// The operating system refused the mapping; the number is the `errno`.
    #[error("file cannot be mapped: {}", std::io::Error::from_raw_os_error(*.0))]
    MediaMap(i32),
    /// The SIGBUS handler could not be installed; the number is the `errno`.
    #[error("SIGBUS cannot be caught: {}", std::io::Error::from_raw_os_error(*.0))]
    MediaGuard(i32),
}

impl From<Errno> for MapError {
    fn from(errno: Errno) -> Self {
        Self::MediaOpen(errno.raw_os_error())
    }
}

impl From<MappingError> for MapError {
    fn from(error: MappingError) -> Self {
        match error {
            MappingError::TooLong => Self::ConfigTooLong { len: u64::MAX },
            MappingError::Map(errno) => Self::MediaMap(errno.raw_os_error()),
            MappingError::Watch(WatchError::Exhausted) => Self::ConfigMappingsExhausted,
            MappingError::Watch(WatchError::Install(errno)) => Self::MediaGuard(errno),
        }
    }
}

fn errno_of(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

// Linux uapi/linux/magic.h.
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_number_is_one_of_input_or_output() {
        let refused = std::io::Error::from_raw_os_error(libc::EACCES);
        assert_eq!(errno_of(&refused), libc::EACCES);
        assert_eq!(errno_of(&std::io::ErrorKind::UnexpectedEof.into()), libc::EIO);
    }
}
