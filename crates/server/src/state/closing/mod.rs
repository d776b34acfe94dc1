//! How an open ends: where closing it may begin, and what is left for a thread that may wait.
//!
//! Spec: MS-FSA §2.1.5.4 (close), MS-SMB2 §3.3.4.17.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use smb::create::AccessMask;
use tracing::{debug, error, warn};
use tree::{InlineIo, MayWait, Share, ShareError};

use super::caching::Intent;
use super::files::Files;
use super::leave::{Leaving, Left};
use super::node::OpenRecord;
use super::open::{CLOSED, HANDED_OVER, Open};
use super::wish::Wished;
use super::wish_notes;

impl Open {
    /// Ends the open: its regions, locks, lease and share modes go, and the file itself if it was
    /// to be deleted and this was its last open. Its client may not know of it: nothing of it comes back after a crash.
    /// May block. The second call does nothing.
    pub(crate) fn close(&self, files: &Files, may_wait: MayWait) -> Result<(), ShareError> {
        self.end(files, Ending::Otherwise, may_wait)
    }

    /// [`Open::close`] for its own client, which does not ask for it again.
    pub(crate) fn close_for_client(
        &self,
        files: &Files,
        may_wait: MayWait,
    ) -> Result<(), ShareError> {
        self.end(files, Ending::ByItsClient, may_wait)
    }

    fn end(&self, files: &Files, ending: Ending, may_wait: MayWait) -> Result<(), ShareError> {
        if !self.begin_close() {
            return Ok(());
        }
        self.settle_changes();
        let left = self.leave(files, Some((ending, may_wait)));
        left.map_or(Ok(()), |left| self.finish_leaving(left, may_wait))
    }

    /// [`Open::close_for_client`] as far as it waits for nobody: where the log of opens has it, the wish to delete stays, a change is under way, or the removal
    /// of a name would wait, something is left for [`Open::finish_close`] on a thread that may wait.
    pub(crate) fn close_on_the_spot(
        &self,
        files: &Files,
    ) -> ControlFlow<Result<(), ShareError>, Closing> {
        if !self.begin_close() {
            return ControlFlow::Break(Ok(()));
        }
        // In this order: no note is written of it once nothing is under way.
        if self.changes.try_write().is_none() || self.is_persistent() {
            return ControlFlow::Continue(Closing::Begun);
        }
        let left = self.leave(files, None);
        let Some(left) = left else { return ControlFlow::Break(Ok(())) };
        let left = if left.leaves_wish() {
            ControlFlow::Continue(left)
        } else {
            left.finish_on_the_spot(|Wished { share, path, leave, .. }| {
                share.remove_on_the_spot(*leave, path, self.node.key())
            })
        };
        left.map_continue(|left| Closing::Left(Box::new(left)))
    }

    /// The rest of a close by the client of the open. May block.
    pub(crate) fn finish_close(
        &self,
        files: &Files,
        closing: Closing,
        may_wait: MayWait,
    ) -> Result<(), ShareError> {
        let left = match closing {
            Closing::Left(left) => Some(*left),
            Closing::Begun => {
                self.settle_changes();
                self.leave(files, Some((Ending::ByItsClient, may_wait)))
            }
        };
        left.map_or(Ok(()), |left| self.finish_leaving(left, may_wait))
    }

    // No request begins a change from here on. `false`: somebody else closes it, or has.
    fn begin_close(&self) -> bool {
        let begins = !matches!(self.life.swap(CLOSED, Ordering::AcqRel), CLOSED | HANDED_OVER);
        if begins {
            self.closed.notify_waiters();
        }
        begins
    }

    // `noted`: how it ends, for the log of opens; `None` of one that is not there.
    fn leave(&self, files: &Files, noted: Option<(Ending, MayWait)>) -> Option<Left> {
        files.observer.closing(self);
        self.set_used(&files.creates);
        // What noted it was a change through it, and is over.
        if let Some((ending, may_wait)) = noted {
            self.forget_note(ending, may_wait);
        }
        let keeps = self.keeps_directory();
        let leaving = if keeps { Leaving::WithoutWish } else { Leaving::Closed };
        self.node.leave(self.serial, leaving)
    }

    fn finish_leaving(&self, left: Left, may_wait: MayWait) -> Result<(), ShareError> {
        // Those that are left know of the wish that it leaves behind: what they only cache keeps the name no longer.
        let noted = match left.leaves_wish() {
            true => {
                self.node.begin_breaks(self.owner, Intent::Unlink);
                self.node.begin_breaks_of_streams(self.owner, Intent::Unlink, |_| true);
                wish_notes::write_durably(&self.node, may_wait)
            }
            false => Ok(()),
        };
        let removed = left.finish(|Wished { share, path, leave, .. }| {
            if self.entry.is_stream() {
                return share.remove_stream(*leave, &self.entry);
            }
            share.remove(*leave, path, self.node.key(), self.entry.is_directory())
        });
        removed.and_then(|()| noted.map_err(|_| ShareError::MediaIo(Errno::IO)))
    }

    // MS-FSA §2.1.5.4: a directory with something in it does not go, and its name is not taken from others.
    fn keeps_directory(&self) -> bool {
        let wishes = |open: &OpenRecord| open.delete_on_close.is_some();
        self.entry.is_directory()
            && self.node.lock().record(self.serial).is_some_and(wishes)
            && self
                .tree
                .share()
                .is_none_or(|share| !share.is_empty_directory(&self.entry).unwrap_or(false))
    }

