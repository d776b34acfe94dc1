//! Takes messages from receive buffers to handled requests.
//!
//! A slot is posted again as soon as its message was copied out, so the peer's credits come back
//! whatever happens to the request. Only a peer that does not receive its answers gets fewer
//! credits.

use std::mem;
use std::sync::Arc;

use super::error::End;
use super::inspect::{self, Fetch, Look, Place, SHORT};
use super::mailbox::{Fetched, Item};
use super::peer::{Home, Peer, Stage, Turn};
use super::transfers::{Pull, PullEnd};
use crate::connections::{Frame, Parcel};
use crate::limits::{GATHERED_MAX, REQUEST_COST, UNAUTHENTICATED_FRAME_MAX};
use crate::state::{Resource, Room};

/// A request that waits for the SMB side to return from a task, or for answers to leave.
#[derive(Debug)]
pub(super) struct Waiting {
    frame: Vec<u8>,
    place: Place,
    fetched: Option<Fetched>,
}

impl Waiting {
    /// Bytes that the request holds.
    fn cost(&self) -> usize {
        let fetched = self.fetched.as_ref().map_or(0, Fetched::held);
        self.frame.capacity() + fetched + WAITING_COST
    }
}

impl Peer {
    /// Copies a message out of its slot and handles it.
    pub(super) fn received(&mut self, turn: &mut Turn<'_>, slot: u16, len: u32) -> Result<(), End> {
        // A buffer of the thread, so that no connection needs its own.
        let mut message = mem::take(&mut turn.shared.message);
        let mut frame = mem::take(&mut turn.shared.frame);
        message.resize(usize::try_from(len).expect("32 bits fit usize"), 0);
        let outcome = self.take_in(turn, slot, &mut message, &mut frame);
        turn.shared.message = message;
        if frame.capacity() <= FRAME_KEEP_MAX {
            turn.shared.frame = frame;
        }
        outcome
    }

    fn take_in(
        &mut self,
        turn: &mut Turn<'_>,
        slot: u16,
        message: &mut [u8],
        frame: &mut Vec<u8>,
    ) -> Result<(), End> {
        self.receives.read(slot, message)?;
        let Stage::Up(connection) = &mut self.stage else {
            return self.negotiate(turn, slot, message);
        };
        let whole = connection.handle_receive(turn.now, message)?;
        let is_whole = whole.is_some();
        if let Some(whole) = whole {
            frame.clear();
            frame.extend_from_slice(whole);
        }
        self.progress.received = connection.reassembled();
        if !(self.is_congested() && self.receives.withhold(slot)) {
            self.receives.post(turn.engine, slot)?;
            self.receives_posted(1);
        }
        if is_whole {
            return self.request(turn, frame);
        }
        self.count_held()
    }

    /// Handles a whole frame of the peer.
    fn request(&mut self, turn: &mut Turn<'_>, frame: &mut [u8]) -> Result<(), End> {
        if !self.is_authenticated && frame.len() > UNAUTHENTICATED_FRAME_MAX {
            return Err(End::PeerLongUnauthenticated(frame.len()));
        }
        let Look { place, fetch } = inspect::look(frame);
        if let Some(Fetch { cursor, len }) = fetch.filter(|_| self.is_authenticated) {
            let mut kept = self.mailbox.buffer(frame.len());
            kept.extend_from_slice(frame);
            let end = PullEnd::Request(kept);
            self.transfers.begin(Pull::new(cursor, len, end))?;
            return self.count_held();
        }
        self.handle(turn, frame, place, None)
    }

    /// Handles the end of an RDMA Read.
    pub(super) fn read_done(&mut self, turn: &mut Turn<'_>, slot: u16) -> Result<(), End> {
        let Some(pull) = self.transfers.read_done(slot, turn.now, &mut self.progress.fetched)?
        else {
            return Ok(());
        };
        self.transfers.yield_staging(turn.engine, &mut turn.shared.budget);
        match pull.into_parts() {
            (data, PullEnd::Reply(reply)) => {
                // The requester may be gone.
                let _ = reply.send(Ok(data));
                Ok(())
            }
            (data, PullEnd::Request(mut frame)) => {
                let fetched = inspect::descriptors(&frame).map(|named| {
                    let mut descriptors = self.mailbox.buffer(named.len());
                    descriptors.extend_from_slice(named);
                    Fetched { descriptors, data }
                });
                self.handle(turn, &mut frame, SHORT, fetched)?;
                self.spent.push(frame);
                Ok(())
            }
        }
    }

