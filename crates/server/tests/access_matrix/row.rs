//! A row of the table: something to ask of an open file, the rights that it takes, and what it changes.

use std::sync::Arc;

use smb::create::AccessMask;
use smb::{Command, FileId};

use crate::disk::Change;
use crate::people::Entry;

/// Something to ask of an open.
pub(crate) struct Row {
    pub(crate) name: String,
    /// What the open is of.
    pub(crate) on: On,
    pub(crate) needs: Needs,
    /// Rights with which alone servers may do it too, though the specification does not say so.
    pub(crate) lax: AccessMask,
    /// A store need not be able to do it; but it must not do it without the rights.
    pub(crate) is_optional: bool,
    /// It takes the right to add names to the share, beyond what the open was granted.
    pub(crate) adds: bool,
    /// What it changes on the disk: all of this, and nothing else.
    pub(crate) changes: Vec<Change<'static>>,
    /// What it may change in addition.
    pub(crate) may_change: Vec<Change<'static>>,
    pub(crate) partner: Option<Partner>,
    /// Tried with all rights there are alone: of such rows there are hundreds.
    pub(crate) is_brief: bool,
    pub(crate) command: Command,
    pub(crate) body: Body,
}

/// Writes the request behind its header.
pub(crate) type Body = Arc<dyn Fn(&Asked, &mut Vec<u8>) + Send + Sync>;

/// What a request may speak of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The open that is asked.
    pub(crate) id: FileId,
    /// Another open, where the row has a partner.
    pub(crate) other: FileId,
    /// The resume key of the source of a copy.
    pub(crate) key: [u8; 24],
}

/// What is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum On {
    /// `f`, an ordinary file.
    File,
    /// `d`, an empty directory.
    Directory,
    /// `f:s`, a stream of `f`.
    Stream,
    /// `r`, a file with the attribute READONLY.
    ReadOnly,
    /// `f`, by the rules of the POSIX extensions.
    Posix,
    /// `p`, an empty file, by the rules of the POSIX extensions.
    PosixEmpty,
    /// The top directory of the share.
    Root,
}

impl On {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::File | Self::Posix => "f",
            Self::Directory => "d",
            Self::Stream => "f:s",
            Self::ReadOnly => "r",
            Self::PosixEmpty => "p",
            Self::Root => "",
        }
    }

    pub(crate) fn is_posix(self) -> bool {
        matches!(self, Self::Posix | Self::PosixEmpty)
    }

    /// The most that somebody is granted who may enter the share.
    pub(crate) fn most(self, entry: Entry) -> AccessMask {
        match self {
            // MS-FSA §2.1.5.1.2: no data of a read-only file is written.
            Self::ReadOnly => entry.rights() - (AccessMask::WRITE_DATA | AccessMask::APPEND_DATA),
            _ => entry.rights(),
        }
    }
}

/// The rights that a request takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Needs {
    /// An open.
    Nothing,
    /// One of these.
    Any(AccessMask),
    /// All of these.
    All(AccessMask),
    /// It is refused to everybody.
    Never,
}

/// Another file that the same person opens: `v`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Partner {
    /// It is read, and the file of the cell is written.
    Source,
    /// It is written, and the file of the cell is read.
    Target,
}

/// What the table says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    Yes,
    No,
    /// Either; but what is refused changes nothing, and what is not works.
    Open,
}

impl Row {
    pub(crate) fn new(
        name: impl Into<String>,
        on: On,
        needs: Needs,
        command: Command,
        body: impl Fn(&Asked, &mut Vec<u8>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            on,
            needs,
            lax: AccessMask::empty(),
            is_optional: false,
            adds: false,
            changes: Vec::new(),
            may_change: Vec::new(),
            partner: None,
            is_brief: false,
            command,
            body: Arc::new(body),
        }
    }

    pub(crate) fn lax(self, lax: AccessMask) -> Self {
        Self { lax, ..self }
    }

    pub(crate) fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    pub(crate) fn adds(self) -> Self {
        Self { adds: true, ..self }
    }

    pub(crate) fn changes(self, changes: &[Change<'static>]) -> Self {
        Self { changes: changes.to_vec(), ..self }
    }

    pub(crate) fn may_change(self, may_change: &[Change<'static>]) -> Self {
        Self { may_change: may_change.to_vec(), ..self }
    }

    pub(crate) fn briefly(self) -> Self {
        Self { is_brief: true, ..self }
    }

    pub(crate) fn partner(self, partner: Partner) -> Self {
        Self { partner: Some(partner), ..self }
    }

    /// What the table says of an open with these rights. `None`: there is none.
    pub(crate) fn verdict(&self, granted: Option<AccessMask>, entry: Entry) -> Verdict {
        let Some(granted) = granted else { return Verdict::No };
        if (self.adds || self.partner.is_some()) && entry != Entry::All {
            return Verdict::No;
        }
        let suffices = match self.needs {
            Needs::Nothing => true,
            Needs::Any(rights) => granted.intersects(rights),
            Needs::All(rights) => granted.contains(rights),
            Needs::Never => false,
        };
        match (suffices, self.is_optional) {
            (true, false) => Verdict::Yes,
            (true, true) => Verdict::Open,
            (false, _) if granted.intersects(self.lax) => Verdict::Open,
            (false, _) => Verdict::No,
        }
    }

    /// Whether what happened on the disk is what the row says of a request that was carried out.
    pub(crate) fn explains(&self, happened: &[Change<'_>]) -> bool {
        explains(&self.changes, &self.may_change, happened)
    }
}

/// Whether all of `wanted` has happened, and beside that only what may or has to come with it: a
/// directory changes with its names, and a file with what it holds.
pub(crate) fn explains(
    wanted: &[Change<'_>],
    allowed: &[Change<'_>],
    happened: &[Change<'_>],
) -> bool {
    let is_there = |change: &Change<'_>| happened.contains(change);
    // Where a server keeps streams in attributes of their file, those change instead.
    let is_stream = |change: &Change<'_>| {
        *change == Change::Contents(crate::disk::STREAMS) && is_there(&Change::Facts("f"))
    };
    let comes_along = |change: &Change<'_>| match *change {
        Change::Facts("") => true,
        Change::Facts(name) => wanted.iter().chain(allowed).any(|wanted| match *wanted {
            Change::Contents(crate::disk::STREAMS) => name == "f",
            wanted => wanted.name() == name,
        }),
        _ => false,
    };
    wanted.iter().all(|change| is_there(change) || is_stream(change))
        && happened.iter().all(|change| {
            wanted.contains(change) || allowed.contains(change) || comes_along(change)
        })
}