    /// Whether closing it now waits for nothing: no disk to change, no change under way.
    fn closes_at_once(&self) -> bool {
        if !self.is_at_hand()
            || self.may_any(CHANGES)
            || self.is_persistent()
            || self.entry.is_stream()
            || self.changes.try_write().is_none()
        {
            return false;
        }
        !self.may_remove()
    }

    /// Whether closing it may remove a name, as far as can be said before it is closed.
    fn may_remove(&self) -> bool {
        let state = self.node.lock();
        let deletes = state.record(self.serial).is_some_and(|open| open.delete_on_close.is_some());
        deletes || !state.delete_pending.is_empty()
    }

    /// Where closing it may begin, which [`Open::close_on_the_spot`] does: the log of opens is on a disk.
    pub(crate) fn closing_io(&self) -> InlineIo {
        if self.closes_at_once() {
            return InlineIo::Everything;
        }
        if self.is_persistent() {
            return InlineIo::CachedReads;
        }
        // A change under way is waited for, and names of streams and directories, which may have much below them. The pages of
        // a file that goes go when the last descriptor does (`tree::handle`).
        let is_plain = !self.entry.is_stream() && !self.entry.is_directory();
        let waits = self.changes.try_write().is_none() || (self.may_remove() && !is_plain);
        self.entry.inline_io().unless(waits)
    }

    /// Returns once no note of it is on its way to the log. May block.
    pub(crate) fn settle_note(&self) {
        if self.is_being_noted.load(Ordering::Acquire) {
            self.settle_changes();
        }
    }

    /// It does not come back after a crash. Costs nothing, and waits for nobody, once the log that had it knows.
    pub(crate) fn forget_note(&self, ending: Ending, may_wait: MayWait) {
        if !self.is_noted() {
            return;
        }
        let Some(share) = self.tree.share() else { return };
        match ending {
            Ending::ByItsClient => forget_lazily(share, self.serial.0, may_wait),
            Ending::Otherwise => forget_notes(share, &[self.serial.0], may_wait),
        }
        self.is_forgotten.store(true, Ordering::Release);
    }

    // Whether a log may have it that does not know yet that it ends.
    fn is_noted(&self) -> bool {
        self.is_persistent() && !self.is_forgotten.load(Ordering::Acquire)
    }
}

/// Who ends an open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ending {
    /// Its own client, by CLOSE or by leaving the share. It does not ask for the open again, so it does no harm if the log
    /// of opens forgets the end with the power.
    ByItsClient,
    /// Anybody else: its time is over, another one takes its place, its user has lost a right. Its client asks for it, and
    /// would find its lease whole, though others have changed the file: the log of opens knows durably that it has ended,
    /// before they get in.
    Otherwise,
}

/// A close that a thread has to finish.
#[derive(Debug)]
#[must_use]
pub(crate) enum Closing {
    /// A change is under way.
    Begun,
    /// The open has left its node.
    Left(Box<Left>),
}

/// Opens that ended otherwise than by their clients do not come back after a crash. Blocks.
pub(super) fn forget_notes(share: &Share, serials: &[u64], may_wait: MayWait) {
    let Some(journal) = share.journal(may_wait) else { return };
    if let Err(error) = journal.forget_durably(serials.iter().copied()) {
        // The log promises nothing more, and says so; nobody waits for it for ever.
        let (count, first) = (serials.len(), serials.first());
        error!(count, first, %error, "the log of opens does not learn that opens have ended: after a crash they may come back with leases that others have had since");
    }
}

// Its lock is held by those who wait for a disk, and now and then it is written anew.
fn forget_lazily(share: &Share, serial: u64, may_wait: MayWait) {
    if let Some(Err(error)) = share.journal(may_wait).map(|journal| journal.close(serial)) {
        warn!(serial, %error, "a closed open may come back after a crash");
    }
}

/// Closes opens whose client does not come back. May block.
pub(crate) fn close_all(files: &Files, orphans: Vec<Arc<Open>>, may_wait: MayWait) {
    forget_all(&orphans, may_wait);
    for open in orphans {
        debug!(serial = open.serial.0, "a durable open is given up");
        if let Err(error) = open.close(files, may_wait) {
            warn!(serial = open.serial.0, %error, "a file to be deleted on close stays");
        }
    }
}

/// The notes of opens that are about to be closed, with one wait for the disk for each log. May block.
pub(crate) fn forget_all(opens: &[Arc<Open>], may_wait: MayWait) {
    opens.iter().for_each(|open| open.settle_note());
    let noted = opens.iter().filter(|open| open.is_noted());
    let mut noted: Vec<_> = noted.filter_map(|open| Some((open.tree.share()?, open))).collect();
    noted.sort_by_key(|(share, _)| Arc::as_ptr(share));
    for of_share in noted.chunk_by(|(one, _), (other, _)| Arc::ptr_eq(one, other)) {
        let share = of_share[0].0;
        let serials: Vec<_> = of_share.iter().map(|(_, open)| open.serial.0).collect();
        forget_notes(share, &serials, may_wait);
        of_share.iter().for_each(|(_, open)| open.is_forgotten.store(true, Ordering::Release));
    }
}

/// Rights with which a file is changed, whose last handle may have something to write.
const CHANGES: AccessMask = AccessMask::WRITE_DATA
    .union(AccessMask::APPEND_DATA)
    .union(AccessMask::WRITE_ATTRIBUTES)
    .union(AccessMask::WRITE_EA);

#[cfg(test)]
mod tests;
