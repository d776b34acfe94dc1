//! A mapped region of a remote file: write, read and commit.
//!
//! ```text
//!                    mapped                       recalled, refused, connection lost
//!   (none) ------> Push --------------------------------------------> Messages
//!                    ^    finish or replay what is outstanding, in order    |
//!                    '------------------------------------------------------'
//!                           mapped again, after a pause that doubles
//! ```
//!
//! # Why nothing is lost or reordered
//!
//! Every operation gets a sequence number. A write is copied to the [`unconfirmed`] ones before it is
//! posted and stays there until a commit that was posted after it and covers it was acknowledged.
//! A write of bytes that an atomic write before it stores waits until that one has been carried out, as the peer orders
//! no Write behind it.
//! When push ends in good order (a recall), everything outstanding completes and one last commit
//! confirms every write before the registration goes back. When it ends in disorder (the connection
//! dies), what the server has done is unknown, so the unconfirmed writes and the unanswered
//! operations are carried out again by messages, merged by sequence, and flushed, before anything
//! newer starts. Writing the same bytes to the same place again changes nothing while nobody else
//! was promised the region: while the lease is ours, unbroken since the mapping ([`Control::may_replay`]). Once
//! it was given away or may have been, nothing is written again; what was not confirmed is lost,
//! the region is broken and [`RemoteRegion::lost`] names the bytes. Bytes that a newer write replaced
//! are not written again, with or without an operation between the two: the newer one may be durable and
//! published, and must not be undone even for a moment. An operation between them sees the newer bytes. An operation reports success only
//! after its own way (the Flush Response, or the answer to a message) confirmed it. A Flush Response says
//! nothing of bytes that went by messages, so these are flushed before the region is mapped again.
//!
//! If the control side fails too, the region is broken and says so: what was acknowledged is durable,
//! what was not is reported as failed.

mod asynchronous;
mod channel;
mod control;
mod drive;
mod engine;
mod error;
mod fallback;
mod memory;
mod path;
#[cfg(test)]
mod planted;
mod recall;
mod settings;
mod shared_thread;
mod silence;
mod staging;
mod unconfirmed;
mod ways;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use basics::Environment;

pub use self::asynchronous::AsyncRegion;
use self::channel::{Channel, ChannelError, READ_MAX};
pub use self::control::{Control, Invitation, Listener, Mapping, Messages, Piece};
pub use self::engine::SharedEngine;
pub use self::error::RegionError;
pub use self::path::{FallbackReason, Path, Promise};
pub use self::recall::Recall;
pub use self::settings::{RegionConfigError, RegionSettings};
use self::staging::Slot;
use self::unconfirmed::{Order, Sequence, Unconfirmed};
pub use self::ways::Ways;

/// A mapped region. Offsets count from the region's beginning.
///
/// One thread at a time drives it; operations may overlap by the `submit_` forms. For use from
/// async code see [`RemoteRegion::into_async`].
#[derive(Debug)]
pub struct RemoteRegion<M: Messages> {
    control: Box<dyn Control<M>>,
    ways: Ways,
    settings: RegionSettings,
    environment: Environment,
    file_offset: u64,
    len: u64,
    channel: Option<Channel>,
    path: Path<M>,
    recall: Arc<Recall>,
    unconfirmed: Unconfirmed,
    pending: VecDeque<Pending<M::Error>>,
    next: Sequence,
    map_again: Option<Instant>,
    map_pause: Duration,
    is_broken: bool,
    /// Nothing goes by messages instead once push mode has ended, and the region is not mapped again.
    ends_with_push: bool,
    /// The unconfirmed ranges when the region broke.
    lost: Vec<Range<u64>>,
    /// The range that holds all bytes written by messages since the last flush by a message.
    unflushed: Option<Range<u64>>,
}

/// Names a submitted operation.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ticket(u64);

impl Ticket {
    /// The ticket as a number, larger than those of earlier operations of its region.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A submitted operation that has ended.
#[derive(Debug, PartialEq)]
pub struct Finished {
    /// The ticket of the operation.
    pub ticket: Ticket,
    /// The hash of a verify, the number of bytes of a read, 0 for a commit.
    pub value: u64,
}

/// A submitted operation and its outcome as far as known.
#[derive(Debug)]
struct Pending<E> {
    sequence: Sequence,
    kind: Kind,
    outcome: Option<Result<u64, RegionError<E>>>,
}

#[derive(Debug)]
enum Kind {
    Commit(Range<u64>),
    /// Waits until the writes before it are placed, in a file without commits.
    Settle(Range<u64>),
    Verify(Range<u64>),
    /// A read into staging memory, or one that is to be answered by messages.
    Read {
        range: Range<u64>,
        slot: Option<Slot>,
    },
    /// A read whose bytes have left staging memory, or never were there.
    Fetched(Vec<u8>),
}

impl<M: Messages> RemoteRegion<M> {
    /// Maps `len` bytes at `file_offset`. A server that does not map is no error: the region then
    /// works by messages of its control side, and [`RemoteRegion::path`] says why.
    pub fn open(
        control: Box<dyn Control<M>>,
        ways: Ways,
        settings: RegionSettings,
        environment: &Environment,
        file_range: Range<u64>,
    ) -> Self {
        let mut region = Self::unmapped(control, ways, settings, environment, file_range);
        region.try_map();
        region
    }

