//! The opens of a share that survive a crash of the server: a log of opened, moved and closed
//! files, in a file of its own.
//!
//! ```text
//!  0           8
//!  +-----------+----------+----------+----------+---
//!  | LFOPENS1  | record   | record   | record   | ...
//!  +-----------+----------+----------+----------+---
//! ```
//!
//! A record (`record`) takes effect when its last byte is written: a short record or one with a wrong sum ends the log, and everything
//! behind it was never acknowledged. The store that commits is the append; when most of the file is dead, it is rewritten as a new file
//! beside it, whose name ends in `.new`, and the new file is renamed. A log belongs to one share of one server: it is locked (flock) from
//! the start to the end, and a new file is locked before it takes the place.
//!
//! After a crash the opens are restored, with their share modes, leases and byte-range locks. A LOCK
//! request is one record, written before the answer, so it takes effect whole or not at all, and
//! once, even if its client asks again. A rename is recorded before it is done: the file has one of
//! its last two names.
//!
//! A full disk ends no log: room is reserved before a record is written ([`room`]), and what gives something back has room
//! of its own.
//!
//! Each open is recorded with the boot of the machine in which it was made. The end of the server loses no written
//! byte of a file; the end of the machine may: the code that restores an open after that has to know
//! (`state::persistent`).

mod doubts;
mod log_file;
mod record;
mod room;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use basics::create_anew;
use basics::ordered::{AllGuards, Mutex, MutexGuard};
use rustix::io::Errno;

use self::doubts::{Asked, Doubts};
pub use self::log_file::takes_file;
use self::log_file::{
    MAGIC, SUFFIX, beside, in_use, lock, not_a_log, open_locked, sync_directory_of,
};
pub use self::record::{
    BootId, DELETE_ON_CLOSE, InstanceNote, LockChange, LockNote, OpenNote, WishNote, records,
    replay,
};
use self::record::{CLOSED, OPENED, OPENS_MAX, booted, doubted, locked, moved, record, wished};
use self::room::{For, Room};
#[cfg(test)]
use crate::FileIdentity;
use crate::lock_order as order;

/// The log of one share's persistent opens.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    boot: BootId,
    /// Of the file system that it lies on.
    device: u64,
    log: Mutex<Log, order::Log>,
    names: Mutex<(), order::RecordedNames>,
    doubts: Doubts,
}

#[derive(Debug)]
struct Log {
    file: File,
    room: Room,
    live: BTreeMap<u64, OpenNote>,
    /// Records in the file, dead ones included.
    records: usize,
    /// How much of the file is durable.
    durable: u64,
    syncs: u64,
    /// A write failed: the end of the file is unknown, so the log promises nothing more.
    poisoned: bool,
}

impl Journal {
    /// Opens the log at `path`, makes it if necessary, and returns the opens of its last state. No other
    /// server opens it until this one is dropped.
    pub fn open(path: &Path, boot: BootId) -> io::Result<(Self, Vec<OpenNote>)> {
        check_name(path)?;
        let mut old = open_locked(path)?;
        let device = rustix::fs::fstat(&old)?.st_dev;
        let mut bytes = Vec::new();
        old.read_to_end(&mut bytes)?;
        if !bytes.is_empty() && !bytes.starts_with(MAGIC) {
            return Err(not_a_log());
        }
        let live = replay(bytes.get(MAGIC.len()..).unwrap_or_default());
        let notes = live.values().cloned().collect();
        let records = count(&live);
        // Rewritten without dead and torn records.
        let (file, room) = write_beside(path, &live, boot)?;
        if let Err(error) = std::fs::rename(beside(path), path) {
            // A start that is refused leaves nothing.
            let _ = std::fs::remove_file(beside(path));
            return Err(error);
        }
        sync_directory_of(path)?;
        let durable = room.end();
        let log = Mutex::new(Log { file, room, live, records, durable, syncs: 0, poisoned: false });
        let (names, doubts) = (Mutex::default(), Doubts::default());
        Ok((Self { path: path.to_owned(), boot, device, log, names, doubts }, notes))
    }

