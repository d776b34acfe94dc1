//! What a path is, and what lies below it.
//!
//! Spec: statx(2) (STATX_ATTR_DAX), proc(5) (mountinfo), Linux `Documentation/filesystems/dax.rst`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use pmem::{DurabilityClass, StoreGranularity};
use rustix::fs::{AtFlags, FileType, StatxAttributes, StatxFlags, major, minor};
use serde::Serialize;

/// A path, looked at.
#[derive(Debug, Serialize)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// For people: "a directory".
    pub(super) kind: &'static str,
    /// As mountinfo calls it.
    pub(super) file_system: String,
    pub(super) mounted_on: PathBuf,
    pub(super) dax: Dax,
    /// Of the file, or of a new file in the directory.
    pub(super) class: Option<String>,
    /// Bytes that become durable together.
    pub(super) granularity: Option<u64>,
    /// The mode of the volume that the file is.
    pub(super) volume: Option<&'static str>,
    /// Why there is no class.
    #[serde(skip_serializing_if = "Option::is_none")]
    unclassified: Option<String>,
    /// Where a file for measuring can be made.
    #[serde(skip)]
    pub(super) directory: Option<PathBuf>,
}

/// Whether stores reach the medium without the page cache.
#[derive(Debug, Serialize)]
pub(super) struct Dax {
    pub(super) is_on: bool,
    pub(super) why: String,
}

impl Place {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let facts = rustix::fs::stat(path)?;
        let kind = FileType::from_raw_mode(facts.st_mode);
        let mount = Mount::of(facts.st_dev, path)?;
        let directory = match kind {
            FileType::Directory => Some(path.to_owned()),
            FileType::RegularFile => {
                let parent = path.canonicalize()?.parent().map(Path::to_owned);
                // Another file system may be mounted below the directory.
                parent.filter(|parent| {
                    rustix::fs::stat(parent).is_ok_and(|above| above.st_dev == facts.st_dev)
                })
            }
            _ => None,
        };
        let probed = match kind {
            FileType::Directory => probe(path),
            FileType::RegularFile | FileType::CharacterDevice => open(path),
            _ => Err("only files and devices of persistent memory have one".to_owned()),
        };
        let classified = probed.and_then(|file| {
            let class = pmem::classify(&file).map_err(|error| error.to_string())?;
            Ok((file, class))
        });
        let (file, class, unclassified) = match classified {
            Ok((file, class)) => (Some(file), Some(class), None),
            Err(why) => (None, None, Some(why)),
        };
        let is_dax_file = file.as_ref().is_some_and(has_dax);
        let dax = dax(kind, class, is_dax_file, &mount);
        let is_file = kind == FileType::RegularFile || kind == FileType::CharacterDevice;
        let volume = file.as_ref().filter(|_| is_file).and_then(crate::volume::mode_of);
        Ok(Self {
            path: path.to_owned(),
            kind: name_of(kind),
            file_system: mount.file_system,
            mounted_on: mount.on,
            dax,
            class: class.map(|class| class.to_string()),
            granularity: class.map(|class| granularity(class).bytes()),
            volume,
            unclassified,
            directory,
        })
    }

    pub(super) fn unclassified(&self) -> &str {
        self.unclassified.as_deref().unwrap_or("nothing is known of it")
    }
}

fn open(path: &Path) -> Result<File, String> {
    File::open(path).map_err(|error| format!("it cannot be read: {error}"))
}

// A new file of the directory, with a block, that has no name any more.
fn probe(directory: &Path) -> Result<File, String> {
    let made = tempfile::tempfile_in(directory);
    let file = made.map_err(|error| format!("no file can be made in it: {error}"))?;
    file.set_len(4096).map_err(|error| error.to_string())?;
    Ok(file)
}

const fn granularity(class: DurabilityClass) -> StoreGranularity {
    match class {
        DurabilityClass::Pmem => StoreGranularity::CacheLine,
        DurabilityClass::Storage => StoreGranularity::Page,
        DurabilityClass::Volatile => StoreGranularity::Byte,
    }
}

