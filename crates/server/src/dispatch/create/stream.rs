//! Opening and creating alternate data streams.
//!
//! A stream has share modes, locks and leases of its own, kept in a node of its own. Its file's node only
//! knows that it is open: that keeps the file from being deleted or moved under it.
//!
//! Spec: MS-FSA §2.1.5.1 (StreamNameToOpen), §2.1.5.1.2.

use std::sync::Arc;

use smb::NtStatus;
use smb::create::{CreateAction, CreateDisposition};
use tree::{
    DosAttributes, Entry, Found, FoundStream, Metadata, Reach, Share, ShareError, SharePath,
    StreamName,
};

use super::enter::{self, Entered};
use super::fresh::{self, Fresh, Making};
use super::outcome::{Attempt, Created};
use super::wish::Wish;
use crate::state::caching::Intent;
use crate::state::files::Files;
use crate::state::making::{Makes, Sighting, Spot};
use crate::state::node::StreamHold;
use crate::state::node::{Node, NodeState};
use crate::state::sharing::Sharing;
use crate::state::taking::Seen;
use crate::state::wish::{Stays, Wished};
use crate::status::{OrStatus as _, status_of};

/// Tries once to open or create the stream `name` of what `path` names; `None`: there is none, and none is to be
/// made. May block.
pub(super) fn look_up(
    files: &Arc<Files>,
    share: &Arc<Share>,
    wish: &Wish,
    name: &StreamName,
    reach: Reach,
    (seen, before): (&Seen, Option<fresh::Before>),
) -> Result<Option<Attempt>, NtStatus> {
    if wish.wants_directory() {
        return Err(NtStatus::NOT_A_DIRECTORY);
    }
    let located = match share.locate_within(&wish.path, reach) {
        Err(ShareError::WouldBlock) => return Ok(Some(Attempt::Farther)),
        located => located.or_status()?,
    };
    let Some(file) = located.found else {
        let Some(before) = before else { return Ok(None) };
        return create_with_file(files, share, wish, located.path, name, before).map(Some);
    };
    let sighting = || Sighting::of(share, &file, &located.path);
    if let Some(making) = files.nodes.makings.of(share, sighting) {
        return Ok(Some(Attempt::Making { making, found: Some(file.key) }));
    }
    let creates = wish.creates();
    let creates_with_foreign_key = creates && files.lease_keys.names_another(wish.owner, None);
    let base = files.nodes.node(file.key);
    if file.has_several_names() {
        base.lock().is_linked = true;
    }
    if let Some(going) = check_stays(&base, &base.lock(), share, &located.path)? {
        return Ok(Some(going));
    }
    let metadata = share.metadata_of(&file).or_status()?;
    let is_read_only = metadata.attributes.contains(DosAttributes::READONLY);
    if is_read_only
        && !metadata.is_directory
        && (wish.grant.insists_on_writing() || wish.overwrites())
    {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if is_read_only && wish.deletes_on_close() {
        return Err(NtStatus::CANNOT_DELETE);
    }
    let found = share.find_stream(&file, name).or_status()?;
    if let Some(stream) = &found
        && let Some(making) =
            files.nodes.makings.of(share, || Sighting::of_stream(file.key, name, stream.key))
    {
        return Ok(Some(Attempt::Making { making, found: Some(stream.key) }));
    }
    let attempted = match (found, wish.disposition) {
        (Some(_), CreateDisposition::CREATE) => return Err(NtStatus::OBJECT_NAME_COLLISION),
        (Some(stream), _)
            if wish.overwrites() && !reach.may_wait() && stream.is_much_to_empty() =>
        {
            Attempt::Farther
        }
        (Some(stream), _) => {
            let base = Base { file, node: base, path: located.path };
            open(files, share, wish, base, stream, seen)?
        }
        (None, _) if !creates => return Ok(None),
        (None, _) if creates_with_foreign_key => return Err(NtStatus::INVALID_PARAMETER),
        (None, _) => {
            let base = Base { file, node: base, path: located.path };
            create(files, share, wish, &base, name, seen)?
        }
    };
    Ok(Some(attempted))
}

/// The file a stream belongs to.
struct Base {
    file: Found,
    node: Arc<Node>,
    path: SharePath,
}

// The file and its stream are made together, or not at all.
fn create_with_file(
    files: &Arc<Files>,
    share: &Arc<Share>,
    wish: &Wish,
    path: SharePath,
    name: &StreamName,
    before: fresh::Before,
) -> Result<Attempt, NtStatus> {
    let fresh = match Fresh::make(files, share, wish, path, before)? {
        Making::Made(fresh) => fresh,
        Making::Wait(wait) => return Ok(wait),
    };
    let is_fresh = |file: &Found| file.key == fresh.entry().key();
    // Another program of this machine may have moved it.
    let Some(file) = share.locate(&fresh.path).or_status()?.found.filter(is_fresh) else {
        return Ok(Attempt::Again);
    };
    let base = Base { file, node: Arc::clone(&fresh.node), path: fresh.path.clone() };
    fresh.set_permissions(wish)?;
    let attempted = create(files, share, wish, &base, name, &files.nodes.takings.seen())?;
    if matches!(attempted, Attempt::Done(_)) {
        fresh.keep();
    }
    Ok(attempted)
}

// The name is claimed first, then its file is held: nobody takes that from under the new stream.
fn create(
    files: &Arc<Files>,
    share: &Arc<Share>,
    wish: &Wish,
    base: &Base,
    name: &StreamName,
    seen: &Seen,
) -> Result<Attempt, NtStatus> {
    let leave = wish.may_add()?;
    let spot = Spot::of_stream(base.file.key, name);
    let claim = match files.nodes.makings.claim(spot, share, &base.path, Makes::File) {
        Ok(claim) => claim,
        Err(making) => return Ok(Attempt::Making { making, found: None }),
    };
    let held = StreamHold::new(wish.serial, wish.sharing(wish.grant.of_new()));
    if let Some(wait) = hold(files, share, base, (wish, seen), held)? {
        return Ok(wait);
    }
    let made = match share.create_stream(leave, &base.file, name, |key| claim.note(key)) {
        Ok(entry) => enter_new(files, share, wish, base, &entry).map(|(node, metadata)| {
            let action = CreateAction::CREATED;
            Attempt::Done(Box::new(Created { entry, node, metadata, action }))
        }),
        Err(ShareError::Exists) => Ok(Attempt::Again),
        Err(error) => Err(status_of(error)),
    };
    if !matches!(made, Ok(Attempt::Done(_))) {
        // Before a file goes that was only waiting for this: its removal may wait for who waits for the claim.
        drop(claim);
        base.node.release_stream(wish.serial, &files.put_off);
    }
    made
}

fn enter_new(
    files: &Arc<Files>,
    share: &Arc<Share>,
    wish: &Wish,
    base: &Base,
    entry: &Entry,
) -> Result<(Arc<Node>, Metadata), NtStatus> {
    let unmade = || {
        if let Some(allocation) = wish.allocation {
            entry.set_allocation(allocation).or_status()?;
        }
        let (key, path) = (entry.key(), base.path.clone());
        let sharing = wish.sharing(wish.grant.of_new());
        let mut record = enter::new_record(files, wish, share, sharing, path, key)?;
        record.base = Some(Arc::clone(&base.node));
        Ok((record, entry.metadata().or_status()?))
    };
    match unmade() {
        Ok((record, metadata)) => {
            let node = files.nodes.new_node(entry.key());
            node.lock().opens.push(record);
            base.node.lock().note_stream(wish.serial, &node);
            Ok((node, metadata))
        }
        Err(status) => {
            // What the client did not get in full it does not get at all.
            if let Ok(leave) = wish.may_add() {
                let _ = share.unmake_stream(leave, entry);
            }
            files.nodes.takings.count(entry.key());
            Err(status)
        }
    }
}

fn open(
    files: &Arc<Files>,
    share: &Arc<Share>,
    wish: &Wish,
    base: Base,
    stream: FoundStream,
    seen: &Seen,
) -> Result<Attempt, NtStatus> {
    if wish.overwrites() {
        wish.may_overwrite()?;
    }
    let metadata = share.metadata_of(&base.file).or_status()?;
    let access = wish.grant.of(metadata.attributes);
    let sharing = wish.sharing(access);
    let node = files.nodes.node(stream.key);
    let path = base.path.clone();
    let mut record = enter::new_record(files, wish, share, sharing, path, stream.key)?;
    let held = StreamHold::new(wish.serial, sharing).of(&node);
    if let Some(wait) = hold(files, share, &base, (wish, seen), held)? {
        return Ok(wait);
    }
    record.base = Some(Arc::clone(&base.node));
    let _emptying = match enter::enter(files, &node, wish, record, seen) {
        Ok(Entered::Now(emptying)) => emptying,
        Ok(Entered::Wait(wait)) => {
            base.node.release_stream(wish.serial, &files.put_off);
            return Ok(wait);
        }
        Err(status) => {
            base.node.release_stream(wish.serial, &files.put_off);
            return Err(status);
        }
    };
    let opened = share.open_stream(&base.file, &stream, wish.grant.open_mode(access));
    let opened = opened.and_then(|entry| {
        let mut action = CreateAction::OPENED;
        if wish.overwrites() {
            entry.empty(wish.allocation)?;
            action = wish.overwriting_action();
        }
        let metadata = entry.metadata()?;
        Ok((entry, metadata, action))
    });
    match opened {
        Ok((entry, metadata, action)) => {
            Ok(Attempt::Done(Box::new(Created { entry, node, metadata, action })))
        }
        Err(error) => {
            let remove = move |name: &Wished| name.share.remove_found_stream(name.leave, &stream);
            node.fail(wish.serial, &files.put_off, remove);
            match error {
                // Removed or renamed since it was found.
                ShareError::NotFound => Ok(Attempt::Again),
                error => Err(status_of(error)),
            }
        }
    }
}

// The file must not go while its stream is open, and not be opened for deleting if the stream does
// not share that.
fn hold(
    files: &Files,
    share: &Share,
    base: &Base,
    (wish, seen): (&Wish, &Seen),
    held: StreamHold,
) -> Result<Option<Attempt>, NtStatus> {
    let mut state = base.node.lock();
    if let Some(going) = check_stays(&base.node, &state, share, &base.path)? {
        return Ok(Some(going));
    }
    if files.nodes.takings.is_moving(share, &base.path) {
        return Ok(Some(Attempt::Moving(base.path.clone())));
    }
    if !base.node.has_kept_names_since(seen) {
        return Ok(Some(Attempt::Again));
    }
    // A rename claims the file, and then asks whether a stream of it is held.
    if let Some(making) = files.nodes.makings.of_file(base.file.key) {
        return Ok(Some(Attempt::Making { making, found: None }));
    }
    if held.shares_delete || !state.opens.iter().any(|open| open.sharing.uses.delete) {
        state.streams.push(held);
        return Ok(None);
    }
    // Clients that only cache a handle of the file let go first, as where its own share modes collide.
    let (now, intent) = (files.now(), Intent::OpenAgainstSharing);
    state.expire_breaks(now);
    let notices = state.leases.start_breaks(wish.owner, intent, now);
    let must_wait = state.leases.must_wait(wish.owner, intent);
    let routed = state.route(notices);
    drop(state);
    base.node.send(routed);
    let breaking = || Attempt::Breaking { node: Arc::clone(&base.node), intent };
    must_wait.then(breaking).map(Some).ok_or(NtStatus::SHARING_VIOLATION)
}

/// Asks clients that only cache a handle of a stream to let go of it, before the file is opened to be deleted, or emptied:
/// both take its streams, of which none may be open then, or none that does not share deleting. `None`: no answer is
/// owed.
pub(super) fn break_handles(
    wish: &Wish,
    sharing: Sharing,
    file: &Node,
    reach: Reach,
) -> Option<Attempt> {
    let takes_streams = wish.overwrites() || wish.deletes_on_close();
    if !takes_streams && !sharing.uses.delete {
        return None;
    }
    if reach != Reach::Everywhere && file.lock().streams.len() > HOLDS_INLINE_MAX {
        return Some(Attempt::Farther);
    }
    let intent = Intent::OpenAgainstSharing;
    // Deviates: MS-FSA §2.1.5.1.2 asks for the handles of the stream that is opened alone, and refuses.
    let in_the_way = |hold: &StreamHold| takes_streams || !hold.shares_delete;
    let mut owed = file.begin_breaks_of_streams(wish.owner, intent, in_the_way);
    owed.pop().map(|node| Attempt::Breaking { node, intent })
}

// The file of a stream that somebody deletes gets no more streams.
fn check_stays(
    base: &Arc<Node>,
    state: &NodeState,
    share: &Share,
    path: &SharePath,
) -> Result<Option<Attempt>, NtStatus> {
    match state.stays(share, path) {
        Stays::Unknown => Ok(Some(Attempt::Going(Arc::clone(base)))),
        Stays::No => Err(NtStatus::DELETE_PENDING),
        Stays::Yes => Ok(None),
    }
}

/// Holds of streams that are looked at on a reactor, about as many notices as are sent there in one go.
pub(super) const HOLDS_INLINE_MAX: usize = 64;
