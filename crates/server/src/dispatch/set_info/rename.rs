//! Renaming and linking, with everything that may stand in the way.
//!
//! Spec: MS-FSA §2.1.5.15.11 (rename), §2.1.5.15.6 (link).

use std::iter;
use std::sync::Arc;

use smb::NtStatus;
use smb::info::{Rename, RenameFlags};
use smb::push::RecallReason;
use tracing::warn;

use super::given::NameToGive;
use super::{Call, stream};
use crate::access::deletion::holds_a_share;
use crate::access::{self, Add, MayRemove, Remove};
use crate::dispatch::flush;
use crate::service::Core;
use crate::share::journal::Journal;
use crate::share::{
    DosAttributes, InlineIo, Located, Naming, Remembered, Replace, SEPARATORS, Share, ShareError,
    SharePath, folded,
};
use crate::state::Open;
use crate::state::caching::Intent;
use crate::state::making::MadeBefore;
use crate::state::making::{Making, Sighting};
use crate::state::node::{Node, OpenRecord};
use crate::state::nodes::Named;
use crate::state::sharing::{Kinds, Sharing};
use crate::state::taking::{Claimed, MayRename};

/// Gives an open file another name.
pub(super) async fn rename(call: &Call, open: &Arc<Open>, new: &Rename) -> Result<(), NtStatus> {
    let leave = access::admit(open, Remove::Rename)?;
    let is_posix = open.path().naming() == Naming::Posix;
    if (new.name.starts_with(':') && !is_posix) || open.entry.is_stream() {
        return stream::rename(call, open, new, leave).await;
    }
    let mut target = Arc::new(Target::new(open, new)?);
    // A stream that somebody has open would lose its file.
    if !open.node.lock().streams.is_empty() {
        return Err(NtStatus::ACCESS_DENIED);
    }
    call.yield_caching(&open.node, open.owner, Intent::Unlink).await?;
    let core = &call.link.core;
    if open.entry.is_directory() {
        let (core, target) = (Arc::clone(core), Arc::clone(&target));
        // Everything that is open is looked at.
        let look = move || target.is_open_below(&core);
        if call.blocking(InlineIo::CachedReads, look).await? {
            return Err(NtStatus::ACCESS_DENIED);
        }
    }
    for _ in 0..ATTEMPTS_MAX {
        // Another handle may have renamed it.
        if open.path() != target.from {
            target = Arc::new(Target::new(open, new)?);
        }
        let Cleared { to, creation, replace, claimed, before } =
            target.clear(call, open, new, Adds::Renamed).await?;
        // Also a request that comes again after a lost channel: nothing is in the way, and nothing is done.
        if to == target.from {
            return Ok(());
        }
        // rename(2): a directory is not moved below itself.
        if open.entry.is_directory() && to.is_below(&target.from) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        target.enter_directory(call, &to).await?;
        // What is noted is on a disk. A file that is replaced gives back its pages, and what is below a directory
        // that is moved up is looked at for links.
        let is_noted =
            core.overlapping(&target.share).iter().any(|share| share.journal().is_some());
        let is_much = is_noted || replace.is_some() || !open.entry.is_plain();
        // What is not there in a directory that was looked at needs no look.
        let elsewhere = (to.parent() != target.from.parent()).then_some(&to);
        let names: Vec<_> = iter::once(&target.from).chain(elsewhere).collect();
        let inline = target.share.inline_by_name(&names).unless(is_much);
        let (open_too, target_too) = (Arc::clone(open), Arc::clone(&target));
        let renamed = Some((Arc::clone(open), target.from.clone()));
        let name = NameToGive { renamed, ..target.name(open, &to, before, replace) };
        let may_rename = call.wait_for_work(core.nodes.takings.may_rename()).await?;
        let renaming = Renaming {
            core: Arc::clone(core),
            open: open_too,
            target: target_too,
            to,
            creation,
            replace,
            _claimed: claimed,
            _may_rename: may_rename,
        };
        let core = Arc::clone(core);
        let work = move || name.give(&core, || renaming.carry_out(leave));
        let given = match call.changing(open, inline, work).await? {
            Err(ShareError::Exists) if target.replace.is_some() => continue,
            renamed => renamed?,
        };
        let Some(is_mapped) = given.done(call).await? else { continue };
        return flush::persist_renamed(call, open, is_mapped).await;
    }
    Err(NtStatus::ACCESS_DENIED)
}

