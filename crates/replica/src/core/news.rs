//! What operators are told, and why what they want is not done.

use log::Lsn;
use thiserror::Error;

use crate::format::Extent;
use crate::message::Refusal;
use crate::names::{Epoch, MemberId};

/// What operators are told.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum News {
    /// This member is the source now.
    #[error("this member is the source of {0}")]
    IsSource(Epoch),
    /// This member is no source any more.
    #[error("this member, source of {0}, is no source any more")]
    IsDestination(Epoch),
    /// A member is in sync now.
    #[error("{0} is in sync")]
    InSync(MemberId),
    /// A member is in sync no more.
    #[error("{0} is out of sync")]
    OutOfSync(MemberId),
    /// A member goes on from the ring.
    #[error("{0} follows: what it lacks comes from the log")]
    Replays(MemberId),
    /// A member gets copies: so many bytes.
    #[error("{0} follows: {1} bytes are copied or compared first")]
    CopyBegins(MemberId, u64),
    /// A member has all copies.
    #[error("{0} has all copies")]
    CopyEnds(MemberId),
    /// A member refused this source.
    #[error("{0} refuses this source: {1}")]
    Refused(MemberId, Refusal),
    /// At a destination that retains records: blocks are copied into its volumes, which are beyond the points before.
    #[error(
        "blocks that differ are copied here: no view can be made any more at a point before {0}; views that are open stay"
    )]
    PointsEnd(Lsn),
    /// The ring is full of what a member lacks: it gets copies later.
    #[error("{0} is too far behind for the log: it gets copies later")]
    FellBehind(MemberId),
    /// A wish was not granted.
    #[error("not done: {0}")]
    Denied(Denial),
    /// What a member's disk holds differs from what was written there.
    #[error(
        "{0} holds something else than was written: volume {v}, {len} bytes at {offset}, seen at {1}",
        v = .2.volume,
        len = .2.len,
        offset = .2.offset
    )]
    Differs(MemberId, Lsn, Extent),
    /// What this source could not read from its own volume came from a member, and was written again.
    #[error(
        "volume {v}, {len} bytes at {offset}, could not be read here: they came from {0}, and were written again",
        v = .1.volume,
        len = .1.len,
        offset = .1.offset
    )]
    Healed(MemberId, Extent),
    /// What this member had beyond the LSN is gone: its source was not the group's any more.
    #[error("what this member had beyond {0} is not of the group's order and is gone")]
    Cut(Lsn),
    /// A range cannot be read at the source, nor at a member in sync: the member gets no copy of it.
    #[error(
        "{0} does not come in sync: {1:?} cannot be read here, and no member in sync has it; once it is written the copy goes on"
    )]
    NotCopied(MemberId, Extent),
    /// Storage failed.
    #[error("the storage of this member failed: nothing is made durable here any more")]
    StorageFailed,
    /// An asynchronous member lacks writes that are older than they may be: so many milliseconds.
    #[error("{0} lacks {1} ms of writes, which is more than it may")]
    RpoExceeded(MemberId, u64),
    /// An asynchronous member lacks no more than it may.
    #[error("{0} lacks no more than it may")]
    RpoMet(MemberId),
    /// Writes wait, because too few members are in sync.
    #[error("writes wait: too few members are in sync")]
    TooFewInSync,
    /// The witness cannot be asked whether this member may go on as the source.
    #[error(
        "this member was the source, and waits until its witness can be asked: it may be none any more"
    )]
    WaitsForWitness,
    /// A member may be the source by now: this source begins, or goes on, once it is heard of.
    #[error(
        "this source waits until {0} is heard of, which may be the source by now: start it, or say go-on-without if it is not the source"
    )]
    WaitsFor(MemberId),
    /// Records go to a member by one-sided operations.
    #[error("{0} gets records by RDMA")]
    OneSided(MemberId),
    /// Records go to a member by messages, though one-sided operations are wanted.
    #[error("{0} gets records by TCP: RDMA does not work, and is tried again")]
    NotOneSided(MemberId),
}

/// Why a wish is not granted.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Denial {
    /// It may lack acknowledged writes.
    #[error(
        "this member may lack what the source has acknowledged; promote it by force if that is accepted"
    )]
    NotInSync,
    /// It has started again since, and a source that can go on without it would have told it nothing.
    #[error(
        "this member was in sync when it stopped, and the source may have gone on without it: promote it with --was-in-sync if it was in sync to the end (no event 201 at the source after it stopped), or with --force if losing what it lacks is accepted"
    )]
    MayBeLeft,
    /// Its volumes are a mixture.
    #[error(
        "the volumes of this member are a mixture of several moments until all copies have arrived"
    )]
    Mixed,
    /// The source lives.
    #[error("the source is connected; reverse the group instead, or promote by force")]
    SourceLives,
    /// Only a source can do that.
    #[error("this member is not the source")]
    NotSource,
    /// It is that already.
    #[error("this member is the source already")]
    IsSource,
    /// The group has no such member.
    #[error("the group has no such member")]
    NoSuchMember,
    /// The witness has recorded something else.
    #[error("the witness did not agree")]
    WitnessDisagrees,
    /// The member to which the source's part was handed has not taken it.
    #[error("the member has not taken over: this one goes on as the source")]
    NotTakenOver,
    /// A member may be the source by now, and nobody else may become it beside that one.
    #[error(
        "{0} may be the source by now: it was told to take over, or was in sync before this source stopped, and has not been heard of since. Start it, or say go-on-without if it is not the source"
    )]
    Unheard(MemberId),
    /// Another change is under way.
    #[error("another change is under way")]
    Busy,
}

impl News {
    /// The number of the event, which scripts may rely on.
    pub const fn number(&self) -> u16 {
        match self {
            Self::IsSource(_) => 100,
            Self::IsDestination(_) => 101,
            Self::Cut(_) => 102,
            Self::InSync(_) => 200,
            Self::OutOfSync(_) => 201,
            Self::TooFewInSync => 202,
            Self::WaitsForWitness => 205,
            Self::WaitsFor(_) => 206,
            Self::RpoExceeded(..) => 203,
            Self::RpoMet(_) => 204,
            Self::Replays(_) => 300,
            Self::CopyBegins(..) => 301,
            Self::CopyEnds(_) => 302,
            Self::FellBehind(_) => 303,
            Self::PointsEnd(_) => 304,
            Self::OneSided(_) => 310,
            Self::NotOneSided(_) => 311,
            Self::Differs(..) => 400,
            Self::StorageFailed => 401,
            Self::Healed(..) => 402,
            Self::NotCopied(..) => 403,
            Self::Refused(..) => 500,
            Self::Denied(_) => 501,
        }
    }
}
