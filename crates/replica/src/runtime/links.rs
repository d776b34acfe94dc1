//! The threads that read from connections, send, copy and dial.
//!
//! ```text
//!   dialer (one for each other member) -- link --> Dialed   -- reads until the link ends --> Lost, dials again
//!   listener                           -- link --> Accepted -- reads until the link ends --> Lost
//!   sender (one for each other member):  messages, records from the ring, copies, in the order of their queue
//!   copier (one for each other member):  reads ranges and queues them, or what of them differs
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use block::BlockError;
use log::Lsn;
use pmem::DurabilityClass;

use super::connections::{Connected, LINKS_OF_MEMBER_MAX};
use super::healing::may_heal;
use super::hub::{Arrived, Hub, Work};
use super::inner::Inner;
use super::storage::persist_and_answer;
use super::volumes::TooShort;
use crate::core::{Action, Entry, Event, Lane, News};
use crate::digest::Digest;
use crate::format::{Extent, Indexed, RECORD_HEADER_LEN, check_sequence, open_payload};
use crate::message::{DIGEST_GRANULE, Message, Peer, Refusal};
use crate::names::{History, MEMBERS_MAX, MemberId};
use crate::wire::{Link, LinkError, Receiver, expands};

/// Makes connections to a member while this one is a source, and reads from them.
pub(super) fn dial(inner: &Inner, member: MemberId) {
    while let Some(()) = wait_until_wanted(inner, member) {
        match inner.wire.dial(member) {
            Ok(link) => read_link(inner, member, link, true),
            Err(error) => {
                tracing::debug!(%member, %error, "no connection");
                inner.hub.lock().links.failed(member, error.to_string());
            }
        }
        pause(&inner.hub);
    }
}

fn wait_until_wanted(inner: &Inner, member: MemberId) -> Option<()> {
    let mut state = inner.hub.lock();
    loop {
        if state.ends {
            return None;
        }
        if state.core.is_source() && !state.core.has_failed() && !state.core.is_suspended(member) {
            return Some(());
        }
        let waited = inner.hub.dialers.wait_timeout(state, DIAL_EVERY);
        state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
    }
}

fn pause(hub: &Hub) {
    let state = hub.lock();
    if !state.ends {
        drop(hub.dialers.wait_timeout(state, DIAL_EVERY));
    }
}

/// Takes a link in and reads from it until it ends.
pub(super) fn read_link(inner: &Inner, member: MemberId, link: Link, is_ours: bool) {
    let (closer, link_address) = (link.closer(), link.address());
    let (sender, mut receiver) = link.split();
    let connected = Connected {
        member,
        address: link_address,
        sender: Arc::new(Mutex::new(sender)),
        closer,
        is_ending: false,
        closes_at: None,
        digests: VecDeque::new(),
        fetches: BTreeMap::new(),
        reserved: None,
    };
    let mut state = inner.hub.lock();
    if state.ends || state.links.len() >= LINKS_MAX {
        return;
    }
    state.readers += 1;
    let peer = inner.hub.connected(&mut state, connected, is_ours);
    drop(state);
    if let Err(error) = read(inner, peer, is_ours, &mut receiver) {
        tracing::debug!(%member, %error, "the connection has ended");
    }
    inner.withdraw(peer);
    inner.hub.lost(peer);
    inner.hub.lock().readers -= 1;
    inner.hub.dialers.notify_all();
}

fn read(
    inner: &Inner,
    peer: Peer,
    is_ours: bool,
    receiver: &mut Receiver,
) -> Result<(), LinkError> {
    let mut bytes = Vec::new();
    loop {
        let (message, len) = receiver.receive()?;
        bytes.resize(usize::try_from(len).expect("bounded by the wire"), 0);
        receiver.payload(&mut bytes)?;
        hear(inner, peer, is_ours, message, &mut bytes);
    }
}

