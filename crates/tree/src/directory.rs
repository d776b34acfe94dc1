//! Enumerating a directory: a cursor that survives between QUERY_DIRECTORY requests.
//!
//! The cursor streams from the kernel and holds at most one entry that did not fit the last answer,
//! so a directory of any size costs one buffer. Names that a Windows client cannot see, and
//! symbolic links whose target is missing or outside the share, are left out.
//!
//! Spec: MS-FSA §2.1.5.6.3 (directory queries).

use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags};
use tracing::debug;

use super::Share;
use super::entry::Entry;
use super::error::ShareError;
use super::extended;
use super::lookup::Reach;
use super::metadata::Metadata;
use super::name::{Naming, SharePath, is_presentable_to};
use super::pattern::{Matcher, Pattern};

/// One line of a listing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listed {
    /// The name, `.` and `..` included.
    pub name: String,
    /// The metadata of the object.
    pub metadata: Metadata,
    /// Bytes of its extended attributes, if the request asks for them.
    pub ea_size: u32,
}

/// The next step of a listing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Next {
    /// A match.
    Found(Listed),
    /// This turn has looked at enough names; there may be more.
    Paused,
    /// No further match.
    End,
}

/// How much one turn of a listing may look at.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// Names, or extended attributes of the named objects.
    pub left: usize,
    /// How far a look-up of one name goes.
    pub reach: Reach,
}

impl Looks {
    // An entry with many extended attributes counts for many.
    fn ea_size(&mut self, directory: impl AsFd, name: &str) -> u32 {
        let (size, count) = extended::size_at(directory, name);
        self.left = self.left.saturating_sub(count);
        size
    }
}

/// A position in a directory.
#[derive(Debug)]
pub struct Enumeration {
    stream: rustix::fs::Dir,
    pattern: Pattern,
    /// Present while a request lists.
    matcher: Option<Box<Matcher>>,
    stage: Stage,
    held: Option<Listed>,
    matched: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Dot,
    DotDot,
    Entries,
    Done,
}

