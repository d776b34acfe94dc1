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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use pmem::{AtomicOp, Backing, MediumError};

use crate::device::{Device, Transfer};
use crate::dirt::Dirt;
use crate::header::{AHEAD, Key};
use crate::holes::Holes;
use crate::lane::Lane;
use crate::pieces::{Brought, PAGE, media_error, pages_of, pieces, wide, within};
use crate::pool::{Background, FRAME, Pool, Share};
use crate::stats::{FileStats, count};
use crate::streams::{Streams, WINDOW};
use crate::table::Pinned;
use crate::tiered::Tiered;

/// See the module.
#[derive(Debug)]
pub struct FlashFile {
    pub(crate) number: u32,
    pub(crate) share: Share,
    pub(crate) lane: Arc<Lane>,
    pub(crate) device: Box<dyn Device>,
    /// The length that the file has unless a stranger shortens it.
    pub(crate) expected_len: AtomicU64,
    pub(crate) dirt: Dirt,
    pub(crate) holes: Holes,
    pub(crate) gate: RwLock<()>,
    /// No page is found without waiting: the kernel is to change the file below. Without this an engine could make a page
    /// dirty again and again, and the change, and all who wait for the gate, would wait for ever.
    is_closed: AtomicBool,
    /// Held while the length of the file changes, or is asked for.
    pub(crate) growth: Mutex<()>,
    streams: Streams,
    hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) engine_fetches: AtomicU64,
}

