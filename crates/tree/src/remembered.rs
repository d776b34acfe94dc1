//! Facts that a file inherits from an earlier file of its name: see [`super::tunnel`].

use std::os::fd::OwnedFd;

use super::Share;
use super::inode::{FileKey, identify};
use super::lookup::Reach;
use super::metadata::Metadata;
use super::name::{Naming, SharePath};
use super::pattern::folded;
use super::tunnel::{Gone, Meaning};

/// The facts that a file inherits from the earlier file of its name.
#[derive(Debug)]
pub struct Remembered {
    /// Its path.
    pub path: SharePath,
    /// Its creation time, as a FILETIME.
    pub creation: u64,
}

impl Share {
    /// The facts that a file which is about to get the free name `path` inherits from an earlier
    /// one. The first caller gets them.
    pub fn remembered(&self, path: &SharePath) -> Option<Remembered> {
        let now = self.environment.clock.now();
        let name = folded(path.leaf());
        if path.naming() != Naming::Windows || !self.tunnel.knows(&name, now) {
            return None;
        }
        let (parent, _) = identify(self.parent_of(path).ok()?).ok()?;
        let Meaning { long, creation } = self.tunnel.take(parent, &name, now)?;
        let back = long.map(|long| path.parent().join(&long));
        // Unless the name was taken meanwhile. The caller has just looked for a name there: the directory's names
        // are few or known, or two of them differ in case only.
        let is_free = |back: &SharePath| {
            let there = self.locate_within(back, Reach::FewNames);
            there.is_ok_and(|there| there.found.is_none())
        };
        let path = back.filter(is_free).unwrap_or_else(|| path.clone());
        Some(Remembered { path, creation })
    }

    /// The facts to keep of a file before its name is removed; `None` if it is not to be
    /// remembered.
    pub(super) fn going(&self, parent: &OwnedFd, path: &SharePath) -> Option<Going> {
        if path.naming() != Naming::Windows {
            return None;
        }
        let file = Metadata::at(parent, path.leaf()).ok()??;
        let (parent, _) = identify(parent).ok()?;
        Some(Going {
            parent,
            file: file.key,
            creation: file.creation,
            is_directory: file.is_directory,
        })
    }

    /// Keeps the facts after the name was removed.
    pub(super) fn remember(&self, going: Option<Going>, path: &SharePath) {
        let Some(Going { parent, file, creation, is_directory }) = going else { return };
        if is_directory {
            self.tunnel.forget_below(file);
            return;
        }
        let (name, long) = match path.short_name() {
            Some(short) => (short, Some(path.leaf().to_owned())),
            None => (path.leaf().to_owned(), None),
        };
        let gone = Gone { parent, long, creation, spent: false };
        self.tunnel.keep(&folded(&name), gone, self.environment.clock.now());
    }
}

/// A name that is about to be removed.
#[derive(Debug)]
pub(super) struct Going {
    parent: FileKey,
    file: FileKey,
    creation: u64,
    is_directory: bool,
}
