//! One round of work, fair between queue pairs.
//!
//! ```text
//!   batches and fetches that came back -> posted requests -> input -> (every so many rounds) epoll, timers -> new fetches
//! ```
//!
//! An engine that is about to sleep anyway leaves the look at the sockets to the sleep ([`Looks::AtTheSleep`]): `epoll_wait`
//! returns at once if there is something.
//!
//! With one or two connections each round asks their sockets directly: a `recv` that finds nothing costs 0.17 us, and a `recv`
//! that finds input needs no `epoll_wait` before it. With more connections, the round asks epoll. Memory shared with a peer is
//! looked at in each round however many connections there are: a load for each; of those whose memory is not agreed on
//! yet, or that have none, epoll tells. A round gives each queue pair one `send` for
//! posted requests, one `recv` (four, shared by few connections, while they come back full) and one `send` for the answers, so
//! that no queue pair can delay the others.

use std::time::Duration;

use super::batch::Batch;
use super::context::{Context, Looks};
use super::engine::SoftEngine;
use super::link::Link;
use super::qp::{End, Phase, Qp};
use super::receive::Input;
use super::socket::ByteStream as _;
use super::token::Token;
use basics::Key;

impl SoftEngine {
    /// Does one round of work. `true`: there was something to do.
    pub(super) fn round(&mut self, looks: Looks) -> bool {
        self.context.stats.polls += 1;
        self.context.round = self.context.round.wrapping_add(1);
        let mut worked = self.collect_batches();
        worked |= self.collect_fetches();
        worked |= self.transmit_dirty();
        let looked_at = self.connections.network.is_looked_at();
        let due = self.context.round.is_multiple_of(LOOK_ROUNDS);
        if looks == Looks::AtTheSleep && !worked && !looked_at && !due {
            return !self.context.fetches.submit();
        }
        let direct = looked_at || self.active.len() <= DIRECT_MAX;
        // Streams that the poller tells of, among others that are looked at.
        let mut are_told = false;
        if direct {
            let mut place = 0;
            while let Some(index) = self.active.get(place).copied() {
                if looked_at && !self.is_looked_at(index) {
                    (are_told, place) = (true, place + 1);
                    continue;
                }
                worked |= looked_at && self.unblock(index);
                worked |= self.receive(index);
                // An ended queue pair was replaced in the list by the last of the list.
                if self.active.get(place) == Some(&index) {
                    place += 1;
                }
            }
        }
        if !direct || due || are_told || self.connections.are_busy() || self.is_any_blocked() {
            self.context.stats.epoll_calls += 1;
            let count = self.context.poller.poll(Some(Duration::ZERO));
            worked |= self.serve_ready(count, direct);
        }
        if due && !self.timers.is_empty() {
            worked |= self.fire_timers();
        }
        // All that this round began, in one call. A round that could not hand over all has another behind it.
        worked | !self.context.fetches.submit()
    }

    /// Whether a connection among those asked directly waits for TCP to take more.
    fn is_any_blocked(&mut self) -> bool {
        if self.active.len() > DIRECT_MAX || self.connections.network.is_looked_at() {
            return false;
        }
        let mut blocked = false;
        for place in 0..self.active.len() {
            let index = self.active.get(place).copied().unwrap_or(u32::MAX);
            blocked |=
                self.qps.at(index).and_then(|(_, qp)| qp.link()).is_some_and(|link| link.blocked);
        }
        blocked
    }

    /// Whether a round that asks directly has asked this queue pair.
    fn is_served_directly(&mut self, index: u32) -> bool {
        let is_up = self.qps.at(index).is_some_and(|(_, qp)| qp.link().is_some());
        is_up && (!self.connections.network.is_looked_at() || self.is_looked_at(index))
    }

    /// Whether a look at a queue pair costs no system call.
    fn is_looked_at(&mut self, index: u32) -> bool {
        let link = self.qps.at(index).and_then(|(_, qp)| qp.link());
        link.is_some_and(|link| link.socket.is_looked_at())
    }

