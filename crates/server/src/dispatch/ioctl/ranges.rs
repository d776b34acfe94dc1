//! Holes, zeros, trimmed and shared ranges of a file.
//!
//! Whatever takes blocks away from a file first ends the push regions that could reach them, as a
//! truncation does.
//!
//! Spec: MS-FSCC §2.3, MS-SMB2 §3.3.5.15.17, MS-FSA §2.1.5.9.

use std::sync::Arc;

use smb::NtStatus;
use smb::fsctl::{DuplicateExtents, FileLevelTrim, FileRange, SetSparse, ZeroData};
use smb::push::RecallReason;
use tree::{Entry, InlineIo, ShareError, Span};

use crate::access::operation::Operation;
use crate::access::{self, Look, Set, Write};
use crate::dispatch::call::Call;
use crate::dispatch::frame::malformed;
use crate::limits::TRIM_RANGES_INLINE_MAX;
use crate::push::Region;
use crate::state::Open;
use crate::state::changing::Changing;
use crate::state::locks::Barrier;
use crate::state::node::Resizing;
use crate::state::range::LockRange;
use crate::status::OrStatus as _;

/// SET_SPARSE.
pub(super) async fn set_sparse(call: &Call, open: Arc<Open>, input: &[u8]) -> Result<(), NtStatus> {
    let SetSparse { sparse } = SetSparse::parse(input);
    let leave = check(&open, Set::Sparse)?;
    let entry = Arc::clone(&open.entry);
    let work = move || entry.set_sparse(leave, sparse);
    call.changing(&open, InlineIo::CachedReads, work).await?.or_status()
}

/// SET_ZERO_DATA.
pub(super) async fn zero(call: &Call, open: Arc<Open>, input: &[u8]) -> Result<(), NtStatus> {
    let ZeroData { offset, end } = ZeroData::parse(input).map_err(malformed)?;
    check(&open, Write::Zero)?;
    let span = Span { start: offset, end: end.min(open.entry.data_size().or_status()?) };
    if span.start >= span.end {
        return Ok(());
    }
    let admitted = call.begin_write(&open, span.start, span.end - span.start).await?;
    change(call, open, span.start, admitted, move |entry| entry.zero(span)).await
}

