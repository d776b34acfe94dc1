//! Renaming and linking, with everything that may stand in the way.
//!
//! Spec: MS-FSA §2.1.5.15.11 (rename), §2.1.5.15.6 (link).

use std::sync::Arc;

use smb::NtStatus;
use smb::info::{Rename, RenameFlags};
use smb::push::RecallReason;
use tracing::warn;

use super::{Call, stream};
use crate::access::{self, Add, MayRemove, Remove};
use crate::dispatch::flush;
use crate::service::Core;
use crate::share::{
    DosAttributes, InlineIo, Located, Naming, Remembered, SEPARATORS, Share, ShareError, SharePath,
};
use crate::state::Open;
use crate::state::caching::Intent;
use crate::state::node::{Node, OpenRecord};
use crate::state::sharing::{Kinds, Sharing};

/// Gives an open file another name.
pub(super) async fn rename(call: &Call, open: &Arc<Open>, new: &Rename) -> Result<(), NtStatus> {
    let leave = access::admit(open, Remove::Rename)?;
    let is_posix = open.path().naming() == Naming::Posix;
    if (new.name.starts_with(':') && !is_posix) || open.entry.is_stream() {
        return stream::rename(call, open, new, leave).await;
    }
    let target = Target::new(open, new)?;
    // A stream that somebody has open would lose its file.
    if !open.node.lock().streams.is_empty() {
        return Err(NtStatus::ACCESS_DENIED);
    }
    call.yield_caching(&open.node, open.owner, Intent::Unlink).await?;
    let core = Arc::clone(&call.link.core);
    let is_directory = open.entry.is_directory();
    if is_directory && core.nodes.is_open_below(&target.share, &target.from) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let Cleared { to, creation } = target.clear(call, open, new, Adds::Renamed).await?;
    // Also a request that comes again after a lost channel: nothing is in the way, and nothing is done.
    if to == target.from {
        return Ok(());
    }
    target.enter_directory(call, &to).await?;
    // Noted before and not after: a crash in between leaves the file where the note says it was.
    write_down(call, open, Some(to.clone())).await?;
    let (share, from, key) = (Arc::clone(&target.share), target.from.clone(), open.node.key());
    let replace = target.replace;
    let inline = share.inline_by_name(&[&from, &to]);
    let renamed_to = to.clone();
    let entry = Arc::clone(&open.entry);
    let work = move || {
        share.rename(leave, &from, &renamed_to, key, replace)?;
        if let Some(creation) = creation {
            // Where it cannot be kept the file was created when it was.
            let _ = entry.inherit_creation(creation);
        }
        Ok::<_, ShareError>(())
    };
    let renamed = call.changing(open, inline, work).await.and_then(|renamed| Ok(renamed?));
    let is_mapped = renamed.is_ok() && target.note_renamed(open, &to);
    if is_directory && renamed.is_ok() {
        core.nodes.move_below(&target.share, &target.from, &to);
    }
    // Also what was opened meanwhile, and what has kept its name after all.
    write_down(call, open, None).await?;
    renamed?;
    if is_mapped || open.is_write_through() {
        // One-sided commits do not look after the name, so it is made durable before they go on.
        let open = Arc::clone(open);
        let inline = open.entry.inline_io();
        call.blocking(inline, move || flush::persist_name(&open)).await??;
    }
    Ok(())
}

// Persistent opens are found again by the name they are about to get, or else by the one they have.
async fn write_down(
    call: &Call,
    open: &Arc<Open>,
    about_to: Option<SharePath>,
) -> Result<(), NtStatus> {
    if open.tree.share().is_none_or(|share| share.journal().is_none()) {
        return Ok(());
    }
    let (open, core) = (Arc::clone(open), Arc::clone(&call.link.core));
    call.blocking(InlineIo::CachedReads, move || note_moved(&core, &open, about_to.as_ref())).await
}

