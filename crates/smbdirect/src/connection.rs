//! An established connection: whole SMB2 messages in and out, credits and keepalives between.
//!
//! ```text
//!                     what makes a message leave (poll_transmit)
//!   queue not empty ------> a fragment, with whatever credits there are to grant
//!   answer requested -----> the same, or an empty message when the queue is
//!   keepalive due --------> the same, asking for an answer
//!   peer short of credits > the same
//!                     what holds it back: no send credit, or the last one with none to grant
//! ```
//!
//! Spec: MS-SMBD §3.1.4.2, §3.1.5.1, §3.1.5.4, §3.1.5.8, §3.1.5.9, §3.1.7.2.

use std::time::Instant;

use crate::config::MESSAGE_SIZE_FLOOR;
use crate::credits::Credits;
use crate::data_transfer::DataTransfer;
use crate::descriptor::Token;
use crate::error::CloseReason;
use crate::keepalive::{Expired, Keepalive};
use crate::negotiate::Agreement;
use crate::reassembly::Reassembly;
use crate::send_queue::{SendError, SendQueue, Unsent};

/// One side of an established connection.
#[derive(Debug)]
pub struct Connection {
    send_size_max: usize,
    receive_size_max: u32,
    send_credit_target: u16,
    credits: Credits,
    queue: SendQueue,
    reassembly: Reassembly,
    keepalive: Keepalive,
    answer_due: bool,
    closed: Option<CloseReason>,
}

/// A message in the caller's buffer, to be posted as one RDMA Send.
#[derive(Debug, Eq, PartialEq)]
pub struct Transmit {
    /// Bytes of the message, from the start of the buffer.
    pub len: usize,
    /// The peer's token to invalidate with this Send.
    pub invalidate: Option<Token>,
    /// The SMB2 message whose last fragment this message carries: its buffer may be used again.
    pub finished: Option<Vec<u8>>,
}

impl Connection {
    /// Starts a connection on the terms of a negotiation.
    pub fn new(agreement: Agreement, now: Instant) -> Self {
        let floor = MESSAGE_SIZE_FLOOR;
        Self {
            send_size_max: usize::try_from(agreement.send_size_max.max(floor))
                .expect("a message size fits in memory"),
            receive_size_max: agreement.receive_size_max,
            send_credit_target: agreement.send_credit_target,
            credits: agreement.credits,
            queue: SendQueue::new(agreement.fragmented_send_size_max),
            reassembly: Reassembly::new(agreement.fragmented_receive_size_max),
            keepalive: Keepalive::heard(now),
            answer_due: false,
            closed: None,
        }
    }

    /// Queues a whole SMB2 message. `invalidate` names the peer's token that its last fragment
    /// shall invalidate.
    ///
    /// # Errors
    /// The message comes back with the reason. [`SendError::QueueFull`] is back-pressure.
    pub fn send(&mut self, message: Vec<u8>, invalidate: Option<Token>) -> Result<(), Unsent> {
        if let Some(reason) = self.closed {
            return Err(Unsent { reason: SendError::Closed(reason), message });
        }
        self.queue.push(message, invalidate)
    }

    /// Tells the machine that the caller posted `count` more receive buffers to the queue pair.
    pub fn receives_posted(&mut self, count: u16) {
        self.credits.posted(count);
    }

