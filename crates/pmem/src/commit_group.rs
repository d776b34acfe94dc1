//! Group commit: all callers that wait for an `fdatasync` of a file share as few calls as possible.
//!
//! ```text
//!   run k      |=========================|
//!   A, B, C        ^A    ^B      ^C      run k+1 |====================|  A, B, C return
//!   D                                                 ^D              run k+2 |=====| D returns
//! ```
//!
//! # Proof
//!
//! A caller may return `Ok` only after a run that **started** after the caller arrived, since a
//! run already under way may have passed the caller's pages. Runs are numbered and never overlap.
//! A caller that arrives, under the lock, when `started` runs have started takes ticket
//! `started + 1`; run `started + 1` starts later, under the same lock, so it started after the
//! caller arrived. The caller returns when a run numbered at least its ticket has succeeded.
//! While no run is under way, one of the waiting callers starts the next run, which covers all
//! waiting callers: at most two runs pass between arrival and return, however many callers wait.
//!
//! # Failure
//!
//! The kernel reports a lost page once and may then mark the page clean, so a later, successful
//! `fdatasync` proves nothing about that page. The first failure therefore poisons the group: every waiter
//! and every later caller gets [`MediumError::Poisoned`], also through media opened later, for as
//! long as the process lives. `poisoned` bounds the memory and the descriptors for that.
//!
//! Spec: fsync(2) "EIO"; Rebello et al., "Can Applications Recover from fsync Failures?" (2020).

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use crate::poisoned::{Inode, Noted, Poisoned};
use crate::{Backing, MediumError};

/// A target whose pages a flush writes back.
pub(crate) trait SyncTarget: Send + Sync + fmt::Debug {
    /// Writes back all bytes placed before the call and waits until they are durable.
    fn sync(&self, extent: Extent) -> io::Result<()>;
}

/// The part of a file that a flush writes back.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Extent {
    /// The bytes, and the length that a reader of the bytes needs: fdatasync(2).
    #[default]
    Bytes,
    /// The attributes as well: fsync(2).
    Whole,
}

/// The flushes of one target, shared by all callers that wait for them.
#[derive(Debug)]
pub(crate) struct Group<T> {
    target: T,
    state: Mutex<State>,
    run_ended: Condvar,
    /// Serialises the read-modify-write of atomic operations on this target. Never held together
    /// with `state`.
    atomics: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of runs started so far, which is also the number of the latest run.
    started: u64,
    /// Number of the latest run that succeeded.
    finished: u64,
    is_running: bool,
    is_poisoned: bool,
    /// What the next run has to write back for its waiting callers.
    wanted: Extent,
    waiting: usize,
}

impl<T: SyncTarget> Group<T> {
    pub(crate) fn new(target: T) -> Self {
        let (state, run_ended) = (Mutex::default(), Condvar::new());
        Self { target, state, run_ended, atomics: Mutex::new(()) }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.lock().is_poisoned
    }

    pub(crate) fn atomics(&self) -> MutexGuard<'_, ()> {
        self.atomics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a flush that started after this call has ended.
    ///
    /// # Durability
    ///
    /// After `Ok`, all bytes that any thread placed before the call survive a crash.
    pub(crate) fn persist(&self, extent: Extent) -> Result<(), MediumError> {
        let mut state = self.lock();
        let ticket = state.started + 1;
        state.wanted = state.wanted.max(extent);
        loop {
            if state.is_poisoned {
                return Err(MediumError::Poisoned);
            }
            if state.finished >= ticket {
                return Ok(());
            }
            state = if state.is_running { self.wait(state) } else { self.run(state) };
        }
    }

