//! What goes into the core and what comes out.

use log::Lsn;

use crate::core::news::News;
use crate::core::order::Entry;
use crate::dirty::DirtyMap;
use crate::format::{Extent, Label};
use crate::message::{Message, Peer};
use crate::names::{Epoch, MemberId, MemberSet};

/// Something has happened. Times are nanoseconds of a clock that never goes back.
#[derive(Clone, Debug)]
pub enum Event {
    /// A writer has put the record at this LSN into the ring's memory.
    Placed(Lsn),
    /// Everything in the ring below is durable: an answer to [`Action::Persist`].
    RingDurable(Lsn),
    /// At a source: the record at this LSN is in its volume.
    Applied(Lsn),
    /// At a destination: everything below is in the volumes. An answer to [`Action::Apply`].
    AppliedTo(Lsn),
    /// The volumes are durable as they were when [`Action::FlushVolumes`] named this LSN.
    VolumesDurable(Lsn),
    /// The label of this sequence is durable, and so are all before it.
    LabelStored(u64),
    /// The dirty map of a member is durable as it was when [`Action::StoreDirty`] named this number.
    DirtyStored(MemberId, u64),
    /// Storage failed: nothing more can be made durable here.
    StorageFailed,
    /// The volumes, and the snapshot that [`Action::TakeSnapshot`] asked for, are durable.
    SnapshotTaken,
    /// The driver has made a connection to a member, whose identity is proved. Only sources make connections.
    Dialed(Peer),
    /// A member, whose identity is proved, has made a connection.
    Accepted(Peer),
    /// A connection has ended, and nothing that it carries reaches the ring any more.
    Lost(Peer),
    /// A message came. Of [`Message::Records`] the bytes are in the ring already, and [`Event::Received`] comes instead.
    Said(Peer, Message),
    /// Records came, which [`crate::core::Core::may_receive`] has allowed, are sound, and are in the ring's memory.
    Received {
        /// Who sent them.
        peer: Peer,
        /// The records, in order.
        entries: Vec<Entry>,
        /// Everything below this is committed.
        committed: Lsn,
        /// They are durable: one-sided operations put them there, and flushed them.
        are_durable: bool,
    },
    /// Records that [`crate::core::Core::may_receive`] has allowed did not come whole, or are not sound.
    NotReceived(Peer),
    /// The bytes of the ring below are on their way to the member; the driver reads them no more.
    Shipped(Peer, Lsn),
    /// A flush at the member, asked for by one-sided operations, has made everything below durable.
    DurableThere(Peer, Lsn),
    /// At a source: the copies of a range are on their way, so many messages. An answer to [`Action::Copy`].
    CopiesSent(Peer, Extent, u64),
    /// At a destination: the oldest copy that waits is in its volume. An answer to [`Action::PutCopy`].
    CopyPut,
    /// At a destination: the copies that were put are durable, so many in all. An answer to [`Action::FlushCopies`].
    CopiesDurable(u64),
    /// The witness has taken what [`Action::Propose`] said, or not.
    Proposed {
        /// Which proposal.
        number: u64,
        /// Whether it is so now.
        is_taken: bool,
    },
    /// No writer of this member writes to a volume any more: an answer to [`Action::StopWriters`].
    WritersStopped,
    /// All one-sided access has ended, and what it placed before has been reported: an answer to [`Action::Revoke`].
    Revoked,
    /// An operator, or a promoter, wants something.
    Wanted(Wish),
    /// Time has passed.
    Tick,
}

/// What an operator, or a promoter, may want of a member.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wish {
    /// Be the source. `nonce` is random. Without `by_force` the member must be in sync, as far as it knows.
    Promote {
        /// For the new epoch.
        nonce: u64,
        /// The number of the newest epoch that the witness knows; 0 without a witness.
        above: u32,
        /// The operator knows that the member was in sync to the end of the source before. A member that has started again
        /// since does not know.
        was_in_sync: bool,
        /// Though what the source before has acknowledged may be lost.
        by_force: bool,
    },
    /// Be no source any more.
    Demote,
    /// Hand the source's part over to a member that is in sync.
    Reverse {
        /// To whom.
        to: MemberId,
        /// For the new epoch.
        nonce: u64,
    },
    /// Say nothing to the member until it is resumed; what it lacks is noted.
    Suspend(MemberId),
    /// The end of [`Wish::Suspend`].
    Resume(MemberId),
    /// When writes are answered, as far as the member is concerned.
    SetMode(MemberId, crate::core::Mode),
    /// Go on without members that have not come back since this source started.
    GoOnWithout(MemberId),
    /// Copy everything in which the member differs.
    Compare(MemberId),
}

