//! Pages that an engine brings itself: it begins the reads, and takes the pages in when they have come.
//!
//! ```text
//!   engine:  miss -> claim frames -> queue the read ...... one io_uring_enter for all of a round
//!            ... ring readable -> copy to the frames -> arrive -> the operations that waited
//! ```
//!
//! Nothing here waits: where another thread has the cache, where it is not known whether the page is in a hole, where no frame
//! is free, and where a page is lost or comes by another thread, the miss is left to a worker, which takes the way of `bring`.
//! A worker also repeats a read that failed, and so tells the error to exactly those who asked.

use std::any::Any;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use pmem::Fetcher;

use crate::device::Transfer;
use crate::disk::rings;
use crate::file::FlashFile;
use crate::pieces::{PAGE, wide};
use crate::pool::{Claim, FRAME};
use crate::ring::Flight;
use crate::stats::count;

/// The reads of one engine.
#[derive(Debug)]
pub(crate) struct Flights {
    /// `None` only while it is dropped.
    inner: Option<Inner>,
}

#[derive(Debug)]
struct Inner {
    flight: Flight,
    /// By place of the flight; kept for the next read in the place.
    reads: Vec<Read>,
    /// Memory for reads of one page, which most are: as many as were ever under way at once.
    pages: Vec<Transfer>,
}

/// A run of pages on its way.
#[derive(Debug, Default)]
struct Read {
    file: Option<Arc<FlashFile>>,
    first: u64,
    frames: Vec<u32>,
    waiters: Vec<u64>,
}

impl Flights {
    /// `None` where io_uring is refused.
    pub(crate) fn open() -> Option<Self> {
        rings()?;
        let inner = Inner { flight: Flight::new().ok()?, reads: Vec::new(), pages: Vec::new() };
        Some(Self { inner: Some(inner) })
    }
}

impl FlashFile {
    /// Begins to read the first pages of the range that are not here. `false`: it is for a worker to bring them.
    pub(crate) fn fetch(
        self: &Arc<Self>,
        flights: &mut Flights,
        pages: Range<u64>,
        tag: Option<u64>,
    ) -> bool {
        let Some(inner) = &mut flights.inner else { return false };
        let Ok(_gate) = self.gate.try_read() else { return false };
        let is_missing =
            |page: &u64| !self.pool().table.has(self.key(*page)) && !self.holes.try_contains(*page);
        let Some(first) = pages.clone().find(is_missing) else { return false };
        if inner.join(self, first, tag) {
            count(&self.misses, 1);
            return true;
        }
        let Some(file) = self.device.direct() else { return false };
        let Some(end) = self.holes.try_data_end_of(first) else { return false };
        if inner.flight.is_full() || self.dirt.lost_count() > 0 {
            return false;
        }
        let place = inner.flight.next_place();
        if inner.reads.len() <= place {
            inner.reads.resize_with(place + 1, Read::default);
        }
        let read = &mut inner.reads[place];
        let run = first..pages.end.min(end).min(first + RUN_MAX);
        if !self.claim_here(run, &mut read.frames) {
            return false;
        }
        // Asked again: a page that was dirty may have been lost and evicted since, and is claimed like any other.
        if self.dirt.lost_count() > 0 {
            self.pool().give_back(self.share.tenant(), &read.frames);
            self.pool().notify_changed();
            read.frames.clear();
            return false;
        }
        let transfer = match read.frames.len() {
            1 => inner.pages.pop().or_else(|| Transfer::of(PAGE).ok()),
            _ => self.pool().take_transfer(),
        };
        let Some(mut transfer) = transfer else {
            self.pool().give_back(self.share.tenant(), &read.frames);
            self.pool().notify_changed();
            read.frames.clear();
            return false;
        };
        read.file = Some(Arc::clone(self));
        read.first = first;
        read.waiters.extend(tag);
        transfer.set(first * FRAME, read.frames.len() * PAGE, false);
        inner.flight.begin(file, transfer);
        count(&self.misses, 1);
        count(&self.engine_fetches, 1);
        true
    }

