//! A frame: its head, and the body behind it.

use super::body::{HERE_LEN_MAX, body_max, kind, put_message, take_message};
use super::error::{PAYLOAD_MAX, WireError};
use super::field::{DIGESTS_MAX, Put, Take};
use crate::message::{DIGEST_GRANULE, FETCHED_MAX, Message};

/// Bytes of the head of a frame.
pub const HEAD_LEN: usize = 12;
/// Bytes of the body of any frame at most: that of a [`Message::Here`] with all recent changes.
pub const BODY_MAX: u32 = HERE_LEN_MAX;

/// The version of the frames that this program sends and takes.
pub(super) const VERSION: u8 = 1;
const MAGIC: [u8; 2] = *b"LR";

/// The head of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Head {
    pub(super) kind: u8,
    pub(super) body_len: u32,
    pub(super) payload_len: u32,
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
    pub(super) fn encode(self) -> [u8; HEAD_LEN] {
        let ([m, n], [a, b, c, d]) = (MAGIC, self.body_len.to_le_bytes());
        let [e, f, g, h] = self.payload_len.to_le_bytes();
        [m, n, VERSION, self.kind, a, b, c, d, e, f, g, h]
    }

    /// The kind.
    pub(in crate::wire) fn kind(self) -> u8 {
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
pub(in crate::wire) fn append(
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
        Message::There { from, to, .. } => match to.0.checked_sub(from.0) {
            Some(len) if (1..=u64::from(PAYLOAD_MAX)).contains(&len) => 0,
            _ => return Err(WireError::Value("There.to")),
        },
        Message::Copy { extent, is_zero: false, .. } => extent.len,
        Message::Fetch { extent, .. } | Message::Fetched { extent, .. }
            if extent.len > FETCHED_MAX =>
        {
            return Err(WireError::Value("extent"));
        }
        Message::Fetched { extent, is_there: true, .. } => extent.len,
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