/// What a driver has to do. Actions of one [`Lane`] are carried out in their order; lanes do not wait for each other.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Make the ring durable below; [`Event::RingDurable`] answers.
    Persist(Lsn),
    /// At a destination: apply the records from the first LSN to the second; [`Event::AppliedTo`] answers.
    Apply(Lsn, Lsn),
    /// Make the volumes durable; [`Event::VolumesDurable`] answers with this LSN.
    FlushVolumes(Lsn),
    /// Make the label durable; [`Event::LabelStored`] answers.
    StoreLabel(Box<Label>),
    /// Make a member's dirty map durable as it is here; [`Event::DirtyStored`] answers.
    StoreDirty {
        /// Whose.
        member: MemberId,
        /// For the answer.
        number: u64,
        /// The map.
        map: Box<DirtyMap>,
    },
    /// Copies are about to come. Make the volumes durable as they are: what is compared and found equal is not copied.
    /// Then keep a snapshot of them until [`Action::DropSnapshot`], unless there is one; [`Event::SnapshotTaken`] answers.
    TakeSnapshot {
        /// Whether there is none: the volumes are a copy at one moment.
        is_first: bool,
    },
    /// The volumes are a copy at one moment again.
    DropSnapshot,
    /// Send a message.
    Send(Peer, Message),
    /// Send the records between the LSNs as [`Message::Records`]; [`Event::Shipped`] answers.
    Ship {
        /// To whom.
        peer: Peer,
        /// The source's epoch.
        epoch: Epoch,
        /// The first record.
        from: Lsn,
        /// Behind the last one.
        to: Lsn,
        /// Everything below this is committed.
        committed: Lsn,
    },
    /// Send copies of the range, which are read while no write to it is under way; [`Event::CopiesSent`] answers.
    Copy {
        /// To whom.
        peer: Peer,
        /// What.
        extent: Extent,
        /// Whether to ask for digests first, and to copy only what differs.
        compares: bool,
    },
    /// At a destination: put the oldest copy that waits into its volume; [`Event::CopyPut`] answers.
    PutCopy,
    /// At a destination: make the copies that were put durable; [`Event::CopiesDurable`] answers with this number.
    FlushCopies(u64),
    /// End the connection; [`Event::Lost`] answers.
    Disconnect(Peer),
    /// Everything below is committed: writers go on.
    Committed(Lsn),
    /// The ring has room again, or a state has changed for which writers wait.
    Room,
    /// Ask the witness for a change; [`Event::Proposed`] answers.
    Propose {
        /// For the answer.
        number: u64,
        /// The epoch that is the group's, if the witness agrees.
        epoch: Epoch,
        /// Its source.
        source: MemberId,
        /// Who is in sync.
        in_sync: MemberSet,
        /// Grows with each change of the set in the epoch.
        set_version: u64,
    },
    /// End all one-sided access to the ring; [`Event::Revoked`] answers.
    Revoke,
    /// Writers that are not committed fail; [`Event::WritersStopped`] answers when the others are through.
    StopWriters,
    /// At a source that begins: writers may come.
    StartWriters,
    /// Something that operators want to know.
    Tell(News),
}

/// Which actions keep their order.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Lane {
    /// Of the ring and its revocation.
    Ring,
    /// Of the volumes.
    Volumes,
    /// Of labels and dirty maps.
    Label,
    /// To one member.
    Member(MemberId),
    /// Of copies to one member.
    Copies(MemberId),
    /// Of the witness.
    Witness,
    /// What does not wait for anything.
    Now,
}

impl Action {
    /// Its lane.
    pub fn lane(&self) -> Lane {
        match self {
            Self::Persist(_) | Self::Revoke => Lane::Ring,
            Self::Apply(..)
            | Self::FlushVolumes(_)
            | Self::TakeSnapshot { .. }
            | Self::DropSnapshot
            | Self::PutCopy
            | Self::FlushCopies(_) => Lane::Volumes,
            Self::StoreLabel(_) | Self::StoreDirty { .. } => Lane::Label,
            Self::Send(peer, _) | Self::Ship { peer, .. } => Lane::Member(peer.member),
            Self::Copy { peer, .. } => Lane::Copies(peer.member),
            Self::Propose { .. } => Lane::Witness,
            Self::Disconnect(_)
            | Self::Committed(_)
            | Self::Room
            | Self::StopWriters
            | Self::StartWriters
            | Self::Tell(_) => Lane::Now,
        }
    }
}
