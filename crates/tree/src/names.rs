//! The names of large directories, as clients compare them: ignoring case.
//!
//! ```text
//!  a name is not there as written --> directory known, and unchanged since?
//!        yes: one look-up in memory            no: one pass over it, and if it is large, known from now on
//!
//!  this server adds or removes a name --> known and unchanged: kept up to date    else: forgotten
//! ```
//!
//! Without this, each new file of a directory of 100,000 would cost a pass over all of them: that nothing
//! there differs in case only is known when all are read. Whether a directory has changed is told by
//! its times. Where the kernel's clock of inodes ticks in steps (before Linux 6.13), a name that a local
//! program adds in the step of the last change here may be missed until the next change, and only under
//! another spelling than its own: a name as written is always asked of the kernel.
//!
//! The shares of a server have room for names together; [`forgetting`] says what goes where there is too little.
//!
//! Spec: MS-FSA §2.1.5.1 (names of NTFS are compared ignoring case).

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::error::ShareError;
use super::forgetting::{self, Candidate, Size};
use super::inode::{FileKey, identify};
use super::pattern::{same_name, upcase};
use crate::lock_order as order;
use basics::ordered::{Mutex, MutexGuard};

/// What is known of all directories of a server: its shares may overlap.
#[derive(Debug, Default)]
pub(super) struct Table {
    directories: Mutex<HashMap<FileKey, Arc<Known>>, order::Directories>,
    /// Counts uses, for finding the one that was not used for longest.
    clock: AtomicU64,
    passes: AtomicU64,
}

/// The same for one share: what it reads counts for it.
#[derive(Debug, Default)]
pub(super) struct Names {
    table: Arc<Table>,
    reader: Arc<Reader>,
}

/// A share that reads directories, as long as there is it.
#[derive(Debug, Default)]
struct Reader;

#[derive(Debug)]
struct Known {
    reader: Weak<Reader>,
    used: AtomicU64,
    /// How many names, for who has the table: `names` is held while a file system works.
    count: AtomicUsize,
    names: Mutex<Folded, order::DirectoryNames>,
}

impl Known {
    fn candidate(&self, key: FileKey) -> Candidate<FileKey> {
        let is_there = self.reader.strong_count() > 0;
        let share = is_there.then(|| self.reader.as_ptr().addr());
        let size = Size::of(self.count.load(Ordering::Relaxed));
        Candidate { key, share, size, used: self.used.load(Ordering::Relaxed) }
    }
}

/// The names of one directory at one moment.
#[derive(Debug)]
struct Folded {
    stamp: Stamp,
    /// By the hash of the folded name; the spelling on disk.
    spellings: HashMap<u64, Box<str>>,
}

/// When a directory was changed last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stamp {
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(directory: impl AsFd) -> Result<Self, ShareError> {
        let flags = rustix::fs::AtFlags::EMPTY_PATH;
        let wanted = rustix::fs::StatxFlags::MTIME | rustix::fs::StatxFlags::CTIME;
        let stat = rustix::fs::statx(directory, "", flags, wanted)?;
        let pair = |time: rustix::fs::StatxTimestamp| (time.tv_sec, i64::from(time.tv_nsec));
        Ok(Self { modified: pair(stat.stx_mtime), changed: pair(stat.stx_ctime) })
    }
}

/// What memory says of a name.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Answer {
    /// Spelled so on disk.
    Spelled(String),
    /// Not there under any spelling.
    Absent,
    /// The directory has to be read.
    Unknown,
}

impl Names {
    /// Those of one more share, remembered in a table of several.
    pub(super) fn in_table(table: &Arc<Table>) -> Self {
        Self { table: Arc::clone(table), reader: Arc::default() }
    }

