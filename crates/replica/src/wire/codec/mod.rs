//! Frames: how a [`Message`] lies on a connection.
//!
//! ```text
//!   head   0 "LR" 2 | version 1 | kind 1 | length of the body 4 | length of the payload 4
//!   body  12 fields of fixed width, in the order of the kind
//!   payload  bytes of the ring, or of a volume, which the codec does not touch
//! ```
//! Little-endian. A list is its count, then its entries. Every count, length and number is compared with its bound before
//! memory is taken for it, and each message has exactly one encoding.
//!
//! Spec: ours, docs/replica-wire.md.

mod field;
mod refusal;
#[cfg(test)]
mod tests;

use log::Lsn;
use thiserror::Error;

use self::field::{Put, Take};
use crate::message::{DIGEST_GRANULE, EXTENTS_MAX, Message};
use crate::names::EPOCHS_MAX;

/// Bytes of the head of a frame.
pub const HEAD_LEN: usize = 12;
/// Bytes of the payload of one frame at most.
pub const PAYLOAD_MAX: u32 = 4 << 20;
/// Digests of one [`Message::Digests`] at most: those of 64 MiB.
pub const DIGESTS_MAX: usize = 1024;
/// Bytes of the body of any frame at most: that of a [`Message::Here`] with all recent changes.
pub const BODY_MAX: u32 = {
    let history = 1 + EPOCHS_MAX * field::EPOCH_START_LEN;
    let recent = 4 + EXTENTS_MAX * field::RECENT_LEN;
    let len = history + 3 * 8 + 1 + recent + 8;
    assert!(len < 1 << 20);
    #[allow(clippy::cast_possible_truncation, reason = "below 2^20")]
    let len = len as u32;
    len
};

/// The version of the frames that this program sends and takes.
const VERSION: u8 = 1;
const MAGIC: [u8; 2] = *b"LR";

const HELLO: u8 = 1;
const HERE: u8 = 2;
const REFUSED: u8 = 3;
const FOLLOW: u8 = 4;
const FOLLOWING: u8 = 5;
const RECORDS: u8 = 6;
const DURABLE: u8 = 7;
const COMMITTED: u8 = 8;
const COPY: u8 = 9;
const COPIED: u8 = 10;
const COMPARE: u8 = 11;
const DIGESTS: u8 = 12;
const DIFFERS: u8 = 13;
const CONSISTENT: u8 = 14;
const IN_SYNC: u8 = 15;
const STORED: u8 = 16;
const TAKE_OVER: u8 = 17;
const ALIVE: u8 = 18;
/// Kinds from here on are those of the greeting of a link, which carry no message.
pub(super) const GREETINGS: u8 = 0x80;

