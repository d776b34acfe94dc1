//! The opens of a share that survive a crash of the server: a log of what was opened, moved and
//! closed, in a file of its own.
//!
//! ```text
//!  0           8
//!  +-----------+----------+----------+----------+---
//!  | LFOPENS1  | record   | record   | record   | ...
//!  +-----------+----------+----------+----------+---
//! ```
//!
//! A record (`record`) takes effect when its last byte is there: one that is short or whose sum
//! is wrong ends the log, and what lies behind it was never acknowledged. The store that commits is
//! the append; the file is written anew beside itself, under its name with `.new` behind it, and renamed when most of it
//! is dead. A log is one share's of one server: it is locked (flock) from the start to the end, the one that takes its place before it does.
//!
//! What comes back after a crash are the opens, with their share modes, leases and byte-range locks.
//! A LOCK request is one record, noted before it is answered, so it is carried out whole or not at
//! all, and once, though its client asks again. A rename is noted before it is done: the file is
//! under one of the last two names.
//!
//! Each open is noted with the boot of the machine that it was made in. The server's end takes nothing from a file
//! that was written; the machine's may: who brings an open back after that has to know (`state::persistent`).

mod record;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

pub(crate) use self::record::{BootId, LockChange, LockNote, OpenNote, records, replay};
use self::record::{CLOSED, OPENED, OPENS_MAX, booted, locked, moved, record};
use crate::private_file::create_anew;
#[cfg(test)]
use crate::share::FileIdentity;

/// The log of one share's persistent opens.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    boot: BootId,
    log: Mutex<Log>,
    names: Mutex<()>,
}

#[derive(Debug)]
struct Log {
    file: File,
    live: BTreeMap<u64, OpenNote>,
    /// Records in the file, dead ones included.
    records: usize,
    /// A write failed: what the file ends with is unknown, so nothing more is promised.
    poisoned: bool,
}

