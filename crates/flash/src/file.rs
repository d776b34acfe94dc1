//! A file in flash: its pages in a pool, and the ways to them.
//!
//! ```text
//!   without waiting:  pin the page -> copy                   hole, noted -> zeros        else: not possible
//!   waiting:          claim -> read the device -> arrive     whole page: claim -> copy -> arrive, dirty
//! ```
//!
//! # Locks
//!
//! Nothing locks a page for a copy: a copy of a page that another thread writes has each word of 8 bytes whole, as on any
//! medium. What would be lost without a lock is decided by the state of the frame (`header.rs`): a page is brought by one
//! thread, written back by one thread, and evicted by nobody while it is dirty or somebody is at it. The `gate` keeps pages
//! from coming in while the kernel changes the file below ([`FlashFile::around`]). Order of the locks: gate, then cache;
//! gate, then dirt; gate, then holes. No thread holds two of the last three.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pmem::{AtomicOp, Backing, MediumError};

use crate::ahead::{Streams, WINDOW};
use crate::device::{Device, Transfer};
use crate::dirt::Dirt;
use crate::header::{AHEAD, Key};
use crate::holes::Holes;
use crate::pool::{Claim, FRAME, Pool, Share};
use crate::stats::{FileStats, count};
use crate::table::Pinned;

/// See the module.
#[derive(Debug)]
pub struct FlashFile {
    pub(crate) number: u32,
    share: Share,
    pub(crate) device: Box<dyn Device>,
    /// The length that the file has unless a stranger shortens it.
    expected_len: AtomicU64,
    pub(crate) dirt: Dirt,
    holes: Holes,
    gate: RwLock<()>,
    /// Held while the file is made longer.
    growth: Mutex<()>,
    streams: Streams,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The error of a bring-in, or that the caller has to look again.
enum Brought {
    /// So many bytes are done.
    Bytes(usize),
    /// Another thread was faster.
    LookAgain,
}

impl FlashFile {
    pub(crate) fn new(share: Share, device: Box<dyn Device>) -> io::Result<Arc<Self>> {
        let expected_len = AtomicU64::new(device.len()?);
        let pool = Arc::clone(share.pool());
        Ok(pool.enter(|number| {
            Arc::new(Self {
                number,
                share,
                device,
                expected_len,
                dirt: Dirt::new(),
                holes: Holes::default(),
                gate: RwLock::new(()),
                growth: Mutex::new(()),
                streams: Streams::new(),
                hits: AtomicU64::new(0),
                misses: AtomicU64::new(0),
            })
        }))
    }

    pub(crate) fn share(&self) -> &Share {
        &self.share
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        self.share.pool()
    }

    /// The device and file that callers may wait for.
    pub fn backing(&self) -> Option<Backing> {
        self.device.backing()
    }

    /// What happened to the file, for the operator.
    pub fn stats(&self) -> FileStats {
        let how = self.device.how();
        FileStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            dirty: self.dirt.count(&self.pool().table) as u64 * FRAME,
            lost: self.dirt.lost_count() as u64,
            is_direct: how.is_direct,
            is_ring: how.is_ring,
        }
    }

    fn key(&self, page: u64) -> Key {
        Key { file: self.number, page }
    }

