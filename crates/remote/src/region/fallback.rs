//! Leaving push mode: in good order after a recall, with a replay after a lost connection, or with
//! the loss of unconfirmed writes after a lost lease.

use std::collections::VecDeque;
use std::ops::Range;

use pmem::DurabilityClass;
use rdma::DisconnectReason;
use tracing::debug;

use super::path::{ACCESS, FallbackReason, Path};
#[cfg(test)]
use super::planted::Planted;
use super::unconfirmed::{Sequence, merged};
use super::{Control, Kind, Messages, Outcome, Pending, RegionError, RemoteRegion, wide};

impl<M: Messages> RemoteRegion<M> {
    /// Returns a recalled region: everything outstanding completes, one last commit confirms
    /// every write, then the registration ends.
    pub(super) fn retreat(&mut self) -> Outcome<(), M> {
        self.await_pending(self.pending.len())?;
        self.commit_unconfirmed()?;
        self.leave(FallbackReason::Recalled)?;
        self.control.settle();
        Ok(())
    }

    /// Handles a channel that ended in disorder: unanswered operations are carried out again by
    /// messages, or end.
    pub(super) fn retire(&mut self, reason: FallbackReason<M>) -> Outcome<(), M> {
        self.leave(reason)?;
        let replayed = self.replay();
        self.control.settle();
        replayed
    }

    /// The class of the file, if the channel ended because the server refuses the oldest commit: that is the outcome of the
    /// commit, and no other way may turn it into success.
    pub(super) fn refused_commit(&self, reason: &FallbackReason<M>) -> Option<DurabilityClass> {
        let FallbackReason::Disconnected(DisconnectReason::PeerTerminated(ACCESS)) = reason else {
            return None;
        };
        let oldest = self.pending.iter().find(|pending| pending.outcome.is_none())?;
        let Path::Push { class, has_flush: true, .. } = self.path else { return None };
        matches!(oldest.kind, Kind::Commit(_)).then_some(class)
    }

    /// Handles a channel that the refusal of a commit ended: the commit has failed, and with it all behind it.
    pub(super) fn end_by_refusal(
        &mut self,
        reason: FallbackReason<M>,
        class: DurabilityClass,
    ) -> Outcome<(), M> {
        self.leave(reason)?;
        self.control.settle();
        if let Some(oldest) = self.pending.iter_mut().find(|pending| pending.outcome.is_none()) {
            oldest.outcome = Some(Err(RegionError::CommitRefused { class }));
        }
        Err(self.break_off(RegionError::CommitRefused { class }))
    }

    /// Ends the channel. On return the server places no more bytes that came through it: the server
    /// answers an unmapping only then, and nothing can overtake later requests by messages.
    fn leave(&mut self, reason: FallbackReason<M>) -> Outcome<(), M> {
        while self.empty_oldest_slot_of_finished() {}
        // The server learns of the end at once.
        self.channel = None;
        debug!(%reason, "leaves push mode");
        self.path = Path::Messages { reason, promise: self.control.promise() };
        self.map_later();
        // The control task may have sent an unmapping for the owner that is not answered yet: whichever
        // of the two sent it, this call waits. A second unmapping is answered when the first is.
        self.recall.leave();
        let unmapped = self.control.unmap();
        // The control side may have come back meanwhile, at a server that says something else.
        if let Path::Messages { promise, .. } = &mut self.path {
            *promise = self.control.promise();
        }
        unmapped.map_err(|error| {
            self.control.settle();
            self.break_off(error.into())
        })
    }

    /// Ends every operation without an outcome: none can be confirmed any more, and nobody must
    /// wait for an answer that will not come.
    pub(super) fn break_off(&mut self, error: RegionError<M::Error>) -> RegionError<M::Error> {
        self.mark_broken();
        for pending in self.pending.iter_mut().filter(|pending| pending.outcome.is_none()) {
            pending.outcome = Some(Err(RegionError::Broken));
        }
        error
    }

