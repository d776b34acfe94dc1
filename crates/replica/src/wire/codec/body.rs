//! The bodies of messages: which fields each kind has, in which order.

use log::Lsn;

use super::error::WireError;
use super::field::{DIGESTS_MAX, EPOCH_START_LEN, Put, RECENT_LEN, Take};
use crate::message::{EXTENTS_MAX, Message};
use crate::names::EPOCHS_MAX;

pub(super) const HELLO: u8 = 1;
pub(super) const HERE: u8 = 2;
pub(super) const REFUSED: u8 = 3;
pub(super) const FOLLOW: u8 = 4;
pub(super) const FOLLOWING: u8 = 5;
pub(super) const RECORDS: u8 = 6;
pub(super) const DURABLE: u8 = 7;
pub(super) const COMMITTED: u8 = 8;
pub(super) const COPY: u8 = 9;
pub(super) const COPIED: u8 = 10;
pub(super) const COMPARE: u8 = 11;
pub(super) const DIGESTS: u8 = 12;
pub(super) const DIFFERS: u8 = 13;
pub(super) const CONSISTENT: u8 = 14;
pub(super) const IN_SYNC: u8 = 15;
pub(super) const STORED: u8 = 16;
pub(super) const TAKE_OVER: u8 = 17;
pub(super) const ALIVE: u8 = 18;
pub(super) const INVITE: u8 = 19;
pub(super) const MAP: u8 = 20;
pub(super) const MAPPED: u8 = 21;
pub(super) const NOT_MAPPED: u8 = 22;
pub(super) const THERE: u8 = 23;
pub(super) const FETCH: u8 = 24;
pub(super) const FETCHED: u8 = 25;
pub(super) const LEASE: u8 = 26;
pub(super) const LEASED: u8 = 27;
pub(super) const RESERVE: u8 = 28;
pub(super) const RESERVED: u8 = 29;

/// Kinds from here on are those of the greeting of a link, which carry no message.
pub(in crate::wire) const GREETINGS: u8 = 0x80;

/// The kind of a message.
pub(super) fn kind(message: &Message) -> u8 {
    match message {
        Message::Hello { .. } => HELLO,
        Message::Here { .. } => HERE,
        Message::Refused(_) => REFUSED,
        Message::Follow { .. } => FOLLOW,
        Message::Following => FOLLOWING,
        Message::Records { .. } => RECORDS,
        Message::Durable { .. } => DURABLE,
        Message::Committed { .. } => COMMITTED,
        Message::Copy { .. } => COPY,
        Message::Copied { .. } => COPIED,
        Message::Compare { .. } => COMPARE,
        Message::Digests { .. } => DIGESTS,
        Message::Differs { .. } => DIFFERS,
        Message::Consistent { .. } => CONSISTENT,
        Message::InSync { .. } => IN_SYNC,
        Message::Stored { .. } => STORED,
        Message::TakeOver { .. } => TAKE_OVER,
        Message::Alive => ALIVE,
        Message::Invite { .. } => INVITE,
        Message::Map { .. } => MAP,
        Message::Mapped { .. } => MAPPED,
        Message::NotMapped => NOT_MAPPED,
        Message::There { .. } => THERE,
        Message::Fetch { .. } => FETCH,
        Message::Fetched { .. } => FETCHED,
        Message::Lease { .. } => LEASE,
        Message::Leased { .. } => LEASED,
        Message::Reserve { .. } => RESERVE,
        Message::Reserved { .. } => RESERVED,
    }
}

/// Bytes of a body of the kind at most; `None` of a kind that is not known.
pub(super) fn body_max(kind: u8) -> Option<u32> {
    match kind {
        HERE => Some(HERE_LEN_MAX),
        HELLO | FOLLOW => Some(HISTORY_LEN_MAX + 256),
        DIGESTS => Some(DIGESTS_LEN_MAX),
        ALIVE | FOLLOWING | NOT_MAPPED => Some(0),
        REFUSED..=RESERVED | GREETINGS.. => Some(OTHER_LEN_MAX),
        _ => None,
    }
}