/// A rename with nothing in its way.
struct Renaming {
    core: Arc<Core>,
    open: Arc<Open>,
    target: Arc<Target>,
    to: SharePath,
    /// See [`Cleared`].
    creation: Option<u64>,
    replace: Option<Replace>,
    _claimed: Option<Claimed>,
    _may_rename: MayRename,
}

impl Renaming {
    // Blocks. Says whether the file, or one below the directory, is mapped for push or written through.
    fn carry_out(self, leave: MayRemove) -> Result<bool, ShareError> {
        let Self { core, open, target, to, creation, .. } = &self;
        let (share, from) = (&target.share, &target.from);
        // What is open below is asked for again now that nothing more is opened there.
        if open.entry.is_directory()
            && (holds_a_share(core, share, open.node.key()) || target.is_open_below(core))
        {
            return Err(ShareError::AccessDenied);
        }
        let shares = core.overlapping(share);
        let mut logs: Vec<_> = shares.iter().filter_map(|share| share.journal()).collect();
        // The same order for everybody.
        logs.sort_by_key(|log| std::ptr::from_ref(*log).addr());
        let names: Vec<_> = logs.into_iter().map(Journal::hold_names).collect();
        let noted = self.renamed();
        // Who has it open through a share that it would leave would not find it again.
        if noted.iter().any(|named| named.moved(share, from, to).is_none()) {
            return Err(ShareError::AccessDenied);
        }
        if !names.is_empty() {
            // Noted before and not after: a crash in between leaves the file where the note says it was.
            self.note(&noted, Moves::Begin);
        }
        let renamed = share.rename(leave, from, to, open.node.key(), self.replace);
        let mut is_mapped = false;
        if renamed.is_ok() {
            // Before opens learn their new names: whoever found the old one and is not among them looks again.
            match open.entry.is_directory() {
                true => core.nodes.takings.count_all(),
                false => core.nodes.takings.count(open.node.key()),
            }
            if let Some(creation) = *creation {
                // Where it cannot be kept the file was created when it was.
                let _ = open.entry.inherit_creation(creation);
            }
            is_mapped = target.note_renamed(open, to);
            if open.entry.is_directory() {
                core.nodes.move_below(share, from, to);
                is_mapped |= core.nodes.owes_names_below(share, to);
            }
        } else if !names.is_empty() {
            self.note(&noted, Moves::End);
        }
        renamed.map(|()| is_mapped)
    }

    // Persistent opens are found again by the name they are about to get, or else by the one they have, which
    // is durable before another one is noted: of two renames a crash may take back both.
    fn note(&self, renamed: &[Named], moves: Moves) {
        for named in renamed {
            let serial = named.serial;
            let journal = named.share.journal().filter(|journal| journal.has(serial.0));
            let Some(journal) = journal else { continue };
            let (path, durable) = match moves {
                Moves::Begin => {
                    let open = named.open.upgrade();
                    let durable = open.map_or(Ok(()), |open| flush::persist_name(&open));
                    (named.moved(&self.target.share, &self.target.from, &self.to), durable)
                }
                Moves::End => (None, Ok(())),
            };
            let path = path.as_ref().unwrap_or(&named.path);
            if let Err(status) = durable {
                warn!(serial = serial.0, %status, "a crash may lose a persistent open");
            }
            if let Err(error) = journal.move_durably(serial.0, &path.to_wire()) {
                warn!(serial = serial.0, %error, "a crash will lose a persistent open");
            }
        }
    }

