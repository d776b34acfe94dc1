//! The logged file itself.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use log::{LogError, Lsn, TailLog};

use crate::base::{Base, to_u64};
use crate::error::LoggedError;
use crate::members::Members;
use crate::options::{Apply, Options};
use crate::overlay::Overlay;
use crate::record::{Change, FILE_LEN_MAX, HEAD_LEN};
use crate::side::{Side, SideState};

/// A file with its log.
///
/// Dropping it leaves the committed records in the log, where the next opening finds them; [`Logged::close`] moves all
/// to the base, which then needs no log.
#[derive(Debug)]
pub struct Logged {
    log: TailLog,
    base: Arc<dyn Base>,
    side_file: Arc<dyn Base>,
    key: u64,
    apply: Apply,
    overlay: Overlay,
    /// Length of the file.
    len: u64,
    capacity: u64,
    /// Bytes of a write that fit one record.
    piece: usize,
    /// The last record.
    last: Option<Lsn>,
    /// Records up to this one are durable.
    committed: Option<Lsn>,
    /// A flush of the base that is under way, and the record up to which it covers.
    flushing: Option<(JoinHandle<io::Result<()>>, Lsn)>,
    flushes: u64,
    /// A flush of the base has failed: the system may show pages clean that it has lost, so a later flush that succeeds
    /// says nothing of them. The log keeps what it has; the next opening gives all of it to the base again.
    is_flush_failed: bool,
}

/// What a logged file is at this moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// What the log is.
    pub log: log::Status,
    /// Bytes in memory that the base does not have.
    pub held: u64,
    /// Flushes of the base since the file was opened.
    pub flushes: u64,
}

impl Logged {
    /// Opens `base` with the log at `members`, and brings the base up to what the log says. `side_file` is a file of its
    /// own that stays with the base; its name is durable already.
    ///
    /// # Durability
    ///
    /// On `Ok` everything that was committed is there.
    ///
    /// # Errors
    ///
    /// [`LoggedError::ConfigLogGone`] if the last commits are in a log that no member holds;
    /// [`LoggedError::ConfigOtherFile`] if the log has records of another file; what log and files say.
    pub fn open(
        base: Arc<dyn Base>,
        side_file: Arc<dyn Base>,
        members: &Members,
        options: &Options,
    ) -> Result<Self, LoggedError> {
        let known = Side::load(&*side_file)?;
        // A settled file gets a new key, so that an old copy of its log is never taken for the log.
        let needed = known.filter(|side| side.state == SideState::InLog);
        let new_key = || getrandom::u64().map_err(|_| LoggedError::Random);
        let key_of_log = options.key.as_ref();
        let (log, key) = match (members.open(key_of_log)?, needed) {
            (Some(log), Some(side)) => {
                check_log(&side, &log)?;
                (log, side.key)
            }
            (Some(log), None) => (log, new_key()?),
            (None, Some(_)) if !options.give_up_log => return Err(LoggedError::ConfigLogGone),
            (None, _) => {
                let key = new_key()?;
                if needed.is_some() {
                    // Before there is another log: the one that is given up is that of another file from now on, should
                    // it come back.
                    let side = Side { key, state: SideState::InLog, log: Some([0; 16]) };
                    side.store(&*side_file)?;
                }
                (members.create(key_of_log)?, key)
            }
        };
        let id = log.id();
        let capacity = log.status().capacity;
        let piece = log.record_max().min(RECORD_MAX).saturating_sub(HEAD_LEN).max(1);
        let len = base.len()?;
        let mut file = Self {
            log,
            base,
            side_file,
            key,
            apply: options.apply,
            overlay: Overlay::default(),
            len,
            capacity,
            piece,
            last: None,
            committed: None,
            flushing: None,
            flushes: 0,
            is_flush_failed: false,
        };
        file.replay()?;
        // Durable before the first record that needs it.
        Side { key, state: SideState::InLog, log: Some(id) }.store(&*file.side_file)?;
        file.apply_all()?;
        Ok(file)
    }

