//! All SMB Direct connections of one engine thread, and which of them have work to do.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use basics::{Key, Table};
use rdma::{DisconnectReason, Engine, QpConfig, QpId, Waker, WcOpcode, WorkCompletion};
use remote::host::{Handler, Request};
use smbdirect::{Acceptor, Config};
use tracing::{debug, info, warn};

use super::error::End;
use super::mailbox::{Doorbell, Mailbox};
use super::peer::{Peer, PeerParts, Smb, Turn};
use super::private_data;
use super::receives::{SLOT_LEN, SLOTS};
use super::remote::{Answers, Buffers};
use super::staging::Budget;
use crate::connections::Link;
use crate::dispatch::Connection;
use crate::service::Core;
use crate::transport::admission::Admission;
use crate::transport::served::Served;

/// One connection of the table.
pub(crate) type DirectId = Key;

/// See the module.
#[derive(Debug)]
pub(crate) struct Direct {
    peers: Table<Box<Peer>>,
    dirty: Vec<DirectId>,
    doorbell: Arc<Doorbell>,
    calls: Receiver<DirectId>,
    shared: Shared,
    next_tick: Option<Instant>,
}

/// State that all peers of the thread use, one at a time.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) core: Arc<Core>,
    pub(super) budget: Budget,
    pub(super) inline_max: usize,
    pub(super) message: Vec<u8>,
    pub(super) frame: Vec<u8>,
    /// When the latest request of this thread had had its turn.
    pub(super) noted: Instant,
}

impl Direct {
    /// A table without connections, for the engine that `waker` wakes.
    pub(crate) fn new(core: Arc<Core>, waker: Waker, inline_max: usize) -> Self {
        let (doorbell, calls) = Doorbell::new(waker);
        let budget = Budget::new(Arc::clone(&core));
        let (message, frame, noted) = (Vec::new(), Vec::new(), core.now());
        Self {
            // Core admits as many connections as the configuration says.
            peers: Table::new(u32::MAX),
            dirty: Vec::new(),
            doorbell: Arc::new(doorbell),
            calls,
            shared: Shared { core, budget, inline_max, message, frame, noted },
            next_tick: None,
        }
    }

    fn smb_side(
        &self,
        mailbox: &Arc<Mailbox>,
        request: &Request,
        admission: Admission,
    ) -> (Box<Smb>, Arc<tokio::sync::Semaphore>) {
        let room = Buffers::room();
        let buffers = Buffers::new(Arc::clone(mailbox), Arc::clone(&room));
        let link = Link::new(
            Arc::clone(&self.shared.core.connections),
            request.peer,
            request.local,
            Box::new(Answers(Arc::clone(mailbox))),
            Some(Arc::new(buffers)),
        );
        let connection = Connection::new(Arc::clone(&self.shared.core), Arc::new(link));
        (Box::new(Smb(Served::new(connection, admission))), room)
    }

    /// Records the peers that have an item in the mailbox; `true` if any has.
    fn answer_calls(&mut self) -> bool {
        let mut called = false;
        while let Ok(id) = self.calls.try_recv() {
            self.mark_dirty(id);
            called = true;
        }
        if self.doorbell.take_overflow() {
            let all: Vec<DirectId> = self.peers.keys().collect();
            all.into_iter().for_each(|id| self.mark_dirty(id));
            called = true;
        }
        called
    }

    /// Checks deadlines, once a second; `true` if that was due.
    fn check_deadlines(&mut self, engine: &mut dyn Engine, now: Instant) -> bool {
        if self.next_tick.is_none_or(|tick| now < tick) {
            return false;
        }
        self.next_tick = Some(now + TICK);
        for id in self.peers.keys().collect::<Vec<_>>() {
            self.with(engine, id, now, |peer, turn| {
                peer.post_receives(turn)?;
                peer.check_deadlines(turn.now, &turn.shared.core.connections.limits)
            });
        }
        true
    }