/// Why bytes are no frame, or a message fits into none.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum WireError {
    /// The bytes are not the beginning of a frame.
    #[error("a frame begins with {0:02x?}")]
    PeerMagic([u8; 2]),
    /// Another version of this program sends other frames.
    #[error("a frame of version {found} came, this program knows {known}")]
    PeerVersion {
        /// The version of the frame.
        found: u8,
        /// The version that this program knows.
        known: u8,
    },
    /// The kind is unknown, or has no place here.
    #[error("a frame of kind {0} has no meaning here")]
    PeerKind(u8),
    /// A body is longer than any of its kind.
    #[error("the body of a frame of kind {kind} has {len} bytes, at most {max} are possible")]
    PeerBodyLen {
        /// The kind.
        kind: u8,
        /// The length that the head names.
        len: u32,
        /// The bound.
        max: u32,
    },
    /// The payload is longer than any.
    #[error("a payload has {len} bytes, at most {max} are possible", max = PAYLOAD_MAX)]
    PayloadLen {
        /// The length.
        len: u64,
    },
    /// The payload is not as long as the message says.
    #[error("{len} bytes of payload lie beside a message that speaks of {expected}")]
    PayloadDiffers {
        /// The length.
        len: u64,
        /// What the message says.
        expected: u64,
    },
    /// The bytes end before a field does.
    #[error("the frame ends within {0}")]
    PeerShort(&'static str),
    /// Bytes are left behind the last field.
    #[error("{count} bytes lie behind the last field of a frame of kind {kind}")]
    PeerTrailing {
        /// The kind.
        kind: u8,
        /// How many.
        count: usize,
    },
    /// A list has more entries than possible.
    #[error("{field} has {count} entries, at most {max} are possible")]
    Count {
        /// Which list.
        field: &'static str,
        /// Its entries.
        count: usize,
        /// The bound.
        max: usize,
    },
    /// A field holds what no member says.
    #[error("{0} holds a value that it cannot have")]
    Value(&'static str),
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Head {
    kind: u8,
    body_len: u32,
    payload_len: u32,
}

impl Head {
    /// The head in these bytes. It may be that of a greeting.
    ///
    /// # Errors
    ///
    /// The bytes are no head, or a length is beyond its bound.
    pub fn decode(bytes: &[u8; HEAD_LEN]) -> Result<Self, WireError> {
        let [m, n, version, kind, a, b, c, d, e, f, g, h] = *bytes;
        if [m, n] != MAGIC {
            return Err(WireError::PeerMagic([m, n]));
        }
        if version != VERSION {
            return Err(WireError::PeerVersion { found: version, known: VERSION });
        }
        let max = body_max(kind).ok_or(WireError::PeerKind(kind))?;
        let (len, payload_len) =
            (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        if len > max {
            return Err(WireError::PeerBodyLen { kind, len, max });
        }
        if payload_len > PAYLOAD_MAX {
            return Err(WireError::PayloadLen { len: payload_len.into() });
        }
        Ok(Self { kind, body_len: len, payload_len })
    }

    /// Its bytes.
    fn encode(self) -> [u8; HEAD_LEN] {
        let ([m, n], [a, b, c, d]) = (MAGIC, self.body_len.to_le_bytes());
        let [e, f, g, h] = self.payload_len.to_le_bytes();
        [m, n, VERSION, self.kind, a, b, c, d, e, f, g, h]
    }

    /// The kind.
    pub(super) fn kind(self) -> u8 {
        self.kind
    }

    /// Bytes of the body, which follows; at most [`BODY_MAX`].
    pub fn body_len(self) -> usize {
        usize::try_from(self.body_len).unwrap_or(usize::MAX)
    }

    /// Bytes of the payload, which follows the body; at most [`PAYLOAD_MAX`].
    pub fn payload_len(self) -> u32 {
        self.payload_len
    }

    /// The message of a frame with this head and this body.
    ///
    /// # Errors
    ///
    /// The body is that of no message, or the payload is not as long as the message says.
    pub fn message(self, body: &[u8]) -> Result<Message, WireError> {
        let mut take = Take::new(body);
        let message = take_message(self.kind, &mut take)?;
        match take.left() {
            0 => {}
            count => return Err(WireError::PeerTrailing { kind: self.kind, count }),
        }
        check(&message, self.payload_len)?;
        Ok(message)
    }
}

/// Appends the head and the body of the frame of `message`; `payload_len` bytes have to follow.
///
/// # Errors
///
/// The message holds what the other end would refuse, or speaks of a payload of another length; nothing is appended.
pub fn encode(message: &Message, payload_len: u32, out: &mut Vec<u8>) -> Result<(), WireError> {
    check(message, payload_len)?;
    let kind = kind(message);
    append(kind, payload_len, out, |put| put_message(message, put))
}

/// The message of a frame without its payload, and the length of that.
///
/// # Errors
///
/// The bytes are not the head and the body of a frame.
pub fn decode(bytes: &[u8]) -> Result<(Message, u32), WireError> {
    let (head, body) = bytes.split_first_chunk().ok_or(WireError::PeerShort("head"))?;
    let head = Head::decode(head)?;
    if body.len() < head.body_len() {
        return Err(WireError::PeerShort("body"));
    }
    if body.len() > head.body_len() {
        let count = body.len() - head.body_len();
        return Err(WireError::PeerTrailing { kind: head.kind, count });
    }
    Ok((head.message(body)?, head.payload_len))
}

/// Appends a frame whose body `fill` puts.
pub(super) fn append(
    kind: u8,
    payload_len: u32,
    out: &mut Vec<u8>,
    fill: impl FnOnce(&mut Put<'_>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let begin = out.len();
    out.extend_from_slice(&[0; HEAD_LEN]);
    let filled = fill(&mut Put::new(out));
    let len = out.len() - begin - HEAD_LEN;
    let max = body_max(kind).ok_or(WireError::PeerKind(kind))?;
    let body_len = u32::try_from(len).unwrap_or(u32::MAX);
    let filled = filled.and(match body_len <= max {
        true => Ok(()),
        false => Err(WireError::PeerBodyLen { kind, len: body_len, max }),
    });
    if let Err(error) = filled {
        out.truncate(begin);
        return Err(error);
    }
    let head = Head { kind, body_len, payload_len }.encode();
    out[begin..begin + HEAD_LEN].copy_from_slice(&head);
    Ok(())
}

/// Bytes of a body of the kind at most; `None` of a kind that is not known.
fn body_max(kind: u8) -> Option<u32> {
    match kind {
        HERE => Some(BODY_MAX),
        HELLO | FOLLOW => Some(2048),
        DIGESTS => Some(17 + 4 + 16 * 1024),
        ALIVE | FOLLOWING => Some(0),
        REFUSED..ALIVE | GREETINGS.. => Some(64),
        _ => None,
    }
}

/// What the fields say together.
fn check(message: &Message, payload_len: u32) -> Result<(), WireError> {
    let expected = match message {
        Message::Records { from, to, .. } => match to.0.checked_sub(from.0) {
            None | Some(0) => return Err(WireError::Value("Records.to")),
            Some(len) => len,
        },
        Message::Copy { extent, is_zero: false, .. } => extent.len,
        Message::Compare { extent, .. } | Message::Digests { extent, .. } => {
            match extent.len <= DIGESTS_MAX as u64 * DIGEST_GRANULE {
                true => 0,
                false => return Err(WireError::Value("extent")),
            }
        }
        _ => 0,
    };
    if expected > u64::from(PAYLOAD_MAX) {
        return Err(WireError::PayloadLen { len: expected });
    }
    match u64::from(payload_len) == expected {
        true => Ok(()),
        false => Err(WireError::PayloadDiffers { len: payload_len.into(), expected }),
    }
}

fn kind(message: &Message) -> u8 {
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
    }
}

fn put_message(message: &Message, put: &mut Put<'_>) -> Result<(), WireError> {
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
        Message::Follow { history, from, chain, committed, in_sync, set_version, with_copies } => {
            put.field("Follow.history", history)?;
            put.field("Follow.from", from)?;
            put.field("Follow.chain", chain)?;
            put.field("Follow.committed", committed)?;
            put.field("Follow.in_sync", in_sync)?;
            put.field("Follow.set_version", set_version)?;
            put.field("Follow.with_copies", with_copies)
        }
        Message::Following | Message::Alive => Ok(()),
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
    }
}

// Fields are taken in the order in which they stand here: that of `put_message`.
fn take_message(kind: u8, take: &mut Take<'_>) -> Result<Message, WireError> {
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
        kind => return Err(WireError::PeerKind(kind)),
    })
}