    /// Handles a frame, or keeps it until the SMB side has returned, earlier answers have left and the frame's turn has come.
    pub(super) fn handle(
        &mut self,
        turn: &mut Turn<'_>,
        frame: &mut [u8],
        place: Place,
        fetched: Option<Fetched>,
    ) -> Result<(), End> {
        let waits = self.smb.is_none() || !self.backlog.is_empty() || self.has_to_wait(turn);
        let room = if waits { None } else { self.room_for(turn, place, frame.len()) };
        let Some(room) = room else {
            let waiting = Waiting { frame: frame.to_vec(), place, fetched };
            self.backlog_bytes += waiting.cost();
            self.backlog.push_back(waiting);
            return self.count_held();
        };
        match place {
            Place::Here { answer } => self.handle_here(turn, frame, fetched, answer),
            Place::Away => {
                self.send_away(turn, frame.to_vec(), room);
                Ok(())
            }
        }
    }

    fn handle_here(
        &mut self,
        turn: &mut Turn<'_>,
        frame: &mut [u8],
        fetched: Option<Fetched>,
        answer: usize,
    ) -> Result<(), End> {
        let Some(smb) = &mut self.smb else { return Ok(()) };
        let mut out = self.mailbox.attend(fetched, answer);
        let begun = turn.shared.noted.max(turn.now);
        let (outcome, ended) = smb.handle(Frame::Borrowed(frame), &mut out, begun);
        turn.shared.noted = ended;
        // Shorter than was asked for, and it may wait.
        if out.capacity() > ANSWER_SLACK && out.len() < out.capacity() / 4 {
            let exact = out.clone();
            self.spent.push(mem::replace(&mut out, exact));
        }
        // Items that the handling posted, above all an RDMA Write, come before its answer.
        self.mailbox.collect(&mut self.items, &mut self.spent);
        self.made_bytes += out.len();
        let room = smb.0.connection.take_room();
        self.items.push_back(Item::Frames(Parcel { frame: out, room }));
        let unproven = outcome?;
        debug_assert!(unproven.is_none(), "compounds and long frames are handled on a task");
        self.note_authentication(turn)
    }

    fn send_away(&mut self, turn: &Turn<'_>, frame: Vec<u8>, room: Option<Room>) {
        let Some(mut smb) = self.smb.take() else { return };
        let mailbox = self.mailbox.clone();
        turn.shared.core.runtime.spawn(async move {
            let mut out = Vec::new();
            let begun = smb.0.core().now();
            let (handled, _) = smb.handle(Frame::Owned(frame.into(), room), &mut out, begun);
            let outcome = match handled {
                Ok(Some(unproven)) => smb.prove(unproven, &mut out).await,
                handled => handled.map(drop),
            };
            let home = Box::new(Home { smb, out, outcome });
            // If the peer is gone meanwhile, the SMB side ends here.
            let _ = mailbox.post(Item::Home(home));
        });
    }

    /// Handles requests that waited, at most so many; `true` if there was one.
    pub(super) fn work_off_backlog(
        &mut self,
        turn: &mut Turn<'_>,
        most: &mut usize,
    ) -> Result<bool, End> {
        let mut worked = false;
        while self.smb.is_some()
            && *most > 0
            && !self.backlog.is_empty()
            && !self.has_to_wait(turn)
            && let Some(front) = self.backlog.front()
            && let Some(room) = self.room_for(turn, front.place, front.frame.len())
            && let Some(waiting) = self.backlog.pop_front()
        {
            worked = true;
            *most -= 1;
            self.backlog_bytes -= waiting.cost();
            self.count_held()?;
            let Waiting { mut frame, place, fetched } = waiting;
            match place {
                Place::Here { answer } => self.handle_here(turn, &mut frame, fetched, answer)?,
                Place::Away => self.send_away(turn, frame, room),
            }
        }
        Ok(worked)
    }

