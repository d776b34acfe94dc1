//! Opens a log after whatever happened to its members.
//!
//! ```text
//!   labels -> the set in sync -> are enough of it here? -> scan each -> the longest is the log
//!          -> the others get what they lack -> all is durable -> new generation on every label
//! ```
//! Every acknowledged record is at every member that was in sync, so any of them has all. What one member has beyond
//! the others was not acknowledged, and stays. A second crash anywhere in between leaves members that open the same
//! way: nothing is appended before every label has the new generation.

use std::ops::Range;

use crate::create::newest_label;
use crate::error::LogError;
use crate::format::label::LABEL_LEN;
use crate::format::{Label, LabelError, SLOT_LEN};
use crate::lsn::{Generation, Lsn};
use crate::members::{MEMBERS_MAX, MemberSet};
use crate::mirror::{Member, Mirror};
use crate::options::OpenOptions;
#[cfg(test)]
use crate::planted::Planted;
use crate::ring::Ring;
use crate::scan::{Found, scan, to_u64};
use crate::seal::Seal;
use crate::store::{Store, StoreError};

/// A log that is ready for records.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) mirror: Mirror,
    pub(crate) seal: Option<Seal>,
    /// Behind the last record.
    pub(crate) tail: Lsn,
}

/// A member that is here, before it is known whether it was in sync.
struct Candidate {
    label: Label,
    store: Box<dyn Store>,
}

/// A member that was in sync, scanned.
struct Scanned {
    candidate: Candidate,
    found: Found,
}

/// Opens the log whose members are among `stores`.
pub(crate) fn open(stores: Vec<Box<dyn Store>>, options: &OpenOptions) -> Result<Opened, LogError> {
    let candidates = candidates(stores)?;
    let label = common_label(&candidates)?;
    let seal = seal_for(&label, options)?;
    let (mut scanned, stale) = scan_those_in_sync(candidates, &label);
    let label = check_missing(label, &scanned, stale.len(), options)?;
    check_label(&label, &scanned)?;
    let best = longest(&scanned)?;
    let tail = scanned[best].found.tail;
    level(&mut scanned, best, &label)?;
    let here = numbers_of(&scanned);
    let members = scanned.into_iter().map(|scanned| member_of(scanned.candidate)).collect();
    let mut mirror = Mirror::new(label, members);
    mirror.put_labels(|label| {
        #[cfg(test)]
        if Planted::ReusesGeneration.is_here() && label.generation.0 > 0 {
            return;
        }
        label.generation = Generation(label.generation.0 + 1);
        label.opened = tail;
        label.in_sync = here;
        // Also of the same set: a newcomer's label that no other followed must not be the newest for ever.
        label.set_epoch += 1;
    })?;
    for candidate in stale {
        let member = member_of(candidate);
        let number = member.number;
        if let Err(error) = catch_up(&mut mirror, member, tail) {
            tracing::warn!(member = number, %error, "a member of the log stays out of sync");
        }
    }
    let (in_sync, least) = (mirror.label().in_sync, mirror.label().least_in_sync);
    if in_sync.len() < usize::from(least) {
        // One that could not be caught up. Nothing was appended to the set that the labels name now.
        return Err(LogError::TooFew { here: in_sync.len(), least });
    }
    Ok(Opened { mirror, seal, tail })
}

/// Brings a member up to `tail` and takes it in. No record is appended meanwhile. Where a member in sync has its
/// number by now, it gets another one.
fn catch_up(mirror: &mut Mirror, mut member: Member, tail: Lsn) -> Result<(), LogError> {
    if mirror.label().in_sync.contains(member.number) {
        let given = MEMBERS_MAX + 1;
        member.number =
            mirror.free_number().ok_or(LogError::ConfigMembers { given, max: MEMBERS_MAX })?;
    }
    let start = mirror.label().start;
    #[cfg(test)]
    let tail = if Planted::AdmitsBehind.is_here() { start } else { tail };
    copy_range(mirror, &mut member, start, tail)?;
    let (ring, end) = (mirror.ring(), start.plus(mirror.label().capacity));
    erase_records(&mut member, ring, tail..end)?;
    mirror.admit(member)
}

