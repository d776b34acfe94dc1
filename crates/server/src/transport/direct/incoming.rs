//! From receive buffers to handled requests.
//!
//! A slot is posted anew as soon as its message was copied out, so the peer's credits come back
//! whatever becomes of the request. Only a peer that does not take its answers is kept short.

use std::mem;

use super::error::End;
use super::inspect::{self, Fetch, Look, Place};
use super::mailbox::{Fetched, Item};
use super::peer::{Home, Peer, Stage, Turn};
use super::transfers::{Pull, PullEnd};
use crate::limits::UNAUTHENTICATED_FRAME_MAX;
use crate::state::{Frame, Parcel};

/// A request that waits for the SMB side to come home.
#[derive(Debug)]
pub(super) struct Waiting {
    frame: Vec<u8>,
    place: Place,
    fetched: Option<Fetched>,
}

impl Waiting {
    /// Bytes it holds.
    fn cost(&self) -> usize {
        let fetched = self.fetched.as_ref().map_or(0, |fetched| fetched.data.len());
        self.frame.len() + fetched + WAITING_COST
    }
}

impl Peer {
    /// Takes a message out of its slot and does what it asks.
    pub(super) fn received(&mut self, turn: &mut Turn<'_>, slot: u16, len: u32) -> Result<(), End> {
        // Scratch of the thread, so that no connection needs its own.
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
        if !(self.is_congested() && self.receives.withhold(slot)) {
            self.receives.post(turn.engine, slot)?;
            self.receives_posted(1);
        }
        if is_whole { self.request(turn, frame) } else { Ok(()) }
    }

    /// A whole frame of the peer's.
    fn request(&mut self, turn: &mut Turn<'_>, frame: &mut [u8]) -> Result<(), End> {
        if !self.is_authenticated && frame.len() > UNAUTHENTICATED_FRAME_MAX {
            return Err(End::PeerLongUnauthenticated(frame.len()));
        }
        let Look { place, fetch } = inspect::look(frame);
        if let Some(Fetch { cursor, len }) = fetch.filter(|_| self.is_authenticated) {
            let mut kept = self.mailbox.buffer();
            kept.extend_from_slice(frame);
            let end = PullEnd::Request(kept);
            return self.transfers.begin(Pull::new(cursor, len, end));
        }
        self.handle(turn, frame, place, None)
    }

    /// An RDMA Read has ended.
    pub(super) fn read_done(&mut self, turn: &mut Turn<'_>, slot: u16) -> Result<(), End> {
        let Some(pull) = self.transfers.read_done(slot, turn.now)? else { return Ok(()) };
        self.transfers.yield_staging(turn.engine, &mut turn.shared.budget);
        match pull.into_parts() {
            (data, PullEnd::Reply(reply)) => {
                // Whoever asked may be gone.
                let _ = reply.send(Ok(data));
                Ok(())
            }
            (data, PullEnd::Request(mut frame)) => {
                let fetched = inspect::descriptors(&frame).map(|named| {
                    let mut descriptors = self.mailbox.buffer();
                    descriptors.extend_from_slice(named);
                    Fetched { descriptors, data }
                });
                self.handle(turn, &mut frame, Place::Here, fetched)?;
                self.mailbox.recycle(frame);
                Ok(())
            }
        }
    }

    /// Handles a frame, or keeps it until the SMB side is home and its turn has come.
    pub(super) fn handle(
        &mut self,
        turn: &mut Turn<'_>,
        frame: &mut [u8],
        place: Place,
        fetched: Option<Fetched>,
    ) -> Result<(), End> {
        if self.smb.is_none() || !self.backlog.is_empty() {
            let waiting = Waiting { frame: frame.to_vec(), place, fetched };
            self.backlog_bytes += waiting.cost();
            if self.backlog_bytes > BACKLOG_MAX {
                return Err(End::PeerTooManyRequests);
            }
            self.backlog.push_back(waiting);
            return Ok(());
        }
        match place {
            Place::Here => self.handle_here(turn, frame, fetched),
            Place::Away => {
                self.send_away(turn, frame.to_vec());
                Ok(())
            }
        }
    }

