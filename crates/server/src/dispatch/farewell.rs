//! The end of a connection, and of what it had.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::connections::{Link, Session};
use crate::service::{Core, Kept};

/// The peer of a connection is gone: everything it had ends. Threads close the files of its sessions; `kept` goes with the last
/// of them.
pub(crate) fn end_of_connection(core: &Arc<Core>, link: &Arc<Link>, kept: &Kept) {
    link.cancel_all();
    link.delist();
    for channel in link.take_channels() {
        // A bug met at the end of one session must not keep the others alive.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            end_channel(core, link, &channel.session, kept);
        }));
        if ended.is_err() {
            core.note_panic("the end of a session");
        }
    }
    if link.was_asked() {
        repeat_lease_breaks(link);
    }
}

// MS-SMB2 §3.3.7.1: a session lives as long as one of its channels, and what it was asked to give
// back over this one it is asked again over another.
fn end_channel(core: &Arc<Core>, link: &Arc<Link>, session: &Session, kept: &Kept) {
    if session.leave(link) {
        return core.dissolve(session.id, Arc::clone(kept));
    }
    let mut asked = HashSet::new();
    for open in session.all_opens() {
        if asked.insert((Arc::as_ptr(&open.node), open.owner)) {
            open.node.repeat_break(open.owner);
        }
    }
}

// MS-SMB2 §3.3.4.7: what a client was told of its leases over this connection it is told again over
// the next, whichever session holds them.
fn repeat_lease_breaks(gone: &Link) {
    let Some(agreed) = gone.agreed.get() else { return };
    let mut asked = HashSet::new();
    for session in gone.of_client(agreed.client_guid).iter().flat_map(|link| link.sessions()) {
        for open in session.all_opens() {
            if asked.insert((Arc::as_ptr(&open.node), open.owner)) {
                open.node.repeat_break(open.owner);
            }
        }
    }
}