    /// Claims frames for the first of the pages and those behind it; `false`: not for the first.
    fn claim_here(&self, pages: Range<u64>, frames: &mut Vec<u32>) -> bool {
        let Some(mut cache) = self.pool().try_cache() else { return false };
        for page in pages {
            let claim = self.pool().claim(&mut cache, self.share.tenant(), self.key(page));
            let Claim::Mine(frame) = claim else { break };
            frames.push(frame);
        }
        !frames.is_empty()
    }

    /// Takes in what a read brought; `false`: it failed.
    fn take_in(&self, read: &Read, transfer: &mut Transfer) -> bool {
        let got = transfer.result.as_ref().map_or(0, |got| *got);
        let expected = self.expected_len.load(Ordering::Acquire);
        let expected = expected.saturating_sub(read.first * FRAME).min(wide(transfer.len));
        let table = &self.pool().table;
        let has_come = transfer.result.is_ok() && wide(got) >= expected;
        if !has_come {
            self.pool().give_back(self.share.tenant(), &read.frames);
        } else {
            let bytes = transfer.bytes();
            bytes[got..].fill(0);
            for (frame, page) in read.frames.iter().zip(bytes.chunks(PAGE)) {
                table.frames().store(*frame, 0, page);
                table.header(*frame).arrive();
            }
            count(&self.pool().counters.fetched, wide(read.frames.len()));
        }
        self.pool().notify_changed();
        has_come
    }
}

impl Inner {
    /// Adds a waiter to a read that brings the page already.
    fn join(&mut self, file: &Arc<FlashFile>, page: u64, tag: Option<u64>) -> bool {
        if self.flight.under_way() == 0 {
            return false;
        }
        let brings = |read: &&mut Read| {
            let pages = read.first..read.first + wide(read.frames.len());
            pages.contains(&page) && read.file.as_ref().is_some_and(|of| Arc::ptr_eq(of, file))
        };
        let Some(read) = self.reads.iter_mut().find(brings) else { return false };
        if read.waiters.len() >= WAITERS_MAX {
            return false;
        }
        read.waiters.extend(tag);
        true
    }

    fn collect(&mut self, each: &mut dyn FnMut(u64, bool)) {
        while let Some((place, mut transfer)) = self.flight.next_ended() {
            let Some(read) = self.reads.get_mut(place) else { continue };
            let Some(file) = read.file.take() else { continue };
            let has_come = file.take_in(read, &mut transfer);
            match transfer.room() {
                PAGE => self.pages.push(transfer),
                _ => file.pool().return_transfer(transfer),
            }
            read.frames.clear();
            read.waiters.drain(..).for_each(|tag| each(tag, has_come));
        }
    }
}

impl Fetcher for Flights {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn submit(&mut self) -> bool {
        self.inner.as_mut().is_none_or(|inner| inner.flight.submit())
    }

    fn has_ended(&mut self) -> bool {
        self.inner.as_mut().is_some_and(|inner| inner.flight.has_ended())
    }

    fn collect(&mut self, each: &mut dyn FnMut(u64, bool)) {
        if let Some(inner) = &mut self.inner {
            inner.collect(each);
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.inner.as_ref().expect("only a drop takes it").flight.descriptor()
    }
}

impl Drop for Flights {
    /// Others wait for the pages that are on their way, and the kernel writes to memory of ours. This may be a thread that
    /// may not wait, so another one sees the reads to their end.
    fn drop(&mut self) {
        let Some(mut inner) = self.inner.take() else { return };
        let finish = move || {
            while inner.flight.under_way() > 0 {
                inner.flight.wait();
                inner.collect(&mut |_, _| {});
            }
        };
        let _ = thread::Builder::new().name("flash-finish".to_owned()).spawn(finish);
    }
}

/// Pages of one read: a transfer.
const RUN_MAX: u64 = (Transfer::LEN_MAX / PAGE) as u64;
/// Operations that wait for one read. Further ones are left to workers, where each connection has one.
const WAITERS_MAX: usize = 1024;