impl Journal {
    /// Opens the log at `path`, made if need be, and says which opens were there when it ended. Nobody else
    /// opens it until this one is dropped.
    pub(crate) fn open(path: &Path, boot: BootId) -> io::Result<(Self, Vec<OpenNote>)> {
        // No log is what another one is written anew in.
        if path.extension().is_some_and(|extension| extension == SUFFIX) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name ends in .new"));
        }
        let mut old = open_locked(path)?;
        let mut bytes = Vec::new();
        old.read_to_end(&mut bytes)?;
        if !bytes.is_empty() && !bytes.starts_with(MAGIC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a log of opens"));
        }
        let live = replay(bytes.get(MAGIC.len()..).unwrap_or_default());
        let notes = live.values().cloned().collect();
        let records = count(&live);
        // Without what is dead or torn.
        let file = write_beside(path, &live, boot)?;
        std::fs::rename(beside(path), path)?;
        sync_directory_of(path)?;
        let log = Mutex::new(Log { file, live, records, poisoned: false });
        Ok((Self { path: path.to_owned(), boot, log, names: Mutex::default() }, notes))
    }

    /// The boot of the machine that opens are noted with.
    pub(crate) fn boot(&self) -> BootId {
        self.boot
    }

    /// Notes an open.
    ///
    /// # Durability
    ///
    /// After `Ok` the open comes back after a crash of server or machine, until it is closed.
    pub(crate) fn open_durably(&self, note: OpenNote) -> io::Result<()> {
        let note = OpenNote { boot: Some(self.boot), ..note };
        let mut log = self.lock();
        if log.live.len() >= OPENS_MAX {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "too many persistent opens"));
        }
        log.append(&record(OPENED, |out| note.emit(out)), true)?;
        log.live.insert(note.serial, note);
        Ok(())
    }

    /// Notes that an open's file is about to get another name, or has kept the one before.
    ///
    /// # Durability
    ///
    /// After `Ok` a crash does not lose the open for its name, be it this one or the one before, which has to
    /// be durable by then.
    pub(crate) fn move_durably(&self, serial: u64, path: &str) -> io::Result<()> {
        let mut log = self.lock();
        let Some(note) = log.live.get_mut(&serial).filter(|note| note.path != path) else {
            return Ok(());
        };
        note.rename(path);
        log.append(&moved(serial, path), true)?;
        // The note is durable, whatever becomes of the housekeeping.
        let _ = self.compact(&mut log);
        Ok(())
    }

    /// Whether an open is noted.
    pub(crate) fn has(&self, serial: u64) -> bool {
        self.lock().live.contains_key(&serial)
    }

    /// Keeps the names that opens are noted with and those that their files have together until dropped:
    /// whoever notes an open or renames a file of this share holds it meanwhile. Comes before the lock
    /// of a node.
    pub(crate) fn hold_names(&self) -> MutexGuard<'_, ()> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a LOCK request does to the locks of an open, all of it or nothing.
    ///
    /// # Durability
    ///
    /// After `Ok` the open comes back after a crash with these locks, and knows the request.
    pub(crate) fn lock_durably(
        &self,
        serial: u64,
        sequence: u32,
        changes: &[LockChange],
    ) -> io::Result<()> {
        self.change_locks(serial, sequence, changes, true)
    }

    fn change_locks(
        &self,
        serial: u64,
        sequence: u32,
        changes: &[LockChange],
        durably: bool,
    ) -> io::Result<()> {
        let mut log = self.lock();
        // Closed meanwhile: then there is nothing to come back with.
        if !log.live.contains_key(&serial) {
            return Ok(());
        }
        log.append(&locked(serial, sequence, changes), durably)?;
        if let Some(note) = log.live.get_mut(&serial) {
            note.change_locks(sequence, changes);
        }
        // The note is durable, whatever becomes of the housekeeping.
        let _ = self.compact(&mut log);
        Ok(())
    }

    /// Notes that an open is closed. Nothing is promised: one that comes back after a crash all
    /// the same is given up when nobody asks for it.
    pub(crate) fn close(&self, serial: u64) -> io::Result<()> {
        let mut log = self.lock();
        if log.live.remove(&serial).is_none() {
            return Ok(());
        }
        log.append(&record(CLOSED, |out| out.extend_from_slice(&serial.to_le_bytes())), false)?;
        self.compact(&mut log)
    }

    // Writes the file anew when most of it is dead. As long as the new one has not taken its place the
    // old one goes on.
    fn compact(&self, log: &mut Log) -> io::Result<()> {
        if log.poisoned || log.records <= COMPACT_FROM.max(4 * count(&log.live)) {
            return Ok(());
        }
        let file = write_beside(&self.path, &log.live, self.boot)?;
        log.replace(&self.path, file, sync_directory_of)
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn append(&mut self, record: &[u8], durably: bool) -> io::Result<()> {
        if self.poisoned {
            return Err(io::Error::other("the log of opens failed before"));
        }
        let written = self.check_linked().and_then(|()| self.file.write_all(record));
        let written = written.and_then(|()| if durably { self.file.sync_data() } else { Ok(()) });
        self.poisoned = written.is_err();
        self.records += 1;
        written
    }

    // What is noted in a file that has no name any more nobody reads after a crash.
    fn check_linked(&self) -> io::Result<()> {
        match self.file.metadata()?.nlink() {
            0 => Err(io::Error::new(io::ErrorKind::NotFound, "the log of opens was removed")),
            _ => Ok(()),
        }
    }

    // Puts the file that was written beside the log in its place. From the rename on records go to the new
    // one; where the rename is not durable a crash may bring the old one back, without them, so nothing
    // more is promised.
    fn replace(
        &mut self,
        path: &Path,
        file: File,
        sync: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        std::fs::rename(beside(path), path)?;
        self.file = file;
        self.records = count(&self.live);
        let synced = sync(path);
        self.poisoned = synced.is_err();
        synced
    }
}

// Records that a file without dead ones has.
fn count(live: &BTreeMap<u64, OpenNote>) -> usize {
    let beside = |note: &OpenNote| {
        usize::from(note.earlier.is_some())
            + usize::from(!note.locks.is_empty())
            + note.sequences.len()
    };
    live.values().map(|note| 1 + beside(note)).sum()
}

// Written beside and made durable, to be put in the log's place: at any moment one of the two is whole. What
// follows is of `boot`.
fn write_beside(path: &Path, live: &BTreeMap<u64, OpenNote>, boot: BootId) -> io::Result<File> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(records(live.values()));
    bytes.extend(booted(boot));
    // It says who has which files open, and the keys of their leases.
    let mut file = create_anew(&beside(path))?;
    lock(&file)?;
    file.write_all(&bytes)?;
    file.sync_data()?;
    Ok(file)
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(SUFFIX);
    name.into()
}

