//! Recalling regions: the server asks, waits a bounded time, then revokes.
//!
//! The order is that of docs/push-mode.md, "Teardown order": the registration becomes unusable, the
//! engine invalidates the STag and drains operations in flight, and only then the waiting request
//! continues. The end of a region runs as a task of its own, so that a caller who gives up waiting
//! does not leave it half done.

use std::sync::Arc;
use std::time::Duration;

use smb::NtStatus;
use smb::push::{RECALLS_MAX, Recall, RecallReason, RecallRequest, RecallResponse, Rights};
use tracing::{info, warn};

use super::region::Region;
use crate::dispatch::call::{Call, Lasting};
use crate::service::Core;
use crate::state::lease::Owner;
use crate::state::node::Node;
use crate::state::{Open, Session};

/// Recalls the regions of a file that `wanted` picks: asks their holders, and revokes those not
/// returned within the grace. On return no operation touches them any more.
pub(crate) async fn recall(
    core: &Arc<Core>,
    node: &Arc<Node>,
    reason: RecallReason,
    wanted: impl Fn(&Region) -> bool,
) {
    let regions: Vec<_> =
        node.lock().regions.iter().filter(|region| wanted(region)).cloned().collect();
    take_back(core, regions, reason, core.push.policy.grace).await;
}

/// The server stops: all regions are recalled, and revoked after the grace or after `patience` if
/// that is shorter. Operations in flight on revoked regions are waited for as long once more, and
/// no longer: a device may hang. From now on no region is mapped.
pub(crate) async fn stop(core: &Arc<Core>, patience: Duration) {
    let regions = {
        let mut tables = core.push.lock();
        tables.stopping = true;
        tables.regions.all()
    };
    let grace = core.push.policy.grace.min(patience);
    let over = take_back(core, regions, RecallReason::SHUTDOWN, grace);
    if tokio::time::timeout(grace + patience, over).await.is_err() {
        warn!("some regions are not drained in time");
    }
}

/// Recalls regions, and revokes those not returned within the grace. On return no operation touches
/// them any more.
pub(super) async fn take_back(
    core: &Arc<Core>,
    regions: Vec<Arc<Region>>,
    reason: RecallReason,
    grace: Duration,
) {
    if regions.is_empty() {
        return;
    }
    let now = core.now();
    let mut asked = Vec::with_capacity(regions.len());
    for region in regions {
        let deadline = region.registration.recall(reason, now, grace);
        info!(region = region.id.0, %reason, grace_ms = grace.as_millis(), "region recalled");
        region.open.events.notify_waiters();
        asked.push((region, deadline));
    }
    let core = Arc::clone(core);
    let runtime = core.runtime.clone();
    // A task of its own: the grace ends for the holder even if the asking request gave up.
    let task = runtime.spawn(async move {
        for (region, deadline) in asked {
            if !region.registration.is_given_back_by(deadline).await {
                warn!(region = region.id.0, %reason, "region revoked: its client did not let go");
                end(&core, &region, true).await;
            }
        }
    });
    let _ = task.await;
}

/// Ends a registration. On return no operation touches the region any more. `revoked`: against the client's will, so
/// that a trace stays.
pub(super) async fn end(core: &Arc<Core>, region: &Arc<Region>, revoked: bool) {
    let (of, ended) = (Arc::clone(core), Arc::clone(region));
    let last = async move {
        take_out(&of, &ended, revoked).await;
        ended.open.events.notify_waiters();
    };
    region.registration.end(&core.runtime, last).await;
}

/// [`end`] for callers that cannot wait; the region stays in its node until it has ended.
pub(super) fn end_in_background(core: &Arc<Core>, region: Arc<Region>) {
    let core = Arc::clone(core);
    let runtime = core.runtime.clone();
    runtime.spawn(async move {
        end(&core, &region, false).await;
        // A revoked region may have ended already; its trace is removed too.
        core.push.lock().regions.remove(&region.id);
    });
}

/// Called when an open is closing on a path that cannot wait: its regions end in the background,
/// and stay in the node until they have.
pub(crate) fn closing(core: &Arc<Core>, open: &Open) {
    let Some(push) = open.push.get() else { return };
    push.events.notify_waiters();
    for region in core.push.regions_of(open) {
        end_in_background(core, region);
    }
}

