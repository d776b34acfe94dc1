//! Whose a directory of pieces is, and whether its pieces have everything that was written to them.
//!
//! ```text
//!   .lock     locked while a daemon runs here
//!   .server   the server's name, and the store's number: pieces of another store would all be orphans here
//!   .losses   how often the pieces may have lost what was written to them: clients that wrote compare it
//!   .boot     the start of the machine in which a daemon ran here last, or "clean": it stopped, and all was synced
//! ```
//!
//! A write is acknowledged when it is visible, and the bytes may then be in the machine's memory alone. A daemon that is
//! killed leaves them there. A machine that loses power does not: its copies lack what others have. So a daemon that finds
//! another start of the machine than it left, and did not stop in good order, gives its copies up wherever there is
//! another in sync, before anybody can map them.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FlockOperation, accessat, flock};

use super::error::HostError;
use crate::ids::{KeyMark, StoreId};
use crate::meta::record::{CopyState, RegionRecord, StoreRecord};
use crate::meta::{Change, Meta, MetaError};

/// A directory that is this daemon's until the value is dropped.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
}

impl Directory {
    /// Takes the directory for a server of a store.
    pub(super) fn take(path: &Path, name: &str, store: StoreId) -> Result<Self, HostError> {
        let failed = |source| HostError::Directory { path: path.into(), source };
        fs::create_dir_all(path).map_err(failed)?;
        look(path)?;
        let lock = path.join(LOCK);
        let lock = File::options().create(true).truncate(false).write(true).open(lock);
        let lock = lock.map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(HostError::ConfigInUse { path: path.into() });
            }
            other => other.map_err(|error| failed(error.into()))?,
        }
        let taken = Self { path: path.into(), _lock: lock };
        taken.own(name, store)?;
        Ok(taken)
    }

    fn own(&self, name: &str, store: StoreId) -> Result<(), HostError> {
        let failed = |source| HostError::Directory { path: self.path.join(OWNER), source };
        let text = match fs::read_to_string(self.path.join(OWNER)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other.map_err(failed)?,
        };
        let mut lines = text.lines();
        let (owner, of) = (lines.next().unwrap_or(name), lines.next());
        let path = self.path.clone();
        if owner != name {
            let (owner, name) = (owner.to_owned(), name.to_owned());
            return Err(HostError::ConfigOwner { path, owner, name });
        }
        let wanted = store.to_string();
        match of {
            Some(of) if of == wanted => Ok(()),
            Some(of) => Err(HostError::ConfigStore { path, owner: of.to_owned(), found: wanted }),
            None => self.put(OWNER, &format!("{name}\n{wanted}\n")).map_err(failed),
        }
    }

    /// Whether the pieces may lack what was written to them.
    pub(super) fn may_lack(&self) -> bool {
        match fs::read_to_string(self.path.join(BOOT)) {
            Ok(text) if text == CLEAN => false,
            Ok(text) => boot_id().is_none_or(|now| now != text),
            Err(_) => true,
        }
    }

    /// How often the pieces may have lost what was written to them, a loss of just now included.
    pub(super) fn losses(&self, is_one_more: bool) -> io::Result<u64> {
        let before = match fs::read_to_string(self.path.join(LOSSES)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            other => other?.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?,
        };
        if !is_one_more {
            return Ok(before);
        }
        self.put(LOSSES, &(before + 1).to_string())?;
        Ok(before + 1)
    }

    /// From now on bytes may be in memory alone.
    pub(super) fn serve(&self) -> Result<(), HostError> {
        let put = self.put(BOOT, &boot_id().unwrap_or_default());
        put.map_err(|source| HostError::Directory { path: self.path.join(BOOT), source })
    }

    /// All pieces are synced, and nobody writes to them any more.
    pub(super) fn is_clean(&self) -> io::Result<()> {
        self.put(BOOT, CLEAN)
    }

    /// Writes a file so that it is there, whole, after a loss of power.
    fn put(&self, name: &str, text: &str) -> io::Result<()> {
        let beside = self.path.join(format!("{name}-new"));
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, self.path.join(name))?;
        File::open(&self.path)?.sync_all()
    }
}

/// Whether a directory could be a daemon's: it is, or it is new or empty. Nothing is changed.
///
/// # Errors
/// It could not.
pub fn look(directory: &Path) -> Result<(), HostError> {
    let failed = |source| HostError::Directory { path: directory.into(), source };
    let found = match of_others(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        other => other.map_err(failed)?,
    };
    if let Some(found) = found {
        return Err(HostError::ConfigForeign { path: directory.into(), found });
    }
    // What is not there yet is made below the nearest directory that is.
    let above = directory.ancestors().find(|above| above.exists());
    let above = above.filter(|above| !above.as_os_str().is_empty());
    let access = Access::WRITE_OK | Access::EXEC_OK;
    let taken = accessat(CWD, above.unwrap_or_else(|| Path::new(".")), access, AtFlags::EACCESS);
    taken.map_err(|errno| failed(errno.into()))
}

/// A file of somebody else in a directory that no daemon has taken yet. Nothing else protects such a file from a daemon
/// that makes and removes files there.
fn of_others(directory: &Path) -> io::Result<Option<PathBuf>> {
    if fs::exists(directory.join(OWNER))? {
        return Ok(None);
    }
    for file in fs::read_dir(directory)? {
        let name = file?.file_name();
        // What a daemon leaves that was killed while it took the directory, and the top of a file system.
        let is_known = [LOCK, OWNER_UNFINISHED, LOST_AND_FOUND].iter().any(|known| name == *known);
        if !is_known {
            return Ok(Some(directory.join(name)));
        }
    }
    Ok(None)
}

