//! A member under test, and what it may claim after a crash.

use std::sync::Arc;

use log::Lsn;
use pmem::Medium;
use pmem::crash::{AckLog, Log, Recorder};

use super::order::{ABSENT, GEOMETRY, Made, Next, label};
use crate::dirty::DirtyMap;
use crate::format::{Extent, Kind, Label};
use crate::names::{Epoch, EpochStart, History};
use crate::planted::Planted;
use crate::ring::Ring;

/// What a crash at some moment may leave: that of the label in force, or of the one that is being stored.
#[derive(Clone, Debug)]
pub(super) struct Claim(Vec<World>);

/// What a label stands for.
#[derive(Clone, Debug)]
pub(super) struct World {
    label: Label,
    /// Records from the label's start on, the last ones perhaps placed only in part.
    order: Vec<Made>,
    /// Everything below is durable.
    acknowledged: Lsn,
    /// Granules that the absent member lacks and the ring does not have, a bit for each.
    lacks: u64,
    /// Where records of which epochs have ever been placed: no epoch begins where a record with its tag may be left. That
    /// tags are equal elsewhere, as nonces hardly ever are, leaves it to the chain to tell the records apart.
    placed: Vec<(Lsn, u32)>,
}

impl World {
    fn end(&self) -> Lsn {
        self.order.last().map_or(self.label.start, |last| last.record.end())
    }

    /// Whether records may be left behind `end` that have the tag of the epoch there, and are of another one.
    fn has_namesakes(&self, end: Lsn) -> bool {
        self.placed.iter().any(|placed| {
            let (lsn, tag) = *placed;
            let is_named = self.label.history.epoch_at(lsn).is_some_and(|it| it.tag() == tag);
            let all = self.placed.iter().filter(|other| *other == placed).count();
            let ours = self.order.iter().filter(|made| made.record.lsn == lsn).count();
            lsn >= end && is_named && all > ours
        })
    }

    fn chain(&self) -> u32 {
        self.order.last().map_or(self.label.start_chain, Made::sum)
    }
}

/// What a crash left, as far as it is allowed.
#[derive(Debug)]
pub(super) struct Left {
    ring: Ring,
    world: World,
    map: DirtyMap,
}

impl Claim {
    /// Opens what a crash left.
    pub(super) fn allows(&self, medium: &Arc<dyn Medium>) -> Result<Left, String> {
        let ring = Ring::open_on(Arc::clone(medium)).map_err(|error| error.to_string())?;
        let label = ring.load_label().map_err(|error| error.to_string())?;
        let world = self.0.iter().find(|world| world.label == label);
        let world = world.ok_or_else(|| format!("label {} was not stored", label.sequence))?;
        let found = ring.scan(&label).map_err(|error| error.to_string())?;
        if found.end < world.acknowledged {
            return Err(format!("ends at {}, acknowledged {}", found.end, world.acknowledged));
        }
        if found.records.len() > world.order.len() {
            return Err(format!(
                "{} records, {} were placed",
                found.records.len(),
                world.order.len()
            ));
        }
        for (found, made) in found.records.iter().zip(&world.order) {
            let mut payload = vec![0; made.payload.len()];
            ring.read(found.record.lsn.plus(64), &mut payload)
                .map_err(|error| error.to_string())?;
            if found.record != made.record || payload != made.payload {
                return Err(format!("{:?} is not {:?}", found.record, made.record));
            }
        }
        if found.claimed > found.end && !world.has_namesakes(found.end) {
            return Err(format!("ends at {}, but {} was committed", found.end, found.claimed));
        }
        let map = ring.load_dirty(ABSENT, &SIZES).map_err(|error| error.to_string())?;
        let missing = (0..GRANULES)
            .find(|at| world.lacks >> at & 1 != 0 && !map.contains(extent(*at * GRANULE, GRANULE)));
        if let Some(at) = missing {
            return Err(format!("granule {at} is gone from the ring and is not dirty"));
        }
        let order = world.order[..found.records.len()].to_vec();
        let world = World { order, acknowledged: found.end, ..world.clone() };
        Ok(Left { ring, world, map })
    }
}

/// A member under test, with what it did.
#[derive(Debug)]
pub(super) struct Run {
    recorder: Arc<Recorder>,
    numbers: Numbers,
    ring: Ring,
    world: World,
    map: DirtyMap,
    acks: AckLog<Claim>,
    /// Whether every commit fills the sector that it ends in.
    fills: bool,
    /// A promise that was broken though the power did not fail.
    broken: Option<String>,
}

