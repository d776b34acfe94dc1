//! Locks of inodes for changes of names: a request checks the meaning of a name and changes the name under
//! them.
//!
//! ```text
//!  remove   its directory, the file                          look: is the name the file's? --> unlink(2)
//!  rename   both directories, the file, the file replaced    look at both names            --> rename(2)
//!  link     the new name's directory, the file, the file     look at the new name          --> link(2), or
//!           replaced; then the directory of new links                                          link(2), rename(2)
//!  become   the name's directory, the file; then the          look at the name, the file  --> symlink(2), rename(2)
//!  a link   directory of new links
//!  stream   the file, for its first; then its directory      look: which are there?        --> mkdir(2), open(2),
//!           of streams, for each                                                               rename(2), unlink(2)
//!  sweep    the directory of new links                       look at all names             --> unlink(2)
//! ```
//!
//! Only programs beside the server can remove a name from a locked directory. A locked file gains and loses no
//! name, so it is known whether a name is its last. A request that adds a name which must be free locks nothing:
//! the kernel checks and adds in one step. One table serves all shares of a server, by inode, because they may
//! overlap.
//!
//! An inode stays locked while a thread takes locks of other kinds: after `lock_order::Links`, first the inodes of one
//! call of [`NameLocks::hold`] in their order, then the directory of new links, then `lock_order::DirectoryNames`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::inode::FileKey;
use crate::lock_order as order;
use basics::ordered::{Condvar, Mutex, MutexGuard};

/// The held locks: at most four for each change of names in progress.
#[derive(Debug, Default)]
pub(super) struct NameLocks {
    held: Mutex<HashMap<FileKey, Waiters>, order::LockedInodes>,
}

/// The requests that wait for one lock.
#[derive(Debug, Default)]
struct Waiters {
    waiting: usize,
    /// The lock was handed to a waiting request, which has not taken it yet.
    is_handed_over: bool,
    released: Option<Arc<Condvar>>,
}

impl NameLocks {
    /// Locks these inodes, each once, until the returned value is dropped. Blocks while another request changes
    /// names of one of them, as the kernel would.
    pub(super) fn hold(&self, inodes: impl IntoIterator<Item = FileKey>) -> HeldNames<'_> {
        let mut wanted: Vec<_> = inodes.into_iter().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut held = HeldNames { locks: self, inodes: Vec::with_capacity(wanted.len()) };
        for inode in wanted {
            self.take(inode);
            held.inodes.push(inode);
        }
        held
    }

    /// [`NameLocks::hold`] of two inodes; `None` where that would wait.
    pub(super) fn try_hold(&self, inodes: [FileKey; 2]) -> Option<HeldNames<'_>> {
        let mut held = self.lock();
        if inodes.iter().any(|inode| held.contains_key(inode)) {
            return None;
        }
        held.extend(inodes.map(|inode| (inode, Waiters::default())));
        Some(HeldNames { locks: self, inodes: inodes.into() })
    }

    fn take(&self, inode: FileKey) {
        let mut held = self.lock();
        let waiters = match held.entry(inode) {
            Entry::Vacant(free) => {
                free.insert(Waiters::default());
                return;
            }
            Entry::Occupied(taken) => taken.into_mut(),
        };
        waiters.waiting += 1;
        let released = Arc::clone(waiters.released.get_or_insert_default());
        loop {
            held = released.wait(held);
            let waiters = held.get_mut(&inode).expect("the lock stays while a request waits");
            if waiters.is_handed_over {
                waiters.is_handed_over = false;
                waiters.waiting -= 1;
                return;
            }
        }
    }

    // The lock goes to a waiting request, and not to the next that asks: no request waits for ever.
    fn release(&self, inode: FileKey) {
        let mut held = self.lock();
        let Entry::Occupied(mut taken) = held.entry(inode) else { return };
        let waiters = taken.get_mut();
        if waiters.waiting == 0 {
            taken.remove();
            return;
        }
        waiters.is_handed_over = true;
        if let Some(released) = &waiters.released {
            released.notify_one();
        }
    }

    /// Requests that wait for the lock of an inode.
    #[cfg(test)]
    pub(super) fn waiting(&self, inode: FileKey) -> usize {
        self.lock().get(&inode).map_or(0, |waiters| waiters.waiting)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FileKey, Waiters>, order::LockedInodes> {
        self.held.lock()
    }
}

/// Inodes that are locked until this is dropped.
#[derive(Debug)]
#[must_use = "the locks go with it"]
pub(super) struct HeldNames<'a> {
    locks: &'a NameLocks,
    inodes: Vec<FileKey>,
}

impl Drop for HeldNames<'_> {
    fn drop(&mut self) {
        self.inodes.drain(..).rev().for_each(|inode| self.locks.release(inode));
    }
}

#[cfg(test)]
mod tests;
