//! The files in flash of this process: one for each inode, however many regions, opens and shares lead to it.
//!
//! Two caches of one file would not see each other's bytes, so the inode is the name, and everybody who reads or writes the
//! file asks here first. A file is in flash from its first region to the end of its last: then its dirty pages are written
//! back, its pages leave the memory, and it is an ordinary file again. Whoever uses it counts, so that it does not end
//! under an operation.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pmem::Inode;

use crate::device::Device;
use crate::disk::Disk;
use crate::file::FlashFile;
use crate::lane::Lane;
use crate::plain::wait_for_changes;
use crate::pool::{Pool, Share};

/// A use of a file in flash, which keeps it there.
#[derive(Debug)]
pub struct Use {
    file: Arc<FlashFile>,
    users: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Known {
    file: Arc<FlashFile>,
    users: Arc<AtomicUsize>,
    disk: Arc<Disk>,
}

impl Use {
    /// The first use of a file that nobody else knows.
    pub(crate) fn alone(file: &Arc<FlashFile>) -> Self {
        Self::new(file, &Arc::default())
    }

    fn new(file: &Arc<FlashFile>, users: &Arc<AtomicUsize>) -> Self {
        users.fetch_add(1, Ordering::AcqRel);
        Self { file: Arc::clone(file), users: Arc::clone(users) }
    }

    /// The file.
    pub fn file(&self) -> &Arc<FlashFile> {
        &self.file
    }
}

impl Deref for Use {
    type Target = FlashFile;

    fn deref(&self) -> &FlashFile {
        &self.file
    }
}

impl Drop for Use {
    /// The end of a file is the writer's work: this may be an engine's thread.
    fn drop(&mut self) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.file.lane.writer.ring();
        }
    }
}

/// The file behind a descriptor, if it is in flash at present.
#[inline]
pub fn find(file: impl std::os::fd::AsFd) -> Option<Use> {
    // Without any file in flash, which is nearly always so, this costs one load.
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let stat = rustix::fs::fstat(file).ok()?;
    let known = files();
    let known = known.as_ref()?.get(&(stat.st_dev, stat.st_ino))?;
    Some(Use::new(&known.file, &known.users))
}

/// The file behind a descriptor, which is in flash from here on.
pub(crate) fn use_of(file: &File, share: &Share) -> io::Result<Use> {
    let stat = rustix::fs::fstat(file)?;
    let key = (stat.st_dev, stat.st_ino);
    let known = {
        let files = files();
        let known = files.as_ref().and_then(|files| files.get(&key));
        known.map(|known| (Use::new(&known.file, &known.users), Arc::clone(&known.disk)))
    };
    if let Some((used, disk)) = known {
        disk.permit_writing(file)?;
        return Ok(used);
    }
    // Not under the lock: a device that hangs keeps nobody from another file.
    let disk = Arc::new(Disk::open(file)?);
    let fresh = FlashFile::new(share.clone(), Box::new(Shared(Arc::clone(&disk))))?;
    // No page comes in before the changes that found the file an ordinary one have ended.
    let gate = fresh.gate.write().unwrap_or_else(PoisonError::into_inner);
    let closed = fresh.close();
    let mut files = files();
    let entry = files.get_or_insert_with(HashMap::new).entry(key);
    let known = entry.or_insert_with(|| {
        COUNT.fetch_add(1, Ordering::AcqRel);
        Known { file: Arc::clone(&fresh), users: Arc::default(), disk }
    });
    let used = Use::new(&known.file, &known.users);
    let disk = Arc::clone(&known.disk);
    drop(files);
    if Arc::ptr_eq(used.file(), &fresh) {
        wait_for_changes(key);
    }
    drop(closed);
    drop(gate);
    if !Arc::ptr_eq(used.file(), &fresh) {
        // Another thread was faster.
        fresh.pool().leave(fresh.number);
        disk.permit_writing(file)?;
    }
    Ok(used)
}

