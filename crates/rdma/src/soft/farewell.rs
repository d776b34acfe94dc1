//! Ends a connection: the peer gets a Terminate or the queued bytes, the owner gets every request
//! back, the socket closes.
//!
//! ```text
//!   Up --end--> flush: requests, receives --> (a worker's last batch) --> Disconnected
//!    \--------> Linger: Terminate or what was queued, FIN --> peer's FIN, or time over --> closed
//! ```
//!
//! Spec: RFC 5040 §4.8 (nothing follows a Terminate), RFC 5044 §7.4 (graceful close).

use std::mem;
use std::time::Duration;

use super::byte_queue::ByteQueue;
use super::engine::SoftEngine;
use super::linger::Linger;
use super::link::Link;
use super::qp::{End, Phase};
use super::receive::code_of;
use super::socket::{ByteStream as _, Socket};
use super::token::Token;
use crate::common::poller::Interest;
use crate::common::timers::Due;
use crate::interface::{DisconnectReason, Event, TerminateCode, WcStatus};
use basics::Key;

impl SoftEngine {
    /// Ends a connection for good: tells the peer, flushes, drops the link.
    pub(super) fn end(&mut self, key: Key, end: End) {
        let Some(qp) = self.qps.get_mut(key) else { return };
        let placeholder = Phase::Draining(DisconnectReason::Local);
        let mut link = match mem::replace(&mut qp.phase, placeholder) {
            Phase::Up(link) => link,
            Phase::Draining(reason) => {
                qp.phase = Phase::Draining(reason);
                return;
            }
            Phase::Dialing(dialing) => {
                self.connections.dialling -= 1;
                let number = dialing.number;
                drop(dialing);
                self.closed(number);
                self.flush(key, DisconnectReason::Local, WcStatus::Flushed);
                return;
            }
        };
        let (reason, status) = match end {
            End::Fault(fault) => {
                let (cause, segment) = fault.cause(&link.stream);
                let terminate = link.stream.terminate(cause, segment);
                let code = terminate.map(|terminate| code_of(terminate.code));
                if let Some(terminate) = terminate {
                    link.frame_terminate(&terminate, &mut self.context);
                }
                let unspoken = TerminateCode { layer: 0, etype: 0, code: 0 };
                (fault.reason(code.unwrap_or(unspoken)), fault.status())
            }
            End::Reason(reason @ DisconnectReason::PeerTerminated(code)) => {
                (reason, status_of(code))
            }
            End::Reason(reason) => (reason, WcStatus::Flushed),
        };
        self.active.retain(|index| *index != key.index);
        let Link { socket, number, transmit, .. } = *link;
        if matches!(reason, DisconnectReason::HostIo { .. }) {
            socket.unwatch(&self.context.poller);
            self.closed(number);
        } else {
            self.linger(socket, number, transmit);
        }
        self.flush(key, reason, status);
    }

    /// Completes all requests, and the queue pair itself unless a worker still has its batch.
    fn flush(&mut self, key: Key, reason: DisconnectReason, status: WcStatus) {
        let Some(qp) = self.qps.get_mut(key) else { return };
        let id = qp.id();
        qp.requester.flush(id, status, &mut self.context.events);
        qp.receives.flush(id, &mut self.context.events);
        qp.responder.forget();
        qp.deferral.forget();
        qp.phase = Phase::Draining(reason);
        if !qp.deferral.is_running() {
            self.drained(key);
        }
    }

    /// Reports the end of a queue pair whose last batch has come back, or that had none.
    pub(super) fn drained(&mut self, key: Key) {
        let Some(qp) = self.qps.remove(key) else { return };
        self.context.regions.drop_all(qp.id());
        if let Phase::Draining(reason) = qp.phase {
            self.context.events.push(Event::Disconnected { qp: qp.id(), reason });
        }
    }

    /// Sends the last bytes of a connection and waits a while for the peer to close.
    pub(super) fn linger(&mut self, socket: Socket, number: u64, transmit: ByteQueue) {
        socket.unwatch(&self.context.poller);
        let linger = Linger::new(socket, number, transmit);
        let Ok(key) = self.connections.lingering.insert(linger) else {
            // Too many connections are closing at once: this one is closed without its last bytes.
            self.closed(number);
            return;
        };
        if !self.step_linger(key) {
            return;
        }
        let Some(linger) = self.connections.lingering.get(key) else { return };
        let interest = Interest { read: true, write: linger.is_sending() };
        let token = Token::Linger(key.index);
        if linger.socket.watch(&self.context.poller, token, interest).is_err() {
            self.drop_linger(key);
            return;
        }
        self.timers.after(LINGER_TIMEOUT, Due::linger(key));
    }

    /// Sends, and drops input; `false`: the connection is closed.
    fn step_linger(&mut self, key: Key) -> bool {
        let Some(linger) = self.connections.lingering.get_mut(key) else { return false };
        let (hook, number) = (self.context.hook.clone(), linger.number);
        let sent = |bytes: &[u8]| {
            if let Some(hook) = &hook {
                hook.sent(number, bytes);
            }
        };
        let goes_on = linger.advance(&mut self.context.bounce, sent);
        if !goes_on {
            self.drop_linger(key);
        }
        goes_on
    }

    pub(super) fn advance_linger(&mut self, index: u32) -> bool {
        let Some((key, _)) = self.connections.lingering.at(index) else { return false };
        if self.step_linger(key)
            && let Some(linger) = self.connections.lingering.get(key)
            && !linger.is_sending()
        {
            let token = Token::Linger(key.index);
            linger.socket.rewatch(&self.context.poller, token, Interest::READ);
        }
        true
    }

    pub(super) fn drop_linger(&mut self, key: Key) {
        if let Some(linger) = self.connections.lingering.remove(key) {
            linger.socket.unwatch(&self.context.poller);
            self.closed(linger.number);
        }
    }
}

/// Status of the oldest unanswered request when the peer reports an error.
fn status_of(code: TerminateCode) -> WcStatus {
    // RFC 5040 §4.8, RFC 5041 §7.2: type 1 of layers 0 and 1 is about memory.
    if code.layer <= 1 && code.etype == 1 {
        WcStatus::RemoteAccess
    } else {
        WcStatus::RemoteOperation
    }
}

/// Connections that close gracefully at once; each keeps its socket and the bytes it could not send
/// yet.
pub(super) const LINGER_MAX: u32 = 256;
/// How long a graceful close may take.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
