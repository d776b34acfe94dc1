//! Turns answers into Sends: queued items leave in order, as far as credits and the queue pair
//! allow.
//!
//! ```text
//!   items:  Push -----> RDMA Write posted ----+
//!           Frames --------------------------> smbdirect queue --credits--> Send posted
//!           Pull -----> transfers --> RDMA Read posted
//!   an item that the queue pair refuses waits; the next completion makes room
//! ```

use std::mem;

use rdma::{Operation, Payload, PostError, Rkey, WorkRequest};
use smb::NtStatus;
use smb::framing;
use smbdirect::{SEND_QUEUE_MAX, SendError};

use super::error::End;
use super::incoming::BACKLOG_TURN;
use super::inspect::Place;
use super::mailbox::Item;
use super::peer::{CLOSING_GRACE, Home, Peer, Stage, Turn};
use super::transfers::Asker;
use crate::connections::Parcel;

impl Peer {
    /// Does the work that is possible now; [`Peer::has_backlog`] reports whether more is left.
    pub(super) fn pump(&mut self, turn: &mut Turn<'_>) -> Result<(), End> {
        self.mailbox.collect(&mut self.items, &mut self.spent);
        if self.mailbox.is_to_close() {
            // Others need what it holds.
            if self.link.is_cut() {
                return Err(End::PeerHoldsMost);
            }
            self.closing.get_or_insert(turn.now + CLOSING_GRACE);
        }
        let mut most = BACKLOG_TURN;
        if self.link.is_crowded() {
            self.wait_for_room(turn);
        }
        loop {
            self.work_off_items(turn)?;
            self.post_reads(turn)?;
            self.post_sends(turn)?;
            let worked = self.work_off_backlog(turn, &mut most)?;
            if !worked && !self.has_room_for_items() {
                break;
            }
        }
        // Behind a logon that has come back.
        if self.mailbox.take_evicted() && self.is_evictable {
            return Err(End::Evicted);
        }
        if !self.is_congested() {
            let posted = self.receives.post_withheld(turn.engine)?;
            if posted > 0 {
                self.receives_posted(posted);
                self.post_sends(turn)?;
            }
        }
        self.transfers.yield_staging(turn.engine, &mut turn.shared.budget);
        let is_drained = self.items.is_empty() && self.stalled.is_none() && self.queued_bytes == 0;
        if self.closing.is_some() && is_drained { Err(End::LocalClosed) } else { Ok(()) }
    }

    /// Whether answers wait until the peer takes those before them.
    pub(super) fn wants_to_send(&self) -> bool {
        self.stalled.is_some() || !self.items.is_empty() || self.queued_bytes > 0
    }

    /// Whether an item waits for the room that a completion makes.
    pub(super) fn wants_room(&self) -> bool {
        self.stalled.is_some() || !self.items.is_empty() || self.transfers.has_waiting()
    }

    fn work_off_items(&mut self, turn: &mut Turn<'_>) -> Result<(), End> {
        while let Some(item) = self.items.pop_front() {
            match item {
                Item::Frames(parcel) => {
                    let rest = self.queue_frames(parcel)?;
                    // An answer that was held back may have ended the authentication.
                    self.note_authentication(turn)?;
                    if let Some(rest) = rest {
                        self.items.push_front(Item::Frames(rest));
                        return Ok(());
                    }
                }
                Item::Push(mut push) => {
                    let posted = push.post(turn.engine, self.qp, turn.shared.inline_max);
                    self.progress.sent += push.take_posted();
                    if !posted? {
                        self.items.push_front(Item::Push(push));
                        return Ok(());
                    }
                    if push.counted.is_none() {
                        self.mailbox.remove_uncounted(push.data.capacity() + push.cursor.held());
                    }
                    self.spent.push(push.data);
                }
                Item::Invalidate { message_id, token } => {
                    self.invalidations.note(message_id, token)?;
                }
                Item::Pull(pull) => self.transfers.begin(pull)?,
                Item::Room(room) => {
                    self.waits_for_room = None;
                    self.long_room = room;
                }
                Item::Home(home) => {
                    let Home { smb, out, outcome } = *home;
                    self.smb = Some(smb);
                    let room = self.smb.as_mut().and_then(|smb| smb.0.connection.take_room());
                    // Behind answers that wait for room it waits, too.
                    self.items.push_front(Item::Frames(Parcel { frame: out, room }));
                    outcome?;
                }
            }
        }
        // They are queued, and count there.
        self.made_bytes = 0;
        Ok(())
    }

