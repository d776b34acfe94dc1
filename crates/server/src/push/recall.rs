//! Recalling regions: the server asks, waits a bounded time, then revokes.
//!
//! The order is that of docs/push-mode.md, "Teardown order": the registration becomes unusable, the
//! engine invalidates the STag and drains operations in flight, and only then the waiting request
//! continues. The end of a region runs as a task of its own, so that a caller who gives up waiting
//! does not leave it half done.

use std::sync::Arc;
use std::time::Duration;

use smb::push::{Recall, RecallReason, Rights};
use tracing::{info, warn};

use super::Push;
use super::region::Region;
use crate::state::Open;
use crate::state::ends::{Over, spawn_settling};
use crate::state::lease::Owner;
use crate::state::node::Node;
use crate::state::open::CloseObserver;

/// Recalls the regions of a file that `wanted` picks: asks their holders, and revokes those not
/// returned within the grace. On return no operation touches them any more.
pub(crate) async fn recall(
    push: &Arc<Push>,
    node: &Arc<Node>,
    reason: RecallReason,
    wanted: impl Fn(&Region) -> bool,
) {
    let mut regions = Region::all_of(node);
    regions.retain(|region| wanted(region));
    take_back(push, regions, reason, push.policy.grace).await;
}

/// The server stops: all regions are recalled, and revoked after the grace or after `patience` if
/// that is shorter. Operations in flight on revoked regions are waited for as long once more, and
/// no longer: a device may hang. From now on no region is mapped.
pub(crate) async fn stop(push: &Arc<Push>, patience: Duration) {
    let regions = {
        let mut tables = push.lock();
        tables.stopping = true;
        tables.regions.all()
    };
    let grace = push.policy.grace.min(patience);
    let over = take_back(push, regions, RecallReason::SHUTDOWN, grace);
    if tokio::time::timeout(grace + patience, over).await.is_err() {
        warn!("some regions are not drained in time");
    }
}

/// Recalls regions, and revokes those not returned within the grace. On return no operation touches
/// them any more.
pub(crate) async fn take_back(
    push: &Arc<Push>,
    regions: Vec<Arc<Region>>,
    reason: RecallReason,
    grace: Duration,
) {
    if regions.is_empty() {
        return;
    }
    let now = push.clock.now();
    let mut asked = Vec::with_capacity(regions.len());
    for region in regions {
        let deadline = region.registration.recall(reason, now, grace);
        info!(region = region.id.0, %reason, grace_ms = grace.as_millis(), "region recalled");
        region.open.events.notify_waiters();
        asked.push((region, deadline));
    }
    let push = Arc::clone(push);
    let runtime = push.runtime.clone();
    // A task of its own: the grace ends for the holder even if the asking request gave up.
    let task = runtime.spawn(async move {
        for (region, deadline) in asked {
            if !region.registration.is_given_back_by(deadline).await {
                warn!(region = region.id.0, %reason, "region revoked: its client did not let go");
                end(&push, &region, true).await;
            }
        }
    });
    let _ = task.await;
}

/// Ends a registration. On return no operation touches the region any more. `revoked`: against the client's will, so
/// that a trace stays.
pub(crate) async fn end(push: &Arc<Push>, region: &Arc<Region>, revoked: bool) {
    let (of, ended) = (Arc::clone(push), Arc::clone(region));
    let last = async move {
        take_out(&of, &ended, revoked).await;
        ended.open.events.notify_waiters();
    };
    region.registration.end(&push.runtime, last).await;
}

/// [`end`] for callers that cannot wait; the region stays in its node until it has ended.
pub(crate) fn end_in_background(push: &Arc<Push>, region: Arc<Region>) {
    let push = Arc::clone(push);
    let runtime = push.runtime.clone();
    runtime.spawn(async move {
        end(&push, &region, false).await;
        // A revoked region may have ended already; its trace is removed too.
        push.forget(&region);
    });
}

impl CloseObserver for Arc<Push> {
    // The path cannot wait: the regions of the open end in the background, and stay in the node until they have.
    fn closing(&self, open: &Open) {
        let Some(granted) = open.push.get() else { return };
        granted.events.notify_waiters();
        for region in self.regions_of(open) {
            end_in_background(self, region);
        }
    }
}

/// Ends an open's regions with the open. On return no operation touches them any more.
pub(crate) async fn end_of_open(push: &Arc<Push>, open: &Open) {
    let regions = push.regions_of(open);
    for region in regions {
        end(push, &region, false).await;
        push.forget(&region);
    }
}

/// Called when an open comes back in the session `present`: ends what its client mapped in its lost session through other
/// opens of the same lease, such as the one that it mapped by after a recall. On return no operation touches these regions
/// any more.
pub(crate) async fn end_of_lost(push: &Arc<Push>, open: &Open, present: u64) {
    let is_lost = |region: &Region| region.owner == open.owner && region.session_id != present;
    for region in Region::all_of(&open.node).into_iter().filter(|region| is_lost(region)) {
        end(push, &region, false).await;
        push.forget(&region);
    }
}

/// Called when a lease was returned, in part or whole: ends the regions that its holder mapped
/// under it. On return no operation touches them any more.
pub(crate) async fn end_of_lease(push: &Arc<Push>, node: &Node, owner: Owner) {
    let regions = Region::all_of(node);
    for region in regions.into_iter().filter(|region| region.owner == owner) {
        end(push, &region, false).await;
        push.forget(&region);
    }
}

/// Called when sessions ended, whose regions are ending. On return no operation touches these any more, and no
/// trace of them is left: no client can ask about one.
pub(crate) async fn ended_with(push: &Push, sessions: &[u64]) {
    let is_of_them = |region: &Region| sessions.contains(&region.session_id);
    for region in push.all_regions().into_iter().filter(|region| is_of_them(region)) {
        region.wait_ended().await;
        push.forget(&region);
    }
}

/// Ends a region that the engine does not know: it is removed from all tables, and waiting requests continue.
pub(crate) async fn finish(push: &Push, region: &Arc<Region>) {
    take_out(push, region, false).await;
    region.registration.set_ended();
    region.open.events.notify_waiters();
}

/// Removes a region from all tables: a request that waits for the end finds it nowhere.
async fn take_out(push: &Push, region: &Arc<Region>, keep_trace: bool) {
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
        let over = Over::file_system(region.entry.file_key().device);
        let _ = spawn_settling(&push.runtime, (&region.account, over), settle).await;
    }
    if !keep_trace {
        push.forget(region);
    }
    region.node.lock().remove_obstacle(&**region);
}

/// Takes the recalls of an open's regions that are not reported yet, at most `count_max`.
pub(crate) fn take_reports(push: &Push, open: &Open, count_max: usize) -> Vec<Recall> {
    let now = push.clock.now();
    let report = |region: Arc<Region>| {
        let (reason, left) = region.registration.take_report(now)?;
        let grace_ms = milliseconds(left);
        Some(Recall { registration: region.id, generation: region.generation, reason, grace_ms })
    };
    let regions = push.regions_of(open);
    regions.into_iter().filter_map(report).take(count_max).collect()
}

pub(crate) fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// Rights that allow a client to place bytes.
pub(crate) const WRITES: Rights = Rights::WRITE.union(Rights::ATOMIC_WRITE).union(Rights::ATOMIC);
