//! What lies below a file system that writes pages back: a disk, or memory, where no flush makes anything durable.
//!
//! ```text
//!  overlay, mounted with `volatile` ------------------------> memory: its fsync does nothing
//!  overlay, else ---------------------> its upper layer ----> again
//!  file system on a block device: brd, zram, null_blk ------> memory
//!                                 loop ---> the file behind it ---> again
//!                                 device mapper, RAID ---> every device below it ---> again
//!  everything else -----------------------------------------> a disk
//! ```
//!
//! What cannot be found out counts as a disk: the upper layer of a container's overlay, which has no path inside, and the
//! memory of a virtual machine's host.
//!
//! Spec: Linux Documentation/filesystems/overlayfs.rst ("Volatile mount"), proc(5) (mountinfo, fdinfo),
//! Documentation/ABI/testing/sysfs-block (slaves), sysfs-block-loop.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FsWord, Mode, OFlags};

/// Whether what a flush of this file, or of this block device, reaches is memory, which a power failure erases.
#[must_use]
pub fn is_in_memory(file: &File) -> bool {
    is_file_in_memory(file, LAYERS_MAX)
}

/// Whether a file system of this kind keeps its files in ordinary memory.
pub(crate) fn is_made_of_memory(magic: FsWord) -> bool {
    magic == TMPFS_MAGIC || magic == RAMFS_MAGIC
}

fn is_file_in_memory(file: impl AsFd, layers: usize) -> bool {
    let (Ok(found), Ok(stat)) = (rustix::fs::fstatfs(&file), rustix::fs::fstat(&file)) else {
        return false;
    };
    if layers == 0 {
        return false;
    }
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => return is_device_in_memory(stat.st_rdev, layers),
        // A device of persistent memory; its node lies in memory.
        FileType::CharacterDevice => return false,
        _ => {}
    }
    if is_made_of_memory(found.f_type) {
        return true;
    }
    if found.f_type == OVERLAYFS_MAGIC {
        return mount_of(file).is_some_and(|mount| is_overlay_in_memory(&mount, layers));
    }
    // Without a number of a device: btrfs, network file systems.
    if rustix::fs::major(stat.st_dev) == 0 {
        return mount_of(file).is_some_and(|mount| is_source_in_memory(&mount, layers));
    }
    is_device_in_memory(stat.st_dev, layers)
}

fn is_overlay_in_memory(mount: &Mount, layers: usize) -> bool {
    let mut options = mount.options.split(',');
    // The second from Linux 6.18 on.
    if options.clone().any(|option| option == "volatile" || option == "fsync=volatile") {
        return true;
    }
    let upper = options.find_map(|option| option.strip_prefix("upperdir="));
    // One that is not absolute is of who mounted it.
    let upper = upper.map(unescaped).filter(|upper| upper.is_absolute());
    upper.is_some_and(|upper| is_path_in_memory(&upper, layers - 1))
}

fn is_source_in_memory(mount: &Mount, layers: usize) -> bool {
    let Ok(stat) = rustix::fs::stat(unescaped(&mount.source)) else { return false };
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    is_device && is_device_in_memory(stat.st_rdev, layers)
}

fn is_path_in_memory(path: &Path, layers: usize) -> bool {
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    opened.is_ok_and(|file| is_file_in_memory(file, layers))
}

