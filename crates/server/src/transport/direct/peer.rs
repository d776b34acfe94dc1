//! One SMB Direct connection: its parts, its beginning and its end.
//!
//! ```text
//!   accept      Established, request      answer        first session          any End
//!   ------> Negotiating ----------> Negotiating ----> Up ------> authenticated -------> ending
//!              few receives posted                      all receives posted        (Disconnected:
//!                                                                                    gone)
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma::{Engine, Operation, Payload, QpId, WorkRequest};
use smbdirect::{Acceptor, NegotiateResponse, Token};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::error::End;
use super::held::Held;
use super::incoming::Waiting;
use super::invalidations::Invalidations;
use super::mailbox::{Item, Mailbox};
use super::progress::{Awaited, Progress};
use super::receives::{Receives, SLOTS_UNAUTHENTICATED};
use super::staging::{Budget, Holder};
use super::table::{DirectId, Shared};
use super::transfers::Transfers;
use crate::connections::{Frame, Link};
use crate::dispatch::{Connection, Unproven, Violation};
use crate::limits::Limits;
use crate::state::Room;
use crate::transport::served::Served;

/// See the module.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: DirectId,
    pub(super) qp: QpId,
    pub(super) address: SocketAddr,
    pub(super) stage: Stage,
    pub(super) receives: Receives,
    pub(super) link: Arc<Link>,
    /// `None` while a task has it.
    pub(super) smb: Option<Box<Smb>>,
    pub(super) is_authenticated: bool,
    /// The first user that logged on.
    pub(super) holder: Holder,
    /// No user has logged on: the connection may be evicted.
    pub(super) is_evictable: bool,
    pub(super) mailbox: Arc<Mailbox>,
    /// Items of the mailbox, in order, not done yet.
    pub(super) items: VecDeque<Item>,
    /// Buffers to give back to the mailbox, all together.
    pub(super) spent: Vec<Vec<u8>>,
    /// Requests that came while the SMB side was away, or while earlier answers had not left.
    pub(super) backlog: VecDeque<Waiting>,
    pub(super) backlog_bytes: usize,
    /// What they, the requests that wait for bytes and a message that is not whole hold.
    pub(super) held: Held,
    /// Waits for room for requests, where there was none for one.
    pub(super) waits_for_room: Option<AbortHandle>,
    /// Room for the long request that waits first.
    pub(super) long_room: Option<Room>,
    pub(super) progress: Progress,
    /// Bytes of answers that have not left.
    pub(super) queued_bytes: usize,
    /// Bytes of answers among the items that were made at once.
    pub(super) made_bytes: usize,
    /// Messages queued and sent since the start.
    pub(super) queued_messages: u64,
    pub(super) sent_messages: u64,
    /// Room that answers hold until this many messages were sent.
    pub(super) rooms: VecDeque<(u64, Room)>,
    pub(super) transmit: Vec<u8>,
    /// A message in `transmit` that the queue pair did not take yet.
    pub(super) stalled: Option<(usize, Option<Token>)>,
    pub(super) transfers: Transfers,
    pub(super) invalidations: Invalidations,
    /// Set when the server ends the connection, with the deadline for that.
    pub(super) closing: Option<Instant>,
    /// Listed in the table among the peers with work.
    pub(super) is_dirty: bool,
    /// `disconnect` was called: the peer does nothing more until the queue pair is gone.
    pub(super) is_ending: bool,
    room: Arc<Semaphore>,
    is_established: bool,
    early: Vec<(u16, u32)>,
    authenticate_by: Instant,
}

/// The state of the SMB Direct connection.
pub(super) enum Stage {
    Negotiating(Acceptor),
    Up(Box<smbdirect::Connection>),
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Negotiating(_) => "Negotiating",
            Self::Up(_) => "Up",
        })
    }
}

/// The SMB side of a connection, in one piece so that it can move to a task.
#[derive(Debug)]
pub(super) struct Smb(pub(super) Served);

impl Smb {
    /// Handles a frame, whose turn began at `begun`; returns the end of its turn as well. What has to be proven on a thread
    /// before comes back, see [`Smb::prove`]. A bug that panics ends the connection whose request met it, not the thread
    /// that serves all.
    pub(super) fn handle(
        &mut self,
        frame: Frame<'_>,
        out: &mut Vec<u8>,
        begun: Instant,
    ) -> (Result<Option<Unproven>, End>, Instant) {
        self.0.connection.link.hear(begun);
        self.noted(begun, |connection| connection.handle(frame, out))
    }

