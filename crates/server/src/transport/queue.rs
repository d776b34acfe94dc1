//! The queue of a connection over TCP: what others than its task have for its peer.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::state::{Outbox, Parcel};

/// What others put into a connection's queue.
#[derive(Debug)]
pub(super) enum Outgoing {
    Frame(Parcel),
    Close,
}

/// Puts into it.
#[derive(Debug)]
pub(super) struct Queue(UnboundedSender<Outgoing>);

impl Queue {
    /// An empty one, and its other end.
    pub(super) fn new() -> (Self, UnboundedReceiver<Outgoing>) {
        let (sender, queue) = unbounded_channel();
        (Self(sender), queue)
    }
}

impl Outbox for Queue {
    fn deliver(&self, parcel: Parcel) {
        // The connection may have ended: then nobody waits for the answer.
        let _ = self.0.send(Outgoing::Frame(parcel));
    }

    fn close(&self) {
        let _ = self.0.send(Outgoing::Close);
    }
}
