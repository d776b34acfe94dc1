//! What a CREATE is granted beside its open: to cache, and to come back after its connection is lost.
//!
//! Spec: MS-SMB2 §3.3.5.9.6 to §3.3.5.9.11; MS-FSA §2.1.5.18.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use smb::FileId;
use smb::create::LeaseKey;
use tracing::warn;
use tree::MayWait;

use super::admit::Admission;
use super::open::persist_opened;
use super::wish::Wish;
use crate::dispatch::break_notice::Client;
use crate::dispatch::call::Call;
use crate::state::Open;
use crate::state::caching::{Caching, Intent};
use crate::state::durable_opens::DurableOpens;
use crate::state::holder::{Courier, Holder};
use crate::state::lease::{Granted, Owner};
use crate::state::open::{Durable, Ended};
use crate::state::persistent;
use crate::state::serial::OpenSerial;

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
    open.node.note_come();
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

/// Grants that the open may come back, as far as what it caches and its share allow.
pub(super) async fn grant_return(
    call: &Call,
    admission: &Admission,
    open: &Arc<Open>,
    granted: Option<Granted>,
) -> Option<Durable> {
    let keeps = admission.share.keeps_journal()
        && !open.entry.is_directory()
        && !open.entry.is_stream()
        && admission.wish.path.is_presentable();
    // A guest who came back could not show that it is theirs.
    let may_come_back = !call.session().identity.is_guest();
    match admission.asked.grant(granted, keeps).filter(|_| may_come_back) {
        Some(durable) if durable.persistent => write_down(call, open, durable, granted).await,
        durable => durable,
    }
}

// A persistent open is one when its note is durable; where that fails it is a durable one at most.
async fn write_down(
    call: &Call,
    open: &Arc<Open>,
    durable: Durable,
    granted: Option<Granted>,
) -> Option<Durable> {
    let (noted, opens) = (Arc::clone(open), Arc::clone(&call.core.files.durable_opens));
    // A change through the open: who closes it waits until it is over, and then the log forgets the open before others get
    // in. Of an open that is closed already the log learns nothing.
    let work = move |may_wait| {
        let outcome = noted.change_blocking(|begun| {
            begun.map_err(|Ended| io::Error::other("it has ended"))?;
            note_durably(&noted, durable, granted, &opens, may_wait)
        });
        noted.is_being_noted.store(false, Ordering::Release);
        outcome
    };
    match call.waiting(work).await {
        Ok(Ok(())) => Some(durable),
        Ok(Err(error)) => {
            // Where others have closed it meanwhile, or have taken the file, there is nothing to tell.
            if !open.is_closed() {
                warn!(serial = open.serial.0, %error, "an open is not persistent");
            }
            granted
                .is_some_and(|granted| granted.caching.contains(Caching::HANDLE))
                .then_some(Durable { persistent: false, ..durable })
        }
        Err(_) => None,
    }
}

// From here on the open is a persistent one.
fn note_durably(
    open: &Arc<Open>,
    durable: Durable,
    granted: Option<Granted>,
    opens: &Arc<DurableOpens<Open>>,
    may_wait: MayWait,
) -> io::Result<()> {
    let journal = open.tree.share().and_then(|share| share.journal(may_wait));
    let nobody = || io::Error::other("nobody in particular has opened it");
    let journal = journal.ok_or_else(nobody)?;
    // The note leads to nothing where a crash takes the file's name, or what it was emptied of comes back.
    let persist = || persist_opened(open).map_err(|status| io::Error::other(status.to_string()));
    let before = persistent::note(open, durable, granted).ok_or_else(nobody)?;
    persist()?;
    // What has waited for the disk of the file waits for that of the log from here on: so does who closes it.
    open.is_being_noted.store(true, Ordering::Release);
    // Nobody renames it before it is noted.
    let _names = journal.hold_names();
    let note = persistent::note(open, durable, granted).ok_or_else(nobody)?;
    if note.identity.is_none() {
        let unknown = "its file system knows nothing that tells it from a later one";
        return Err(io::Error::other(unknown));
    }
    if note.path != before.path {
        persist()?;
    }
    journal.open_durably(note)?;
    open.set_durable(opens, durable);
    if let Some(share) = open.tree.share() {
        persistent::check_note(open, share, may_wait);
    }
    Ok(())
}

// How the client is told of breaks of what this open holds.
pub(super) fn holder(call: &mut Call, open: &Open) -> Holder {
    let (told, breaks_wait) = Holder::untold();
    call.breaks_wait = Some(breaks_wait);
    let lease_key = match open.owner {
        Owner::Lease { key, .. } => key,
        Owner::Open(_) => [0; 16],
    };
    let client = Client {
        link: Arc::downgrade(&call.link),
        session: Arc::downgrade(call.session()),
        session_id: call.session().id,
        tree_id: open.tree.id,
        file_id: FileId { persistent: open.serial.0, volatile: open.volatile },
        lease_key: LeaseKey(lease_key),
    };
    let courier: Arc<dyn Courier> = Arc::new(client);
    Holder { courier: Some(courier), is_sealed: call.sealed, told, asked: Arc::default() }
}

/// Serials of opens are not 0.
const NOBODY: Owner = Owner::Open(OpenSerial(0));
