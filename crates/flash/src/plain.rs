//! Who changes a file through the kernel at present, and who decides how it is mapped: a file becomes one in flash only when
//! no such change is under way any more, and is mapped in one way at a time.
//!
//! ```text
//!   change:  count one more -> is the file in flash?  no: change it through the kernel -> count one less
//!                                                     yes: count one less, change its pages
//!   map:     the file is in flash, no page comes in -> wait until nobody changes it -> pages may come in
//! ```
//!
//! Whoever counted before the file was in flash is waited for, and whoever counts later finds the file. Each side writes before
//! it looks, under one lock of the file, so one of them sees the other. Reads are not counted: one that began before the mapping
//! may answer what was there when it began.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use pmem::Inode;

use crate::registry::{Use, find};

/// How the bytes of a file are to be changed.
#[derive(Debug)]
pub enum Way {
    /// Through its pages.
    Pages(Use),
    /// Through the kernel, as long as this is held.
    Kernel(Changing),
}

/// Somebody changes a file through the kernel; it does not become a file in flash meanwhile.
#[derive(Debug)]
#[must_use = "the change is over when this is dropped"]
pub struct Changing(Inode);

/// How `file`, which is `inode`, is changed at present.
pub fn to_change(file: impl AsFd, inode: Inode) -> Way {
    let changing = Changing::new(inode);
    match find(file) {
        Some(pages) => Way::Pages(pages),
        None => Way::Kernel(changing),
    }
}

impl Changing {
    fn new(inode: Inode) -> Self {
        let shard = Shard::of(inode);
        shard.lock().entry(inode).or_default().changes += 1;
        Self(inode)
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        let shard = Shard::of(self.0);
        shard.give_back(self.0, |held| held.changes -= 1);
    }
}

/// Waits for the changes through the kernel that are under way. The caller has put the file in flash.
pub(crate) fn wait_for_changes(inode: Inode) {
    drop(Shard::of(inode).wait_while(inode, |held| held.changes > 0));
}

/// One caller at a time decides how a file is mapped, until it has mapped it.
#[derive(Debug)]
#[must_use = "another caller decides when this is dropped"]
pub struct Deciding(Inode);

impl Deciding {
    /// Waits while another caller decides. May wait for as long as a mapping takes.
    pub fn of(inode: Inode) -> Self {
        let shard = Shard::of(inode);
        let mut files = shard.wait_while(inode, |held| held.is_deciding);
        files.entry(inode).or_default().is_deciding = true;
        drop(files);
        Self(inode)
    }
}

impl Drop for Deciding {
    fn drop(&mut self) {
        let shard = Shard::of(self.0);
        shard.give_back(self.0, |held| held.is_deciding = false);
    }
}

/// What is under way with a file; no entry for a file with which nothing is.
#[derive(Debug, Default)]
struct Held {
    changes: u32,
    is_deciding: bool,
}

/// Files whose numbers are alike, with a lock of their own: it is held for some look-ups, and never while a file is read,
/// written or mapped. Lock order: held alone.
struct Shard {
    files: Mutex<BTreeMap<Inode, Held>>,
    ended: Condvar,
}

impl Shard {
    const fn new() -> Self {
        Self { files: Mutex::new(BTreeMap::new()), ended: Condvar::new() }
    }

    fn of((_, file): Inode) -> &'static Self {
        let place = usize::try_from(file % SHARDS.len() as u64).expect("a few");
        &SHARDS[place]
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Inode, Held>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(
        &self,
        inode: Inode,
        is_held: impl Fn(&Held) -> bool,
    ) -> MutexGuard<'_, BTreeMap<Inode, Held>> {
        let waited =
            self.ended.wait_while(self.lock(), |files| files.get(&inode).is_some_and(&is_held));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, inode: Inode, change: impl FnOnce(&mut Held)) {
        let mut files = self.lock();
        let Some(held) = files.get_mut(&inode) else { return };
        change(held);
        if held.changes == 0 && !held.is_deciding {
            files.remove(&inode);
        }
        drop(files);
        self.ended.notify_all();
    }
}

static SHARDS: [Shard; 64] = [const { Shard::new() }; 64];

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt as _;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::{Pool, map_file};

    fn file() -> (File, Inode) {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.set_len(1 << 20).unwrap();
        let stat = file.metadata().unwrap();
        (file, (stat.dev(), stat.ino()))
    }

    #[test]
    fn a_file_is_not_read_into_pages_before_a_change_under_way_has_ended() {
        let (file, inode) = file();
        let Way::Kernel(changing) = to_change(&file, inode) else {
            panic!("it is no file in flash")
        };
        let pool = Pool::new(1 << 20).unwrap();
        let share = pool.share(1 << 20).unwrap();
        let mapped = {
            let file = file.try_clone().unwrap();
            thread::spawn(move || map_file(&file, 1 << 20, &share).unwrap())
        };
        // The file is in flash from the moment at which it is found, and its mapping still waits.
        let pages = loop {
            if let Some(pages) = find(&file) {
                break pages;
            }
            thread::yield_now();
        };
        assert!(matches!(to_change(&file, inode), Way::Pages(_)));
        assert!(
            pages.try_read_at(0, &mut [0; 5]).is_err(),
            "no page is here, and no hole is known"
        );
        let has_read = Arc::new(AtomicBool::new(false));
        let reader = {
            let has_read = Arc::clone(&has_read);
            thread::spawn(move || {
                let mut out = [0; 5];
                pages.read_at(0, &mut out).unwrap();
                has_read.store(true, Ordering::Release);
                out
            })
        };
        (0..1000).for_each(|_| thread::yield_now());
        assert!(!mapped.is_finished() && !has_read.load(Ordering::Acquire));
        std::os::unix::fs::FileExt::write_all_at(&file, b"later", 0).unwrap();
        drop(changing);
        assert_eq!(&reader.join().unwrap(), b"later");
        let medium = mapped.join().unwrap();
        // A placement into a part of the page keeps the rest of the change.
        medium.place(0, b"g").unwrap();
        medium.persist(0, 1).unwrap();
        let mut below = [0; 5];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut below, 0).unwrap();
        assert_eq!(&below, b"gater");
    }

    #[test]
    fn one_caller_at_a_time_decides_how_a_file_is_mapped() {
        let (_file, inode) = file();
        let first = Deciding::of(inode);
        let second = thread::spawn(move || drop(Deciding::of(inode)));
        let _other_file = Deciding::of((inode.0, inode.1 + 64));
        (0..1000).for_each(|_| thread::yield_now());
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap();
        assert!(Shard::of(inode).lock().get(&inode).is_none(), "nothing is left of it");
    }
}