    /// Looks whether each of these logs could be [opened](Self::open) beside the others, and changes nothing: a server
    /// that runs may have them.
    ///
    /// # Errors
    /// The first that could not, and why.
    pub fn look<'a>(
        paths: impl IntoIterator<Item = &'a Path>,
    ) -> Result<(), (&'a Path, io::Error)> {
        let mut taken = Vec::new();
        for path in paths {
            let looked = check_name(path).and_then(|()| log_file::look(path));
            let place = looked.map_err(|error| (path, error))?;
            if taken.contains(&place) {
                return Err((path, in_use()));
            }
            taken.push(place);
        }
        Ok(())
    }

    /// The boot of the machine with which opens are recorded.
    pub fn boot(&self) -> BootId {
        self.boot
    }

    /// The device of the file system that it lies on.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Records an open.
    ///
    /// # Durability
    ///
    /// After `Ok` the open is restored after a crash of server or machine, until it is closed.
    pub fn open_durably(&self, note: OpenNote) -> io::Result<()> {
        let note = OpenNote { boot: Some(self.boot), ..note };
        let mut log = self.lock();
        if log.live.len() >= OPENS_MAX {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "too many persistent opens"));
        }
        let mut bytes = record(OPENED, |out| note.emit(out));
        if note.delete_pending {
            bytes.extend(wished(note.serial, note.wished()));
        }
        log.append(&bytes, true, For::More)?;
        log.live.insert(note.serial, note);
        Ok(())
    }

    /// Records that an open's file is about to get another name, or has kept its name.
    ///
    /// # Durability
    ///
    /// After `Ok` a crash does not lose the open because of its name, either the new one or the one before,
    /// which must be durable by then.
    pub fn move_durably(&self, serial: u64, path: &str) -> io::Result<()> {
        self.move_all_durably(&[(serial, path.to_owned())])
    }

    /// [`Journal::move_durably`] of several opens, with one wait for the disk.
    pub fn move_all_durably(&self, moves: &[(u64, String)]) -> io::Result<()> {
        let mut log = self.lock();
        let is_news = |(serial, path): &&(u64, String)| {
            log.live.get(serial).is_some_and(|note| note.path != *path)
        };
        let news: Vec<_> = moves.iter().filter(is_news).collect();
        let emit = |(serial, path): &&(u64, String)| moved(*serial, path);
        self.append_all(&mut log, &news, For::More, emit, |log, (serial, path)| {
            if let Some(note) = log.live.get_mut(serial) {
                note.rename(path);
            }
        })
    }

    /// Records a request to delete. No effect if it is recorded already, or the open is not.
    ///
    /// # Durability
    ///
    /// After `Ok` the open is restored after a crash with this request, and no other.
    pub fn wish_durably(&self, serial: u64, wish: WishNote) -> io::Result<()> {
        self.wish_all_durably(&[(serial, wish)])
    }

    /// [`Journal::wish_durably`] of several opens, with one wait for the disk.
    pub fn wish_all_durably(&self, wishes: &[(u64, WishNote)]) -> io::Result<()> {
        let mut log = self.lock();
        let is_news = |(serial, wish): &&(u64, WishNote)| {
            log.live.get(serial).is_some_and(|note| note.wished() != *wish)
        };
        let news: Vec<_> = wishes.iter().filter(is_news).collect();
        let emit = |(serial, wish): &&(u64, WishNote)| wished(*serial, *wish);
        self.append_all(&mut log, &news, For::Less, emit, |log, (serial, wish)| {
            if let Some(note) = log.live.get_mut(serial) {
                note.wish(*wish);
            }
        })
    }

    // Durable with the last of them. What of it is in the file is known as such, also where the rest finds no room.
    fn append_all<T>(
        &self,
        log: &mut Log,
        news: &[T],
        purpose: For,
        emit: impl Fn(&T) -> Vec<u8>,
        note: impl Fn(&mut Log, &T),
    ) -> io::Result<()> {
        let pieces = news.len().div_ceil(NEWS_AT_ONCE);
        for (at, piece) in news.chunks(NEWS_AT_ONCE).enumerate() {
            let records: Vec<u8> = piece.iter().flat_map(&emit).collect();
            log.append(&records, at + 1 == pieces, purpose)?;
            log.records += piece.len() - 1;
            piece.iter().for_each(|new| note(log, new));
        }
        // The records are durable, whatever the outcome of the compaction.
        let _ = self.compact(log);
        Ok(())
    }

    /// Asks for [`Journal::doubt_durably`] of these opens. `true`: the caller calls [`Journal::write_doubts`], or
    /// [`Journal::give_up_doubts`], on a thread that may wait; else some thread is about to.
    pub fn ask_doubt(
        &self,
        serials: Vec<u64>,
        then: impl FnOnce(&io::Result<()>) + Send + 'static,
    ) -> bool {
        self.doubts.ask(Asked { serials, then: Box::new(then) })
    }

    /// Writes what was asked for until nothing is left. Blocks.
    pub fn write_doubts(&self) {
        while let Some(asked) = self.doubts.next() {
            // A bug in one of them keeps no later one from being written.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let serials: Vec<u64> =
                    asked.iter().flat_map(|one| &one.serials).copied().collect();
                let written = self.doubt_durably(&serials);
                asked.into_iter().for_each(|Asked { then, .. }| then(&written));
            }));
        }
    }

    /// Forgets what was asked for: there is no thread.
    pub fn give_up_doubts(&self) {
        while self.doubts.next().is_some() {}
    }

    /// Records that the leases of these opens were broken. No effect for those of which it is recorded already, or that
    /// are not.
    ///
    /// # Durability
    ///
    /// After `Ok` the opens are restored after a crash without their leases. A crash before may leave it to some of them.
    pub fn doubt_durably(&self, serials: &[u64]) -> io::Result<()> {
        let mut log = self.lock();
        let is_held = |serial: &&u64| log.live.get(serial).is_some_and(|note| note.held != 0);
        let held: Vec<u64> = serials.iter().filter(is_held).copied().collect();
        if held.is_empty() {
            return Ok(());
        }
        let pieces = held.len().div_ceil(DOUBTS_AT_ONCE);
        for (at, piece) in held.chunks(DOUBTS_AT_ONCE).enumerate() {
            log.append_doubts(piece, at + 1 == pieces)?;
        }
        for serial in &held {
            if let Some(note) = log.live.get_mut(serial) {
                note.doubt();
            }
        }
        // The records are durable, whatever the outcome of the compaction.
        let _ = self.compact(&mut log);
        Ok(())
    }

    /// Whether an open is recorded.
    pub fn has(&self, serial: u64) -> bool {
        self.lock().live.contains_key(&serial)
    }

    /// Until it is dropped, recorded names agree with the names of the files: code that records an open
    /// or renames a file of this share holds this guard. Taken before the lock of a node.
    pub fn hold_names(&self) -> MutexGuard<'_, (), order::RecordedNames> {
        self.names.lock()
    }

    /// [`Journal::hold_names`] of several logs, each once and in one order for all threads.
    pub fn hold_names_of<'a>(
        journals: impl IntoIterator<Item = &'a Self>,
    ) -> AllGuards<'a, (), order::RecordedNames> {
        Mutex::lock_all(journals.into_iter().map(|journal| &journal.names))
    }

    /// Records the changes of a LOCK request to the locks of an open, all of them or none.
    ///
    /// # Durability
    ///
    /// After `Ok` the open is restored after a crash with these locks, and knows the request.
    pub fn lock_durably(
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
        // Closed meanwhile: then there is nothing to restore.
        if !log.live.contains_key(&serial) {
            return Ok(());
        }
        let gives_back = changes.iter().all(|change| matches!(change, LockChange::Unlock { .. }));
        let purpose = if gives_back { For::Less } else { For::More };
        log.append(&locked(serial, sequence, changes), durably, purpose)?;
        if let Some(note) = log.live.get_mut(&serial) {
            note.change_locks(sequence, changes);
        }
        // The record is durable, whatever the outcome of the compaction.
        let _ = self.compact(&mut log);
        Ok(())
    }

    /// Records that the client of an open has closed it. Nothing is promised: an open that is restored after a crash
    /// all the same is given up, as that client does not ask for it. Any other end of an open is
    /// [recorded durably](Journal::forget_durably).
    pub fn close(&self, serial: u64) -> io::Result<()> {
        self.forget([serial], false)
    }

    /// Records that opens ended whose clients may ask for them again. Before others get what these opens held.
    ///
    /// # Durability
    ///
    /// After `Ok` none of them is restored after a crash of server or machine.
    pub fn forget_durably(&self, serials: impl IntoIterator<Item = u64>) -> io::Result<()> {
        self.forget(serials, true)
    }

    fn forget(&self, serials: impl IntoIterator<Item = u64>, durably: bool) -> io::Result<()> {
        let mut log = self.lock();
        let forgotten: Vec<_> =
            serials.into_iter().filter(|serial| log.live.remove(serial).is_some()).collect();
        let pieces = forgotten.len().div_ceil(FORGOTTEN_AT_ONCE);
        for (at, some) in forgotten.chunks(FORGOTTEN_AT_ONCE).enumerate() {
            let closed =
                |serial: &u64| record(CLOSED, |out| out.extend_from_slice(&serial.to_le_bytes()));
            let records: Vec<u8> = some.iter().flat_map(closed).collect();
            log.append(&records, durably && at + 1 == pieces, For::Less)?;
            log.records += some.len() - 1;
        }
        if forgotten.is_empty() {
            return Ok(());
        }
        let compacted = self.compact(&mut log);
        // Durable records are, whatever the outcome of the compaction.
        if durably { Ok(()) } else { compacted }
    }

    /// How many bytes of the file are durable: the end of the machine may take what is behind them.
    pub fn durable_len(&self) -> u64 {
        self.lock().durable
    }

    /// How often it has waited for the disk to make records durable.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    // Rewrites the file when most of it is dead. The old file is used until the new one has taken its
    // place.
    fn compact(&self, log: &mut Log) -> io::Result<()> {
        if log.poisoned || log.records <= COMPACT_FROM.max(4 * count(&log.live)) {
            return Ok(());
        }
        let new = write_beside(&self.path, &log.live, self.boot)?;
        log.replace(&self.path, new, sync_directory_of)
    }

    fn lock(&self) -> MutexGuard<'_, Log, order::Log> {
        self.log.lock()
    }
}