    /// Makes every present and later persist of the target fail.
    pub(crate) fn poison(&self) {
        self.lock().is_poisoned = true;
        self.run_ended.notify_all();
    }

    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.waiting += 1;
        let mut state = self.run_ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    fn run<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.started += 1;
        state.is_running = true;
        let extent = std::mem::take(&mut state.wanted);
        drop(state);
        let outcome = self.target.sync(extent);
        let mut state = self.lock();
        state.is_running = false;
        match outcome {
            Ok(()) => state.finished = state.started,
            Err(error) => {
                tracing::error!(%error, file = ?self.target, "flush failed, file poisoned");
                state.is_poisoned = true;
            }
        }
        self.run_ended.notify_all();
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The flushes of one file, shared by all callers in the process that wait for them.
///
/// A server that sends plain FLUSH requests and the persists of a mapped region through the same
/// group saves flushes, and every caller learns of a failed flush.
#[derive(Clone, Debug)]
pub struct CommitGroup {
    group: Arc<Group<SyncedFile>>,
}

impl CommitGroup {
    /// The group of the file behind `file`, whatever descriptor or name it was opened by.
    ///
    /// # Errors
    ///
    /// When the file cannot be examined or no descriptor is left.
    pub fn of(file: &File) -> io::Result<Self> {
        let stat = rustix::fs::fstat(file)?;
        let key = (stat.st_dev, stat.st_ino);
        let group = match known(key) {
            Some(group) => group,
            None => Self::enter(SyncedFile { file: reopen(file)?, key }),
        };
        // This check comes after the group is in the table: `poison_file` notes the failure first and then
        // looks for the group, so one of the two sees the other.
        if poisoned().get_or_insert_default().contains(key) {
            group.poison();
        }
        Ok(Self { group })
    }

    // The caller opened the file while holding no lock: a device that hangs blocks no file of another device.
    fn enter(file: SyncedFile) -> Arc<Group<SyncedFile>> {
        let key = file.key;
        let fresh = Arc::new(Group::new(file));
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = groups.get_or_insert_with(HashMap::new).entry(key).or_default();
        // Another thread may have entered the file first. Then `fresh` is dropped after the lock is released,
        // because the drop of a `SyncedFile` takes the lock.
        let group = entry.upgrade().unwrap_or_else(|| {
            *entry = Arc::downgrade(&fresh);
            Arc::clone(&fresh)
        });
        drop(groups);
        group
    }

    /// Notes that bytes of a file may be lost, for a caller that has no descriptor left to open a group.
    ///
    /// # Errors
    ///
    /// When the file cannot be examined.
    pub fn poison_file(file: impl AsFd) -> io::Result<()> {
        let stat = rustix::fs::fstat(file)?;
        let key = (stat.st_dev, stat.st_ino);
        let noted = poisoned().get_or_insert_default().note_number(key);
        if let Some(group) = known(key) {
            group.poison();
        }
        finish(noted);
        Ok(())
    }

    /// Whether a flush of a file has failed in this process, or bytes of the file may be lost.
    ///
    /// # Errors
    ///
    /// When the file cannot be examined.
    pub fn is_file_poisoned(file: impl AsFd) -> io::Result<bool> {
        let stat = rustix::fs::fstat(file)?;
        let key = (stat.st_dev, stat.st_ino);
        // A group that fails is poisoned before the failure is remembered.
        let is_poisoned = known(key).is_some_and(|group| group.is_poisoned());
        Ok(is_poisoned || poisoned().get_or_insert_default().contains(key))
    }

    /// Makes everything written to the file so far durable.
    ///
    /// # Durability
    ///
    /// After `Ok`, every write to the file that returned before this call survives a crash, with
    /// the file size needed to read it back. The atomic unit is the sector. After an error it is
    /// unknown what is durable, and stays unknown.
    ///
    /// # Errors
    ///
    /// [`MediumError::Poisoned`] once any flush of the file failed in this process.
    pub fn persist(&self) -> Result<(), MediumError> {
        self.persist_extent(Extent::Bytes)
    }

    /// Makes everything written to the file so far durable, and the attributes of the file.
    ///
    /// # Durability
    ///
    /// As [`CommitGroup::persist`]; extended attributes that were set before the call survive as well.
    ///
    /// # Errors
    ///
    /// As [`CommitGroup::persist`].
    pub fn persist_whole(&self) -> Result<(), MediumError> {
        self.persist_extent(Extent::Whole)
    }

    /// Notes that bytes of the file may be lost though no flush has failed: every later persist fails.
    pub fn poison(&self) {
        self.group.poison();
        self.keep_poison();
    }

    /// Whether a flush of the file has failed, so that every persist fails.
    pub fn is_poisoned(&self) -> bool {
        self.group.is_poisoned()
    }

    fn persist_extent(&self, extent: Extent) -> Result<(), MediumError> {
        let outcome = self.group.persist(extent);
        if outcome.is_err() {
            self.keep_poison();
        }
        outcome
    }

    /// The file that a persist may wait for.
    pub fn backing(&self) -> Backing {
        let (device, file) = self.group.target.key;
        Backing { device, file }
    }