    /// Serves the sockets that epoll reported. `direct`: this round has already received from the
    /// queue pairs.
    pub(super) fn serve_ready(&mut self, count: usize, direct: bool) -> bool {
        let mut worked = false;
        for place in 0..count {
            let Some(ready) = self.context.poller.ready(place) else { break };
            match Token::from_bits(ready.token) {
                Some(Token::Qp(index)) => {
                    if ready.broken && self.end_parked(index) {
                        worked = true;
                        continue;
                    }
                    if ready.writable {
                        worked |= self.writable(index);
                    }
                    if ready.readable {
                        self.reported(index);
                        let is_served = direct && self.is_served_directly(index);
                        worked |= !is_served && self.receive(index);
                    }
                }
                Some(Token::Listener(index)) => {
                    self.accept_connections(index);
                    worked = true;
                }
                Some(Token::Request(index)) => worked |= self.advance_incoming(index),
                Some(Token::Linger(index)) => worked |= self.advance_linger(index),
                Some(Token::Fetches) => worked |= self.collect_fetches(),
                Some(Token::Waker) | None => {}
            }
        }
        worked
    }

    /// Receives one queue pair's share of input, and sends the answers.
    fn receive(&mut self, index: u32) -> bool {
        let share = (RECEIVES_PER_ROUND / self.active.len().max(1)).max(1);
        let Some((key, qp)) = self.qps.at(index) else { return false };
        if matches!(qp.phase, Phase::Dialing(_)) {
            return self.advance_dial(key);
        }
        match take_input(qp, share, &mut self.context) {
            Ok(false) => false,
            Ok(true) => {
                self.transmit(key);
                true
            }
            Err(end) => {
                self.end(key, end);
                true
            }
        }
    }

    /// Ends a queue pair whose connection is lost while it is parked; `false`: it is not parked, and its
    /// next receive finds the loss. Input that came before the loss and waits in the socket is dropped: no
    /// answer was promised for it, and the peer's regions would stay until a worker has caught up.
    fn end_parked(&mut self, index: u32) -> bool {
        let Some((key, qp)) = self.qps.at(index) else { return false };
        let Some(link) = qp.link().filter(|link| link.parked) else { return false };
        let reason = link.lost();
        self.end(key, End::Reason(reason));
        true
    }

    /// Lets a connection send again that no event informs of room.
    fn unblock(&mut self, index: u32) -> bool {
        let link = self.qps.at(index).and_then(|(_, qp)| qp.link());
        let goes = link.is_some_and(|link| link.blocked && link.socket.takes_again());
        goes && self.writable(index)
    }

    fn reported(&mut self, index: u32) {
        let Some((key, qp)) = self.qps.at(index) else { return };
        if let Some(link) = qp.link()
            && link.socket.reported()
        {
            link.watch(&self.context, key);
        }
    }

    /// Prepares for sleep. `false`: a connection has input or room that no event would report.
    pub(super) fn rest(&mut self) -> bool {
        !self.connections.network.is_looked_at()
            || self.active.iter().all(|index| {
                self.qps.at(*index).and_then(|(_, qp)| qp.link()).is_none_or(Link::rest)
            })
    }

    /// Ends what [`Self::rest`] began, after the sleep.
    pub(super) fn rise(&mut self) {
        if !self.connections.network.is_looked_at() {
            return;
        }
        for index in &self.active {
            if let Some(link) = self.qps.at(*index).and_then(|(_, qp)| qp.link()) {
                link.socket.rise();
            }
        }
    }

    /// Continues a connection whose socket is writable: TCP takes bytes again, or a dial has ended.
    fn writable(&mut self, index: u32) -> bool {
        let Some((key, qp)) = self.qps.at(index) else { return false };
        if matches!(qp.phase, Phase::Dialing(_)) {
            return self.advance_dial(key);
        }
        let Some(link) = qp.link() else { return false };
        if !link.blocked {
            return false;
        }
        link.blocked = false;
        link.watch(&self.context, key);
        self.transmit(key);
        true
    }