    /// Posts the waiting work of all peers; `true` if any had some.
    fn flush(&mut self, engine: &mut dyn Engine, now: Instant) -> bool {
        let mut dirty = mem::take(&mut self.dirty);
        let worked = !dirty.is_empty();
        for id in dirty.drain(..) {
            if let Some(peer) = self.peer_mut(id) {
                peer.is_dirty = false;
            }
            self.run(engine, id, now, |peer, turn| peer.pump(turn));
            if self.peer_mut(id).is_some_and(|peer| peer.has_backlog()) {
                self.mark_dirty(id);
            }
        }
        if self.dirty.is_empty() {
            self.dirty = dirty;
        }
        self.ask_the_idle();
        while let Some(id) = self.shared.budget.take_woken() {
            self.mark_dirty(id);
        }
        worked
    }

    /// Asks connections that hold staging memory and use none, while others wait for some, to return it:
    /// those of the same user first, because a waiting user may not get everything that others return.
    fn ask_the_idle(&mut self) {
        let wanted = self.shared.budget.take_wanted();
        if wanted.is_empty() {
            return;
        }
        let idle = self.peers.values().filter(|peer| peer.transfers.is_idle());
        let mut idle: Vec<_> = idle.map(|peer| (!wanted.contains(&peer.holder), peer.id)).collect();
        idle.sort_by_key(|(is_of_others, _)| *is_of_others);
        idle.into_iter().for_each(|(_, id)| self.mark_dirty(id));
    }

