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

mod log_file;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::log_file::{SUFFIX, beside, lock, open_locked, sync_directory_of};
pub(crate) use self::record::{
    BootId, DELETE_ON_CLOSE, LockChange, LockNote, OpenNote, WishNote, records, replay,
};
use self::record::{CLOSED, OPENED, OPENS_MAX, booted, locked, moved, record, wished};
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
        let mut bytes = record(OPENED, |out| note.emit(out));
        if note.delete_pending {
            bytes.extend(wished(note.serial, note.wished()));
        }
        log.append(&bytes, true)?;
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

    /// Notes what is to be deleted. Nothing is to be done where that is noted already, or the open is not.
    ///
    /// # Durability
    ///
    /// After `Ok` the open comes back after a crash with this wish, and no other.
    pub(crate) fn wish_durably(&self, serial: u64, wish: WishNote) -> io::Result<()> {
        let mut log = self.lock();
        if log.live.get(&serial).is_none_or(|note| note.wished() == wish) {
            return Ok(());
        }
        log.append(&wished(serial, wish), true)?;
        if let Some(note) = log.live.get_mut(&serial) {
            note.wish(wish);
        }
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
            + usize::from(note.delete_pending)
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

const MAGIC: &[u8] = b"LFOPENS1";
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
        delete_pending: false,
        sequences: BTreeMap::new(),
    }
}
