//! What members say to each other. Sources ask, destinations answer.
//!
//! ```text
//!   source                                   destination
//!     Hello       what my order is         ->
//!                                          <-  Here       what I have, what I made that you may not have
//!     Follow      from where; what of      ->
//!                 yours is gone
//!                                          <-  Following  my label says so
//!     Records, Committed, Copy, Compare    ->
//!                                          <-  Durable, Copied, Digests
//!     Consistent  no more copies           ->
//!     InSync      who is                   ->
//!                                          <-  Stored
//!     TakeOver    be the source            ->
//!                                          <-  Differs   a verify record found something
//!                                          <-  Invite    my ring can be written by one-sided operations
//!     Map         on this connection       ->
//!                                          <-  Mapped, NotMapped
//!     Fetch       bytes that I cannot read ->
//!                                          <-  Fetched
//!     Lease       do not be the source  ->
//!                 for a while
//!                                          <-  Leased     until then I am none
//!     Reserve     can your volume be so    ->
//!                 long
//!                                          <-  Reserved   so long it can be
//!     There       records are in your ring, durable: one-sided operations put them there  ->
//! ```
//!
//! Messages of one connection arrive in order. Bytes of records lie beside [`Message::Records`] and
//! [`Message::Copy`]: whoever carries them puts them where they belong before it hands the message on.

use log::Lsn;

use crate::format::Extent;
use crate::names::{Epoch, GroupId, History, MemberId, MemberSet};

/// A message between two members. Who sent it is known from the connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// A source greets a member.
    Hello {
        /// The group of both.
        group: GroupId,
        /// The source's history; its current epoch is the source's.
        history: History,
        /// Sizes of the volumes in bytes, at the end of the source's order.
        volumes: Vec<u64>,
        /// Capacity of the source's ring, which all members' rings have.
        capacity: u64,
    },
    /// A member answers [`Message::Hello`].
    Here {
        /// Its history.
        history: History,
        /// Everything below this is durable in its ring or its volumes.
        end: Lsn,
        /// Everything below this is in its volumes.
        applied: Lsn,
        /// What is in its volumes is below this.
        bound: Lsn,
        /// Whether its volumes and its ring have a copy at one moment.
        is_consistent: bool,
        /// What the records of its ring change: `(lsn, extent)`, oldest first. At most [`EXTENTS_MAX`], the newest.
        recent: Vec<(Lsn, Extent)>,
        /// From where on `recent` lists all.
        recent_from: Lsn,
    },
    /// A member does not do what a message asks.
    Refused(Refusal),
    /// The source says from where the member goes on. The member cuts its order to `from`, takes over the history, and
    /// forgets what it had beyond.
    Follow {
        /// The source's history.
        history: History,
        /// First record that will come. Below it the member needs nothing.
        from: Lsn,
        /// Checksum of the header of the record before `from`.
        chain: u32,
        /// Everything below this is committed.
        committed: Lsn,
        /// Who is in sync, and how often that has changed in the epoch.
        in_sync: MemberSet,
        /// See `in_sync`.
        set_version: u64,
        /// Whether copies will come, so that the volumes are no copy at one moment until [`Message::Consistent`].
        with_copies: bool,
        /// Sizes of the volumes in bytes, where `from` lies.
        volumes: Vec<u64>,
    },
    /// The label says what [`Message::Follow`] said.
    Following,
    /// Bytes of the ring from one record to the next one behind the last.
    Records {
        /// The epoch that sends them.
        epoch: Epoch,
        /// First LSN.
        from: Lsn,
        /// LSN behind the last byte.
        to: Lsn,
        /// Everything below this is committed.
        committed: Lsn,
    },
    /// How far the member is.
    Durable {
        /// Everything below this is in its memory.
        placed: Lsn,
        /// Everything below this is durable in its ring.
        to: Lsn,
        /// Everything below this is in its volumes.
        applied: Lsn,
        /// The oldest record that its ring keeps.
        start: Lsn,
    },
    /// Everything below is committed.
    Committed {
        /// The epoch that says so.
        epoch: Epoch,
        /// Behind the last committed byte.
        to: Lsn,
    },
    /// The bytes of a range as all records below `at` made them.
    Copy {
        /// The epoch that sends it.
        epoch: Epoch,
        /// The moment.
        at: Lsn,
        /// Where.
        extent: Extent,
        /// Whether the range reads as zeroes; then no bytes lie beside the message.
        is_zero: bool,
    },
    /// The copies that arrived are durable in the volumes.
    Copied {
        /// How many, since [`Message::Following`].
        count: u64,
    },
    /// The member's digests of the range are wanted, one for each [`DIGEST_GRANULE`].
    Compare {
        /// The epoch that asks.
        epoch: Epoch,
        /// Where.
        extent: Extent,
    },
    /// Digests of a range.
    Digests {
        /// Where.
        extent: Extent,
        /// One for each granule, in order.
        digests: Vec<[u8; 16]>,
    },
    /// What the member holds is not what a verify record says.
    Differs {
        /// The record.
        lsn: Lsn,
        /// The range.
        extent: Extent,
    },
    /// All copies have been sent: once everything below `at` is applied, the volumes are a copy at one moment.
    Consistent {
        /// The epoch that says so.
        epoch: Epoch,
        /// The moment of the last copy.
        at: Lsn,
    },
    /// Who is in sync from here on.
    InSync {
        /// The epoch that says so.
        epoch: Epoch,
        /// Grows with each change in the epoch.
        version: u64,
        /// The members.
        members: MemberSet,
    },
    /// The label has the set of this version.
    Stored {
        /// The version.
        version: u64,
    },
    /// The source has stopped writing and everything is durable at this member: it may begin the next epoch.
    TakeOver {
        /// The epoch that ends.
        epoch: Epoch,
        /// Where it ends.
        end: Lsn,
        /// The epoch that begins.
        next: Epoch,
    },
    /// Whoever sent this is there.
    Alive,
    /// The member's ring can be written by one-sided operations: of a connection to this port that shows the ticket. How the
    /// ring is mapped then is between those who carry messages; who decides hears nothing of it.
    Invite {
        /// Where the member's engine listens, at the address at which the member was reached.
        port: u16,
        /// Good for one connection, for a short time.
        ticket: Ticket,
    },
    /// The ring is wanted on a connection that the member has admitted.
    Map {
        /// Its number, from the member's answer to the connection request.
        connection: u64,
    },
    /// The ring is mapped on that connection.
    Mapped {
        /// Its name in operations.
        key: u32,
        /// The address of its first byte in operations.
        address: u64,
    },
    /// The ring is not mapped.
    NotMapped,
    /// The bytes of a range as all records below `at` made them, which this source cannot read from its own volume and nobody
    /// changes meanwhile.
    Fetch {
        /// The epoch that asks.
        epoch: Epoch,
        /// The moment.
        at: Lsn,
        /// Where; at most [`FETCHED_MAX`] bytes.
        extent: Extent,
    },
    /// Answers [`Message::Fetch`]; the bytes lie beside the message, if they are there.
    Fetched {
        /// The moment that was asked for: an answer that came too late is none to a later question.
        at: Lsn,
        /// Where.
        extent: Extent,
        /// Whether the member has them, and could read them.
        is_there: bool,
    },
    /// The source wants the member's promise not to be the source for a while, so that what it lets be read is not old.
    Lease {
        /// The epoch that asks.
        epoch: Epoch,
        /// Nanoseconds of the source's clock.
        asked: u64,
        /// For so many nanoseconds from when this comes.
        for_ns: u64,
    },
    /// Answers [`Message::Lease`]: it is promised.
    Leased {
        /// What the question said.
        asked: u64,
        /// For so many nanoseconds, at most what was asked for.
        for_ns: u64,
    },
    /// A volume is to grow by this range, if the member has room for it.
    Reserve {
        /// The epoch that asks.
        epoch: Epoch,
        /// What would be new.
        extent: Extent,
    },
    /// Answers [`Message::Reserve`].
    Reserved {
        /// What was asked for.
        extent: Extent,
        /// Bytes that the volume's device has now.
        size: u64,
    },
    /// Bytes of the ring from one record to the next one behind the last, which one-sided operations have put into the
    /// member's ring and made durable there.
    There {
        /// The epoch that put them there.
        epoch: Epoch,
        /// First LSN.
        from: Lsn,
        /// LSN behind the last byte.
        to: Lsn,
        /// Everything below this is committed.
        committed: Lsn,
    },
}

