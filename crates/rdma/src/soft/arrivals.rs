//! Incoming connections, until the owner or another engine has their request.
//!
//! ```text
//!   accept(2) --> half open --> asked --> accept, reject        (`connections`)
//!                                |  hand over
//!                                +----------> asked, at another engine
//! ```
//!
//! Spec: RFC 5044 §7.1.2 (the initiator speaks first).

use std::mem;
use std::time::Duration;

use basics::Key;
use tracing::warn;

use super::dial::start_config;
use super::engine::SoftEngine;
use super::incoming::{Asked, Incoming};
use super::socket::{Arrival, ByteStream as _, Socket};
use super::token::Token;
use crate::common::poller::Interest;
use crate::common::timers::Due;
use crate::interface::{ConnectionId, Event, Handover, QpConfig};

impl SoftEngine {
    /// Takes new connections off a listener.
    pub(super) fn accept_connections(&mut self, index: u32) {
        for _ in 0..ACCEPTS_PER_ROUND {
            let listener = usize::try_from(index).ok();
            let listener = listener.and_then(|index| self.connections.listeners.get(index));
            let Some(listener) = listener else { return };
            match listener.accept(self.config.silence_max) {
                Ok(Arrival::Socket(socket)) => {
                    self.make_room();
                    self.take_in(socket);
                }
                Ok(Arrival::Gone) => {}
                Ok(Arrival::Nobody) => return,
                Err(errno) => {
                    // Most likely the process has no descriptors left: wait until connections that
                    // close give some back.
                    warn!(%errno, "cannot accept connections; raise the limit of open files");
                    self.watch_listener(index, Interest::NONE);
                    self.timers.after(ACCEPT_PAUSE, Due::Accept { index });
                    return;
                }
            }
        }
    }

    /// Tells epoll whether to report connections that wait at a listener.
    pub(super) fn watch_listener(&self, index: u32, interest: Interest) {
        let listener = usize::try_from(index).ok();
        let listener = listener.and_then(|index| self.connections.listeners.get(index));
        if let Some(listener) = listener {
            self.context.poller.modify(listener, Token::Listener(index).to_bits(), interest);
        }
    }

    fn take_in(&mut self, socket: Socket) {
        let number = self.connections.number();
        let (network, timeout) = (self.connections.network, self.config.handshake_timeout);
        let start = start_config(network, &QpConfig::default(), timeout);
        let Some(incoming) = Incoming::new(socket, number, start, self.timers.now()) else {
            return;
        };
        let (local, peer) = (incoming.local, incoming.peer);
        let Some(key) = self.insert_incoming(incoming) else { return };
        if let Some(hook) = &self.context.hook {
            hook.opened(number, local, peer, false);
        }
        // The initiator speaks first, so its request may have arrived: then the connection is never
        // half open.
        self.advance_incoming(key.index);
    }

    /// Lets a request go to another engine.
    pub(super) fn let_go(
        &mut self,
        ConnectionId { index, generation }: ConnectionId,
    ) -> Option<Handover> {
        if self.context.hook.is_some() {
            return None;
        }
        let incoming = self.connections.incoming.remove(Key { index, generation })?;
        incoming.socket.unwatch(&self.context.poller);
        Some(Handover(Box::new(incoming)))
    }

    /// Takes a request that another engine let go.
    pub(super) fn take_up(&mut self, handover: Handover) -> Option<ConnectionId> {
        let mut incoming = *handover.0.downcast::<Incoming>().ok()?;
        incoming.number = self.connections.number();
        self.make_room();
        let key = self.insert_incoming(incoming)?;
        Some(ConnectionId { index: key.index, generation: key.generation })
    }

    /// Puts an incoming connection under watch and gives it its time.
    fn insert_incoming(&mut self, mut incoming: Incoming) -> Option<Key> {
        let asked = mem::take(&mut incoming.asked);
        let key = self.connections.incoming.insert(incoming)?;
        let token = Token::Request(key.index);
        let added = self
            .connections
            .incoming
            .get(key)
            .map(|incoming| incoming.socket.watch(&self.context.poller, token, Interest::READ));
        if !matches!(added, Some(Ok(()))) {
            self.connections.incoming.remove(key);
            return None;
        }
        if asked {
            self.connections.incoming.asks(key);
        }
        self.sweep_timers();
        self.timers.after(self.config.handshake_timeout, Due::request(key));
        Some(key)
    }

    /// Drops the oldest handshake if all places are taken.
    fn make_room(&mut self) {
        if let Some(oldest) = self.connections.incoming.in_the_way() {
            self.context.stats.handshakes_dropped += 1;
            self.drop_incoming(oldest);
        }
    }

    /// Removes the deadlines of connections that ended before them.
    fn sweep_timers(&mut self) {
        let Self { connections, qps, timers, .. } = self;
        let living = connections.incoming.len() + connections.lingering.len() + qps.len();
        if timers.len() < TIMERS_PER_LIVING * living + TIMERS_SPARE {
            return;
        }
        timers.retain(|due| match due {
            Due::Request { index, generation } => {
                connections.incoming.get(Key { index, generation }).is_some()
            }
            Due::Dial { index, generation }
            | Due::Kick { index, generation }
            | Due::Stall { index, generation } => qps.get(Key { index, generation }).is_some(),
            Due::Accept { .. } => true,
            Due::Linger { index, generation } => {
                connections.lingering.get(Key { index, generation }).is_some()
            }
        });
    }

    /// Reads from an incoming connection that is readable.
    pub(super) fn advance_incoming(&mut self, index: u32) -> bool {
        let Some((key, incoming)) = self.connections.incoming.at(index) else { return false };
        match incoming.advance(self.context.hook.as_deref()) {
            Asked::Pending => {}
            Asked::Ask(private_data) => {
                let (peer, local) = (incoming.peer, incoming.local);
                self.connections.incoming.asks(key);
                let id = ConnectionId { index: key.index, generation: key.generation };
                let request = Event::ConnectRequest { id, peer, local, private_data };
                self.context.events.push(request);
            }
            Asked::Over => self.drop_incoming(key),
        }
        true
    }

    pub(super) fn drop_incoming(&mut self, key: Key) {
        let Some(incoming) = self.connections.incoming.remove(key) else { return };
        incoming.socket.unwatch(&self.context.poller);
        self.closed(incoming.number);
        if incoming.asked {
            let id = ConnectionId { index: key.index, generation: key.generation };
            self.context.events.push(Event::ConnectRequestGone { id });
        }
    }
}

/// Connections taken off one listener in a round.
const ACCEPTS_PER_ROUND: usize = 16;
/// How long a listener pauses after the host could not accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Deadlines that an open connection may have in the heap; beyond as many, those of ended
/// connections are removed.
const TIMERS_PER_LIVING: usize = 4;
const TIMERS_SPARE: usize = 1024;