    pub(super) fn mark_broken(&mut self) {
        if !self.is_broken {
            self.is_broken = true;
            let mut ranges = self.unconfirmed.ranges();
            ranges.extend(self.unflushed.clone());
            self.lost = merged(ranges);
        }
    }

    /// Carries out the unconfirmed writes and the unanswered operations, merged by sequence. The
    /// first failure ends the replay: no later commit may confirm a write that failed, and no
    /// operation behind a commit, such as the store of a published pointer, may happen without that
    /// commit.
    fn replay(&mut self) -> Outcome<(), M> {
        match self.replay_in_order() {
            Ok(()) => {
                self.unconfirmed.clear();
                self.carry_out_pending();
                Ok(())
            }
            Err(error) => Err(self.break_off(error)),
        }
    }

    fn replay_in_order(&mut self) -> Outcome<(), M> {
        let mut next = 0;
        let unanswered = self.pending.iter().filter(|pending| pending.outcome.is_none());
        let unanswered: Vec<Sequence> = unanswered.map(|pending| pending.sequence).collect();
        let writes = self.unconfirmed.replay(&unanswered);
        if !writes.is_empty() && !may_replay(&mut *self.control) {
            return Err(RegionError::Broken);
        }
        for (sequence, offset, pieces) in writes {
            let first = next;
            next = carry_out_before(&mut self.pending, next, sequence, |pending| {
                by_message(&mut *self.control, self.file_offset, pending)
            });
            if self.pending.range(first..next).any(Pending::is_failed_commit) {
                return Err(RegionError::Broken);
            }
            let is_ours = match pieces {
                [bytes, []] => self.control.write_again(self.file_offset + offset, bytes)?,
                // The bytes wrap around the end of the ring. They are still sent in one request: a
                // store of eight bytes must not arrive in two parts.
                pieces => self.control.write_again(self.file_offset + offset, &pieces.concat())?,
            };
            if !is_ours {
                return Err(RegionError::Broken);
            }
        }
        Ok(self.control.flush()?)
    }

    /// Carries out by messages every operation that has no outcome yet, in order.
    pub(super) fn carry_out_pending(&mut self) {
        let mut is_flushed = false;
        carry_out_before(&mut self.pending, 0, Sequence(u64::MAX), |pending| {
            by_message(&mut *self.control, self.file_offset, pending);
            is_flushed |=
                matches!((&pending.kind, &pending.outcome), (Kind::Commit(_), Some(Ok(_))));
        });
        // Later operations may rely on the commit.
        if self.pending.iter().any(Pending::is_failed_commit) {
            self.mark_broken();
        } else if is_flushed {
            self.unflushed = None;
        }
    }

    /// Writes by messages, while push mode is not available.
    pub(super) fn write_by_message(&mut self, offset: u64, bytes: &[u8]) -> Outcome<(), M> {
        let end = offset + wide(bytes.len());
        self.unflushed = Some(match &self.unflushed {
            Some(range) => range.start.min(offset)..range.end.max(end),
            None => offset..end,
        });
        let written = self.control.write(self.file_offset + offset, bytes);
        written.inspect_err(|_| self.mark_broken())?;
        Ok(())
    }

    /// Flushes the bytes that were written by messages: a commit of a mapped region does not cover
    /// them.
    pub(super) fn flush_before_mapping(&mut self) -> Result<(), M::Error> {
        #[cfg(test)]
        if Planted::MapsUnflushed.is_here() {
            return Ok(());
        }
        if self.unflushed.is_some() {
            // A failed flush is never retried into success.
            self.control.flush().inspect_err(|_| self.mark_broken())?;
            self.unflushed = None;
        }
        Ok(())
    }

    /// Moves the bytes of the oldest read out of staging memory; waits for the read if necessary.
    pub(super) fn empty_oldest_slot(&mut self) -> Outcome<(), M> {
        let staged =
            |pending: &Pending<M::Error>| matches!(pending.kind, Kind::Read { slot: Some(_), .. });
        let Some(index) = self.pending.iter().position(staged) else {
            return Err(RegionError::QueueFull);
        };
        self.await_pending(index + 1)?;
        self.empty_oldest_slot_of_finished();
        Ok(())
    }