/// Puts the fields of a message.
#[expect(clippy::too_many_lines, reason = "an arm for each message")]
pub(super) fn put_message(message: &Message, put: &mut Put<'_>) -> Result<(), WireError> {
    match message {
        Message::Hello { group, history, volumes, capacity } => {
            put.field("Hello.group", group)?;
            put.field("Hello.history", history)?;
            put.field("Hello.volumes", volumes)?;
            put.field("Hello.capacity", capacity)
        }
        Message::Here { history, end, applied, bound, is_consistent, recent, recent_from } => {
            put.field("Here.history", history)?;
            put.lsns("Here", [*end, *applied, *bound])?;
            put.field("Here.is_consistent", is_consistent)?;
            put.field("Here.recent", recent)?;
            put.field("Here.recent_from", recent_from)
        }
        Message::Refused(refusal) => put.field("Refused", refusal),
        Message::Follow {
            history,
            from,
            chain,
            committed,
            in_sync,
            set_version,
            with_copies,
            volumes,
        } => {
            put.field("Follow.history", history)?;
            put.field("Follow.from", from)?;
            put.field("Follow.chain", chain)?;
            put.field("Follow.committed", committed)?;
            put.field("Follow.in_sync", in_sync)?;
            put.field("Follow.set_version", set_version)?;
            put.field("Follow.with_copies", with_copies)?;
            put.field("Follow.volumes", volumes)
        }
        Message::Following | Message::Alive | Message::NotMapped => Ok(()),
        Message::Records { epoch, from, to, committed } => {
            put.field("Records.epoch", epoch)?;
            put.lsns("Records", [*from, *to, *committed])
        }
        Message::Durable { placed, to, applied, start } => {
            put.lsns("Durable", [*placed, *to, *applied, *start])
        }
        Message::Committed { epoch, to } => {
            put.field("Committed.epoch", epoch)?;
            put.field("Committed.to", to)
        }
        Message::Copy { epoch, at, extent, is_zero } => {
            put.field("Copy.epoch", epoch)?;
            put.field("Copy.at", at)?;
            put.field("Copy.extent", extent)?;
            put.field("Copy.is_zero", is_zero)
        }
        Message::Copied { count } => put.field("Copied.count", count),
        Message::Compare { epoch, extent } => {
            put.field("Compare.epoch", epoch)?;
            put.field("Compare.extent", extent)
        }
        Message::Digests { extent, digests } => {
            put.field("Digests.extent", extent)?;
            put.field("Digests.digests", digests)
        }
        Message::Differs { lsn, extent } => {
            put.field("Differs.lsn", lsn)?;
            put.field("Differs.extent", extent)
        }
        Message::Consistent { epoch, at } => {
            put.field("Consistent.epoch", epoch)?;
            put.field("Consistent.at", at)
        }
        Message::InSync { epoch, version, members } => {
            put.field("InSync.epoch", epoch)?;
            put.field("InSync.version", version)?;
            put.field("InSync.members", members)
        }
        Message::Stored { version } => put.field("Stored.version", version),
        Message::TakeOver { epoch, end, next } => {
            put.field("TakeOver.epoch", epoch)?;
            put.field("TakeOver.end", end)?;
            put.field("TakeOver.next", next)
        }
        Message::Invite { port, ticket } => {
            put.field("Invite.port", port)?;
            put.field("Invite.ticket", ticket)
        }
        Message::Map { connection } => put.field("Map.connection", connection),
        Message::Mapped { key, address } => {
            put.field("Mapped.key", key)?;
            put.field("Mapped.address", address)
        }
        Message::Fetch { epoch, at, extent } => {
            put.field("Fetch.epoch", epoch)?;
            put.field("Fetch.at", at)?;
            put.field("Fetch.extent", extent)
        }
        Message::Fetched { at, extent, is_there } => {
            put.field("Fetched.at", at)?;
            put.field("Fetched.extent", extent)?;
            put.field("Fetched.is_there", is_there)
        }
        Message::Lease { epoch, asked, for_ns } => {
            put.field("Lease.epoch", epoch)?;
            put.field("Lease.asked", asked)?;
            put.field("Lease.for_ns", for_ns)
        }
        Message::Leased { asked, for_ns } => {
            put.field("Leased.asked", asked)?;
            put.field("Leased.for_ns", for_ns)
        }
        Message::Reserve { epoch, extent } => {
            put.field("Reserve.epoch", epoch)?;
            put.field("Reserve.extent", extent)
        }
        Message::Reserved { extent, size } => {
            put.field("Reserved.extent", extent)?;
            put.field("Reserved.size", size)
        }
        Message::There { epoch, from, to, committed } => {
            put.field("There.epoch", epoch)?;
            put.lsns("There", [*from, *to, *committed])
        }
    }
}