    fn pin(&self, page: u64) -> Option<Pinned<'_>> {
        let pinned = self.share.pool().table.pin(self.key(page))?;
        if pinned.takes_ahead() {
            self.pool().ahead.ask(self.number, page + WINDOW / 2);
        }
        Some(pinned)
    }

    /// The file has at least this length.
    pub(crate) fn expect_len(&self, len: u64) {
        self.expected_len.fetch_max(len, Ordering::AcqRel);
    }

    /// Copies bytes out without waiting.
    pub(crate) fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        for piece in pieces(offset, out.len()) {
            let out = &mut out[piece.from..piece.from + piece.len];
            match self.pin(piece.page) {
                Some(pinned) => pinned.load(piece.at, out),
                None if self.holes.try_contains(piece.page) => out.fill(0),
                None => return Err(MediumError::WouldBlock),
            }
        }
        count(&self.hits, 1);
        Ok(())
    }

    /// Places bytes without waiting: all, or none.
    pub(crate) fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        let pages = pieces(offset, bytes.len()).count();
        if pages > PINNED_MAX || self.pool().is_too_dirty() {
            return Err(MediumError::WouldBlock);
        }
        let mut pinned: [Option<Pinned<'_>>; PINNED_MAX] = [const { None }; PINNED_MAX];
        for (place, piece) in pinned.iter_mut().zip(pieces(offset, bytes.len())) {
            *place = Some(self.pin(piece.page).ok_or(MediumError::WouldBlock)?);
        }
        for (pinned, piece) in pinned.iter().flatten().zip(pieces(offset, bytes.len())) {
            pinned.store(piece.at, &bytes[piece.from..piece.from + piece.len]);
            self.note(pinned);
        }
        count(&self.hits, 1);
        Ok(())
    }

    /// Changes a word without waiting. The caller has checked its alignment.
    pub(crate) fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        let (page, at) = (offset / FRAME, within(offset));
        if self.pool().is_too_dirty() {
            return Err(MediumError::WouldBlock);
        }
        let pinned = self.pin(page).ok_or(MediumError::WouldBlock)?;
        let before = pinned.atomic(at, op);
        self.note(&pinned);
        Ok(before)
    }

    fn note(&self, pinned: &Pinned<'_>) {
        if self.dirt.note(pinned) {
            self.pool().count_dirty();
        }
    }

    /// Copies bytes out; waits for those that are not here.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        let mut done = 0;
        let mut has_missed = false;
        while let Some(piece) = pieces(offset + wide(done), out.len() - done).next() {
            if let Some(pinned) = self.pin(piece.page) {
                pinned.load(piece.at, &mut out[done..done + piece.len]);
                done += piece.len;
                continue;
            }
            if !has_missed {
                has_missed = true;
                count(&self.misses, 1);
            }
            match self.bring(offset + wide(done), &mut out[done..])? {
                Brought::Bytes(bytes) => {
                    done += bytes;
                    let end = (offset + wide(done)).div_ceil(FRAME);
                    if self.streams.missed(piece.page, end) {
                        self.pool().ahead.ask(self.number, end);
                    }
                }
                Brought::LookAgain => {}
            }
        }
        if !has_missed {
            count(&self.hits, 1);
        }
        Ok(())
    }

    /// Places bytes; waits for pages of which it covers a part, and for the write-back where too much is dirty.
    pub(crate) fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        let mut done = 0;
        self.pool().wait_for_writer();
        while let Some(piece) = pieces(offset + wide(done), bytes.len() - done).next() {
            if let Some(pinned) = self.pin(piece.page) {
                pinned.store(piece.at, &bytes[done..done + piece.len]);
                self.note(&pinned);
                done += piece.len;
                continue;
            }
            let rest = &bytes[done..];
            let brought = if piece.len == PAGE {
                self.place_whole(piece.page, rest)?
            } else {
                count(&self.misses, 1);
                self.place_part(piece.page, piece.at, &rest[..piece.len])?
            };
            match brought {
                Brought::Bytes(bytes) => done += bytes,
                Brought::LookAgain => {}
            }
        }
        Ok(())
    }

    /// Changes a word; waits for its page. The caller has checked the alignment.
    pub(crate) fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.pool().wait_for_writer();
        loop {
            if let Some(pinned) = self.pin(offset / FRAME) {
                let before = pinned.atomic(within(offset), op);
                self.note(&pinned);
                return Ok(before);
            }
            self.place_part(offset / FRAME, 0, &[])?;
        }
    }

    /// Brings the pages of a stream that follow `first`.
    pub(crate) fn read_ahead(&self, first: u64) {
        let end = self.expected_len.load(Ordering::Acquire).div_ceil(FRAME);
        let mark = first + WINDOW / 2;
        let mut page = first;
        let mut scratch = vec![0; Transfer::LEN_MAX];
        while page < (first + WINDOW).min(end) {
            let pages = (first + WINDOW).min(end) - page;
            let bytes = usize::try_from(pages * FRAME).unwrap_or(usize::MAX).min(scratch.len());
            // The length of the file bounds the read.
            let left = self.expected_len.load(Ordering::Acquire).saturating_sub(page * FRAME);
            let bytes = bytes.min(usize::try_from(left).unwrap_or(usize::MAX));
            if let Some(pinned) = self.pool().table.pin(self.key(page)) {
                drop(pinned);
                page += 1;
            } else {
                match self.bring(page * FRAME, &mut scratch[..bytes]) {
                    Ok(Brought::Bytes(bytes)) => {
                        let came = wide(bytes).div_ceil(FRAME);
                        count(&self.pool().counters.ahead, came);
                        page += came.max(1);
                    }
                    Ok(Brought::LookAgain) => {}
                    Err(_) => return,
                }
            }
        }
        if let Some(pinned) = self.pool().table.pin(self.key(mark)) {
            pinned.header().set(AHEAD);
        }
    }

    /// Brings a run of pages that are not here, from the page of `offset` on, and copies their bytes out.
    fn bring(&self, offset: u64, out: &mut [u8]) -> Result<Brought, MediumError> {
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
                    drop(pool.wait_changed(cache));
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
    fn place_whole(&self, first: u64, bytes: &[u8]) -> Result<Brought, MediumError> {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let pages = wide(bytes.len() / PAGE).min(RUN_MAX);
        let Some(frames) = self.claim_run(first..first + pages)? else {
            return Ok(Brought::LookAgain);
        };
        if frames.is_empty() {
            self.wait_for_frame();
            return Ok(Brought::LookAgain);
        }
        // Before the bytes can be seen: a page with bytes is in no noted hole.
        self.holes.cut(first..first + wide(frames.len()));
        for (frame, page) in frames.iter().zip(bytes.chunks_exact(PAGE)) {
            self.pool().table.frames().store(*frame, 0, page);
            self.arrive_dirty(*frame);
        }
        self.pool().notify_changed();
        Ok(Brought::Bytes(frames.len() * PAGE))
    }

    /// Places a part of a page, after reading the page; no bytes at all make the page present and dirty.
    fn place_part(&self, page: u64, at: usize, bytes: &[u8]) -> Result<Brought, MediumError> {
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
        self.holes.cut(page..page + 1);
        table.frames().store(frame, at, bytes);
        self.arrive_dirty(frame);
        self.pool().notify_changed();
        Ok(Brought::Bytes(bytes.len()))
    }

    fn arrive_dirty(&self, frame: u32) {
        let header = self.pool().table.header(frame);
        // Dirty first: from its arrival on the page could be evicted.
        let was_clean = self.dirt.note_frame(header, frame);
        header.arrive();
        if was_clean {
            self.pool().count_dirty();
        }
    }

    /// Waits until a frame may be had: every frame is dirty, or somebody is at it.
    fn wait_for_frame(&self) {
        let pool = self.pool();
        pool.writer.ring_now();
        drop(pool.wait_changed(pool.cache()));
    }

    /// Whether the page is in a hole, and up to which page that is so.
    fn kind_of(&self, page: u64, end: u64) -> Result<Kind, MediumError> {
        if let Some(until) = self.holes.end_of(page) {
            return Ok(self.unless_here(page, Kind::Hole(until)));
        }
        // In this order: what is placed after the version was taken makes the note fail, and what was placed before and is
        // not written back yet is dirty now.
        let version = self.holes.version();
        let dirty = self.dirt.first_in(&self.pool().table, page..u64::MAX).unwrap_or(u64::MAX);
        let Some(extent) = self.device.extent_at(page * FRAME) else { return Ok(Kind::Data(end)) };
        let until = extent.range.end / FRAME;
        if !extent.is_hole || until <= page || dirty <= page {
            let until = if extent.is_hole { page + 1 } else { extent.range.end.div_ceil(FRAME) };
            return Ok(Kind::Data(until.max(page + 1)));
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
            self.pool().count_clean(wide(taken.len()));
            self.pool().notify_changed();
        }
        match self.dirt.lost(pages) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Writes pages in order; returns those that were not written, and why.
    fn write(&self, taken: &[crate::dirt::Taken]) -> Vec<(Range<u64>, MediumError)> {
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
            let mut transfers = match self.pool().take_transfers(TRANSFERS) {
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

    fn fill(&self, transfer: &mut Transfer, run: &[crate::dirt::Taken], bytes: usize) {
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
        loop {
            self.write_back(pages.clone())?;
            let place = (self.share.tenant(), self.number);
            // An engine may place in a page until the page is gone.
            if self.pool().evict_file(place, |page| pages.contains(&page)) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        let _growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = change();
        self.holes.forget();
        if let Ok(len) = self.device.len() {
            self.expected_len.store(len, Ordering::Release);
        }
        Ok(outcome)
    }

    /// [`FlashFile::read`] for a file whose length the caller has looked up: `out` ends at its end at most.
    ///
    /// # Errors
    ///
    /// The bytes cannot be read, or are lost.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.read(offset, out)
    }

    /// [`FlashFile::read_at`] without waiting.
    ///
    /// # Errors
    ///
    /// [`MediumError::WouldBlock`] if a page is not here.
    pub fn try_read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.try_read(offset, out)
    }

    /// Writes bytes into the file below as well as into its pages, so that the caller learns of every error. `lengthen`
    /// makes the file reach the given end; it is called with the file's growth to itself, and only where the file is
    /// shorter.
    ///
    /// # Errors
    ///
    /// The error of `lengthen`; or bytes of the range are lost.
    pub fn write_at<E: From<MediumError>>(
        &self,
        offset: u64,
        bytes: &[u8],
        lengthen: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = offset + wide(bytes.len());
        {
            let _growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
            if self.device.len().map_err(media_error)? < end {
                lengthen(end)?;
            }
            self.expect_len(end);
        }
        self.place(offset, bytes)?;
        Ok(self.write_back(pages_of(offset, wide(bytes.len())))?)
    }

    /// Brings everything that was placed to the file below; not durable.
    ///
    /// # Errors
    ///
    /// Bytes of the file are lost.
    pub fn write_back_all(&self) -> Result<(), MediumError> {
        self.write_back(0..u64::MAX)
    }

    /// Takes every page out of memory; returns how many could not be yet.
    pub(crate) fn evict_all(&self) -> usize {
        self.pool().evict_file((self.share.tenant(), self.number), |_| true)
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

/// The longest run of pages at the start that one transfer writes. The last page of a file that is no whole number of pages
/// goes alone.
fn run_of(taken: &[crate::dirt::Taken], len: u64) -> &[crate::dirt::Taken] {
    let Some(first) = taken.first() else { return taken };
    let is_whole = |page: u64| (page + 1) * FRAME <= len;
    let follows = |(index, taken): (usize, &crate::dirt::Taken)| {
        taken.page == first.page + wide(index) && is_whole(taken.page)
    };
    let run = taken.iter().take(Transfer::LEN_MAX / PAGE).enumerate();
    let count = run.take_while(|(index, taken)| follows((*index, taken))).count();
    &taken[..count.max(1)]
}

/// A part of a range that lies in one page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Piece {
    page: u64,
    at: usize,
    /// Where the part begins in the caller's buffer.
    from: usize,
    len: usize,
}

fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let left = len - from;
        let (page, at) = ((offset + wide(from)) / FRAME, within(offset + wide(from)));
        let piece = Piece { page, at, from, len: left.min(PAGE - at) };
        from += piece.len;
        (left > 0).then_some(piece)
    })
}

pub(crate) fn pages_of(offset: u64, len: u64) -> Range<u64> {
    offset / FRAME..offset.saturating_add(len).div_ceil(FRAME)
}

fn within(offset: u64) -> usize {
    usize::try_from(offset % FRAME).expect("below a page")
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("64 address bits at most")
}

fn media_error(error: io::Error) -> MediumError {
    media_error_of(&error)
}

fn media_error_of(error: &io::Error) -> MediumError {
    MediumError::MediaIo(error.raw_os_error().unwrap_or(libc::EIO))
}

const PAGE: usize = 4096;
/// Pages that one claim brings: a transfer.
const RUN_MAX: u64 = (Transfer::LEN_MAX / PAGE) as u64;
/// Pages that a placement without waiting may touch: those of the longest frame of a peer.
const PINNED_MAX: usize = 18;
/// Pages that a write-back takes at once.
const BATCH_MAX: usize = 512;
/// Transfers of a write-back that are under way at once.
const TRANSFERS: usize = 32;
/// Lost pages that a file remembers one by one; with more no flush of the file succeeds any more.
const LOST_MAX: usize = 4096;