    fn empty_oldest_slot_of_finished(&mut self) -> bool {
        let Some(channel) = &mut self.channel else { return false };
        for pending in &mut self.pending {
            if let (Kind::Read { range, slot: Some(slot) }, Some(Ok(_))) =
                (&pending.kind, &pending.outcome)
            {
                let len = usize::try_from(range.end - range.start).expect("at most READ_MAX");
                let mut bytes = vec![0; len];
                channel.take(*slot, &mut bytes);
                pending.kind = Kind::Fetched(bytes);
                return true;
            }
        }
        false
    }
}

/// Whether a replay can overwrite no bytes of another client.
fn may_replay<M: Messages>(control: &mut dyn Control<M>) -> bool {
    #[cfg(test)]
    if Planted::ReplaysWithoutLease.is_here() {
        return true;
    }
    control.may_replay()
}

impl<E> Pending<E> {
    fn is_failed_commit(&self) -> bool {
        matches!((&self.kind, &self.outcome), (Kind::Commit(_), Some(Err(_))))
    }
}

/// Carries out the operations from index `next` on that precede `limit` and have no outcome;
/// returns the index of the first that does not precede it.
fn carry_out_before<E>(
    pending: &mut VecDeque<Pending<E>>,
    next: usize,
    limit: Sequence,
    mut carry_out: impl FnMut(&mut Pending<E>),
) -> usize {
    let mut index = next;
    while let Some(operation) = pending.get_mut(index).filter(|found| found.sequence < limit) {
        if operation.outcome.is_none() {
            carry_out(operation);
        }
        index += 1;
    }
    index
}

/// Carries out one operation by messages. Its failure is its outcome.
fn by_message<M: Messages>(
    control: &mut dyn Control<M>,
    file_offset: u64,
    pending: &mut Pending<M::Error>,
) {
    let outcome = match &pending.kind {
        Kind::Commit(_) => {
            if let Some(class) = refused(control) {
                pending.outcome = Some(Err(RegionError::CommitRefused { class }));
                return;
            }
            control.flush().map(|()| 0)
        }
        // The writes before it were answered.
        Kind::Settle(_) => Ok(0),
        Kind::Verify(range) => hash_by_messages(control, file_offset, range.clone()),
        Kind::Read { range, .. } => {
            let len = usize::try_from(range.end - range.start).expect("at most READ_MAX");
            let mut bytes = vec![0; len];
            let read = control.read(file_offset + range.start, &mut bytes);
            pending.kind = Kind::Fetched(bytes);
            read.map(|()| wide(len))
        }
        Kind::Fetched(bytes) => Ok(wide(bytes.len())),
    };
    pending.outcome = Some(outcome.map_err(RegionError::from));
}

/// The class of a file whose server commits nothing in it, or not as much as the caller asked for.
pub(super) fn refused<M: Messages>(control: &dyn Control<M>) -> Option<DurabilityClass> {
    let promise = control.promise()?;
    (!promise.can_commit() || !control.takes(promise)).then_some(promise.class)
}

/// CRC-32C of bytes of the file, which this end reads piece by piece.
fn hash_by_messages<M: Messages>(
    control: &mut dyn Control<M>,
    file_offset: u64,
    range: Range<u64>,
) -> Result<u64, M::Error> {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    let mut piece = vec![0; HASH_PIECE];
    let mut at = range.start;
    while at < range.end {
        let len = usize::try_from(range.end - at).unwrap_or(HASH_PIECE).min(HASH_PIECE);
        control.read(file_offset + at, &mut piece[..len])?;
        digest.update(&piece[..len]);
        at += wide(len);
    }
    Ok(digest.finalize())
}

// Large enough for few round trips, small enough for any machine.
const HASH_PIECE: usize = 1 << 20;
