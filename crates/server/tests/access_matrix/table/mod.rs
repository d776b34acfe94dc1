//! The table of what may be asked of an open, typed from the specifications and from nothing else.
//!
//! Requests of which a server may say that it does not know them are `optional`: they must not happen without the
//! rights they take. Where implementations give more than the specification says, the row names those rights as
//! `lax`, with the reason.

mod control;
mod data;
mod directory;
mod posix;
mod query;
mod set;

use smb::Command;
use smb::create::AccessMask as A;

use crate::row::{Asked, Needs, On, Row};

/// All rows.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = data::rows();
    rows.extend(query::rows());
    rows.extend(set::rows());
    rows.extend(control::rows());
    rows.extend(directory::rows());
    rows.extend(posix::rows());
    rows
}

// A structure of MS-SMB2: fields one after the other.
fn put(out: &mut Vec<u8>, fields: &[&[u8]]) {
    fields.iter().for_each(|field| out.extend_from_slice(field));
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

// A request whose body is the same for every open, but for its FileId.
fn row(
    name: impl Into<String>,
    on: On,
    needs: Needs,
    command: Command,
    body: impl Fn(&Asked, &mut Vec<u8>) + Send + Sync + 'static,
) -> Row {
    Row::new(name, on, needs, command, body)
}

const WRITES: Needs = Needs::Any(A::WRITE_DATA);
const READS: Needs = Needs::Any(A::READ_DATA);
const DELETES: Needs = Needs::Any(A::DELETE);