impl FlashFile {
    pub(crate) fn new(share: Share, device: Box<dyn Device>) -> io::Result<Arc<Self>> {
        let expected_len = AtomicU64::new(device.len()?);
        let pool = Arc::clone(share.pool());
        let lane = pool.lane_of(device.backing().map(|backing| backing.device))?;
        let share = share.of_file();
        let device = match share.tier() {
            Some(tier) => Box::new(Tiered::new(device, Arc::clone(tier))),
            None => device,
        };
        Ok(pool.enter(|number| {
            Arc::new(Self {
                number,
                share,
                lane,
                device,
                expected_len,
                dirt: Dirt::new(),
                holes: Holes::default(),
                gate: RwLock::new(()),
                is_closed: AtomicBool::new(false),
                growth: Mutex::new(()),
                streams: Streams::new(),
                hits: AtomicU64::new(0),
                misses: AtomicU64::new(0),
                engine_fetches: AtomicU64::new(0),
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
            from_tier: self.device.tier_bytes(),
            engine_fetches: self.engine_fetches.load(Ordering::Relaxed),
            dirty: self.dirt.count(&self.pool().table) as u64 * FRAME,
            lost: self.dirt.lost_count() as u64,
            is_direct: how.is_direct,
            is_ring: how.is_ring,
        }
    }

    pub(crate) fn key(&self, page: u64) -> Key {
        Key { file: self.number, page }
    }

    /// Until the answer is dropped, pages are not found without waiting. The caller has the gate.
    pub(crate) fn close(&self) -> Closed<'_> {
        self.is_closed.store(true, Ordering::Relaxed);
        Closed(self)
    }

    fn pin(&self, page: u64) -> Option<Pinned<'_>> {
        if self.is_closed.load(Ordering::Relaxed) {
            return None;
        }
        let pinned = self.share.pool().table.pin(self.key(page))?;
        if pinned.takes_ahead() {
            self.lane.ahead.ask(self.number, page + WINDOW / 2);
        }
        Some(pinned)
    }

    /// A caller has seen that the file reaches `end`. The file is asked again, with its length to itself: it may have been
    /// made shorter since, and a length that it does not have would make a page at its end look cut off. May wait.
    pub(crate) fn expect_len(&self, end: u64) {
        if end > self.expected_len.load(Ordering::Acquire) {
            self.learn_len(self.growth.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn learn_len(&self, _growth: MutexGuard<'_, ()>) {
        // A file that cannot be asked keeps its length, and what lies behind it is refused.
        if let Ok(len) = self.device.len() {
            self.expected_len.fetch_max(len, Ordering::AcqRel);
        }
    }

    /// Refuses what lies behind the end of the file: it has become shorter than a region.
    fn check_end(&self, offset: u64, len: usize) -> Result<(), MediumError> {
        let end = offset + wide(len);
        // No bytes lie nowhere.
        let is_inside = len == 0 || end <= self.expected_len.load(Ordering::Acquire);
        if is_inside { Ok(()) } else { Err(MediumError::Truncated) }
    }

    /// Copies bytes out without waiting.
    pub(crate) fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.check_end(offset, out.len())?;
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
        self.check_end(offset, bytes.len())?;
        let pages = pieces(offset, bytes.len()).count();
        if pages > PINNED_MAX || self.pool().is_too_dirty(&self.lane) {
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
        self.check_end(offset, 8)?;
        let (page, at) = (offset / FRAME, within(offset));
        if self.pool().is_too_dirty(&self.lane) {
            return Err(MediumError::WouldBlock);
        }
        let pinned = self.pin(page).ok_or(MediumError::WouldBlock)?;
        let before = pinned.atomic(at, op);
        self.note(&pinned);
        Ok(before)
    }

    fn note(&self, pinned: &Pinned<'_>) {
        if self.dirt.note(pinned) {
            self.pool().count_dirty(&self.lane);
        }
    }

    /// Copies bytes out; waits for those that are not here.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.check_end(offset, out.len())?;
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
                        self.lane.ahead.ask(self.number, end);
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
        self.check_end(offset, bytes.len())?;
        let mut done = 0;
        self.pool().wait_for_writer(&self.lane);
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
        self.check_end(offset, 8)?;
        self.pool().wait_for_writer(&self.lane);
        loop {
            if let Some(pinned) = self.pin(offset / FRAME) {
                let before = pinned.atomic(within(offset), op);
                self.note(&pinned);
                return Ok(before);
            }
            self.place_part(offset / FRAME, 0, &[])?;
        }
    }

    /// [`FlashFile::read`] for a file whose length the caller has looked up: `out` ends at its end at most.
    ///
    /// # Errors
    ///
    /// The bytes cannot be read, or are lost.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.expect_len(offset + wide(out.len()));
        self.read(offset, out)
    }

    /// [`FlashFile::read_at`] without waiting.
    ///
    /// # Errors
    ///
    /// [`MediumError::WouldBlock`] if a page is not here.
    pub fn try_read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        if offset + wide(out.len()) > self.expected_len.load(Ordering::Acquire) {
            match self.growth.try_lock() {
                Ok(growth) => self.learn_len(growth),
                Err(_) => return Err(MediumError::WouldBlock),
            }
        }
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
            self.expected_len.fetch_max(end, Ordering::AcqRel);
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
}

/// The end of [`FlashFile::close`].
pub(crate) struct Closed<'f>(&'f FlashFile);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.is_closed.store(false, Ordering::Relaxed);
    }
}

impl Background for FlashFile {
    fn write_back_old(&self, lane: &Lane) {
        if std::ptr::eq(&*self.lane, lane) {
            let _ = self.write_back(0..u64::MAX);
        }
    }

    fn read_ahead(&self, first: u64) {
        let end = self.expected_len.load(Ordering::Acquire).div_ceil(FRAME);
        let mark = first + WINDOW / 2;
        let (mut page, mut all) = (first, 0);
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
                        all += came;
                        page += came.max(1);
                    }
                    Ok(Brought::LookAgain) => {}
                    Err(_) => return,
                }
            }
        }
        // A window that was all here needs no successor: where the stream leaves what is here, it misses and is found again.
        if all > 0
            && let Some(pinned) = self.pool().table.pin(self.key(mark))
        {
            pinned.header().set(AHEAD);
        }
    }
}

/// Pages that a placement without waiting may touch: those of the longest frame of a peer.
const PINNED_MAX: usize = 18;