    /// Whether a failure ended the log: nothing more is committed before the file is opened again.
    pub fn is_broken(&self) -> bool {
        self.log.is_broken()
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether everything that was written is durable.
    pub fn is_committed(&self) -> bool {
        self.last == self.committed
    }

    /// What the file is at this moment.
    pub fn status(&self) -> Status {
        Status { log: self.log.status(), held: self.overlay.held(), flushes: self.flushes }
    }

    /// Reads up to the end of the file, and returns how many bytes there were.
    ///
    /// # Errors
    ///
    /// [`LoggedError::Base`].
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<usize, LoggedError> {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = out.len().min(left);
        let out = &mut out[..wanted];
        let counts = self.overlay.base_until.saturating_sub(offset);
        let counts = usize::try_from(counts).unwrap_or(usize::MAX).min(wanted);
        let read = if counts == 0 { 0 } else { self.base.read(offset, &mut out[..counts])? };
        out[read..].fill(0);
        self.overlay.lay_over(offset, out);
        Ok(wanted)
    }

    /// Writes; [`Logged::commit`] makes it durable. A crash before leaves any part, in whole pieces of a record.
    ///
    /// # Errors
    ///
    /// What the log says, or the base, where the log was full.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), LoggedError> {
        let beyond = LoggedError::ConfigBeyondEnd { offset, len: bytes.len() };
        let end = offset.checked_add(to_u64(bytes.len())).filter(|end| *end <= FILE_LEN_MAX);
        let end = end.ok_or(beyond)?;
        let mut at = offset;
        for piece in bytes.chunks(self.piece) {
            self.append(Change::Write { offset: at, bytes: piece })?;
            self.overlay.write(at, piece);
            at += to_u64(piece.len());
            self.len = self.len.max(at);
        }
        debug_assert_eq!(at, end);
        Ok(())
    }

    /// Sets the length; new bytes are zero. Durable with the next commit.
    ///
    /// # Errors
    ///
    /// As [`Logged::write`].
    pub fn set_len(&mut self, len: u64) -> Result<(), LoggedError> {
        if len > FILE_LEN_MAX {
            return Err(LoggedError::ConfigBeyondEnd { offset: len, len: 0 });
        }
        self.append(Change::SetLen(len))?;
        if len < self.len {
            self.overlay.cut(len);
        }
        self.len = len;
        Ok(())
    }

    /// Makes durable what was written before.
    ///
    /// # Durability
    ///
    /// On `Ok` all writes survive what the log's members survive. A crash before leaves a prefix of them.
    ///
    /// # Errors
    ///
    /// What the log says. Where the base fails, the writes are durable in the log, and the next commit tries again;
    /// but for a flush of the base: [`LoggedError::FlushFailed`] from then on.
    pub fn commit(&mut self) -> Result<(), LoggedError> {
        self.check_flushes()?;
        if let Some(last) = self.last.filter(|last| self.committed < Some(*last)) {
            self.log.commit(last)?;
            self.committed = Some(last);
            if self.apply == Apply::AtCommit {
                self.apply_all()?;
            }
        }
        self.destage()
    }

    /// The last write made everything before it void: makes it durable, and forgets the rest.
    ///
    /// The bytes of the base beside it may be of any age.
    ///
    /// # Errors
    ///
    /// As [`Logged::commit`].
    pub fn start_over(&mut self, offset: u64, bytes: &[u8]) -> Result<(), LoggedError> {
        self.finish_flush()?;
        if bytes.len() > self.piece {
            return Err(LoggedError::ConfigBeyondEnd { offset, len: bytes.len() });
        }
        self.write(offset, bytes)?;
        let Some(last) = self.last else { return Ok(()) };
        self.log.commit(last)?;
        self.committed = Some(last);
        if self.apply == Apply::AtCommit {
            self.apply_all()?;
        } else {
            self.overlay.forget();
            self.overlay.write(offset, bytes);
        }
        Ok(self.log.trim(last)?)
    }

    /// Moves all to the base, flushes it, and empties the log.
    ///
    /// # Durability
    ///
    /// On `Ok` the base alone has everything that was written.
    ///
    /// # Errors
    ///
    /// As [`Logged::commit`]; what was committed is then in the log.
    pub fn close(mut self) -> Result<(), LoggedError> {
        self.settle()?;
        self.log.trim(self.log.durable_lsn())?;
        let log = Some(self.log.id());
        Side { key: self.key, state: SideState::Settled, log }.store(&*self.side_file)?;
        Ok(())
    }

    /// Moves all to the base and flushes it, so that the log has room again.
    ///
    /// # Errors
    ///
    /// As [`Logged::commit`].
    pub fn settle(&mut self) -> Result<(), LoggedError> {
        self.finish_flush()?;
        if let Some(last) = self.last {
            self.log.commit(last)?;
            self.committed = Some(last);
        }
        self.apply_all()?;
        let flushed = self.base.flush();
        self.flushed(flushed)?;
        if let Some(last) = self.last {
            self.log.trim(last)?;
        }
        Ok(())
    }

