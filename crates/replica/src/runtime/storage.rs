//! What the threads of the ring, of the volumes, of labels and of the witness do.

use std::time::Duration;

use log::Lsn;

use super::carry::{carry_until, send_queued};
use super::hub::{Arrived, Work};
use super::inner::Inner;
use super::volumes::{ApplyError, moment};
use crate::core::{Action, Core, Event, Lane};
use crate::format::{Encoding, Kind, Record, open_payload};
use crate::message::{Message, Peer};
use crate::one_sided::Hosting;
use crate::ring::RingError;
use crate::view::{Records, RecordsError};
use crate::wire::expand;
use crate::witness::{Rule, Seat};

/// Makes the ring durable.
pub(super) fn persist(inner: &Inner) {
    let hub = &inner.hub;
    while let Some(work) = hub.next(Lane::Ring) {
        match work {
            Work::Order(Action::Persist(to)) => {
                let state = hub.lock();
                let (from, source) = (state.core.durable(), state.core.streaming_from());
                drop(state);
                persist_and_answer(inner, (from, to), source);
            }
            Work::Order(Action::Revoke) => {
                inner.hosting.iter().for_each(Hosting::revoke_all);
                hub.step(Event::Revoked);
            }
            _ => {}
        }
    }
}

/// Makes the ring durable between two LSNs, and says so.
pub(super) fn persist_range(inner: &Inner, from: Lsn, to: Lsn) {
    match inner.ring.persist(from, to) {
        Ok(()) => inner.hub.step(Event::RingDurable(to)),
        Err(error) => failed(inner, "the ring cannot be made durable", &error),
    }
}

/// [`persist_range`] of a thread that then sends what the end of a connection is to hear of it, if that is given and nobody
/// else sends.
pub(super) fn persist_and_answer(inner: &Inner, range: (Lsn, Lsn), only: Option<Peer>) {
    let hub = &inner.hub;
    let mut next = Some(range);
    while let Some((from, to)) = next {
        if let Err(error) = inner.ring.persist(from, to) {
            failed(inner, "the ring cannot be made durable", &error);
            return;
        }
        let may = |_: &Core, member| only.is_some_and(|peer| peer.member == member);
        let mut state = hub.lock();
        let (again, carries) = hub.step_to_carry(&mut state, Event::RingDurable(to), may);
        drop(state);
        let left = send_queued(inner, carries, only);
        // Nothing goes to a source by operations.
        carry_until(inner, left, Lsn(0));
        next = again;
    }
}

/// Stores labels and dirty maps.
pub(super) fn store(inner: &Inner) {
    let hub = &inner.hub;
    while let Some(work) = hub.next(Lane::Label) {
        let stored = match work {
            Work::Order(Action::StoreLabel(label)) => {
                inner.ring.store_label(&label).map(|()| Event::LabelStored(label.sequence))
            }
            Work::Order(Action::StoreDirty { member, number, map }) => {
                inner.ring.store_dirty(member, &map).map(|()| Event::DirtyStored(member, number))
            }
            _ => continue,
        };
        match stored {
            Ok(event) => {
                hub.step(event);
                // Somebody may wait for it: `Member::is_kept`.
                hub.ring_bell(Lane::Label);
            }
            Err(error) => failed(inner, "a label or a dirty map cannot be stored", &error),
        }
    }
}

/// Applies records and copies.
pub(super) fn apply(inner: &Inner) {
    while let Some(work) = inner.hub.next(Lane::Volumes) {
        let Work::Order(action) = work else { continue };
        match carry_out_for_volumes(inner, action) {
            Ok(event) => event.into_iter().for_each(|event| inner.hub.step(event)),
            Err(error) => failed(inner, "the volumes failed", &error),
        }
    }
}

