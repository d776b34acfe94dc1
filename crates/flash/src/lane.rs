//! A device below the files of a pool: the thread that writes back to it, the thread that reads ahead from it, and how many
//! pages with bytes for it may be in memory.
//!
//! Each device has its own, so that one that hangs or is slow holds up its own files and no others:
//!
//! ```text
//!   pages of the pool:  [ three quarters may be dirty                                  | a quarter is clean ]
//!                       [ dirty, device A ][ dirty, device B ][ free to become dirty   ]
//!                                                              a device may have twice this: alone, half of all pages
//! ```
//!
//! The limit of a device falls as others use what is free, and is never below a page. Rejected: an equal part for each device,
//! which a device that comes later cannot have if an earlier one hangs with more than its part.

use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::ahead::Ahead;
use crate::bell::Bell;
use crate::pool::Pool;
use crate::registry;

/// See the module.
#[derive(Debug)]
pub(crate) struct Lane {
    /// As `st_dev` names it; files of which nobody says where they are share a lane.
    device: Option<u64>,
    /// Pages with bytes that are not in files of the device, those being written included.
    dirty: AtomicI64,
    pub(crate) writer: Bell,
    pub(crate) ahead: Ahead,
}

impl Lane {
    /// Pages with bytes that are not in files of the device.
    pub(crate) fn dirty(&self) -> u64 {
        // A write-back may count a page that its placement is about to count.
        u64::try_from(self.dirty.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.writer.ring();
        self.ahead.bell.ring();
    }
}

impl Pool {
    /// The lane of a device; the first file on it begins its threads, which end with the last.
    ///
    /// # Errors
    ///
    /// The process can have no more threads.
    pub(crate) fn lane_of(self: &Arc<Self>, device: Option<u64>) -> io::Result<Arc<Lane>> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lanes.iter().filter_map(Weak::upgrade).find(|lane| lane.device == device);
        if let Some(lane) = known {
            return Ok(lane);
        }
        let (writer, ahead) = (Bell::new(), Ahead::new());
        let lane = Arc::new(Lane { device, dirty: AtomicI64::new(0), writer, ahead });
        self.start(&lane, "flash-writer", |lane| &lane.writer, write)?;
        self.start(&lane, "flash-reader", |lane| &lane.ahead.bell, read_ahead)?;
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(Arc::downgrade(&lane));
        Ok(lane)
    }

    fn start(
        self: &Arc<Self>,
        lane: &Arc<Lane>,
        name: &str,
        bell: fn(&Lane) -> &Bell,
        run: fn(&Weak<Self>, &Weak<Lane>),
    ) -> io::Result<()> {
        let (pool, weak) = (Arc::downgrade(self), Arc::downgrade(lane));
        let builder = thread::Builder::new().name(name.to_owned());
        let handle = builder.spawn(move || run(&pool, &weak))?;
        bell(lane).belongs_to(handle.thread());
        Ok(())
    }

    /// One page more is dirty.
    pub(crate) fn count_dirty(&self, lane: &Lane) {
        self.dirty.fetch_add(1, Ordering::AcqRel);
        let before = lane.dirty.fetch_add(1, Ordering::AcqRel);
        // The writer sleeps without a limit while nothing is dirty.
        if before <= 0 || self.is_late(lane) {
            lane.writer.ring();
        }
    }

    pub(crate) fn count_clean(&self, lane: &Lane, pages: u64) {
        let pages = i64::try_from(pages).expect("frames have 32 bits");
        self.dirty.fetch_sub(pages, Ordering::AcqRel);
        lane.dirty.fetch_sub(pages, Ordering::AcqRel);
    }

    /// Pages with bytes for one device that may be in memory at present.
    fn dirty_max(&self) -> u64 {
        let may_be_dirty = u64::from(self.table.count()) / 4 * 3;
        (may_be_dirty.saturating_sub(self.dirty()) * 2).max(1)
    }

    /// Whether the writer does not wait for the pages to grow old: an eighth of the budget is dirty, or a quarter of what the
    /// device may have.
    fn is_late(&self, lane: &Lane) -> bool {
        lane.dirty() > (u64::from(self.table.count()) / 8).min(self.dirty_max() / 4)
    }

    /// From here on a placement waits for the writer of its device.
    pub(crate) fn is_too_dirty(&self, lane: &Lane) -> bool {
        lane.dirty() >= self.dirty_max()
    }

    /// Waits while too much is dirty: whoever writes faster than the device does is slowed down to it.
    pub(crate) fn wait_for_writer(&self, lane: &Lane) {
        if !self.is_too_dirty(lane) {
            return;
        }
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        let mut cache = self.cache();
        while self.is_too_dirty(lane) {
            lane.writer.ring();
            cache = self.wait_changed(cache, || !self.is_too_dirty(lane));
        }
    }

    /// Every frame is dirty or in use, and somebody waits for one.
    pub(crate) fn ring_every_writer(&self) {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.iter().filter_map(Weak::upgrade).for_each(|lane| lane.writer.ring_urgently());
    }
}

fn read_ahead(pool: &Weak<Pool>, lane: &Weak<Lane>) {
    loop {
        let (Some(pool), Some(lane)) = (pool.upgrade(), lane.upgrade()) else { return };
        let asked: Vec<(u32, u64)> = lane.ahead.take().collect();
        for (file, page) in &asked {
            if let Some(file) = pool.file(*file) {
                file.read_ahead(*page);
            }
        }
        drop((pool, lane));
        if asked.is_empty() {
            thread::park();
        }
    }
}

fn write(pool: &Weak<Pool>, weak: &Weak<Lane>) {
    let mut dirty_since = None;
    loop {
        let (Some(pool), Some(lane)) = (pool.upgrade(), weak.upgrade()) else { return };
        registry::retire_unused(&pool, &lane);
        let is_due = dirty_since.is_some_and(|since: Instant| since.elapsed() >= AGE);
        if lane.writer.take_urgent() || pool.is_late(&lane) || is_due {
            for file in pool.files() {
                file.write_back_old(&lane);
            }
            dirty_since = None;
        }
        let (dirty, is_late) = (lane.dirty(), pool.is_late(&lane));
        // Not held while it sleeps: the last other holder ends this thread.
        drop((pool, lane));
        if is_late {
            continue;
        }
        if dirty == 0 {
            dirty_since = None;
            thread::park();
        } else {
            let since = *dirty_since.get_or_insert_with(Instant::now);
            thread::park_timeout(AGE.saturating_sub(since.elapsed()));
        }
    }
}

/// Bytes that nobody commits reach their file within about this time.
const AGE: Duration = Duration::from_secs(1);
