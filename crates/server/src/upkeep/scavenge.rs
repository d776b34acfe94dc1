//! Closes opens whose client stays away, and tries again what could not be brought back after a crash.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use basics::Clock;
use tree::MayWait;

use crate::access::Identity;
use crate::service::Core;
use crate::state::Open;
use crate::state::closing::{close_all, forget_all};
use crate::state::durable::Orphans;
use crate::state::ends::{Over, spawn_end_of_opens};

/// Closes orphans whose time is over or whose caching somebody asks for, and tries again what could not be brought
/// back, as long as the server lives.
pub(crate) async fn scavenge(core: Weak<Core>, orphans: Arc<Orphans>, clock: Clock) {
    let mut retry_at = clock.now() + LOOK_AGAIN;
    loop {
        let now = clock.now();
        let (due, next) = orphans.take_due(now);
        {
            let Some(core) = core.upgrade() else { return };
            if retry_at <= now {
                retry_at = now + LOOK_AGAIN;
                restore_left_over(&core);
            }
            // Not waited for: a slow device keeps nobody else's file open.
            for (user, opens) in by_user(due) {
                let account = core.connections.accounts.of(&user);
                for (over, opens) in Over::sorted(opens) {
                    let (too, noted) = (Arc::clone(&core), opens.clone());
                    let forget = move || forget_all(&noted, MayWait::here());
                    let close = move || close_all(&too.files, opens, MayWait::here());
                    drop(spawn_end_of_opens(&core.runtime, (&account, over), forget, close));
                }
            }
        }
        let at = next.map_or(retry_at, |next| next.min(retry_at));
        tokio::select! {
            () = orphans.changed() => {}
            () = tokio::time::sleep_until(at.into()) => {}
        }
    }
}

fn by_user(due: Vec<Arc<Open>>) -> HashMap<Identity, Vec<Arc<Open>>> {
    let mut opens: HashMap<_, Vec<_>> = HashMap::new();
    for open in due {
        opens.entry(open.origin.user.clone()).or_default().push(open);
    }
    opens
}

// Not waited for, as above.
fn restore_left_over(core: &Arc<Core>) {
    for share in core.files.shares().iter().filter(|share| !share.left_over().is_empty()) {
        let (core_too, share) = (Arc::clone(core), Arc::clone(share));
        drop(core.runtime.spawn_blocking(move || {
            core_too.restorer(MayWait::here()).restore_later(&share);
        }));
    }
}

// Also how long the task outlives its server.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
