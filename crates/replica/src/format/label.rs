//! The label: what a member knows for certain about itself and the group.

use log::Lsn;

use crate::names::{GroupId, History, MEMBERS_MAX, MemberId, MemberSet};

/// What a member keeps beside its ring. Two slots; the sound one with the greater sequence is in force.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Label {
    /// The group.
    pub group: GroupId,
    /// Which member this is.
    pub member: MemberId,
    /// How many labels the member has had.
    pub sequence: u64,
    /// The epochs that made the order. The bytes of the ring at an LSN count only if they are of the epoch that the
    /// history has there.
    pub history: History,
    /// Oldest record that the ring keeps. Everything below it is durable in the volumes.
    pub start: Lsn,
    /// Checksum of the header of the record before `start`, which the record there names.
    pub start_chain: u32,
    /// Everything below this is known to be committed.
    pub committed: Lsn,
    /// What the volumes hold is below this, if the member is no source and knows of no later committed record.
    pub bound: Lsn,
    /// Who has every acknowledged record, as far as this member knows.
    pub in_sync: MemberSet,
    /// How often `in_sync` has changed in this epoch.
    pub set_version: u64,
    /// Whether this member was the source when the label was stored.
    pub is_source: bool,
    /// What the volumes of this member hold.
    pub contents: Contents,
    /// At the source: what it knows of the other members.
    pub positions: [Position; MEMBERS_MAX as usize],
}

/// What the volumes of a member hold.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Contents {
    /// What the records up to some LSN made of them: a copy at one moment.
    #[default]
    Consistent,
    /// Blocks of several moments; copies are missing.
    Mixed,
    /// All copies are there: a copy at one moment once everything below the LSN is applied.
    MixedUntil(Lsn),
}

/// What a source knows of another member, and has made durable.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Position {
    /// Nothing: it gets a copy of all that is not a hole.
    #[default]
    Unknown,
    /// It has everything below the LSN but what the dirty map says.
    Has(Lsn),
}
