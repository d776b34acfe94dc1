//! The memory for pages of files in flash: a budget that all files of a server share, and shares of it.
//!
//! ```text
//!   engine threads:   table (no lock) ------------ hit: copy         miss: WouldBlock
//!   workers:          cache (lock) --- claim a frame, evicting another page if none is free
//!                        |                  no frame: all are dirty or in use
//!   writers (threads) <--+--- rung when many pages are dirty, when a file retires, and each second: one for each device
//!   readers (threads) <------ asked for read-ahead: one for each device (`lane.rs`)
//! ```
//!
//! Everything that grows with use is sized with the budget at the start: frames, their headers, the table, the queues of
//! the policy. What a file costs beside that does not depend on its length.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use pmem::{Frames, MapError};

use crate::device::Transfer;
use crate::header::{FETCHING, IN_MAIN, Key, LOST, RESIDENT};
use crate::lane::Lane;
use crate::policy::Policy;
use crate::queue::Links;
use crate::stats::{Counters, PoolStats};
use crate::table::Table;
use crate::tier::Tier;

/// See the module.
#[derive(Debug)]
pub struct Pool {
    pub(crate) table: Table,
    cache: Mutex<Cache>,
    /// A page has arrived, or a frame can be had.
    changed: Condvar,
    /// Threads that wait for it, or are about to.
    waiting: AtomicU32,
    /// Pages with bytes that are not in their files, those being written included.
    pub(crate) dirty: AtomicI64,
    pub(crate) lanes: Mutex<Vec<Weak<Lane>>>,
    transfers: Mutex<Vec<Transfer>>,
    files: Mutex<HashMap<u32, Weak<dyn Background>>>,
    next_file: AtomicU32,
    budget: u64,
    pub(crate) counters: Counters,
}

/// What the threads of a pool do with a file.
pub(crate) trait Background: Send + Sync + std::fmt::Debug {
    /// Writes back what is dirty, if the file is of this lane. Whoever asks for these bytes to be durable learns of a failure: the
    /// file remembers it.
    fn write_back_old(&self, lane: &Lane);

    /// Brings the pages of a stream that follow `first`.
    fn read_ahead(&self, first: u64);
}

/// The frames, and who has them.
#[derive(Debug)]
pub(crate) struct Cache {
    free: Vec<u32>,
    links: Links,
    tenants: Vec<Tenant>,
    groups: Vec<Group>,
}

/// Pages that leave for each other: those of a share, or, where the regions of a share have a budget, those of one file.
#[derive(Debug)]
struct Tenant {
    policy: Policy,
    used: u32,
    frames_max: u32,
    group: usize,
    owners: Weak<()>,
}

/// The tenants of one share.
#[derive(Debug)]
struct Group {
    used: u32,
    frames_max: u32,
    owners: Weak<()>,
}

/// A share of a pool: the files of one export, say. Its pages take no more than its part of the budget.
#[derive(Clone, Debug)]
pub struct Share {
    pool: Arc<Pool>,
    tenant: usize,
    group: usize,
    frames_max: u32,
    /// The most frames of one file, if each has a tenant of its own.
    file_frames_max: Option<u32>,
    tier: Option<Arc<Tier>>,
    /// The places in the pool are given to others once no clone of this is left, and none of their pages.
    _owners: (Arc<()>, Arc<()>),
}

/// What a caller may do with a page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Claim {
    /// It is here, and can be pinned.
    Here,
    /// Another thread brings it.
    Coming,
    /// The caller brings it, into this frame.
    Mine(u32),
    /// A write-back of the page has failed.
    Lost,
    /// There is no frame for it at present.
    Full,
}