    /// Handles what came back, once its signatures are verified.
    pub(super) async fn prove(&mut self, unproven: Unproven, out: &mut Vec<u8>) -> Result<(), End> {
        let proven = unproven.prove().await?;
        let begun = self.0.core().now();
        self.noted(begun, |connection| connection.handle_proven(proven, out)).0
    }

    fn noted<T>(
        &mut self,
        begun: Instant,
        work: impl FnOnce(&mut Connection) -> Result<T, Violation>,
    ) -> (Result<T, End>, Instant) {
        let connection = &mut self.0.connection;
        let outcome = catch_unwind(AssertUnwindSafe(|| work(connection)));
        let reactor = &connection.core.connections.reactor;
        let ended = reactor.note(begun, connection.last_command());
        let outcome = outcome.map_or_else(
            |_| {
                connection.core.note_panic("a request");
                Err(End::LocalPanic)
            },
            |handled| handled.map_err(End::from),
        );
        (outcome, ended)
    }
}

/// The SMB side as a task returns it.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) smb: Box<Smb>,
    pub(super) out: Vec<u8>,
    pub(super) outcome: Result<(), End>,
}

/// The parts of a peer.
#[derive(Debug)]
pub(super) struct PeerParts {
    pub(super) id: DirectId,
    pub(super) qp: QpId,
    pub(super) address: SocketAddr,
    pub(super) acceptor: Acceptor,
    pub(super) smb: Box<Smb>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) room: Arc<Semaphore>,
    pub(super) accepted: Instant,
    pub(super) authenticate_by: Instant,
    pub(super) requests_max: usize,
}

impl Peer {
    /// Prepares a connection that was accepted a moment ago.
    pub(super) fn new(parts: PeerParts, engine: &mut dyn Engine) -> Result<Self, End> {
        let PeerParts { id, qp, address, mut acceptor, smb, .. } = parts;
        let receives = Receives::new(engine, qp)?;
        let link = Arc::clone(smb.0.link());
        // One of them is for the negotiation request itself.
        acceptor.receives_posted(SLOTS_UNAUTHENTICATED - 1);
        Ok(Self {
            id,
            qp,
            address,
            stage: Stage::Negotiating(acceptor),
            receives,
            held: Held::new(Arc::clone(&link)),
            waits_for_room: None,
            long_room: None,
            progress: Progress::default(),
            link,
            smb: Some(smb),
            is_authenticated: false,
            holder: None,
            is_evictable: true,
            mailbox: parts.mailbox,
            items: VecDeque::new(),
            spent: Vec::new(),
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            queued_bytes: 0,
            made_bytes: 0,
            queued_messages: 0,
            sent_messages: 0,
            rooms: VecDeque::new(),
            transmit: Vec::new(),
            stalled: None,
            transfers: Transfers::new(parts.requests_max, parts.accepted),
            invalidations: Invalidations::new(parts.requests_max),
            closing: None,
            is_dirty: false,
            is_ending: false,
            room: parts.room,
            is_established: false,
            early: Vec::new(),
            authenticate_by: parts.authenticate_by,
        })
    }

    /// The queue pair is established: the peer may be sent to.
    pub(super) fn established(&mut self, turn: &mut Turn<'_>) -> Result<(), End> {
        self.is_established = true;
        for (slot, len) in std::mem::take(&mut self.early) {
            self.received(turn, slot, len)?;
        }
        Ok(())
    }

    /// Handles a message in a slot. Some adapters report it before they report that the connection
    /// is established.
    pub(super) fn arrived(&mut self, turn: &mut Turn<'_>, slot: u16, len: u32) -> Result<(), End> {
        if self.is_established {
            return self.received(turn, slot, len);
        }
        self.early.push((slot, len));
        Ok(())
    }

    /// Handles the negotiation request and answers it.
    pub(super) fn negotiate(
        &mut self,
        turn: &mut Turn<'_>,
        slot: u16,
        message: &[u8],
    ) -> Result<(), End> {
        let Stage::Negotiating(acceptor) = &mut self.stage else { return Ok(()) };
        acceptor.handle_receive(turn.now, message)?;
        self.receives.post(turn.engine, slot)?;
        acceptor.receives_posted(1);
        if let Some(response) = acceptor.poll_transmit() {
            let mut out = [0; NegotiateResponse::LEN];
            response.emit(&mut out);
            let payload = Payload::Inline(&out);
            let operation = Operation::Send { payload, invalidate: None, solicited: false };
            turn.engine.post_send(self.qp, WorkRequest::signaled(0, operation))?;
        }
        match acceptor.outcome() {
            None => Ok(()),
            Some(Err(reason)) => Err(reason.into()),
            Some(Ok(agreement)) => {
                let size = usize::try_from(agreement.send_size_max).expect("32 bits fit usize");
                self.transmit = vec![0; size.max(TRANSMIT_FLOOR)];
                let connection = smbdirect::Connection::new(agreement, turn.now);
                self.stage = Stage::Up(Box::new(connection));
                Ok(())
            }
        }
    }

