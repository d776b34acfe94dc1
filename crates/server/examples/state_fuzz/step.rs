//! A step of a lockstep run: what one client asks two servers alike, and what a server makes of it.

use std::fmt;

use smb::NtStatus;
use smb::create::{CreateDisposition, LeaseState, OplockLevel};

use crate::link::Key;

/// What a client asks of one of the opens, or for a new one.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) client: usize,
    /// The open that it is about, by its place among the opens of the run, and the name it was opened by.
    pub(crate) open: usize,
    pub(crate) name: String,
    pub(crate) act: Act,
    /// What else is so when the step is taken, for the file of differences.
    pub(crate) circumstances: Vec<&'static str>,
}

/// The requests of lockstep runs.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Open(Wanted),
    Close,
    Rename { to: String, replace: bool },
    Link { to: String, replace: bool },
    Delete(bool),
    Write { offset: u64, length: u32 },
    Read { offset: u64, length: u32 },
    Size(u64),
    Attributes(u32),
    AskAttributes,
    AskStandard,
    AskStreams,
    List,
    Lock { offset: u64, length: u64, is_exclusive: bool },
    Unlock { offset: u64, length: u64 },
}

/// A CREATE.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) access: u32,
    pub(crate) share: u32,
    pub(crate) disposition: CreateDisposition,
    pub(crate) options: u32,
    pub(crate) attributes: u32,
    pub(crate) caching: Caching,
}

/// What a CREATE asks to cache.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caching {
    Nothing,
    Oplock(OplockLevel),
    Lease(Key, LeaseState),
}

/// What a server made of a step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) status: NtStatus,
    /// What it said.
    pub(crate) said: String,
    /// What clients were told to give up, in an order that does not depend on chance.
    pub(crate) breaks: Vec<String>,
}

impl Outcome {
    /// Whether two servers did alike. They may refuse for different reasons.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let both_refuse = self.status.is_error() && other.status.is_error();
        self.breaks == other.breaks
            && (both_refuse || (self.status == other.status && self.said == other.said))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if !self.said.is_empty() {
            write!(f, " {}", self.said)?;
        }
        for told in &self.breaks {
            write!(f, " ({told})")?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, open, name, act, .. } = self;
        match act {
            Act::Open(wanted) => write!(f, "client {client} opens {name} as {open}: {wanted}")?,
            Act::List => write!(f, "client {client} lists")?,
            act => write!(f, "client {client} with open {open} of {name}: {act}")?,
        }
        for circumstance in &self.circumstances {
            write!(f, " [{circumstance}]")?;
        }
        Ok(())
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let over = |replace: bool| if replace { " replacing" } else { "" };
        match self {
            Self::Open(wanted) => wanted.fmt(f),
            Self::Close => f.write_str("close"),
            Self::Rename { to, replace } => write!(f, "rename to {to}{}", over(*replace)),
            Self::Link { to, replace } => write!(f, "link to {to}{}", over(*replace)),
            Self::Delete(true) => f.write_str("delete"),
            Self::Delete(false) => f.write_str("do not delete"),
            Self::Write { offset, length } => write!(f, "write {length} at {offset}"),
            Self::Read { offset, length } => write!(f, "read {length} at {offset}"),
            Self::Size(size) => write!(f, "cut to {size}"),
            Self::Attributes(bits) => write!(f, "set attributes {bits:#x}"),
            Self::AskAttributes => f.write_str("attributes"),
            Self::AskStandard => f.write_str("facts"),
            Self::AskStreams => f.write_str("streams"),
            Self::List => f.write_str("list"),
            Self::Lock { offset, length, is_exclusive } => {
                let kind = if *is_exclusive { "exclusively" } else { "shared" };
                write!(f, "lock {length} at {offset} {kind}")
            }
            Self::Unlock { offset, length } => write!(f, "unlock {length} at {offset}"),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { access, share, disposition, options, attributes, caching } = self;
        let disposition = match *disposition {
            CreateDisposition::SUPERSEDE => "supersede",
            CreateDisposition::OPEN => "open",
            CreateDisposition::CREATE => "create",
            CreateDisposition::OPEN_IF => "open-if",
            CreateDisposition::OVERWRITE => "overwrite",
            _ => "overwrite-if",
        };
        write!(
            f,
            "{disposition} access={access:#x} share={share} options={options:#x} attributes={attributes:#x}"
        )?;
        match caching {
            Caching::Nothing => Ok(()),
            Caching::Oplock(level) => write!(f, " oplock={:#x}", level.0),
            Caching::Lease(_, state) => write!(f, " lease={}", letters(*state)),
        }
    }
}

/// Said of an open of a directory.
pub(crate) const DIRECTORY: &str = "directory";

/// A lease's state as people write it.
pub(crate) fn letters(state: LeaseState) -> String {
    let letters = [(LeaseState::READ, 'R'), (LeaseState::WRITE, 'W'), (LeaseState::HANDLE, 'H')];
    let held = letters.iter().filter(|(bit, _)| state.contains(*bit)).map(|(_, letter)| letter);
    let held: String = held.collect();
    if held.is_empty() { "-".to_owned() } else { held }
}
