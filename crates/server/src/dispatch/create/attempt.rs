//! One attempt to open or create: all or nothing, or a reason to wait.
//!
//! Spec: MS-FSA §2.1.5.1.2 (open of an existing file).

use std::sync::Arc;

use smb::NtStatus;
use smb::create::{CreateAction, CreateDisposition};
use tree::{
    Anew, DosAttributes, Entry, Found, MayWait, Metadata, Reach, Share, ShareError, SharePath,
    StreamPart, folded,
};

use super::enter::{Entered, enter, new_record};
use super::outcome::{Attempt, Created};
use super::take_over::evict;
use super::wish::Wish;
use super::{fresh, stream};
use crate::access::deletion::Doomed;
use crate::state::files::Files;
use crate::state::making::Sighting;
use crate::state::node::Node;
use crate::state::taking::Seen;
use crate::status::OrStatus as _;

/// Tries once, no farther than `reach`. May block.
pub(super) fn attempt(
    files: &Arc<Files>,
    share: &Arc<Share>,
    wish: &Wish,
    reach: Reach,
    may_wait: Option<MayWait>,
) -> Result<Attempt, NtStatus> {
    match look_up(files, share, (wish, reach), may_wait) {
        Ok(Some(attempted)) => Ok(attempted),
        Ok(None) => Err(NtStatus::OBJECT_NAME_NOT_FOUND),
        // What was found lost its name before it was ours: what the name means now has to be looked up.
        Err(NtStatus::OBJECT_NAME_NOT_FOUND) => Ok(Attempt::Again),
        Err(status) => Err(status),
    }
}

// `None`: nothing has the name, and nothing is to be made.
fn look_up(
    files: &Arc<Files>,
    share: &Arc<Share>,
    (wish, reach): (&Wish, Reach),
    may_wait: Option<MayWait>,
) -> Result<Option<Attempt>, NtStatus> {
    if wish.overwrites() && !share.is_read_only() {
        wish.may_overwrite()?;
    }
    let seen = files.nodes.takings.seen();
    let before = wish.creates().then(|| {
        let made = files.nodes.makings.before(&folded(wish.path.leaf()));
        fresh::Before { seen, made }
    });
    if let StreamPart::Named(name) = &wish.stream {
        return stream::look_up(files, share, wish, name, reach, (&seen, before));
    }
    let located = match share.locate_within(&wish.path, reach) {
        Err(ShareError::WouldBlock) => return Ok(Some(Attempt::Farther)),
        located => located.or_status()?,
    };
    if let Some(found) = &located.found
        && let Some(making) =
            files.nodes.makings.of(share, || Sighting::of(share, found, &located.path))
    {
        return Ok(Some(Attempt::Making { making, found: Some(found.key) }));
    }
    let attempted = match (located.found, wish.disposition) {
        (Some(_), CreateDisposition::CREATE) => return Err(NtStatus::OBJECT_NAME_COLLISION),
        // What is there may be much to empty: for who may wait.
        (Some(found), _) if wish.overwrites() && !reach.may_wait() && found.is_much_to_empty() => {
            Attempt::Farther
        }
        (Some(found), _) => {
            open_existing(files, share, (wish, reach, may_wait), &found, located.path, &seen)?
        }
        (None, _) => match before {
            Some(before) => fresh::create(files, share, wish, located.path, before)?,
            None => return Ok(None),
        },
    };
    Ok(Some(attempted))
}

fn open_existing(
    files: &Arc<Files>,
    share: &Arc<Share>,
    (wish, reach, may_wait): (&Wish, Reach, Option<MayWait>),
    found: &Found,
    path: SharePath,
    seen: &Seen,
) -> Result<Attempt, NtStatus> {
    if found.is_link {
        if !wish.opens_links() {
            return Err(NtStatus::STOPPED_ON_SYMLINK);
        }
        if wish.overwrites() {
            return Err(NtStatus::ACCESS_DENIED);
        }
    }
    if wish.overwrites() {
        wish.may_overwrite()?;
    }
    check_kind(wish, found)?;
    let metadata = share.metadata_of(found).or_status()?;
    check_attributes(wish, &metadata)?;
    check_deletion(files, share, wish, found, &path)?;
    let access = wish.grant.of(metadata.attributes);
    let sharing = wish.sharing(access);
    let node = files.nodes.node(found.key);
    if let Some(instead) = evict(files, &node, wish, may_wait)? {
        return Ok(instead);
    }
    if let Some(wait) = stream::break_handles(wish, sharing, &node, reach) {
        return Ok(wait);
    }
    let record = new_record(files, wish, share, sharing, path, found.key)?;
    if found.has_several_names() {
        node.lock().is_linked = true;
    }
    let _emptying = match enter(files, &node, wish, record, seen)? {
        Entered::Wait(wait) => return Ok(wait),
        Entered::Now(emptying) => emptying,
    };
    crate::push::settle_times(&node);
    let opened = finish_opening(share, wish, found, access);
    conclude(files, node, wish, found, opened)
}