    /// A region that no attempt was made to map.
    fn unmapped(
        control: Box<dyn Control<M>>,
        ways: Ways,
        settings: RegionSettings,
        environment: &Environment,
        file_range: Range<u64>,
    ) -> Self {
        Self {
            control,
            ways,
            file_offset: file_range.start,
            len: file_range.end - file_range.start,
            channel: None,
            path: Path::Messages { reason: FallbackReason::PeerUnaware, promise: None },
            recall: Arc::new(Recall::new()),
            unconfirmed: Unconfirmed::new(settings.unconfirmed_bytes, settings.outstanding_max * 2),
            pending: VecDeque::with_capacity(settings.outstanding_max),
            next: Sequence(1),
            map_again: None,
            map_pause: MAP_PAUSE_MIN,
            is_broken: false,
            ends_with_push: false,
            lost: Vec::new(),
            unflushed: None,
            settings,
            environment: environment.clone(),
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the region has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The path that operations take now, what a commit is worth, and why.
    pub fn path(&self) -> &Path<M> {
        &self.path
    }

    /// From now on the region ends with push mode: no operation begins by messages and the region is not mapped again, so
    /// that an owner who lost it, perhaps to another one, changes nothing more. Every later operation fails with
    /// [`RegionError::PushEnded`]. What is outstanding when the connection is lost is written again as before, while the
    /// lease is held.
    pub fn end_with_push(&mut self) {
        self.ends_with_push = true;
    }

    /// Whether [`RemoteRegion::atomic_write`] is now an RDMA Atomic Write that the server orders behind
    /// earlier commits.
    pub fn orders_atomic_writes(&self) -> bool {
        self.channel.as_ref().is_some_and(Channel::orders_stores)
    }

    /// The ranges of bytes that were written and that no commit had confirmed when the region
    /// broke, in order: after [`RegionError::Broken`] the bytes may be durable, in the file, or
    /// gone, and another client may have written there since. Empty while the region is not broken.
    pub fn lost(&self) -> &[Range<u64>] {
        &self.lost
    }

    /// Whether the server has asked for the region back and this end has not answered yet. The next operation, or
    /// [`RemoteRegion::attend`], answers.
    pub fn is_recalled(&self) -> bool {
        self.channel.is_some() && !self.recall.is_granted()
    }

    /// Whether an earlier failure broke the region: [`RegionError::Broken`].
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Does what needs no operation: gives a recalled region back, and takes in completions. For an owner who makes no
    /// calls for longer than half of the grace of a recall.
    ///
    /// # Errors
    /// The failure that broke the region.
    pub fn attend(&mut self) -> Outcome<(), M> {
        self.progress()
    }

    /// Submitted operations that [`RemoteRegion::finish`] has not returned.
    pub fn outstanding(&self) -> usize {
        self.pending.len()
    }

    /// Posts a write. The next commit that covers the write reports its success.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfRange`]; [`RegionError::Server`] if messages were the only path and failed.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Outcome<(), M> {
        self.begin(offset, wide(bytes.len()))?;
        let mut offset = offset;
        for piece in bytes.chunks(self.unconfirmed.write_max()) {
            self.record(offset, piece, Order::Free, |channel| channel.write(offset, piece))?;
            offset += wide(piece.len());
        }
        Ok(())
    }

    /// Makes everything written before, within the range, durable.
    ///
    /// # Durability
    ///
    /// On `Ok` the bytes survive what the class in [`RemoteRegion::path`] survives, whatever way the commit went; where
    /// the server does not say its class, what a flush of that server survives.
    ///
    /// # Errors
    ///
    /// [`RegionError::CommitRefused`] where the class is volatile without emulation, or below what the caller asked for.
    pub fn commit(&mut self, offset: u64, len: u64) -> Outcome<(), M> {
        self.submit_commit(offset, len)?;
        self.finish_last(&mut []).map(|_| ())
    }

    /// [`RemoteRegion::write`] and [`RemoteRegion::commit`] of the same bytes in one round trip.
    ///
    /// # Durability
    ///
    /// As [`RemoteRegion::commit`]. A crash before `Ok` leaves any mixture of old and new aligned
    /// 8-byte words.
    pub fn write_commit(&mut self, offset: u64, bytes: &[u8]) -> Outcome<(), M> {
        self.submit_write_commit(offset, bytes)?;
        self.finish_last(&mut []).map(|_| ())
    }

    /// Reads into `out`; sees every earlier write of this region.
    pub fn read(&mut self, offset: u64, out: &mut [u8]) -> Outcome<(), M> {
        let mut offset = offset;
        for piece in out.chunks_mut(usize::try_from(READ_MAX).expect("1 MiB")) {
            let len = u32::try_from(piece.len()).expect("at most READ_MAX");
            self.submit_read(offset, len)?;
            self.finish_last(piece)?;
            offset += u64::from(len);
        }
        Ok(())
    }

    /// Stores eight bytes (little-endian in the file) at a multiple of 8, only if every earlier
    /// commit succeeded: for example a pointer to what they committed. The store is not durable by
    /// itself: commit it.
    ///
    /// If [`RemoteRegion::orders_atomic_writes`] is true, the server keeps the order and this call
    /// returns at once. Otherwise the call returns when every commit submitted before has ended;
    /// the store is then one plain RDMA Write or one message.
    ///
    /// # Durability
    ///
    /// An RDMA Atomic Write is stored in one piece: any reader of the word, after a crash too, sees the
    /// old word or the new. A plain RDMA Write (RFC 5040 §5.5 orders no placement within it) and a
    /// message promise that only once a commit has covered the word; a crash before that may, as far as
    /// the protocols go, leave any mixture of the bytes of both.
    ///
    /// # Errors
    ///
    /// [`RegionError::Misaligned`]; [`RegionError::Broken`] if an earlier commit failed: then
    /// nothing was stored.
    pub fn atomic_write(&mut self, offset: u64, value: u64) -> Outcome<(), M> {
        if !offset.is_multiple_of(8) {
            return Err(RegionError::Misaligned { offset });
        }
        self.begin(offset, 8)?;
        self.await_commits_before_a_store()?;
        self.record(offset, &value.to_le_bytes(), Order::BehindCommits, |channel| {
            if channel.has_atomic_write() {
                channel.atomic_write(offset, value)
            } else {
                channel.write(offset, &value.to_le_bytes())
            }
        })
    }

    /// CRC-32C of the bytes at the server, which hashes them itself if it can.
    pub fn verify(&mut self, offset: u64, len: u32) -> Outcome<u32, M> {
        self.submit_verify(offset, len)?;
        let hash = self.finish_last(&mut [])?;
        Ok(u32::try_from(hash).expect("a CRC-32C has 32 bits"))
    }

    /// Posts a write and its commit; [`RemoteRegion::finish`] reports when the bytes are durable.
    ///
    /// # Errors
    ///
    /// [`RegionError::TooLong`] above [`RegionSettings::unconfirmed_bytes`].
    pub fn submit_write_commit(&mut self, offset: u64, bytes: &[u8]) -> Outcome<Ticket, M> {
        let max = self.unconfirmed.write_max();
        if bytes.len() > max {
            return Err(RegionError::TooLong { len: bytes.len(), max });
        }
        self.begin(offset, wide(bytes.len()))?;
        self.check_commits()?;
        self.record(offset, bytes, Order::Free, |channel| channel.write(offset, bytes))?;
        self.submit_commit(offset, wide(bytes.len()))
    }

    /// Posts a commit.
    pub fn submit_commit(&mut self, offset: u64, len: u64) -> Outcome<Ticket, M> {
        self.begin(offset, len)?;
        self.check_commits()?;
        let range = offset..offset + len;
        self.submit(Kind::Commit(range.clone()), |channel, sequence| {
            channel.commit(sequence, range)
        })
    }

    /// Posts a read of at most 1 MiB; [`RemoteRegion::finish`] returns the bytes. The read sees every
    /// write posted before it, and may see a write posted after it (RFC 5040 §5.5).
    pub fn submit_read(&mut self, offset: u64, len: u32) -> Outcome<Ticket, M> {
        if len > READ_MAX {
            let max = usize::try_from(READ_MAX).expect("1 MiB");
            return Err(RegionError::TooLong { len: usize::try_from(len).unwrap_or(max), max });
        }
        self.begin(offset, u64::from(len))?;
        let slot = self.reserve(len)?;
        let range = offset..offset + u64::from(len);
        self.submit(Kind::Read { range, slot }, |channel, sequence| match slot {
            Some(slot) => channel.read(sequence, offset, slot),
            None => Err(ChannelError::PeerIncapable),
        })
    }

    /// Posts a [`RemoteRegion::verify`]; [`RemoteRegion::finish`] returns the hash. If the server does not
    /// hash, this call reads and hashes the bytes before it returns.
    pub fn submit_verify(&mut self, offset: u64, len: u32) -> Outcome<Ticket, M> {
        self.begin(offset, u64::from(len))?;
        let kind = Kind::Verify(offset..offset + u64::from(len));
        if self.channel.as_ref().is_some_and(|channel| !channel.has_verify()) {
            let hash = self.hash_what_is_read(offset, len)?;
            return Ok(self.note(kind, Ok(u64::from(hash))));
        }
        self.submit(kind, |channel, sequence| channel.verify(sequence, offset, len))
    }

    /// Waits for the oldest submitted operation. A read's bytes go to the front of `out`.
    ///
    /// # Errors
    ///
    /// [`RegionError::NothingOutstanding`]; [`RegionError::TooLong`] if the bytes do not fit `out`
    /// (the operation stays); else the error of the operation.
    pub fn finish(&mut self, out: &mut [u8]) -> Outcome<Finished, M> {
        loop {
            if let Some(finished) = self.try_finish(out)? {
                return Ok(finished);
            }
            self.wait(Duration::MAX);
        }
    }

    /// [`RemoteRegion::finish`] that returns at once; `None` if the oldest operation has not ended.
    pub fn try_finish(&mut self, out: &mut [u8]) -> Outcome<Option<Finished>, M> {
        // Results of the last look are handed out before the next look: requests that are submitted
        // meanwhile leave together.
        if self.pending.front().is_some_and(|oldest| oldest.outcome.is_none()) {
            // Every operation without an outcome failed with the region; the oldest returns the
            // error, unless it was answered before the region failed.
            if let Err(error) = self.progress() {
                let oldest = self.pending.front_mut().ok_or(RegionError::NothingOutstanding)?;
                if !matches!(oldest.outcome, Some(Ok(_))) {
                    oldest.outcome = Some(Err(error));
                }
            }
        }
        let oldest = self.pending.front().ok_or(RegionError::NothingOutstanding)?;
        if oldest.outcome.is_none() {
            return Ok(None);
        }
        oldest.kind.check_room(out)?;
        let oldest = self.pending.pop_front().expect("just looked at");
        let ticket = Ticket(oldest.sequence.0);
        let value = self.hand_out(oldest, out)?;
        Ok(Some(Finished { ticket, value }))
    }

    /// Waits until something may have happened or the server recalls the region, for `patience` at
    /// most; may return earlier without an event.
    pub fn wait(&mut self, patience: Duration) {
        if let Some(channel) = &mut self.channel
            && self.pending.iter().any(|pending| pending.outcome.is_none())
        {
            channel.wait(patience);
        }
    }

    /// Gives the region back, and waits until the server has let go of its file: who opens it next finds it free. Dropping a
    /// region gives it back without that wait, and so does this call where the control side may not block: in a task of an async
    /// runtime. It commits nothing: what no commit has covered may be in the file or not.
    ///
    /// # Errors
    /// [`RegionError::Server`]. The region is given back all the same.
    pub fn close(mut self) -> Outcome<(), M> {
        self.end()
    }

    /// [`RemoteRegion::close`] of a region that others may ask for something yet, in vain.
    fn end(&mut self) -> Outcome<(), M> {
        self.channel = None;
        self.is_broken = true;
        Ok(self.control.close()?)
    }

    /// Hands the region to a thread of its own, for use from async code. Operations submitted
    /// before are carried out; no caller gets their outcome.
    pub fn into_async(self) -> AsyncRegion<M> {
        AsyncRegion::start(self)
    }
}

impl Kind {
    /// Whether the bytes of a read fit `out`.
    fn check_room<E>(&self, out: &[u8]) -> Result<(), RegionError<E>> {
        let len = match self {
            Self::Read { range, .. } => usize::try_from(range.end - range.start).expect("READ_MAX"),
            Self::Fetched(bytes) => bytes.len(),
            Self::Commit(_) | Self::Settle(_) | Self::Verify(_) => 0,
        };
        if len > out.len() { Err(RegionError::TooLong { len, max: out.len() }) } else { Ok(()) }
    }
}

type Outcome<T, M> = Result<T, RegionError<<M as Messages>::Error>>;

fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("usize has at most 64 bits here")
}

// First pause before a lost region is mapped again; the pause doubles up to the second constant.
const MAP_PAUSE_MIN: Duration = Duration::from_millis(50);
const MAP_PAUSE_MAX: Duration = Duration::from_secs(5);
// The pause after an attempt is at least this many times as long as the attempt took.
const MAP_COST: u32 = 20;

#[cfg(test)]
mod tests;
