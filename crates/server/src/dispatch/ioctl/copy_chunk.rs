//! Server-side copy: SRV_REQUEST_RESUME_KEY and SRV_COPYCHUNK.
//!
//! Each chunk is read and written as READ and WRITE would be: locks stand in its way, others'
//! caching of the target is taken back first. An answer that says no still says how far it came.
//!
//! Spec: MS-SMB2 §3.3.5.15.5 (resume key), §3.3.5.15.6 (copy).

use std::sync::Arc;

use smb::create::AccessMask;
use smb::fsctl::{COPY_CHUNKS_MAX, CopyChunk, CopyChunkRequest, CopyChunkResponse, ResumeKey};
use smb::{ControlCode, Field, NtStatus, ParseError};
use tree::{COPY_MAX, InlineIo, ShareError};

use crate::access::{self, Look, Write};
use crate::dispatch::call::Call;
use crate::dispatch::frame::malformed;
use crate::state::Open;
use crate::state::range::LockRange;
use crate::status::OrStatus as _;

/// Names an open as a source. The name means something in its own session only.
pub(super) fn resume_key(call: &Call, open: &Open, volatile: u64) -> Vec<u8> {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&open.serial.0.to_le_bytes());
    key[8..16].copy_from_slice(&volatile.to_le_bytes());
    key[16..].copy_from_slice(&call.core.identity.guid.0[..8]);
    let mut output = Vec::with_capacity(32);
    ResumeKey(key).emit(&mut output);
    output
}

/// Copies. The output goes with the status, also where that is an error.
pub(super) async fn copy(
    call: &Call,
    target: Arc<Open>,
    code: ControlCode,
    input: &[u8],
    output_max: u32,
) -> Result<(NtStatus, Vec<u8>), NtStatus> {
    if usize::try_from(output_max).is_ok_and(|max| max < CopyChunkResponse::LEN) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let request = match CopyChunkRequest::parse(input) {
        Err(ParseError::PeerTooMany { field: Field::Chunks, .. }) => return Ok(too_much()),
        parsed => parsed.map_err(malformed)?,
    };
    let lengths = || request.chunks.iter().map(|chunk| chunk.length);
    if lengths().any(|length| length == 0 || length > CHUNK_MAX)
        || lengths().map(u64::from).sum::<u64>() > u64::from(TOTAL_MAX)
    {
        return Ok(too_much());
    }
    let source = source(call, request.source)?;
    check(&source, &target, code)?;
    // Each chunk asks for the locks that there are already.
    let first = request.chunks.iter().map(|chunk| chunk.target_offset).min().unwrap_or(0);
    let admitted = call.begin_change(&target, LockRange::from(first)).await?;
    crate::push::settle_times(&source.node);
    // Off this thread though nothing may wait: some MiB are copied.
    let changed = Arc::clone(&target);
    let work = move || copy_all(&source, &target, &request.chunks);
    let (status, done) =
        call.changing_bytes(&changed, admitted, InlineIo::CachedReads, work).await?;
    Ok((status, output(done)))
}

fn too_much() -> (NtStatus, Vec<u8>) {
    let limits = CopyChunkResponse {
        chunks: u32::try_from(COPY_CHUNKS_MAX).expect("a few hundred"),
        chunk_bytes: CHUNK_MAX,
        total_bytes: TOTAL_MAX,
    };
    (NtStatus::INVALID_PARAMETER, output(limits))
}

fn output(response: CopyChunkResponse) -> Vec<u8> {
    let mut output = Vec::with_capacity(CopyChunkResponse::LEN);
    response.emit(&mut output);
    output
}

fn source(call: &Call, key: ResumeKey) -> Result<Arc<Open>, NtStatus> {
    let word = |at: usize| {
        let bytes = key.0[at..at + 8].first_chunk().expect("three words of eight bytes");
        u64::from_le_bytes(*bytes)
    };
    let open = call.session().open(word(0), word(8));
    let open = open.filter(|_| key.0[16..] == call.core.identity.guid.0[..8]);
    let open = open.ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    // What may be read sealed only is not copied to where it may be read plain.
    call.asker().check_protection(&open.tree)?;
    Ok(open)
}

fn check(source: &Open, target: &Open, code: ControlCode) -> Result<(), NtStatus> {
    if source.entry.is_directory() || target.entry.is_directory() {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    access::admit(source, Look::CopySource)?;
    let copy = match code {
        ControlCode::SRV_COPYCHUNK_WRITE => Write::CopyWriteOnly,
        _ => Write::Copy,
    };
    access::admit(target, copy).map(drop)
}

fn copy_all(source: &Open, target: &Open, chunks: &[CopyChunk]) -> (NtStatus, CopyChunkResponse) {
    let mut done = CopyChunkResponse::default();
    for chunk in chunks {
        if let Err(status) = copy_one(source, target, chunk) {
            return (status, done);
        }
        done.chunks += 1;
        done.total_bytes += chunk.length;
    }
    (NtStatus::SUCCESS, done)
}

fn copy_one(source: &Open, target: &Open, chunk: &CopyChunk) -> Result<(), NtStatus> {
    let length = u64::from(chunk.length);
    let end = chunk.source_offset.checked_add(length).ok_or(NtStatus::INVALID_VIEW_SIZE)?;
    if end > source.entry.data_size().or_status()? {
        return Err(NtStatus::INVALID_VIEW_SIZE);
    }
    let target_end = chunk.target_offset.checked_add(length);
    if target_end.is_none_or(|end| end > i64::MAX.unsigned_abs()) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // A handle that may only append writes behind the end.
    if !target.may(AccessMask::WRITE_DATA)
        && chunk.target_offset < target.entry.data_size().or_status()?
    {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let range = LockRange::new(chunk.source_offset, length).ok_or(NtStatus::INVALID_VIEW_SIZE)?;
    let reading = source.node.begin_read(source.read(range)).ok_or(NtStatus::FILE_LOCK_CONFLICT)?;
    let writes =
        |open: &Open| open.node.lock().locks.allows_write(open.serial, chunk.target_offset, length);
    if !writes(target) {
        return Err(NtStatus::FILE_LOCK_CONFLICT);
    }
    let len = usize::try_from(chunk.length).expect("32 bits fit usize");
    let copied =
        target.entry.copy_from(&source.entry, chunk.source_offset, chunk.target_offset, len);
    drop(reading);
    match copied {
        // The source has become shorter meanwhile.
        Err(ShareError::PeerInvalid) => Err(NtStatus::INVALID_VIEW_SIZE),
        other => other.or_status(),
    }
}

// What Windows and Samba take.
const CHUNK_MAX: u32 = 1 << 20;
const TOTAL_MAX: u32 = 16 << 20;
const _: () = assert!(CHUNK_MAX as usize <= COPY_MAX);