    // Whether answers are there for which the queue of messages has room by now.
    fn has_room_for_items(&self) -> bool {
        matches!(self.items.front(), Some(Item::Frames(_))) && self.takes_message()
    }

    fn takes_message(&self) -> bool {
        match &self.stage {
            Stage::Up(connection) => connection.queued() < SEND_QUEUE_MAX,
            Stage::Negotiating(_) => true,
        }
    }

    /// Removes the length prefixes, which SMB Direct does not use, and queues the messages. Returns those for which the
    /// queue has no room.
    fn queue_frames(&mut self, parcel: Parcel) -> Result<Option<Parcel>, End> {
        let Parcel { frame: mut frames, room } = parcel;
        while let Some(&prefix) = frames.first_chunk::<{ framing::PREFIX_LEN }>() {
            if !self.takes_message() {
                return Ok(Some(Parcel { frame: frames, room }));
            }
            let len = framing::frame_len(prefix, framing::FRAME_LEN_MAX);
            let end = framing::PREFIX_LEN + len.map_err(|_| End::LocalFrame)?;
            if end > frames.len() {
                return Err(End::LocalFrame);
            }
            // Almost always there is one short frame: moving it is cheaper than a second way for
            // the whole server to begin an answer.
            let rest = frames.split_off(end);
            frames.drain(..framing::PREFIX_LEN);
            self.queue_message(mem::replace(&mut frames, rest))?;
        }
        // Of a request that is answered later.
        if frames.capacity() > 0 {
            self.spent.push(frames);
        }
        // Held until the last of the messages has left.
        self.rooms.extend(room.map(|room| (self.queued_messages, room)));
        Ok(None)
    }

    fn queue_message(&mut self, message: Vec<u8>) -> Result<(), End> {
        let Stage::Up(connection) = &mut self.stage else { return Ok(()) };
        let invalidate = self.invalidations.take(&message);
        let len = message.len();
        connection.send(message, invalidate).map_err(|unsent| match unsent.reason {
            SendError::ConfigTooLong { len, max } => End::PeerAskedTooMuch { len, max },
            SendError::Closed(reason) => End::Smbd(reason),
            _ => End::PeerTakesNothing { queued: self.queued_bytes },
        })?;
        self.queued_bytes += len;
        self.queued_messages += 1;
        Ok(())
    }

    fn post_reads(&mut self, turn: &mut Turn<'_>) -> Result<(), End> {
        loop {
            // The fetched bytes would wait as well, and the backlog gets shorter without them. Those of tasks go on: what
            // waits may wait for the room that these hold.
            let tasks_only = self.is_behind();
            let who =
                Asker { qp: self.qp, id: self.id, holder: &self.holder, now: turn.now, tasks_only };
            let (budget, mailbox) = (&mut turn.shared.budget, &self.mailbox);
            let Some(refused) = self.transfers.advance(turn.engine, budget, mailbox, who)? else {
                return Ok(());
            };
            // The bytes cannot be fetched; handling the request finds that out and reports it.
            if let Some(mut frame) = refused.fail(NtStatus::NOT_SUPPORTED) {
                self.handle(turn, &mut frame, Place::Away, None)?;
            }
        }
    }

    fn post_sends(&mut self, turn: &mut Turn<'_>) -> Result<(), End> {
        let Stage::Up(connection) = &mut self.stage else { return Ok(()) };
        loop {
            let stalled = self.stalled.take();
            let next = stalled.or_else(|| {
                let transmit = connection.poll_transmit(&mut self.transmit)?;
                if let Some(message) = transmit.finished {
                    self.queued_bytes -= message.len();
                    self.sent_messages += 1;
                    while self
                        .rooms
                        .pop_front_if(|(until, _)| *until <= self.sent_messages)
                        .is_some()
                    {}
                    self.spent.push(message);
                }
                Some((transmit.len, transmit.invalidate))
            });
            let Some((len, invalidate)) = next else { return Ok(()) };
            let operation = Operation::Send {
                payload: Payload::Inline(&self.transmit[..len]),
                invalidate: invalidate.map(|token| Rkey(token.0)),
                solicited: false,
            };
            match turn.engine.post_send(self.qp, WorkRequest::signaled(0, operation)) {
                Ok(()) => self.progress.sent += u64::try_from(len).expect("lengths fit 64 bits"),
                Err(PostError::QueueFull) => {
                    self.stalled = Some((len, invalidate));
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