    /// Checks whether the peer has a session: then it gets all its receive buffers.
    pub(super) fn note_authentication(&mut self, turn: &mut Turn<'_>) -> Result<(), End> {
        let Some(smb) = self.smb.as_mut() else {
            return Ok(());
        };
        smb.0.look();
        self.is_evictable = smb.0.is_evictable();
        if !self.is_authenticated && !smb.0.is_stranger() {
            self.is_authenticated = true;
            self.holder = smb.0.link().first_user();
            self.post_receives(turn)?;
        }
        if self.is_authenticated && self.holder.is_none() && self.link.has_had_user() {
            // A user has logged on over the connection of a guest.
            self.holder = self.link.first_user();
            // From here on that user's, whether or not the session lasts.
            if let Some(account) = self.link.holder() {
                self.long_room = None;
                self.receives.move_to(&account);
                self.held.move_to(&account)?;
            }
        }
        Ok(())
    }

    /// Posts all receive buffers of a peer with a session, if there is room for them by now.
    pub(super) fn post_receives(&mut self, turn: &mut Turn<'_>) -> Result<(), End> {
        if !self.is_authenticated || self.receives.are_all() {
            return Ok(());
        }
        let Some(holder) = self.link.holder() else { return Ok(()) };
        let added = self.receives.post_all(turn.engine, &holder)?;
        self.receives_posted(added);
        Ok(())
    }

    /// Notes posted buffers, which SMB Direct may grant as credits.
    pub(super) fn receives_posted(&mut self, count: u16) {
        match &mut self.stage {
            Stage::Negotiating(acceptor) => acceptor.receives_posted(count),
            Stage::Up(connection) => connection.receives_posted(count),
        }
    }

    /// Counts what requests hold that have not been looked at.
    pub(super) fn count_held(&mut self) -> Result<(), End> {
        let parts = match &self.stage {
            Stage::Negotiating(_) => 0,
            Stage::Up(connection) => connection.reassembly_bytes(),
        };
        self.held.set(self.backlog_bytes + self.transfers.kept_bytes() + parts)
    }

    /// Checks the deadlines.
    pub(super) fn check_deadlines(&mut self, now: Instant, limits: &Limits) -> Result<(), End> {
        if self.transfers.is_unserved(now, limits.rdma_read_patience) {
            return Err(End::PeerServesNoReads);
        }
        if self.closing.is_some_and(|deadline| deadline <= now) {
            return Err(End::LocalClosed);
        }
        if !self.is_authenticated && self.authenticate_by <= now {
            return Err(End::PeerSlowToAuthenticate);
        }
        let awaited = Awaited {
            is_sending: self.wants_to_send(),
            is_fetching: self.transfers.is_reading(),
            is_starved: self.transfers.has_next(self.is_behind()),
            is_mid_message: matches!(&self.stage, Stage::Up(smbd) if smbd.is_mid_message()),
        };
        self.progress.look(now, &self.link, awaited)?;
        match &mut self.stage {
            Stage::Negotiating(acceptor) => {
                acceptor.handle_timeout(now);
                acceptor.outcome().map_or(Ok(()), |outcome| Ok(outcome.map(drop)?))
            }
            Stage::Up(connection) => {
                connection.release_idle();
                connection.handle_timeout(now)?;
                self.count_held()
            }
        }
    }

    /// Ends a peer whose queue pair is gone. The SMB side ends where it is: here, or with its task.
    pub(super) fn end(self, budget: &mut Budget) {
        if let Some(task) = &self.waits_for_room {
            task.abort();
        }
        budget.forget(self.id);
        self.transfers.end(budget);
        self.room.close();
        drop(self.mailbox.close());
    }
}

/// The state that a peer uses during its turn.
pub(super) struct Turn<'a> {
    pub(super) engine: &'a mut dyn Engine,
    pub(super) shared: &'a mut Shared,
    pub(super) now: Instant,
}

/// How long answers may take to leave when the server ends a connection.
pub(super) const CLOSING_GRACE: Duration = Duration::from_secs(5);
/// The least capacity of a transmit buffer, whatever was agreed.
const TRANSMIT_FLOOR: usize = 128;