fn carry_out_for_volumes(inner: &Inner, action: Action) -> Result<Option<Event>, VolumesError> {
    let (hub, volumes) = (&inner.hub, &inner.volumes);
    let event = match action {
        Action::Apply(from, to) => {
            apply_records(inner, from, to)?;
            Event::AppliedTo(to)
        }
        Action::FlushVolumes(to) => {
            volumes.flush()?;
            Event::VolumesDurable(to)
        }
        Action::PutCopy => {
            let arrived = hub.lock().arrived.pop_front();
            if let Some(Arrived { extent, bytes, .. }) = arrived {
                // The source knows of it, and remembers: more of it comes, over whatever connection.
                hub.lock().differing.is_copied(extent);
                volumes.put(extent, bytes.as_deref())?;
            }
            Event::CopyPut
        }
        Action::FlushCopies(count) => {
            volumes.flush()?;
            Event::CopiesDurable(count)
        }
        Action::TakeSnapshot { is_first } => {
            volumes.flush()?;
            let state = hub.lock();
            let at = state.core.applied();
            let is_blank = state.core.history().epochs().is_empty();
            let contents = state.core.label().contents;
            drop(state);
            // What was never written is not worth keeping.
            if is_first && !is_blank {
                let id = inner.hub.environment.random.u32().unwrap_or_default();
                let moment = moment(inner.ring.group(), at, hub.time_ns(), id.into());
                if let Err(error) = volumes.take_snapshot(moment) {
                    tracing::warn!(%error, "no snapshot is kept while copies come");
                }
            }
            volumes.views().set_contents(contents);
            Event::SnapshotTaken
        }
        Action::DropSnapshot => {
            if let Err(error) = volumes.drop_snapshot() {
                tracing::warn!(%error, "the snapshot from before the copies stays");
            }
            return Ok(None);
        }
        _ => return Ok(None),
    };
    let contents = hub.lock().core.label().contents;
    volumes.views().set_contents(contents);
    Ok(Some(event))
}