    /// Frames and sends what a queue pair has queued, and gives workers the operations that may
    /// block.
    pub(super) fn transmit(&mut self, key: Key) {
        let Some(qp) = self.qps.get_mut(key) else { return };
        let outcome = qp.transmit(&mut self.context).and_then(|more| {
            qp.submit(&mut self.context)?;
            Ok(more)
        });
        match outcome {
            Ok(more) => {
                let mut blocked = false;
                if let Some(link) = qp.link()
                    && link.transmit.tail_position() > 0
                {
                    link.arm_kick(key, &mut self.timers);
                    blocked = link.blocked;
                }
                if blocked {
                    self.watch_stall(key);
                }
                if more {
                    self.mark_dirty(key);
                }
            }
            Err(end) => self.end(key, end),
        }
    }

    pub(super) fn mark_dirty(&mut self, key: Key) {
        if let Some(qp) = self.qps.get_mut(key)
            && !qp.dirty
        {
            qp.dirty = true;
            self.dirty.push(key);
        }
    }

    /// Transmits for those that posted since the last round.
    fn transmit_dirty(&mut self) -> bool {
        // A queue pair that gets dirty meanwhile has its turn in the next round.
        let count = self.dirty.len();
        for place in 0..count {
            let Some(key) = self.dirty.get(place).copied() else { break };
            if let Some(qp) = self.qps.get_mut(key) {
                qp.dirty = false;
                self.transmit(key);
            }
        }
        self.dirty.drain(..count);
        count > 0
    }

    /// Takes back finished batches from the workers.
    fn collect_batches(&mut self) -> bool {
        let mut worked = false;
        while let Some(batch) = self.context.workers.collect() {
            self.batch_returned(batch);
            worked = true;
        }
        worked
    }

    /// Goes on with the queue pairs whose bytes have come.
    fn collect_fetches(&mut self) -> bool {
        if !self.context.fetches.collect() {
            return false;
        }
        while let Some((key, has_come)) = self.context.fetches.next() {
            if let Some(qp) = self.qps.get_mut(key) {
                qp.responder.fetch_ended(has_come);
                self.transmit(key);
            }
        }
        true
    }

    fn batch_returned(&mut self, batch: Box<Batch>) {
        let key = batch.qp;
        let Some(qp) = self.qps.get_mut(key) else { return };
        let mut outcome = qp.batch_returned(batch, &mut self.context);
        if matches!(qp.phase, Phase::Draining(_)) {
            self.drained(key);
            return;
        }
        if outcome.is_ok() {
            outcome = qp.resume(&mut self.context);
        }
        match outcome {
            Ok(()) => self.transmit(key),
            Err(end) => self.end(key, end),
        }
    }
}

/// Receives as long as each `recv` fills its room, `share` times at most. `false`: there was no
/// input.
fn take_input(qp: &mut Qp, share: usize, context: &mut Context) -> Result<bool, End> {
    for taken in 0..share {
        match qp.receive(context)? {
            Input::Nothing => return Ok(taken > 0),
            Input::All => return Ok(true),
            // Operations that will wait for a worker should not wait for more input as well.
            Input::Full if qp.deferral.is_active() => return Ok(true),
            Input::Full => {}
        }
    }
    Ok(true)
}

/// Full receives in a round before owners and answers have a turn, shared by the connections. After
/// one, an owner of 64 KiB reads posts one more, which costs a call and a packet for 48 bytes;
/// after four, four leave together and are answered together.
const RECEIVES_PER_ROUND: usize = 4;
/// Up to this number of connections, each round asks the sockets directly.
const DIRECT_MAX: usize = 2;
/// In any case, the engine looks at epoll and the timers once in this many rounds.
const LOOK_ROUNDS: u32 = 64;