impl Pool {
    /// A pool that takes at most `budget` bytes.
    ///
    /// # Errors
    ///
    /// The budget is too small or too large, or the process can have no more memory.
    pub fn new(budget: u64) -> Result<Arc<Self>, PoolError> {
        let frames = budget / (FRAME + FRAME_COST);
        let count = u32::try_from(frames).ok().filter(|count| *count < u32::MAX - 1);
        let count = count.ok_or(PoolError::ConfigTooLarge { budget })?;
        if budget < BUDGET_MIN {
            return Err(PoolError::ConfigTooSmall { budget });
        }
        Ok(Arc::new(Self {
            table: Table::new(count)?,
            cache: Mutex::new(Cache {
                free: (0..count).rev().collect(),
                links: Links::new(count),
                tenants: Vec::new(),
                groups: Vec::new(),
            }),
            changed: Condvar::new(),
            waiting: AtomicU32::new(0),
            dirty: AtomicI64::new(0),
            lanes: Mutex::default(),
            transfers: Mutex::default(),
            files: Mutex::default(),
            next_file: AtomicU32::new(0),
            budget,
            counters: Counters::default(),
        }))
    }

    /// A share of the pool, of at most `budget` bytes; more than the pool has is the whole pool.
    ///
    /// # Errors
    ///
    /// The budget is too small.
    pub fn share(self: &Arc<Self>, budget: u64) -> Result<Share, PoolError> {
        if budget < BUDGET_MIN {
            return Err(PoolError::ConfigTooSmall { budget });
        }
        let frames_max = frames_of(budget).min(self.table.count());
        let owner = Arc::new(());
        let fresh = Group { used: 0, frames_max, owners: Arc::downgrade(&owner) };
        let mut cache = self.cache();
        let group =
            cache.groups.iter().position(|it| it.used == 0 && it.owners.strong_count() == 0);
        let group = put(&mut cache.groups, group, fresh);
        let (tenant, own) = cache.enter(group, frames_max);
        drop(cache);
        let _owners = (own, owner);
        let pool = Arc::clone(self);
        Ok(Share { pool, tenant, group, frames_max, file_frames_max: None, tier: None, _owners })
    }

    /// The budget in bytes.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// What the pool does, for the operator.
    pub fn stats(&self) -> PoolStats {
        let resident = {
            let cache = self.cache();
            u64::from(self.table.count()) - u64::try_from(cache.free.len()).unwrap_or(0)
        };
        let (resident, dirty) = (resident * FRAME, self.dirty() * FRAME);
        self.counters.stats(self.budget, resident, dirty)
    }

