//! Periodic checks that have no deadline of their own.
//!
//! * Times of files whose bytes came by one-sided writes, for programs that look at the files without
//!   asking the server.
//! * Regions of sessions whose ticket has expired. One-sided operations carry no ticket, so the
//!   region itself is recalled.
//!
//! Spec: docs/push-mode.md, "Times" and "Recall".

use std::sync::{Arc, Weak};
use std::time::Duration;

use smb::push::RecallReason;

use crate::push::recall;
use crate::service::Core;

/// Runs for as long as the server exists.
pub(crate) async fn sweep(core: Weak<Core>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        ticks.tick().await;
        let Some(core) = core.upgrade() else { return };
        let regions = core.push.all_regions();
        if regions.is_empty() {
            continue;
        }
        // A task of its own, because it waits for clients.
        core.runtime.spawn(recall_expired(Arc::clone(&core)));
        let settle = move || regions.iter().for_each(|region| region.settle_time());
        let _ = core.runtime.spawn_blocking(settle).await;
    }
}

/// Recalls the regions of sessions whose ticket has expired, each once. On return no operation
/// touches them any more.
pub(crate) async fn recall_expired(core: Arc<Core>) {
    let mut regions = core.push.all_regions();
    regions.retain(|region| {
        let session = core.sessions.get(region.session_id);
        let clock = &core.environment.clock;
        !region.registration.is_recalled()
            && session.is_some_and(|session| session.is_expired(clock))
    });
    let grace = core.push.policy().grace;
    recall::take_back(&core.push, regions, RecallReason::SESSION_EXPIRED, grace).await;
}

const SWEEP_EVERY: Duration = Duration::from_secs(10);
