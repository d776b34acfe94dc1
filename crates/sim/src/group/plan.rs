//! What a seed decides for a whole run.

use replica::core::{Congestion, Mode};

use crate::chance::Chance;
use crate::wrongs::LeftOut;

/// A run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) members: u8,
    /// Of each member as a destination.
    pub(crate) modes: Vec<Mode>,
    pub(crate) has_witness: bool,
    pub(crate) congestion: Congestion,
    /// Bytes of the rings.
    pub(crate) capacity: u64,
    pub(crate) writers: usize,
    /// Nanoseconds for which faults happen.
    pub(crate) faults_for: u64,
    /// Mean time between faults of each kind, in nanoseconds; 0 for none.
    pub(crate) crash_every: u64,
    pub(crate) cut_every: u64,
    pub(crate) silence_every: u64,
    pub(crate) switch_every: u64,
    pub(crate) wish_every: u64,
    /// The operator promotes members that lack acknowledged writes.
    pub(crate) forces: bool,
    /// One member's disk is so many times slower.
    pub(crate) slow_disk: u64,
    /// Everything a connection carries is late by up to this.
    pub(crate) latency: u64,
    pub(crate) retention_ns: u64,
    pub(crate) window: u64,
    /// Records go by one-sided operations.
    pub(crate) one_sided: bool,
    /// How long a source may let read what it has; 0: always.
    pub(crate) read_lease_ns: u64,
    /// Of each member: by how many parts in 1000 its clock goes too fast or too slow.
    pub(crate) rates: Vec<u64>,
    /// A member that says nothing for so long is taken for gone.
    pub(crate) silence_ns: u64,
    /// A promoter waits so long for its source.
    pub(crate) patience: u64,
    /// Mean time between connections that carry nothing one way for a while.
    pub(crate) one_way_every: u64,
    /// Mean time between members that are stopped for a while.
    pub(crate) pause_every: u64,
    /// Readers ask this often at least.
    pub(crate) read_every: u64,
    /// Of every second crash the others are not told for a while, and some of those that come in sync hear nothing from then on.
    pub(crate) aims: bool,
    /// Ways of a connection. Where there are several, frames come late, twice and in another order, and ways are cut.
    pub(crate) ways: usize,
    /// Mean time between ways that are cut.
    pub(crate) way_cut_every: u64,
    /// Mean time between clocks that jump.
    pub(crate) jump_every: u64,
    /// Mean time between disks that fail, or are full.
    pub(crate) disk_fails_every: u64,
    /// Mean time between members that die, and find their logs damaged.
    pub(crate) damage_every: u64,
    /// Once, volumes of destinations change behind their backs.
    pub(crate) rots: bool,
    /// Requests to the witness come late, and once more, whatever has become of who made them.
    pub(crate) late_requests: bool,
    pub(crate) least_in_sync: u32,
    /// Members die, and are not heard, at the moments at which something has just changed.
    pub(crate) turns: bool,
    /// Writes that are made at most.
    pub(crate) writes_max: u64,
    /// What would go wrong, and does not.
    pub(crate) left_out: LeftOut,
    /// Which draws of the seed everything else takes.
    pub(crate) draws: u64,
}

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let chance = Chance::new(seed, 1);
        let members = if chance.happens(1, 2) { 2 } else { 3 };
        let every = |one, in_all, from, to| match chance.happens(one, in_all) {
            true => chance.skewed(from, to),
            false => 0,
        };
        let mode = |_| match chance.below(8) {
            0 => Mode::Async,
            1 => Mode::SemiSync,
            _ => Mode::Sync,
        };
        let plan = Self {
            seed,
            members,
            modes: (0..members).map(mode).collect(),
            has_witness: chance.happens(1, 2),
            congestion: if chance.happens(1, 6) { Congestion::Block } else { Congestion::DirtyMap },
            capacity: [256 << 10, 512 << 10, 1 << 20, 8 << 20][chance.index(4)],
            writers: 1 + chance.index(6),
            faults_for: chance.skewed(200 * MS, 20 * SECOND),
            crash_every: every(3, 4, 50 * MS, 5 * SECOND),
            cut_every: every(1, 2, 20 * MS, 2 * SECOND),
            silence_every: every(1, 3, 100 * MS, 5 * SECOND),
            switch_every: every(1, 2, 100 * MS, 5 * SECOND),
            wish_every: every(1, 2, 50 * MS, 2 * SECOND),
            forces: chance.happens(1, 6),
            slow_disk: if chance.happens(1, 4) { chance.skewed(2, 200) } else { 1 },
            latency: chance.skewed(20_000, 20 * MS),
            retention_ns: if chance.happens(1, 6) { chance.skewed(MS, SECOND) } else { 0 },
            window: chance.skewed(64 << 10, 4 << 20),
            one_sided: chance.happens(1, 2),
            read_lease_ns: match chance.happens(3, 4) {
                true => chance.skewed(50 * MS, 3 * SECOND),
                false => 0,
            },
            rates: (0..members).map(|_| 950 + chance.below(101)).collect(),
            silence_ns: 2 * SECOND,
            patience: 300 * MS,
            one_way_every: 0,
            pause_every: 0,
            read_every: 20 * MS,
            aims: false,
            ways: 1,
            way_cut_every: 0,
            jump_every: 0,
            disk_fails_every: 0,
            damage_every: 0,
            rots: false,
            late_requests: false,
            least_in_sync: 1,
            turns: false,
            writes_max: u64::MAX,
            left_out: LeftOut::default(),
            draws: 0,
        };
        match seed % 4 {
            1 => plan.worn(),
            2 => plan.turning(),
            3 => plan.hunting_leases(),
            _ => plan,
        }
    }

    /// Every fourth seed: members die, and are not heard, just when something has changed; and operators are quick.
    fn turning(self) -> Self {
        let chance = Chance::new(self.seed, 7);
        let every = |one, in_all, from, to| match chance.happens(one, in_all) {
            true => chance.skewed(from, to),
            false => 0,
        };
        let modes = match chance.happens(1, 2) {
            true => vec![Mode::Sync; self.modes.len()],
            false => self.modes.clone(),
        };
        Self {
            turns: true,
            modes,
            has_witness: chance.happens(1, 3),
            forces: false,
            silence_every: every(1, 2, 100 * MS, 2 * SECOND),
            switch_every: chance.skewed(20 * MS, 500 * MS),
            wish_every: every(2, 3, 50 * MS, SECOND),
            faults_for: chance.skewed(SECOND, 20 * SECOND),
            slow_disk: if chance.happens(1, 2) { chance.skewed(2, 200) } else { 1 },
            patience: chance.skewed(50 * MS, 300 * MS),
            silence_ns: chance.skewed(300 * MS, 2 * SECOND),
            read_lease_ns: if chance.happens(1, 2) { 0 } else { self.read_lease_ns },
            ..self
        }
    }

    /// Every fourth seed: disks fail, are full and lose what they had, clocks jump, frames come twice and in another order, and
    /// so do requests to the witness.
    fn worn(self) -> Self {
        let chance = Chance::new(self.seed, 5);
        let every = |one, in_all, from, to| match chance.happens(one, in_all) {
            true => chance.skewed(from, to),
            false => 0,
        };
        let ways = if chance.happens(1, 2) { 2 + chance.index(2) } else { 1 };
        Self {
            ways,
            way_cut_every: if ways > 1 { every(3, 4, 20 * MS, 2 * SECOND) } else { 0 },
            jump_every: every(1, 2, 50 * MS, 5 * SECOND),
            disk_fails_every: every(1, 2, 200 * MS, 5 * SECOND),
            damage_every: every(1, 2, 200 * MS, 5 * SECOND),
            rots: chance.happens(1, 2),
            late_requests: chance.happens(1, 2),
            least_in_sync: if chance.happens(1, 4) { 2 } else { 1 },
            ..self
        }
    }

    /// Every fourth seed: old sources that can still be asked are common. Members promote themselves as soon as they may, and
    /// the source before hears nothing of it.
    fn hunting_leases(self) -> Self {
        let chance = Chance::new(self.seed, 3);
        let every = |one, in_all, from, to| match chance.happens(one, in_all) {
            true => chance.skewed(from, to),
            false => 0,
        };
        let lease = chance.skewed(300 * MS, 3 * SECOND);
        // Clocks that differ by as much as they may.
        let first = chance.index(2);
        let rates = match chance.happens(3, 4) {
            true => {
                (0..usize::from(self.members)).map(|at| [945, 1055][(first + at) % 2]).collect()
            }
            false => self.rates.clone(),
        };
        let has_witness = chance.happens(3, 4);
        // In parts of a hundred of the lease: a promotion comes while the old source may let read, and nobody has told it.
        let silence = match chance.happens(3, 4) {
            true => 55 + chance.below(50),
            false => 55 + chance.below(150),
        };
        let modes = match chance.happens(3, 4) {
            true => vec![Mode::Sync; self.modes.len()],
            false => self.modes.clone(),
        };
        Self {
            modes,
            rates,
            has_witness,
            writers: 3 + chance.index(4),
            faults_for: chance.skewed(2 * SECOND, 10 * SECOND),
            crash_every: every(if has_witness { 1 } else { 2 }, 2, 200 * MS, 3 * SECOND),
            cut_every: every(1, 2, 100 * MS, 3 * SECOND),
            silence_every: every(1, 4, 500 * MS, 5 * SECOND),
            switch_every: every(if has_witness { 1 } else { 4 }, 4, 100 * MS, SECOND),
            wish_every: every(1, 4, 200 * MS, 2 * SECOND),
            one_way_every: every(3, 4, 200 * MS, 2 * SECOND),
            pause_every: every(1, 2, 200 * MS, 3 * SECOND),
            forces: false,
            slow_disk: 1,
            latency: chance.skewed(20_000, 2 * MS),
            read_lease_ns: lease,
            silence_ns: lease / 100 * silence,
            patience: chance.skewed(20 * MS, 300 * MS),
            read_every: 4 * MS,
            aims: true,
            ..self
        }
    }
}
