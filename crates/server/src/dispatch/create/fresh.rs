//! Making what is not there yet: files and directories, with what they have beside their names.
//!
//! The name is claimed before anything is made, and until the open of what was made is in its node or it is unmade:
//! whoever finds it meanwhile waits, and so does whoever would make the name in another case. See
//! [`making`](crate::state::making).
//!
//! Spec: MS-FSA §2.1.5.1.1.

use std::sync::Arc;

use smb::NtStatus;
use smb::create::CreateAction;
use tree::{
    DosAttributes, Entry, New, NewName, Remembered, Share, ShareError, SharePath, StreamPart,
};

use super::enter::new_record;
use super::outcome::{Attempt, Created};
use super::wish::Wish;
use crate::access::{MayAdd, MaySet};
use crate::state::files::Files;
use crate::state::making::{Claim, MadeBefore, Makes, Spot};
use crate::state::node::{Node, OpenRecord};
use crate::state::taking::Seen;
use crate::state::wish::Stays;
use crate::status::{OrStatus as _, status_of};

/// What was known before the name was looked up, and found missing.
#[derive(Clone, Copy)]
pub(super) struct Before {
    pub(super) seen: Seen,
    pub(super) made: MadeBefore,
}

/// Tries once to make what `path` names, which was not there. May block.
pub(super) fn create(
    files: &Arc<Files>,
    share: &Arc<Share>,
    wish: &Wish,
    path: SharePath,
    before: Before,
) -> Result<Attempt, NtStatus> {
    if wish.stream == StreamPart::Unnamed && wish.wants_directory() {
        return Err(NtStatus::NOT_A_DIRECTORY);
    }
    let fresh = match Fresh::make(files, share, wish, path, before)? {
        Making::Made(fresh) => fresh,
        Making::Wait(wait) => return Ok(wait),
    };
    let entry = fresh.entry();
    if let Some(allocation) = wish.allocation.filter(|_| !entry.is_directory()) {
        entry.set_allocation(allocation).or_status()?;
    }
    entry.set_extended_attributes(fresh.furnish, &wish.extended()?).or_status()?;
    fresh.set_permissions(wish)?;
    let sharing = wish.sharing(wish.grant.of_new());
    let record = new_record(files, wish, share, sharing, fresh.path.clone(), entry.key())?;
    // Nothing fails once it is entered.
    let (metadata, node) = (entry.metadata().or_status()?, Arc::clone(&fresh.node));
    let entry = fresh.enter(record);
    let action = CreateAction::CREATED;
    Ok(Attempt::Done(Box::new(Created { entry, node, metadata, action })))
}

/// What trying to make something came to.
pub(super) enum Making {
    Made(Fresh),
    Wait(Attempt),
}

/// Something new that nobody else can have open. Dropped before it is entered or kept it is unmade: what the client
/// did not get in full it does not get at all.
pub(super) struct Fresh {
    files: Arc<Files>,
    share: Arc<Share>,
    name: NewName,
    leave: MayAdd,
    pub(super) path: SharePath,
    pub(super) node: Arc<Node>,
    furnish: MaySet,
    made: Option<Entry>,
    // Given back last.
    _claims: (Claim, Option<Claim>),
}

