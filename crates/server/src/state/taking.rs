//! Names that are taken from their files while others look them up.
//!
//! A look-up and the entry in the node of what it found are two steps. Between them the name may come to stand
//! for something else, or for nothing; whoever then entered the node would have open what has no name any more.
//!
//! ```text
//!  to open    remember the counts --> find the name --> node locked: claimed? wait   counted since? look again
//!                                                                    neither: it is open
//!  to take    node locked: not open? claim it --> change the disk --> count --> give the claim back
//!  to move    note the directory --> is anything below it open? --> change the disk --> count --> done
//! ```
//!
//! Whoever is sent back often keeps names as they are for one more look-up: renames wait for it, in turn.
//!
//! A file is claimed from before it is known that nobody has it open until the disk says what its name means.
//! Counts are kept for groups of inodes: a stranger in the group costs one more look-up.
//!
//! Spec: MS-FSA §2.1.5.15.11 (rename), §2.1.5.15.6 (link).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::lock_order as order;
use basics::ordered::{Condvar, Mutex, MutexGuard};
use tokio::sync::{Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tree::{FileKey, Share, SharePath};

/// What was taken and what is being moved, of all shares of a server.
#[derive(Debug)]
pub(crate) struct Takings {
    counts: [AtomicU64; GROUPS],
    /// Directories that are being moved: as many as there are renames under way.
    moving: Mutex<Vec<Place>, order::MovingDirectories>,
    /// How many there are: mostly none, and then nobody pays for a lock.
    moves: AtomicUsize,
    moved: Notify,
    // The same for who blocks.
    has_moved: Condvar,
    /// Held by each rename, and alone by a look-up that was sent back often. Who comes first is first.
    names: Arc<RwLock<()>>,
}

/// A rename may change the disk until this is dropped.
#[derive(Debug)]
pub(crate) struct MayRename {
    _guard: OwnedRwLockReadGuard<()>,
}

/// No rename changes the disk until this is dropped.
#[derive(Debug)]
pub(crate) struct NamesHeld {
    _guard: OwnedRwLockWriteGuard<()>,
}

/// A directory, as one share calls it.
type Place = (Arc<Share>, SharePath);

/// The counts as they were before a look-up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen([u64; GROUPS]);

impl Default for Takings {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; GROUPS],
            moving: Mutex::default(),
            moves: AtomicUsize::new(0),
            moved: Notify::new(),
            has_moved: Condvar::new(),
            names: Arc::default(),
        }
    }
}

impl Takings {
    /// To be asked before a name is looked up.
    pub(crate) fn seen(&self) -> Seen {
        Seen(std::array::from_fn(|group| self.counts[group].load(Ordering::SeqCst)))
    }

    /// Whether no name of this inode was taken since.
    pub(crate) fn is_current(&self, seen: &Seen, key: FileKey) -> bool {
        let group = group(key);
        self.counts[group].load(Ordering::SeqCst) == seen.0[group]
    }

    /// A name of this inode has been taken, or could not be.
    pub(crate) fn count(&self, key: FileKey) {
        self.counts[group(key)].fetch_add(1, Ordering::SeqCst);
    }

    /// Names of any number of inodes have changed.
    pub(crate) fn count_all(&self) {
        self.counts.iter().for_each(|count| {
            count.fetch_add(1, Ordering::SeqCst);
        });
    }

    /// To be had before a rename changes the disk, and after everything else that it waits for but a thread.
    pub(crate) async fn may_rename(&self) -> MayRename {
        MayRename { _guard: Arc::clone(&self.names).read_owned().await }
    }

    /// Keeps renames from changing the disk, for a look-up that was sent back often. To be held while it looks, and
    /// while it waits for nothing but a thread.
    pub(crate) async fn hold_names(&self) -> NamesHeld {
        NamesHeld { _guard: Arc::clone(&self.names).write_owned().await }
    }

    /// Keeps anything below a directory from being opened until the returned value is dropped.
    pub(crate) fn begin_move(
        self: &Arc<Self>,
        share: &Arc<Share>,
        directory: &SharePath,
    ) -> Moving {
        let place = (Arc::clone(share), directory.clone());
        let mut moving = self.lock();
        moving.push(place.clone());
        self.moves.store(moving.len(), Ordering::SeqCst);
        Moving { takings: Arc::clone(self), place }
    }

