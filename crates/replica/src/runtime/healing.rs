//! What a source cannot read from its own volume comes from a member in sync, and is written again: a disk then has a sound
//! sector in its place.
//!
//! ```text
//!   source: a block cannot be read -- Fetch(at) --> member: waits until it has everything below `at`, reads volume and log
//!           written again, answered  <-- Fetched --
//! ```
//! Nobody writes to the range meanwhile, and everything that was written there is committed: below `at`.

use block::{BlockError, Survives};
use log::Lsn;

use super::connections::Fetched;
use super::hub::Work;
use super::inner::Inner;
use super::storage::Kept;
use crate::core::{Action, Event, Lane, News};
use crate::format::Extent;
use crate::message::{Message, Peer};
use crate::names::MemberId;
use crate::view::bytes_at;

impl Inner {
    /// What `read` gives; once the blocks of the range that cannot be read have been healed, if that is why it fails. The caller
    /// holds the range.
    pub(super) fn healed<T>(
        &self,
        extent: Extent,
        read: impl Fn() -> Result<T, BlockError>,
    ) -> Result<T, BlockError> {
        match read() {
            Err(error) if may_heal(error) => {
                self.heal(extent, error)?;
                read()
            }
            done => done,
        }
    }

    /// Heals each block of a range that cannot be read, which the caller holds in whole blocks.
    pub(super) fn heal(&self, extent: Extent, error: BlockError) -> Result<(), BlockError> {
        let tenure = self.hub.tenure();
        let device = self.volumes.device(extent.volume).ok_or(error)?;
        let mut bytes = Vec::new();
        let (mut at, end) = (extent.offset, extent.offset + extent.len);
        while at < end {
            let len = HEALED_BLOCK.min(end - at);
            bytes.resize(usize::try_from(len).expect("a block"), 0);
            if device.read(at, &mut bytes).is_err() {
                let block = Extent { volume: extent.volume, offset: at, len };
                let (member, fetched) = self.fetch(block).ok_or(error)?;
                self.put_healed(tenure, block, &fetched)?;
                tracing::warn!(volume = block.volume, offset = at, "a block was healed");
                self.hub.note(&mut self.hub.lock(), News::Healed(member, block));
            }
            at += len;
        }
        Ok(())
    }

    /// Writes what a member had. Whoever heals is a writer: this member does not become a destination, whose volumes others
    /// write, between the look at the tenure and the end of the write.
    fn put_healed(&self, tenure: u64, block: Extent, bytes: &[u8]) -> Result<(), BlockError> {
        let hub = &self.hub;
        let elsewhere = BlockError::ConfigElsewhere;
        let device = self.volumes.device(block.volume).ok_or(elsewhere)?;
        let mut state = hub.lock();
        self.check(tenure)?;
        state.writers.inside += 1;
        drop(state);
        let done = device.write(block.offset, bytes, Survives::Durable);
        let mut state = hub.lock();
        state.writers.inside -= 1;
        hub.writers_may_have_stopped(&mut state);
        done
    }

    /// The bytes of a range at a member in sync, from the first that has them.
    fn fetch(&self, extent: Extent) -> Option<(MemberId, Vec<u8>)> {
        let peers = self.hub.lock().core.in_sync_peers();
        peers.into_iter().find_map(|peer| Some((peer.member, self.fetch_from(peer, extent)?)))
    }