    pub(super) fn are_in_table_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
    }

    /// How `wanted` is spelled in a directory.
    pub(super) fn find(&self, directory: impl AsFd, wanted: &str) -> Answer {
        let Ok((key, _)) = identify(&directory) else { return Answer::Unknown };
        let Some(known) = self.known(key) else { return Answer::Unknown };
        let names = known.names.lock();
        if Stamp::of(&directory).ok() != Some(names.stamp) {
            return Answer::Unknown;
        }
        match names.spellings.get(&hash(wanted)) {
            Some(spelling) if same_name(spelling, wanted) => {
                Answer::Spelled((**spelling).to_owned())
            }
            // Two names with one hash: nobody chose them, but disk decides.
            Some(_) => Answer::Unknown,
            None => Answer::Absent,
        }
    }

    /// Begins to read a directory; `None` if it cannot be told later whether it has changed.
    pub(super) fn begin(&self, directory: impl AsFd) -> Option<Reading> {
        self.table.passes.fetch_add(1, Ordering::Relaxed);
        let (key, _) = identify(&directory).ok()?;
        Some(Reading { key, stamp: Stamp::of(directory).ok()?, spellings: Vec::new() })
    }

    /// Keeps what was read, if it is worth it.
    pub(super) fn keep(&self, reading: Reading) {
        let is_worth_it = reading.is_worth_it();
        let Reading { key, stamp, spellings } = reading;
        // Others wait for the table: what takes long is done before, and after.
        let mut gone = Vec::new();
        if !is_worth_it {
            gone.extend(self.directories().remove(&key));
            return;
        }
        let folded: HashMap<u64, Box<str>> =
            spellings.iter().map(|name| (hash(name), name.as_str().into())).collect();
        // Two names that differ in case only, or one hash: the disk decides each time.
        let is_clear = folded.len() == spellings.len();
        let mut directories = self.directories();
        gone.extend(directories.remove(&key));
        if !is_clear {
            return;
        }
        let used = self.table.clock.fetch_add(1, Ordering::Relaxed);
        let (share, size) = (Some(Arc::as_ptr(&self.reader).addr()), Size::of(folded.len()));
        let held = directories.iter().map(|(key, known)| known.candidate(*key)).collect();
        let forgotten = forgetting::for_another(ROOM, Candidate { key, share, size, used }, held);
        let Some(forgotten) = forgotten else { return };
        gone.extend(forgotten.iter().filter_map(|key| directories.remove(key)));
        let count = AtomicUsize::new(folded.len());
        let names = Mutex::new(Folded { stamp, spellings: folded });
        let (reader, used) = (Arc::downgrade(&self.reader), AtomicU64::new(used));
        directories.insert(key, Arc::new(Known { reader, used, count, names }));
    }

    /// Carries out a change of names of a directory, and what it did to them if it succeeded.
    pub(super) fn change<T>(
        &self,
        directory: impl AsFd,
        act: impl FnOnce() -> Result<T, ShareError>,
        added: Option<&str>,
        removed: Option<&str>,
    ) -> Result<T, ShareError> {
        let known = identify(&directory).ok().and_then(|(key, _)| self.known(key));
        let Some(known) = known else { return act() };
        // Held meanwhile, so that each change of ours finds the directory as the one before left it.
        let mut names = known.names.lock();
        let was_current = Stamp::of(&directory).ok() == Some(names.stamp);
        let outcome = act();
        let stamp = Stamp::of(&directory).ok().filter(|_| was_current && outcome.is_ok());
        let Some(stamp) = stamp else { return outcome };
        names.stamp = stamp;
        if let Some(removed) = removed {
            names.spellings.remove(&hash(removed));
        }
        if let Some(added) = added
            && names.spellings.insert(hash(added), added.into()).is_some_and(|old| *old != *added)
        {
            // Two names under one hash: what is known is not enough any more.
            names.stamp = NEVER;
        }
        known.count.store(names.spellings.len(), Ordering::Relaxed);
        outcome
    }

    /// Directories read from front to end so far.
    #[cfg(test)]
    pub(super) fn passes(&self) -> u64 {
        self.table.passes.load(Ordering::Relaxed)
    }

    fn known(&self, key: FileKey) -> Option<Arc<Known>> {
        let known = Arc::clone(self.directories().get(&key)?);
        known.used.store(self.table.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(known)
    }

    fn directories(&self) -> MutexGuard<'_, HashMap<FileKey, Arc<Known>>, order::Directories> {
        self.table.directories.lock()
    }
}

/// A directory that is being read.
#[derive(Debug)]
pub(super) struct Reading {
    key: FileKey,
    stamp: Stamp,
    spellings: Vec<String>,
}

impl Reading {
    /// Notes a name.
    pub(super) fn note(&mut self, name: &str) {
        if self.spellings.len() <= NAMES_MAX {
            self.spellings.push(name.to_owned());
        }
    }

    /// Whether what was read so far is worth keeping, once the rest is read.
    pub(super) fn is_worth_it(&self) -> bool {
        (NAMES_MIN..=NAMES_MAX).contains(&self.spellings.len())
    }
}

