//! UNMAP, COMMIT and QUERY: the operations on existing registrations.
//!
//! Spec: docs/push-mode.md, the sections of those names.

use std::sync::Arc;

use pmem::MediumError;
use smb::NtStatus;
use smb::push::{
    CommitRequest, CommitResponse, Generation, QUERY_ENTRIES_MAX, QueryRequest, QueryResponse,
    RegionEntry, RegistrationId, Rights, UnmapRequest,
};
use tree::InlineIo;

use super::offer::{can_commit, durability};
use crate::dispatch::call::Call;
use crate::push::recall::end;
use crate::push::region::Region;
use crate::state::Open;

pub(super) async fn unmap(
    call: &Call,
    open: &Open,
    asked: UnmapRequest,
) -> Result<Vec<u8>, NtStatus> {
    let region = find(call, open, asked.registration, asked.generation)?;
    end(call.push(), &region, false).await;
    call.push().forget(&region);
    Ok(Vec::new())
}

pub(super) async fn commit(
    call: &Call,
    open: &Open,
    asked: CommitRequest,
) -> Result<Vec<u8>, NtStatus> {
    let region = find(call, open, asked.registration, asked.generation)?;
    if !region.rights.contains(Rights::FLUSH) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let mut ranges = Vec::with_capacity(asked.ranges.len().max(1));
    for range in &asked.ranges {
        let end = range.file_offset.checked_add(range.length);
        if range.file_offset < region.file_offset || end.is_none_or(|end| end > region.end) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        ranges.push((range.file_offset, range.length));
    }
    if ranges.is_empty() {
        ranges.push((region.file_offset, region.length));
    }
    let share = open.tree.share().ok_or(NtStatus::NOT_SUPPORTED)?;
    let class = open.entry.class();
    if !can_commit(share, class) {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let committing = region.begin_commit().ok_or(NtStatus::FILE_CLOSED)?;
    let committed = Arc::clone(&region);
    let persist = move || {
        let outcome = ranges.iter().try_for_each(|(at, len)| committed.persist(*at, *len));
        drop(committing);
        outcome
    };
    let outcome = call.blocking(InlineIo::CachedReads, persist).await?;
    outcome.map_err(|error| match error {
        MediumError::VolatileRefused => NtStatus::NOT_SUPPORTED,
        _ => NtStatus::DATA_ERROR,
    })?;
    let response =
        CommitResponse { durability: durability(class), emulated: region.medium().is_emulated() };
    let mut output = Vec::new();
    response.emit(&mut output);
    Ok(output)
}

pub(super) fn query(call: &Call, open: &Open, request: QueryRequest) -> Result<Vec<u8>, NtStatus> {
    let QueryRequest = request;
    let durability = durability(open.entry.class());
    let entry = |region: Arc<Region>| {
        let (state, reason) = region.shown();
        RegionEntry {
            registration: region.id,
            generation: region.generation,
            file_offset: region.file_offset,
            length: region.length,
            rights: region.rights,
            state,
            durability,
            reason,
            push_connection_id: region.connection_id,
        }
    };
    let found = call.push().regions_of(open);
    let mut regions: Vec<_> = found.into_iter().map(entry).take(QUERY_ENTRIES_MAX).collect();
    regions.sort_by_key(|region| region.registration);
    let mut output = Vec::new();
    QueryResponse { regions }.emit(&mut output);
    Ok(output)
}

fn find(
    call: &Call,
    open: &Open,
    id: RegistrationId,
    generation: Generation,
) -> Result<Arc<Region>, NtStatus> {
    let region = call.push().region(id).ok_or(NtStatus::NOT_FOUND)?;
    let matches = region.generation == generation
        && region.open_serial == open.serial
        && region.session_id == call.session().id;
    if matches { Ok(region) } else { Err(NtStatus::NOT_FOUND) }
}
