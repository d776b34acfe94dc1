//! What an operator decides about a group.

use crate::names::{GroupId, MemberId, MemberSet};

/// When a write is answered, as far as another member is concerned.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// It is durable there.
    #[default]
    Sync,
    /// It is in memory there.
    SemiSync,
    /// Nothing is waited for.
    Async,
}

/// What happens when the ring is full of records that a member lacks which is not in sync.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Congestion {
    /// What it lacks is noted by block, and copied later.
    #[default]
    DirtyMap,
    /// Writes wait for it.
    Block,
}

/// A group, as one member sees it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The group.
    pub group: GroupId,
    /// This member.
    pub me: MemberId,
    /// How this member is kept while another is the source.
    pub my_mode: Mode,
    /// The other members.
    pub others: Vec<(MemberId, Mode)>,
    /// Sizes of the volumes in bytes.
    pub volumes: Vec<u64>,
    /// Bytes of the ring.
    pub capacity: u64,
    /// Writes wait while fewer members than this are in sync, the source included.
    pub least_in_sync: u32,
    /// Whether a witness records who is the source and who is in sync. Without one, a source that has started again
    /// leaves nobody behind who was in sync, unless the operator says so: that member may be the source now.
    pub has_witness: bool,
    /// See [`Congestion`].
    pub congestion: Congestion,
    /// Bytes that are on the way to a member at most: at least twice what the way holds.
    pub window: u64,
    /// A member that says nothing for this long is taken for gone.
    pub silence_ns: u64,
    /// So long after a member in sync was asked for its promise a source may let read what it has; 0: always, though another may
    /// be the source by then. The same at all members.
    pub read_lease_ns: u64,
    /// A destination applies a committed record when it is this old; until then its volumes can be seen as they were
    /// before it.
    pub retention_ns: u64,
    /// Bytes of copies on the way to a member at most.
    pub copy_window: u64,
    /// As a source this member seals the records of its epochs.
    pub seals: bool,
    /// [`crate::format::RecordKeys::check`] of this member's keys; 0 where it has none.
    pub key_check: u64,
}

impl Config {
    /// All members.
    pub fn members(&self) -> MemberSet {
        self.others.iter().fold(MemberSet::of(self.me), |all, (other, _)| all.with(*other))
    }

    /// The mode of another member.
    pub fn mode_of(&self, member: MemberId) -> Option<Mode> {
        self.others.iter().find(|(other, _)| *other == member).map(|(_, mode)| *mode)
    }
}