    pub(crate) fn cache(&self) -> MutexGuard<'_, Cache> {
        // No code under this lock can panic half way.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cache, if nobody has it at this moment or in the next.
    pub(crate) fn try_cache(&self) -> Option<MutexGuard<'_, Cache>> {
        for _ in 0..CACHE_LOOKS {
            match self.cache.try_lock() {
                Ok(cache) => return Some(cache),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }

    /// Waits until a page has arrived, a frame can be had, or some time has passed; not at all if that is so already, as
    /// `is_over` tells.
    pub(crate) fn wait_changed<'c>(
        &self,
        cache: MutexGuard<'c, Cache>,
        is_over: impl FnOnce() -> bool,
    ) -> MutexGuard<'c, Cache> {
        // Before the look: who changes something after it sees that somebody waits.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let cache = if is_over() {
            cache
        } else {
            let waited = self.changed.wait_timeout(cache, LOOK_AGAIN);
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        cache
    }

    /// Wakes those who wait, if somebody does. The caller does not hold the lock.
    pub(crate) fn notify_changed(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        // The lock orders this call behind the look of a waiter that is about to wait.
        drop(self.cache());
        self.changed.notify_all();
    }

    /// Whether a page is on its way. The caller has the lock of the cache.
    pub(crate) fn is_coming(&self, key: Key) -> bool {
        let frame = self.table.locate(key);
        frame.is_some_and(|frame| self.table.header(frame).flags() & FETCHING != 0)
    }

    /// What the caller may do with a page. The caller that gets a frame brings the page, or gives the frame back.
    pub(crate) fn claim(&self, cache: &mut Cache, tenant: usize, key: Key) -> Claim {
        if let Some(frame) = self.table.locate(key) {
            let flags = self.table.header(frame).flags();
            return match flags {
                _ if flags & LOST != 0 => Claim::Lost,
                _ if flags & RESIDENT != 0 => Claim::Here,
                _ => Claim::Coming,
            };
        }
        let Some(frame) = self.take_frame(cache, tenant) else { return Claim::Full };
        self.table.header(frame).set(FETCHING);
        self.table.link(frame, key);
        let Cache { tenants, groups, links, .. } = cache;
        if let Some(tenant) = tenants.get_mut(tenant) {
            tenant.used += 1;
            tenant.policy.entered((&self.table, links), frame, key);
            groups[tenant.group].used += 1;
        }
        Claim::Mine(frame)
    }

    fn take_frame(&self, cache: &mut Cache, tenant: usize) -> Option<u32> {
        let own = cache.tenants.get(tenant)?;
        let group = cache.groups.get(own.group)?;
        let (own_is_full, group_is_full) =
            (own.used >= own.frames_max, group.used >= group.frames_max);
        if !own_is_full
            && !group_is_full
            && let Some(frame) = cache.free.pop()
        {
            return Some(frame);
        }
        if own_is_full {
            return self.evict_of(cache, tenant);
        }
        let among = group_is_full.then_some(own.group);
        // The pages of the fullest may all be dirty, for a device that hangs.
        let mut tried = [usize::MAX; VICTIMS_MAX];
        for place in 0..VICTIMS_MAX {
            let from = cache.fullest(among, &tried)?;
            if let Some(frame) = self.evict_of(cache, from) {
                return Some(frame);
            }
            tried[place] = from;
        }
        None
    }

    fn evict_of(&self, cache: &mut Cache, tenant: usize) -> Option<u32> {
        let Cache { tenants, groups, links, .. } = cache;
        let victim = tenants.get_mut(tenant)?;
        let frame = victim.policy.evict((&self.table, links))?;
        victim.used -= 1;
        groups[victim.group].used -= 1;
        self.table.unlink(frame);
        self.counters.evictions.fetch_add(1, Ordering::Relaxed);
        Some(frame)
    }

    /// Gives frames back whose pages did not come.
    pub(crate) fn give_back(&self, tenant: usize, frames: &[u32]) {
        let mut guard = self.cache();
        let cache = &mut *guard;
        for frame in frames {
            self.table.unlink(*frame);
            let flags = self.table.header(*frame).clear(FETCHING | IN_MAIN);
            cache.leaves(tenant, *frame, flags);
        }
        cache.free.extend(frames);
    }

    /// Takes pages of a file out of use at which nobody is; returns how many of them stay. The lock is held for some
    /// frames at a time: whoever misses meanwhile does not wait for the whole budget to be looked through.
    pub(crate) fn evict_file(&self, (tenant, file): (usize, u32), pages: Range<u64>) -> usize {
        let mut stay = 0;
        if pages.end.saturating_sub(pages.start) <= u64::from(EVICTED_AT_ONCE) {
            let mut cache = self.cache();
            for page in pages {
                let frame = self.table.locate(Key { file, page });
                stay +=
                    usize::from(frame.is_some_and(|frame| !self.free(&mut cache, tenant, frame)));
            }
            return stay;
        }
        let mut next = 0;
        while next < self.table.count() {
            let end = next.saturating_add(EVICTED_AT_ONCE).min(self.table.count());
            let mut cache = self.cache();
            for frame in next..end {
                let key = self.table.header(frame).key();
                let leaves = key.file == file && pages.contains(&key.page);
                stay += usize::from(leaves && !self.free(&mut cache, tenant, frame));
            }
            next = end;
        }
        stay
    }

    /// Frees a frame at which nobody is.
    fn free(&self, cache: &mut Cache, tenant: usize, frame: u32) -> bool {
        let Some(flags) = self.table.header(frame).try_take() else { return false };
        self.table.unlink(frame);
        cache.leaves(tenant, frame, flags);
        cache.free.push(frame);
        true
    }

    /// Pages with bytes that are not in their files.
    pub(crate) fn dirty(&self) -> u64 {
        // A write-back may count a page that its placement is about to count.
        u64::try_from(self.dirty.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Memory for transfers, at least one if there is memory at all.
    pub(crate) fn take_transfers(&self, count: usize) -> std::io::Result<Vec<Transfer>> {
        let mut free = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        let first = free.len() - count.min(free.len());
        let mut taken = free.split_off(first);
        drop(free);
        while taken.len() < count {
            match Transfer::new() {
                Ok(fresh) => taken.push(fresh),
                Err(error) if taken.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(taken)
    }

    /// Transfers kept, and those of one write-back: beside the budget, so they are a small part of it.
    pub(crate) fn transfers_max(&self) -> usize {
        let part = self.budget / TRANSFERS_PART / Transfer::LEN_MAX as u64;
        usize::try_from(part).unwrap_or(TRANSFERS_MAX).clamp(TRANSFERS_MIN, TRANSFERS_MAX)
    }

    /// Memory for one transfer of a thread that may not wait.
    pub(crate) fn take_transfer(&self) -> Option<Transfer> {
        let kept = self.transfers.try_lock().ok().and_then(|mut free| free.pop());
        kept.or_else(|| Transfer::new().ok())
    }

    pub(crate) fn return_transfer(&self, transfer: Transfer) {
        if let Ok(mut free) = self.transfers.try_lock()
            && free.len() < self.transfers_max()
        {
            free.push(transfer);
        }
    }

    pub(crate) fn return_transfers(&self, transfers: Vec<Transfer>) {
        let mut free = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(transfers);
        free.truncate(self.transfers_max());
    }

    /// Enters a file under a number of its own.
    pub(crate) fn enter<F: Background + 'static>(
        &self,
        make: impl FnOnce(u32) -> Arc<F>,
    ) -> Arc<F> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let number = self.next_file.fetch_add(1, Ordering::Relaxed);
            // A number comes again after 4 billion files, and one of them may still be open.
            if number != crate::header::NONE && !files.contains_key(&number) {
                let file = make(number);
                let known: Arc<dyn Background> = Arc::clone(&file) as _;
                files.insert(number, Arc::downgrade(&known));
                return file;
            }
        }
    }

    /// Forgets a file, of which no page is left.
    pub(crate) fn leave(&self, number: u32) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    pub(crate) fn file(&self, number: u32) -> Option<Arc<dyn Background>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(&number)?.upgrade()
    }

    pub(crate) fn files(&self) -> Vec<Arc<dyn Background>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.values().filter_map(Weak::upgrade).collect()
    }
}

