//! A member: what it keeps, and the process that runs or not.

use std::collections::{BTreeMap, VecDeque};

use replica::core::{Action, Core, Lane};
use replica::format::Extent;
use replica::message::Peer;
use replica::{Lsn, MemberId, MemberSet};

use crate::disk::{Contents, Disk, shown};

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: MemberId,
    pub(crate) disk: Disk,
    pub(crate) process: Option<Process>,
    /// Counts processes.
    pub(crate) life: u64,
    /// Who was in sync when its last process ended as a source: what an operator had on the screen.
    pub(crate) last_in_sync: MemberSet,
    /// The set that it has asked for last.
    pub(crate) proposed: MemberSet,
    /// Those of them that followed it then, and that it was not about to leave: each has that in its label.
    pub(crate) last_counted: MemberSet,
    /// What happens to this member takes so many times longer.
    pub(crate) slowness: u64,
    /// Its process does nothing before then.
    pub(crate) stopped_until: u64,
    /// By how much its clock has jumped ahead.
    pub(crate) jumped: u64,
    /// By how much the time of day is wrong there.
    pub(crate) time_is_wrong: i64,
    /// A record of its log that was committed cannot be read.
    pub(crate) is_damaged: bool,
    /// What cells of its volumes held before they changed behind its back.
    pub(crate) rotten: Vec<(usize, u64)>,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) core: Core,
    pub(crate) lanes: BTreeMap<Lane, Queue>,
    pub(crate) writers: Vec<Writer>,
    /// Writers may come.
    pub(crate) is_open: bool,
    pub(crate) is_stopping: bool,
    /// Copies that came and are not put.
    pub(crate) copies: VecDeque<(Peer, Extent, Vec<u64>)>,
    /// When it was last heard of by its source.
    pub(crate) followed_at: u64,
    /// A copy waits for the digests of its member.
    pub(crate) asks: Vec<(Peer, Extent)>,
    /// It has followed a source since it started.
    pub(crate) has_followed: bool,
    /// What it stores next cannot be stored.
    pub(crate) disk_fails: bool,
    /// What it has found to differ from its source.
    pub(crate) differing: Vec<(Lsn, Extent)>,
}

/// Actions of one lane.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) waits: VecDeque<Action>,
    pub(crate) running: Option<Action>,
    /// Counts the actions that began.
    pub(crate) begun: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Writer {
    Idle,
    /// It has a place, and puts its record there.
    Placing(Work),
    /// Its record is placed.
    Waiting(Work),
    /// It is committed, and its bytes go into the volume.
    Applying(Work),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) pad: Option<Lsn>,
    pub(crate) lsn: Lsn,
    pub(crate) end: Lsn,
    pub(crate) extent: Option<Extent>,
    pub(crate) stamp: u64,
    /// The checksum of its record, which no other has.
    pub(crate) sum: u32,
}

impl Member {
    /// What its volumes hold, while it runs.
    pub(crate) fn shown(&self) -> Option<Contents> {
        let process = self.process.as_ref()?;
        Some(shown(&self.disk.volumes, process.core.sizes()))
    }
}

impl Writer {
    pub(crate) fn extent(&self) -> Option<Extent> {
        match self {
            Self::Idle => None,
            Self::Placing(work) | Self::Waiting(work) | Self::Applying(work) => work.extent,
        }
    }
}

impl Process {
    pub(crate) fn touches(&self, extent: Extent) -> bool {
        self.writers.iter().filter_map(Writer::extent).any(|of| {
            of.volume == extent.volume
                && of.offset < extent.offset + extent.len
                && extent.offset < of.offset + of.len
        })
    }
}
