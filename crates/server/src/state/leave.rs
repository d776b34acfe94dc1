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
use super::wished::Wished;
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
    // Its lease's key is free once the names have gone.
    record: OpenRecord,
    doomed: Vec<Wished>,
    leaves_wish: bool,
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
        if let Some(leave) = wish {
            state.wish(&record, leave);
        }
        let base = record.base.clone();
        let mut doomed = state.take_wished();
        if wish.is_some() && state.is_record_to_go(&record) && state.unlink(&record) {
            doomed.extend(state.take_wished_of(&record));
        }
        let leaves_wish = wish.is_some() && state.is_record_to_go(&record);
        if !doomed.is_empty() {
            state.begin_removal();
        }
        Some(Left { node: self, serial, record, doomed, leaves_wish, base })
    }

    /// A stream of the file is open no more: the file goes now, if it was only waiting for that. May block.
    pub(crate) fn leave_stream(&self, serial: OpenSerial) -> Result<(), ShareError> {
        let doomed = {
            let mut state = self.lock();
            state.streams.retain(|hold| hold.serial != serial);
            let doomed = state.take_wished();
            if !doomed.is_empty() {
                state.begin_removal();
            }
            doomed
        };
        // A stream is kept of files and of directories.
        let remove = |Wished { share, path, leave }: &Wished| {
            share
                .remove(*leave, path, self.key(), false)
                .or_else(|_| share.remove(*leave, path, self.key(), true))
        };
        self.remove_all(&doomed, remove)
    }

    // What was taken out of the wishes; whoever waits for it is let in.
    fn remove_all(
        &self,
        doomed: &[Wished],
        remove: impl Fn(&Wished) -> Result<(), ShareError>,
    ) -> Result<(), ShareError> {
        if doomed.is_empty() {
            return Ok(());
        }
        let removed = doomed.iter().map(remove).fold(Ok(()), Result::and);
        self.end_removal();
        removed
    }

    /// An open leaves that its client never got: [`Node::leave`] and [`Left::finish`]. May block.
    pub(crate) fn fail(
        &self,
        serial: OpenSerial,
        remove: impl Fn(&Wished) -> Result<(), ShareError>,
    ) {
        let left = self.leave(serial, Leaving::WithoutWish);
        if let Some(Err(error)) = left.map(|left| left.finish(remove)) {
            warn!(serial = serial.0, %error, "a file to be deleted on close stays");
        }
    }
}

impl Left<'_> {
    /// Whether those that are left have its wish to delete from now on.
    pub(crate) fn leaves_wish(&self) -> bool {
        self.leaves_wish
    }

    /// Removes what went with the open, by `remove`, and lets in who waits for it. May block.
    pub(crate) fn finish(
        self,
        remove: impl Fn(&Wished) -> Result<(), ShareError>,
    ) -> Result<(), ShareError> {
        let Self { node, serial, record, doomed, base, .. } = self;
        // Whoever waits for this open to go finds the name gone too.
        let removed = node.remove_all(&doomed, remove);
        drop(record);
        let finished = base.map_or(Ok(()), |base| base.leave_stream(serial));
        removed.and(finished)
    }
}