/// Shows an engine that a connection is one that its member has asked for. A secret; does not print.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Ticket(pub [u8; 32]);

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticket(..)")
    }
}

/// Why a member does not do what a message asks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// It belongs to another group.
    #[error("the member belongs to group {0}")]
    OtherGroup(GroupId),
    /// It knows a newer epoch.
    #[error("the member follows {newest}, which is newer")]
    OldEpoch {
        /// The newest epoch that it knows.
        newest: Epoch,
    },
    /// It is a source itself, of an epoch that is not older.
    #[error("the member is the source of {0}")]
    IsSource(Epoch),
    /// Its volumes are of other sizes, or as many as the source's it does not have.
    #[error("volume {volume} has {size} bytes at the member")]
    OtherVolume {
        /// The first one that differs.
        volume: u8,
        /// Its size there; 0 where the member has no such volume.
        size: u64,
    },
    /// Its ring has another capacity.
    #[error("the ring of the member has {0} bytes")]
    OtherCapacity(u64),
    /// A message came that has no place where it came.
    #[error("the message has no place here")]
    OutOfOrder,
    /// The member's disk or memory failed.
    #[error("the member's storage failed")]
    Failed,
}

/// Entries of a list of recent changes at most.
pub const EXTENTS_MAX: usize = 16_384;
/// Bytes of a range that a source asks for at once, at most.
pub const FETCHED_MAX: u64 = 64 << 10;
/// Bytes that a digest is about.
pub const DIGEST_GRANULE: u64 = 64 << 10;
/// Members say something at least this often, in nanoseconds of the driver's clock.
pub const ALIVE_EVERY_NS: u64 = 500_000_000;

/// The source that a connection was made to, or the member that made it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Peer {
    /// Its number in the group.
    pub member: MemberId,
    /// Which of the connections of this member it is: later ones have greater numbers, and what an earlier one says
    /// counts no more.
    pub connection: u64,
}
