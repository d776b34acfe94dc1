//! How pages come into memory: read from the device, or placed whole.
//!
//! One thread brings a page: it has claimed a frame for it under the lock of the cache, and the others wait for its arrival.
//! A page for which there is no frame is read past the budget, and a placement waits for one.

use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use pmem::MediumError;

use crate::device::Transfer;
use crate::file::FlashFile;
use crate::pieces::{Brought, PAGE, media_error, media_error_of, wide, within};
use crate::pool::{Claim, FRAME};
use crate::stats::count;

impl FlashFile {
    /// Brings a run of pages that are not here, from the page of `offset` on, and copies their bytes out.
    pub(crate) fn bring(&self, offset: u64, out: &mut [u8]) -> Result<Brought, MediumError> {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let first = offset / FRAME;
        let end = (offset + wide(out.len())).div_ceil(FRAME).min(first + RUN_MAX);
        let (is_hole, end) = match self.kind_of(first, end)? {
            Kind::Look => return Ok(Brought::LookAgain),
            Kind::Hole(until) => (true, until.min(end)),
            Kind::Data(until) => (false, until.min(end)),
        };
        let bytes = wide(out.len()).min(end * FRAME - offset);
        let out = &mut out[..usize::try_from(bytes).expect("a part of a buffer")];
        if is_hole {
            out.fill(0);
            count(&self.pool().counters.zeros, end - first);
            return Ok(Brought::Bytes(out.len()));
        }
        let frames = self.claim_run(first..end)?;
        let Some(frames) = frames else { return Ok(Brought::LookAgain) };
        let pages = if frames.is_empty() { 1 } else { wide(frames.len()) };
        let read = self.read_device(first, pages);
        let Ok((transfers, bytes)) = read else {
            self.pool().give_back(self.share.tenant(), &frames);
            self.pool().notify_changed();
            return Err(read.err().unwrap_or(MediumError::MediaIo(libc::EIO)));
        };
        let mut transfers = transfers;
        let came = transfers.first_mut().map_or(&mut [][..], Transfer::bytes);
        let table = &self.pool().table;
        for (frame, page) in frames.iter().zip(came.chunks(PAGE)) {
            table.frames().store(*frame, 0, page);
            table.header(*frame).arrive();
        }
        let skip = within(offset);
        let copied = out.len().min(bytes - skip);
        out[..copied].copy_from_slice(&came[skip..skip + copied]);
        self.pool().return_transfers(transfers);
        let counters = &self.pool().counters;
        if frames.is_empty() {
            count(&counters.bypassed, 1);
        } else {
            count(&counters.fetched, wide(frames.len()));
            self.pool().notify_changed();
        }
        Ok(Brought::Bytes(copied))
    }

    /// Reads pages from the device into a transfer, zeroed behind the end of the file; returns its bytes.
    fn read_device(&self, first: u64, pages: u64) -> Result<(Vec<Transfer>, usize), MediumError> {
        let mut transfers = self.pool().take_transfers(1).map_err(media_error)?;
        let len = usize::try_from(pages * FRAME).expect("a run is short");
        let Some(transfer) = transfers.first_mut() else {
            return Err(MediumError::MediaIo(libc::ENOMEM));
        };
        transfer.set(first * FRAME, len, false);
        transfer.carry_out(&*self.device);
        let got = match &transfer.result {
            Ok(got) => *got,
            Err(error) => return Err(media_error_of(error)),
        };
        // Bytes that the file should have and does not: somebody made it shorter.
        let expected = self.expected_len.load(Ordering::Acquire).saturating_sub(first * FRAME);
        if wide(got) < expected.min(wide(len)) {
            return Err(MediumError::Truncated);
        }
        transfer.bytes()[got..].fill(0);
        Ok((transfers, len))
    }

    /// Claims frames for pages that are not here. `None`: look again. No frame: there is none at present, and the page is
    /// not here.
    fn claim_run(&self, pages: Range<u64>) -> Result<Option<Vec<u32>>, MediumError> {
        let pool = self.pool();
        let mut frames = Vec::new();
        let mut cache = pool.cache();
        for page in pages.clone() {
            match pool.claim(&mut cache, self.share.tenant(), self.key(page)) {
                Claim::Mine(frame) => frames.push(frame),
                Claim::Lost if frames.is_empty() => {
                    drop(cache);
                    return Err(self.lost_error(page));
                }
                Claim::Coming if frames.is_empty() => {
                    let came = || !pool.is_coming(self.key(page));
                    drop(pool.wait_changed(cache, came));
                    return Ok(None);
                }
                Claim::Here if frames.is_empty() => return Ok(None),
                _ => break,
            }
        }
        drop(cache);
        // The lost page may have been evicted since.
        let came = pages.start..pages.start + wide(frames.len().max(1));
        if self.dirt.lost_count() > 0
            && let Some(error) = self.dirt.lost(came)
        {
            pool.give_back(self.share.tenant(), &frames);
            pool.notify_changed();
            return Err(error);
        }
        Ok(Some(frames))
    }

    fn lost_error(&self, page: u64) -> MediumError {
        self.dirt.lost(page..page + 1).unwrap_or(MediumError::MediaIo(libc::EIO))
    }

