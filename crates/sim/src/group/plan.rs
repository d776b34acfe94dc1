//! What a seed decides for a whole run.

use replica::core::{Congestion, Mode};

use crate::chance::Chance;

/// A run.
#[derive(Clone, Debug)]
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
        Self {
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
        }
    }
}
