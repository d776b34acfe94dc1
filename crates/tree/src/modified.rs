//! What a change of a file's bytes, or of its name, does to the facts of the file: a backup has to fetch it again, and
//! the time of its last write moves, unless the handle keeps that time.
//!
//! [`super::marks`] says when the attributes have to be looked at.
//!
//! Spec: MS-FSA §2.1.4.17 (noting that a file has been modified), §2.1.5.15.2 (UserSetModificationTime).

use rustix::fs::{Timespec, Timestamps};

use super::attributes::{self, DosAttributes};
use super::entry::{Entry, OMIT};
use super::error::ShareError;
use super::rights::MayRemove;

impl Entry {
    /// Changes bytes. ARCHIVE is set first: a crash in between costs a backup one file, not the change.
    pub(super) fn modify<T>(
        &self,
        change: impl FnOnce() -> Result<T, ShareError>,
    ) -> Result<T, ShareError> {
        self.set_archive();
        let kept = self.kept_write_time();
        let changed = change();
        if let Some(last_modification) = kept {
            let times = Timestamps { last_access: OMIT, last_modification };
            // The change is made, whatever its time.
            let _ = rustix::fs::futimens(self.as_fd(), &times);
        }
        changed
    }

    /// Notes that the file has another name.
    pub fn note_renamed(&self, _leave: impl MayRemove) {
        if !self.is_stream() {
            self.set_archive();
        }
    }

    // Where the attributes cannot be read or written the change is made all the same.
    fn set_archive(&self) {
        if self.is_device() || !self.has_bytes() {
            return;
        }
        let Some(cleared) = self.marks().may_lack_archive() else { return };
        let fd = self.facts_fd();
        let Ok(stored) = attributes::try_load(fd) else { return };
        let has_it = match stored.attributes {
            None => true,
            Some(attributes) if attributes.contains(DosAttributes::ARCHIVE) => true,
            Some(_) => attributes::change(fd, self.file_key(), false, |stored| {
                stored.attributes = stored.attributes.map(|set| set.union(DosAttributes::ARCHIVE));
            })
            .is_ok(),
        };
        if has_it {
            self.marks().note_archive(cleared);
        }
    }

    // The time of last write of a stream is its file's, and moves with the file's bytes alone.
    fn kept_write_time(&self) -> Option<Timespec> {
        if !self.marks().keeps_write_time() || self.is_stream() {
            return None;
        }
        let stat = rustix::fs::fstat(self.as_fd()).ok()?;
        let tv_nsec = stat.st_mtime_nsec.try_into().ok()?;
        Some(Timespec { tv_sec: stat.st_mtime, tv_nsec })
    }

    pub(super) fn keeps_write_time(&self) -> bool {
        self.marks().keeps_write_time()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::given::{MayAdd, MayRemove, MaySet};
    use crate::{BasicChange, Share, ShareConfig, SharePath, Span};

    type Change<'e> = &'e dyn Fn() -> Result<(), ShareError>;

    fn entry(share: &Share) -> Entry {
        let path = SharePath::parse("f").unwrap();
        share.create_file(MayAdd::TEST, &path, DosAttributes::default()).unwrap()
    }

    #[test]
    fn each_way_to_change_bytes_sets_archive_again() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        let entry = entry(&share);
        entry.write_at(&[1; 8192], 0).unwrap();
        let span = Span { start: 0, end: 4096 };
        let changes: [(&str, Change<'_>); 6] = [
            ("write", &|| entry.write_at(b"x", 0)),
            ("size", &|| entry.set_size(8000)),
            ("zero", &|| entry.zero(span)),
            ("trim", &|| entry.trim(span)),
            ("copy", &|| entry.copy_from(&entry, 0, 4096, 100)),
            ("name", &|| {
                entry.note_renamed(MayRemove::TEST);
                Ok(())
            }),
        ];
        for (name, change) in changes {
            let hidden = Some(DosAttributes::HIDDEN);
            let cleared = BasicChange { attributes: hidden, ..BasicChange::default() };
            entry.set_basic(MaySet::TEST, cleared).unwrap();
            change().unwrap();
            let set = entry.metadata().unwrap().attributes;
            assert_eq!(set, DosAttributes::HIDDEN.union(DosAttributes::ARCHIVE), "{name}");
        }
    }

    #[test]
    fn a_write_time_that_a_handle_keeps_stays_until_the_handle_lets_go() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        let entry = entry(&share);
        let time = 131_000_000_000_000_000;
        let change = |write, keeps_write| BasicChange { write, keeps_write, ..Default::default() };
        entry.set_basic(MaySet::TEST, change(Some(time), Some(true))).unwrap();
        entry.write_at(b"flushed from a cache", 0).unwrap();
        entry.set_size(5).unwrap();
        assert_eq!(entry.metadata().unwrap().write, time);
        entry.set_basic(MaySet::TEST, change(None, Some(false))).unwrap();
        entry.write_at(b"x", 0).unwrap();
        assert!(entry.metadata().unwrap().write > time);
    }
}