impl Fresh {
    /// Makes a file or directory with nothing in it. May block.
    pub(super) fn make(
        files: &Arc<Files>,
        share: &Arc<Share>,
        wish: &Wish,
        path: SharePath,
        before: Before,
    ) -> Result<Making, NtStatus> {
        let (leave, furnish) = (wish.may_add()?, wish.grant.may_furnish()?);
        // MS-FSA §2.1.5.1.1: it would never go away again.
        if wish.deletes_on_close() && wish.attributes.contains(DosAttributes::READONLY) {
            return Err(NtStatus::CANNOT_DELETE);
        }
        if files.lease_keys.names_another(wish.owner, None) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let is_directory = wish.wants_directory();
        let makes = if is_directory { Makes::Directory } else { Makes::File };
        let name = share.new_name(&path).or_status()?;
        let claim = match files.nodes.makings.claim(Spot::of(&name), share, &path, makes) {
            Ok(claim) => claim,
            Err(making) => return Ok(Making::Wait(Attempt::Making { making, found: None })),
        };
        // Who moves a directory waits for claims below it from now on.
        if files.nodes.takings.is_moving(share, &path) {
            return Ok(Making::Wait(Attempt::Moving(path)));
        }
        let has_stayed = files.nodes.takings.is_current(&before.seen, name.parent_key());
        if !has_stayed || !claim.is_first_since(before.made) {
            return Ok(Making::Wait(Attempt::Again));
        }
        // Asked with the name claimed: see `dispatch::set_info::stays_empty`. As with smbd.
        if let Some(directory) = files.nodes.existing(name.parent_key()) {
            let stays = directory.lock().stays(share, &path.parent());
            match stays {
                Stays::Yes => {}
                Stays::No => return Err(NtStatus::DELETE_PENDING),
                Stays::Unknown => return Ok(Making::Wait(Attempt::Going(directory))),
            }
        }
        let remembered = if is_directory { None } else { share.remembered(&path) };
        let creation = remembered.as_ref().map(|remembered| remembered.creation);
        let long = remembered.and_then(|remembered| long_name(files, share, &path, remembered));
        let (path, name, also) = match long {
            Some((path, name, claim)) => (path, name, Some(claim)),
            None => (path, name, None),
        };
        let new = New { is_directory, attributes: wish.attributes, permissions: wish.permissions };
        let entry = match share.make(leave, &name, new, |key| claim.note(key)) {
            Ok(entry) => entry,
            // By another program of this machine.
            Err(ShareError::Exists) => return Ok(Making::Wait(Attempt::Again)),
            Err(error) => return Err(status_of(error)),
        };
        if let Some(creation) = creation {
            // Where it cannot be kept the file was created now.
            let _ = entry.inherit_creation(creation);
        }
        Ok(Making::Made(Self {
            files: Arc::clone(files),
            share: Arc::clone(share),
            name,
            leave,
            path,
            node: files.nodes.new_node(entry.key()),
            furnish,
            made: Some(entry),
            _claims: (claim, also),
        }))
    }

    /// What was made.
    pub(super) fn entry(&self) -> &Entry {
        self.made.as_ref().expect("it is taken when this is consumed")
    }

    /// Gives it the permissions wished for. The last that is done to it: they may be fewer than that takes.
    pub(super) fn set_permissions(&self, wish: &Wish) -> Result<(), NtStatus> {
        if let Some(permissions) = wish.permissions {
            self.share
                .set_first_permissions(self.furnish, self.entry(), permissions)
                .or_status()?;
        }
        Ok(())
    }

    /// It is open, and others may open it.
    fn enter(mut self, record: OpenRecord) -> Entry {
        let mut state = self.node.lock();
        debug_assert!(state.opens.is_empty(), "nobody else could enter it");
        state.opens.push(record);
        drop(state);
        self.made.take().expect("it is taken when this is consumed")
    }

    /// It stays, and others may open it.
    pub(super) fn keep(mut self) {
        self.made = None;
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some(entry) = self.made.take() {
            // One that another program of this machine has moved, or put something in, stays.
            let _ = self.share.unmake(self.leave, &self.name, &entry);
            // Whoever has found it looks again.
            self.files.nodes.takings.count(entry.key());
        }
    }
}

// The name that a file had before, which was called by its short name; unless something has it now, or is about to.
fn long_name(
    files: &Arc<Files>,
    share: &Arc<Share>,
    path: &SharePath,
    remembered: Remembered,
) -> Option<(SharePath, NewName, Claim)> {
    let long = remembered.path;
    if long.leaf() == path.leaf() {
        return None;
    }
    let name = share.new_name(&long).ok()?;
    let claim = files.nodes.makings.claim(Spot::of(&name), share, &long, Makes::Name).ok()?;
    share.locate(&long).ok()?.found.is_none().then_some((long, name, claim))
}