/// Why the volumes failed.
#[derive(Debug, thiserror::Error)]
enum VolumesError {
    #[error("{0}")]
    Block(#[from] block::BlockError),
    #[error("{0}")]
    Apply(#[from] ApplyError),
    #[error("{0}")]
    Records(#[from] RecordsError),
}

/// Applies the records between two LSNs, some at a time.
fn apply_records(inner: &Inner, from: Lsn, to: Lsn) -> Result<(), VolumesError> {
    let (mut at, mut records, mut held) = (from, Vec::new(), 0);
    while at < to {
        let mut payload = Vec::new();
        let record = read_record(inner, at, Some(&mut payload))?;
        at = record.end();
        if record.kind == Kind::Verify {
            inner.volumes.apply(record.lsn, &records)?;
            records.clear();
            verify(inner, &record, &payload)?;
            continue;
        }
        held += payload.len();
        records.push((record, payload));
        if held >= APPLIED_TOGETHER {
            inner.volumes.apply(at, &records)?;
            records.clear();
            held = 0;
        }
    }
    inner.volumes.apply(to, &records)?;
    Ok(())
}

/// Compares a range with what its source had when it made the record.
fn verify(inner: &Inner, record: &Record, digest: &[u8]) -> Result<(), VolumesError> {
    let extent =
        crate::format::Extent { volume: record.volume, offset: record.offset, len: record.len };
    let device = inner.volumes.device(extent.volume).filter(|_| inner.volumes.has(extent));
    let Some(device) = device else { return Ok(()) };
    if !inner.hub.lock().core.is_exact_at(record.lsn) {
        return Ok(());
    }
    let found = inner.digester.range(&**device, extent.offset, extent.len);
    let is_alike = matches!(&found, Ok(found) if found[..] == *digest);
    let hub = &inner.hub;
    let mut state = hub.lock();
    state.verified.0 += 1;
    if is_alike {
        return Ok(());
    }
    if let Err(error) = found {
        tracing::warn!(volume = extent.volume, offset = extent.offset, %error, "a range cannot be read");
    }
    state.verified.1 += 1;
    state.differing.note(record.lsn, extent);
    let source: Option<Peer> = state.core.source_connection();
    if let Some(peer) = source {
        let message = Message::Differs { lsn: record.lsn, extent };
        hub.take(&mut state, vec![Action::Send(peer, message)]);
    }
    Ok(())
}

/// Asks the witness.
pub(super) fn propose(inner: &Inner) {
    let hub = &inner.hub;
    while let Some(work) = hub.next(Lane::Witness) {
        let Work::Order(Action::Propose { number, epoch, source, in_sync, set_version }) = work
        else {
            continue;
        };
        let seat = Seat { epoch, source, in_sync, set_version };
        let is_taken = loop {
            // Who asked may be no source any more, and ask anew later.
            let by_force = hub.lock().core.is_by_force(number);
            let rule = match by_force {
                Some(true) => Rule::ByForce,
                Some(false) => Rule::InSync,
                None => break false,
            };
            match inner.witness.record(rule, &seat) {
                Ok(is_taken) => break is_taken,
                // Whether it was taken is not known: it is asked again until it is.
                Err(error) => {
                    tracing::warn!(%error, "the witness does not answer");
                    if hub.pauses_to_end(WITNESS_PAUSE) {
                        return;
                    }
                }
            }
        };
        hub.step(Event::Proposed { number, is_taken });
    }
}

fn failed(inner: &Inner, what: &str, error: &dyn std::fmt::Display) {
    tracing::error!(%error, "{what}");
    inner.hub.step(Event::StorageFailed);
}

/// The record at an address, and its payload, decoded. One that is sealed is opened, also where its payload is not wanted.
pub(super) fn read_record(
    inner: &Inner,
    at: Lsn,
    payload: Option<&mut Vec<u8>>,
) -> Result<Record, RecordsError> {
    let damaged = RecordsError::MediaDamaged { at };
    let media = |error: RingError| match error {
        RingError::Medium(error) => RecordsError::Media(error),
        _ => damaged,
    };
    let mut header = [0; 64];
    inner.ring.read(at, &mut header).map_err(media)?;
    let group = inner.ring.group();
    let (record, sum) = Record::decode(&group, &header).map_err(|_| damaged)?;
    if record.lsn != at {
        return Err(damaged);
    }
    // It was looked at when it came; but who can write into the ring may have changed it since.
    let is_sealed = record.encoding.is_sealed();
    let begun = inner.hub.lock().core.history().begun_at(at).copied();
    if is_sealed != begun.is_some_and(|epoch| epoch.is_sealed) {
        return Err(damaged);
    }
    let mut unwanted = Vec::new();
    let payload = match payload {
        Some(payload) => payload,
        None if is_sealed => &mut unwanted,
        None => return Ok(record),
    };
    payload.clear();
    if record.payload_len() == 0 && !is_sealed {
        return Ok(record);
    }
    let len = usize::try_from(record.payload_len()).expect("at most PAYLOAD_MAX");
    payload.resize(len, 0);
    if len > 0 {
        inner.ring.read(at.plus(crate::format::RECORD_HEADER_LEN), payload).map_err(media)?;
    }
    if is_sealed {
        let epoch = begun.map(|it| it.epoch);
        let opened = open_payload(inner.ring.keys(), epoch, (&record, sum), &header, payload);
        *payload = opened.ok_or(damaged)?;
    } else if crate::format::payload_sum(&group, at, payload) != sum {
        return Err(damaged);
    }
    let encoding = record.encoding.opened();
    if encoding != Encoding::Plain {
        let mut plain = Vec::new();
        let len = usize::try_from(record.len).map_err(|_| damaged)?;
        expand(encoding, payload, len, &mut plain).map_err(|_| damaged)?;
        *payload = plain;
    }
    Ok(record)
}

/// The records of a member's ring that a view may show.
#[derive(Debug)]
pub(super) struct Kept<'i>(pub(super) &'i Inner);

impl Records for Kept<'_> {
    fn kept(&self) -> std::ops::Range<Lsn> {
        let state = self.0.hub.lock();
        let start = state.core.kept().0;
        start..state.core.committed().min(state.core.durable())
    }

    fn record(&self, at: Lsn, payload: Option<&mut Vec<u8>>) -> Result<Record, RecordsError> {
        let oldest = self.0.hub.lock().core.kept().0;
        if at < oldest {
            return Err(RecordsError::Gone { at, oldest });
        }
        read_record(self.0, at, payload)
    }
}

/// Bytes of payloads that are applied together.
const APPLIED_TOGETHER: usize = 4 << 20;
/// How long the witness is left alone after it did not answer.
const WITNESS_PAUSE: Duration = Duration::from_millis(500);
