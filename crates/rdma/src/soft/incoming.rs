//! An incoming connection until the owner has answered its request. It costs little memory.

use std::net::SocketAddr;
use std::time::Instant;

use iwarp::mpa::{Responder, StartConfig};
use iwarp::{Agreement, mpa::MpaError};

use super::socket::{ByteStream as _, Socket, Transfer};
use crate::interface::WireHook;

/// See the module.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) socket: Socket,
    pub(super) number: u64,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    machine: Responder,
    /// The bytes received so far, at most one request frame: the answer depends on the frame and on
    /// the configuration that the owner gives when it accepts.
    request: Vec<u8>,
    /// The owner has the request.
    pub(super) asked: bool,
}

/// The state of the request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Asked {
    /// No change.
    Pending,
    /// The owner is to decide; the private data of the peer.
    Ask(Vec<u8>),
    /// The connection is to be closed.
    Over,
}

impl Incoming {
    pub(super) fn new(
        socket: Socket,
        number: u64,
        start: StartConfig,
        now: Instant,
    ) -> Option<Self> {
        let (local, peer) = socket.addresses()?;
        let machine = Responder::new(start, now).ok()?;
        let request = Vec::new();
        Some(Self { socket, number, local, peer, machine, request, asked: false })
    }

    /// Reads from the socket when it is ready.
    pub(super) fn advance(&mut self, hook: Option<&dyn WireHook>) -> Asked {
        let mut bytes = [0; REQUEST_MAX];
        match self.socket.receive_shown(&mut bytes, hook, self.number) {
            Transfer::Bytes(len) => {
                let bytes = bytes.get(..len).unwrap_or_default();
                let taken = self.machine.handle_bytes(bytes);
                self.request.extend_from_slice(bytes.get(..taken).unwrap_or_default());
            }
            Transfer::Blocked => {}
            Transfer::Closed | Transfer::Lost(_) | Transfer::Garbled => self.machine.handle_close(),
        }
        if self.machine.outcome().is_some() {
            return Asked::Over;
        }
        match self.machine.request() {
            Some(request) if !self.asked => Asked::Ask(request.private_data.to_vec()),
            _ => Asked::Pending,
        }
    }

    /// Whether the time is over.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        self.machine.handle_timeout(now);
        self.machine.outcome().is_some()
    }

    /// Accepts: returns the agreement and the reply to send.
    pub(super) fn accept(
        &self,
        start: StartConfig,
        private_data: &[u8],
        now: Instant,
    ) -> Result<(Agreement, Vec<u8>), MpaError> {
        let mut machine = Responder::new(start, now)?;
        machine.handle_bytes(&self.request);
        let agreement = machine.accept(private_data)?;
        Ok((agreement, machine.poll_transmit().unwrap_or_default()))
    }

    /// Rejects the request.
    pub(super) fn reject(mut self, private_data: &[u8]) -> (Socket, u64, Vec<u8>) {
        // A rejection whose private data is too long is still sent, without it.
        if self.machine.reject(private_data).is_err() {
            let _ = self.machine.reject(&[]);
        }
        let reply = self.machine.poll_transmit().unwrap_or_default();
        (self.socket, self.number, reply)
    }
}

/// A request frame takes at most 20 bytes and 512 of private data.
const REQUEST_MAX: usize = 640;