fn hear(inner: &Inner, peer: Peer, is_ours: bool, message: Message, bytes: &mut Vec<u8>) {
    let hub = &inner.hub;
    match message {
        Message::Records { .. } => {
            let Some(event) = receive(inner, peer, &message, bytes) else { return };
            // Where that waits for a disk, its thread does it: what comes meanwhile is made durable together.
            match inner.ring.medium().class() {
                DurabilityClass::Storage => hub.step(event),
                DurabilityClass::Pmem | DurabilityClass::Volatile => {
                    let persists = hub.step_for_persist(&mut hub.lock(), event);
                    // A reader may send where the other end has dialed: `carry` says why.
                    let only = (!is_ours).then_some(peer);
                    persists.into_iter().for_each(|it| persist_and_answer(inner, it, only));
                }
            }
        }
        Message::Hello { .. } => hear_hello(inner, peer, message),
        Message::There { .. } => {
            inner.receive_there(peer, &message).into_iter().for_each(|event| hub.step(event));
        }
        Message::Durable { .. } => {
            let mut state = hub.lock();
            hub.step_locked(&mut state, Event::Said(peer, message));
            if state.carrying.is_held(peer.member) {
                state.carrying.holds(peer.member, false);
                hub.ring_bell(Lane::Member(peer.member));
            }
        }
        Message::Invite { .. }
        | Message::Map { .. }
        | Message::Mapped { .. }
        | Message::NotMapped => inner.hear_of_ways(peer, is_ours, message),
        Message::Compare { extent, .. } => {
            hub.step(Event::Said(peer, message));
            compare(inner, peer, extent);
        }
        Message::Digests { extent, digests } => {
            let mut state = hub.lock();
            let answers = state.links.get_mut(peer).map(|connected| &mut connected.digests);
            // The copier has asked for one range.
            if let Some(answers) = answers.filter(|answers| answers.is_empty()) {
                answers.push_back((extent, digests));
            }
            drop(state);
            hub.ring_bell(Lane::Copies(peer.member));
        }
        Message::Fetch { .. } | Message::Fetched { .. } => {
            inner.hear_of_healing(peer, message, bytes);
        }
        Message::Reserve { .. } | Message::Reserved { .. } => inner.hear_of_room(peer, message),
        Message::Copy { .. } => hear_copy(inner, peer, message, bytes),
        message => hub.step(Event::Said(peer, message)),
    }
}

// A volume that has grown meanwhile needs room before anything of it comes.
fn hear_hello(inner: &Inner, peer: Peer, message: Message) {
    let Message::Hello { volumes, history, .. } = &message else { return };
    let mut state = inner.hub.lock();
    // The core refuses a source of an older epoch, and any while this member is one itself or is to be: nothing grows for them.
    let is_old = history.current().leads() < state.core.epoch().leads();
    if is_old || state.core.is_source() || state.core.status().is_promoting {
        inner.hub.step_locked(&mut state, Event::Said(peer, message));
        return;
    }
    drop(state);
    let refused = (0..).zip(volumes).find_map(|(volume, size)| {
        let TooShort(size) = inner.volumes.reserve(volume, *size).err()?;
        Some(Message::Refused(Refusal::OtherVolume { volume, size }))
    });
    let mut state = inner.hub.lock();
    match refused {
        Some(refused) => {
            let actions = vec![Action::Send(peer, refused), Action::Disconnect(peer)];
            inner.hub.take(&mut state, actions);
        }
        None => inner.hub.step_locked(&mut state, Event::Said(peer, message)),
    }
}

fn hear_copy(inner: &Inner, peer: Peer, message: Message, bytes: &mut Vec<u8>) {
    let Message::Copy { epoch, extent, is_zero, .. } = message else { return };
    let expected = if is_zero { 0 } else { extent.len };
    let is_sound = inner.volumes.has(extent) && length_of(bytes) == expected;
    let (hub, mut state) = (&inner.hub, inner.hub.lock());
    if !is_sound {
        hub.step_locked(&mut state, Event::NotReceived(peer));
        return;
    }
    // The bytes wait in the order in which the core has the copies: of those that it refuses there are none.
    if state.core.may_receive_copy(peer, epoch) {
        let bytes = (!is_zero).then(|| std::mem::take(bytes));
        state.arrived.push_back(Arrived { peer, extent, bytes });
    }
    hub.step_locked(&mut state, Event::Said(peer, message));
}