// The file that has the name, once it is locked: another may have taken its place before that.
fn open_locked(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    for _ in 0..REPLACED_MAX {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(flags).open(path)?;
        lock(&file)?;
        let (locked, named) = (file.metadata()?, std::fs::symlink_metadata(path));
        if named.is_ok_and(|named| (named.dev(), named.ino()) == (locked.dev(), locked.ino())) {
            return Ok(file);
        }
    }
    Err(in_use())
}

// Until it is closed, by the end of the process at the latest. A file system without locks goes unguarded.
fn lock(file: &File) -> io::Result<()> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(in_use()),
        Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn in_use() -> io::Error {
    let text = "another server, or another share, keeps its opens there";
    io::Error::new(io::ErrorKind::ResourceBusy, text)
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

const MAGIC: &[u8] = b"LFOPENS1";
/// What a log's name has behind it while it is written anew.
const SUFFIX: &str = "new";
/// How often another file may take the place of the log before it is locked.
const REPLACED_MAX: usize = 16;
/// Records below which the file is left as it is.
const COMPACT_FROM: usize = 1_024;

#[cfg(test)]
const TEST_BOOT: BootId = BootId([9; 16]);

/// An open to try things with.
#[cfg(test)]
pub(super) fn note_of_test(serial: u64) -> OpenNote {
    OpenNote {
        boot: Some(TEST_BOOT),
        serial,
        inode: 7,
        identity: Some(FileIdentity::TEST),
        access: 0x1f_01ff,
        mode: 0,
        action: 2,
        timeout_ms: 60_000,
        flags: 0x3f,
        flavor: 2,
        held: 7,
        epoch: 3,
        lease_key: [1; 16],
        client: [2; 16],
        create_guid: [3; 16],
        user: "user".to_owned(),
        path: "a/b".to_owned(),
        earlier: None,
        locks: Vec::new(),
        sequences: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::note_of_test as note;
    use super::*;

    const BOOT: BootId = TEST_BOOT;

    fn open(path: &Path) -> io::Result<(Journal, Vec<OpenNote>)> {
        Journal::open(path, BOOT)
    }

    fn serials<'a>(notes: impl Iterator<Item = &'a OpenNote>) -> Vec<u64> {
        notes.map(|note| note.serial).collect()
    }

    #[test]
    fn what_is_open_when_the_server_dies_is_there_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("opens");
        let (journal, notes) = open(&path).unwrap();
        assert_eq!(notes, []);
        for serial in [1, 2, 3] {
            journal.open_durably(note(serial)).unwrap();
        }
        journal.move_durably(2, "c").unwrap();
        journal.close(1).unwrap();
        drop(journal);
        let (_, notes) = open(&path).unwrap();
        let two = OpenNote { path: "c".to_owned(), earlier: Some("a/b".to_owned()), ..note(2) };
        assert_eq!(notes, [two.clone(), note(3)]);
        // And once more, from the file that was written anew.
        assert_eq!(open(&path).unwrap().1, [two, note(3)]);
    }

    #[test]
    fn each_open_is_noted_with_the_boot_that_it_was_made_in() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("opens");
        // As a server wrote that knew of no boots.
        let bytes = record(OPENED, |out| note(3).emit(out));
        std::fs::write(&path, [MAGIC, &bytes].concat()).unwrap();
        let (journal, _) = open(&path).unwrap();
        journal.open_durably(note(2)).unwrap();
        drop(journal);
        let next = BootId([10; 16]);
        let (journal, _) = Journal::open(&path, next).unwrap();
        journal.open_durably(note(1)).unwrap();
        drop(journal);
        for _ in 0..2 {
            let boots = |note: &OpenNote| (note.serial, note.boot);
            let found: Vec<_> = open(&path).unwrap().1.iter().map(boots).collect();
            assert_eq!(found, [(1, Some(next)), (2, Some(BOOT)), (3, None)]);
        }
    }

    fn lock(offset: u64, exclusive: bool) -> LockNote {
        LockNote { offset, length: 10, exclusive }
    }

    #[test]
    fn locks_are_there_again_and_those_given_back_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("opens");
        let (journal, _) = open(&path).unwrap();
        journal.open_durably(note(1)).unwrap();
        let both = [LockChange::Lock(lock(0, true)), LockChange::Lock(lock(10, false))];
        journal.lock_durably(1, 0x11, &both).unwrap();
        journal.lock_durably(1, 0x21, &[LockChange::Lock(lock(10, false))]).unwrap();
        journal.lock_durably(1, 0x12, &[LockChange::Unlock { offset: 0, length: 10 }]).unwrap();
        journal.lock_durably(1, 0, &[LockChange::Unlock { offset: 10, length: 10 }]).unwrap();
        journal.lock_durably(7, 0x11, &both).unwrap();
        drop(journal);
        let sequences = BTreeMap::from([(1, 0x12), (2, 0x21)]);
        let expected = OpenNote { locks: vec![lock(10, false)], sequences, ..note(1) };
        for _ in 0..2 {
            assert_eq!(open(&path).unwrap().1, std::slice::from_ref(&expected));
        }
    }

    #[test]
    fn the_file_does_not_grow_with_locks_taken_and_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("opens");
        let (journal, _) = open(&path).unwrap();
        journal.open_durably(note(1)).unwrap();
        let size = || std::fs::metadata(&path).unwrap().len();
        let mut largest = 0;
        for round in 0..u32::try_from(2 * COMPACT_FROM).unwrap() {
            let change = match round % 2 {
                0 => LockChange::Lock(lock(0, true)),
                _ => LockChange::Unlock { offset: 0, length: 10 },
            };
            // As the server does it, without waiting for the disk.
            journal.change_locks(1, 0x10 | round & 0xf, &[change], false).unwrap();
            largest = largest.max(size());
        }
        assert!(largest < 60 * u64::try_from(COMPACT_FROM + 2).unwrap(), "{largest} bytes");
    }

    #[test]
    fn wherever_a_crash_cuts_the_file_what_was_whole_before_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("opens");
        let (journal, _) = open(&path).unwrap();
        let mut ends = vec![(MAGIC.len(), Vec::new())];
        let mut end = |expected: &[u64]| {
            let len = usize::try_from(std::fs::metadata(&path).unwrap().len()).unwrap();
            ends.push((len, expected.to_vec()));
        };
        journal.open_durably(note(1)).unwrap();
        end(&[1]);
        journal.open_durably(note(2)).unwrap();
        end(&[1, 2]);
        journal.lock_durably(2, 0x11, &[LockChange::Lock(lock(0, true))]).unwrap();
        end(&[1, 2]);
        journal.close(1).unwrap();
        end(&[2]);
        let whole = std::fs::read(&path).unwrap();
        for cut in MAGIC.len()..=whole.len() {
            let expected = &ends.iter().rev().find(|(len, _)| *len <= cut).unwrap().1;
            let found = replay(&whole[MAGIC.len()..cut]);
            assert_eq!(&serials(found.values()), expected, "cut at {cut}");
            // What never reached the disk reads as something else.
            let mut torn = whole.clone();
            torn[cut..].fill(0xa5);
            let found = replay(&torn[MAGIC.len()..]);
            assert_eq!(&serials(found.values()), expected, "torn at {cut}");
        }
    }

    #[test]
    fn the_file_does_not_grow_with_what_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("opens");
        let (journal, _) = open(&path).unwrap();
        for serial in 0..2_000 {
            // As the server does it, without waiting for the disk.
            let mut log = journal.lock();
            log.append(&record(OPENED, |out| note(serial).emit(out)), false).unwrap();
            log.live.insert(serial, note(serial));
            drop(log);
            journal.close(serial).unwrap();
        }
        let one = record(OPENED, |out| note(0).emit(out)).len();
        let len = usize::try_from(std::fs::metadata(&path).unwrap().len()).unwrap();
        assert!(len < (COMPACT_FROM + 2) * one);
        drop(journal);
        assert_eq!(open(&path).unwrap().1, []);
    }

    #[test]
    fn the_file_does_not_grow_with_renames() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("opens");
        let (journal, _) = open(&path).unwrap();
        journal.open_durably(note(1)).unwrap();
        for number in 0..3 * COMPACT_FROM {
            journal.move_durably(1, if number % 2 == 0 { "f" } else { "g" }).unwrap();
        }
        let longest = record(OPENED, |out| note(1).emit(out)).len();
        let len = usize::try_from(std::fs::metadata(&path).unwrap().len()).unwrap();
        assert!(len < (COMPACT_FROM + 4) * longest.min(moved(1, "f").len()) + longest, "{len}");
        let renamed = OpenNote { path: "g".to_owned(), earlier: Some("f".to_owned()), ..note(1) };
        drop(journal);
        assert_eq!(open(&path).unwrap().1, [renamed]);
    }

    #[test]
    fn a_log_in_whose_place_another_may_come_back_promises_nothing_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("opens");
        let (journal, _) = open(&path).unwrap();
        journal.open_durably(note(1)).unwrap();
        let mut log = journal.lock();
        let file = write_beside(&path, &log.live, BOOT).unwrap();
        let failed = log.replace(&path, file, |_| Err(io::Error::other("the disk")));
        drop(log);
        failed.unwrap_err();
        journal.open_durably(note(2)).unwrap_err();
        drop(journal);
        assert_eq!(open(&path).unwrap().1, [note(1)]);
    }

    #[test]
    fn a_log_that_has_lost_its_name_promises_nothing_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("opens");
        let (journal, _) = open(&path).unwrap();
        journal.open_durably(note(1)).unwrap();
        std::fs::remove_file(&path).unwrap();
        journal.open_durably(note(2)).unwrap_err();
    }

    #[test]
    fn two_logs_whose_names_differ_in_their_extension_are_written_anew_apart() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("opens.one"), dir.path().join("opens.two"));
        assert_ne!(beside(&one), beside(&two));
        let logs = [&one, &two].map(|path| open(path).unwrap().0);
        for (serial, log) in (1..).zip(&logs) {
            log.open_durably(note(serial)).unwrap();
        }
        // As both are written anew at one time.
        let mut first = logs[0].lock();
        let file = write_beside(&one, &first.live, BOOT).unwrap();
        let mut second = logs[1].lock();
        let other = write_beside(&two, &second.live, BOOT).unwrap();
        first.replace(&one, file, sync_directory_of).unwrap();
        second.replace(&two, other, sync_directory_of).unwrap();
        drop((first, second));
        drop(logs);
        assert_eq!(open(&one).unwrap().1, [note(1)]);
        assert_eq!(open(&two).unwrap().1, [note(2)]);
    }

    #[test]
    fn a_log_is_not_opened_under_the_name_of_what_another_is_written_anew_in() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("opens.new");
        open(&path).unwrap_err();
        assert!(!path.exists());
    }

    #[test]
    fn a_log_that_somebody_keeps_is_refused_to_everybody_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("opens");
        let (journal, _) = open(&path).unwrap();
        let is_refused = || match open(&path) {
            Err(error) => error.kind() == io::ErrorKind::ResourceBusy,
            Ok(_) => false,
        };
        assert!(is_refused());
        journal.open_durably(note(1)).unwrap();
        // Also once another file has taken its place.
        let mut log = journal.lock();
        let file = write_beside(&path, &log.live, BOOT).unwrap();
        log.replace(&path, file, sync_directory_of).unwrap();
        drop(log);
        assert!(is_refused());
        drop(journal);
        assert_eq!(open(&path).unwrap().1, [note(1)]);
    }

    #[test]
    fn a_link_is_not_followed_to_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("opens"), dir.path().join("link"));
        drop(open(&path).unwrap());
        std::os::unix::fs::symlink(&path, &link).unwrap();
        open(&link).unwrap_err();
    }

    #[test]
    fn a_file_that_is_something_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("opens");
        std::fs::write(&path, "somebody's notes").unwrap();
        open(&path).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), b"somebody's notes");
    }

    #[test]
    fn the_log_is_its_owners_alone_to_read_whatever_it_was_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("opens");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        drop(open(&path).unwrap());
        assert_eq!(mode(), 0o600);
        for file in [path.clone(), beside(&path)] {
            std::fs::write(&file, MAGIC).unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        }
        drop(open(&path).unwrap());
        assert_eq!(mode(), 0o600);
    }
}