impl Cache {
    /// A tenant of a group, and its owner.
    fn enter(&mut self, group: usize, frames_max: u32) -> (usize, Arc<()>) {
        let owner = Arc::new(());
        let (policy, owners) = (Policy::new(frames_max), Arc::downgrade(&owner));
        let fresh = Tenant { policy, used: 0, frames_max, group, owners };
        let free = self.tenants.iter().position(|it| it.used == 0 && it.owners.strong_count() == 0);
        (put(&mut self.tenants, free, fresh), owner)
    }

    /// A frame leaves the queues of its tenant.
    fn leaves(&mut self, tenant: usize, frame: u32, flags: u64) {
        let Self { tenants, groups, links, .. } = self;
        if let Some(tenant) = tenants.get_mut(tenant) {
            tenant.policy.remove(links, frame, flags);
            tenant.used -= 1;
            groups[tenant.group].used -= 1;
        }
    }

    /// The tenant that uses the greatest part of what it may, of the share that does; of all shares, or of one.
    fn fullest(&self, among: Option<usize>, but: &[usize]) -> Option<usize> {
        let part = |used: u32, max: u32| u64::from(used) * 1024 / u64::from(max.max(1));
        let of_group = |group: usize| {
            self.groups.get(group).map_or(0, |group| part(group.used, group.frames_max))
        };
        let tenants = self.tenants.iter().enumerate();
        let used = tenants.filter(|(index, tenant)| {
            tenant.used > 0
                && among.is_none_or(|group| tenant.group == group)
                && !but.contains(index)
        });
        let key = |tenant: &Tenant| (of_group(tenant.group), part(tenant.used, tenant.frames_max));
        used.max_by_key(|(_, tenant)| key(tenant)).map(|(index, _)| index)
    }
}

/// Puts a value at a place that is free, or at the end.
fn put<T>(all: &mut Vec<T>, free: Option<usize>, fresh: T) -> usize {
    let place = free.unwrap_or(all.len());
    match all.get_mut(place) {
        Some(room) => *room = fresh,
        None => all.push(fresh),
    }
    place
}

fn frames_of(budget: u64) -> u32 {
    u32::try_from(budget / (FRAME + FRAME_COST)).unwrap_or(u32::MAX)
}

