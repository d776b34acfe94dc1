//! Metadata in a directory of one machine: a file for each key, a lock for all.
//!
//! ```text
//!   DIRECTORY/lock            locked while a key changes
//!   DIRECTORY/versions        the last version given, 8 bytes little-endian
//!   DIRECTORY/records/KEY     "landfast-store-meta 1 VERSION\n", then the value; a slash of the key is a tilde
//!   DIRECTORY/key             the store's key (see `StoreKey`), which is no metadata
//! ```
//!
//! The rename of a file onto its name makes a change take effect.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::interface::{Change, Entry, Meta, MetaError};

/// See the module.
#[derive(Debug)]
pub struct FileMeta {
    directory: PathBuf,
}

impl FileMeta {
    /// Opens the directory, and makes it where it is missing.
    ///
    /// # Errors
    /// The file system refuses, or the directory holds files of somebody else.
    pub fn open(directory: &Path) -> Result<Self, MetaError> {
        if let Some(found) = of_others(directory).map_err(failed(directory))? {
            return Err(MetaError::ConfigForeign { path: directory.into(), found });
        }
        let records = directory.join(RECORDS);
        fs::create_dir_all(&records).map_err(failed(&records))?;
        Ok(Self { directory: directory.into() })
    }

    fn path(&self, key: &str) -> PathBuf {
        self.directory.join(RECORDS).join(key.replace('/', "~"))
    }

    fn read(path: &Path) -> Result<Option<Entry>, MetaError> {
        let mut bytes = Vec::new();
        match File::open(path).and_then(|file| file.take(FILE_MAX).read_to_end(&mut bytes)) {
            // No change leaves an empty file. A loss of power does, of one that was not to be durable: it is as if it had never been.
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(path)(error)),
        }
        let entry = parse(&bytes).ok_or_else(|| MetaError::MediaGarbled(path.into()))?;
        Ok(Some(entry))
    }

    fn lock(&self) -> Result<Lock, MetaError> {
        let path = self.directory.join("lock");
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(failed(&path))?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(&path)(error.into()))?;
        Ok(Lock(file))
    }

    /// A version that was not given since the machine started, and is above `known`: a loss of power may take back which were
    /// given last, and not the durable record that has one of these.
    fn next_version(&self, known: u64) -> Result<u64, MetaError> {
        let path = self.directory.join("versions");
        let opened =
            File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let file = opened.map_err(failed(&path))?;
        let mut bytes = [0; 8];
        let read = file.read_at(&mut bytes, 0).map_err(failed(&path))?;
        let last = match file.metadata().map_err(failed(&path))?.len() {
            // A file that was just made is empty.
            0 => 0,
            VERSION_LEN if read == bytes.len() => u64::from_le_bytes(bytes),
            _ => return Err(MetaError::MediaGarbled(path)),
        };
        let next = last.max(known) + 1;
        file.write_all_at(&next.to_le_bytes(), 0).map_err(failed(&path))?;
        Ok(next)
    }

    fn write(&self, key: &str, value: &[u8], version: u64, durable: bool) -> Result<(), MetaError> {
        let path = self.path(key);
        // One at a time, under the lock: what a killed process left is written over.
        let beside = self.directory.join("new");
        let written = (|| {
            let mut file = File::create(&beside)?;
            file.write_all(format!("{MAGIC}{version}\n").as_bytes())?;
            file.write_all(value)?;
            if durable { file.sync_all() } else { Ok(()) }
        })();
        written.map_err(failed(&beside))?;
        fs::rename(&beside, &path).map_err(failed(&path))?;
        self.settle(durable)
    }

    fn settle(&self, durable: bool) -> Result<(), MetaError> {
        let records = self.directory.join(RECORDS);
        if durable {
            File::open(&records)
                .and_then(|directory| directory.sync_all())
                .map_err(failed(&records))?;
        }
        Ok(())
    }
}

/// The lock, until it is dropped. It is given back by a call and not by closing the file: a child of a fork has the file
/// open as well, and would keep the lock for as long as it lives.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = flock(&self.0, FlockOperation::Unlock) {
            tracing::error!(%error, "the lock of the metadata was not given back");
        }
    }
}

