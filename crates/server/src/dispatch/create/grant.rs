//! What a CREATE is granted to cache.
//!
//! Spec: MS-SMB2 §3.3.5.9.8, §3.3.5.9.11; MS-FSA §2.1.5.18.

use std::sync::Arc;

use super::Wish;
use crate::dispatch::call::Call;
use crate::state::Open;
use crate::state::caching::{Caching, Intent};
use crate::state::holder::Holder;
use crate::state::lease::{Granted, Owner};
use crate::state::locks::OpenSerial;

/// Grants what was asked for, as far as others leave it. `None`: nothing was asked for, or it is a directory.
pub(super) fn grant(
    call: &mut Call,
    wish: &Wish,
    open: &Arc<Open>,
    allocation: u64,
) -> Option<Granted> {
    let holder = holder(call, open);
    let mut state = open.node.lock();
    // Closed on another channel already: nobody would give the lease back.
    let record = state.record_mut(open.serial)?;
    record.holder = Some(holder.clone());
    record.open = Arc::downgrade(open);
    let base = record.base.clone();
    let (wanted, flavor, first_epoch) = wish.caching.wanted()?;
    if open.entry.is_directory() {
        return None;
    }
    let alone = state.is_alone(wish.owner);
    // MS-FSA §2.1.5.18: caching is not shared where bytes are locked; who reads from a cache asks nobody.
    let is_locked = state.locks.first_offset().is_some_and(|offset| allocation > offset);
    let is_shared = !alone || !wanted.contains(Caching::WRITE);
    // What would be read now and cached, a change under way makes stale: its break has been sent already.
    let is_changed = state.is_changed_by_others(wish.owner);
    let wanted = if (is_locked && is_shared) || is_changed { Caching::NONE } else { wanted };
    let granted = state.leases.grant(wish.owner, flavor, wanted, alone, first_epoch, holder);
    let record = state.record_mut(open.serial)?;
    record.has_lease = true;
    let (share, path) = (Arc::clone(&record.share), record.path.clone());
    let goes_itself = state.is_to_go(&share, &path);
    drop(state);
    let is_to_go = goes_itself || base.is_some_and(|base| base.lock().is_to_go(&share, &path));
    // A request that asks for a deletion asks for cached handles before and behind its wish; what was granted before the
    // wish, it finds. The client hears of this break once its CREATE is answered.
    if is_to_go {
        open.node.begin_breaks(NOBODY, Intent::Unlink);
    }
    Some(granted)
}

// How the client is told of breaks of what this open holds.
pub(super) fn holder(call: &mut Call, open: &Open) -> Holder {
    let (told, breaks_wait) = Holder::untold();
    call.breaks_wait = Some(breaks_wait);
    let lease_key = match open.owner {
        Owner::Lease { key, .. } => key,
        Owner::Open(_) => [0; 16],
    };
    Holder {
        link: Arc::downgrade(&call.link),
        session: Arc::downgrade(call.session()),
        session_id: call.session().id,
        tree_id: open.tree.id,
        file_id: (open.serial.0, open.volatile),
        lease_key,
        is_sealed: call.sealed,
        told,
        asked: Arc::default(),
    }
}

/// Serials of opens are not 0.
const NOBODY: Owner = Owner::Open(OpenSerial(0));