    /// Runs an operation of a peer that may leave it with something to post.
    pub(super) fn with(
        &mut self,
        engine: &mut dyn Engine,
        id: DirectId,
        now: Instant,
        work: impl FnOnce(&mut Peer, &mut Turn<'_>) -> Result<(), End>,
    ) {
        self.mark_dirty(id);
        self.run(engine, id, now, work);
    }

    fn run(
        &mut self,
        engine: &mut dyn Engine,
        id: DirectId,
        now: Instant,
        work: impl FnOnce(&mut Peer, &mut Turn<'_>) -> Result<(), End>,
    ) {
        let peer = self.peers.get_mut(id).filter(|peer| !peer.is_ending);
        let Some(peer) = peer else { return };
        let mut turn = Turn { engine, shared: &mut self.shared, now };
        let worked = catch_unwind(AssertUnwindSafe(|| work(peer, &mut turn)));
        let worked = worked.unwrap_or_else(|_| {
            self.shared.core.note_panic("an SMB Direct connection");
            Err(End::LocalPanic)
        });
        if let Err(end) = worked {
            info!(peer = %peer.address, reason = %end, "SMB Direct connection dropped");
            peer.is_ending = true;
            engine.disconnect(peer.qp);
        }
    }

    fn mark_dirty(&mut self, id: DirectId) {
        if let Some(peer) = self.peer_mut(id)
            && !mem::replace(&mut peer.is_dirty, true)
        {
            self.dirty.push(id);
        }
    }

    pub(super) fn peer_mut(&mut self, id: DirectId) -> Option<&mut Peer> {
        self.peers.get_mut(id).map(Box::as_mut)
    }
}

impl Handler for Direct {
    fn accept(
        &mut self,
        engine: &mut dyn Engine,
        request: &Request,
        now: Instant,
    ) -> Option<(QpId, DirectId)> {
        let id = self.peers.next_key()?;
        let mailbox = Arc::new(Mailbox::new(id, Arc::clone(&self.doorbell)));
        let core = &self.shared.core;
        let Some(admission) = Admission::ask(core, Arc::clone(&mailbox) as _) else {
            engine.reject(request.id, &[]);
            return None;
        };
        let config =
            Config { read_write_size_max: core.connections.limits.io_size_max, ..SMB_DIRECT };
        let acceptor = Acceptor::new(config, now)
            .inspect_err(|error| warn!(%error, "SMB Direct refused"))
            .ok();
        let answer = private_data::answer_to(&request.private_data);
        let qp = acceptor.as_ref().and_then(|_| {
            let accepted = engine.accept(request.id, QP, answer);
            accepted.inspect_err(|error| warn!(%error, "SMB Direct connection refused")).ok()
        });
        let (Some(acceptor), Some(qp)) = (acceptor, qp) else {
            engine.reject(request.id, &[]);
            return None;
        };
        let (smb, room) = self.smb_side(&mailbox, request, admission);
        let limits = &self.shared.core.connections.limits;
        let parts = PeerParts {
            id,
            qp,
            address: request.peer,
            acceptor,
            smb,
            mailbox,
            room,
            accepted: now,
            authenticate_by: now + limits.authentication_timeout,
            requests_max: usize::from(limits.credits_max),
        };
        match Peer::new(parts, engine) {
            Ok(peer) => {
                debug!(peer = %request.peer, "SMB Direct connection accepted");
                self.peers.insert(Box::new(peer)).ok()?;
                self.next_tick.get_or_insert(now + TICK);
                Some((qp, id))
            }
            Err(error) => {
                warn!(%error, "SMB Direct connection not set up");
                engine.disconnect(qp);
                None
            }
        }
    }

    fn established(&mut self, engine: &mut dyn Engine, id: DirectId, now: Instant) {
        self.with(engine, id, now, |peer, turn| peer.established(turn));
    }

    fn completed(
        &mut self,
        engine: &mut dyn Engine,
        id: DirectId,
        completion: &WorkCompletion,
        now: Instant,
    ) {
        if !completion.is_success() {
            // The queue pair is ending, which another event reports.
            return;
        }
        let slot = u16::try_from(completion.wr_id).unwrap_or(u16::MAX);
        match completion.opcode {
            WcOpcode::Recv | WcOpcode::RecvImmediate => {
                // MS-SMBD §3.1.5.2: only Sends arrive, and the regions of this side are not for the
                // peer.
                let is_strange =
                    completion.opcode != WcOpcode::Recv || completion.invalidated.is_some();
                let len = completion.len;
                self.with(engine, id, now, |peer, turn| match is_strange {
                    true => Err(End::PeerNotSmbDirect),
                    false => peer.arrived(turn, slot, len),
                });
            }
            WcOpcode::Read => {
                self.with(engine, id, now, |peer, turn| peer.read_done(turn, slot));
            }
            _ if self.peer_mut(id).is_some_and(|peer| peer.wants_room()) => self.mark_dirty(id),
            _ => {}
        }
    }

    fn disconnected(&mut self, id: DirectId, reason: DisconnectReason) {
        let Some(peer) = self.peers.remove(id) else { return };
        debug!(peer = %peer.address, ?reason, "SMB Direct connection ended");
        peer.end(&mut self.shared.budget);
        if self.peers.is_empty() {
            self.next_tick = None;
        }
    }

    fn turn(&mut self, engine: &mut dyn Engine, now: Instant) -> bool {
        let mut worked = self.answer_calls();
        worked |= self.check_deadlines(engine, now);
        worked |= self.flush(engine, now);
        worked
    }

    fn patience(&self, now: Instant) -> Option<Duration> {
        self.next_tick.map(|tick| tick.saturating_duration_since(now))
    }

    fn disconnect_all(&mut self, engine: &mut dyn Engine) {
        for peer in self.peers.values_mut() {
            peer.is_ending = true;
            engine.disconnect(peer.qp);
        }
    }

    fn note_panic(&self) {
        self.shared.core.note_panic("an engine thread, which takes no more connections");
    }

    fn abandon(mut self) {
        for peer in self.peers.drain() {
            peer.end(&mut self.shared.budget);
        }
    }
}

/// The parameters of this side for every SMB Direct connection.
const SMB_DIRECT: Config = Config {
    send_credit_target: SLOTS,
    receive_credit_max: SLOTS,
    send_size_max: SLOT_LEN,
    receive_size_max: SLOT_LEN,
    // Half of the receive buffers' capacity: the longest message that can be kept, see smbdirect's
    // `Config`.
    fragmented_receive_size_max: FRAME_MAX,
    read_write_size_max: 8 << 20,
};
/// The longest frame a peer may send.
const FRAME_MAX: u32 = SLOTS as u32 * SLOT_LEN / 2;
/// 16 Reads, and Sends and Writes as deep as SMB Direct credits go.
const QP: QpConfig = QpConfig {
    send_depth: 512,
    recv_depth: SLOTS + 1,
    // Peers read nothing of this side, but may announce themselves with an empty read.
    ird: 4,
    ord: 32,
    crc: true,
    announce: true,
    fpdu_max: u16::MAX,
};
/// How often deadlines are checked: the shortest is five seconds.
const TICK: Duration = Duration::from_secs(1);