    pub(crate) fn group(&self) -> &Group<SyncedFile> {
        &self.group
    }

    /// Remembers the failure, and as long as there is room keeps the inode number from being given to another file.
    fn keep_poison(&self) {
        let key = self.group.target.key;
        let noted = poisoned().get_or_insert_default().note(key, Arc::clone(&self.group));
        finish(noted);
    }
}

// Drops the keepers that are no longer needed, and poisons the open groups of a refused file system. The caller
// holds no lock, because the drop of a group takes the lock.
fn finish(noted: Noted<Arc<Group<SyncedFile>>>) {
    let Noted::FileSystem(file_system, _released) = noted else { return };
    tracing::error!(file_system, "flushes of too many files have failed: none succeeds any more");
    let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    let of_it = groups.iter().flatten().filter(|((of, _), _)| *of == file_system);
    let open: Vec<_> = of_it.filter_map(|(_, group)| group.upgrade()).collect();
    drop(groups);
    open.iter().for_each(|group| group.poison());
}

/// A file that is opened only to be flushed.
#[derive(Debug)]
pub(crate) struct SyncedFile {
    file: File,
    key: Inode,
}

impl SyncTarget for SyncedFile {
    fn sync(&self, extent: Extent) -> io::Result<()> {
        match extent {
            Extent::Bytes => self.file.sync_data(),
            Extent::Whole => self.file.sync_all(),
        }
    }
}

impl Drop for SyncedFile {
    fn drop(&mut self) {
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(groups) = groups.as_mut() else { return };
        // Another thread may have entered the file again meanwhile: then the entry belongs to the new group.
        if groups.get(&self.key).is_some_and(|group| group.strong_count() == 0) {
            groups.remove(&self.key);
        }
    }
}

/// Opens the file anew. The kernel reports a write-back error once per open file description: an
/// fsync on the original descriptor would take the report away from a duplicate.
fn reopen(file: &File) -> io::Result<File> {
    // fdatasync needs no access right, and every open file grants reading.
    let own = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    own.or_else(|_| file.try_clone())
}

fn poisoned() -> MutexGuard<'static, Option<Poisoned<Arc<Group<SyncedFile>>>>> {
    POISONED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn known(key: Inode) -> Option<Arc<Group<SyncedFile>>> {
    let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    groups.as_ref()?.get(&key)?.upgrade()
}

/// Lock order: a thread holds [`GROUPS`] or [`POISONED`] alone; it takes no other lock, and opens no file,
/// while it holds either.
static GROUPS: Mutex<Option<HashMap<Inode, Weak<Group<SyncedFile>>>>> = Mutex::new(None);
static POISONED: Mutex<Option<Poisoned<Arc<Group<SyncedFile>>>>> = Mutex::new(None);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::poisoned::DESCRIPTORS_MAX;

    /// A flush that begins and ends when the test says so.
    #[derive(Debug)]
    struct Stepped {
        begun: mpsc::SyncSender<()>,
        outcome: Mutex<mpsc::Receiver<io::Result<()>>>,
        runs: AtomicUsize,
        extents: Mutex<Vec<Extent>>,
    }

    impl SyncTarget for Stepped {
        fn sync(&self, extent: Extent) -> io::Result<()> {
            self.extents.lock().unwrap().push(extent);
            self.runs.fetch_add(1, Ordering::SeqCst);
            self.begun.send(()).unwrap();
            self.outcome.lock().unwrap().recv().unwrap()
        }
    }

    struct Rig {
        group: Group<Stepped>,
        begun: mpsc::Receiver<()>,
        end: mpsc::SyncSender<io::Result<()>>,
    }

    fn rig() -> Rig {
        let (begun_sender, begun) = mpsc::sync_channel(8);
        let (end, outcome) = mpsc::sync_channel(8);
        let outcome = Mutex::new(outcome);
        let (runs, extents) = (AtomicUsize::new(0), Mutex::default());
        let target = Stepped { begun: begun_sender, outcome, runs, extents };
        Rig { group: Group::new(target), begun, end }
    }

    fn until_waiting(group: &Group<Stepped>, count: usize) {
        while group.lock().waiting < count {
            thread::yield_now();
        }
    }