impl Share {
    /// The same, with at most `budget` bytes of pages of any one file. The regions of a file share its pages, and so this.
    ///
    /// # Errors
    ///
    /// The budget is too small.
    pub fn with_region_budget(self, budget: u64) -> Result<Self, PoolError> {
        if budget < BUDGET_MIN {
            return Err(PoolError::ConfigTooSmall { budget });
        }
        Ok(Self { file_frames_max: Some(frames_of(budget).min(self.frames_max)), ..self })
    }

    /// The same, with a faster directory between the memory and the files.
    #[must_use]
    pub fn with_tier(self, tier: Arc<Tier>) -> Self {
        Self { tier: Some(tier), ..self }
    }

    /// The place of one file's pages.
    pub(crate) fn of_file(&self) -> Self {
        let Some(frames_max) = self.file_frames_max else { return self.clone() };
        let (tenant, own) = self.pool.cache().enter(self.group, frames_max);
        let _owners = (own, Arc::clone(&self._owners.1));
        Self { tenant, _owners, ..self.clone() }
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The most bytes of pages that the share has in memory.
    pub fn budget(&self) -> u64 {
        u64::from(self.frames_max) * (FRAME + FRAME_COST)
    }

    pub(crate) fn tenant(&self) -> usize {
        self.tenant
    }

    pub(crate) fn tier(&self) -> Option<&Arc<Tier>> {
        self.tier.as_ref()
    }
}

/// Why there is no pool.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PoolError {
    /// Fewer bytes than a pool can work with.
    #[error("a flash budget of {budget} bytes is too small: at least {BUDGET_MIN}")]
    ConfigTooSmall {
        /// What was asked for.
        budget: u64,
    },
    /// More pages than have numbers.
    #[error("a flash budget of {budget} bytes is too large: below 16 TiB")]
    ConfigTooLarge {
        /// What was asked for.
        budget: u64,
    },
    /// The kernel gives no memory.
    #[error("no memory for the flash budget: {0}")]
    MediaMemory(#[from] MapError),
}

/// The smallest budget: with less, one transfer of each of a few connections would fill it.
pub const BUDGET_MIN: u64 = 1 << 20;
pub(crate) const FRAME: u64 = Frames::LEN as u64;
/// Bytes that a frame costs beside its page: header, bucket, ghost, places in the queues. The budget pays for them.
const FRAME_COST: u64 = 64;
/// Frames that are looked at under one hold of the lock: some 10 us.
const EVICTED_AT_ONCE: u32 = 1024;
/// Buffers kept for the next transfers: 2 MiB at most. They are not part of the budget.
const TRANSFERS_MAX: usize = 32;
const TRANSFERS_MIN: usize = 4;
/// Of a budget below 128 MiB they take a 64th.
const TRANSFERS_PART: u64 = 64;
/// Tenants that are asked for a page before a caller is told that none can leave.
const VICTIMS_MAX: usize = 4;
/// Looks at the lock of the cache before an engine leaves a miss to a worker: some microseconds.
const CACHE_LOOKS: u32 = 200;
/// A waiter looks again after this time, whether or not somebody woke it: a bound on what a lost wake-up could cost.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_is_gone_gives_its_place_to_the_next() {
        let pool = Pool::new(BUDGET_MIN).unwrap();
        let (first, second) = (pool.share(BUDGET_MIN).unwrap(), pool.share(BUDGET_MIN).unwrap());
        let place = first.tenant();
        let file = first.clone();
        drop(first);
        assert_ne!(pool.share(BUDGET_MIN).unwrap().tenant(), place, "a file still has it");
        drop(file);
        assert_eq!(pool.share(BUDGET_MIN).unwrap().tenant(), place);
        assert_ne!(second.tenant(), place);
    }

    #[test]
    fn a_budget_that_no_pool_can_work_with_is_refused() {
        let refused = |budget| Pool::new(budget).map(drop).unwrap_err();
        assert!(matches!(refused(BUDGET_MIN - 1), PoolError::ConfigTooSmall { .. }));
        assert!(matches!(refused(u64::MAX), PoolError::ConfigTooLarge { .. }));
    }
}
