//! How an open leaves its node: with what it held, and with the file, if that was to go with its last open.
//!
//! ```text
//!  Open::close ---------------+                  +--> others have it open: the wish to delete stays with the file
//!  a CREATE that has failed --+--> Node::leave --+--> streams of it are open: it goes with the last of them
//!  an open not restored ------+                  +--> Left::finish removes the name, and then lets others in
//! ```
//!
//! This is the only way out of a node: whoever left it another way would swallow the deletion of a file whose last
//! other open was closed meanwhile.
//!
//! Spec: MS-FSA §2.1.5.4 (close).

use std::sync::Arc;

use tracing::warn;

use super::locks::OpenSerial;
use super::node::{Node, OpenRecord};
use crate::access::MayRemove;
use crate::share::ShareError;

/// Why an open leaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Leaving {
    /// It is closed. Its wish to delete passes to the file, if it had one.
    Closed,
    /// It is closed, or never was open for its client; the file does not go for its sake.
    WithoutWish,
}

/// What is left to do when an open has left its node.
#[derive(Debug)]
#[must_use]
pub(crate) struct Left<'a> {
    node: &'a Node,
    serial: OpenSerial,
    doomed: Option<(OpenRecord, MayRemove)>,
    base: Option<Arc<Node>>,
}

impl Node {
    /// Takes an open out, with its locks and its part in a lease. `None`: it is not there, or no more.
    pub(crate) fn leave(&self, serial: OpenSerial, leaving: Leaving) -> Option<Left<'_>> {
        let mut state = self.lock();
        let at = state.opens.iter().position(|open| open.serial == serial)?;
        let record = state.opens.swap_remove(at);
        state.locks.release(serial);
        if record.has_lease {
            state.close_lease(record.owner);
        }
        // MS-FSA §2.1.5.4: the wish to delete passes from the handle to the file.
        let wish = record.delete_on_close.filter(|_| leaving == Leaving::Closed);
        state.delete_pending = state.delete_pending.or(wish);
        let base = record.base.clone();
        let last = state.delete_pending.filter(|_| state.opens.is_empty());
        let now = wish.filter(|_| last.is_none() && state.unlink(&record));
        let doomed = match (last, now) {
            (Some(leave), _) if !state.streams.is_empty() => {
                state.doomed = Some((record, leave));
                None
            }
            (Some(leave), _) | (None, Some(leave)) => {
                state.removing = true;
                Some((record, leave))
            }
            (None, None) => None,
        };
        Some(Left { node: self, serial, doomed, base })
    }

    /// A stream of the file is open no more: the file goes now, if it was only waiting for that. May block.
    pub(crate) fn leave_stream(&self, serial: OpenSerial) -> Result<(), ShareError> {
        let doomed = {
            let mut state = self.lock();
            state.streams.retain(|hold| hold.serial != serial);
            let goes = state.streams.is_empty() && state.opens.is_empty();
            let doomed = if goes { state.doomed.take() } else { None };
            state.removing |= doomed.is_some();
            doomed
        };
        let Some((record, leave)) = doomed else { return Ok(()) };
        // A stream is kept of files and of directories.
        let share = &record.share;
        let removed = share
            .remove(leave, &record.path, self.key(), false)
            .or_else(|_| share.remove(leave, &record.path, self.key(), true));
        drop(record);
        self.end_removal();
        removed
    }

    /// An open leaves that its client never got: [`Node::leave`] and [`Left::finish`]. May block.
    pub(crate) fn fail(
        &self,
        serial: OpenSerial,
        remove: impl FnOnce(&OpenRecord, MayRemove) -> Result<(), ShareError>,
    ) {
        let left = self.leave(serial, Leaving::WithoutWish);
        if let Some(Err(error)) = left.map(|left| left.finish(remove)) {
            warn!(serial = serial.0, %error, "a file to be deleted on close stays");
        }
    }
}

impl Left<'_> {
    /// Removes what went with the open, by `remove`, and lets in who waits for it. May block.
    pub(crate) fn finish(
        self,
        remove: impl FnOnce(&OpenRecord, MayRemove) -> Result<(), ShareError>,
    ) -> Result<(), ShareError> {
        let Self { node, serial, doomed, base } = self;
        // Who waits for this open to go finds the name gone too.
        let removed = match doomed {
            Some((record, leave)) => {
                let removed = remove(&record, leave);
                drop(record);
                node.end_removal();
                removed
            }
            None => Ok(()),
        };
        let finished = base.map_or(Ok(()), |base| base.leave_stream(serial));
        removed.and(finished)
    }
}