// Whether the core allows it is asked first; then the bytes are checked and placed without the lock.
fn receive(inner: &Inner, peer: Peer, message: &Message, bytes: &[u8]) -> Option<Event> {
    let Message::Records { epoch, from, to, committed } = *message else { return None };
    let hub = &inner.hub;
    let mut state = hub.lock();
    let is_whole = to >= from && length_of(bytes) == to.since(from);
    let allowed = state.core.may_receive(peer, epoch, from, to);
    let Ok(chain) = allowed else {
        inner.refuse(&mut state, peer);
        return None;
    };
    let history = state.core.history().clone();
    drop(state);
    if !is_whole {
        return Some(Event::NotReceived(peer));
    }
    let group = inner.ring.group();
    let found = match check_sequence(&group, &history, from, chain, bytes, inner.ring.keys()) {
        Ok(found) if inner.takes(&history, from, &found, bytes) => found,
        Ok(_) => return Some(Event::NotReceived(peer)),
        Err(error) => {
            tracing::warn!(member = %peer.member, %error, "records are not sound");
            return Some(Event::NotReceived(peer));
        }
    };
    if let Err(error) = inner.ring.place_bytes(from, bytes) {
        tracing::error!(%error, "records cannot be placed");
        hub.step(Event::StorageFailed);
        return Some(Event::NotReceived(peer));
    }
    let entries = found.iter().map(|it| Entry::of(&it.record, it.sum)).collect();
    Some(Event::Received { peer, entries, committed, are_durable: false })
}

impl Inner {
    /// Whether the records of `bytes`, which begin at `from`, can be applied here: none is taken that would be found out then.
    pub(super) fn takes(
        &self,
        history: &History,
        from: Lsn,
        found: &[Indexed],
        bytes: &[u8],
    ) -> bool {
        found.iter().all(|Indexed { record, .. }| {
            let at = record.lsn.since(from) + RECORD_HEADER_LEN;
            let at = usize::try_from(at).expect("within the bytes");
            let len = usize::try_from(record.payload_len()).expect("at most PAYLOAD_MAX");
            let payload = &bytes[at..][..len];
            let is_whole = match record.encoding.is_sealed() {
                false => expands(record, payload),
                true => {
                    let header = bytes[..at].last_chunk().expect("a header is before it");
                    let (keys, epoch) = (self.ring.keys(), history.epoch_at(record.lsn));
                    let opened = open_payload(keys, epoch, (record, 0), header, payload);
                    opened.is_some_and(|payload| expands(record, &payload))
                }
            };
            self.volumes.takes(record) && is_whole
        })
    }
}

/// Answers with the digests of a range.
fn compare(inner: &Inner, peer: Peer, extent: Extent) {
    let is_granular = extent.offset.is_multiple_of(DIGEST_GRANULE) && extent.len <= COMPARED_MAX;
    let device = inner.volumes.device(extent.volume).filter(|_| inner.volumes.has(extent));
    let (Some(device), true) = (device, is_granular) else {
        inner.hub.step(Event::NotReceived(peer));
        return;
    };
    // A granule that cannot be read is like no other: the source sends it, and it is written again.
    let granules = (extent.offset..extent.offset + extent.len).step_by(STEP);
    let digests = inner.digester.granules(&**device, extent.offset, extent.len);
    let digests = digests.unwrap_or_else(|error| {
        tracing::warn!(volume = extent.volume, offset = extent.offset, %error, "a range cannot be read");
        let digest = |offset| {
            let len = DIGEST_GRANULE.min(extent.offset + extent.len - offset);
            let granule = inner.digester.granules(&**device, offset, len);
            granule.ok().and_then(|of| of.first().copied()).unwrap_or(UNREADABLE)
        };
        granules.map(digest).collect()
    });
    let message = Message::Digests { extent, digests };
    let mut state = inner.hub.lock();
    inner.hub.take(&mut state, vec![Action::Send(peer, message)]);
}

/// Reads ranges for a member and queues them.
pub(super) fn copy(inner: &Inner, member: MemberId) {
    let hub = &inner.hub;
    while let Some(work) = hub.next(Lane::Copies(member)) {
        if let Work::Fetch { peer, at, extent } = work {
            inner.answer_fetch(peer, at, extent);
            continue;
        }
        let Work::Order(Action::Copy { peer, extent, compares }) = work else { continue };
        copy_in_the_end(inner, peer, extent, compares);
    }
}

