//! Replies of the transmission phase.
//!
//! ```text
//!   simple      0 magic 0x67446698   4 error   8 cookie   16 data of a read
//!   structured  0 magic 0x668e33ef   4 flags   6 type     8 cookie   16 length   20 payload
//! ```
//!
//! A reply to a read, or to a question for states, is structured where the client asked for that; all others are simple.
//!
//! Spec: NBD protocol, "Simple reply message", "Structured reply chunk message".

use block::{BlockError, State};

use super::meta::ALLOCATION_ID;
use super::output::Output;

/// Appends a simple reply without data.
pub(super) fn simple(output: &mut Output, cookie: u64, error: u32) {
    output.put_u32(SIMPLE);
    output.put_u32(error);
    output.put_u64(cookie);
}

/// Appends the only chunk of a structured reply that says that all went well.
pub(super) fn nothing(output: &mut Output, cookie: u64) {
    chunk(output, cookie, NONE, 0);
}

/// Appends the head of the only chunk of data of a structured reply; `len` bytes of data follow.
pub(super) fn data(output: &mut Output, cookie: u64, offset: u64, len: u32) {
    chunk(output, cookie, OFFSET_DATA, len + 8);
    output.put_u64(offset);
}

/// Appends a structured reply that says what went wrong.
pub(super) fn failure(output: &mut Output, cookie: u64, error: u32, words: &str) {
    let words = &words.as_bytes()[..words.len().min(WORDS_MAX)];
    let len = u16::try_from(words.len()).expect("WORDS_MAX at most");
    chunk(output, cookie, ERROR, u32::from(len) + 6);
    output.put_u32(error);
    output.put_u16(len);
    output.put(words);
}

/// Appends a structured reply with the states of blocks in a row.
pub(super) fn states(output: &mut Output, cookie: u64, extents: &[(u32, State)]) {
    let len = u32::try_from(extents.len()).expect("EXTENTS_MAX at most") * 8 + 4;
    chunk(output, cookie, BLOCK_STATUS, len);
    output.put_u32(ALLOCATION_ID);
    for (len, state) in extents {
        output.put_u32(*len);
        output.put_u32(match state {
            State::Data => 0,
            State::Zero => STATE_ZERO,
            State::Hole => STATE_HOLE | STATE_ZERO,
        });
    }
}

fn chunk(output: &mut Output, cookie: u64, kind: u16, len: u32) {
    output.put_u32(STRUCTURED);
    output.put_u16(DONE);
    output.put_u16(kind);
    output.put_u64(cookie);
    output.put_u32(len);
}

/// The number of an error on the wire: those of [`BlockError::errno`] are the protocol's.
pub(super) fn code(error: BlockError) -> u32 {
    error.errno().unsigned_abs()
}

pub(super) const EINVAL: u32 = 22;
const SIMPLE: u32 = 0x6744_6698;
const STRUCTURED: u32 = 0x668e_33ef;
/// No chunk of the reply follows.
const DONE: u16 = 1;
const NONE: u16 = 0;
const OFFSET_DATA: u16 = 1;
const BLOCK_STATUS: u16 = 5;
const ERROR: u16 = 1 << 15 | 1;
const STATE_HOLE: u32 = 1;
const STATE_ZERO: u32 = 2;
/// Bytes of the words that explain an error.
const WORDS_MAX: usize = 256;