    #[test]
    fn callers_that_arrive_during_a_flush_share_exactly_the_next_flush() {
        let Rig { group, begun, end } = rig();
        thread::scope(|scope| {
            let first = scope.spawn(|| group.persist(Extent::Bytes));
            begun.recv().unwrap();
            let late: Vec<_> =
                (0..5).map(|_| scope.spawn(|| group.persist(Extent::Bytes))).collect();
            until_waiting(&group, 5);
            end.send(Ok(())).unwrap();
            assert_eq!(first.join().unwrap(), Ok(()));
            begun.recv().unwrap();
            assert!(late.iter().all(|waiter| !waiter.is_finished()), "the first run is not theirs");
            end.send(Ok(())).unwrap();
            assert!(late.into_iter().all(|waiter| waiter.join().unwrap() == Ok(())));
        });
        assert_eq!(group.lock().waiting, 0);
        assert_eq!(group.target.runs.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_failed_flush_fails_every_waiter_and_every_later_caller() {
        let Rig { group, begun, end } = rig();
        thread::scope(|scope| {
            let first = scope.spawn(|| group.persist(Extent::Bytes));
            begun.recv().unwrap();
            let late = scope.spawn(|| group.persist(Extent::Bytes));
            until_waiting(&group, 1);
            end.send(Err(io::Error::from_raw_os_error(libc::EIO))).unwrap();
            assert_eq!(first.join().unwrap(), Err(MediumError::Poisoned));
            assert_eq!(late.join().unwrap(), Err(MediumError::Poisoned));
        });
        assert_eq!(group.persist(Extent::Bytes), Err(MediumError::Poisoned));
        assert_eq!(group.target.runs.load(Ordering::SeqCst), 1, "no flush is tried again");
    }

    #[test]
    fn the_flush_of_the_attributes_starts_after_the_caller_arrives() {
        let Rig { group, begun, end } = rig();
        thread::scope(|scope| {
            let first = scope.spawn(|| group.persist(Extent::Bytes));
            begun.recv().unwrap();
            let whole = scope.spawn(|| group.persist(Extent::Whole));
            until_waiting(&group, 1);
            let bytes = scope.spawn(|| group.persist(Extent::Bytes));
            until_waiting(&group, 2);
            end.send(Ok(())).unwrap();
            begun.recv().unwrap();
            end.send(Ok(())).unwrap();
            for waiter in [first, whole, bytes] {
                assert_eq!(waiter.join().unwrap(), Ok(()));
            }
            let last = scope.spawn(|| group.persist(Extent::Bytes));
            begun.recv().unwrap();
            end.send(Ok(())).unwrap();
            assert_eq!(last.join().unwrap(), Ok(()));
        });
        let extents = [Extent::Bytes, Extent::Whole, Extent::Bytes];
        assert_eq!(*group.target.extents.lock().unwrap(), extents);
    }

    #[test]
    #[cfg_attr(miri, ignore = "real files")]
    fn a_poisoned_file_stays_poisoned_when_it_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let group = CommitGroup::of(&File::create(&path).unwrap()).unwrap();
        group.persist_whole().unwrap();
        group.poison();
        drop(group);
        let again = CommitGroup::of(&File::open(&path).unwrap()).unwrap();
        assert_eq!(again.persist(), Err(MediumError::Poisoned));
        assert_eq!(again.persist_whole(), Err(MediumError::Poisoned));
    }

    // The kernel flushes no null device: EINVAL.
    #[test]
    #[cfg_attr(miri, ignore = "real files")]
    fn a_file_whose_flush_failed_stays_poisoned_when_it_is_opened_again() {
        let file = File::open("/dev/null").unwrap();
        let group = CommitGroup::of(&file).unwrap();
        assert!(!group.group().is_poisoned());
        assert_eq!(group.persist(), Err(MediumError::Poisoned));
        drop(group);
        // Before anything is flushed again.
        assert!(CommitGroup::of(&file).unwrap().group().is_poisoned());
    }

    // Keeps the inode numbers in use: a file of another test that got a poisoned number would be poisoned.
    fn keep_numbers(files: impl IntoIterator<Item = File>) {
        files.into_iter().for_each(std::mem::forget);
    }

    #[test]
    #[cfg_attr(miri, ignore = "real files")]
    fn a_file_whose_loss_was_noted_without_a_group_is_poisoned() {
        let file = tempfile::tempfile().unwrap();
        let open = CommitGroup::of(&file).unwrap();
        CommitGroup::poison_file(&file).unwrap();
        assert_eq!(open.persist(), Err(MediumError::Poisoned));
        drop(open);
        assert_eq!(CommitGroup::of(&file).unwrap().persist(), Err(MediumError::Poisoned));
        keep_numbers([file]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "real files")]
    fn a_file_is_known_as_poisoned_while_it_is_open_and_afterwards() {
        let file = tempfile::tempfile().unwrap();
        let group = CommitGroup::of(&file).unwrap();
        let is_known = || (group.is_poisoned(), CommitGroup::is_file_poisoned(&file).unwrap());
        assert_eq!(is_known(), (false, false));
        // Of the open group alone, and then remembered.
        group.group().poison();
        assert_eq!(is_known(), (true, true));
        group.poison();
        drop(group);
        assert!(CommitGroup::is_file_poisoned(&file).unwrap());
        keep_numbers([file]);
    }

    // No other test has a group of a file in /proc.
    #[test]
    #[cfg_attr(miri, ignore = "real files")]
    fn a_refused_file_system_poisons_its_open_files_and_those_of_no_other() {
        let refused = CommitGroup::of(&File::open("/proc/self/status").unwrap()).unwrap();
        let (file_system, _) = refused.group.target.key;
        let other = CommitGroup::of(&tempfile::tempfile().unwrap()).unwrap();
        finish(Noted::FileSystem(file_system, Vec::new()));
        assert!(refused.is_poisoned() && !other.is_poisoned());
        assert_eq!(refused.persist(), Err(MediumError::Poisoned));
    }

    #[test]
    #[cfg_attr(miri, ignore = "real files")]
    fn files_whose_flush_has_failed_keep_a_bounded_number_of_descriptors() {
        let files: Vec<_> =
            (0..2 * DESCRIPTORS_MAX).map(|_| tempfile::tempfile().unwrap()).collect();
        let key = |file: &File| {
            let stat = rustix::fs::fstat(file).unwrap();
            (stat.st_dev, stat.st_ino)
        };
        let keys: Vec<_> = files.iter().map(key).collect();
        for file in &files {
            CommitGroup::of(file).unwrap().poison();
        }
        let is_kept = |key: &&Inode| known(**key).is_some();
        assert!(keys.iter().filter(is_kept).count() <= DESCRIPTORS_MAX);
        for file in &files {
            assert_eq!(CommitGroup::of(file).unwrap().persist(), Err(MediumError::Poisoned));
        }
        keep_numbers(files);
    }

    #[test]
    #[cfg_attr(miri, ignore = "real files")]
    fn two_names_of_a_file_share_one_group_two_files_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        let first = CommitGroup::of(&File::create(&one).unwrap()).unwrap();
        std::fs::hard_link(&one, &two).unwrap();
        let second = CommitGroup::of(&File::open(&two).unwrap()).unwrap();
        assert!(Arc::ptr_eq(&first.group, &second.group));
        let other = File::create(folder.path().join("other")).unwrap();
        assert!(!Arc::ptr_eq(&first.group, &CommitGroup::of(&other).unwrap().group));
    }