fn is_device_in_memory(device: u64, layers: usize) -> bool {
    if layers == 0 {
        return false;
    }
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let place = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"));
    let Ok(mut place) = place else { return false };
    if place.join("partition").exists() {
        place.pop();
    }
    let name = place.file_name().map(|name| name.to_string_lossy().into_owned());
    let is_of_memory = |name: &String| {
        MEMORY_DRIVERS.iter().any(|driver| {
            let number = name.strip_prefix(driver);
            number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    if name.as_ref().is_some_and(is_of_memory) {
        return true;
    }
    if let Ok(behind) = std::fs::read_to_string(place.join("loop/backing_file")) {
        return is_path_in_memory(Path::new(behind.trim_end_matches('\n')), layers - 1);
    }
    let Ok(below) = std::fs::read_dir(place.join("slaves")) else { return false };
    // One that is none may be what a flush reaches: a mirror, a disk behind a cache.
    let mut devices = below.flatten().peekable();
    devices.peek().is_some()
        && devices.all(|device| {
            let numbers = std::fs::read_to_string(device.path().join("dev")).unwrap_or_default();
            let mut numbers = numbers.trim_end().split(':').map(str::parse);
            let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
                return false;
            };
            is_device_in_memory(rustix::fs::makedev(major, minor), layers - 1)
        })
}

/// A line of mountinfo, as far as it is needed.
#[derive(Debug, Eq, PartialEq)]
struct Mount {
    source: String,
    /// Of the file system; each as the kernel escapes it.
    options: String,
}

// The mount through which a file was opened.
fn mount_of(file: impl AsFd) -> Option<Mount> {
    let about = format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd());
    let about = std::fs::read_to_string(about).ok()?;
    let id = about.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    line_of(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, id)
}

// proc(5): `ID PARENT MAJOR:MINOR ROOT PLACE OPTIONS [FIELDS]... - KIND SOURCE OPTIONS`.
fn line_of(mounts: &str, id: &str) -> Option<Mount> {
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(id))?;
    let mut of_file_system = line.split_once(" - ")?.1.split(' ').skip(1);
    let (source, options) = (of_file_system.next()?, of_file_system.next()?);
    Some(Mount { source: source.to_owned(), options: options.to_owned() })
}

// proc(5): space, tab, newline, backslash as `\` and three octal digits; overlayfs: comma and equals sign, too.
fn unescaped(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\');
        let code = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// Statfs magic numbers, from the kernel's linux/magic.h.
const TMPFS_MAGIC: FsWord = 0x0102_1994;
const RAMFS_MAGIC: FsWord = 0x8584_58f6;
const OVERLAYFS_MAGIC: FsWord = 0x794c_7630;

/// Block devices that keep nothing when the power fails, by the names of their drivers in /sys.
const MEMORY_DRIVERS: [&str; 3] = ["ram", "zram", "nullb"];

/// Layers looked at below a file: more than anybody stacks.
const LAYERS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layers_of_an_overlay_are_read_from_its_mount() {
        let mounts = "21 1 254:0 / / rw - ext4 /dev/root rw\n\
            210 21 0:40 / /a\\040b rw,relatime shared:7 - overlay overlay rw,lowerdir=/l,upperdir=/u\\054\\040v,workdir=/w,volatile\n";
        let options = "rw,lowerdir=/l,upperdir=/u\\054\\040v,workdir=/w,volatile";
        let overlay = Mount { source: "overlay".to_owned(), options: options.to_owned() };
        assert_eq!(line_of(mounts, "210"), Some(overlay));
        assert_eq!(line_of(mounts, "21").unwrap().source, "/dev/root");
        assert_eq!(line_of(mounts, "1"), None);
        assert_eq!(line_of("7 1 0:1 / / rw overlay", "7"), None, "a line without its second part");
        assert_eq!(unescaped("/u\\054\\040v"), Path::new("/u, v"));
        assert_eq!(unescaped("a\\9\\134\\"), Path::new("a\\9\\\\"));
    }

    #[test]
    fn as_many_layers_are_looked_at_as_are_allowed() {
        let of =
            |options: &str| Mount { source: "overlay".to_owned(), options: options.to_owned() };
        let upper = of("rw,upperdir=/dev/shm,workdir=/dev/shm");
        assert!(is_overlay_in_memory(&upper, 2));
        assert!(!is_overlay_in_memory(&upper, 1), "the upper layer is one too many");
        assert!(is_overlay_in_memory(&of("rw,volatile"), 1));
        assert!(!is_overlay_in_memory(&of("rw,upperdir=dev/shm"), 2), "it is not absolute");
    }

    #[test]
    fn a_source_that_is_no_block_device_is_not_memory() {
        for source in ["/dev/null", "/dev/shm", "no such file"] {
            let mount = Mount { source: source.to_owned(), options: String::new() };
            assert!(!is_source_in_memory(&mount, LAYERS_MAX), "{source}");
        }
    }
}