    /// Whether requests that waited can be handled now.
    pub(super) fn has_backlog(&self) -> bool {
        !self.is_ending
            && self.smb.is_some()
            && !self.backlog.is_empty()
            && !self.is_ahead()
            && !self.link.is_crowded()
            && self.waits_for_room.is_none()
    }

    /// Room for a request that begins now: of a long one before it is given to a task, as over TCP before it is read.
    /// `None`: it has to wait for that.
    #[expect(clippy::option_option, reason = "a short request needs none")]
    fn room_for(&mut self, turn: &Turn<'_>, place: Place, len: usize) -> Option<Option<Room>> {
        let is_long = place == Place::Away && len > LONG;
        let Some(holder) = self.link.holder().filter(|_| is_long) else { return Some(None) };
        if self.waits_for_room.is_some() {
            return None;
        }
        let amount = len + REQUEST_COST;
        let room = self
            .long_room
            .take()
            .or_else(|| Room::try_take((&self.link.account, &holder), Resource::Requests, amount));
        if room.is_some() {
            return Some(room);
        }
        let (link, mailbox) = (Arc::clone(&self.link), Arc::clone(&self.mailbox));
        let task = turn.shared.core.runtime.spawn(async move {
            let room = Room::take((&link.account, &holder), Resource::Requests, amount).await;
            let _ = mailbox.post(Item::Room(Some(room)));
        });
        self.waits_for_room = Some(task.abort_handle());
        None
    }

    /// Whether the next request has to wait: for answers to leave, or for room for requests of its user.
    fn has_to_wait(&mut self, turn: &Turn<'_>) -> bool {
        if self.link.is_crowded() {
            self.wait_for_room(turn);
        }
        let waits = self.is_ahead() || self.link.is_crowded();
        if waits {
            // Others may need it meanwhile.
            self.long_room = None;
        }
        waits
    }

    /// Has the peer told when there is room again, unless there is some by now.
    #[cold]
    pub(super) fn wait_for_room(&mut self, turn: &Turn<'_>) {
        self.link.look_for_request_room();
        if self.waits_for_room.is_none() && self.link.is_crowded() {
            let (link, mailbox) = (Arc::clone(&self.link), Arc::clone(&self.mailbox));
            let task = turn.shared.core.runtime.spawn(async move {
                link.request_room().await;
                let _ = mailbox.post(Item::Room(None));
            });
            self.waits_for_room = Some(task.abort_handle());
        }
    }

    /// Whether no more answers are made before some have left: no account counts those that are made at once.
    fn is_ahead(&self) -> bool {
        self.queued_bytes + self.made_bytes + self.mailbox.uncounted() > GATHERED_MAX
    }

    /// Whether more bytes wait for the SMB side than should.
    pub(super) fn is_behind(&self) -> bool {
        self.backlog_bytes > CONGESTED_AT
    }

    /// Whether the peer has to receive answers before it gets more credits.
    pub(super) fn is_congested(&self) -> bool {
        let held = self.queued_bytes + self.backlog_bytes + self.transfers.kept_bytes();
        self.link.is_crowded() || held > CONGESTED_AT
    }
}

/// Bytes of answers and of waiting requests from which on a peer gets no more credits: several
/// times what is in flight on a fast link.
const CONGESTED_AT: usize = 4 << 20;
/// Waiting requests that are handled in a row; then other peers of the engine have their turn.
pub(super) const BACKLOG_TURN: usize = 128;
/// The cost of a waiting request beside its bytes, so that empty requests count too.
pub(super) const WAITING_COST: usize = 128;
/// An answer in a longer buffer is copied, if it fills less than a quarter of that.
const ANSWER_SLACK: usize = 1024;
/// A frame longer than this has room before it is given to a task: as long as one that is read with its neighbours over TCP.
const LONG: usize = 32 << 10;
/// A frame buffer larger than this is not reused.
const FRAME_KEEP_MAX: usize = 1 << 20;
