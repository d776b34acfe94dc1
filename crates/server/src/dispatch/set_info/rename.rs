//! Renaming and linking, with everything that may stand in the way.
//!
//! Spec: MS-FSA §2.1.5.15.11 (rename), §2.1.5.15.6 (link).

use std::iter;
use std::sync::Arc;

use smb::NtStatus;
use smb::info::Rename;
use tracing::warn;
use tree::journal::Journal;
use tree::{InlineIo, MayWait, Naming, Replace, ShareError, SharePath};

use super::given::NameToGive;
use super::handles::yield_streams;
use super::stream;
use super::target::{ATTEMPTS_MAX, Adds, Cleared, Target};
use crate::access::deletion::holds_a_share;
use crate::access::{self, Add, MayRemove, Remove};
use crate::dispatch::call::Call;
use crate::dispatch::{flush, persist};
use crate::state::Open;
use crate::state::caching::Intent;
use crate::state::claim::Claimed;
use crate::state::files::Files;
use crate::state::lease::Owner;
use crate::state::node::OpenRecord;
use crate::state::nodes::Named;
use crate::state::taking::MayRename;
use crate::status::OrStatus as _;

/// Gives an open file another name.
pub(super) async fn rename(call: &Call, open: &Arc<Open>, new: &Rename) -> Result<(), NtStatus> {
    let leave = access::admit(open, Remove::Rename)?;
    let is_posix = open.path().naming() == Naming::Posix;
    if (new.name.starts_with(':') && !is_posix) || open.entry.is_stream() {
        return stream::rename(call, open, new, leave).await;
    }
    let mut target = Arc::new(Target::new(open, new)?);
    call.yield_caching(&open.node, open.owner, Intent::Unlink).await?;
    let files = &call.core.files;
    if open.entry.is_directory() && yield_below(call, &target, open.owner).await? {
        return Err(NtStatus::ACCESS_DENIED);
    }
    for _ in 0..ATTEMPTS_MAX {
        // Another handle may have renamed it.
        if open.path() != target.from {
            target = Arc::new(Target::new(open, new)?);
        }
        yield_streams(call, &open.node, open.owner).await?;
        // What opens of streams know of the file's name would not be true any more.
        if !open.node.lock().streams.is_empty() {
            return Err(NtStatus::ACCESS_DENIED);
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
        let is_noted = files.overlapping(&target.share).iter().any(|share| share.keeps_journal());
        let is_much = is_noted || replace.is_some() || !open.entry.is_plain();
        // What is not there in a directory that was looked at needs no look.
        let elsewhere = (to.parent() != target.from.parent()).then_some(&to);
        let names: Vec<_> = iter::once(&target.from).chain(elsewhere).collect();
        let inline = target.share.inline_by_name(&names).unless(is_much);
        let (open_too, target_too) = (Arc::clone(open), Arc::clone(&target));
        let renamed = Some((Arc::clone(open), target.from.clone()));
        let name = NameToGive { renamed, ..target.name(open, &to, before, replace) };
        let may_rename = call.wait_for_work(files.nodes.takings.may_rename()).await?;
        let renaming = Renaming {
            files: Arc::clone(files),
            open: open_too,
            target: target_too,
            to,
            creation,
            replace,
            _claimed: claimed,
            _may_rename: may_rename,
        };
        let files = Arc::clone(files);
        let work = move |may_wait| name.give(&files, || renaming.carry_out(leave, may_wait));
        let given = match call.changing_somewhere(open, inline, work).await? {
            // A share that keeps a log has come meanwhile.
            Err(ShareError::WouldBlock) => continue,
            Err(ShareError::Exists) if target.replace.is_some() => continue,
            renamed => renamed.or_status()?,
        };
        let Some(is_mapped) = given.done(call).await? else { continue };
        return flush::persist_renamed(call, open, is_mapped).await;
    }
    Err(NtStatus::ACCESS_DENIED)
}

/// A rename with nothing in its way.
struct Renaming {
    files: Arc<Files>,
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
    fn carry_out(self, leave: MayRemove, may_wait: Option<MayWait>) -> Result<bool, ShareError> {
        let Self { files, open, target, to, creation, .. } = &self;
        let (share, from) = (&target.share, &target.from);
        // What is open below is asked for again now that nothing more is opened there.
        if open.entry.is_directory()
            && (holds_a_share(&files.shares(), share, open.node.key())
                || target.is_open_below(files))
        {
            return Err(ShareError::AccessDenied);
        }
        let shares = files.overlapping(share);
        if may_wait.is_none() && shares.iter().any(|share| share.keeps_journal()) {
            return Err(ShareError::WouldBlock);
        }
        let logs: Vec<_> = may_wait.map_or_else(Vec::new, |may_wait| {
            shares.iter().filter_map(|share| share.journal(may_wait)).collect()
        });
        let _names = Journal::hold_names_of(logs.iter().copied());
        let noted = self.renamed();
        // Who has it open through a share that it would leave would not find it again.
        if noted.iter().any(|named| named.moved(share, from, to).is_none()) {
            return Err(ShareError::AccessDenied);
        }
        if !logs.is_empty() {
            // Noted before and not after: a crash in between leaves the file where the note says it was.
            self.note(&noted, Moves::Begin, may_wait);
        }
        let renamed = share.rename(leave, from, to, open.node.key(), self.replace);
        let mut is_mapped = false;
        if renamed.is_ok() {
            // Before opens learn their new names: whoever found the old one and is not among them looks again.
            match open.entry.is_directory() {
                true => files.nodes.takings.count_all(),
                false => files.nodes.takings.count(open.node.key()),
            }
            if let Some(creation) = *creation {
                // Where it cannot be kept the file was created when it was.
                let _ = open.entry.inherit_creation(creation);
            }
            open.entry.note_renamed(leave);
            is_mapped = target.note_renamed(open, to);
            if open.entry.is_directory() {
                files.nodes.move_below(share, from, to);
                is_mapped |= files.nodes.owes_names_below(share, to);
            }
        } else if !logs.is_empty() {
            self.note(&noted, Moves::End, may_wait);
        }
        renamed.map(|()| is_mapped)
    }

    // Persistent opens are found again by the name they are about to get, or else by the one they have, which
    // is durable before another one is noted: of two renames a crash may take back both. One wait for the disk for each log.
    fn note(&self, renamed: &[Named], moves: Moves, may_wait: Option<MayWait>) {
        let Some(may_wait) = may_wait else { return };
        let mut renamed: Vec<&Named> = renamed.iter().collect();
        renamed.sort_by_key(|named| Arc::as_ptr(&named.share));
        for of_share in renamed.chunk_by(|one, other| Arc::ptr_eq(&one.share, &other.share)) {
            let Some(journal) = of_share[0].share.journal(may_wait) else { continue };
            let noted = of_share.iter().filter(|named| journal.has(named.serial.0));
            let news: Vec<(u64, String)> = noted
                .map(|named| (named.serial.0, self.name_to_note(named, moves).to_wire()))
                .collect();
            if let Err(error) = journal.move_all_durably(&news) {
                let (count, first) = (news.len(), news.first());
                warn!(count, ?first, %error, "a crash will lose persistent opens");
            }
        }
    }

    fn name_to_note(&self, named: &Named, moves: Moves) -> SharePath {
        let to = match moves {
            Moves::Begin => {
                let open = named.open.upgrade();
                let durable = open.map_or(Ok(()), |open| persist::persist_name(&open));
                if let Err(status) = durable {
                    let serial = named.serial.0;
                    warn!(serial, %status, "a crash may lose a persistent open");
                }
                named.moved(&self.target.share, &self.target.from, &self.to)
            }
            Moves::End => None,
        };
        to.unwrap_or_else(|| named.path.clone())
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
            renamed.extend(self.files.nodes.open_below(&self.target.share, from));
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
        let (name, files) = (target.name(open, &to, before, replace), Arc::clone(&call.core.files));
        let is_much = replace.is_some() || !entry.is_plain();
        let inline = share.inline_by_name(&[&to]).unless(is_much);
        let work = move || {
            let _claimed = claimed;
            name.give(&files, || share.link(leave, &entry, &to, replace))
        };
        let given = match call.changing(open, inline, work).await? {
            Err(ShareError::Exists) if target.replace.is_some() => continue,
            linked => linked.or_status()?,
        };
        if given.done(call).await?.is_some() {
            return Ok(());
        }
    }
    Err(NtStatus::ACCESS_DENIED)
}

/// Asks for the handles of what is below a directory that is about to be moved, and waits until they are given back or
/// taken. Whether anything is open there then: a client uses it, or has opened it meanwhile.
async fn yield_below(call: &Call, target: &Arc<Target>, by: Owner) -> Result<bool, NtStatus> {
    // Everything that is open is looked at.
    let (files, below) = (Arc::clone(&call.core.files), Arc::clone(target));
    let ask = move || below.begin_breaks_below(&files, by);
    for node in call.blocking(InlineIo::CachedReads, ask).await? {
        call.yield_caching(&node, by, Intent::Unlink).await?;
    }
    let (files, below) = (Arc::clone(&call.core.files), Arc::clone(target));
    call.blocking(InlineIo::CachedReads, move || below.is_open_below(&files)).await
}