    // Whatever is open by the name that goes, and below a directory, which only the rules of POSIX move under
    // its opens.
    fn renamed(&self) -> Vec<Named> {
        let (open, from) = (&self.open, &self.target.from);
        let mut renamed: Vec<_> = {
            let state = open.node.lock();
            let is_named =
                |other: &&OpenRecord| other.path_in(&self.target.share).as_ref() == Some(from);
            let by_name = state.opens.iter().filter(is_named);
            by_name.map(Named::of).collect()
        };
        if open.entry.is_directory() {
            renamed.extend(self.core.nodes.open_below(&self.target.share, from));
        }
        renamed
    }
}

/// What is noted of a rename.
#[derive(Clone, Copy, Debug)]
enum Moves {
    /// It is about to be done.
    Begin,
    /// It was not done.
    End,
}

/// Gives an open file one more name.
pub(super) async fn link(call: &Call, open: &Arc<Open>, new: &Rename) -> Result<(), NtStatus> {
    let leave = access::admit(open, Add::Link)?;
    if open.entry.is_directory() {
        return Err(NtStatus::FILE_IS_A_DIRECTORY);
    }
    if open.entry.is_stream() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let target = Target::new(open, new)?;
    for _ in 0..ATTEMPTS_MAX {
        let Cleared { to, replace, claimed, before, .. } =
            target.clear(call, open, new, Adds::Link).await?;
        let (share, entry) = (Arc::clone(&target.share), Arc::clone(&open.entry));
        let (name, core) = (target.name(open, &to, before, replace), Arc::clone(&call.link.core));
        let is_much = replace.is_some() || !entry.is_plain();
        let inline = share.inline_by_name(&[&to]).unless(is_much);
        let work = move || {
            let _claimed = claimed;
            name.give(&core, || share.link(leave, &entry, &to, replace))
        };
        let given = match call.changing(open, inline, work).await? {
            Err(ShareError::Exists) if target.replace.is_some() => continue,
            linked => linked?,
        };
        if given.done(call).await?.is_some() {
            return Ok(());
        }
    }
    Err(NtStatus::ACCESS_DENIED)
}

/// Where a name is to go.
struct Target {
    share: Arc<Share>,
    from: SharePath,
    wanted: SharePath,
    /// There where what has the name may be replaced.
    replace: Option<MayRemove>,
}

/// What a name is added for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Adds {
    /// A file that loses its old one.
    Renamed,
    /// A file that keeps its old ones.
    Link,
}

/// A name that is free or may be taken.
struct Cleared {
    /// Its spelling.
    to: SharePath,
    /// What the file inherits with it; see [`Share::remembered`].
    creation: Option<u64>,
    /// What has the name, with leave to replace it.
    replace: Option<Replace>,
    /// Nobody opens that meanwhile.
    claimed: Option<Claimed>,
    /// From before it was looked up.
    before: MadeBefore,
}

impl Cleared {
    fn free(to: SharePath, creation: Option<u64>, before: MadeBefore) -> Self {
        Self { to, creation, replace: None, claimed: None, before }
    }
}