/// What the first daemon of a store noted of it; none before there was a daemon.
///
/// # Errors
/// The metadata cannot be read, or the record is damaged.
pub fn record_of(meta: &dyn Meta) -> Result<Option<StoreRecord>, HostError> {
    let entry = meta.get(STORE)?;
    let record = entry.map(|entry| StoreRecord::parse(&entry.value)).transpose();
    record.map_err(HostError::ConfigRecord)
}

/// The number of the store to which metadata belong: drawn by the first daemon, whose key is the store's.
pub(super) fn store_of(
    meta: &dyn Meta,
    key: KeyMark,
    draw: impl Fn() -> Result<StoreId, HostError>,
) -> Result<StoreId, HostError> {
    loop {
        if let Some(record) = record_of(meta)? {
            // A daemon with another key would be chosen for pieces, and refuse everybody.
            return match record.key {
                Some(of) if of != key => Err(HostError::ConfigKey { store: record.id.to_string() }),
                _ => Ok(record.id),
            };
        }
        let value = StoreRecord::new(draw()?, key).emit();
        let put = Change { key: STORE, value: Some(&value), durable: true };
        // Whoever was first has made it; it is read in either case.
        meta.swap(put, &[(STORE, None)])?;
    }
}

/// Notes in the metadata that a server's copies may lack something: those that are being filled are begun anew, and of
/// those in sync the ones go that have another beside them.
pub(super) fn give_up_copies(meta: &dyn Meta, server: &str) -> Result<(), MetaError> {
    for (key, _) in meta.list("regions/")? {
        loop {
            let Some(entry) = meta.get(&key)? else { break };
            // A damaged record is nothing that anybody maps.
            let Ok(record) = RegionRecord::parse(&entry.value) else { break };
            let Some(changed) = without(&record, server) else { break };
            let value = changed.emit();
            let put = Change { key: &key, value: Some(&value), durable: true };
            if meta.swap(put, &[(&key, Some(entry.version))])?.is_some() {
                tracing::warn!(
                    region = key,
                    server,
                    "the machine has started anew: this server's copies may lack writes and are filled again"
                );
                break;
            }
        }
    }
    Ok(())
}

fn without(record: &RegionRecord, server: &str) -> Option<RegionRecord> {
    let mut changed = record.clone();
    for piece in &mut changed.pieces {
        let mut copies = piece.copies.iter();
        let others = copies.any(|copy| copy.server != server && copy.state == CopyState::InSync);
        for copy in piece.copies.iter_mut().filter(|copy| copy.server == server) {
            if others || copy.state == CopyState::Syncing {
                copy.state = CopyState::Stale;
            }
        }
    }
    (changed != *record).then_some(changed)
}

/// The start of this machine; `None`: the kernel does not say.
fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

const LOCK: &str = ".lock";
const OWNER: &str = ".server";
const OWNER_UNFINISHED: &str = ".server-new";
const LOST_AND_FOUND: &str = "lost+found";
const LOSSES: &str = ".losses";
const BOOT: &str = ".boot";
const CLEAN: &str = "clean";
const STORE: &str = "store";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::FileMeta;

    fn take(path: &Path) -> Result<Directory, HostError> {
        Directory::take(path, "a", StoreId(1))
    }

    #[test]
    fn a_directory_with_files_of_others_is_not_taken_and_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("notes.new"), "a note").unwrap();
        let refused = take(directory.path()).unwrap_err();
        assert!(refused.to_string().contains("notes.new"), "{refused}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_daemon_with_another_key_does_not_join_a_store() {
        let directory = tempfile::tempdir().unwrap();
        let meta = FileMeta::open(directory.path()).unwrap();
        assert_eq!(record_of(&meta).unwrap(), None);
        let draw = || Ok(StoreId(7));
        assert_eq!(store_of(&meta, KeyMark(1), draw).unwrap(), StoreId(7));
        assert_eq!(store_of(&meta, KeyMark(1), draw).unwrap(), StoreId(7));
        let refused = store_of(&meta, KeyMark(2), draw).unwrap_err();
        assert!(refused.to_string().contains("another key"), "{refused}");
        // A store that an earlier version made knows no key.
        let value = br#"{"format":1,"id":"0000000000000007"}"#;
        let put = Change { key: STORE, value: Some(value), durable: true };
        meta.swap(put, &[]).unwrap();
        assert_eq!(store_of(&meta, KeyMark(2), draw).unwrap(), StoreId(7));
    }

    #[test]
    fn a_new_directory_is_taken_and_so_is_one_that_a_crash_left_half_taken() {
        let directory = tempfile::tempdir().unwrap();
        // The top of a file system of its own.
        fs::create_dir(directory.path().join(LOST_AND_FOUND)).unwrap();
        for left in [LOCK, OWNER_UNFINISHED] {
            fs::write(directory.path().join(left), "").unwrap();
        }
        drop(take(directory.path()).unwrap());
        fs::write(directory.path().join("notes"), "put there later").unwrap();
        drop(take(directory.path()).unwrap());
        drop(take(&directory.path().join("made/with/it")).unwrap());
    }
}