/// What an open that is entered in its node came to: one that fails leaves it again.
pub(super) fn conclude(
    files: &Files,
    node: Arc<Node>,
    wish: &Wish,
    found: &Found,
    opened: Result<(Entry, Metadata, CreateAction), NtStatus>,
) -> Result<Attempt, NtStatus> {
    match opened {
        Ok((entry, metadata, action)) => {
            Ok(Attempt::Done(Box::new(Created { entry, node, metadata, action })))
        }
        Err(status) => {
            let (key, is_directory) = (found.key, found.is_directory);
            node.fail(wish.serial, &files.put_off, move |name| {
                name.share.remove(name.leave, &name.path, key, is_directory)
            });
            Err(status)
        }
    }
}

fn check_kind(wish: &Wish, found: &Found) -> Result<(), NtStatus> {
    // A device has one length, and its name is the operator's. Before others are asked to yield.
    if found.is_device() && wish.stream != StreamPart::Index && wish.overwrites() {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    if found.is_directory
        && wish.stream != StreamPart::Unnamed
        && (wish.refuses_directory() || wish.overwrites())
    {
        return Err(NtStatus::FILE_IS_A_DIRECTORY);
    }
    if wish.stream == StreamPart::Unnamed && wish.wants_directory() {
        return Err(NtStatus::NOT_A_DIRECTORY);
    }
    if found.is_directory && wish.stream == StreamPart::Unnamed {
        return Err(NtStatus::FILE_IS_A_DIRECTORY);
    }
    if !found.is_directory && (wish.wants_directory() || wish.stream == StreamPart::Index) {
        return Err(NtStatus::NOT_A_DIRECTORY);
    }
    Ok(())
}

fn check_attributes(wish: &Wish, metadata: &Metadata) -> Result<(), NtStatus> {
    let is_read_only =
        metadata.attributes.contains(DosAttributes::READONLY) && !metadata.is_directory;
    if wish.deletes_on_close() && is_read_only {
        return Err(NtStatus::CANNOT_DELETE);
    }
    if is_read_only && (wish.grant.insists_on_writing() || wish.overwrites()) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    // MS-FSA §2.1.5.1.2: hidden and system files are not overwritten by accident.
    if wish.overwrites() {
        for attribute in [DosAttributes::HIDDEN, DosAttributes::SYSTEM] {
            if metadata.attributes.contains(attribute) && !wish.attributes.contains(attribute) {
                return Err(NtStatus::ACCESS_DENIED);
            }
        }
    }
    Ok(())
}

// Whoever deletes on close learns now that it will not happen.
fn check_deletion(
    files: &Files,
    share: &Share,
    wish: &Wish,
    found: &Found,
    path: &SharePath,
) -> Result<(), NtStatus> {
    let Some(leave) = wish.grant.deletes_on_close() else { return Ok(()) };
    let doomed = Doomed {
        path,
        key: found.key,
        is_read_only: false,
        is_device: found.is_device(),
        is_stream: false,
    };
    doomed.check(&files.shares(), share, leave)
}

fn finish_opening(
    share: &Share,
    wish: &Wish,
    found: &Found,
    access: smb::create::AccessMask,
) -> Result<(Entry, Metadata, CreateAction), NtStatus> {
    let entry = share.open_found(found, wish.grant.open_mode(access)).or_status()?;
    let mut action = CreateAction::OPENED;
    if wish.overwrites() {
        let leave = wish.may_overwrite()?;
        // As with NTFS the streams go, and what is said of the file begins anew.
        let attributes = wish.attributes.union(DosAttributes::ARCHIVE).settable();
        let (extended, allocation) = (&wish.extended()?[..], wish.allocation);
        share.begin_anew(leave, &entry, Anew { attributes, extended, allocation }).or_status()?;
        action = wish.overwriting_action();
    }
    let metadata = entry.metadata().or_status()?;
    Ok((entry, metadata, action))
}
