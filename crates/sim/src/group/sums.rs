//! What was met in a run, or in many.

use std::fmt;

use crate::wrongs::Counts;

/// What was met in a run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Sums {
    /// Of all that happened, and when.
    pub(crate) digest: u64,
    pub(crate) acknowledged: u64,
    pub(crate) crashes: u64,
    pub(crate) cuts: u64,
    pub(crate) promotions: u64,
    pub(crate) copies: u64,
    pub(crate) fell_behind: u64,
    pub(crate) probes: u64,
    /// Looks at all that a source let be read, and those that it had wait.
    pub(crate) reads: u64,
    pub(crate) reads_waited: u64,
    pub(crate) refused: u64,
    pub(crate) adopted: u64,
    pub(crate) one_way: u64,
    pub(crate) stops: u64,
    pub(crate) jumps: u64,
    pub(crate) disks_failed: u64,
    pub(crate) made_anew: u64,
    pub(crate) rotten: u64,
    pub(crate) frames_twice: u64,
    pub(crate) ways_cut: u64,
    pub(crate) late_requests: u64,
    /// What went wrong, or would have.
    pub(crate) wrongs: Counts,
    /// Writes that had a place.
    pub(crate) written: u64,
}

impl Sums {
    pub(crate) fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.crashes += other.crashes;
        self.cuts += other.cuts;
        self.promotions += other.promotions;
        self.copies += other.copies;
        self.fell_behind += other.fell_behind;
        self.probes += other.probes;
        self.reads += other.reads;
        self.reads_waited += other.reads_waited;
        self.refused += other.refused;
        self.adopted += other.adopted;
        self.one_way += other.one_way;
        self.stops += other.stops;
        self.jumps += other.jumps;
        self.disks_failed += other.disks_failed;
        self.made_anew += other.made_anew;
        self.rotten += other.rotten;
        self.frames_twice += other.frames_twice;
        self.ways_cut += other.ways_cut;
        self.late_requests += other.late_requests;
        self.written += other.written;
        self.wrongs.iter_mut().zip(other.wrongs).for_each(|(sum, more)| *sum += more);
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            acknowledged,
            crashes,
            cuts,
            promotions,
            copies,
            fell_behind,
            probes,
            reads,
            reads_waited,
            refused,
            adopted,
            one_way,
            stops,
            jumps,
            disks_failed,
            made_anew,
            rotten,
            frames_twice,
            ways_cut,
            late_requests,
            wrongs: _,
            written: _,
            digest: _,
        } = self;
        write!(
            f,
            "{acknowledged} writes acknowledged, {crashes} crashes, {cuts} connections cut, \
             {promotions} sources began, {copies} copies ended, {fell_behind} fell behind, \
             {probes} copies looked at, {reads} sources read, {reads_waited} reads waited, {refused} refusals, \
             {adopted} times records found that operations had placed, \
             {one_way} ways lost one way, {stops} processes stopped, \
             {jumps} clocks jumped, {disks_failed} disks failed, {made_anew} members with a damaged log made anew, \
             {rotten} cells rotten, {frames_twice} frames sent twice, {ways_cut} ways of several cut, \
             {late_requests} requests came late"
        )
    }
}
