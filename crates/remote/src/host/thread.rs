//! The engine thread itself: one turn after another.
//!
//! ```text
//!   turn:  commands -> poll -> events -> answers posted      something happened: next turn
//!                                                            nothing: wait
//! ```
//!
//! Requests posted in a turn are transmitted by the poll of the next turn, all together: the RDMA
//! Write of a READ and its answer leave in one segment.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use basics::Clock;
use rdma::{DisconnectReason, Engine, Event, QpConfig, QpId};
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use super::command::{COMMANDS_PER_TURN, Command};
use super::gate::{Gate, Verdict};
use super::handle::PushConnection;
use super::handler::Handler;
use super::lanes::{Carrier, Lanes};
use super::owners::{Owner, Owners};
use super::push_side::PushSide;
use super::request::Request;

/// The state of the thread.
#[derive(Debug)]
pub(super) struct Thread<H> {
    engine: Box<dyn Engine>,
    commands: mpsc::Receiver<Command>,
    /// The queues to all threads, and the index of this one.
    lanes: Lanes,
    index: usize,
    stop: Arc<AtomicBool>,
    gate: Arc<dyn Gate>,
    push: PushSide,
    handler: H,
    clock: Clock,
    owners: Owners,
    events: Vec<Event>,
    stopping: bool,
}

impl<H: Handler> Thread<H> {
    pub(super) fn new(
        (engine, commands): (Box<dyn Engine>, mpsc::Receiver<Command>),
        (lanes, index): (Lanes, usize),
        stop: Arc<AtomicBool>,
        gate: Arc<dyn Gate>,
        (handler, clock): (H, Clock),
    ) -> Self {
        Self {
            engine,
            commands,
            push: PushSide::new(index, lanes.len()),
            lanes,
            index,
            stop,
            gate,
            handler,
            clock,
            owners: Owners::default(),
            events: Vec::with_capacity(EVENTS_START),
            stopping: false,
        }
    }

    /// Works until it is stopped, then ends all connections. Returns how many connections are left
    /// because an operation of theirs is inside a file and does not return within `grace`. No other
    /// operation of theirs begins once this has returned; that operation may still end.
    ///
    /// A bug that panics ends this thread and its connections: all of these have ended when this returns,
    /// and no caller waits for them. Other threads go on.
    pub(super) fn run(mut self, grace: Duration, runtime: &tokio::runtime::Handle) -> usize {
        // For work that needs a thread which may block.
        let _inside = runtime.enter();
        let worked = catch_unwind(AssertUnwindSafe(|| self.work(grace)));
        worked.unwrap_or_else(|_| {
            self.abandon();
            0
        })
    }

    fn abandon(self) {
        let Self { engine, commands, gate, push, handler, owners, lanes, index, .. } = self;
        handler.note_panic();
        // The closed queue answers commands sent from here on.
        drop(commands);
        // The sockets first: from here on no operation of a peer begins.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(engine)));
        (0..owners.len()).for_each(|_| lanes.loses(index));
        for connection in push.into_connections() {
            gate.gone(connection);
        }
        handler.abandon();
    }

    fn work(&mut self, grace: Duration) -> usize {
        while !self.stop.load(Ordering::Acquire) {
            if !self.turn() {
                let patience = self.handler.patience(self.clock.now());
                self.engine.wait(patience);
            }
        }
        self.stopping = true;
        // The closed queue answers commands sent from here on.
        self.commands.close();
        self.push.disconnect_all(&mut *self.engine);
        self.handler.disconnect_all(&mut *self.engine);
        let end = self.clock.now() + grace;
        while !self.owners.is_empty() {
            let now = self.clock.now();
            if now >= end {
                break;
            }
            if !self.turn() {
                self.engine.wait(Some(end - now));
            }
        }
        self.owners.len()
    }

    /// Does one turn of work; `false` if there was nothing to do.
    fn turn(&mut self) -> bool {
        let mut worked = self.take_commands();
        self.engine.poll(&mut self.events);
        let now = self.clock.now();
        let mut events = mem::take(&mut self.events);
        worked |= !events.is_empty();
        for event in events.drain(..) {
            self.handle(event, now);
        }
        self.events = events;
        worked |= self.handler.turn(&mut *self.engine, now);
        worked
    }

    fn take_commands(&mut self) -> bool {
        for taken in 0..COMMANDS_PER_TURN {
            let Ok(command) = self.commands.try_recv() else { return taken > 0 };
            match command {
                Command::TakeOver { handover, request } => {
                    let taken = self.engine.take_over(handover);
                    if taken.is_none_or(|id| !self.requested(Request { id, ..request })) {
                        self.lanes.loses(self.index);
                    }
                }
                command => self.push.carry_out(&mut *self.engine, command),
            }
        }
        true
    }