// A block that neither this source nor a member in sync can read holds up the copies to this member alone, until somebody has
// written it.
fn copy_in_the_end(inner: &Inner, peer: Peer, extent: Extent, compares: bool) {
    let (hub, mut has_told) = (&inner.hub, false);
    while let Err(error) = copy_range(inner, peer, extent, compares) {
        // The member is no source any more.
        if error == BlockError::ConfigElsewhere {
            return;
        }
        tracing::error!(volume = extent.volume, %error, "a volume cannot be read");
        if !may_heal(error) {
            hub.step(Event::StorageFailed);
            return;
        }
        let mut state = hub.lock();
        if state.links.get_mut(peer).is_none() {
            return;
        }
        if !std::mem::replace(&mut has_told, true) {
            hub.note(&mut state, News::NotCopied(peer.member, extent));
        }
        drop(state);
        if hub.pauses_to_end(READ_AGAIN) {
            return;
        }
    }
}

fn copy_range(inner: &Inner, peer: Peer, extent: Extent, compares: bool) -> Result<(), BlockError> {
    let hub = &inner.hub;
    let theirs = match compares {
        false => None,
        true => {
            let epoch = hub.lock().core.epoch();
            let ask = Message::Compare { epoch, extent };
            hub.take(&mut hub.lock(), vec![Action::Send(peer, ask)]);
            let Some(digests) = wait_for_digests(hub, peer, extent) else { return Ok(()) };
            Some(digests)
        }
    };
    let Some(device) = inner.volumes.device(extent.volume) else { return Ok(()) };
    // Until the copies are queued nobody writes to the range: what is written later is queued behind them.
    let held = inner.ranges.hold(extent);
    let ours = match &theirs {
        Some(_) => inner
            .healed(extent, || inner.digester.granules(&**device, extent.offset, extent.len))?,
        None => Vec::new(),
    };
    let mut copies = Vec::new();
    let end = extent.offset + extent.len;
    let mut offset = extent.offset;
    let mut index = 0;
    while offset < end {
        let len = DIGEST_GRANULE.min(end - offset);
        let part = Extent { volume: extent.volume, offset, len };
        if theirs.as_ref().is_none_or(|theirs| theirs.get(index) != ours.get(index)) {
            copies.push((part, inner.healed(part, || inner.volumes.copy_of(part))?));
        }
        (offset, index) = (offset + len, index + 1);
    }
    let mut state = hub.lock();
    let (at, epoch) = (state.core.kept().1, state.core.epoch());
    let count = u64::try_from(copies.len()).expect("some granules");
    for (extent, bytes) in copies {
        let message = Message::Copy { epoch, at, extent, is_zero: bytes.is_none() };
        let bytes = bytes.unwrap_or_default();
        hub.queue(&mut state, Lane::Member(peer.member), Work::Copy { peer, message, bytes });
    }
    hub.step_locked(&mut state, Event::CopiesSent(peer, extent, count));
    drop(state);
    drop(held);
    Ok(())
}

/// The digests that the member has answered with; `None` once the connection has ended.
fn wait_for_digests(hub: &Hub, peer: Peer, extent: Extent) -> Option<Vec<Digest>> {
    let mut state = hub.lock();
    loop {
        if state.ends {
            return None;
        }
        let connected = state.links.get_mut(peer)?;
        if let Some((of, digests)) = connected.digests.pop_front() {
            let wanted = extent.len.div_ceil(DIGEST_GRANULE);
            if of == extent && length(&digests) == wanted {
                return Some(digests);
            }
            hub.step_locked(&mut state, Event::NotReceived(peer));
            state.links.get_mut(peer)?.close();
            return None;
        }
        state = hub.wait(Lane::Copies(peer.member), state);
    }
}

fn length_of(bytes: &[u8]) -> u64 {
    length(bytes)
}

fn length<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).expect("no supported machine has more than 64 address bits")
}

/// What cannot be read is read again after this.
const READ_AGAIN: Duration = Duration::from_millis(500);
/// [`DIGEST_GRANULE`], as steps are counted.
const STEP: usize = 64 << 10;
const _: () = assert!(STEP as u64 == DIGEST_GRANULE);
/// The digest of what cannot be read.
const UNREADABLE: Digest = [0xFF; 16];
/// How often a member that is not there is dialed.
const DIAL_EVERY: Duration = Duration::from_millis(250);
/// Connections at once, those that are ending included.
const LINKS_MAX: usize = 4 * LINKS_OF_MEMBER_MAX * MEMBERS_MAX as usize;
/// Bytes that one message asks about at most.
const COMPARED_MAX: u64 = 16 << 20;
