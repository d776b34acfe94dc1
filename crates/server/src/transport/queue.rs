//! The queue of a TCP connection: items from other tasks for its peer.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::connections::{Outbox, Parcel};

/// An item in a connection's queue.
#[derive(Debug)]
pub(super) enum Outgoing {
    Frame(Parcel),
    Close,
}

/// The sending end of the queue.
#[derive(Debug)]
pub(super) struct Queue(UnboundedSender<Outgoing>);

impl Queue {
    /// An empty queue, and its receiving end.
    pub(super) fn new() -> (Self, UnboundedReceiver<Outgoing>) {
        let (sender, queue) = unbounded_channel();
        (Self(sender), queue)
    }
}

impl Outbox for Queue {
    fn deliver(&self, parcel: Parcel) {
        // The connection may have ended: then no peer waits for the answer.
        let _ = self.0.send(Outgoing::Frame(parcel));
    }

    fn close(&self) {
        let _ = self.0.send(Outgoing::Close);
    }
}
