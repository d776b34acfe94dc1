//! Logged files with bases that fail, and logs that belong to others.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::{
    Apply, Base, LocalBase, Logged, LoggedError, MemberSet, Members, Options, Place, Side,
};

fn members(dir: &Path, name: &str) -> Members {
    let places = vec![Place::Local(dir.join(name))];
    Members { places, len: 256 << 10, emulate_persistence: true, given_up: MemberSet::default() }
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

/// A base behind a page cache, whose disk loses what one flush should have written: the cache counts as clean after
/// that, as that of Linux does.
#[derive(Debug, Default)]
struct Cached {
    cache: Mutex<Vec<u8>>,
    /// Dirty ranges, and the length, of the cache.
    dirty: Mutex<Vec<(usize, usize)>>,
    disk: Mutex<Vec<u8>>,
    fails: AtomicBool,
}

impl Base for Cached {
    fn len(&self) -> io::Result<u64> {
        Ok(u64::try_from(self.cache.lock().unwrap().len()).unwrap())
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let cache = self.cache.lock().unwrap();
        let rest = cache.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        let (mut cache, end) = (self.cache.lock().unwrap(), start + bytes.len());
        let len = cache.len().max(end);
        cache.resize(len, 0);
        cache[start..end].copy_from_slice(bytes);
        self.dirty.lock().unwrap().push((start, end));
        Ok(())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.cache.lock().unwrap().resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        let dirty = std::mem::take(&mut *self.dirty.lock().unwrap());
        if self.fails.swap(false, Ordering::SeqCst) {
            return Err(io::Error::other("the disk has lost pages"));
        }
        let (cache, mut disk) = (self.cache.lock().unwrap(), self.disk.lock().unwrap());
        disk.resize(cache.len(), 0);
        for (start, end) in dirty {
            disk[start..end].copy_from_slice(&cache[start..end]);
        }
        Ok(())
    }
}

#[test]
fn a_commit_outlives_a_flush_of_the_base_that_failed_once() {
    for settles in [false, true] {
        let dir = place();
        let cached = Arc::new(Cached::default());
        let open_over = |base: Arc<Cached>| {
            let (side, members) = (self::base(dir.path(), "side"), members(dir.path(), "log"));
            Logged::open(base, side, &members, &Options::default())
        };
        let mut file = open_over(Arc::clone(&cached)).unwrap();
        cached.fails.store(true, Ordering::SeqCst);
        let mut refused = None;
        for number in 0..200_u64 {
            let page = [u8::try_from(number).unwrap(); 4096];
            let written = file.write(number * 4096, &page).and_then(|()| file.commit());
            let written = if settles { written.and_then(|()| file.settle()) } else { written };
            if let Err(error) = written {
                refused.get_or_insert((number, error));
            }
        }
        let (number, error) = refused.unwrap();
        assert!(matches!(error, LoggedError::Base(_)), "{error}");
        assert!(matches!(file.commit(), Err(LoggedError::FlushFailed)));
        assert!(matches!(file.settle(), Err(LoggedError::FlushFailed)));
        drop(file);
        // The machine loses its power: what is left is the disk, and the log.
        let disk = cached.disk.lock().unwrap().clone();
        let after =
            Cached { cache: Mutex::new(disk.clone()), disk: Mutex::new(disk), ..Cached::default() };
        let found = read(&open_over(Arc::new(after)).unwrap());
        for at in 0..number {
            let at = usize::try_from(at).unwrap();
            let page = &found[at * 4096..][..4096];
            assert!(page == [u8::try_from(at).unwrap(); 4096], "page {at}");
        }
    }
}

/// A base that notes to which lengths it was cut.
#[derive(Debug)]
struct Watched {
    base: Arc<dyn Base>,
    cuts: Mutex<Vec<u64>>,
}

impl Base for Watched {
    fn len(&self) -> io::Result<u64> {
        self.base.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.base.read(offset, out)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.base.write(offset, bytes)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.cuts.lock().unwrap().push(len);
        self.base.set_len(len)
    }
    fn flush(&self) -> io::Result<()> {
        self.base.flush()
    }
}

#[test]
fn an_opening_takes_nothing_away_that_others_may_read() {
    let dir = place();
    let options = Options { apply: Apply::AtCommit, ..Options::default() };
    let mut file = open(dir.path(), &options).unwrap();
    for (pages, byte) in [(0..8, 1), (3..6, 2)] {
        file.set_len(pages.start * 4096).unwrap();
        for page in pages {
            file.write(page * 4096, &[byte; 4096]).unwrap();
        }
        file.commit().unwrap();
    }
    let before = read(&file);
    drop(file);
    let (base, side) = (base(dir.path(), "base"), base(dir.path(), "side"));
    let watched = Arc::new(Watched { base, cuts: Mutex::default() });
    let members = members(dir.path(), "log");
    let file = Logged::open(Arc::clone(&watched) as _, side, &members, &options).unwrap();
    assert!(read(&file) == before);
    assert!(watched.cuts.lock().unwrap().is_empty());
}

#[test]
fn a_log_that_was_given_up_is_refused_when_it_comes_back() {
    for has_records in [true, false] {
        let dir = place();
        let mut file = open(dir.path(), &Options::default()).unwrap();
        file.write(0, b"old").unwrap();
        file.commit().unwrap();
        if !has_records {
            file.settle().unwrap();
            file.write(0, b"old").unwrap();
            file.settle().unwrap();
        }
        drop(file);
        let (log, away) = (dir.path().join("log"), dir.path().join("away"));
        std::fs::rename(&log, &away).unwrap();
        let gone = open(dir.path(), &Options::default()).unwrap_err();
        assert!(matches!(gone, LoggedError::ConfigLogGone), "{gone}");
        let options = Options { give_up_log: true, ..Options::default() };
        let mut file = open(dir.path(), &options).unwrap();
        file.write(0, b"newer").unwrap();
        file.commit().unwrap();
        drop(file);
        std::fs::rename(&log, dir.path().join("newer")).unwrap();
        std::fs::rename(&away, &log).unwrap();
        let refused = open(dir.path(), &Options::default()).unwrap_err();
        assert!(matches!(refused, LoggedError::ConfigOtherLog), "{refused}");
        std::fs::rename(dir.path().join("newer"), &log).unwrap();
        assert_eq!(read(&open(dir.path(), &Options::default()).unwrap()), b"newer");
    }
}

fn mirrored(dir: &Path, given_up: MemberSet) -> Result<Logged, LoggedError> {
    let places = ["first", "second"].map(|name| Place::Local(dir.join(name))).to_vec();
    let members = Members { places, len: 256 << 10, emulate_persistence: true, given_up };
    Logged::open(base(dir, "base"), base(dir, "side"), &members, &Options::default())
}

#[test]
fn a_mirror_goes_on_without_a_member_given_up_and_takes_a_blank_one_in() {
    let dir = place();
    let none = MemberSet::default();
    let mut file = mirrored(dir.path(), none).unwrap();
    file.write(0, b"at both").unwrap();
    file.commit().unwrap();
    drop(file);
    // A new disk in place of the second: without a word the first may have been left behind.
    std::fs::remove_file(dir.path().join("second")).unwrap();
    let refused = mirrored(dir.path(), none).unwrap_err();
    assert!(matches!(refused, LoggedError::Log(log::LogError::Missing { .. })), "{refused}");
    let mut file = mirrored(dir.path(), none.with(1)).unwrap();
    assert_eq!(file.status().log.in_sync, none.with(0).with(1));
    file.write(0, b"at both again").unwrap();
    file.commit().unwrap();
    drop(file);
    std::fs::remove_file(dir.path().join("first")).unwrap();
    let file = mirrored(dir.path(), none.with(0)).unwrap();
    assert_eq!(read(&file), b"at both again");
}
