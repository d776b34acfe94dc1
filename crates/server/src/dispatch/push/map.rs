//! The controls of push mode, and MAP.
//!
//! Spec: docs/push-mode.md, "MAP_REMOTE_REGION".

use std::ops::Range;
use std::sync::Arc;

use flash::Deciding;
use pmem::{DurabilityClass, OpenOptions};
use rdma::{Access, MemoryRegion, PeerOperations};
use remote::host::PushConnection;
use smb::push::{
    Capabilities, CommitRequest, Generation, MapRequest, MapResponse, PushConnectionId,
    QueryRequest, RecallRequest, RegistrationId, Rights, UnmapRequest, WriteUnderLease,
};
use smb::{ControlCode, NtStatus, ParseError};
use smbdirect::{BufferDescriptor, Token};
use tracing::{debug, warn};
use tree::{InlineIo, MapFailure, MapRefusal, Mappable, Share, ShareError};

use super::mapped::{commit, query, unmap};
use super::offer::{can_commit, capabilities, durability, is_encryption_promised};
use super::under_lease;
use super::wait::wait;
use crate::access::{self, Look};
use crate::dispatch::call::{Call, Lasting};
use crate::dispatch::persist;
use crate::limits::MAPPED_UNIT;
use crate::push::mapping::{self, DESCRIPTOR_LENGTH_MAX, REGION_LENGTH_MAX};
use crate::push::recall::{WRITES, finish};
use crate::push::region::{Region, RegionParts};
use crate::push::witness::Media;
use crate::state::open_push::OpenPush;
use crate::state::{Account, Hold, Open, Resource};
use crate::status::{OrStatus as _, status_of};

/// Carries out one control of push mode and returns its output.
pub(crate) async fn control(
    call: &Call,
    open: &Arc<Open>,
    code: ControlCode,
    input: &[u8],
    output_max: u32,
) -> Result<Vec<u8>, NtStatus> {
    access::admit(open, Look::Push)?;
    match code {
        ControlCode::MAP_REMOTE_REGION => {
            map(call, open, MapRequest::parse(input).map_err(refused)?, output_max).await
        }
        ControlCode::UNMAP_REMOTE_REGION => {
            unmap(call, open, UnmapRequest::parse(input).map_err(refused)?).await
        }
        ControlCode::WRITE_UNDER_LEASE => {
            under_lease::write(call, open, WriteUnderLease::parse(input).map_err(refused)?).await
        }
        ControlCode::COMMIT_REMOTE_REGION => {
            commit(call, open, CommitRequest::parse(input).map_err(refused)?).await
        }
        ControlCode::QUERY_REMOTE_REGIONS => {
            query(call, open, QueryRequest::parse(input).map_err(refused)?)
        }
        _ => {
            let request = RecallRequest::parse(input).map_err(refused)?;
            wait(call, open, request, output_max).await
        }
    }
}