impl Run {
    /// A new ring; when it is made, the position is the second value.
    pub(super) fn create(recorder: Recorder, seed: u64, fills: bool) -> (Self, usize) {
        let recorder = Arc::new(recorder);
        let label = Label { history: History::default(), ..label() };
        let ring = Ring::create_on(Arc::clone(&recorder) as _, &label, GEOMETRY).unwrap();
        let world =
            World { label, order: Vec::new(), acknowledged: Lsn(0), lacks: 0, placed: Vec::new() };
        let mut run = Self {
            numbers: Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            ring,
            world,
            map: DirtyMap::clean(&SIZES),
            acks: AckLog::new(),
            recorder,
            fills,
            broken: None,
        };
        run.note();
        let created = run.recorder.position();
        run.store_dirty();
        run.begin_epoch();
        (run, created)
    }

    /// Goes on from what a crash left.
    pub(super) fn recover(recorder: Recorder, seed: u64, claim: &Claim) -> Result<Self, String> {
        let recorder = Arc::new(recorder);
        let mut acks = AckLog::new();
        acks.note(0, claim.clone());
        let Left { ring, world, map } = claim.allows(&(Arc::clone(&recorder) as _))?;
        let numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut run =
            Self { recorder, numbers, ring, world, map, acks, fills: false, broken: None };
        run.note();
        run.begin_epoch();
        Ok(run)
    }

    /// What was recorded, and what was claimed when.
    pub(super) fn end(self) -> (Log, AckLog<Claim>) {
        (self.recorder.log(), self.acks)
    }

    /// # Errors
    ///
    /// A promise was broken.
    pub(super) fn step(&mut self) -> Result<(), String> {
        match self.numbers.below(16) {
            0 => self.restart(),
            1 => self.follow_another(),
            2 => self.member_has_all(),
            3 | 4 => self.checkpoint(),
            _ => self.append(),
        }
        self.broken.take().map_or(Ok(()), Err)
    }

    pub(super) fn position(&self) -> usize {
        self.recorder.position()
    }

    /// One that sources of disks without whole sectors take.
    pub(super) fn step_of_a_source(&mut self) {
        match self.numbers.below(8) {
            0 => self.checkpoint(),
            _ => self.append(),
        }
    }

    /// A crash from here on may leave the world as it is now.
    fn note(&mut self) {
        self.acks.note(self.recorder.position(), Claim(vec![self.world.clone()]));
    }

    fn next(&self) -> Next {
        Next {
            lsn: self.world.end(),
            chain: self.world.chain(),
            epoch: self.world.label.history.current().tag(),
            committed: self.world.acknowledged,
        }
    }

    fn append(&mut self) {
        let mut batch = Vec::new();
        for _ in 0..=self.numbers.below(3) {
            let payload = vec![self.numbers.byte(2); self.numbers.length(3)];
            let offset = self.numbers.below(GRANULES) * GRANULE;
            let kind = if self.numbers.below(4) == 0 { Kind::Mark } else { Kind::Write };
            if !self.add(&mut batch, |next| next.record(kind, offset, &payload), 64 + 64 * 3) {
                break;
            }
        }
        if batch.is_empty() {
            return self.checkpoint();
        }
        self.place(batch, false);
        if self.numbers.below(4) != 0 {
            self.commit();
        }
    }

    /// Makes a record of at most `len_max` bytes, behind a pad where it would cross the end of the ring.
    fn add(
        &mut self,
        batch: &mut Vec<Made>,
        make: impl FnOnce(&mut Next) -> Made,
        len_max: u64,
    ) -> bool {
        let mut next = self.next();
        let until_end = GEOMETRY.capacity - next.lsn.0 % GEOMETRY.capacity;
        let padding = if until_end < len_max { until_end } else { 0 };
        // What is left is for a pad at the next commit.
        let reserve = if self.fills { 512 } else { 0 };
        let limit = self.world.label.start.plus(GEOMETRY.capacity);
        if next.lsn.plus(padding + len_max + reserve) > limit {
            return false;
        }
        if padding > 0 {
            batch.push(next.pad(padding));
            self.world.order.push(batch[batch.len() - 1].clone());
        }
        batch.push(make(&mut next));
        self.world.order.push(batch[batch.len() - 1].clone());
        true
    }