    /// Places whole pages, without reading them.
    pub(crate) fn place_whole(&self, first: u64, bytes: &[u8]) -> Result<Brought, MediumError> {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let pages = wide(bytes.len() / PAGE).min(RUN_MAX);
        let Some(frames) = self.claim_run(first..first + pages)? else {
            return Ok(Brought::LookAgain);
        };
        if frames.is_empty() {
            self.wait_for_frame();
            return Ok(Brought::LookAgain);
        }
        for (frame, page) in frames.iter().zip(bytes.chunks_exact(PAGE)) {
            self.pool().table.frames().store(*frame, 0, page);
        }
        self.arrive_dirty(first, &frames);
        self.pool().notify_changed();
        Ok(Brought::Bytes(frames.len() * PAGE))
    }

    /// Places a part of a page, after reading the page; no bytes at all make the page present and dirty.
    pub(crate) fn place_part(
        &self,
        page: u64,
        at: usize,
        bytes: &[u8],
    ) -> Result<Brought, MediumError> {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let is_hole = match self.kind_of(page, page + 1)? {
            Kind::Look => return Ok(Brought::LookAgain),
            Kind::Hole(_) => true,
            Kind::Data(_) => false,
        };
        let Some(frames) = self.claim_run(page..page + 1)? else { return Ok(Brought::LookAgain) };
        let Some(frame) = frames.first().copied() else {
            self.wait_for_frame();
            return Ok(Brought::LookAgain);
        };
        let table = &self.pool().table;
        if is_hole {
            table.frames().store(frame, 0, &[0; PAGE]);
        } else {
            match self.read_device(page, 1) {
                Ok((mut transfers, _)) => {
                    let came = transfers.first_mut().map_or(&mut [][..], Transfer::bytes);
                    table.frames().store(frame, 0, came);
                    self.pool().return_transfers(transfers);
                    count(&self.pool().counters.fetched, 1);
                }
                Err(error) => {
                    self.pool().give_back(self.share.tenant(), &frames);
                    self.pool().notify_changed();
                    return Err(error);
                }
            }
        }
        table.frames().store(frame, at, bytes);
        self.arrive_dirty(page, &[frame]);
        self.pool().notify_changed();
        Ok(Brought::Bytes(bytes.len()))
    }

    /// Pages from `first` on have their bytes, and others may see them.
    fn arrive_dirty(&self, first: u64, frames: &[u32]) {
        let table = &self.pool().table;
        // Dirty first: from its arrival on a page could be evicted; and whoever asks the file system for holes after the
        // cut finds the pages among the dirty ones.
        for frame in frames {
            if self.dirt.note_frame(table.header(*frame), *frame) {
                self.pool().count_dirty(&self.lane);
            }
        }
        // Before the bytes can be seen: a page with bytes is in no noted hole.
        self.holes.cut(first..first + wide(frames.len()));
        frames.iter().for_each(|frame| table.header(*frame).arrive());
    }

    /// Waits until a frame may be had: every frame is dirty, or somebody is at it.
    fn wait_for_frame(&self) {
        let pool = self.pool();
        pool.ring_every_writer();
        drop(pool.wait_changed(pool.cache(), || false));
    }

    /// Whether the page is in a hole, and up to which page that is so.
    fn kind_of(&self, page: u64, end: u64) -> Result<Kind, MediumError> {
        if let Some(until) = self.holes.end_of(page) {
            return Ok(self.unless_here(page, Kind::Hole(until)));
        }
        if let Some(until) = self.holes.data_end_of(page) {
            return Ok(Kind::Data(until));
        }
        // In this order: what is placed after the version was taken makes the note fail, and what was placed before and is
        // not written back yet is dirty now.
        let version = self.holes.version();
        let dirty = self.dirt.first_in(&self.pool().table, page..u64::MAX).unwrap_or(u64::MAX);
        let Some(extent) = self.device.extent_at(page * FRAME) else { return Ok(Kind::Data(end)) };
        let until = extent.range.end / FRAME;
        if !extent.is_hole {
            let until = extent.range.end.div_ceil(FRAME).max(page + 1);
            self.holes.note_data(page..until);
            return Ok(Kind::Data(until));
        }
        if until <= page || dirty <= page {
            return Ok(Kind::Data(page + 1));
        }
        // Behind the end of the file is no hole: a read there has to fail.
        let len = self.expected_len.load(Ordering::Acquire).div_ceil(FRAME);
        let hole = page..until.min(dirty).min(len);
        let until = hole.end;
        if hole.is_empty() || !self.holes.note(hole, version) {
            return Ok(Kind::Data(page + 1));
        }
        Ok(self.unless_here(page, Kind::Hole(until)))
    }

    /// A page that was placed since is not answered with zeros.
    fn unless_here(&self, page: u64, kind: Kind) -> Kind {
        let _cache = self.pool().cache();
        let is_here = self.pool().table.locate(self.key(page)).is_some();
        if is_here { Kind::Look } else { kind }
    }
}

/// What the file has at a page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// A hole, up to this page.
    Hole(u64),
    /// Bytes, up to this page.
    Data(u64),
    /// The page is here by now.
    Look,
}

/// Pages that one claim brings: a transfer.
const RUN_MAX: u64 = (Transfer::LEN_MAX / PAGE) as u64;