impl Log {
    fn append_doubts(&mut self, serials: &[u64], durably: bool) -> io::Result<()> {
        let bytes: Vec<u8> = serials.iter().flat_map(|serial| doubted(*serial)).collect();
        self.append(&bytes, durably, For::Less)?;
        self.records += serials.len() - 1;
        Ok(())
    }

    fn append(&mut self, record: &[u8], durably: bool, purpose: For) -> io::Result<()> {
        if self.poisoned {
            return Err(io::Error::other("the log of opens failed before"));
        }
        self.room.make(&self.file, record.len() as u64, purpose)?;
        let written = self.check_linked().and_then(|()| self.file.write_all(record));
        if let Err(error) = &written
            && room::is_full(error)
            && self.room.forget_tail(&mut self.file)
        {
            return written;
        }
        self.room.used(record.len() as u64);
        let written = written.and_then(|()| if durably { self.file.sync_data() } else { Ok(()) });
        self.poisoned = written.is_err();
        if durably && !self.poisoned {
            self.durable = self.room.end();
            self.syncs += 1;
        }
        self.records += 1;
        written
    }

    // Records in a file that has no name any more are never read after a crash.
    fn check_linked(&self) -> io::Result<()> {
        match self.file.metadata()?.nlink() {
            0 => Err(io::Error::new(io::ErrorKind::NotFound, "the log of opens was removed")),
            _ => Ok(()),
        }
    }