impl Meta for FileMeta {
    fn get(&self, key: &str) -> Result<Option<Entry>, MetaError> {
        Self::read(&self.path(key))
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Entry)>, MetaError> {
        let records = self.directory.join(RECORDS);
        let mut found = Vec::new();
        for file in fs::read_dir(&records).map_err(failed(&records))? {
            let file = file.map_err(failed(&records))?;
            let Ok(name) = file.file_name().into_string() else { continue };
            let key = name.replace('~', "/");
            if !key.starts_with(prefix) {
                continue;
            }
            // A key may go between the listing and the look.
            if let Some(entry) = Self::read(&file.path())? {
                found.push((key, entry));
            }
        }
        found.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }

    fn swap(
        &self,
        change: Change<'_>,
        only_if: &[(&str, Option<u64>)],
    ) -> Result<Option<u64>, MetaError> {
        let _lock = self.lock()?;
        for (key, expected) in only_if {
            if Self::read(&self.path(key))?.map(|entry| entry.version) != *expected {
                return Ok(None);
            }
        }
        let Some(value) = change.value else {
            let path = self.path(change.key);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(&path)(error));
                }
                _ => self.settle(change.durable)?,
            }
            return Ok(Some(0));
        };
        let known = Self::read(&self.path(change.key))?.map_or(0, |entry| entry.version);
        let version = self.next_version(known)?;
        self.write(change.key, value, version, change.durable)?;
        Ok(Some(version))
    }
}

/// A file of somebody else in a directory that holds no metadata: names such as `versions` and `new` are not this module's alone.
fn of_others(directory: &Path) -> io::Result<Option<PathBuf>> {
    let entries = |path: &Path| match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    };
    let records = directory.join(RECORDS);
    if let Some(mut records) = entries(&records)? {
        // One tells for all. Where there is none the file of versions tells before it is written to.
        let Some(first) = records.next() else { return Ok(None) };
        let path = first?.path();
        let mut begin = Vec::new();
        let read = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?.take(MAGIC_LEN).read_to_end(&mut begin)?,
        };
        // A loss of power leaves empty ones.
        return Ok((read > 0 && begin != MAGIC.as_bytes()).then_some(path));
    }
    for file in entries(directory)?.into_iter().flatten() {
        let file = file?;
        // The key may be copied there before, and the directory may be the top of a file system.
        if ![KEY, LOST_AND_FOUND].iter().any(|known| file.file_name() == *known) {
            // Unless another process has made the metadata meanwhile.
            return if fs::exists(&records)? {
                of_others(directory)
            } else {
                Ok(Some(file.path()))
            };
        }
    }
    Ok(None)
}