    /// Feeds the content of one receive buffer; returns the SMB2 message that it completes, if any.
    ///
    /// The caller may use the buffer again once it has processed the message; after the caller posts the
    /// buffer again, [`Connection::receives_posted`] makes a credit of it.
    ///
    /// # Errors
    /// The reason why the caller has to drop the connection, which stays closed.
    pub fn handle_receive<'a>(
        &'a mut self,
        now: Instant,
        message: &'a [u8],
    ) -> Result<Option<&'a [u8]>, CloseReason> {
        if let Some(reason) = self.closed {
            return Err(reason);
        }
        match self.accept(now, message) {
            Ok((header, payload)) => match self.reassembly.push(&header, payload) {
                Ok(message) => Ok(message),
                Err(reason) => Err(*self.closed.insert(reason)),
            },
            Err(reason) => Err(*self.closed.insert(reason)),
        }
    }

    /// Writes the next message into `out`, if one is due and may leave.
    ///
    /// The caller repeats the call until it returns `None`, or as long as the queue pair takes Sends.
    ///
    /// # Panics
    /// When `out` is smaller than the agreed `send_size_max`.
    pub fn poll_transmit(&mut self, out: &mut [u8]) -> Option<Transmit> {
        assert!(out.len() >= self.send_size_max, "the transmit buffer is smaller than agreed");
        if self.closed.is_some() || !self.is_due() {
            return None;
        }
        let credits_granted = self.credits.spend()?;
        let (head, room) = out
            .split_first_chunk_mut::<{ DataTransfer::PAYLOAD_OFFSET }>()
            .expect("a transmit buffer holds more than a header");
        let room = &mut room[..self.send_size_max - DataTransfer::PAYLOAD_OFFSET];
        let fragment = self.queue.next_fragment(room);
        let (payload_len, remaining) =
            fragment.as_ref().map_or((0, 0), |fragment| (fragment.len, fragment.remaining));
        let header = DataTransfer {
            credits_requested: self.send_credit_target,
            credits_granted,
            // Deviates: by §3.1.5.8 an answer asks for an answer in turn, without end.
            response_requested: self.keepalive.is_due(),
            remaining,
        };
        let head_len = header.emit(payload_len, head);
        if header.response_requested {
            self.keepalive.asked();
        }
        self.answer_due = false;
        let (finished, invalidate) = fragment
            .and_then(|fragment| fragment.finished)
            .map_or((None, None), |finished| (Some(finished.message), finished.invalidate));
        let len = head_len + usize::try_from(payload_len).expect("it lies in the buffer");
        Some(Transmit { len, invalidate, finished })
    }

    /// When [`Connection::handle_timeout`] next has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.closed.is_none().then(|| self.keepalive.deadline())
    }

    /// Tells the machine the present time.
    ///
    /// # Errors
    /// The reason why the caller has to drop the connection, which stays closed.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), CloseReason> {
        if let Some(reason) = self.closed {
            return Err(reason);
        }
        match self.keepalive.expire(now) {
            None => Ok(()),
            Some(Expired::Ask) => {
                // After two minutes without a message the connection frees its unused memory.
                self.reassembly.release();
                Ok(())
            }
            Some(Expired::GiveUp) => {
                let reason = if self.credits.with_peer() == 0 {
                    CloseReason::LocalReceivesWithheld
                } else {
                    CloseReason::PeerSilent
                };
                Err(*self.closed.insert(reason))
            }
        }
    }

    /// Bytes of memory that keep the parts of a message that have come, or that kept them.
    pub fn reassembly_bytes(&self) -> usize {
        self.reassembly.bytes()
    }

    /// Bytes of messages of several fragments that have come since the start. Headers, and what stands behind a payload,
    /// do not count.
    pub fn reassembled(&self) -> u64 {
        self.reassembly.taken()
    }

    /// Whether a part of a message has come, and the rest is awaited.
    pub fn is_mid_message(&self) -> bool {
        self.reassembly.is_mid_message()
    }

    /// Frees the memory of messages that came in parts, if none has come since the last call.
    pub fn release_idle(&mut self) {
        self.reassembly.release_idle();
    }

    /// Ends the connection from this side. Nothing is sent; the caller drops the queue pair.
    pub fn close(&mut self) {
        self.closed.get_or_insert(CloseReason::LocalClosed);
    }

    /// The reason why the connection has ended, once it has ended.
    pub fn closed(&self) -> Option<CloseReason> {
        self.closed
    }

    /// SMB2 messages that wait to leave, including the message of which some fragments have left.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Messages that this side may send before the peer grants more.
    pub fn send_credits(&self) -> u16 {
        self.credits.held()
    }

    /// Messages that the peer may send before this side grants more.
    pub fn receive_credits(&self) -> u16 {
        self.credits.with_peer()
    }

    fn is_due(&self) -> bool {
        !self.queue.is_empty()
            || self.answer_due
            || self.keepalive.is_due()
            || self.credits.grant_due()
    }

    /// Applies every effect of a message except the reassembly.
    fn accept<'m>(
        &mut self,
        now: Instant,
        message: &'m [u8],
    ) -> Result<(DataTransfer, &'m [u8]), CloseReason> {
        let max = self.receive_size_max;
        if message.len() as u64 > u64::from(max) {
            return Err(CloseReason::PeerOversized { got: message.len(), max });
        }
        let (header, payload) = DataTransfer::parse(message)?;
        self.credits.arrived(!payload.is_empty())?;
        self.credits.requested(header.credits_requested);
        self.credits.gained(header.credits_granted);
        self.answer_due |= header.response_requested;
        self.keepalive = Keepalive::heard(now);
        Ok((header, payload))
    }
}
