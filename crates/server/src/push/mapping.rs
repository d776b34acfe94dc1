//! How a registration begins: a region enters its node, and then the engine registers the memory.

use std::sync::Arc;

use rdma::{Access, MemoryRegion};
use smb::NtStatus;

use super::Push;
use super::recall::finish;
use super::region::Region;
use super::registrar::NotRegistered;
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

/// Registers the memory of a region that has entered its node.
///
/// # Errors
/// The engine refuses, or the region was recalled meanwhile; then the region has ended.
pub(crate) async fn register(
    push: &Arc<Push>,
    region: &Arc<Region>,
    access: Access,
) -> Result<MemoryRegion, NtStatus> {
    let registrar = Arc::clone(push.registrar().ok_or(NtStatus::NOT_SUPPORTED)?);
    let range = region.file_offset..region.end;
    let engine = region.connection;
    let (push, region) = (Arc::clone(push), Arc::clone(region));
    let runtime = push.runtime.clone();
    // A task of its own: a registered region must be entered even if the caller no longer waits.
    let task = runtime.spawn(async move {
        let medium = Arc::clone(&region.medium);
        let memory = match registrar.register(engine, medium, range, access).await {
            Ok(memory) => memory,
            Err(why) => {
                finish(&push, &region, false).await;
                return Err(match why {
                    NotRegistered::Resources => NtStatus::INSUFFICIENT_RESOURCES,
                    NotRegistered::Unreachable => NtStatus::NOT_SUPPORTED,
                });
            }
        };
        if !region.set_registered(&memory) {
            registrar.deregister(engine, memory.rkey).await;
            finish(&push, &region, false).await;
            return Err(NtStatus::OPLOCK_NOT_GRANTED);
        }
        Ok(memory)
    });
    task.await.map_err(|_| NtStatus::UNSUCCESSFUL)?
}

const RWH: Caching = Caching(7);