/// Brings files of one lane of a pool that nobody uses to their end. May wait.
pub(crate) fn retire_unused(pool: &Arc<Pool>, lane: &Arc<Lane>) {
    let unused: Vec<(Inode, Arc<FlashFile>)> = {
        let files = files();
        let all = files.iter().flatten();
        let of_pool = all.filter(|(_, known)| {
            Arc::ptr_eq(known.file.pool(), pool) && Arc::ptr_eq(&known.file.lane, lane)
        });
        let unused = of_pool.filter(|(_, known)| known.users.load(Ordering::Acquire) == 0);
        unused.map(|(key, known)| (*key, Arc::clone(&known.file))).collect()
    };
    for (key, file) in unused {
        retire(key, &file);
    }
}

fn retire(key: Inode, file: &Arc<FlashFile>) {
    let written = file.write_back(0..u64::MAX);
    // Somebody uses it again; or somebody has, and has gone.
    if !take_out(key, file, written.is_ok()) {
        file.lane.writer.ring();
        return;
    }
    while file.evict_all() > 0 {
        std::thread::yield_now();
    }
    file.pool().leave(file.number);
}

// Whether nobody uses the file and nothing of it is dirty: it is not in the registry any more then. `is_written`: a look
// before this one has met no lost page.
fn take_out(key: Inode, file: &Arc<FlashFile>, is_written: bool) -> bool {
    let mut files = files();
    let Some(all) = files.as_mut() else { return true };
    let is_unused = all.get(&key).is_some_and(|known| {
        Arc::ptr_eq(&known.file, file) && known.users.load(Ordering::Acquire) == 0
    });
    if !is_unused || file.dirt.count(&file.pool().table) > 0 {
        return false;
    }
    // Whether or not that look has met it: somebody may have come, lost pages, and gone, since.
    if !is_written || file.dirt.lost_count() > 0 {
        // The pages that were lost are forgotten with the file: from here on nobody could be told which they were. Before
        // that, so that no flush in between finds a file without pages, and nothing amiss.
        file.device.poison();
    }
    all.remove(&key);
    COUNT.fetch_sub(1, Ordering::AcqRel);
    true
}

fn files() -> MutexGuard<'static, Option<HashMap<Inode, Known>>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lock order: behind the gate of a file that nobody else knows yet; no other lock is taken under it.
static FILES: Mutex<Option<HashMap<Inode, Known>>> = Mutex::new(None);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A disk that the registry reaches too.
#[derive(Debug)]
struct Shared(Arc<Disk>);

impl Device for Shared {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(offset, out)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(offset, bytes)
    }

    fn transfer(&self, batch: &mut [crate::device::Transfer]) {
        self.0.transfer(batch);
    }

    fn persist(&self) -> Result<(), pmem::MediumError> {
        self.0.persist()
    }

    fn is_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }

    fn poison(&self) {
        self.0.poison();
    }

    fn direct(&self) -> Option<&Arc<File>> {
        self.0.direct()
    }

    fn extent_at(&self, offset: u64) -> Option<crate::device::Extent> {
        self.0.extent_at(offset)
    }

    fn backing(&self) -> Option<pmem::Backing> {
        self.0.backing()
    }

    fn how(&self) -> crate::device::How {
        self.0.how()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map_file;

    #[test]
    fn pages_lost_after_the_last_look_end_every_later_flush_of_their_file() {
        let below = tempfile::tempfile_in("/var/tmp").unwrap();
        below.set_len(8192).unwrap();
        let pool = Pool::new(1 << 20).unwrap();
        let medium = map_file(&below, 8192, &pool.share(1 << 20).unwrap()).unwrap();
        let used = find(&below).unwrap();
        medium.place(4096, b"lost").unwrap();
        // A program of the machine cuts the page off.
        below.set_len(4096).unwrap();
        medium.persist(4096, 4).unwrap_err();
        drop(medium);
        let stat = rustix::fs::fstat(&below).unwrap();
        let (key, file) = ((stat.st_dev, stat.st_ino), Arc::clone(used.file()));
        let disk = Arc::clone(&files().as_ref().unwrap()[&key].disk);
        assert!(!take_out(key, &file, true), "it is in use");
        assert!(!disk.is_poisoned());
        // As a use that ends between the look of the writer and its lock.
        used.users.store(0, Ordering::Release);
        assert!(take_out(key, &file, true));
        assert!(disk.is_poisoned());
        std::mem::forget(used);
    }
}