    // Puts the new file in the place of the log. From the rename on records go to the new file; if the
    // rename is not durable a crash may bring the old file back, without them, so the log promises nothing
    // more.
    fn replace(
        &mut self,
        path: &Path,
        (file, room): (File, Room),
        sync: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        std::fs::rename(beside(path), path)?;
        (self.file, self.durable) = (file, room.end());
        self.room = room;
        self.records = count(&self.live);
        let synced = sync(path);
        self.poisoned = synced.is_err();
        synced
    }
}

// A log must not have the name of another log's new file.
fn check_name(path: &Path) -> io::Result<()> {
    if path.extension().is_some_and(|extension| extension == SUFFIX) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name ends in .new"));
    }
    // Components of a path have no slash at their end.
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(Errno::ISDIR.into());
    }
    Ok(())
}

// Records of a file without dead ones.
fn count(live: &BTreeMap<u64, OpenNote>) -> usize {
    let beside = |note: &OpenNote| {
        usize::from(note.earlier.is_some())
            + usize::from(note.delete_pending)
            + usize::from(!note.locks.is_empty())
            + note.sequences.len()
    };
    live.values().map(|note| 1 + beside(note)).sum()
}

// A new file beside the log, made durable, to take the log's place: at any moment one of the two is
// complete. Its records are of `boot`.
fn write_beside(
    path: &Path,
    live: &BTreeMap<u64, OpenNote>,
    boot: BootId,
) -> io::Result<(File, Room)> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(records(live.values()));
    bytes.extend(booted(boot));
    // The file shows who has which files open, and the keys of their leases.
    let mut file = create_anew(&beside(path))?;
    lock(&file)?;
    file.write_all(&bytes)?;
    file.sync_data()?;
    let room = Room::of(bytes.len() as u64, &file);
    Ok((file, room))
}

/// New names, or wishes to delete, in one write.
const NEWS_AT_ONCE: usize = 256;
/// Leases noted as broken by one append: a disk that is full has room for so many.
const DOUBTS_AT_ONCE: usize = 512;
/// Ends of opens in one write: they fit in the room that is kept for what gives something back.
const FORGOTTEN_AT_ONCE: usize = 1_024;
/// Fewer records than this are never compacted.
const COMPACT_FROM: usize = 1_024;

#[cfg(test)]
const TEST_BOOT: BootId = BootId([9; 16]);

/// An open for tests.
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
        instance: None,
    }
}
