//! Options: what a client asks for before it has an export, and the replies to that.
//!
//! ```text
//!   option   0 "IHAVEOPT"   8 option   12 length   16 data
//!   reply    0 magic        8 option   12 kind     16 length   20 data
//! ```
//!
//! Spec: NBD protocol, "Fixed newstyle negotiation", "Option types", "Option reply types".

use super::error::PeerError;
use super::limits::OPTION_LEN_MAX;
use super::output::Output;

/// An option that has arrived whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ClientOption<'b> {
    pub(super) kind: OptionKind,
    pub(super) data: &'b [u8],
}

/// The number of an option.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct OptionKind(pub(super) u32);

impl OptionKind {
    pub(super) const EXPORT_NAME: Self = Self(1);
    pub(super) const ABORT: Self = Self(2);
    pub(super) const LIST: Self = Self(3);
    pub(super) const STARTTLS: Self = Self(5);
    pub(super) const INFO: Self = Self(6);
    pub(super) const GO: Self = Self(7);
    pub(super) const STRUCTURED_REPLY: Self = Self(8);
    pub(super) const LIST_META_CONTEXT: Self = Self(9);
    pub(super) const SET_META_CONTEXT: Self = Self(10);
}

/// The kind of a reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ReplyKind(u32);

impl ReplyKind {
    pub(super) const ACK: Self = Self(1);
    pub(super) const SERVER: Self = Self(2);
    pub(super) const INFO: Self = Self(3);
    pub(super) const META_CONTEXT: Self = Self(4);
    pub(super) const ERR_UNSUP: Self = Self(1 << 31 | 1);
    pub(super) const ERR_INVALID: Self = Self(1 << 31 | 3);
    pub(super) const ERR_TLS_REQD: Self = Self(1 << 31 | 5);
    pub(super) const ERR_UNKNOWN: Self = Self(1 << 31 | 6);
}

impl<'b> ClientOption<'b> {
    /// The option that `bytes` begin with, and its length; `None` if it has not arrived whole.
    pub(super) fn parse(bytes: &'b [u8]) -> Result<Option<(Self, usize)>, PeerError> {
        let Some((magic, rest)) = bytes.split_first_chunk::<8>() else { return Ok(None) };
        let magic = u64::from_be_bytes(*magic);
        if magic != IHAVEOPT {
            return Err(PeerError::PeerMagic { magic });
        }
        let Some((kind, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let Some((len, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let (option, len) = (u32::from_be_bytes(*kind), u32::from_be_bytes(*len));
        if len > OPTION_LEN_MAX {
            return Err(PeerError::PeerOptionTooLong { option, len });
        }
        let len = usize::try_from(len).expect("OPTION_LEN_MAX at most");
        let Some(data) = rest.get(..len) else { return Ok(None) };
        Ok(Some((Self { kind: OptionKind(option), data }, HEADER_LEN + len)))
    }
}

/// Appends a reply to an option.
pub(super) fn reply(output: &mut Output, option: OptionKind, kind: ReplyKind, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    output.put_u64(REPLY_MAGIC);
    output.put_u32(option.0);
    output.put_u32(kind.0);
    output.put_u32(u32::try_from(len).expect("two names and a few numbers"));
    parts.iter().for_each(|part| output.put(part));
}

/// The data of GO and INFO: an export, and what the client wants to know of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Wanted<'b> {
    pub(super) name: &'b [u8],
    infos: &'b [u8],
}

impl<'b> Wanted<'b> {
    pub(super) fn parse(data: &'b [u8]) -> Option<Self> {
        let (name, rest) = string(data)?;
        let (count, infos) = rest.split_first_chunk::<2>()?;
        let is_whole = usize::from(u16::from_be_bytes(*count)) * 2 == infos.len();
        is_whole.then_some(Self { name, infos })
    }

    /// Whether the client asks for this.
    pub(super) fn asks_for(&self, info: u16) -> bool {
        self.infos.as_chunks::<2>().0.contains(&info.to_be_bytes())
    }
}

/// A string of 32 bits of length and its bytes, and what follows it.
pub(super) fn string(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = data.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*len)).ok()?)
}

pub(super) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const HEADER_LEN: usize = 16;