    fn handle(&mut self, event: Event, now: Instant) {
        match event {
            Event::ConnectRequest { id, peer, local, private_data } => {
                let is_same_host = self.lanes.get(self.index).carrier == Carrier::SameHost;
                self.heard(Request { id, peer, local, private_data, is_same_host });
            }
            Event::Completion(completion) => match self.owners.of(completion.qp) {
                Some(Owner::Handler(key)) => {
                    self.handler.completed(&mut *self.engine, key, &completion, now);
                }
                // This side posts nothing on a push connection.
                Some(Owner::Push(_)) | None => {}
            },
            Event::Established { qp, .. } => match self.owners.of(qp) {
                Some(Owner::Handler(key)) => {
                    self.handler.established(&mut *self.engine, key, now);
                }
                Some(Owner::Push(connection)) => debug!(%connection, "established"),
                None => {}
            },
            Event::Deregistered { qp, rkey } => self.push.deregistered(qp, rkey),
            Event::Disconnected { qp, reason } => self.disconnected(qp, reason),
            // The request was withdrawn before it was answered, which this thread does in the turn
            // it arrives; and this side dials no peer.
            Event::ConnectRequestGone { .. } | Event::ConnectFailed { .. } => {}
        }
    }

    /// Gives an incoming request to the thread with the fewest connections.
    fn heard(&mut self, request: Request) {
        let index = self.lanes.least(self.index);
        let lane = self.lanes.get(index);
        // A thread whose queue is full has enough to do, and a thread may have stopped.
        if index != self.index
            && let Ok(place) = lane.commands.try_reserve()
            && let Some(handover) = self.engine.hand_over(request.id)
        {
            self.lanes.gains(index);
            place.send(Command::TakeOver { handover, request });
            lane.waker.wake();
            return;
        }
        self.lanes.gains(self.index);
        if !self.requested(request) {
            self.lanes.loses(self.index);
        }
    }

    /// Answers a request; `false`: with a rejection.
    fn requested(&mut self, request: Request) -> bool {
        if self.stopping {
            self.engine.reject(request.id, &[]);
            return false;
        }
        let connection = self.push.next_name();
        match self.gate.admit(&request, connection) {
            Verdict::Admit(answer) => self.accept_push(&request, connection, &answer),
            Verdict::Refuse(answer) => {
                info!(peer = %request.peer, "push connection refused");
                self.engine.reject(request.id, &answer);
                false
            }
            Verdict::NotPush => {
                let now = self.clock.now();
                let accepted = self.handler.accept(&mut *self.engine, &request, now);
                if let Some((qp, key)) = accepted {
                    self.owners.insert(qp, Owner::Handler(key));
                }
                accepted.is_some()
            }
        }
    }

    fn accept_push(
        &mut self,
        request: &Request,
        connection: PushConnection,
        answer: &[u8],
    ) -> bool {
        match self.engine.accept(request.id, PUSH_QP, answer) {
            Ok(qp) => {
                debug!(peer = %request.peer, %connection, "admitted");
                self.push.add(connection, qp);
                self.owners.insert(qp, Owner::Push(connection));
                true
            }
            Err(error) => {
                warn!(%error, "push connection not accepted");
                self.engine.reject(request.id, &self.gate.no_room());
                self.gate.gone(connection);
                false
            }
        }
    }

    fn disconnected(&mut self, qp: QpId, reason: DisconnectReason) {
        let owner = self.owners.remove(qp);
        if owner.is_some() {
            self.lanes.loses(self.index);
        }
        match owner {
            Some(Owner::Push(connection)) => {
                debug!(%connection, ?reason, "ended");
                // The gate first: a caller that waits for the end may rely on the gate's state.
                self.gate.gone(connection);
                self.push.gone(connection, qp);
            }
            Some(Owner::Handler(key)) => self.handler.disconnected(key, reason),
            None => {}
        }
    }
}

/// The depth for a push peer's writes, reads and flushes is 128; this side posts nothing.
const PUSH_QP: QpConfig = QpConfig {
    send_depth: 1,
    recv_depth: 1,
    ird: 128,
    ord: 0,
    crc: true,
    announce: true,
    fpdu_max: u16::MAX,
};
/// Room for events before the vector grows.
const EVENTS_START: usize = 256;