    // An open of a pipe for reading waits until a writer opens the pipe.
    #[test]
    #[cfg_attr(miri, ignore = "real files")]
    fn a_file_that_is_slow_to_open_delays_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        let slow = rustix::fs::open(&pipe, flags, rustix::fs::Mode::empty()).unwrap();
        let (opened, is_opened) = mpsc::channel();
        let slow_opened = opened.clone();
        thread::spawn(move || {
            let group = CommitGroup::of(&File::from(slow));
            slow_opened.send(("slow", group.is_ok())).unwrap();
        });
        thread::sleep(std::time::Duration::from_millis(50));
        let other = tempfile::tempfile().unwrap();
        thread::spawn(move || {
            opened.send(("other", CommitGroup::of(&other).is_ok())).unwrap();
        });
        let first = is_opened.recv_timeout(std::time::Duration::from_secs(5));
        let writer = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        assert_eq!(first, Ok(("other", true)));
        assert_eq!(is_opened.recv().unwrap(), ("slow", true));
        drop(writer);
    }

    #[test]
    #[cfg_attr(miri, ignore = "real files")]
    fn a_commit_group_without_users_is_removed() {
        let file = tempfile::tempfile().unwrap();
        let group = CommitGroup::of(&file).unwrap();
        let key = group.group.target.key;
        group.persist().unwrap();
        drop(group);
        assert!(!GROUPS.lock().unwrap().as_ref().unwrap().contains_key(&key));
    }
}
