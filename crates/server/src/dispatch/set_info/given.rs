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
        let Self { share, path, before, renamed, .. } = self;
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
        if !claim.is_first_since(*before) && !self.is_still_free()? {
            return Ok(Given::Changed);
        }
        give().map(Given::Done)
    }

    // What may have the name has it as it is spelled here, or as it is about to lose it: by a name in another case, which it
    // may just have got by a link, it would have two.
    fn is_still_free(&self) -> Result<bool, ShareError> {
        let located = self.share.locate(&self.path)?;
        let Some(found) = located.found else { return Ok(true) };
        let loses = self.renamed.as_ref().map(|(_, from)| from);
        let is_known = located.path == self.path || Some(&located.path) == loses;
        Ok(is_known && self.may_have_it.contains(&Some(found.key)))
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

#[cfg(test)]
mod tests {
    use smb::Command;
    use smb::create::{
        AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateResponse,
        ImpersonationLevel, OplockLevel, ShareAccess,
    };
    use smb::info::FileAttributes;
    use tree::folded;

    use super::*;
    use crate::access::{MayAdd, MayRemove};
    use crate::push::tests::rig::Rig;

    /// A file of that name.
    async fn open(rig: &Rig, name: &str) -> Arc<Open> {
        let request = CreateRequest {
            oplock_level: OplockLevel::NONE,
            impersonation: ImpersonationLevel::IMPERSONATION,
            desired_access: AccessMask::FILE_GENERIC_READ | AccessMask::DELETE,
            attributes: FileAttributes::empty(),
            share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            disposition: CreateDisposition::OPEN_IF,
            options: CreateOptions::empty(),
            name: smb::Name::new(name).unwrap(),
            contexts: Vec::new(),
        };
        let opened = rig.ask(Command::CREATE, |out| request.emit(out)).await.unwrap();
        let id = CreateResponse::parse(&opened).unwrap().file_id;
        rig.session().open(id.persistent, id.volatile).unwrap()
    }

    /// The name, found free just now, for this file.
    fn found_free(rig: &Rig, open: &Open, name: &str) -> NameToGive {
        let files = &rig.core.files;
        let (share, path) = (Arc::clone(&files.shares()[0]), SharePath::parse(name).unwrap());
        let before = files.nodes.makings.before(&folded(path.leaf()));
        assert!(share.locate(&path).unwrap().found.is_none());
        let may_have_it = [Some(open.node.key()), None];
        NameToGive { share, path, before, may_have_it, renamed: None }
    }

    fn link(rig: &Rig, open: &Open, name: &NameToGive) -> Given<()> {
        let add = || name.share.link(MayAdd::TEST, &open.entry, &name.path, None);
        name.give(&rig.core.files, add).unwrap()
    }

    #[tokio::test]
    async fn a_file_gets_no_name_that_differs_in_case_alone_from_one_it_just_got() {
        let rig = Rig::new();
        let file = open(&rig, "file").await;
        let (first, second) = (found_free(&rig, &file, "name"), found_free(&rig, &file, "NAME"));
        let third = NameToGive {
            renamed: Some((Arc::clone(&file), file.path())),
            ..found_free(&rig, &file, "Name")
        };
        assert!(matches!(link(&rig, &file, &first), Given::Done(())));
        assert!(matches!(link(&rig, &file, &second), Given::Changed), "by a link");
        let rename = || unreachable!("the name is taken");
        let given = third.give::<()>(&rig.core.files, rename).unwrap();
        assert!(matches!(given, Given::Changed), "by a rename");
        let mut names: Vec<_> = std::fs::read_dir(rig.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with('.'))
            .collect();
        names.sort();
        assert_eq!(names, ["file", "name"]);
    }

    #[tokio::test]
    async fn a_file_gets_its_own_name_in_another_case_whatever_was_made_meanwhile() {
        let rig = Rig::new();
        let file = open(&rig, "file").await;
        let files = &rig.core.files;
        let (share, to) = (Arc::clone(&files.shares()[0]), SharePath::parse("FILE").unwrap());
        let before = files.nodes.makings.before(&folded("file"));
        // Counted as made: somebody claimed the name, and made nothing.
        let spot = Spot::of(&share.new_name(&to).unwrap());
        drop(files.nodes.makings.claim_name(spot, &share, &to, None).unwrap());
        let name = NameToGive {
            share: Arc::clone(&share),
            path: to.clone(),
            before,
            may_have_it: [Some(file.node.key()), None],
            renamed: Some((Arc::clone(&file), file.path())),
        };
        let rename = || share.rename(MayRemove::TEST, &file.path(), &to, file.node.key(), None);
        assert!(matches!(name.give(files, rename).unwrap(), Given::Done(())));
        assert!(rig.dir.path().join("FILE").exists() && !rig.dir.path().join("file").exists());
    }
}