// Blocks. Also what is open below a directory, which only the rules of POSIX move under its opens.
fn note_moved(core: &Core, open: &Open, about_to: Option<&SharePath>) {
    let mut names: Vec<_> = {
        let state = open.node.lock();
        let from = state.path_of(open.serial);
        let name = |other: &OpenRecord| {
            let moves = about_to.filter(|_| Some(&other.path) == from.as_ref());
            let path = moves.unwrap_or(&other.path).to_wire();
            (Arc::clone(&other.share), other.serial.0, path)
        };
        state.opens.iter().map(name).collect()
    };
    if open.entry.is_directory()
        && let Some(share) = open.tree.share()
    {
        let from = open.path();
        names.extend(core.nodes.open_below(share, &from).into_iter().map(|(serial, path)| {
            let path = about_to.map_or_else(|| path.clone(), |to| path.moved(&from, to));
            (Arc::clone(share), serial.0, path.to_wire())
        }));
    }
    for (share, serial, path) in names {
        if let Some(Err(error)) = share.journal().map(|log| log.move_durably(serial, &path)) {
            warn!(serial, %error, "a crash will lose a persistent open");
        }
    }
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
    let Cleared { to, .. } = target.clear(call, open, new, Adds::Link).await?;
    let (share, entry, replace) =
        (Arc::clone(&target.share), Arc::clone(&open.entry), target.replace);
    let inline = share.inline_by_name(&[&to]);
    Ok(call.changing(open, inline, move || share.link(leave, &entry, &to, replace)).await??)
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

    // Says whether the file is mapped for push.
    fn note_renamed(&self, open: &Open, to: &SharePath) -> bool {
        let mut state = open.node.lock();
        for record in &mut state.opens {
            if record.path == self.from && Arc::ptr_eq(&record.share, &self.share) {
                record.path = to.meant(record.path.naming());
            }
        }
        !state.regions.is_empty()
    }

    // MS-FSA §2.1.5.15.11: a name is added through an open of the directory that shares reading and
    // writing with others, and has to be admitted beside theirs.
    async fn enter_directory(&self, call: &Call, to: &SharePath) -> Result<(), NtStatus> {
        let (share, directory) = (Arc::clone(&self.share), to.parent());
        let inline = share.inline_by_name(&[&directory]);
        let work = move || share.locate(&directory);
        let located = call.blocking(inline, work).await??;
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
        let (share, wanted) = (Arc::clone(&self.share), self.wanted.clone());
        let inline = share.inline_by_name(&[&wanted]);
        let inherits = adds == Adds::Renamed && !open.entry.is_directory();
        let work = move || -> Result<(Located, bool, Option<Remembered>), ShareError> {
            let located = share.locate(&wanted)?;
            let read_only = match &located.found {
                Some(found) => {
                    let attributes = share.metadata_of(found)?.attributes;
                    attributes.contains(DosAttributes::READONLY)
                }
                None => false,
            };
            let is_free = located.found.is_none();
            let remembered =
                if is_free && inherits { share.remembered(&located.path) } else { None };
            Ok((located, read_only, remembered))
        };
        let (located, read_only, remembered) = call.blocking(inline, work).await??;
        if let Some(Remembered { path, creation }) = remembered {
            return Ok(Cleared { to: path, creation: Some(creation) });
        }
        let cleared = |to| Cleared { to, creation: None };
        let Some(found) = located.found else { return Ok(cleared(located.path)) };
        if found.key == open.node.key() {
            // The same file under another spelling: the client's spelling wins.
            return Ok(cleared(located.path.parent_with_leaf_of(&self.wanted)));
        }
        let ignores = new.flags.contains(RenameFlags::IGNORE_READONLY_ATTRIBUTE);
        if self.replace.is_none() {
            return Err(NtStatus::OBJECT_NAME_COLLISION);
        }
        // rename(2): an empty directory makes room for a directory, and the kernel sees to it.
        let is_posix = self.wanted.naming() == Naming::Posix;
        if (found.is_directory && !is_posix) || (read_only && !ignores) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        if let Some(victim) = call.link.core.nodes.existing(found.key) {
            evict(call, open, &victim).await?;
        }
        Ok(cleared(located.path))
    }
}

/// Leave to replace what has the name, if the client wants that.
pub(super) fn replacement(
    open: &Open,
    new: &Rename,
    how: Remove,
) -> Result<Option<MayRemove>, NtStatus> {
    let replaces = new.flags.contains(RenameFlags::REPLACE_IF_EXISTS);
    replaces.then(|| access::admit(open, how)).transpose()
}

// MS-FSA §2.1.5.15.11: a name somebody has open is not taken from them, but whoever only caches
// a handle or maps a region is asked to let go first.
pub(super) async fn evict(call: &Call, open: &Open, victim: &Arc<Node>) -> Result<(), NtStatus> {
    call.yield_caching(victim, open.owner, Intent::Unlink).await?;
    call.recall(victim, RecallReason::RENAME_OVER, |_| true).await?;
    // Who opened by the rules of POSIX keeps an open file whose name goes.
    let is_posix = open.path().naming() == Naming::Posix;
    let state = victim.lock();
    let gives_way = |open: &OpenRecord| is_posix && open.path.naming() == Naming::Posix;
    if state.opens.iter().all(gives_way) && state.streams.is_empty() {
        Ok(())
    } else {
        Err(NtStatus::ACCESS_DENIED)
    }
}