async fn map(
    call: &Call,
    open: &Arc<Open>,
    asked: MapRequest,
    output_max: u32,
) -> Result<Vec<u8>, NtStatus> {
    let granted = open.push.get().ok_or(NtStatus::NOT_SUPPORTED)?;
    if !granted.rights.contains(asked.rights) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    // The operator may have required encryption since the grant; then the session is about to end.
    if is_encryption_promised(call.session(), open) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let share = open.tree.share().ok_or(NtStatus::NOT_SUPPORTED)?;
    check_range(open, &asked)?;
    let pieces = asked.length.div_ceil(DESCRIPTOR_LENGTH_MAX);
    if asked.length > REGION_LENGTH_MAX {
        return Err(NtStatus::INSUFFICIENT_RESOURCES);
    }
    if MAP_FIXED + pieces * DESCRIPTOR_LEN > u64::from(output_max) {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let engine = connection(call, asked.push_connection_id)?;
    let region = loop {
        resized(call, open).await?;
        check_range(open, &asked)?;
        // The descriptor lasts as long as the region.
        let place = open.another_place().or_status()?;
        let (media, deciding) = medium(call, open, share, &asked).await?;
        let region = new_region(call, open, granted, &asked, engine, (media, place))?;
        let region = Arc::new(region);
        let has_entered = mapping::enter(call.push(), open, &region)?;
        // From here on the region says how the file is mapped.
        drop(deciding);
        if has_entered {
            break region;
        }
    };
    // A request that changes the size from here on finds the region and waits for it; an earlier
    // one may have truncated the range.
    if let Err(status) = check_range(open, &asked) {
        finish(call.push(), &region).await;
        return Err(status);
    }
    // A rename from here on finds the region, and syncs the new name; a rename since the name was made durable
    // found none.
    if asked.rights.contains(Rights::FLUSH) && !share.is_name_durable(&open.entry) {
        let renamed = Arc::clone(open);
        let persist = move || persist::persist_name(&renamed);
        let persisted = call.blocking(InlineIo::CachedReads, persist).await;
        if let Err(status) = persisted.and_then(|persisted| persisted) {
            finish(call.push(), &region).await;
            return Err(status);
        }
    }
    let class = open.entry.class();
    let access = access(asked.rights, can_commit(share, class));
    let memory = mapping::register(call.push(), &region, access, class).await?;
    debug!(region = region.id.0, offset = asked.file_offset, len = asked.length, "region mapped");
    let medium = region.medium();
    let emulated = medium.is_emulated();
    let granularity = u32::try_from(medium.store_granularity().bytes()).unwrap_or(u32::MAX);
    let response = MapResponse {
        rights: asked.rights,
        registration: region.id,
        generation: region.generation,
        file_offset: asked.file_offset,
        length: asked.length,
        durability: durability(class),
        store_granularity: granularity,
        capabilities: capabilities(emulated) & offered(memory.offers),
        descriptors: descriptors(memory),
    };
    let mut output = Vec::new();
    response.emit(&mut output);
    Ok(output)
}

fn check_range(open: &Open, asked: &MapRequest) -> Result<(), NtStatus> {
    let end = asked.file_offset.checked_add(asked.length);
    let size = open.entry.metadata().or_status()?.size;
    if asked.length == 0 || end.is_none_or(|end| end > size) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok(())
}

// Waits while another request changes the size of the file.
async fn resized(call: &Call, open: &Open) -> Result<(), NtStatus> {
    if open.node.lock().resizing > 0 {
        call.wait_pending(Lasting::Bounded, open.node.resized()).await?;
    }
    Ok(())
}

fn connection(call: &Call, id: PushConnectionId) -> Result<PushConnection, NtStatus> {
    call.push().connection(id, call.session().id).ok_or(NtStatus::INVALID_HANDLE)
}

// Clears set-ID bits, reserves the blocks and opens the file as a medium. The time hardly depends on the length, but
// both steps may wait for the disk.
async fn medium(
    call: &Call,
    open: &Arc<Open>,
    share: &Share,
    asked: &MapRequest,
) -> Result<(Media, Option<Deciding>), NtStatus> {
    let open = Arc::clone(open);
    let account = Arc::clone(&call.session().account);
    let space_max = call.core.connections.limits.user_mapped_max;
    let (offset, length) = (asked.file_offset, asked.length);
    let options = OpenOptions { emulate_persistence: share.emulates_persistence() };
    let writes = asked.rights.intersects(WRITES);
    let promised = open.entry.class();
    let commits = asked.rights.contains(Rights::FLUSH);
    let work = move || -> Result<(Media, Option<Deciding>), NtStatus> {
        let size = open.entry.data_size().or_status()?;
        // The first lazy mapping of a server makes the memory for pages.
        let pages = open.tree.share().and_then(|share| share.pages_of(promised, size)).cloned();
        let bytes = open.entry.body().or_status()?.mappable().map_err(never_mapped)?;
        // One file has one kind of mapping at a time: each kind has the newest bytes where the other does not look. So one request
        // at a time decides it, by whatever share.
        let deciding = bytes.decide().or_status()?;
        let is_mapped = !Region::all_of(&open.node).is_empty();
        let is_lazy = bytes.is_mapped_lazily() || (pages.is_some() && !is_mapped);
        let pages = pages.filter(|_| is_lazy);
        if writes {
            open.entry.take_set_id().or_status()?;
        }
        // Pages that come when they are asked for get their room when they are written back: a file far longer than the
        // disk has room for may be mapped, and a commit names the bytes that found none.
        if writes && !is_lazy {
            open.entry.reserve(offset, length).map_err(|error| match error {
                ShareError::DiskFull => NtStatus::DISK_FULL,
                other => status_of(other),
            })?;
        }
        let range = offset..offset + length;
        let media = mapped(bytes, range, pages.as_ref(), options, (&account, space_max))?;
        check_class(promised, media.medium.class())?;
        if commits {
            // One-sided commits make bytes durable and do not sync names.
            persist::persist_name(&open)?;
        }
        Ok((media, deciding))
    };
    call.blocking(InlineIo::CachedReads, work).await?
}

fn mapped(
    bytes: &dyn Mappable,
    range: Range<u64>,
    pages: Option<&flash::Share>,
    options: OpenOptions,
    (account, space_max): (&Arc<Account>, u64),
) -> Result<Media, NtStatus> {
    if let Some(pages) = pages {
        return Ok(Media::new(bytes.map_lazily(range, pages).map_err(not_mapped)?, None));
    }
    // Before the mapping: what regions take of the address space is missing wherever memory is made.
    let space = address_space(account, space_max, range.end - range.start)?;
    let medium = bytes.map(range, options).map_err(not_mapped)?;
    // A medium of a disk reads and writes, and maps nothing.
    let space = Some(space).filter(|_| medium.direct().is_some());
    Ok(Media::new(medium, space))
}

// What a mapping of so many bytes takes, with what it is rounded up to at both ends.
fn address_space(account: &Arc<Account>, max: u64, length: u64) -> Result<Hold, NtStatus> {
    let units = length.div_ceil(MAPPED_UNIT) + MAPPED_EDGES;
    // An account gives whoever asks for more than it may have all that it may have.
    let is_possible = units.saturating_mul(MAPPED_UNIT) <= max;
    let units = usize::try_from(units).ok().filter(|_| is_possible);
    let hold = units.and_then(|units| account.try_take(Resource::Mapped, units));
    hold.ok_or(NtStatus::INSUFFICIENT_RESOURCES)
}

/// The status of a MAP of bytes that are read and written by messages only.
fn never_mapped(refusal: MapRefusal) -> NtStatus {
    debug!(%refusal, "a file is never mapped");
    NtStatus::NOT_SUPPORTED
}

fn not_mapped(failure: MapFailure) -> NtStatus {
    match failure {
        MapFailure::Handle(error) => status_of(error),
        MapFailure::Map(error) => {
            warn!(%error, "a file cannot be mapped");
            NtStatus::INSUFFICIENT_RESOURCES
        }
        MapFailure::Lazy(error) => {
            warn!(%error, "a file cannot be mapped lazily");
            NtStatus::INSUFFICIENT_RESOURCES
        }
    }
}

// The class was promised for the file system as a whole; a single file may be kept off DAX. Such a file is not mapped, rather than mapped under a
// wrong class.
fn check_class(promised: DurabilityClass, found: DurabilityClass) -> Result<(), NtStatus> {
    if !found.keeps(promised) {
        warn!(%promised, %found, "a file of a weaker durability class than its file system is not mapped");
        return Err(NtStatus::NOT_SUPPORTED);
    }
    Ok(())
}

fn new_region(
    call: &Call,
    open: &Open,
    granted: &Arc<OpenPush>,
    asked: &MapRequest,
    engine: PushConnection,
    (media, place): (Media, Option<Hold>),
) -> Result<Region, NtStatus> {
    let push = call.push();
    let registrar = Arc::clone(push.registrar().ok_or(NtStatus::NOT_SUPPORTED)?);
    Ok(Region::new(RegionParts {
        owner: open.owner,
        open_serial: open.serial,
        id: RegistrationId(push.next_id()),
        generation: Generation(push.next_id()),
        session_id: call.session().id,
        holder: call.session().identity.clone(),
        file_offset: asked.file_offset,
        length: asked.length,
        rights: asked.rights,
        connection_id: asked.push_connection_id,
        connection: engine,
        registrar,
        media,
        account: Arc::clone(&call.session().account),
        place,
        node: Arc::clone(&open.node),
        entry: Arc::clone(&open.entry),
        open: Arc::clone(granted),
    }))
}

/// The operations that this end of the connection answers on the region; emulation is decided by
/// the share.
fn offered(offers: PeerOperations) -> Capabilities {
    let mut offered = Capabilities::EMULATED_PERSISTENCE;
    offered.set(Capabilities::FLUSH, offers.contains(PeerOperations::FLUSH));
    offered.set(Capabilities::ATOMIC_WRITE, offers.contains(PeerOperations::ATOMIC_WRITE));
    offered.set(Capabilities::VERIFY, offers.contains(PeerOperations::VERIFY));
    offered.set(Capabilities::ATOMIC, offers.contains(PeerOperations::ATOMIC));
    offered
}

fn access(rights: Rights, commits: bool) -> Access {
    let mut access = Access::empty();
    access.set(Access::REMOTE_READ, rights.contains(Rights::READ));
    access.set(Access::REMOTE_WRITE, rights.contains(Rights::WRITE));
    access.set(Access::REMOTE_VERIFY, rights.contains(Rights::VERIFY));
    access.set(Access::REMOTE_ATOMIC_WRITE, rights.contains(Rights::ATOMIC_WRITE));
    access.set(Access::REMOTE_ATOMIC, rights.contains(Rights::ATOMIC));
    access.set(Access::FLUSH_VISIBILITY, rights.contains(Rights::FLUSH));
    access.set(Access::FLUSH_PERSISTENCE, rights.contains(Rights::FLUSH) && commits);
    access
}

fn descriptors(memory: MemoryRegion) -> Vec<BufferDescriptor> {
    let mut descriptors = Vec::new();
    let mut done = 0;
    while done < memory.len {
        let length = (memory.len - done).min(DESCRIPTOR_LENGTH_MAX);
        descriptors.push(BufferDescriptor {
            offset: memory.remote_addr_base.wrapping_add(done),
            token: Token(memory.rkey.0),
            length: u32::try_from(length).expect("below 4 GiB"),
        });
        done += length;
    }
    descriptors
}

fn refused(error: ParseError) -> NtStatus {
    error.status()
}

/// Units that a mapping takes beside its length: a page of memory at each end, or 2 MiB of a device.
const MAPPED_EDGES: u64 = 4;
const MAP_FIXED: u64 = 56;
const DESCRIPTOR_LEN: u64 = BufferDescriptor::LEN as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_announces_the_operations_of_its_connection() {
        let every = offered(PeerOperations::all());
        assert_eq!(capabilities(true) & every, capabilities(true));
        let adapter = offered(PeerOperations::ATOMIC_WRITE);
        let left = Capabilities::ATOMIC_WRITE | Capabilities::EMULATED_PERSISTENCE;
        assert_eq!(capabilities(true) & adapter, left);
    }

    #[test]
    fn a_right_to_write_atomically_or_to_verify_is_no_right_to_write_or_read() {
        let writes = access(Rights::ATOMIC_WRITE | Rights::VERIFY | Rights::ATOMIC, true);
        assert!(!writes.intersects(Access::REMOTE_WRITE | Access::REMOTE_READ));
        let all = access(Rights::all(), true);
        assert!(all.contains(Access::PUSH | Access::REMOTE_ATOMIC));
    }

    #[test]
    fn a_file_is_not_mapped_under_a_better_class_than_it_has() {
        let (pmem, storage) = (DurabilityClass::Pmem, DurabilityClass::Storage);
        assert_eq!(check_class(storage, storage), Ok(()));
        assert_eq!(check_class(storage, pmem), Ok(()));
        assert_eq!(check_class(pmem, storage), Err(NtStatus::NOT_SUPPORTED));
        assert_eq!(check_class(storage, DurabilityClass::Volatile), Err(NtStatus::NOT_SUPPORTED));
    }
}
