//! How a registration begins: a region enters its node, and then the engine registers the memory.

use std::sync::Arc;

use pmem::DurabilityClass;
use rdma::{Access, MemoryRegion};
use remote::host::NotRegistered;
use smb::NtStatus;
use smb::push::MAP_DESCRIPTORS_MAX;
use tracing::info;

use super::Push;
use super::recall::finish;
use super::region::Region;
use crate::state::Open;
use crate::state::caching::Caching;

/// Enters a region in the tables and in the node of its file. From here on a request that wants to change the file
/// finds the region in the node and waits for it. `false`: such a request is about to change the file.
///
/// # Errors
/// The client does not hold the whole lease, the open has ended, or there are too many regions.
pub(crate) fn enter(push: &Push, open: &Open, region: &Arc<Region>) -> Result<bool, NtStatus> {
    let mut state = open.node.lock();
    // The client holds the complete lease, and it is not being broken: no other client can be
    // reading or writing the file.
    if !state.leases.is_held_whole(open.owner, RWH) || !state.delete_pending.is_empty() {
        return Err(NtStatus::OPLOCK_NOT_GRANTED);
    }
    if state.resizing > 0 {
        return Ok(false);
    }
    let mut tables = push.lock();
    if tables.stopping {
        return Err(NtStatus::INSUFFICIENT_RESOURCES);
    }
    // A CLOSE that came in between has looked for its regions, under this lock, and not found this
    // one; the lease may live on with another open of the same key.
    if open.is_closed() {
        return Err(NtStatus::FILE_CLOSED);
    }
    let limit = |max: u32| usize::try_from(max).unwrap_or(usize::MAX);
    if tables.regions.count_of_open(open.serial) >= limit(push.policy.regions_per_open_max)
        || !tables.regions.may_insert(&region.holder)
    {
        return Err(NtStatus::INSUFFICIENT_RESOURCES);
    }
    tables.regions.insert(Arc::clone(region));
    state.add_obstacle(Arc::clone(region) as _);
    Ok(true)
}

/// Registers the memory of a region that has entered its node, of whose medium this class is promised.
///
/// # Errors
/// The engine refuses, or the region was recalled meanwhile; then the region has ended.
pub(crate) async fn register(
    push: &Arc<Push>,
    region: &Arc<Region>,
    access: Access,
    class: DurabilityClass,
) -> Result<MemoryRegion, NtStatus> {
    let (push, region) = (Arc::clone(push), Arc::clone(region));
    let runtime = push.runtime.clone();
    // A task of its own: a registered region must be entered even if the caller no longer waits.
    let task = runtime.spawn(async move {
        let registered = region.registration.register(access, class).await;
        if let Err(error) = &registered {
            info!(%error, "region not registered");
            finish(&push, &region).await;
        }
        registered.map_err(|why| match why {
            NotRegistered::Host(error) if error.is_for_good() => NtStatus::NOT_SUPPORTED,
            NotRegistered::Class { .. } => NtStatus::NOT_SUPPORTED,
            NotRegistered::Recalled => NtStatus::OPLOCK_NOT_GRANTED,
            _ => NtStatus::INSUFFICIENT_RESOURCES,
        })
    });
    task.await.map_err(|_| NtStatus::UNSUCCESSFUL)?
}

const RWH: Caching = Caching(7);
/// The greatest length of one descriptor: a page below 4 GiB, so that pieces stay aligned.
pub(crate) const DESCRIPTOR_LENGTH_MAX: u64 = (1 << 32) - 4096;
/// The longest region: the greatest number of descriptors in an answer limits it.
pub(crate) const REGION_LENGTH_MAX: u64 = DESCRIPTOR_LENGTH_MAX * MAP_DESCRIPTORS_MAX as u64;
