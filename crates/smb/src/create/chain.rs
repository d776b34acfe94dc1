//! The chain of create contexts: names, data, and where the next one is.
//!
//! ```text
//!  0      4        6        8   10       12       16
//!  +------+--------+--------+---+--------+--------+------+-----+------+-----
//!  | next | name   | name   | 0 | data   | data   | name | pad | data | pad
//!  |      | offset | length |   | offset | length |      |to 8 |      |to 8
//!  +------+--------+--------+---+--------+--------+------+-----+------+-----
//! ```
//!
//! Offsets count from the start of their context; contexts and data are 8-aligned.
//!
//! Spec: MS-SMB2 §2.2.13.2.

use crate::header::Header;
use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// Walks the chain in `bytes` and gives each name and data to `take`.
pub(super) fn parse<'a, T>(
    bytes: &'a [u8],
    take: impl Fn(&'a [u8], &'a [u8]) -> Result<T, ParseError>,
) -> Result<Vec<T>, ParseError> {
    let mut contexts = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        wire::limit(Field::Context, contexts.len() + 1, CONTEXTS_MAX)?;
        let mut reader = Reader::new(rest);
        let next = reader.u32()?;
        let this = if next == 0 { rest } else { split(rest, next)? };
        let (name_offset, name_length) = (reader.u16()?, reader.u16()?);
        reader.u16()?;
        let (data_offset, data_length) = (reader.u16()?, reader.u32()?);
        let buffer = |offset: u16, length| {
            wire::buffer(this, FIXED_LEN, u32::from(offset), length, Field::Context)
        };
        let name = buffer(name_offset, u32::from(name_length))?;
        if name.len() < NAME_MIN {
            let value = u64::from(name_length);
            return Err(ParseError::PeerValue { field: Field::Context, value });
        }
        contexts.push(take(name, buffer(data_offset, data_length)?)?);
        rest = if next == 0 { &[] } else { &rest[this.len()..] };
    }
    Ok(contexts)
}

fn split(rest: &[u8], next: u32) -> Result<&[u8], ParseError> {
    if !next.is_multiple_of(8) {
        return Err(ParseError::PeerAlignment { field: Field::Next, offset: next, align: 8 });
    }
    let outside =
        ParseError::PeerOffset { field: Field::Next, offset: next, length: 0, got: rest.len() };
    let len = usize::try_from(next).map_err(|_| outside)?;
    // A context that ends exactly where the chain ends should have said 0.
    if len < FIXED_LEN || len >= rest.len() {
        return Err(outside);
    }
    Ok(&rest[..len])
}

/// Appends one context and links the one before it, whose place `previous` holds.
pub(super) fn emit(
    out: &mut Vec<u8>,
    pdu_start: usize,
    previous: &mut Option<usize>,
    name: &[u8],
    data: impl FnOnce(&mut Vec<u8>),
) {
    wire::pad(out, pdu_start, 8);
    let start = out.len();
    if let Some(previous) = previous.replace(start) {
        wire::patch_u32(out, previous, wire::length32(start - previous));
    }
    out.extend_from_slice(&[0; FIXED_LEN]);
    out.extend_from_slice(name);
    wire::patch_u16(out, start + 4, wire::length16(FIXED_LEN));
    wire::patch_u16(out, start + 6, wire::length16(name.len()));
    wire::pad(out, pdu_start, 8);
    let data_start = out.len();
    data(out);
    let data_length = out.len() - data_start;
    if data_length > 0 {
        wire::patch_u16(out, start + 10, wire::length16(data_start - start));
        wire::patch_u32(out, start + 12, wire::length32(data_length));
    }
}

/// Appends a whole chain and patches its offset and length into the body at `body + at`.
pub(super) fn emit_all<C>(
    contexts: &[C],
    out: &mut Vec<u8>,
    body: usize,
    at: usize,
    emit_one: impl Fn(&C, &mut Vec<u8>, usize, &mut Option<usize>),
) {
    if contexts.is_empty() {
        return;
    }
    let pdu_start = body - Header::LEN;
    wire::pad(out, pdu_start, 8);
    let start = out.len();
    let mut previous = None;
    for context in contexts {
        emit_one(context, out, pdu_start, &mut previous);
    }
    let length = wire::length32(out.len() - start);
    wire::patch_u32(out, body + at, wire::length32(start - pdu_start));
    wire::patch_u32(out, body + at + 4, length);
}

/// Contexts of one message. Some fifteen are defined; Windows sends six at most.
pub const CONTEXTS_MAX: usize = 32;

const FIXED_LEN: usize = 16;
// MS-SMB2 §2.2.13.2: the shortest name.
const NAME_MIN: usize = 4;