impl Enumeration {
    /// Starts at the beginning of `directory`.
    pub fn start(directory: &Entry, pattern: Pattern) -> Result<Self, ShareError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(directory.as_fd(), ".", flags, Mode::empty())?;
        let stream = rustix::fs::Dir::new(fd)?;
        let (stage, held) = (Stage::Dot, None);
        Ok(Self { stream, pattern, matcher: None, stage, held, matched: false })
    }

    /// Returns to the beginning, with a pattern that may differ.
    pub fn restart(&mut self, pattern: Pattern) {
        self.pattern = pattern;
        self.matcher = None;
        self.stream.rewind();
        self.stage = Stage::Dot;
        self.held = None;
        self.matched = false;
    }

    /// Whether any name has matched since the beginning: distinguishes "no such file" from "no more
    /// files".
    pub fn has_matched(&self) -> bool {
        self.matched
    }

    /// Whether an entry was put back.
    pub fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Returns an entry that did not fit the answer; the next call to `next` yields it again.
    pub fn put_back(&mut self, listed: Listed) {
        self.held = Some(listed);
    }

    /// Frees memory that only listing needs.
    pub fn pause(&mut self) {
        self.matcher = None;
    }

    /// The next match. `path` is the present path of the directory, `looks` the number of names that
    /// may be looked at.
    pub fn next(
        &mut self,
        share: &Share,
        directory: &Entry,
        path: &SharePath,
        looks: &mut Looks,
    ) -> Result<Next, ShareError> {
        if let Some(held) = self.held.take() {
            return Ok(Next::Found(held));
        }
        if self.stage == Stage::Dot
            && let Some(name) = self.pattern.literal()
        {
            let only = match self.only(share, directory, path, &name, looks) {
                Err(ShareError::WouldBlock) => return Ok(Next::Paused),
                only => only.ok().flatten(),
            };
            self.stage = Stage::Done;
            return Ok(only.map_or(Next::End, Next::Found));
        }
        self.matcher.get_or_insert_with(|| Box::new(self.pattern.matcher()));
        while looks.left > 0 {
            looks.left -= 1;
            let listed = match self.stage {
                Stage::Dot => {
                    self.stage = Stage::DotDot;
                    Some(Listed {
                        name: ".".to_owned(),
                        metadata: directory.metadata()?,
                        ea_size: 0,
                    })
                }
                Stage::DotDot => {
                    self.stage = Stage::Entries;
                    let metadata = match share.locate(&path.parent())?.found {
                        Some(parent) => share.metadata_of(&parent)?,
                        None => directory.metadata()?,
                    };
                    Some(Listed { name: "..".to_owned(), metadata, ea_size: 0 })
                }
                Stage::Entries => self.advance(share, path, looks)?,
                Stage::Done => return Ok(Next::End),
            };
            if let Some(listed) = listed.filter(|listed| self.matches(&listed.name)) {
                self.matched = true;
                return Ok(Next::Found(listed));
            }
        }
        Ok(Next::Paused)
    }

    fn matches(&self, name: &str) -> bool {
        self.matcher.as_ref().is_some_and(|matcher| matcher.matches(name))
    }

    // A pattern without wildcards is one lookup, not a pass over the directory.
    fn only(
        &mut self,
        share: &Share,
        directory: &Entry,
        path: &SharePath,
        name: &str,
        looks: &mut Looks,
    ) -> Result<Option<Listed>, ShareError> {
        let listed = match name {
            "." | ".." => {
                Listed { name: name.to_owned(), metadata: directory.metadata()?, ea_size: 0 }
            }
            _ if !is_presentable_to(path.naming(), name) => return Ok(None),
            _ => {
                let located = share.locate_within(&path.join(name), looks.reach)?;
                let Some(found) = located.found else { return Ok(None) };
                let metadata = share.metadata_of(&found)?;
                let name = located.path.leaf().to_owned();
                let ea_size = looks.ea_size(directory.as_fd(), &name);
                Listed { name, metadata, ea_size }
            }
        };
        self.matched = true;
        Ok(Some(listed))
    }

    // One step of the kernel's stream; `None` for an entry that is left out and at the end.
    fn advance(
        &mut self,
        share: &Share,
        path: &SharePath,
        looks: &mut Looks,
    ) -> Result<Option<Listed>, ShareError> {
        let Some(entry) = self.stream.read() else {
            self.stage = Stage::Done;
            return Ok(None);
        };
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { return Ok(None) };
        // The pattern first: matching is cheaper than reading the inode.
        if !is_presentable_to(path.naming(), name) || !self.matches(name) {
            return Ok(None);
        }
        if path.naming() == Naming::Posix {
            return self.itself(share, name.to_owned());
        }
        let metadata = match Metadata::at(self.stream.fd()?.as_fd(), name) {
            Ok(Some(metadata)) => Some(share.as_shown(metadata)),
            Ok(None) => share
                .locate(&path.join(name))
                .ok()
                .and_then(|located| located.found)
                .and_then(|target| share.metadata_of(&target).ok()),
            Err(ShareError::SpecialFile) => share.device_at(self.stream.fd()?.as_fd(), name),
            // The name was removed after the stream was read.
            Err(ShareError::NotFound) => None,
            Err(error) => return Err(error),
        };
        if metadata.is_none() {
            debug!(name, "left out of a listing: not a file or directory of this share");
        }
        let Some(metadata) = metadata else { return Ok(None) };
        let ea_size = looks.ea_size(self.stream.fd()?.as_fd(), name);
        Ok(Some(Listed { name: name.to_owned(), metadata, ea_size }))
    }

    // The entry as a POSIX client sees it: links are links.
    fn itself(&self, share: &Share, name: String) -> Result<Option<Listed>, ShareError> {
        let metadata = match Metadata::at_itself(self.stream.fd()?.as_fd(), &name) {
            Ok(metadata) => Some(share.as_shown(metadata)),
            Err(ShareError::SpecialFile) => share.device_at(self.stream.fd()?.as_fd(), &name),
            Err(ShareError::NotFound) => None,
            Err(error) => return Err(error),
        };
        Ok(metadata.map(|metadata| Listed { name, metadata, ea_size: 0 }))
    }
}
