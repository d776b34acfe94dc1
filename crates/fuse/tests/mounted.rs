//! Devices that are mounted for real, used by this program through the kernel.
#![cfg(test)]

#[path = "../../../tests/skipped.rs"]
mod skipped;

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use block::{BlockDevice, FileDevice};
use fuse::{MountError, Mounted, Options};
use rustix::fs::{FallocateFlags, SeekFrom};

const SIZE: u64 = 1 << 20;

fn device() -> Arc<dyn BlockDevice> {
    let file = tempfile::tempfile().unwrap();
    file.set_len(SIZE).unwrap();
    Arc::new(FileDevice::new(file).unwrap())
}

// `None`, and said so, where this user may not mount.
fn mounted(names: &[&str], at: &Path) -> Option<Mounted> {
    let devices = names.iter().map(|name| ((*name).to_owned(), device())).collect();
    match Mounted::new(devices, at, Options::default()) {
        Ok(mounted) => Some(mounted),
        Err(MountError::Mount { error, .. }) if !rustix::process::geteuid().is_root() => {
            skipped::skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_device_is_a_file_that_keeps_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut mounted) = mounted(&["a", "b"], dir.path()) else { return };
    let names: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, ["a", "b"]);
    let file = open(&dir.path().join("a"));
    assert_eq!(file.metadata().unwrap().size(), SIZE);
    assert_eq!(file.set_len(0).unwrap_err().raw_os_error(), Some(libc::EPERM));
    // Any byte, whatever the device's blocks are.
    file.write_all_at(b"hello", SIZE - 5).unwrap();
    file.sync_all().unwrap();
    let error = file.write_at(b"beyond", SIZE).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    let mut end = [0; 8];
    assert_eq!(file.read_at(&mut end, SIZE - 5).unwrap(), 5, "reads end at the end");
    assert_eq!(&end[..5], b"hello");
    let other = open(&dir.path().join("b"));
    assert_eq!(other.read_at(&mut end, SIZE - 8).unwrap(), 8);
    assert_eq!(end, [0; 8], "the other device is another one");
    drop((file, other));
    assert!(mounted.try_end().unwrap());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is mounted any more");
}

#[test]
fn holes_are_punched_found_and_read_as_zeroes() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_mounted) = mounted(&["a"], dir.path()) else { return };
    let file = open(&dir.path().join("a"));
    file.write_all_at(&[7; 128 << 10], 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 64 << 10, 32 << 10).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 4096).unwrap();
    let mut bytes = vec![1; 128 << 10];
    (&file).read_exact(&mut bytes).unwrap();
    let is_zero = |at: usize| at < 4096 || (64 << 10..96 << 10).contains(&at);
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == if is_zero(at) { 0 } else { 7 }));
    let data = rustix::fs::seek(&file, SeekFrom::Data(64 << 10)).unwrap();
    assert!((64 << 10..=96 << 10).contains(&data));
    let refused = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(refused, Err(rustix::io::Errno::OPNOTSUPP));
    assert!(rustix::fs::fallocate(&file, punch, SIZE, 4096).is_err(), "beyond the device");
}

#[test]
fn files_in_use_are_served_on() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut mounted) = mounted(&["a"], dir.path()) else { return };
    let path = dir.path().join("a");
    let synced = OpenOptions::new().write(true).custom_flags(libc::O_DSYNC).open(&path).unwrap();
    assert!(!mounted.try_end().unwrap());
    synced.write_all_at(b"x", 0).unwrap();
    drop(synced);
    // The kernel tells of the close a moment later.
    while !mounted.try_end().unwrap() {
        std::thread::yield_now();
    }
}

#[test]
fn names_that_are_no_names_of_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["", ".", "..", "a/b", "a\0b", &"n".repeat(256)] {
        let devices = vec![(name.to_owned(), device())];
        let refused = Mounted::new(devices, dir.path(), Options::default());
        assert!(matches!(refused, Err(MountError::ConfigName(_))), "{name:?}");
    }
    let twice = vec![("a".to_owned(), device()), ("a".to_owned(), device())];
    let refused = Mounted::new(twice, dir.path(), Options::default());
    assert!(matches!(refused, Err(MountError::ConfigTwice(_))));
}
