//! Giving a name that was found free: nobody makes it meanwhile, nor one that differs in case alone; nobody else
//! renames the file or opens a stream of it, nor moves a directory above its old name or the new one.
//!
//! The kernel sees to it that a name is given once as it is written, and no more than that. What opens know of their
//! names follows the disk in a second step, which belongs to the first.
//!
//! Spec: MS-FSA §2.1.5.1 (names are compared ignoring case), §2.1.5.15.11 (rename).

use std::sync::Arc;

use smb::NtStatus;
use tree::{FileKey, Share, ShareError, SharePath};

use crate::dispatch::call::Call;
use crate::state::Open;
use crate::state::files::Files;
use crate::state::making::{MadeBefore, Making, Renames, Spot};
use crate::state::node::Node;
use crate::state::wish::Stays;

/// A name that is about to be given.
pub(super) struct NameToGive {
    pub(super) share: Arc<Share>,
    pub(super) path: SharePath,
    /// From before it was looked up.
    pub(super) before: MadeBefore,
    /// What may have it already: what gets it, and what loses it.
    pub(super) may_have_it: [Option<FileKey>; 2],
    /// The open whose file loses the name that it has had.
    pub(super) renamed: Option<(Arc<Open>, SharePath)>,
}

/// What giving a name came to.
pub(super) enum Given<T> {
    Done(T),
    /// Somebody is just making it.
    Making(Arc<Making>),
    /// A directory above is being moved.
    Moving {
        share: Arc<Share>,
        path: SharePath,
    },
    /// The directory that it would be in is to go.
    Refused,
    /// That is being removed.
    Going(Arc<Node>),
    /// Something has got it since it was looked up, or the file has another name by now, or an open stream.
    Changed,
}

impl NameToGive {
    /// Gives the name by `give`, if it is still free. Blocks.
    pub(super) fn give<T>(
        &self,
        files: &Files,
        give: impl FnOnce() -> Result<T, ShareError>,
    ) -> Result<Given<T>, ShareError> {
        let Self { share, path, before, may_have_it, renamed } = self;
        let (makings, takings) = (&files.nodes.makings, &files.nodes.takings);
        let new_name = share.new_name(path)?;
        let spot = Spot::of(&new_name);
        let renames = renamed
            .as_ref()
            .map(|(open, from)| Renames { file: open.node.key(), from: from.clone() });
        let claim = match makings.claim_name(spot, share, path, renames) {
            Ok(claim) => claim,
            Err(making) => return Ok(Given::Making(making)),
        };
        let directory = renamed.as_ref().filter(|(open, _)| open.entry.is_directory());
        let _moving = directory.map(|(_, from)| takings.begin_move(share, from));
        // Behind the note of its own directory: see `state::making`.
        for path in [Some(path), renamed.as_ref().map(|(_, from)| from)].into_iter().flatten() {
            if takings.is_moving(share, path) {
                return Ok(Given::Moving { share: Arc::clone(share), path: path.clone() });
            }
        }
        // Streams of a file that is claimed are not opened: see `dispatch::create::stream`.
        let has_changed = |(open, from): &(Arc<Open>, SharePath)| {
            open.path() != *from || !open.node.lock().streams.is_empty()
        };
        if renamed.as_ref().is_some_and(has_changed) {
            return Ok(Given::Changed);
        }
        // Asked with the name claimed: see `super::stays_empty`.
        if let Some(above) = files.nodes.existing(new_name.parent_key()) {
            let stays = above.lock().stays(share, &path.parent());
            match stays {
                Stays::Yes => {}
                Stays::No => return Ok(Given::Refused),
                Stays::Unknown => return Ok(Given::Going(above)),
            }
        }
        if let Some((_, from)) = directory {
            makings.finish_below(share, from);
        }
        if !claim.is_first_since(*before)
            && let Some(found) = share.locate(path)?.found
            && !may_have_it.contains(&Some(found.key))
        {
            return Ok(Given::Changed);
        }
        give().map(Given::Done)
    }
}

impl<T> Given<T> {
    /// What it came to, if it was given; else returns when it is worth another look.
    pub(super) async fn done(self, call: &Call) -> Result<Option<T>, NtStatus> {
        match self {
            Self::Done(done) => return Ok(Some(done)),
            Self::Making(making) => call.wait_for_work(making.settled(None)).await?,
            Self::Moving { share, path } => {
                let takings = &call.core.files.nodes.takings;
                call.wait_for_work(takings.settled(&share, &path)).await?;
            }
            Self::Refused => return Err(NtStatus::DELETE_PENDING),
            Self::Going(directory) => call.wait(directory.removed()).await?,
            Self::Changed => {}
        }
        Ok(None)
    }
}