    /// Places records that the world has already: in any order, or as bytes of another member.
    fn place(&mut self, mut batch: Vec<Made>, as_bytes: bool) {
        self.world.placed.extend(batch.iter().map(|made| (made.record.lsn, made.record.epoch)));
        // From here on a crash may leave any of them.
        self.note();
        while !batch.is_empty() {
            let made = batch.swap_remove(self.numbers.index(batch.len()));
            if as_bytes {
                let mut bytes = made.header.to_vec();
                bytes.extend_from_slice(&made.payload);
                if made.record.kind != Kind::Pad {
                    bytes.resize(bytes.len().next_multiple_of(64), 0);
                }
                self.ring.place_bytes(made.record.lsn, &bytes).unwrap();
            } else if self.numbers.below(8) == 0 {
                // Another writer: its stores are another processor's.
                let ring = &self.ring;
                std::thread::scope(|scope| scope.spawn(|| made.place(ring).unwrap()).join())
                    .unwrap();
            } else {
                made.place(&self.ring).unwrap();
            }
        }
    }

    fn commit(&mut self) {
        let end = self.world.end();
        let filled = end.0.next_multiple_of(512) - end.0;
        if self.fills && filled > 0 {
            let pad = self.next().pad(filled);
            self.world.order.push(pad.clone());
            self.place(vec![pad], false);
        }
        let end = self.world.end();
        if Planted::LabelBeforeRecords.is_here() {
            let label = Label { committed: end, ..self.next_label() };
            let world = World { label, ..self.world.clone() };
            self.store_label(world);
        }
        self.ring.persist(self.world.acknowledged, end).unwrap();
        self.world.acknowledged = end;
        self.note();
    }

    fn next_label(&self) -> Label {
        Label {
            sequence: self.world.label.sequence + 1,
            committed: self.world.acknowledged,
            ..self.world.label.clone()
        }
    }

    /// Stores the label of a new world.
    fn store_label(&mut self, world: World) {
        let both = Claim(vec![self.world.clone(), world.clone()]);
        self.acks.note(self.recorder.position(), both);
        self.ring.store_label(&world.label).unwrap();
        self.world = world;
        self.note();
    }

    fn store_dirty(&mut self) {
        if self.map.take_changed() {
            self.ring.store_dirty(ABSENT, &self.map).unwrap();
        }
    }

    /// Frees room, of which the absent member has nothing.
    fn checkpoint(&mut self) {
        if self.world.acknowledged < self.world.end() {
            self.commit();
        }
        let keep = self.numbers.index(4).min(self.world.order.len());
        let kept = self.world.order.len() - keep;
        let (freed, order) = self.world.order.split_at(kept);
        let mut world =
            World { label: self.next_label(), order: order.to_vec(), ..self.world.clone() };
        if let Some(last) = freed.last() {
            (world.label.start, world.label.start_chain) = (last.record.end(), last.sum());
            world.placed.retain(|(lsn, _)| *lsn >= last.record.end());
        }
        for changed in freed.iter().filter_map(|made| made.record.changes()) {
            self.map.mark(changed);
            world.lacks |= 1 << (changed.offset / GRANULE);
        }
        if Planted::DirtyAfterReuse.is_here() {
            self.store_label(world);
            self.store_dirty();
            return;
        }
        self.store_dirty();
        self.store_label(world);
    }

    /// The absent member came, got everything, and went.
    fn member_has_all(&mut self) {
        self.world.lacks = 0;
        self.note();
        self.map.clear(extent(0, u64::MAX));
        self.store_dirty();
    }

    /// The program dies and starts again; the power does not fail.
    fn restart(&mut self) {
        let claim = Claim(vec![self.world.clone()]);
        let left = match claim.allows(&(Arc::clone(&self.recorder) as _)) {
            Ok(left) => left,
            Err(error) => {
                self.broken = Some(format!("the program started again: {error}"));
                return;
            }
        };
        assert_eq!(left.world.end(), self.world.end(), "memory has what was placed");
        (self.ring, self.world, self.map) = (left.ring, left.world, left.map);
        self.note();
        self.begin_epoch();
    }