/// Copies a range of records, durably, from a member in sync to one that is not yet.
pub(crate) fn copy_range(
    mirror: &mut Mirror,
    member: &mut Member,
    from: Lsn,
    to: Lsn,
) -> Result<(), LogError> {
    let number = member.number;
    for (_, offset, len) in mirror.ring().pieces(from..to) {
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let len = (end - at).min(COPY_LEN);
            let mut bytes = vec![0; usize::try_from(len).expect("at most COPY_LEN")];
            let read = mirror.read_somewhere(|store| store.read(at, &mut bytes).map(Some))?;
            read.ok_or(LogError::Broken)?;
            let write = member.store.place(at, &bytes);
            write
                .and_then(|()| member.store.begin_commit(at, len))
                .and_then(|()| member.store.end_commit())
                .map_err(|cause| LogError::Store { member: number, cause })?;
            at += len;
        }
    }
    Ok(())
}

/// Takes the labels off a store that becomes a member: what it held before is no log any more.
pub(crate) fn erase_labels(member: &mut Member) -> Result<(), LogError> {
    let number = member.number;
    for slot in [0, SLOT_LEN] {
        let erased = [0; LABEL_LEN];
        let placed = member.store.place(slot, &erased);
        placed
            .and_then(|()| member.store.begin_commit(slot, to_u64(erased.len())))
            .and_then(|()| member.store.end_commit())
            .map_err(|cause| LogError::Store { member: number, cause })?;
    }
    Ok(())
}

/// Takes away what a store that becomes a member holds in a range of its ring: records of the same log, from when it went
/// on without the other members, would count once the log comes to them.
pub(crate) fn erase_records(
    member: &mut Member,
    ring: Ring,
    range: Range<Lsn>,
) -> Result<(), LogError> {
    let number = member.number;
    let zeros = vec![0; usize::try_from(COPY_LEN.min(ring.capacity)).expect("at most COPY_LEN")];
    for (_, offset, len) in ring.pieces(range) {
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let len = (end - at).min(to_u64(zeros.len()));
            let placed =
                member.store.place(at, &zeros[..usize::try_from(len).expect("at most COPY_LEN")]);
            placed
                .and_then(|()| member.store.begin_commit(at, len))
                .and_then(|()| member.store.end_commit())
                .map_err(|cause| LogError::Store { member: number, cause })?;
            at += len;
        }
    }
    Ok(())
}

