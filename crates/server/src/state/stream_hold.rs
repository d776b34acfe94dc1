//! Streams of a file that are open: what the file's node knows of them, and how clients that only cache a handle of one
//! are asked for it.
//!
//! ```text
//!  to open a stream       file's node locked: to go, claimed, renamed, opened to be deleted? wait, or refused
//!                                             none of these: it is held --> the stream's own node
//!  to move, delete or     ask for cached handles of held streams --> wait for the answers --> is one held still?
//!  empty the file
//! ```
//!
//! Spec: MS-FSA §2.1.5.1.2.1 (a file's deletion and the opens of its streams), §2.1.5.15.11 (rename: each stream of the
//! file that is replaced), §2.1.4.2 (each stream of a file below a directory), §2.1.4.12 (breaks).

use std::sync::{Arc, Weak};

use super::caching::Intent;
use super::lease::Owner;
use super::node::{Node, NodeState, StreamHold};
use super::serial::OpenSerial;
use super::sharing::Sharing;

impl StreamHold {
    /// By an open whose stream has no node yet.
    pub(crate) fn new(serial: OpenSerial, sharing: Sharing) -> Self {
        // An open that only looks excludes nobody.
        let shares_delete = sharing.shares.delete || sharing.uses.is_empty();
        Self { serial, shares_delete, stream: Weak::new() }
    }

    /// The same where `stream` is the stream's node.
    pub(crate) fn of(self, stream: &Arc<Node>) -> Self {
        Self { stream: Arc::downgrade(stream), ..self }
    }
}

impl NodeState {
    /// The stream that an open makes has its node.
    pub(crate) fn note_stream(&mut self, serial: OpenSerial, stream: &Arc<Node>) {
        if let Some(hold) = self.streams.iter_mut().find(|hold| hold.serial == serial) {
            hold.stream = Arc::downgrade(stream);
        }
    }
}

impl Node {
    /// Breaks what `intent` of `by` makes necessary of the streams whose holds `wanted` picks, and tells the holders. Returns
    /// the streams of which an answer is owed: all holders are asked before the first answer is waited for.
    pub(crate) fn begin_breaks_of_streams(
        &self,
        by: Owner,
        intent: Intent,
        wanted: impl Fn(&StreamHold) -> bool,
    ) -> Vec<Arc<Self>> {
        let mut streams: Vec<_> = {
            let state = self.lock();
            let wanted = state.streams.iter().filter(|hold| wanted(hold));
            wanted.filter_map(|hold| hold.stream.upgrade()).collect()
        };
        // A stream has a hold for each of its opens.
        streams.sort_unstable_by_key(Arc::as_ptr);
        streams.dedup_by(|one, other| Arc::ptr_eq(one, other));
        streams.retain(|stream| stream.begin_breaks(by, intent).is_some());
        streams
    }
}