    fn append(&mut self, change: Change<'_>) -> Result<(), LoggedError> {
        let (key, len) = (self.key, change.record_len());
        let appended = self.log.append_with(len, |out| change.emit(key, out));
        self.last = Some(match appended {
            Err(LogError::Full { .. }) => {
                self.settle()?;
                self.log.append_with(len, |out| change.emit(key, out))?
            }
            outcome => outcome?,
        });
        Ok(())
    }

    fn replay(&mut self) -> Result<(), LoggedError> {
        for found in self.log.replay(self.log.start_lsn())? {
            let (lsn, record) = found?;
            let (key, change) = Change::parse(&record)?;
            if key != self.key {
                return Err(LoggedError::ConfigOtherFile { found: key, own: self.key });
            }
            match change {
                Change::Write { offset, bytes } => {
                    self.overlay.write(offset, bytes);
                    self.len = self.len.max(offset + to_u64(bytes.len()));
                }
                Change::SetLen(len) => {
                    if len < self.len {
                        self.overlay.cut(len);
                    }
                    self.len = len;
                }
            }
            self.last = Some(lsn);
        }
        self.committed = self.last;
        Ok(())
    }

    /// Gives the base what it lacks. Only records that are durable may be in the overlay.
    fn apply_all(&mut self) -> Result<(), LoggedError> {
        if self.overlay.is_empty() && self.base.len()? == self.len {
            return Ok(());
        }
        // What is written again in full is not taken away first: others may read it in the base meanwhile.
        let void = self.overlay.base_until..self.base.len()?.min(self.len);
        if !self.overlay.covers(void) {
            self.base.set_len(self.overlay.base_until)?;
        }
        for (offset, bytes) in self.overlay.runs() {
            self.base.write(offset, &bytes)?;
        }
        if self.base.len()? != self.len {
            self.base.set_len(self.len)?;
        }
        self.overlay.settle();
        Ok(())
    }

    /// Begins to move records to the base when half of the log is full, and trims what a flush has moved.
    fn destage(&mut self) -> Result<(), LoggedError> {
        if self.flushing.as_ref().is_some_and(|(thread, _)| thread.is_finished()) {
            self.finish_flush()?;
        }
        let Some(last) = self.committed.filter(|_| self.flushing.is_none()) else {
            return Ok(());
        };
        if last.0.saturating_sub(self.log.start_lsn().0) <= self.capacity / 2 {
            return Ok(());
        }
        self.apply_all()?;
        let base = Arc::clone(&self.base);
        let thread =
            thread::Builder::new().name("logged-flush".into()).spawn(move || base.flush())?;
        self.flushing = Some((thread, last));
        Ok(())
    }

    fn finish_flush(&mut self) -> Result<(), LoggedError> {
        self.check_flushes()?;
        let Some((thread, upto)) = self.flushing.take() else { return Ok(()) };
        let flushed = thread.join();
        self.flushed(flushed.unwrap_or_else(|_| Err(io::Error::other("the flush panicked"))))?;
        Ok(self.log.trim(upto)?)
    }

    /// Notes how a flush of the base ended.
    fn flushed(&mut self, outcome: io::Result<()>) -> Result<(), LoggedError> {
        self.is_flush_failed |= outcome.is_err();
        outcome?;
        self.flushes += 1;
        Ok(())
    }

    fn check_flushes(&self) -> Result<(), LoggedError> {
        if self.is_flush_failed { Err(LoggedError::FlushFailed) } else { Ok(()) }
    }
}

/// Whether the log is the one that the last commits are in. A log of which the file says no more than that it was about to
/// be made has records of its own key, or none.
fn check_log(side: &Side, log: &TailLog) -> Result<(), LoggedError> {
    match side.log {
        Some(id) if id != [0; 16] && id != log.id() => Err(LoggedError::ConfigOtherLog),
        _ => Ok(()),
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        // The thread uses the base alone; what it finds out is of no use any more.
        if let Some((thread, _)) = self.flushing.take() {
            let _ = thread.join();
        }
    }
}

/// Longest record: long enough for a page of any database and its head, short enough for a small log.
const RECORD_MAX: usize = (64 << 10) + HEAD_LEN + 32;