    // Who reads another range is not held up by a member that does not answer: each waits for its own.
    fn fetch_from(&self, peer: Peer, extent: Extent) -> Option<Vec<u8>> {
        let (hub, key) = (&self.hub, (extent.volume, extent.offset));
        let until = hub.now() + ANSWER_NS;
        let mut state = hub.lock();
        while state.links.get_mut(peer)?.fetches.len() >= FETCHES_MAX {
            if state.ends || hub.now() > until {
                return None;
            }
            state = hub.wait(Lane::Copies(peer.member), state);
        }
        state.links.get_mut(peer)?.fetches.insert(key, None);
        let (epoch, at) = (state.core.epoch(), state.core.committed());
        hub.take(&mut state, vec![Action::Send(peer, Message::Fetch { epoch, at, extent })]);
        loop {
            let connected = state.links.get_mut(peer)?;
            let answered = connected.fetches.get_mut(&key).and_then(Option::take);
            let is_over = state.ends || hub.now() > until;
            let is_it = |of: &Fetched| (of.at, of.extent) == (at, extent);
            let answered = answered.filter(is_it);
            if answered.is_some() || is_over {
                state.links.get_mut(peer)?.fetches.remove(&key);
                drop(state);
                hub.ring_bell(Lane::Copies(peer.member));
                return answered?.bytes;
            }
            state = hub.wait(Lane::Copies(peer.member), state);
        }
    }

    pub(super) fn hear_of_healing(&self, peer: Peer, message: Message, bytes: &mut Vec<u8>) {
        let (hub, mut state) = (&self.hub, self.hub.lock());
        match message {
            Message::Fetch { at, extent, .. } => {
                hub.step_locked(&mut state, Event::Said(peer, message));
                hub.queue(&mut state, Lane::Copies(peer.member), Work::Fetch { peer, at, extent });
            }
            Message::Fetched { at, extent, is_there } => {
                let connected = state.links.get_mut(peer);
                let key = (extent.volume, extent.offset);
                // What nobody waits for is not kept.
                if let Some(answer) = connected.and_then(|it| it.fetches.get_mut(&key)) {
                    let bytes = is_there.then(|| std::mem::take(bytes));
                    *answer = Some(Fetched { at, extent, bytes });
                }
                hub.step_locked(&mut state, Event::Said(peer, message));
                hub.ring_bell(Lane::Copies(peer.member));
            }
            _ => {}
        }
    }

    /// Answers a source, once this member has the order so far: what is not in its volume yet is in its log.
    pub(super) fn answer_fetch(&self, peer: Peer, at: Lsn, extent: Extent) {
        let hub = &self.hub;
        let until = hub.now() + DURABLE_NS;
        let mut state = hub.lock();
        while state.core.durable() < at && hub.now() < until {
            if state.ends || state.links.get_mut(peer).is_none() {
                return;
            }
            state = hub.wait(Lane::Copies(peer.member), state);
        }
        let is_exact = state.core.durable() >= at && state.core.is_exact_at(at);
        drop(state);
        // Room of the log may be used again while it is read: what was there is in the volume then.
        let bytes = (0..ATTEMPTS).find_map(|_| {
            let applied = hub.lock().core.applied().min(at);
            let device = self.volumes.device(extent.volume)?;
            let is_there = is_exact && self.volumes.has(extent);
            is_there.then(|| bytes_at(&Kept(self), &**device, extent, applied..at).ok()).flatten()
        });
        let message = Message::Fetched { at, extent, is_there: bytes.is_some() };
        let bytes = bytes.unwrap_or_default();
        let mut state = hub.lock();
        hub.queue(&mut state, Lane::Member(peer.member), Work::Copy { peer, message, bytes });
    }
}

/// Whether a failed read may be the fault of some blocks, which a disk or a volume has lost.
pub(super) const fn may_heal(error: BlockError) -> bool {
    matches!(error, BlockError::MediaIo(_) | BlockError::MediaLost { .. })
}

/// What is healed at once: the sector of most disks.
pub(super) const HEALED_BLOCK: u64 = 4096;
/// How long a member may take until it has what was committed, in nanoseconds.
const DURABLE_NS: u64 = 5_000_000_000;
/// How often what a source wants is read, where the log changes meanwhile.
const ATTEMPTS: u32 = 3;
/// Ranges that a member is asked for at once.
const FETCHES_MAX: usize = 64;
/// How long its answer may take.
const ANSWER_NS: u64 = 8_000_000_000;
