//! The progress of a region's operations: room, posting, completion, and mapping again.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::channel::{Channel, ChannelError, READ_MAX};
use super::control::{Invitation, Listener, Messages};
use super::fallback::refused;
use super::path::{FallbackReason, Path};
use super::staging::Slot;
use super::unconfirmed::{Order, Sequence};
use super::{
    Kind, MAP_COST, MAP_PAUSE_MAX, MAP_PAUSE_MIN, Outcome, Pending, RegionError, RemoteRegion,
    Ticket, wide,
};

impl<M: Messages> RemoteRegion<M> {
    /// The checks before every operation.
    pub(super) fn begin(&mut self, offset: u64, len: u64) -> Outcome<(), M> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(RegionError::OutOfRange { offset, len, limit: self.len });
        }
        self.check_unbroken()?;
        if self.pending.len() >= self.settings.outstanding_max {
            return Err(RegionError::QueueFull);
        }
        if !self.recall.is_granted() && self.channel.is_some() {
            self.retreat()?;
            // Leaving push mode includes a commit, which may have failed.
            self.check_unbroken()?;
        }
        self.check_path()?;
        if self.map_again.is_some_and(|when| when <= self.now()) {
            self.try_map();
            // Entering push mode includes a flush, which may have failed.
            self.check_unbroken()?;
        }
        Ok(())
    }

    fn check_unbroken(&self) -> Outcome<(), M> {
        if self.is_broken { Err(RegionError::Broken) } else { Ok(()) }
    }

    fn check_path(&self) -> Outcome<(), M> {
        let is_over = self.ends_with_push && self.channel.is_none();
        if is_over { Err(RegionError::PushEnded) } else { Ok(()) }
    }

    /// Keeps a write among the unconfirmed ones and posts it, or carries it out by messages.
    pub(super) fn record(
        &mut self,
        offset: u64,
        bytes: &[u8],
        order: Order,
        post: impl FnOnce(&mut Channel) -> Result<(), ChannelError>,
    ) -> Outcome<(), M> {
        if order == Order::Free {
            self.await_stores_before_a_write(offset..offset + wide(bytes.len()))?;
        }
        if self.channel.is_some() && !self.unconfirmed.has_room(bytes.len()) {
            self.commit_unconfirmed()?;
            self.check_unbroken()?;
        }
        // Also where push mode has ended within this operation.
        self.check_path()?;
        let sequence = self.draw();
        let Some(channel) = &mut self.channel else {
            return self.write_by_message(offset, bytes);
        };
        // The copy comes first: if posting ends the channel, the replay includes the write.
        self.unconfirmed.push(sequence, offset, bytes, order);
        match post(channel) {
            Ok(()) => Ok(()),
            Err(error) => self.retire(error.into()),
        }
    }

    /// Queues an operation and posts it, or carries it out by messages.
    pub(super) fn submit(
        &mut self,
        kind: Kind,
        post: impl FnOnce(&mut Channel, Sequence) -> Result<(), ChannelError>,
    ) -> Outcome<Ticket, M> {
        let sequence = self.draw();
        self.pending.push_back(Pending { sequence, kind, outcome: None });
        let posted = self.channel.as_mut().map(|channel| post(channel, sequence));
        match posted {
            Some(Ok(())) => {}
            Some(Err(error)) => self.retire(error.into()).inspect_err(|_| {
                // The submitting call returns the error, and the caller has no ticket to ask with.
                self.pending.pop_back();
            })?,
            None => self.carry_out_pending(),
        }
        Ok(Ticket(sequence.0))
    }

    /// Queues an operation that has ended already.
    pub(super) fn note(&mut self, kind: Kind, outcome: Outcome<u64, M>) -> Ticket {
        let sequence = self.draw();
        self.pending.push_back(Pending { sequence, kind, outcome: Some(outcome) });
        Ticket(sequence.0)
    }

    /// Waits for every commit submitted so far, on a channel whose peer does not order a store
    /// behind commits by itself.
    pub(super) fn await_commits_before_a_store(&mut self) -> Outcome<(), M> {
        if self.channel.as_ref().is_some_and(Channel::orders_stores) {
            return Ok(());
        }
        let is_open_commit = |pending: &Pending<M::Error>| {
            matches!((&pending.kind, &pending.outcome), (Kind::Commit(_), None))
        };
        if let Some(newest) = self.pending.iter().rposition(is_open_commit) {
            self.await_pending(newest + 1)?;
        }
        self.check_unbroken()
    }

    // The peer carries requests out in their order, an Atomic Write behind a read, but places a Write when it comes
    // (RFC 5040 §5.5): posted behind a store of the same bytes that waits there, it would be undone by it.
    fn await_stores_before_a_write(&mut self, range: Range<u64>) -> Outcome<(), M> {
        let Some(channel) = self.channel.as_ref().filter(|one| one.has_atomic_write()) else {
            return Ok(());
        };
        let Some(word) = self.unconfirmed.open_store(&range, channel.completed()) else {
            return Ok(());
        };
        self.confirm(word)?;
        self.check_unbroken()
    }

    /// Staging memory for a read; `None` if the read will go by messages.
    pub(super) fn reserve(&mut self, len: u32) -> Outcome<Option<Slot>, M> {
        while let Some(channel) = &mut self.channel {
            if let Some(slot) = channel.reserve(len) {
                return Ok(Some(slot));
            }
            // Staging memory is freed only when an answer is taken out.
            self.empty_oldest_slot()?;
        }
        Ok(None)
    }

    /// The hash of bytes that this end reads and hashes, for a peer without Verify.
    pub(super) fn hash_what_is_read(&mut self, offset: u64, len: u32) -> Outcome<u32, M> {
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        let mut piece = vec![0; usize::try_from(READ_MAX.min(len)).expect("1 MiB")];
        let (mut at, end) = (offset, offset + u64::from(len));
        while at < end {
            let taken = usize::try_from(end - at).unwrap_or(piece.len()).min(piece.len());
            self.read(at, &mut piece[..taken])?;
            digest.update(&piece[..taken]);
            at += wide(taken);
        }
        Ok(u32::try_from(digest.finalize()).expect("a CRC-32C has 32 bits"))
    }

    /// Waits for the newest submitted operation, and keeps the results of older ones for their
    /// callers.
    pub(super) fn finish_last(&mut self, out: &mut [u8]) -> Outcome<u64, M> {
        if let Err(error) = self.await_pending(self.pending.len()) {
            self.pending.pop_back();
            return Err(error);
        }
        let last = self.pending.pop_back().ok_or(RegionError::NothingOutstanding)?;
        self.hand_out(last, out)
    }

    /// Copies a finished read to its caller and returns the outcome of the operation.
    pub(super) fn hand_out(&mut self, done: Pending<M::Error>, out: &mut [u8]) -> Outcome<u64, M> {
        match (&done.kind, self.channel.as_mut()) {
            (Kind::Read { range, slot: Some(slot) }, Some(channel)) => {
                let len = usize::try_from(range.end - range.start).expect("at most READ_MAX");
                channel.take(*slot, &mut out[..len]);
            }
            (Kind::Fetched(bytes), _) => out[..bytes.len()].copy_from_slice(bytes),
            _ => {}
        }
        done.outcome.expect("only operations that are over are handed out")
    }

    /// Does all progress that needs no waiting.
    pub(super) fn progress(&mut self) -> Outcome<(), M> {
        if self.channel.is_some() && !self.recall.is_granted() {
            return self.retreat();
        }
        self.collect()
    }

    /// Handles the completions of the channel.
    pub(super) fn collect(&mut self) -> Outcome<(), M> {
        let Some(channel) = &mut self.channel else { return Ok(()) };
        if let Err(error) = channel.poll() {
            let reason = error.into();
            return match self.refused_commit(&reason) {
                Some(class) => self.end_by_refusal(reason, class),
                None => self.retire(reason),
            };
        }
        let completed = channel.completed();
        for pending in &mut self.pending {
            if pending.sequence > completed {
                break;
            }
            if pending.outcome.is_some() {
                continue;
            }
            let value = match &pending.kind {
                Kind::Commit(range) => {
                    if !channel.has_flush() {
                        // The writes are placed; COMMIT_REMOTE_REGION makes them durable.
                        let (start, end) = (range.start, range.end);
                        let file_range = self.file_offset + start..self.file_offset + end;
                        if let Err(error) = self.control.commit(file_range) {
                            return Err(self.break_off(error.into()));
                        }
                    }
                    self.unconfirmed.committed(pending.sequence, range);
                    0
                }
                Kind::Settle(range) => {
                    self.unconfirmed.committed(pending.sequence, range);
                    0
                }
                Kind::Read { range, .. } => range.end - range.start,
                Kind::Verify(_) => match channel.take_hash(pending.sequence) {
                    Some(hash) => u64::from(hash),
                    None => return self.retire(FallbackReason::PeerIncapable),
                },
                Kind::Fetched(bytes) => wide(bytes.len()),
            };
            pending.outcome = Some(Ok(value));
        }
        Ok(())
    }

    /// Waits until the first `count` pending operations have ended. Ignores recalls.
    pub(super) fn await_pending(&mut self, count: usize) -> Outcome<(), M> {
        while self.pending.iter().take(count).any(|pending| pending.outcome.is_none()) {
            self.collect()?;
            if self.pending.iter().take(count).all(|pending| pending.outcome.is_some()) {
                break;
            }
            self.wait(Duration::MAX);
        }
        Ok(())
    }

    /// Commits every unconfirmed write.
    pub(super) fn commit_unconfirmed(&mut self) -> Outcome<(), M> {
        let (Some(range), Some(_)) = (self.unconfirmed.span(), &self.channel) else {
            return Ok(());
        };
        self.confirm(range)
    }

    // A file without commits promises no more than that the bytes are placed: that is known of them then.
    fn confirm(&mut self, range: Range<u64>) -> Outcome<(), M> {
        if refused(&*self.control).is_some() {
            let kind = Kind::Settle(range.clone());
            self.submit(kind, |channel, sequence| channel.settle(sequence, range.start))?;
        } else {
            let kind = Kind::Commit(range.clone());
            self.submit(kind, |channel, sequence| channel.commit(sequence, range))?;
        }
        self.finish_last(&mut []).map(|_| ())
    }

    /// The check before a commit that the caller asks for. A refusal breaks the region: an operation behind it, such as
    /// the store of a published pointer, must not happen without it.
    pub(super) fn check_commits(&mut self) -> Outcome<(), M> {
        match refused(&*self.control) {
            None => Ok(()),
            Some(class) => {
                self.mark_broken();
                Err(RegionError::CommitRefused { class })
            }
        }
    }

    /// Tries to enter push mode. A failure becomes the reason of the path.
    pub(super) fn try_map(&mut self) {
        let began = self.now();
        match self.map() {
            Ok(()) => {
                self.map_again = None;
                self.map_pause = MAP_PAUSE_MIN;
            }
            Err(reason) => {
                self.path = Path::Messages { reason, promise: self.control.promise() };
                // Operations wait during an attempt: an attempt that dials a silent address must be
                // rare.
                let took = self.now().saturating_duration_since(began);
                let costly = took.saturating_mul(MAP_COST);
                self.map_later();
                self.map_again = self.map_again.max(self.now().checked_add(costly));
            }
        }
    }

    /// Sets the time of the next attempt, farther away each time.
    pub(super) fn map_later(&mut self) {
        self.map_again = Some(self.now() + self.map_pause);
        self.map_pause = (self.map_pause * 2).min(MAP_PAUSE_MAX);
    }

    fn map(&mut self) -> Result<(), FallbackReason<M>> {
        let invitation = self.control.invite()?;
        let (mut channel, reply) = self.dial(&invitation)?;
        let connection = self.control.connection(&reply).ok_or(FallbackReason::PeerIncapable)?;
        self.flush_before_mapping().map_err(|error| M::reason(&error))?;
        self.recall.grant(channel.waker());
        let mapping =
            self.control.map(connection, &self.recall).map_err(|error| M::reason(&error))?;
        if let Err(error) = channel.attach(&mapping, self.len) {
            // The mapping stays unused. If the unmapping fails, the server ends the mapping with the
            // connection.
            let _ = self.control.unmap();
            self.control.settle();
            return Err(error.into());
        }
        self.path = Path::Push {
            class: invitation.class,
            is_emulated: invitation.is_emulated,
            has_flush: channel.has_flush(),
            provider: channel.provider(),
            is_adapter: channel.is_adapter(),
        };
        self.channel = Some(channel);
        Ok(())
    }

    /// Dials the server's addresses in its order. The first that answers is used; if none does, the
    /// last reason is reported. Together they take no longer than a single one may.
    fn dial(&self, invitation: &Invitation) -> Result<(Channel, Vec<u8>), ChannelError> {
        let deadline = self.now() + self.settings.answer_timeout.min(DIAL_TIMEOUT);
        let mut outcome = Err(ChannelError::PeerIncapable);
        let ways = self.ways.to(invitation);
        for (left, (provider, listener)) in (1..=ways.len()).rev().zip(ways) {
            let patience = share_of(deadline.saturating_duration_since(self.now()), left);
            let Listener { address, private_data } = listener;
            outcome = Channel::dial(
                &**provider,
                &self.settings,
                &self.environment,
                *address,
                private_data,
                patience,
            );
            match &outcome {
                Ok(_) => break,
                Err(error) => tracing::debug!(%address, ?error, "no push connection"),
            }
        }
        outcome
    }

    /// How long a thread may wait for this region without harm to its answer timeout; `None`: it waits for no answer.
    pub(super) fn look_every(&self) -> Option<Duration> {
        self.channel.as_ref().map(Channel::look_every)
    }

    fn now(&self) -> Instant {
        self.environment.clock.now()
    }

    fn draw(&mut self) -> Sequence {
        let drawn = self.next;
        self.next = Sequence(drawn.0 + 1);
        drawn
    }
}

/// How long one address may take while `left` of them are still to be dialled, so that a silent
/// address leaves time for the others.
pub(super) fn share_of(time: Duration, left: usize) -> Duration {
    time / u32::try_from(left).unwrap_or(u32::MAX).max(1)
}

/// The time for all addresses of a server.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