fn has_dax(file: &File) -> bool {
    let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::empty());
    found.is_ok_and(|found| {
        found.stx_attributes_mask.contains(StatxAttributes::DAX)
            && found.stx_attributes.contains(StatxAttributes::DAX)
    })
}

fn dax(kind: FileType, class: Option<DurabilityClass>, is_on: bool, mount: &Mount) -> Dax {
    let no = |why: String| Dax { is_on: false, why };
    let file_system = &*mount.file_system;
    match (kind, class) {
        (FileType::CharacterDevice, Some(DurabilityClass::Pmem)) => {
            Dax { is_on: true, why: "a device of persistent memory, mapped whole".to_owned() }
        }
        (FileType::RegularFile | FileType::Directory, _) => match class {
            Some(DurabilityClass::Pmem) => {
                Dax { is_on: true, why: format!("{file_system} maps its files with MAP_SYNC") }
            }
            _ if is_on => no(format!(
                "{file_system} maps without the page cache, and grants no MAP_SYNC: fdatasync is needed"
            )),
            Some(DurabilityClass::Volatile) => no(format!(
                "{file_system} keeps files in ordinary memory, which a loss of power erases"
            )),
            _ if !matches!(
                file_system,
                "ext4" | "xfs" | "ext2" | "fuse" | "virtiofs" | "erofs"
            ) =>
            {
                no(format!("{file_system} has no DAX; ext4 and XFS have, on persistent memory"))
            }
            _ => match mount.disk_has_dax() {
                Some(true) => no(format!(
                    "the disk could, and {} is not mounted with -o dax=always (nor is the file marked by chattr +x)",
                    mount.on.display()
                )),
                Some(false) => {
                    no("the disk below is no persistent memory (its queue/dax is 0)".to_owned())
                }
                None => no("nothing is known of the disk below".to_owned()),
            },
        },
        _ => no("it is not a file, a directory or a device of persistent memory".to_owned()),
    }
}

const fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::BlockDevice => "a block device",
        FileType::CharacterDevice => "a character device",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::Unknown => "of a kind that nobody knows",
    }
}

/// What is mounted where a path leads.
#[derive(Debug)]
struct Mount {
    device: u64,
    file_system: String,
    on: PathBuf,
}

impl Mount {
    // Of the mounts of the file system the last one above the path: a later mount hides an earlier one.
    fn of(device: u64, path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let found = mounts.lines().filter_map(parse);
        let above = found.filter(|(_, on, _)| path.starts_with(on));
        // btrfs and overlayfs give their files other numbers than their mounts.
        let best = above
            .enumerate()
            .max_by_key(|(at, (number, on, _))| (*number == device, on.components().count(), *at));
        Ok(match best {
            Some((_, (_, on, file_system))) => Self { device, file_system, on },
            None => Self { device, file_system: "unknown".to_owned(), on: PathBuf::from("/") },
        })
    }

    fn disk_has_dax(&self) -> Option<bool> {
        let (major, minor) = (major(self.device), minor(self.device));
        let disk = format!("/sys/dev/block/{major}:{minor}");
        // A partition has the queue of its disk.
        let read = |path: String| fs::read_to_string(path).ok();
        let dax =
            read(format!("{disk}/queue/dax")).or_else(|| read(format!("{disk}/../queue/dax")))?;
        Some(dax.trim() == "1")
    }
}

// A line of mountinfo: number of the file system, mount point, type.
fn parse(line: &str) -> Option<(u64, PathBuf, String)> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ');
    let (major, minor) = fields.nth(2)?.split_once(':')?;
    let number = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let on = fields.nth(1)?;
    Some((number, unescaped(on).into(), after.split(' ').next()?.to_owned()))
}

// Spaces and the like are octal.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        match after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &after[3..];
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_as_the_kernel_writes_it() {
        let line =
            "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let read = parse(line).unwrap();
        assert_eq!(read, (rustix::fs::makedev(98, 0), PathBuf::from("/mnt 2"), "ext3".to_owned()));
        for broken in ["", "36 35 98 / /mnt rw - ext3", "36 35 98:0 / /mnt rw"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }
}
