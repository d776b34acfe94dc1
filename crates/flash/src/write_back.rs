//! How dirty pages reach the file, and how the kernel may change the file below.

use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use pmem::MediumError;

use crate::device::Transfer;
use crate::dirt::Taken;
use crate::file::FlashFile;
use crate::pieces::{PAGE, media_error, media_error_of, pages_of, wide};
use crate::pool::FRAME;
use crate::stats::count;

impl FlashFile {
    /// Writes the dirty bytes of pages to the file.
    ///
    /// After `Ok`, everything placed in them before the call is in the file, not durable.
    ///
    /// # Errors
    ///
    /// A page of the range is lost: its write has failed, now or earlier. Its bytes are given to nobody any more.
    pub(crate) fn write_back(&self, pages: Range<u64>) -> Result<(), MediumError> {
        let table = &self.pool().table;
        let mut plan = self.dirt.plan(table, pages.clone());
        while let Some(taken) = self.dirt.take(table, &mut plan, BATCH_MAX) {
            let failed = self.write(&taken);
            let failures = self.dirt.ended(table, &taken, |page| {
                failed.iter().find(|(pages, _)| pages.contains(&page)).map(|(_, error)| *error)
            });
            let counters = &self.pool().counters;
            count(&counters.written, wide(taken.len() - failures));
            count(&counters.failures, wide(failures));
            if self.dirt.lost_count() > LOST_MAX {
                self.device.poison();
            }
            self.pool().count_clean(&self.lane, wide(taken.len()));
            self.pool().notify_changed();
        }
        match self.dirt.lost(pages) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Writes pages in order; returns those that were not written, and why.
    fn write(&self, taken: &[Taken]) -> Vec<(Range<u64>, MediumError)> {
        let all = || taken.first().zip(taken.last()).map(|(a, b)| a.page..b.page + 1);
        let failed_all = |error| all().map(|pages| (pages, error)).into_iter().collect();
        let len = match self.device.len() {
            Ok(len) => len,
            Err(error) => return failed_all(media_error(error)),
        };
        let mut failed = Vec::new();
        let expected = self.expected_len.load(Ordering::Acquire);
        let mut at = 0;
        while at < taken.len() {
            let mut transfers = match self.pool().take_transfers(self.pool().transfers_max()) {
                Ok(transfers) => transfers,
                Err(error) => {
                    failed.extend(failed_all(media_error(error)));
                    return failed;
                }
            };
            let mut used = 0;
            for transfer in &mut transfers {
                let run = run_of(&taken[at..], len);
                let Some(first) = run.first() else { break };
                at += run.len();
                let pages = first.page..first.page + wide(run.len());
                let bytes = (pages.end * FRAME).min(len).saturating_sub(pages.start * FRAME);
                if bytes == 0 || (pages.end * FRAME).min(expected) > len {
                    failed.push((pages, MediumError::Truncated));
                    // Nothing of it is written: that would make the file longer again.
                    transfer.set(0, 0, true);
                } else {
                    let bytes = usize::try_from(bytes).expect("a transfer is short");
                    self.fill(transfer, run, bytes);
                }
                used += 1;
            }
            let batch = &mut transfers[..used];
            self.device.transfer(batch);
            for transfer in batch.iter().filter(|transfer| transfer.len > 0) {
                let first = transfer.offset / FRAME;
                let pages = first..first + wide(transfer.len.div_ceil(PAGE));
                match &transfer.result {
                    Ok(written) if *written == transfer.len => {}
                    Ok(_) => failed.push((pages, MediumError::MediaIo(libc::EIO))),
                    Err(error) => failed.push((pages, media_error_of(error))),
                }
            }
            self.pool().return_transfers(transfers);
        }
        for (pages, error) in &failed {
            let file = self.device.backing();
            tracing::error!(?file, ?pages, %error, "pages were not written: their bytes are lost");
        }
        failed
    }

    fn fill(&self, transfer: &mut Transfer, run: &[Taken], bytes: usize) {
        let start = run.first().map_or(0, |first| first.page * FRAME);
        transfer.set(start, bytes, true);
        for (taken, room) in run.iter().zip(transfer.bytes().chunks_mut(PAGE)) {
            self.pool().table.frames().load(taken.frame, 0, room);
        }
    }

    /// Makes everything placed in a range before the call durable.
    ///
    /// # Durability
    ///
    /// As [`pmem::Medium::persist`].
    ///
    /// # Errors
    ///
    /// A page of the range is lost, or a flush of the file has failed.
    pub fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.write_back(pages_of(offset, len))?;
        self.device.persist()
    }

    /// Brings what was placed in a range to the file below, so that the kernel can be asked about it; not durable.
    ///
    /// # Errors
    ///
    /// Bytes of the range are lost.
    pub fn write_back_range(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.write_back(pages_of(offset, len))
    }

    /// Lets `change` change the file below: what was placed in the range is in the file before, no page of the range
    /// comes in meanwhile, and later reads find what `change` left.
    ///
    /// # Errors
    ///
    /// Bytes of the range are lost.
    pub fn around<T>(
        &self,
        offset: u64,
        len: u64,
        change: impl FnOnce() -> T,
    ) -> Result<T, MediumError> {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let pages = pages_of(offset, len);
        let _closed = self.close();
        loop {
            self.write_back(pages.clone())?;
            let place = (self.share.tenant(), self.number);
            // An engine may place in a page until the page is gone.
            if self.pool().evict_file(place, pages.clone()) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        let _growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = change();
        self.device.changed_below(offset, len);
        self.holes.forget();
        if let Ok(len) = self.device.len() {
            self.expected_len.store(len, Ordering::Release);
        }
        Ok(outcome)
    }

    /// Takes every page out of memory; returns how many could not be yet.
    pub(crate) fn evict_all(&self) -> usize {
        self.pool().evict_file((self.share.tenant(), self.number), 0..u64::MAX)
    }
}

/// The longest run of pages at the start that one transfer writes. The last page of a file that is no whole number of pages
/// goes alone.
fn run_of(taken: &[Taken], len: u64) -> &[Taken] {
    let Some(first) = taken.first() else { return taken };
    let is_whole = |page: u64| (page + 1) * FRAME <= len;
    let follows = |(index, taken): (usize, &Taken)| {
        taken.page == first.page + wide(index) && is_whole(taken.page)
    };
    let run = taken.iter().take(Transfer::LEN_MAX / PAGE).enumerate();
    let count = run.take_while(|(index, taken)| follows((*index, taken))).count();
    &taken[..count.max(1)]
}

/// Pages that a write-back takes at once.
const BATCH_MAX: usize = 512;
/// Lost pages that a file remembers one by one; with more no flush of the file succeeds any more.
const LOST_MAX: usize = 4096;