/// FILE_LEVEL_TRIM.
pub(super) async fn trim(call: &Call, open: Arc<Open>, input: &[u8]) -> Result<Vec<u8>, NtStatus> {
    let FileLevelTrim { key, ranges } = FileLevelTrim::parse(input).map_err(malformed)?;
    check(&open, Write::Trim)?;
    if key != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let count = u32::try_from(ranges.len()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let span = |range: &FileRange| Span { start: range.offset, end: range.end() };
    let spans: Vec<_> = ranges.iter().map(span).collect();
    let first = spans.iter().map(|span| span.start).min().unwrap_or(0);
    let admitted = call.begin_change(&open, LockRange::from(first)).await?;
    check_all_locks(call, &open, &spans).await?;
    let work = move |entry: &Entry| spans.into_iter().try_for_each(|span| entry.trim(span));
    change(call, open, first, admitted, work).await?;
    Ok(count.to_le_bytes().to_vec())
}

/// QUERY_ALLOCATED_RANGES.
pub(super) async fn allocated(
    call: &Call,
    open: Arc<Open>,
    input: &[u8],
    output_max: u32,
) -> Result<(NtStatus, Vec<u8>), NtStatus> {
    let range = FileRange::parse(input).map_err(malformed)?;
    if open.entry.is_directory() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    access::admit(&open, Look::AllocatedRanges)?;
    let span = Span { start: range.offset, end: range.end() };
    let room = usize::try_from(output_max).expect("32 bits fit usize") / FileRange::LEN;
    let work = move || open.entry.allocated(span, room);
    let (spans, is_more) = call.blocking(InlineIo::CachedReads, work).await?.or_status()?;
    if is_more && spans.is_empty() {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let mut output = Vec::with_capacity(spans.len() * FileRange::LEN);
    for Span { start, end } in spans {
        FileRange { offset: start, length: end - start }.emit(&mut output);
    }
    Ok((if is_more { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS }, output))
}

/// DUPLICATE_EXTENTS_TO_FILE. Byte-range locks are not asked, as with Windows.
pub(super) async fn duplicate(
    call: &Call,
    target: Arc<Open>,
    asked: DuplicateExtents,
) -> Result<(), NtStatus> {
    check(&target, Write::Clone)?;
    if !target.entry.clones() {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let source = call.session().open(asked.source.persistent, asked.source.volatile);
    let source = source.ok_or(NtStatus::INVALID_HANDLE)?;
    call.asker().check_protection(&source.tree)?;
    access::admit(&source, Look::CloneSource)?;
    let start = asked.target_offset;
    let range = LockRange::new(start, asked.count).ok_or(NtStatus::INVALID_PARAMETER)?;
    let admitted = call.begin_change(&target, range).await?;
    change(call, target, start, admitted, move |entry| clone(entry, &source, asked)).await
}

// MS-FSCC §2.3.8: what is NOT_SUPPORTED. As with Windows, a target grows only where it is sparse
// (smbtorture's dup_extents_len_beyond_dest and dup_extents_sparse_dest).
fn clone(target: &Entry, source: &Open, asked: DuplicateExtents) -> Result<(), ShareError> {
    let DuplicateExtents { source_offset, target_offset, count, .. } = asked;
    let overlaps = source.entry.key() == target.key()
        && source_offset.max(target_offset) < source_offset.min(target_offset) + count;
    if source.entry.is_directory()
        || overlaps
        || source_offset + count > source.entry.data_size()?
        || (target_offset + count > target.data_size()? && !target.is_sparse())
        || (source.entry.is_sparse() && !target.is_sparse())
    {
        return Err(ShareError::Unsupported);
    }
    target.clone_from(&source.entry, source_offset, target_offset, count)
}

fn check<O: Operation>(open: &Open, operation: O) -> Result<O::Leave, NtStatus> {
    if open.entry.is_directory() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    access::admit(open, operation)
}

fn check_locks(open: &Open, span: Span) -> Result<(), NtStatus> {
    let length = span.end.saturating_sub(span.start);
    if !open.node.lock().locks.allows_write(open.serial, span.start, length) {
        return Err(NtStatus::FILE_LOCK_CONFLICT);
    }
    Ok(())
}

// Many ranges and many locks are compared where that is in nobody's way.
async fn check_all_locks(call: &Call, open: &Arc<Open>, spans: &[Span]) -> Result<(), NtStatus> {
    if spans.len() <= TRIM_RANGES_INLINE_MAX {
        return spans.iter().try_for_each(|span| check_locks(open, *span));
    }
    let forbidden = open.node.lock().locks.forbidden_to(open.serial);
    if forbidden.is_empty() {
        return Ok(());
    }
    let spans = spans.to_vec();
    let compare = move || {
        let barrier = Barrier::new(forbidden);
        spans.iter().all(|span| barrier.allows(span.start, span.end.saturating_sub(span.start)))
    };
    let is_free = call.blocking(InlineIo::CachedReads, compare).await?;
    if is_free { Ok(()) } else { Err(NtStatus::FILE_LOCK_CONFLICT) }
}

// Carries out an admitted change of bytes from `start` on, once nobody maps them.
async fn change(
    call: &Call,
    open: Arc<Open>,
    start: u64,
    admitted: Changing,
    work: impl FnOnce(&Entry) -> Result<(), ShareError> + Send + 'static,
) -> Result<(), NtStatus> {
    let resizing: Resizing = open.node.begin_resize();
    let is_reached = |region: &Region| region.end > start;
    let is_own = |region: &Region| region.open_serial == open.serial;
    if Region::all_of(&open.node).iter().any(|region| is_reached(region) && is_own(region)) {
        return Err(NtStatus::USER_MAPPED_FILE);
    }
    call.recall(&open.node, RecallReason::TRUNCATION, is_reached).await?;
    let entry = Arc::clone(&open.entry);
    let work = move || {
        let outcome = work(&entry);
        drop(resizing);
        outcome
    };
    call.changing_bytes(&open, admitted, InlineIo::CachedReads, work).await?.or_status()
}