    /// This member is the source from here on.
    fn begin_epoch(&mut self) {
        self.make_room();
        if Planted::ReusesEpoch.is_here() && !self.world.label.history.epochs().is_empty() {
            return;
        }
        let number = self.world.label.history.current().number + 1;
        self.turn_to(self.world.order.len(), &[], number);
    }

    /// Another source takes over: it has what this member has up to some record, and perhaps more.
    fn follow_another(&mut self) {
        self.make_room();
        let epochs = self.world.label.history.epochs();
        let Some(current) = epochs.last().copied() else { return };
        let lsns: Vec<Lsn> = self.world.order.iter().map(|made| made.record.lsn).collect();
        let last_of_before = lsns.iter().position(|lsn| *lsn == current.start);
        match (self.numbers.below(3), last_of_before) {
            // It did not know of the current epoch, and took the same number.
            (0, Some(begun)) => {
                let kept = self.numbers.index(begun + 1);
                self.turn_to(kept, &[], current.epoch.number);
            }
            // It had more of the epoch before.
            (1, Some(begun)) if epochs.len() > 1 => {
                let before = epochs[epochs.len() - 2].epoch.tag();
                if self.world.placed.contains(&(current.start, before)) {
                    return;
                }
                let more = vec![self.numbers.byte(2); self.numbers.length(3)];
                self.turn_to(begun, &[(before, more)], current.epoch.number);
            }
            // It knew of all epochs, but lacked the last records.
            _ => {
                let begun = lsns.partition_point(|lsn| *lsn <= current.start);
                let cut = begun + self.numbers.index(lsns.len() + 1 - begun);
                self.turn_to(cut, &[], current.epoch.number + 1);
            }
        }
    }

    /// The order has so many of its records, then some of older epochs, then an epoch with this number.
    fn turn_to(&mut self, kept: usize, more: &[(u32, Vec<u8>)], number: u32) {
        let mut world = World { label: self.next_label(), ..self.world.clone() };
        world.order.truncate(kept);
        let cut = world.end();
        world.acknowledged = world.acknowledged.min(cut);
        world.label.committed = world.acknowledged;
        let mut next = Next { lsn: cut, chain: world.chain(), epoch: 0, committed: Lsn(0) };
        let mut received = Vec::new();
        for (epoch, payload) in more {
            next.epoch = *epoch;
            let until_end = GEOMETRY.capacity - next.lsn.0 % GEOMETRY.capacity;
            if until_end < 256 {
                received.push(next.pad(until_end));
            }
            received.push(next.write(0, payload));
        }
        let start = next.lsn;
        let is_used = |nonce: &u64| {
            world.placed.iter().any(|(lsn, tag)| *lsn == start && u64::from(*tag) == *nonce)
        };
        let nonce = std::iter::repeat_with(|| self.numbers.below(40))
            .find(|nonce| !is_used(nonce))
            .expect("fewer than 40");
        let epoch = Epoch { number, restart: 0, nonce };
        let mut epochs = world.label.history.epochs().to_vec();
        epochs.retain(|it| it.start < start && it.epoch.number < number);
        world.label.history = History::new(epochs).unwrap();
        world.label.history.begin(EpochStart { epoch, start, is_forced: false, is_sealed: false });
        self.store_label(world);
        self.world.order.extend(received.iter().cloned());
        self.add(&mut received, |next| next.begin(nonce), 128);
        self.place(received, true);
        self.commit();
    }

    /// Frees so much that an epoch can begin.
    fn make_room(&mut self) {
        while self.world.end().plus(1024) > self.world.label.start.plus(GEOMETRY.capacity) {
            self.checkpoint();
        }
    }
}

/// Numbers that a seed decides (xorshift64*).
#[derive(Debug)]
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    pub(super) fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(u64::try_from(bound).unwrap())).unwrap()
    }

    fn byte(&mut self, bound: u64) -> u8 {
        u8::try_from(self.below(bound)).unwrap()
    }

    /// Of a payload that ends in the middle of one of so many lines.
    fn length(&mut self, lines: u64) -> usize {
        self.index(usize::try_from(lines).unwrap()) * 64 + 33
    }
}

fn extent(offset: u64, len: u64) -> Extent {
    Extent { volume: 0, offset, len }
}

const GRANULE: u64 = 64 << 10;
const GRANULES: u64 = 40;
const SIZES: [u64; 1] = [GRANULES * GRANULE];
