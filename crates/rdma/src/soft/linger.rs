//! A connection that closes gracefully: the last bytes leave, then this end waits for the peer to
//! close.
//!
//! Closing at once while input is unread would make TCP reset the connection, and the reset could
//! overtake our last bytes. So this end reads and drops input for a bounded time.

use super::byte_queue::ByteQueue;
use super::socket::{ByteStream as _, Socket, Transfer};
use crate::common::poller::Interest;

/// See the module.
#[derive(Debug)]
pub(super) struct Linger {
    pub(super) socket: Socket,
    pub(super) number: u64,
    transmit: ByteQueue,
    finished: bool,
}

impl Linger {
    pub(super) fn new(mut socket: Socket, number: u64, transmit: ByteQueue) -> Self {
        // The first step looks for input that is there already.
        socket.rest(Interest::READ);
        Self { socket, number, transmit, finished: false }
    }

    /// Sends, and drops input. `false`: the connection is over. `sent` sees the bytes that left.
    pub(super) fn advance(&mut self, waste: &mut [u8], mut sent: impl FnMut(&[u8])) -> bool {
        // What is received can open the way for what is to be sent.
        self.step(waste, &mut sent)
            && (!self.is_sending() || !self.socket.takes_again() || self.step(waste, &mut sent))
    }

    fn step(&mut self, waste: &mut [u8], mut sent: impl FnMut(&[u8])) -> bool {
        while !self.transmit.is_empty() {
            let queued = self.transmit.queued();
            match self.socket.send(queued, false) {
                Transfer::Bytes(len) => {
                    sent(queued.get(..len).unwrap_or_default());
                    self.transmit.consume(len);
                }
                Transfer::Blocked => break,
                Transfer::Closed | Transfer::Lost(_) | Transfer::Garbled => return false,
            }
        }
        if self.transmit.is_empty() && !self.finished {
            self.socket.finish();
            self.finished = true;
        }
        // One buffer per call: a peer that keeps sending gets no more of our time than others.
        matches!(self.socket.receive(waste), Transfer::Bytes(_) | Transfer::Blocked)
    }

    /// Whether bytes are left that TCP did not take yet.
    pub(super) fn is_sending(&self) -> bool {
        !self.transmit.is_empty()
    }
}