/// Fields are taken in the order in which they stand here: that of [`put_message`].
#[expect(clippy::too_many_lines, reason = "an arm for each message")]
pub(super) fn take_message(kind: u8, take: &mut Take<'_>) -> Result<Message, WireError> {
    Ok(match kind {
        HELLO => Message::Hello {
            group: take.field("Hello.group")?,
            history: take.field("Hello.history")?,
            volumes: take.field("Hello.volumes")?,
            capacity: take.field("Hello.capacity")?,
        },
        HERE => {
            let history = take.field("Here.history")?;
            let [end, applied, bound] = take.lsns("Here")?;
            let is_consistent = take.field("Here.is_consistent")?;
            let recent: Vec<(Lsn, _)> = take.field("Here.recent")?;
            let recent_from = take.field("Here.recent_from")?;
            Message::Here { history, end, applied, bound, is_consistent, recent, recent_from }
        }
        REFUSED => Message::Refused(take.field("Refused")?),
        FOLLOW => Message::Follow {
            history: take.field("Follow.history")?,
            from: take.field("Follow.from")?,
            chain: take.field("Follow.chain")?,
            committed: take.field("Follow.committed")?,
            in_sync: take.field("Follow.in_sync")?,
            set_version: take.field("Follow.set_version")?,
            with_copies: take.field("Follow.with_copies")?,
            volumes: take.field("Follow.volumes")?,
        },
        FOLLOWING => Message::Following,
        RECORDS => {
            let epoch = take.field("Records.epoch")?;
            let [from, to, committed] = take.lsns("Records")?;
            Message::Records { epoch, from, to, committed }
        }
        DURABLE => {
            let [placed, to, applied, start] = take.lsns("Durable")?;
            Message::Durable { placed, to, applied, start }
        }
        COMMITTED => Message::Committed {
            epoch: take.field("Committed.epoch")?,
            to: take.field("Committed.to")?,
        },
        COPY => Message::Copy {
            epoch: take.field("Copy.epoch")?,
            at: take.field("Copy.at")?,
            extent: take.field("Copy.extent")?,
            is_zero: take.field("Copy.is_zero")?,
        },
        COPIED => Message::Copied { count: take.field("Copied.count")? },
        COMPARE => Message::Compare {
            epoch: take.field("Compare.epoch")?,
            extent: take.field("Compare.extent")?,
        },
        DIGESTS => Message::Digests {
            extent: take.field("Digests.extent")?,
            digests: take.field("Digests.digests")?,
        },
        DIFFERS => Message::Differs {
            lsn: take.field("Differs.lsn")?,
            extent: take.field("Differs.extent")?,
        },
        CONSISTENT => Message::Consistent {
            epoch: take.field("Consistent.epoch")?,
            at: take.field("Consistent.at")?,
        },
        IN_SYNC => Message::InSync {
            epoch: take.field("InSync.epoch")?,
            version: take.field("InSync.version")?,
            members: take.field("InSync.members")?,
        },
        STORED => Message::Stored { version: take.field("Stored.version")? },
        TAKE_OVER => Message::TakeOver {
            epoch: take.field("TakeOver.epoch")?,
            end: take.field("TakeOver.end")?,
            next: take.field("TakeOver.next")?,
        },
        ALIVE => Message::Alive,
        INVITE => Message::Invite {
            port: take.field("Invite.port")?,
            ticket: take.field("Invite.ticket")?,
        },
        MAP => Message::Map { connection: take.field("Map.connection")? },
        MAPPED => Message::Mapped {
            key: take.field("Mapped.key")?,
            address: take.field("Mapped.address")?,
        },
        NOT_MAPPED => Message::NotMapped,
        THERE => {
            let epoch = take.field("There.epoch")?;
            let [from, to, committed] = take.lsns("There")?;
            Message::There { epoch, from, to, committed }
        }
        FETCH => Message::Fetch {
            epoch: take.field("Fetch.epoch")?,
            at: take.field("Fetch.at")?,
            extent: take.field("Fetch.extent")?,
        },
        FETCHED => Message::Fetched {
            at: take.field("Fetched.at")?,
            extent: take.field("Fetched.extent")?,
            is_there: take.field("Fetched.is_there")?,
        },
        LEASE => Message::Lease {
            epoch: take.field("Lease.epoch")?,
            asked: take.field("Lease.asked")?,
            for_ns: take.field("Lease.for_ns")?,
        },
        LEASED => Message::Leased {
            asked: take.field("Leased.asked")?,
            for_ns: take.field("Leased.for_ns")?,
        },
        RESERVE => Message::Reserve {
            epoch: take.field("Reserve.epoch")?,
            extent: take.field("Reserve.extent")?,
        },
        RESERVED => Message::Reserved {
            extent: take.field("Reserved.extent")?,
            size: take.field("Reserved.size")?,
        },
        kind => return Err(WireError::PeerKind(kind)),
    })
}

/// Bytes of the longest history.
const HISTORY_LEN_MAX: u32 = bytes(1 + EPOCHS_MAX * EPOCH_START_LEN);
/// Bytes of a [`Message::Here`] with all recent changes.
pub(super) const HERE_LEN_MAX: u32 =
    HISTORY_LEN_MAX + bytes(3 * 8 + 1 + 4 + EXTENTS_MAX * RECENT_LEN + 8);
const DIGESTS_LEN_MAX: u32 = bytes(17 + 4 + DIGESTS_MAX * 16);
/// Bytes of all that has no list, and of greetings.
const OTHER_LEN_MAX: u32 = 64;

#[allow(clippy::cast_possible_truncation, reason = "asserted to be below 2^20")]
const fn bytes(len: usize) -> u32 {
    assert!(len < 1 << 20);
    len as u32
}
