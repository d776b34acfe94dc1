//! What wears: disks fail or are full, logs are damaged, volumes change behind their owner's back, clocks jump, requests to the
//! witness come late.

use std::sync::Arc;

use replica::Lsn;
use replica::core::{Action, Config, Core, Draft, Entry, Event, Found};
use replica::format::{Encoding, Extent, Kind};
use replica::message::{Message, Peer};

use crate::disk::{CELL, CELLS, Disk, Stored, VOLUMES, cells};
use crate::member::{Member, Work, Writer};
use crate::plan::{MS, SECOND};
use crate::world::{Record, What, World};

impl World<'_> {
    /// A member's clock goes on as if much time had passed, or only what it takes for the time of day is wrong from now on.
    pub(crate) fn jump(&mut self) {
        let member = self.any_member();
        self.sums.jumps += 1;
        let by = self.chance.skewed(10 * MS, 3600 * SECOND);
        let (is_day, is_back) = (self.chance.happens(1, 2), self.chance.happens(1, 2));
        self.history(|| {
            format!("the clock of member {member} jumps by {by} (day {is_day}, back {is_back})")
        });
        let at = &mut self.members[usize::from(member)];
        match is_day {
            true => at.time_is_wrong = by.cast_signed() * if is_back { -1 } else { 1 },
            false => at.jumped += by,
        }
    }

    /// What a member takes for the time of day.
    pub(crate) fn day_of(&self, member: u8) -> u64 {
        self.now.saturating_add_signed(self.members[usize::from(member)].time_is_wrong)
    }

    pub(crate) fn disk_fails(&mut self) {
        let member = self.any_member();
        if let Some(process) = self.process(member) {
            process.disk_fails = true;
        }
    }

    /// Whether an action cannot be done, as the disk fails or is full: then nothing is stored any more, until an operator has seen to
    /// it and starts the member again.
    pub(crate) fn is_refused_by_disk(&mut self, member: u8, action: &Action) -> bool {
        let stores = matches!(
            action,
            Action::Persist(_)
                | Action::Apply(..)
                | Action::FlushVolumes(_)
                | Action::FlushCopies(_)
                | Action::PutCopy
                | Action::StoreLabel(_)
                | Action::StoreDirty { .. }
                | Action::TakeSnapshot { .. }
        );
        let Some(process) = self.process(member).filter(|it| it.disk_fails && stores) else {
            return false;
        };
        process.disk_fails = false;
        self.sums.disks_failed += 1;
        self.history(|| format!("the disk of member {member} fails: {action:?}"));
        self.step(member, Event::StorageFailed);
        let life = self.members[usize::from(member)].life;
        let delay = self.chance.skewed(10 * MS, 2 * SECOND);
        self.later(delay, What::Mend(member, life));
        true
    }

    /// A destination dies, and cannot read a record of its log that was committed. Its source has everything.
    pub(crate) fn damage(&mut self) {
        let member = self.any_member();
        let is_source = |at: u8| {
            let process = self.members[usize::from(at)].process.as_ref();
            process.is_some_and(|it| it.core.is_source())
        };
        // Not by the word of one that the witness has replaced: the other may be this one, and alone in sync.
        let newest = self.plan.has_witness.then_some(self.witness.epoch);
        let is_ready = |at: u8| {
            let Some(process) = &self.members[usize::from(at)].process else { return false };
            let status = process.core.status();
            let is_newest = newest.is_none_or(|epoch| epoch == status.epoch);
            status.is_ready && is_newest && !process.core.has_failed()
        };
        let others = || (0..self.plan.members).filter(|other| *other != member);
        let lives = self.members[usize::from(member)].process.is_some();
        if !lives || is_source(member) || !others().any(is_ready) {
            return;
        }
        self.crash(member);
        let at = &mut self.members[usize::from(member)];
        at.is_damaged = at.disk.damage(&self.chance);
    }

    /// A member whose log is damaged has to say so; its operator makes it anew.
    pub(crate) fn is_made_anew(&mut self, member: u8, config: &Config, found: &Found) -> Found {
        if !found.is_damaged(config) {
            self.fault = Some(format!(
                "member {member} would start with a damaged log: it has {} records, {:?}",
                found.entries.len(),
                found.label
            ));
        }
        self.sums.made_anew += 1;
        self.history(|| format!("member {member} has a damaged log, and is made anew"));
        let at = &mut self.members[usize::from(member)];
        at.is_damaged = false;
        at.rotten.clear();
        at.disk = Disk::new(Core::first_label(config), self.plan.capacity);
        at.disk.found()
    }

    /// A request comes to the witness at a time of its own, or once more.
    pub(crate) fn request_may_be_late(&mut self, wanted: Record) {
        if self.plan.late_requests && !self.heals && self.chance.happens(1, 6) {
            let number = self.requests.len();
            self.requests.push(wanted);
            let delay = self.chance.skewed(100_000, 3 * SECOND);
            self.later(delay, What::Request(number));
        }
    }

    pub(crate) fn request_comes(&mut self, number: usize) {
        let Record { epoch, source, in_sync, version } = self.requests[number];
        self.sums.late_requests += 1;
        let is_taken = self.propose(epoch, source, in_sync, version);
        self.history(|| format!("witness, late: {epoch} of {source}, {in_sync}: {is_taken}"));
    }

    /// Once all is at rest, volumes of destinations change behind their backs, and all members compare what they have. Whether
    /// there is still something to be done.
    pub(crate) fn compares_what_has_rotted(&mut self) -> bool {
        if !self.plan.rots || self.plan.retention_ns > 0 {
            return false;
        }
        let Some(source) = self.any_source() else { return false };
        let rounds = match self.compared {
            None => {
                self.rots(source);
                0
            }
            Some(_) if !self.differs_from(source) => return false,
            // What was found may have been lost with a process.
            Some(rounds) if rounds < COMPARED_MAX => rounds,
            Some(_) => return false,
        };
        self.compared = Some(rounds);
        // Where there is one writer alone, those that differ come one after the other.
        let mut is_asked = false;
        for volume in 0..VOLUMES {
            if rounds == 0 || self.volume_differs_from(source, volume) {
                is_asked |= self.compare(source, volume);
            }
        }
        if !is_asked {
            // The log has no room yet.
            return true;
        }
        self.compared = Some(rounds + 1);
        self.history(|| "all members compare".to_owned());
        if self.chance.happens(1, 2)
            && let Some(number) = self.connections.keys().next().copied()
        {
            let delay = self.chance.skewed(MS, 50 * MS);
            self.later(delay, What::Break(number));
        }
        true
    }

    fn differs_from(&self, source: u8) -> bool {
        let shown = self.members[usize::from(source)].shown();
        self.members.iter().any(|member| member.shown() != shown)
    }

    fn volume_differs_from(&self, source: u8, volume: u8) -> bool {
        let extent = Extent { volume, offset: 0, len: CELLS * CELL };
        let of = |member: &Member| member.shown().map(|shown| shown[cells(extent)].to_vec());
        let held = of(&self.members[usize::from(source)]);
        self.members.iter().any(|member| of(member) != held)
    }

    fn rots(&mut self, source: u8) {
        let sizes =
            self.members[usize::from(source)].process.as_ref().map(|it| it.core.sizes().to_vec());
        let sizes = sizes.unwrap_or_default();
        for member in (0..self.plan.members).filter(|member| *member != source) {
            for _ in 0..self.chance.below(4) {
                let volume = self.chance.index(sizes.len());
                let cell = volume as u64 * CELLS + self.chance.below(sizes[volume] / CELL);
                let cell = usize::try_from(cell).unwrap_or(0);
                let at = &mut self.members[usize::from(member)];
                at.rotten.push((cell, at.disk.volumes[cell]));
                at.disk.rot(cell, ROTTEN + self.sums.rotten);
                self.sums.rotten += 1;
            }
        }
    }

    /// A source puts into the order that all compare a volume. False: it has no room for that.
    fn compare(&mut self, source: u8, volume: u8) -> bool {
        let now = self.now;
        let first_sum = self.next_sum;
        let Some(process) = self.process(source) else { return false };
        let Some(writer) = process.writers.iter().position(|it| matches!(it, Writer::Idle)) else {
            return false;
        };
        let len = process.core.sizes()[usize::from(volume)];
        let extent = Extent { volume, offset: 0, len };
        let (kind, encoding) = (Kind::Verify, Encoding::Plain);
        let draft = Draft { kind, encoding, volume, stored: 16, offset: 0, len, time_ns: now };
        let seal = |record: &replica::format::Record| {
            if record.kind == Kind::Pad { first_sum } else { first_sum + 1 }
        };
        let Ok(admitted) = process.core.submit(draft, seal) else { return false };
        self.next_sum += 2;
        let held = self.members[usize::from(source)].disk.volumes[cells(extent)].to_vec();
        for record in admitted.pad.iter().chain([&admitted.record]) {
            let compares = (record.kind == Kind::Verify).then(|| (extent, held.clone()));
            let entry = Entry::of(record, seal(record));
            let (epoch, chain) = (record.epoch, record.chain);
            let stored = Arc::new(Stored { entry, epoch, chain, stamp: 0, compares });
            self.truth.is_issued(&stored);
            self.members[usize::from(source)].disk.place(stored);
        }
        let life = self.members[usize::from(source)].life;
        let record = admitted.record;
        let pad = admitted.pad.map(|pad| pad.lsn);
        let (lsn, end, sum) = (record.lsn, record.end(), seal(&record));
        if let Some(process) = self.process(source) {
            process.writers[writer] =
                Writer::Placing(Work { pad, lsn, end, extent: None, stamp: 0, sum });
        }
        self.later(1_000, What::Writer(source, life, writer));
        true
    }

    /// A destination has compared a range, and found it to be something else.
    pub(crate) fn finds(&mut self, member: u8, lsn: Lsn, extent: Extent) {
        let Some(process) = self.process(member) else { return };
        process.differing.retain(|(_, of)| *of != extent);
        process.differing.push((lsn, extent));
        if let Some(peer) = process.core.source_connection() {
            self.act(member, Action::Send(peer, Message::Differs { lsn, extent }));
        }
    }

    /// What a member has found before is said to each source that it follows.
    pub(crate) fn says_what_differs(&mut self, member: u8, peer: Peer) {
        let Some(process) = self.process(member) else { return };
        for (lsn, extent) in process.differing.clone() {
            self.act(member, Action::Send(peer, Message::Differs { lsn, extent }));
        }
    }

    /// A member begins as a source: who reads a cell that cannot be read there gets it from another member.
    pub(crate) fn heals_what_has_rotted(&mut self, member: u8) {
        let at = &mut self.members[usize::from(member)];
        for (cell, held) in std::mem::take(&mut at.rotten) {
            if at.disk.volumes[cell] >= ROTTEN {
                at.disk.rot(cell, held);
            }
        }
    }
}

/// Whether two ranges meet.
pub(crate) fn meet(one: Extent, other: Extent) -> bool {
    one.volume == other.volume
        && one.offset < other.offset + other.len
        && other.offset < one.offset + one.len
}

/// What a rotten cell holds, and more.
const ROTTEN: u64 = 1 << 60;
/// How often all members compare at most, where what was found is lost.
const COMPARED_MAX: u32 = 8;