impl Target {
    fn new(open: &Open, new: &Rename) -> Result<Self, NtStatus> {
        let share = Arc::clone(open.tree.share().ok_or(NtStatus::INVALID_PARAMETER)?);
        let from = open.path();
        let wanted = match from.naming() {
            Naming::Windows => {
                SharePath::parse(new.name.strip_prefix(SEPARATORS).unwrap_or(&new.name))?
            }
            Naming::Posix => SharePath::parse_posix(&new.name)?,
        };
        if wanted.is_root() || from.is_root() {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let replace = replacement(open, new, Remove::Replace)?;
        Ok(Self { share, from, wanted, replace })
    }

    fn name(
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
    fn is_open_below(&self, core: &Core) -> bool {
        core.is_left_over_below(&self.share, &self.from)
            || core.nodes.is_open_below(&self.share, &self.from)
    }

    // Says whether the file is mapped for push.
    fn note_renamed(&self, open: &Open, to: &SharePath) -> bool {
        let mut state = open.node.lock();
        state.move_wished(&self.share, |path| (*path == self.from).then(|| to.clone()));
        for record in &mut state.opens {
            if record.path_in(&self.share).as_ref() == Some(&self.from)
                && let Some(path) = self.share.path_in(&record.share, to)
            {
                record.path = path.meant(record.path.naming());
            }
        }
        !state.regions.is_empty()
    }

    // MS-FSA §2.1.5.15.11: a name is added through an open of the directory that shares reading and
    // writing with others, and has to be admitted beside theirs.
    async fn enter_directory(&self, call: &Call, to: &SharePath) -> Result<(), NtStatus> {
        let (share, directory) = (Arc::clone(&self.share), to.parent());
        let looked_in = Arc::clone(&share);
        let look = move |reach| looked_in.locate_within(&directory, reach);
        let located = call.looking_up(&share, look).await?;
        let node = located.found.and_then(|found| call.link.core.nodes.existing(found.key));
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

    // Makes sure that the new name is free or may be taken.
    async fn clear(
        &self,
        call: &Call,
        open: &Arc<Open>,
        new: &Rename,
        adds: Adds,
    ) -> Result<Cleared, NtStatus> {
        for _ in 0..ATTEMPTS_MAX {
            let (share, wanted) = (Arc::clone(&self.share), self.wanted.clone());
            let before = call.link.core.nodes.makings.before(&folded(wanted.leaf()));
            let inherits = adds == Adds::Renamed && !open.entry.is_directory();
            let looked_in = Arc::clone(&share);
            let makings = Arc::clone(&call.link.core.nodes.makings);
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
                // The same file under another spelling: the client's spelling wins. A link changes nothing.
                let to = match adds {
                    // rename(2): two names of one file stay.
                    Adds::Renamed if is_posix && replace.is_some() => self.from.clone(),
                    Adds::Renamed => located.path.parent_with_leaf_of(&self.wanted),
                    Adds::Link => located.path,
                };
                return Ok(Cleared { to, creation: None, replace, claimed: None, before });
            }
            let ignores = new.flags.contains(RenameFlags::IGNORE_READONLY_ATTRIBUTE);
            if replace.is_none() {
                return Err(NtStatus::OBJECT_NAME_COLLISION);
            }
            // rename(2): an empty directory makes room for a directory, and the kernel sees to it.
            let is_top = || call.link.core.shares().iter().any(|top| top.root_key() == found.key);
            if (found.is_directory && (!is_posix || is_top())) || (read_only && !ignores) {
                return Err(NtStatus::ACCESS_DENIED);
            }
            // A persistent open of it that could not be brought back yet keeps its file.
            if call.link.core.is_left_over(&self.share, found.key) {
                return Err(NtStatus::ACCESS_DENIED);
            }
            // Also of what nobody has open: it stays so.
            let victim = call.link.core.nodes.node(found.key);
            if let Some(claimed) = evict(call, open, &victim).await? {
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
/// `None`: its name was just being taken, and what has it now has to be looked up.
pub(super) async fn evict(
    call: &Call,
    open: &Open,
    victim: &Arc<Node>,
) -> Result<Option<Claimed>, NtStatus> {
    call.yield_caching(victim, open.owner, Intent::Unlink).await?;
    call.recall(victim, RecallReason::RENAME_OVER, |_| true).await?;
    // Who opened by the rules of POSIX keeps an open file whose name goes.
    let is_posix = open.path().naming() == Naming::Posix;
    let gives_way = |open: &OpenRecord| is_posix && open.path.naming() == Naming::Posix;
    let claimed = Node::claim_victim(victim, gives_way)?;
    if claimed.is_none() {
        call.wait(victim.removed()).await?;
    }
    Ok(claimed)
}

/// How often a name is looked up that others take meanwhile.
pub(super) const ATTEMPTS_MAX: usize = 64;
