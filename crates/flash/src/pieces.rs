//! Ranges of bytes as parts of pages.

use std::io;
use std::ops::Range;

use pmem::MediumError;

use crate::pool::FRAME;

/// What became of an attempt to reach pages that are not here.
pub(crate) enum Brought {
    /// So many bytes are done.
    Bytes(usize),
    /// Another thread was faster.
    LookAgain,
}

/// A part of a range that lies in one page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Piece {
    pub(crate) page: u64,
    pub(crate) at: usize,
    /// Where the part begins in the caller's buffer.
    pub(crate) from: usize,
    pub(crate) len: usize,
}

pub(crate) fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let left = len - from;
        let (page, at) = ((offset + wide(from)) / FRAME, within(offset + wide(from)));
        let piece = Piece { page, at, from, len: left.min(PAGE - at) };
        from += piece.len;
        (left > 0).then_some(piece)
    })
}

pub(crate) fn pages_of(offset: u64, len: u64) -> Range<u64> {
    offset / FRAME..offset.saturating_add(len).div_ceil(FRAME)
}

pub(crate) fn within(offset: u64) -> usize {
    usize::try_from(offset % FRAME).expect("below a page")
}

pub(crate) fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("64 address bits at most")
}

pub(crate) fn media_error(error: io::Error) -> MediumError {
    media_error_of(&error)
}

pub(crate) fn media_error_of(error: &io::Error) -> MediumError {
    MediumError::MediaIo(error.raw_os_error().unwrap_or(libc::EIO))
}

pub(crate) const PAGE: usize = 4096;
