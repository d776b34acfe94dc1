//! Logged files with bases that fail, and logs that belong to others.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Apply, Base, LocalBase, Logged, LoggedError, Members, Options, Place, Side};

fn members(dir: &Path, name: &str) -> Members {
    let places = vec![Place::Local(dir.join(name))];
    Members { places, len: 256 << 10, emulate_persistence: true }
}

fn base(dir: &Path, name: &str) -> Arc<dyn Base> {
    Arc::new(LocalBase::open(&dir.join(name)).unwrap())
}

fn open(dir: &Path, options: &Options) -> Result<Logged, LoggedError> {
    Logged::open(base(dir, "base"), base(dir, "side"), &members(dir, "log"), options)
}

fn read(file: &Logged) -> Vec<u8> {
    let mut out = vec![0; usize::try_from(file.len()).unwrap()];
    assert_eq!(file.read(0, &mut out).unwrap(), out.len());
    out
}

fn place() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

#[test]
fn committed_bytes_are_there_and_the_base_may_lack_them() {
    let dir = place();
    let mut file = open(dir.path(), &Options::default()).unwrap();
    file.write(10, b"committed").unwrap();
    file.commit().unwrap();
    file.write(0, b"not").unwrap();
    assert_eq!(base(dir.path(), "base").len().unwrap(), 0);
    drop(file);
    let file = open(dir.path(), &Options::default()).unwrap();
    assert_eq!(read(&file), [&[0; 10][..], b"committed"].concat());
    assert_eq!(base(dir.path(), "base").len().unwrap(), 19);
}

#[test]
fn a_log_that_is_too_small_for_a_commit_spills_into_the_base() {
    for apply in [Apply::Late, Apply::AtCommit] {
        let dir = place();
        let options = Options { apply, ..Options::default() };
        let mut file = open(dir.path(), &options).unwrap();
        let mut model = vec![0; 3 << 20];
        for round in 0..6_usize {
            for at in (0..model.len()).step_by(37_000) {
                let bytes =
                    vec![u8::try_from((at + round) % 251).unwrap(); 30_000.min(model.len() - at)];
                model[at..at + bytes.len()].copy_from_slice(&bytes);
                file.write(u64::try_from(at).unwrap(), &bytes).unwrap();
            }
            file.commit().unwrap();
        }
        model.truncate(usize::try_from(file.len()).unwrap());
        assert!(file.status().flushes > 0);
        assert_eq!(read(&file), model);
        drop(file);
        assert_eq!(read(&open(dir.path(), &options).unwrap()), model);
    }
}

#[test]
fn a_cut_is_seen_before_and_after_a_crash() {
    let dir = place();
    let mut file = open(dir.path(), &Options::default()).unwrap();
    file.write(0, &[7; 10_000]).unwrap();
    file.settle().unwrap();
    file.set_len(100).unwrap();
    file.set_len(200).unwrap();
    file.write(250, b"x").unwrap();
    file.commit().unwrap();
    let expected = [&[7; 100][..], &[0; 150], b"x"].concat();
    assert_eq!(read(&file), expected);
    drop(file);
    assert_eq!(read(&open(dir.path(), &Options::default()).unwrap()), expected);
}

#[test]
fn the_log_of_another_file_is_refused() {
    let dir = place();
    let mut file = open(dir.path(), &Options::default()).unwrap();
    file.write(0, b"of the first").unwrap();
    file.commit().unwrap();
    drop(file);
    let other = Logged::open(
        base(dir.path(), "other"),
        base(dir.path(), "other-side"),
        &members(dir.path(), "log"),
        &Options::default(),
    );
    assert!(matches!(other.unwrap_err(), LoggedError::ConfigOtherFile { .. }));
    assert_eq!(base(dir.path(), "other").len().unwrap(), 0);
    assert_eq!(Side::load(&*base(dir.path(), "other-side")).unwrap(), None);
}

#[test]
fn an_old_copy_of_the_log_is_refused_after_a_close() {
    let dir = place();
    let mut file = open(dir.path(), &Options::default()).unwrap();
    file.write(0, b"old").unwrap();
    file.commit().unwrap();
    std::fs::copy(dir.path().join("log"), dir.path().join("copy")).unwrap();
    file.close().unwrap();
    std::fs::copy(dir.path().join("copy"), dir.path().join("log")).unwrap();
    let refused = open(dir.path(), &Options::default()).unwrap_err();
    assert!(matches!(refused, LoggedError::ConfigOtherFile { .. }), "{refused}");
}

/// A base whose disk is full on demand.
#[derive(Debug)]
struct Full(LocalBase, Arc<AtomicBool>);

impl Base for Full {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(offset, out)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.1.load(Ordering::Relaxed) {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            self.0.write(offset, bytes)
        }
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn a_full_disk_fails_writes_and_loses_no_commit() {
    let dir = place();
    let is_full = Arc::new(AtomicBool::new(false));
    let full =
        Arc::new(Full(LocalBase::open(&dir.path().join("base")).unwrap(), Arc::clone(&is_full)));
    let mut file = Logged::open(
        full,
        base(dir.path(), "side"),
        &members(dir.path(), "log"),
        &Options::default(),
    )
    .unwrap();
    is_full.store(true, Ordering::Relaxed);
    let mut committed = 0_u64;
    let refused = loop {
        if let Err(error) = file.write(committed * 4096, &[9; 4096]).and_then(|()| file.commit()) {
            break error;
        }
        committed += 1;
    };
    assert!(matches!(refused, LoggedError::Base(_)), "{refused}");
    assert!(committed > 10);
    let mut page = [0; 4096];
    for number in 0..committed {
        file.read(number * 4096, &mut page).unwrap();
        assert_eq!(page, [9; 4096]);
    }
    is_full.store(false, Ordering::Relaxed);
    file.write(committed * 4096, &[8; 4096]).unwrap();
    file.commit().unwrap();
    drop(file);
    let found = read(&open(dir.path(), &Options::default()).unwrap());
    assert_eq!(
        found[..usize::try_from(committed * 4096).unwrap()],
        vec![9; usize::try_from(committed * 4096).unwrap()]
    );
    assert_eq!(found[found.len() - 4096..], [8; 4096]);
}
