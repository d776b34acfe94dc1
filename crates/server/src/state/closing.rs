//! How an open ends: where closing it may begin, and what is left for a thread that may wait.
//!
//! Spec: MS-FSA §2.1.5.4 (close), MS-SMB2 §3.3.4.17.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use smb::create::AccessMask;
use tracing::{debug, warn};
use tree::{InlineIo, Share, ShareError};

use super::caching::Intent;
use super::files::Files;
use super::leave::{Leaving, Left};
use super::node::OpenRecord;
use super::open::{CLOSED, HANDED_OVER, Open};
use super::wish::Wished;
use super::wish_notes;

impl Open {
    /// Ends the open: its regions, locks, lease and share modes go, and the file itself if it was
    /// to be deleted and this was its last open. May block. The second call does nothing.
    pub(crate) fn close(&self, files: &Files) -> Result<(), ShareError> {
        if self.begin_close() { self.finish_close(files, Closing::Begun) } else { Ok(()) }
    }

    /// [`Open::close`] as far as it waits for nobody: where the wish to delete stays, a change is under way, or the removal
    /// of a name would wait, something is left for [`Open::finish_close`] on a thread that may wait.
    pub(crate) fn close_on_the_spot(
        &self,
        files: &Files,
    ) -> ControlFlow<Result<(), ShareError>, Closing> {
        if !self.begin_close() {
            return ControlFlow::Break(Ok(()));
        }
        if self.changes.try_write().is_none() {
            return ControlFlow::Continue(Closing::Begun);
        }
        let Some(left) = self.leave(files) else { return ControlFlow::Break(Ok(())) };
        let left = if left.leaves_wish() {
            ControlFlow::Continue(left)
        } else {
            left.finish_on_the_spot(|Wished { share, path, leave, .. }| {
                share.remove_on_the_spot(*leave, path, self.node.key())
            })
        };
        left.map_continue(|left| Closing::Left(Box::new(left)))
    }

    /// The rest of a close. May block.
    pub(crate) fn finish_close(&self, files: &Files, closing: Closing) -> Result<(), ShareError> {
        let left = match closing {
            Closing::Left(left) => Some(*left),
            Closing::Begun => {
                self.settle_changes();
                self.leave(files)
            }
        };
        left.map_or(Ok(()), |left| self.finish_leaving(left))
    }

    // No request begins a change from here on. `false`: somebody else closes it, or has.
    fn begin_close(&self) -> bool {
        let begins = !matches!(self.life.swap(CLOSED, Ordering::AcqRel), CLOSED | HANDED_OVER);
        if begins {
            self.closed.notify_waiters();
        }
        begins
    }

    fn leave(&self, files: &Files) -> Option<Left> {
        files.observer.closing(self);
        self.set_used(&files.creates);
        self.forget_note();
        let keeps = self.keeps_directory();
        let leaving = if keeps { Leaving::WithoutWish } else { Leaving::Closed };
        let left = self.node.leave(self.serial, leaving)?;
        // Its CREATE may have noted it meanwhile: it looks for the record just removed afterwards.
        self.forget_note();
        Some(left)
    }

    fn finish_leaving(&self, left: Left) -> Result<(), ShareError> {
        // Those that are left know of the wish that it leaves behind: what they only cache keeps the name no longer.
        let noted = match left.leaves_wish() {
            true => {
                self.node.begin_breaks(self.owner, Intent::Unlink);
                self.node.begin_breaks_of_streams(self.owner, Intent::Unlink, |_| true);
                wish_notes::write_durably(&self.node)
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

    /// Nothing of it comes back after a crash. Costs nothing the second time.
    pub(crate) fn forget_note(&self) {
        if self.is_persistent()
            && let Some(share) = self.tree.share()
        {
            forget_note(share, self.serial.0);
        }
    }
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

/// The open does not come back after a crash.
pub(super) fn forget_note(share: &Share, serial: u64) {
    if let Some(Err(error)) = share.journal().map(|journal| journal.close(serial)) {
        warn!(serial, %error, "a closed open may come back after a crash");
    }
}

/// Closes opens whose client does not come back. May block.
pub(crate) fn close_all(files: &Files, orphans: Vec<Arc<Open>>) {
    for open in orphans {
        debug!(serial = open.serial.0, "a durable open is given up");
        if let Err(error) = open.close(files) {
            warn!(serial = open.serial.0, %error, "a file to be deleted on close stays");
        }
    }
}

/// Rights with which a file is changed, whose last handle may have something to write.
const CHANGES: AccessMask = AccessMask::WRITE_DATA
    .union(AccessMask::APPEND_DATA)
    .union(AccessMask::WRITE_ATTRIBUTES)
    .union(AccessMask::WRITE_EA);
