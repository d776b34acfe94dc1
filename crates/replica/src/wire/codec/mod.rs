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

mod body;
pub(super) mod field;
mod refusal;
#[cfg(test)]
pub(super) mod tests;

use thiserror::Error;

use self::body::{HERE_LEN_MAX, body_max, kind, put_message, take_message};
use self::field::{Put, Take};
use crate::message::{DIGEST_GRANULE, Message};

/// Bytes of the head of a frame.
pub const HEAD_LEN: usize = 12;
/// Bytes of the payload of one frame at most.
pub const PAYLOAD_MAX: u32 = 4 << 20;
/// Digests of one [`Message::Digests`] at most: those of 64 MiB.
pub const DIGESTS_MAX: usize = 1024;
/// Bytes of the body of any frame at most: that of a [`Message::Here`] with all recent changes.
pub const BODY_MAX: u32 = HERE_LEN_MAX;

/// The version of the frames that this program sends and takes.
const VERSION: u8 = 1;
const MAGIC: [u8; 2] = *b"LR";

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