/// Ends an open's regions with the open. On return no operation touches them any more.
pub(crate) async fn end_of_open(core: &Arc<Core>, open: &Open) {
    let regions = core.push.regions_of(open);
    for region in regions {
        end(core, &region, false).await;
        core.push.lock().regions.remove(&region.id);
    }
}

/// Called when a lease was returned, in part or whole: ends the regions that its holder mapped
/// under it. On return no operation touches them any more.
pub(crate) async fn end_of_lease(core: &Arc<Core>, node: &Node, owner: Owner) {
    let regions = node.lock().regions.clone();
    for region in regions.into_iter().filter(|region| region.owner == owner) {
        end(core, &region, false).await;
        core.push.lock().regions.remove(&region.id);
    }
}

/// Called when sessions ended, whose regions are ending. On return no operation touches these any more, and no
/// trace of them is left: no client can ask about one.
pub(crate) async fn ended_with(core: &Core, sessions: &[Arc<Session>]) {
    let is_of_them =
        |region: &Region| sessions.iter().any(|session| session.id == region.session_id);
    for region in core.push.all_regions().into_iter().filter(|region| is_of_them(region)) {
        region.wait_ended().await;
        core.push.lock().regions.remove(&region.id);
    }
}

/// Ends a region that the engine does not know: it is removed from all tables, and waiting requests continue.
pub(super) async fn finish(core: &Core, region: &Arc<Region>) {
    take_out(core, region, false).await;
    region.registration.set_ended();
    region.open.events.notify_waiters();
}

/// Removes a region from all tables: a request that waits for the end finds it nowhere.
async fn take_out(core: &Core, region: &Arc<Region>, keep_trace: bool) {
    let unseen = region.is_unseen() && region.rights.intersects(WRITES);
    if unseen || region.is_noted() {
        let over = Arc::clone(region);
        let settle = move || {
            if unseen {
                over.persist_placed();
            }
            over.settle_time();
        };
        // A request that waits for the end sees the time of last write moved.
        let _ = core.runtime.spawn_blocking(settle).await;
    }
    if !keep_trace {
        core.push.lock().regions.remove(&region.id);
    }
    region.node.lock().regions.retain(|other| !Arc::ptr_eq(other, region));
}

/// WAIT_REGION_RECALL: pending until a region is recalled.
pub(super) async fn wait(
    call: &Call,
    open: &Arc<Open>,
    request: RecallRequest,
    output_max: u32,
) -> Result<Vec<u8>, NtStatus> {
    let RecallRequest = request;
    let push = open.push.get().ok_or(NtStatus::NOT_SUPPORTED)?;
    // A recall is reported once, so the reports that are taken must fit the output. None has been
    // taken yet.
    let room = usize::try_from(output_max).unwrap_or(usize::MAX).saturating_sub(RECALL_FIXED);
    let count_max = (room / RECALL_LEN).min(RECALLS_MAX);
    if count_max == 0 {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let ticket = push.begin_wait();
    loop {
        let event = push.events.notified();
        tokio::pin!(event);
        event.as_mut().enable();
        if open.is_closed() {
            return Err(NtStatus::FILE_CLOSED);
        }
        if !push.is_latest(ticket) {
            return Err(NtStatus::CANCELLED);
        }
        let recalls = reports(&call.link.core, open, count_max);
        if !recalls.is_empty() {
            let mut output = Vec::new();
            RecallResponse { recalls }.emit(&mut output);
            return Ok(output);
        }
        call.wait_pending(Lasting::Unbounded, event).await?;
    }
}

// Reports that do not fit wait for the next request.
fn reports(core: &Core, open: &Open, count_max: usize) -> Vec<Recall> {
    let now = core.now();
    let report = |region: Arc<Region>| {
        let (reason, left) = region.registration.take_report(now)?;
        let grace_ms = milliseconds(left);
        Some(Recall { registration: region.id, generation: region.generation, reason, grace_ms })
    };
    let regions = core.push.regions_of(open);
    regions.into_iter().filter_map(report).take(count_max).collect()
}

pub(super) fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// Rights that allow a client to place bytes.
pub(super) const WRITES: Rights = Rights::WRITE.union(Rights::ATOMIC_WRITE).union(Rights::ATOMIC);
/// Bytes of a WAIT_REGION_RECALL output before its entries, and of each entry.
const RECALL_FIXED: usize = 16;
const RECALL_LEN: usize = 24;