// FNV-1a of the name as names are compared.
fn hash(name: &str) -> u64 {
    name.chars().map(upcase).fold(0xcbf2_9ce4_8422_2325_u64, |hash, c| {
        (hash ^ u64::from(u32::from(c))).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A smaller directory is read as fast as it is remembered.
pub(super) const NAMES_MIN: usize = 256;
/// Names of all known directories: about 100 MB.
const NAMES_MAX: usize = 1 << 20;
/// Known directories.
const DIRECTORIES_MAX: usize = 256;
const ROOM: Size = Size { directories: DIRECTORIES_MAX, names: NAMES_MAX };
// No directory was changed then.
const NEVER: Stamp = Stamp { modified: (i64::MIN, 0), changed: (i64::MIN, 0) };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::given::{MayAdd, MayRemove};
    use crate::{CommonNames, DosAttributes, Share, ShareConfig, SharePath};

    fn path(name: &str) -> SharePath {
        SharePath::parse(name).unwrap()
    }

    #[test]
    fn a_large_directory_is_read_once_however_many_names_are_added() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..300 {
            std::fs::write(dir.path().join(format!("There {number}")), []).unwrap();
        }
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        for number in 0..300 {
            let new = path(&format!("New {number}"));
            assert!(share.locate(&new).unwrap().found.is_none());
            share.create_file(MayAdd::TEST, &new, DosAttributes::default()).unwrap();
        }
        assert!(share.locate(&path("nEW 7")).unwrap().found.is_some());
        let there = share.locate(&path("there 299")).unwrap();
        assert_eq!(there.path.to_wire(), "There 299");
        assert_eq!(share.names.passes(), 1);
        // A name goes, by removing and by renaming, and comes back.
        let key = there.found.unwrap().key;
        share.rename(MayRemove::TEST, &path("There 299"), &path("Elsewhere"), key, None).unwrap();
        assert!(share.locate(&path("THERE 299")).unwrap().found.is_none());
        assert!(share.locate(&path("ELSEWHERE")).unwrap().found.is_some());
        share.remove(MayRemove::TEST, &path("Elsewhere"), key, false).unwrap();
        assert!(share.locate(&path("ELSEWHERE")).unwrap().found.is_none());
        assert_eq!(share.names.passes(), 1);
    }

    #[test]
    fn names_in_another_case_are_found_in_one_pass_or_early() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..2 * NAMES_MIN {
            std::fs::write(dir.path().join(format!("There {number}")), []).unwrap();
        }
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        let mut early = 0;
        for number in 0..2 * NAMES_MIN {
            let before = share.names.passes();
            let there = share.locate(&path(&format!("THERE {number}"))).unwrap();
            assert_eq!(there.path.to_wire(), format!("There {number}"));
            let is_known = !share.names.directories().is_empty();
            early += usize::from(share.names.passes() > before && !is_known);
        }
        // One of the names that come late made all of them known.
        assert!(early < NAMES_MIN, "{early} passes ended without keeping anything");
        assert_eq!(share.names.passes(), u64::try_from(early).unwrap() + 1);
    }

    #[test]
    fn a_name_that_is_made_through_one_share_is_known_to_the_others() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..300 {
            std::fs::write(dir.path().join(format!("There {number}")), []).unwrap();
        }
        let open = |name| Share::open(&ShareConfig::new(name, dir.path())).unwrap();
        let common = CommonNames::default();
        let (mut one, mut other) = (open("one"), open("other"));
        one.keep_names_in(&common);
        other.keep_names_in(&common);
        assert!(one.locate(&path("new")).unwrap().found.is_none());
        other.create_file(MayAdd::TEST, &path("NEW"), DosAttributes::default()).unwrap();
        assert!(one.locate(&path("new")).unwrap().found.is_some());
        assert_eq!(one.names.passes(), 1, "nobody has to read the directory again");
    }

    /// A directory of so many names that has been read.
    fn reading(inode: u64, count: usize) -> Reading {
        let key = FileKey { device: 1, inode };
        let spellings = (0..count).map(|name| name.to_string()).collect();
        Reading { key, stamp: NEVER, spellings }
    }

    #[test]
    fn a_share_that_reads_many_directories_leaves_those_of_others_remembered() {
        let table = Arc::default();
        let (first, second) = (Names::in_table(&table), Names::in_table(&table));
        let is_known = |inode| first.known(FileKey { device: 1, inode }).is_some();
        first.keep(reading(0, NAMES_MIN));
        let last = u64::try_from(DIRECTORIES_MAX).unwrap();
        (1..=last).for_each(|inode| second.keep(reading(inode, NAMES_MIN)));
        assert!(is_known(0) && !is_known(1) && is_known(2), "the other share loses its oldest");
        second.keep(reading(last + 1, NAMES_MAX - 1));
        assert!(is_known(0) && !is_known(last + 1) && is_known(last));
        // What a share that is gone has read is nobody's.
        drop(second);
        first.keep(reading(last + 2, NAMES_MAX - NAMES_MIN));
        assert!(is_known(0) && is_known(last + 2) && !is_known(last));
    }

    #[test]
    fn of_many_directories_those_used_last_are_known() {
        let names = Names::default();
        let known = |inode| names.known(FileKey { device: 1, inode }).is_some();
        let last = u64::try_from(DIRECTORIES_MAX).unwrap();
        (0..=last).for_each(|inode| names.keep(reading(inode, NAMES_MIN)));
        assert!(!known(0) && known(1) && known(last));
        assert_eq!(names.directories().len(), DIRECTORIES_MAX);
        names.keep(reading(last + 1, NAMES_MAX - 2 * NAMES_MIN));
        // The last that was kept, and those asked about since.
        assert_eq!(names.directories().len(), 3);
        assert!(known(1) && known(last) && known(last + 1));
    }

    #[test]
    fn a_name_that_a_local_program_adds_is_found() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..300 {
            std::fs::write(dir.path().join(format!("There {number}")), []).unwrap();
        }
        let share = Share::open(&ShareConfig::new("s", dir.path())).unwrap();
        assert!(share.locate(&path("new")).unwrap().found.is_none());
        // The clock of inodes ticks in steps: the times of the directory have to be others.
        let before = Stamp::of(&share.root).unwrap();
        for attempt in 0.. {
            std::fs::write(dir.path().join(format!("NEW{attempt}")), []).unwrap();
            if Stamp::of(&share.root).unwrap() != before {
                break;
            }
        }
        assert!(share.locate(&path("new0")).unwrap().found.is_some());
    }
}
