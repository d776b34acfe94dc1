//! Where a rename or a link puts a file: a name that is free, or taken from what gives way.
//!
//! Spec: MS-FSA §2.1.5.15.11 (rename), §2.1.5.15.6 (link).

use std::collections::HashSet;
use std::sync::Arc;

use smb::NtStatus;
use smb::info::{Rename, RenameFlags};
use smb::push::RecallReason;
use tree::{
    DosAttributes, Found, Located, Naming, Remembered, Replace, SEPARATORS, Share, ShareError,
    SharePath, folded,
};

use super::given::NameToGive;
use super::handles::yield_streams;
use crate::access::{self, MayRemove, Remove};
use crate::dispatch::call::Call;
use crate::push::Region;
use crate::state::Open;
use crate::state::caching::Intent;
use crate::state::claim::Claimed;
use crate::state::files::Files;
use crate::state::lease::Owner;
use crate::state::making::{MadeBefore, Making, Sighting};
use crate::state::node::{Node, NodeState, OpenRecord};
use crate::state::serial::OpenSerial;
use crate::state::sharing::{Kinds, Sharing};
use crate::status::OrStatus as _;

/// Where a name is to go.
pub(super) struct Target {
    pub(super) share: Arc<Share>,
    pub(super) from: SharePath,
    wanted: SharePath,
    /// There where what has the name may be replaced.
    pub(super) replace: Option<MayRemove>,
}

/// What a name is added for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Adds {
    /// A file that loses its old one.
    Renamed,
    /// A file that keeps its old ones.
    Link,
}

/// A name that is free or may be taken.
pub(super) struct Cleared {
    /// Its spelling.
    pub(super) to: SharePath,
    /// What the file inherits with it; see [`Share::remembered`].
    pub(super) creation: Option<u64>,
    /// What has the name, with leave to replace it.
    pub(super) replace: Option<Replace>,
    /// Nobody opens that meanwhile.
    pub(super) claimed: Option<Claimed>,
    /// From before it was looked up.
    pub(super) before: MadeBefore,
}

impl Cleared {
    fn free(to: SharePath, creation: Option<u64>, before: MadeBefore) -> Self {
        Self { to, creation, replace: None, claimed: None, before }
    }
}

