//! An application that comes up on another machine takes its files with it.
//!
//! ```text
//!  its CREATE goes on --> held, or waits for its client --> taken by one CREATE, which closes it --> gone from its file
//!  who wants it waits here                                  others, of the same application too:  wait here
//! ```
//!
//! The log of opens learns durably of what is taken before it is gone, which may take as long as a disk does.
//!
//! Spec: MS-SMB2 §3.3.5.9.13, §3.3.5.9.15.

use std::sync::Arc;

use smb::NtStatus;
use tree::MayWait;

use super::outcome::Attempt;
use super::wish::Wish;
use crate::state::OpenSerial;
use crate::state::closing;
use crate::state::files::Files;
use crate::state::node::Node;

/// Takes the file from an older instance of the application. `Again`: opens were closed. The log of opens learns of that,
/// wherever the share is: for who may wait.
pub(super) fn evict(
    files: &Arc<Files>,
    node: &Arc<Node>,
    wish: &Wish,
    may_wait: Option<MayWait>,
) -> Result<Option<Attempt>, NtStatus> {
    let Some(instance) = &wish.instance else { return Ok(None) };
    let (mut evicted, mut coming) = (Vec::new(), Vec::new());
    for record in &node.lock().opens {
        if !wish.succeeds(record) {
            continue;
        }
        // §3.3.5.9.15: of two that tell their versions the later one wins.
        let theirs = record.instance.as_ref().and_then(|other| other.version);
        if instance.version.is_some() && theirs >= instance.version {
            return Err(NtStatus::FILE_FORCED_CLOSED);
        }
        evicted.extend(record.open.upgrade());
        if record.is_coming() {
            coming.push(record.serial);
        }
    }
    if evicted.is_empty() {
        let waits = !coming.is_empty();
        return Ok(
            waits.then(|| Attempt::TakenByOthers { node: Arc::clone(node), serials: coming })
        );
    }
    let Some(may_wait) = may_wait else { return Ok(Some(Attempt::Farther)) };
    let serials = evicted.iter().map(|open| open.serial).collect();
    // Whose client comes back meanwhile waits for the outcome.
    let mut on_their_way = Vec::new();
    evicted.retain(|open| {
        let orphan = files.orphans.claim(open.serial, |_| Ok::<_, NtStatus>(()));
        let is_ours = open.wrest() || orphan.is_some();
        on_their_way.extend(orphan);
        is_ours
    });
    if evicted.is_empty() {
        return Ok(Some(Attempt::TakenByOthers { node: Arc::clone(node), serials }));
    }
    closing::close_all(files, evicted, may_wait);
    Ok(Some(Attempt::Again))
}

/// Returns once each of these opens is gone from its file, or somebody may take it: a session holds it, or it waits for its client.
pub(super) async fn settled(files: &Files, node: &Node, serials: &[OpenSerial]) {
    for serial in serials {
        let arrival = files.orphans.await_arrival(*serial);
        let is_settled = || {
            let Some(open) = node.lock().record(*serial).map(|record| record.open.upgrade()) else {
                return true;
            };
            open.is_some_and(|open| open.is_in_session()) || files.orphans.has(*serial)
        };
        tokio::select! {
            () = node.changes_until(is_settled) => {}
            () = basics::until(arrival.event(), is_settled) => {}
        }
    }
}