    /// Whether a directory above `path` is being moved.
    pub(crate) fn is_moving(&self, share: &Share, path: &SharePath) -> bool {
        self.moves.load(Ordering::SeqCst) > 0 && is_above(&self.lock(), share, path)
    }

    /// [`Takings::settled`] for who blocks.
    pub(crate) fn settle(&self, share: &Share, path: &SharePath) {
        let moving = self.lock();
        drop(self.has_moved.wait_while(moving, |moving| is_above(moving, share, path)));
    }

    /// Returns once no directory above `path` is being moved.
    pub(crate) async fn settled(&self, share: &Share, path: &SharePath) {
        basics::until(&self.moved, || !self.is_moving(share, path)).await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Place>, order::MovingDirectories> {
        self.moving.lock()
    }
}

fn is_above(moving: &[Place], share: &Share, path: &SharePath) -> bool {
    moving.iter().any(|(other, directory)| {
        share.path_in(other, path).is_some_and(|path| path.is_below(directory))
    })
}

fn group(key: FileKey) -> usize {
    usize::try_from(key.inode % GROUPS as u64).expect("less than the groups")
}

/// A directory is being moved until this is dropped.
#[derive(Debug)]
pub(crate) struct Moving {
    takings: Arc<Takings>,
    place: Place,
}

impl Drop for Moving {
    fn drop(&mut self) {
        let mut moving = self.takings.lock();
        if let Some(at) = moving.iter().position(|(share, directory)| {
            Arc::ptr_eq(share, &self.place.0) && *directory == self.place.1
        }) {
            moving.swap_remove(at);
        }
        self.takings.moves.store(moving.len(), Ordering::SeqCst);
        drop(moving);
        self.takings.moved.notify_waiters();
        self.takings.has_moved.notify_all();
    }
}

/// Groups of inodes with a count each: 512 bytes to remember for the time of a look-up.
const GROUPS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use tree::ShareConfig;

    #[tokio::test]
    async fn who_opens_below_a_directory_waits_until_it_has_moved() {
        let dir = tempfile::tempdir().unwrap();
        let share = Arc::new(Share::open(&ShareConfig::new("s", dir.path())).unwrap());
        let takings = Arc::new(Takings::default());
        let path = |text| SharePath::parse(text).unwrap();
        let (file, other) = (path("d\\e\\f"), path("dd\\f"));
        takings.settled(&share, &file).await;
        let moving = takings.begin_move(&share, &path("d"));
        assert!(takings.is_moving(&share, &file) && !takings.is_moving(&share, &other));
        let settled = takings.settled(&share, &file);
        tokio::pin!(settled);
        let waits = tokio::select! {
            biased;
            () = &mut settled => false,
            () = std::future::ready(()) => true,
        };
        assert!(waits);
        drop(moving);
        settled.await;
    }

    #[tokio::test]
    async fn a_rename_waits_for_a_look_up_that_holds_names_and_then_goes_on() {
        let takings = Takings::default();
        let is_ready = async |event: std::pin::Pin<&mut dyn Future<Output = MayRename>>| {
            tokio::select! {
                biased;
                _ = event => true,
                () = std::future::ready(()) => false,
            }
        };
        let (first, second) = (takings.may_rename().await, takings.may_rename().await);
        drop((first, second));
        let held = takings.hold_names().await;
        let renaming = takings.may_rename();
        tokio::pin!(renaming);
        assert!(!is_ready(renaming.as_mut()).await);
        drop(held);
        assert!(is_ready(renaming.as_mut()).await);
    }

    #[test]
    fn a_count_of_one_inode_leaves_others_as_they_were_seen() {
        let takings = Takings::default();
        let key = |inode| FileKey { device: 1, inode };
        let seen = takings.seen();
        takings.count(key(7));
        assert!(!takings.is_current(&seen, key(7)) && takings.is_current(&seen, key(8)));
        takings.count_all();
        assert!(!takings.is_current(&seen, key(8)));
    }
}