impl Target {
    pub(super) fn new(open: &Open, new: &Rename) -> Result<Self, NtStatus> {
        let share = Arc::clone(open.tree.share().ok_or(NtStatus::INVALID_PARAMETER)?);
        let from = open.path();
        let wanted = match from.naming() {
            Naming::Windows => {
                SharePath::parse(new.name.strip_prefix(SEPARATORS).unwrap_or(&new.name))
                    .or_status()?
            }
            Naming::Posix => SharePath::parse_posix(&new.name).or_status()?,
        };
        if wanted.is_root() || from.is_root() {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let replace = replacement(open, new, Remove::Replace)?;
        Ok(Self { share, from, wanted, replace })
    }

    pub(super) fn name(
        &self,
        open: &Open,
        to: &SharePath,
        before: MadeBefore,
        replace: Option<Replace>,
    ) -> NameToGive {
        let may_have_it = [Some(open.node.key()), replace.map(Replace::key)];
        let (share, path) = (Arc::clone(&self.share), to.clone());
        NameToGive { share, path, before, may_have_it, renamed: None }
    }

    // What is left over first: once it is brought back it is open.
    pub(super) fn is_open_below(&self, files: &Files) -> bool {
        files.is_left_over_below(&self.share, &self.from)
            || files.nodes.is_open_below(&self.share, &self.from)
    }

    pub(super) fn begin_breaks_below(&self, files: &Files, by: Owner) -> Vec<Arc<Node>> {
        files.nodes.begin_breaks_below(by, &self.share, &self.from)
    }

    // Says whether the file is mapped for push.
    pub(super) fn note_renamed(&self, open: &Open, to: &SharePath) -> bool {
        let mut state = open.node.lock();
        state.move_wished(&self.share, |path| (*path == self.from).then(|| to.clone()));
        for record in &mut state.opens {
            if record.path_in(&self.share).as_ref() == Some(&self.from)
                && let Some(path) = self.share.path_in(&record.share, to)
            {
                record.path = path.meant(record.path.naming());
            }
        }
        state.is_obstructed()
    }

    // MS-FSA §2.1.5.15.11: a name is added through an open of the directory that shares reading and
    // writing with others, and has to be admitted beside theirs.
    pub(super) async fn enter_directory(
        &self,
        call: &Call,
        to: &SharePath,
    ) -> Result<(), NtStatus> {
        let (share, directory) = (Arc::clone(&self.share), to.parent());
        let looked_in = Arc::clone(&share);
        let look = move |reach| looked_in.locate_within(&directory, reach);
        let located = call.looking_up(&share, look).await?;
        let node = located.found.and_then(|found| call.core.files.nodes.existing(found.key));
        let Some(node) = node else { return Ok(()) };
        let adds = Kinds { read: false, write: true, delete: false };
        let shares = Kinds { read: true, write: true, delete: false };
        let state = node.lock();
        let agrees = state
            .opens
            .iter()
            .all(|other| other.sharing.agrees_with(Sharing { uses: adds, shares }));
        if agrees { Ok(()) } else { Err(NtStatus::SHARING_VIOLATION) }
    }

    // The name that the file gets where it is renamed, or linked, onto a name of its own.
    fn onto_itself(
        &self,
        found: &Found,
        path: SharePath,
        adds: Adds,
    ) -> Result<SharePath, NtStatus> {
        let is_posix = self.wanted.naming() == Naming::Posix;
        // Of a file with one link each path is its name.
        let is_own_name = !found.has_several_names() || path == self.from;
        match adds {
            // rename(2): two names of one file stay.
            Adds::Renamed if is_posix && self.replace.is_some() => Ok(self.from.clone()),
            // The client's spelling wins.
            Adds::Renamed if is_own_name => Ok(path.parent_with_leaf_of(&self.wanted)),
            Adds::Renamed if self.replace.is_none() => Err(NtStatus::OBJECT_NAME_COLLISION),
            // The other name stays as it is spelled. A link changes nothing.
            Adds::Renamed | Adds::Link => Ok(path),
        }
    }

    // Makes sure that the new name is free or may be taken.
    pub(super) async fn clear(
        &self,
        call: &Call,
        open: &Arc<Open>,
        new: &Rename,
        adds: Adds,
    ) -> Result<Cleared, NtStatus> {
        for _ in 0..ATTEMPTS_MAX {
            let (share, wanted) = (Arc::clone(&self.share), self.wanted.clone());
            let before = call.core.files.nodes.makings.before(&folded(wanted.leaf()));
            let inherits = adds == Adds::Renamed && !open.entry.is_directory();
            let looked_in = Arc::clone(&share);
            let makings = Arc::clone(&call.core.files.nodes.makings);
            let look = move |reach| -> Result<Look, ShareError> {
                let share = &looked_in;
                let located = share.locate_within(&wanted, reach)?;
                let read_only = match &located.found {
                    Some(found) => {
                        let attributes = share.metadata_of(found)?.attributes;
                        attributes.contains(DosAttributes::READONLY)
                    }
                    None => false,
                };
                let making = located.found.as_ref().and_then(|found| {
                    makings.of(share, || Sighting::of(share, found, &located.path))
                });
                let is_free = located.found.is_none();
                let remembered =
                    if is_free && inherits { share.remembered(&located.path) } else { None };
                Ok((located, read_only, remembered, making))
            };
            let (located, read_only, remembered, making) = call.looking_up(&share, look).await?;
            if let Some(Remembered { path, creation }) = remembered {
                return Ok(Cleared::free(path, Some(creation), before));
            }
            let Some(found) = located.found else {
                return Ok(Cleared::free(located.path, None, before));
            };
            // It may be unmade, or else is open when this is over.
            if let Some(making) = making {
                call.wait_for_work(making.settled(Some(found.key))).await?;
                continue;
            }
            let replace = self.replace.map(|leave| Replace::of(found.key, leave));
            let is_posix = self.wanted.naming() == Naming::Posix;
            if found.key == open.node.key() {
                let to = self.onto_itself(&found, located.path, adds)?;
                return Ok(Cleared { to, creation: None, replace, claimed: None, before });
            }
            let ignores = new.flags.contains(RenameFlags::IGNORE_READONLY_ATTRIBUTE);
            if replace.is_none() {
                return Err(NtStatus::OBJECT_NAME_COLLISION);
            }
            // rename(2): an empty directory makes room for a directory, and the kernel sees to it.
            let is_top = || call.core.files.shares().iter().any(|top| top.root_key() == found.key);
            if (found.is_directory && (!is_posix || is_top())) || (read_only && !ignores) {
                return Err(NtStatus::ACCESS_DENIED);
            }
            // A persistent open of it that could not be brought back yet keeps its file.
            if call.core.files.is_left_over(&self.share, found.key) {
                return Err(NtStatus::ACCESS_DENIED);
            }
            // Also of what nobody has open: it stays so.
            let victim = call.core.files.nodes.node(found.key);
            if found.has_several_names() {
                victim.lock().is_linked = true;
            }
            let name = Some((&*self.share, &located.path));
            if let Some(claimed) = evict(call, open, &victim, name).await? {
                let claimed = Some(claimed);
                let to = located.path;
                return Ok(Cleared { to, creation: None, replace, claimed, before });
            }
        }
        Err(NtStatus::ACCESS_DENIED)
    }
}

/// What has a name, whether that is marked read-only, what is remembered of it if nothing has it, who is making it.
type Look = (Located, bool, Option<Remembered>, Option<Arc<Making>>);

/// Leave to replace what has the name, if the client wants that.
pub(super) fn replacement(
    open: &Open,
    new: &Rename,
    how: Remove,
) -> Result<Option<MayRemove>, NtStatus> {
    let replaces = new.flags.contains(RenameFlags::REPLACE_IF_EXISTS);
    replaces.then(|| access::admit(open, how)).transpose()
}

/// MS-FSA §2.1.5.15.11: a name somebody has open is not taken from them, but whoever only caches
/// a handle or maps a region is asked to let go first. Nobody opens what has given way as long as it is claimed.
/// Opens by another name than `name` keep theirs. `None`: its name was just being taken, and what has it now has to be
/// looked up.
pub(super) async fn evict(
    call: &Call,
    open: &Open,
    victim: &Arc<Node>,
    name: Option<(&Share, &SharePath)>,
) -> Result<Option<Claimed>, NtStatus> {
    call.yield_caching(victim, open.owner, Intent::Unlink).await?;
    yield_streams(call, victim, open.owner).await?;
    let elsewhere = name.map(|name| opens_by_other_names(victim, name)).unwrap_or_default();
    let is_in_the_way = |region: &Region| !elsewhere.contains(&region.open_serial);
    call.recall(victim, RecallReason::RENAME_OVER, is_in_the_way).await?;
    // Who opened by the rules of POSIX keeps an open file whose name goes.
    let is_posix = open.path().naming() == Naming::Posix;
    let gives_way = |state: &NodeState, open: &OpenRecord| {
        let is_elsewhere = |(share, path)| state.is_by_another_name(open, share, path);
        (is_posix && open.path.naming() == Naming::Posix) || name.is_some_and(is_elsewhere)
    };
    let claimed = Node::claim_victim(victim, gives_way)?;
    if claimed.is_none() {
        call.wait(victim.removed()).await?;
    }
    Ok(claimed)
}

fn opens_by_other_names(victim: &Node, (share, path): (&Share, &SharePath)) -> HashSet<OpenSerial> {
    let state = victim.lock();
    let is_elsewhere = |open: &&OpenRecord| state.is_by_another_name(open, share, path);
    state.opens.iter().filter(is_elsewhere).map(|open| open.serial).collect()
}

/// How often a name is looked up that others take meanwhile.
pub(super) const ATTEMPTS_MAX: usize = 64;