fn candidates(stores: Vec<Box<dyn Store>>) -> Result<Vec<Candidate>, LogError> {
    let mut found: Vec<Candidate> = Vec::new();
    let mut without = Ok(LabelError::NoLabel);
    for (given, mut store) in stores.into_iter().enumerate() {
        match newest_label(&mut *store) {
            Ok(Ok(label)) => {
                if found.first().is_some_and(|first| first.label.id != label.id) {
                    return Err(LogError::Foreign { member: given });
                }
                found.push(Candidate { label, store });
            }
            Ok(Err(error)) => {
                tracing::warn!(member = given, %error, "a member holds no label");
                without = without.map(|_| error);
            }
            Err(cause) => {
                tracing::warn!(member = given, %cause, "a member cannot be read");
                // Nobody knows that it holds no log.
                without = Err(LogError::Store { member: given, cause });
            }
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    Err(LogError::NoLog { cause: without? })
}

/// What the newest label says of the set, and what any label says of start and generation.
fn common_label(candidates: &[Candidate]) -> Result<Label, LogError> {
    let labels = || candidates.iter().map(|candidate| &candidate.label);
    let newest = labels().max_by_key(|label| (label.set_epoch, label.generation));
    let newest = newest.ok_or(LogError::NoLog { cause: LabelError::NoLabel })?;
    // The label of a newcomer that was not taken in may be as new as those of the others, which do not name it.
    let newest = labels()
        .filter(|label| {
            (label.set_epoch, label.generation) == (newest.set_epoch, newest.generation)
        })
        .min_by_key(|label| label.in_sync.len())
        .unwrap_or(newest);
    let in_sync = || labels().filter(|label| is_in_sync(label, newest));
    let start = in_sync().max_by_key(|label| label.start).unwrap_or(newest);
    let latest = in_sync().max_by_key(|label| label.generation).unwrap_or(newest);
    Ok(Label {
        start: start.start,
        generation: latest.generation,
        opened: latest.opened,
        ..newest.clone()
    })
}

/// Whether the member with the label `of` is the one of its number that `newest` names. Each change of the set is on
/// every member's label before the next change begins, so that a crash leaves labels that are one epoch apart. A number
/// goes from one member to another by two changes at least: the label of the former is older than that.
fn is_in_sync(of: &Label, newest: &Label) -> bool {
    newest.in_sync.contains(usize::from(of.member))
        && of.set_epoch.saturating_add(1) >= newest.set_epoch
}

fn seal_for(label: &Label, options: &OpenOptions) -> Result<Option<Seal>, LogError> {
    let seal = options.key.as_ref().map(|key| Seal::derive(key, &label.id)).transpose()?;
    if seal.as_ref().map(Seal::check) == label.key_check {
        Ok(seal)
    } else {
        Err(LogError::ConfigKey)
    }
}

/// Scans the members of the set. One that cannot be read counts as not here.
fn scan_those_in_sync(candidates: Vec<Candidate>, label: &Label) -> (Vec<Scanned>, Vec<Candidate>) {
    let (mut scanned, mut stale) = (Vec::<Scanned>::new(), Vec::new());
    for mut candidate in candidates {
        let number = number_of(&candidate);
        let is_taken = scanned.iter().any(|member| number_of(&member.candidate) == number);
        if is_taken || !is_in_sync(&candidate.label, label) {
            stale.push(candidate);
            continue;
        }
        match scan(&mut *candidate.store, label) {
            Ok(found) => scanned.push(Scanned { candidate, found }),
            Err(error) => tracing::warn!(member = number, %error, "a member cannot be read"),
        }
    }
    (scanned, stale)
}

/// Refuses where the members that are not here can have gone on without those that are, and where those that are here
/// are too few to go on: then the next opening, of the others, could not know of it. Where all that are not here are gone
/// for good, those that are left are enough from now on, which the returned label says.
fn check_missing(
    label: Label,
    scanned: &[Scanned],
    stale: usize,
    options: &OpenOptions,
) -> Result<Label, LogError> {
    let here = numbers_of(scanned);
    let missing = label.in_sync.minus(here);
    let feared = missing.minus(options.given_up);
    if here.is_empty() || feared.len() >= usize::from(label.least_in_sync) {
        return Err(LogError::Missing { missing });
    }
    let found = here.len() + stale;
    if found >= usize::from(label.least_in_sync) {
        return Ok(label);
    }
    let stands_for = if missing.is_empty() {
        let all = MemberSet::of(&(0..usize::from(label.members)).collect::<Vec<_>>());
        all.minus(here).minus(options.given_up)
    } else {
        feared
    };
    if !stands_for.is_empty() {
        return Err(LogError::TooFew { here: found, least: label.least_in_sync });
    }
    let least_in_sync = u8::try_from(found).expect("fewer than before");
    Ok(Label { least_in_sync, ..label })
}

/// Whether the label is the newest that the log had, as far as the records tell, and a later one can follow it.
fn check_label(label: &Label, scanned: &[Scanned]) -> Result<(), LogError> {
    if let Some(lsn) = scanned.iter().find_map(|member| member.found.later) {
        return Err(LogError::LabelLost { lsn });
    }
    let sequences = scanned.iter().map(|member| member.candidate.label.sequence);
    let is_last = label.generation.0 >= u32::MAX - 1
        || [label.set_epoch].into_iter().chain(sequences).any(|number| number >= NUMBER_MAX);
    if is_last { Err(LogError::NoLog { cause: LabelError::Nonsense }) } else { Ok(()) }
}

/// The member with the most records, by its index.
fn longest(scanned: &[Scanned]) -> Result<usize, LogError> {
    let best = (0..scanned.len()).max_by_key(|index| scanned[*index].found.tail);
    let best = best.ok_or(LogError::Missing { missing: MemberSet::default() })?;
    let durable = scanned.iter().map(|member| member.found.durable).max().unwrap_or_default();
    let lsn = scanned[best].found.tail;
    if durable > lsn { Err(LogError::Damaged { lsn, durable }) } else { Ok(best) }
}

/// Gives every member the records of the longest, and makes all of them durable: some may have been placed by a
/// program that died before it committed them.
fn level(scanned: &mut [Scanned], best: usize, label: &Label) -> Result<(), LogError> {
    let ring = Ring { capacity: label.capacity };
    let Found { tail, durable, .. } = scanned[best].found;
    let behind: Vec<Lsn> = scanned.iter().map(|member| member.found.tail).collect();
    for (index, begin) in behind.into_iter().enumerate() {
        for (_, offset, len) in ring.pieces(begin..tail) {
            copy(scanned, best, index, offset, len)?;
        }
        for (_, offset, len) in ring.pieces(durable.min(tail)..tail) {
            // Placed again: a system whose flush of these bytes failed shows them as if they were on the disk, and
            // flushes them no more.
            copy(scanned, index, index, offset, len)?;
            let store = &mut scanned[index].candidate.store;
            let settled = store.settle(offset, len);
            settled.map_err(|cause| LogError::Store { member: index, cause })?;
        }
    }
    Ok(())
}

fn copy(
    scanned: &mut [Scanned],
    from: usize,
    to: usize,
    offset: u64,
    len: u64,
) -> Result<(), LogError> {
    let mut at = offset;
    let end = offset + len;
    while at < end {
        let len = (end - at).min(COPY_LEN);
        let mut bytes = vec![0; usize::try_from(len).expect("at most COPY_LEN")];
        let mut pass =
            |member: usize, step: &mut dyn FnMut(&mut dyn Store) -> Result<(), StoreError>| {
                let number = number_of(&scanned[member].candidate);
                let outcome = step(&mut *scanned[member].candidate.store);
                outcome.map_err(|cause| LogError::Store { member: number, cause })
            };
        pass(from, &mut |store| store.read(at, &mut bytes))?;
        pass(to, &mut |store| {
            store.place(at, &bytes)?;
            store.begin_commit(at, to_u64(bytes.len()))?;
            store.end_commit()
        })?;
        at += len;
    }
    Ok(())
}

fn number_of(candidate: &Candidate) -> usize {
    usize::from(candidate.label.member)
}

fn numbers_of(scanned: &[Scanned]) -> MemberSet {
    let numbers = scanned.iter().map(|member| number_of(&member.candidate));
    MemberSet::of(&numbers.collect::<Vec<_>>())
}

fn member_of(candidate: Candidate) -> Member {
    let number = number_of(&candidate);
    Member { number, sequence: candidate.label.sequence, store: candidate.store }
}

/// Bytes copied from one member to another in one step.
const COPY_LEN: u64 = 256 << 10;
/// Sequences and epochs that no log comes to, with room below what a label holds for those of one opening.
const NUMBER_MAX: u64 = u64::MAX / 8;
const _: () = assert!(COPY_LEN.is_multiple_of(SLOT_LEN));