fn parse(bytes: &[u8]) -> Option<Entry> {
    let rest = bytes.strip_prefix(MAGIC.as_bytes())?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let version = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some(Entry { value: rest[end + 1..].to_vec(), version })
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> MetaError + use<> {
    let path = path.to_owned();
    move |source| MetaError::HostFile { path, source }
}

const RECORDS: &str = "records";
const KEY: &str = "key";
const LOST_AND_FOUND: &str = "lost+found";
const MAGIC: &str = "landfast-store-meta 1 ";
const MAGIC_LEN: u64 = MAGIC.len() as u64;
const VERSION_LEN: u64 = 8;
/// Bytes of a file that are read at most: a record and its first line.
const FILE_MAX: u64 = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_changes_only_where_it_is_as_expected() {
        let directory = tempfile::tempdir().unwrap();
        let meta = FileMeta::open(directory.path()).unwrap();
        let put = |value: &'static [u8]| Change { key: "a/b", value: Some(value), durable: true };
        let first = meta.swap(put(b"one"), &[("a/b", None)]).unwrap().unwrap();
        assert_eq!(meta.swap(put(b"two"), &[("a/b", None)]).unwrap(), None);
        let second = meta.swap(put(b"two"), &[("a/b", Some(first))]).unwrap().unwrap();
        assert!(second > first);
        assert_eq!(meta.swap(put(b"three"), &[("a/b", Some(first))]).unwrap(), None);
        assert_eq!(meta.get("a/b").unwrap().unwrap().value, b"two");
        let gone = Change { key: "a/b", value: None, durable: true };
        assert_eq!(meta.swap(gone, &[("a/b", Some(second)), ("c", None)]).unwrap(), Some(0));
        let third = meta.swap(put(b"again"), &[]).unwrap().unwrap();
        assert!(third > second, "a version is never given twice");
        assert_eq!(meta.list("a/").unwrap().len(), 1);
        assert_eq!(meta.list("b/").unwrap().len(), 0);
    }

    #[test]
    fn a_directory_with_files_of_others_takes_no_metadata_and_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let versions = directory.path().join("versions");
        fs::write(&versions, "my versions file").unwrap();
        let refused = FileMeta::open(directory.path()).unwrap_err();
        assert!(refused.to_string().contains("versions"), "{refused}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        // Nor one that has records of something else.
        fs::create_dir(directory.path().join(RECORDS)).unwrap();
        fs::write(directory.path().join(RECORDS).join("1999"), "of a choir").unwrap();
        FileMeta::open(directory.path()).unwrap_err();
        // Nor is the file of others written over where there is no record to tell.
        fs::remove_file(directory.path().join(RECORDS).join("1999")).unwrap();
        if let Ok(meta) = FileMeta::open(directory.path()) {
            let put = Change { key: "a", value: Some(b"one"), durable: false };
            meta.swap(put, &[("a", None)]).unwrap_err();
        }
        assert_eq!(fs::read(&versions).unwrap(), b"my versions file");
    }

    #[test]
    fn metadata_are_made_beside_a_key_that_was_copied_there() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("key"), "00").unwrap();
        drop(FileMeta::open(directory.path()).unwrap());
        let meta = FileMeta::open(directory.path()).unwrap();
        let put = Change { key: "a", value: Some(b"one"), durable: false };
        meta.swap(put, &[("a", None)]).unwrap().unwrap();
        drop(FileMeta::open(directory.path()).unwrap());
    }

    #[test]
    fn what_a_loss_of_power_took_back_is_as_if_it_had_never_been() {
        let directory = tempfile::tempdir().unwrap();
        let meta = FileMeta::open(directory.path()).unwrap();
        let put =
            |value: &'static [u8]| Change { key: "servers/a", value: Some(value), durable: false };
        let mut last = None;
        for _ in 0..5 {
            last = meta.swap(put(b"beat"), &[("servers/a", last)]).unwrap();
        }
        // The counter was not synced, the record was.
        fs::write(directory.path().join("versions"), b"").unwrap();
        let next = meta.swap(put(b"beat"), &[("servers/a", last)]).unwrap();
        assert!(next > last, "{next:?} after {last:?}");
        // The name was synced, the bytes were not.
        fs::write(directory.path().join("records/servers~a"), b"").unwrap();
        assert_eq!(meta.get("servers/a").unwrap(), None);
        assert_eq!(meta.list("servers/").unwrap().len(), 0);
        meta.swap(put(b"beat"), &[("servers/a", None)]).unwrap().unwrap();
    }

    #[test]
    fn a_child_that_has_the_lock_file_open_keeps_nobody_from_changes() {
        let directory = tempfile::tempdir().unwrap();
        let meta = FileMeta::open(directory.path()).unwrap();
        let lock = meta.lock().unwrap();
        // As a fork in the middle of a change leaves it.
        let of_child = lock.0.try_clone().unwrap();
        drop(lock);
        let put = Change { key: "a", value: Some(b"one"), durable: false };
        meta.swap(put, &[("a", None)]).unwrap().unwrap();
        drop(of_child);
    }

    #[test]
    fn of_many_that_change_a_key_at_once_each_change_is_made_by_one() {
        let directory = tempfile::tempdir().unwrap();
        let meta = FileMeta::open(directory.path()).unwrap();
        let add = |meta: &FileMeta| {
            let mut done = 0;
            while done < 20 {
                let entry = meta.get("n").unwrap();
                let number: u64 = entry
                    .as_ref()
                    .map_or(0, |e| String::from_utf8_lossy(&e.value).parse().unwrap());
                let text = (number + 1).to_string();
                let change = Change { key: "n", value: Some(text.as_bytes()), durable: false };
                let only_if = [("n", entry.map(|entry| entry.version))];
                done += u64::from(meta.swap(change, &only_if).unwrap().is_some());
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| add(&meta)))));
        assert_eq!(meta.get("n").unwrap().unwrap().value, b"80");
    }
}
