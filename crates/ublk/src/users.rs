//! Who uses a disk. The driver does not say: opening a disk exclusively fails beside another exclusive opener alone, which
//! file systems are, and programs that write to the disk itself are not.

use std::fs;
use std::path::Path;

/// Somebody who uses a disk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum User {
    /// A process that has the disk, or a part of it, open.
    Process(u32),
    /// A device on it: a loop device, or what `/sys/block/DISK/holders` names.
    Device(String),
    /// Whoever the kernel does not name: a mounted file system, most often.
    Kernel,
}

impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process(number) => {
                let name = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
                // Whoever runs a process names it: no sign of it reaches a terminal.
                let name: String = name.chars().filter(|one| !one.is_control()).collect();
                write!(f, "process {number} ({name})")
            }
            Self::Device(name) => write!(f, "/dev/{name}"),
            Self::Kernel => f.write_str("the kernel (a file system that is mounted, most often)"),
        }
    }
}

/// The first process that has the file at `path` open, or a partition of the disk there: a name that goes on with `p` and
/// a number. Processes of which this one may not know what they have open are passed over.
pub(crate) fn process_with(path: &Path) -> Option<User> {
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    for process in processes {
        let Some(number) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        // The link says where a descriptor leads; to follow it could wait for a server that is gone.
        let mut links = descriptors.filter_map(|one| fs::read_link(one.ok()?.path()).ok());
        if links.any(|link| is_of(&link, path)) {
            return Some(User::Process(number));
        }
    }
    None
}

/// A device that lies on the disk.
pub(crate) fn device_on(path: &Path) -> Option<User> {
    let disk = path.file_name()?;
    let holders = fs::read_dir(Path::new("/sys/block").join(disk).join("holders")).ok();
    let holder = holders.and_then(|mut found| found.next()?.ok());
    if let Some(holder) = holder {
        return Some(User::Device(holder.file_name().to_string_lossy().into_owned()));
    }
    // A loop device has its file without a descriptor of any process.
    let mut disks = fs::read_dir("/sys/block").ok()?.filter_map(Result::ok);
    let on_it = disks.find(|disk| {
        let backing = fs::read_to_string(disk.path().join("loop/backing_file"));
        backing.is_ok_and(|backing| is_of(Path::new(backing.trim_end()), path))
    });
    on_it.map(|disk| User::Device(disk.file_name().to_string_lossy().into_owned()))
}

/// Whether `name` is that of the disk at `path`, or of a partition of it.
fn is_of(name: &Path, path: &Path) -> bool {
    let (Some(name), Some(path)) = (name.to_str(), path.to_str()) else { return false };
    match name.strip_prefix(path) {
        Some("") => true,
        Some(rest) => rest.strip_prefix('p').is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|one| one.is_ascii_digit())
        }),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_the_file_open_without_exclusion_is_found() {
        let directory = std::env::temp_dir().join(format!("ublk-users-{}", std::process::id()));
        let file = fs::File::create(&directory).unwrap();
        let path = fs::canonicalize(&directory).unwrap();
        assert_eq!(process_with(&path), Some(User::Process(std::process::id())));
        drop(file);
        assert_eq!(process_with(&path), None);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_partition_counts_as_its_disk_and_another_disk_does_not() {
        let disk = Path::new("/dev/ublkb1");
        assert!(is_of(Path::new("/dev/ublkb1"), disk));
        assert!(is_of(Path::new("/dev/ublkb1p12"), disk));
        assert!(!is_of(Path::new("/dev/ublkb12"), disk));
        assert!(!is_of(Path::new("/dev/ublkb1p"), disk));
        assert!(!is_of(Path::new("/dev/ublkb1 (deleted)"), disk));
    }
}