    fn handle_here(
        &mut self,
        turn: &mut Turn<'_>,
        frame: &mut [u8],
        fetched: Option<Fetched>,
    ) -> Result<(), End> {
        let Some(smb) = &mut self.smb else { return Ok(()) };
        self.mailbox.attend(fetched);
        let mut out = self.mailbox.buffer();
        let outcome = smb.handle(Frame::Borrowed(frame), &mut out);
        // What the handling posted, an RDMA Write above all, comes before its answer.
        self.mailbox.collect(&mut self.items);
        let room = smb.0.connection.take_room();
        self.items.push_back(Item::Frames(Parcel { frame: out, room }));
        outcome?;
        self.note_authentication(turn)
    }

    fn send_away(&mut self, turn: &Turn<'_>, frame: Vec<u8>) {
        let Some(mut smb) = self.smb.take() else { return };
        let mailbox = self.mailbox.clone();
        turn.shared.core.runtime.spawn(async move {
            let mut out = Vec::new();
            let outcome = smb.handle(Frame::Owned(frame.into(), None), &mut out);
            let home = Box::new(Home { smb, out, outcome });
            // If the peer is gone meanwhile, what comes back ends here.
            drop(mailbox.post(Item::Home(home)));
        });
    }

    /// Handles what came while the SMB side was away, so many requests of it at most; `true` if there was something.
    pub(super) fn work_off_backlog(
        &mut self,
        turn: &mut Turn<'_>,
        most: &mut usize,
    ) -> Result<bool, End> {
        let mut worked = false;
        while self.smb.is_some()
            && *most > 0
            && let Some(waiting) = self.backlog.pop_front()
        {
            worked = true;
            *most -= 1;
            self.backlog_bytes -= waiting.cost();
            let Waiting { mut frame, place, fetched } = waiting;
            match place {
                Place::Here => self.handle_here(turn, &mut frame, fetched)?,
                Place::Away => self.send_away(turn, frame),
            }
        }
        Ok(worked)
    }

    /// Whether requests that came while the SMB side was away can be handled now.
    pub(super) fn has_backlog(&self) -> bool {
        !self.is_ending && self.smb.is_some() && !self.backlog.is_empty()
    }

    /// Whether more waits for the SMB side than ought to.
    pub(super) fn is_behind(&self) -> bool {
        self.backlog_bytes > CONGESTED_AT
    }

    /// Whether the peer has to take answers before it gets more credits.
    pub(super) fn is_congested(&self) -> bool {
        let link = self.smb.as_ref().map(|smb| &smb.0.connection.link);
        // Tried anew when one of its requests is done, which has an answer to leave.
        let is_crowded = link.is_some_and(|link| {
            if link.is_crowded() {
                link.look_for_request_room();
            }
            link.is_crowded()
        });
        is_crowded || self.queued_bytes + self.backlog_bytes > CONGESTED_AT
    }
}

/// Bytes of answers and of waiting requests from which on a peer gets no more credits: several
/// times what is under way on a fast link.
const CONGESTED_AT: usize = 4 << 20;
/// Requests that have waited and are handled in a row; then other peers of the engine have their turn.
pub(super) const BACKLOG_TURN: usize = 128;
/// Bytes of requests that may wait for one that is handled on a task: as much as a peer with all
/// its SMB2 credits can have under way. Half of the receive buffers are posted whatever waits.
const BACKLOG_MAX: usize = 32 << 20;
/// What a waiting request costs beside its bytes, so that empty ones count too.
const WAITING_COST: usize = 128;
/// A frame buffer larger than this is not kept.
const FRAME_KEEP_MAX: usize = 1 << 20;
