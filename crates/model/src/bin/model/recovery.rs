//! What a client does after the loss of its connection: it logs on again, and finds out what
//! happened.
//!
//! The logon names the earlier session of the client. MS-SMB2 §3.3.5.5.3 ends that session first, so
//! once the logon is answered, each unanswered request has taken effect or never will, opens that may
//! be reclaimed wait for the client, and those that may not block nobody. The client waits for none
//! of this.

use std::time::{Duration, Instant};

use smb::create::AccessMask;
use smb::create::{CreateDisposition, CreateResponseContext, ShareAccess};
use smb::{Command, CreateResponse, HeaderFlags, NtStatus};

use crate::ask::{self, Kind, SHARES_ALL};
use crate::client::{Client, Handle};
use crate::directories::Listing;
use crate::link::Lost;
use crate::names;
use crate::worlds::Tree;

impl Client<'_> {
    /// Records the loss; false if the client cannot go on.
    pub(crate) fn lost(&mut self, lost: Lost) -> bool {
        match lost {
            Lost::Connection => {
                self.counts.losses += 1;
                true
            }
            Lost::Fault(why) => {
                self.fault(why);
                false
            }
        }
    }

    /// Reconnects; false if that is impossible.
    pub(crate) fn recover(&mut self) -> bool {
        self.disconnect();
        let patience = Instant::now() + PATIENCE;
        let cuts = self.cuts;
        for attempt in 0.. {
            // The connection is cut during recovery as well, but not for ever.
            self.cuts = cuts && attempt < CUT_ATTEMPTS;
            let recovered = self.try_recover();
            self.cuts = cuts;
            match recovered {
                Ok(()) => return true,
                Err(Lost::Connection) if Instant::now() < patience => {
                    std::thread::sleep(PAUSE);
                }
                Err(Lost::Connection) => {
                    self.fault("the server does not come back");
                    return false;
                }
                Err(Lost::Fault(why)) => {
                    self.fault(why);
                    return false;
                }
            }
        }
        false
    }

    fn try_recover(&mut self) -> Result<(), Lost> {
        self.connect()?;
        for path in self.handles.keys().cloned().collect::<Vec<_>>() {
            self.take_back(&path)?;
        }
        if let Some(wish) = self.opening.clone() {
            if wish.kind == Kind::Plain {
                self.opening = None;
            } else {
                self.counts.replays += 1;
                if self.open(&wish, true)? == NtStatus::FILE_NOT_AVAILABLE {
                    self.fault(format!("{wish:?} is still under way"));
                }
            }
        }
        if let Some((path, sequence, range, take)) = self.locking.clone() {
            let status = self.send_lock((path.clone(), sequence, range, take))?;
            self.locking = None;
            let may = [NtStatus::SUCCESS, NtStatus::LOCK_NOT_GRANTED];
            if !may.contains(&status) {
                self.refused(status, format!("LOCK of {path}, once more: {status:?}"));
            }
        }
        self.settle()?;
        self.publish(&names::contents(self.number));
        Ok(())
    }

    fn take_back(&mut self, path: &str) -> Result<(), Lost> {
        let Some(mut handle) = self.handles.get(path).cloned() else { return Ok(()) };
        if handle.wish.kind == Kind::Plain {
            self.handles.remove(path);
            return Ok(());
        }
        let is_closing = self.closing.as_deref() == Some(path);
        let status = self.ask_back(path, &mut handle)?;
        self.note(format_args!("{path} asked back: {status:?}"));
        match (status, handle.wish.kind) {
            (NtStatus::SUCCESS, kind) => {
                match kind {
                    Kind::Persistent => self.counts.back_persistent += 1,
                    _ => self.counts.back_durable += 1,
                }
                self.counts.back_locks += ask::wide(handle.locks.len());
                self.handles.insert(path.to_owned(), handle);
            }
            (NtStatus::OBJECT_NAME_NOT_FOUND, Kind::Durable) => {
                self.counts.given_up += 1;
                self.handles.remove(path);
            }
            (NtStatus::OBJECT_NAME_NOT_FOUND, _) if is_closing => {
                self.handles.remove(path);
            }
            (status, _) => {
                self.fault(format!("{path} does not come back: {status:?} ({handle:?})"));
                self.handles.remove(path);
            }
        }
        if is_closing {
            self.closing = None;
        }
        Ok(())
    }

    fn ask_back(&mut self, path: &str, handle: &mut Handle) -> Result<NtStatus, Lost> {
        let moved = self.moving.clone().filter(|(from, _)| from == path).map(|(_, to)| to);
        let mut status = NtStatus::SUCCESS;
        for name in std::iter::once(path.to_owned()).chain(moved) {
            let request = handle.wish.back(handle.id, &name);
            let (header, pdu) =
                self.ask(Command::CREATE, HeaderFlags::empty(), |out| request.emit(out))?;
            status = header.status;
            if status == NtStatus::SUCCESS
                && let Ok(response) = CreateResponse::parse(&pdu)
            {
                handle.id = response.file_id;
            }
            // A lease is reclaimed under the file's own name only.
            if status != NtStatus::INVALID_PARAMETER {
                break;
            }
        }
        Ok(status)
    }

    /// Looks at all files, as soon as no visitor is in the way. They must look as in one of the
    /// worlds, which is the world from then on.
    pub(crate) fn settle(&mut self) -> Result<(), Lost> {
        let patience = Instant::now() + PATIENCE_WITH_VISITORS;
        let seen = loop {
            if let Some(seen) = self.look_around()? {
                break seen;
            }
            if Instant::now() > patience {
                let why = self.in_the_way.take();
                self.fault(format!("a file that nobody keeps cannot be looked at: {why:?}"));
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        };
        self.counts.compared += 1;
        let lengths: Vec<_> = seen.iter().map(|(path, content)| (path, content.len())).collect();
        self.note(format_args!("there is {lengths:?}"));
        if let Err(difference) = self.worlds.look(&seen) {
            self.fault(format!("after a loss: {difference}"));
        }
        self.dying.clear();
        if let Some((from, to)) = self.moving.take()
            && !seen.contains_key(&from)
        {
            self.moved(&from, &to);
        }
        Ok(())
    }

    // `None`: a visitor is in the way.
    fn look_around(&mut self) -> Result<Option<Tree>, Lost> {
        let mut tree = Tree::new();
        let Some(listing) = self.listing()? else { return Ok(None) };
        for (path, _) in &listing {
            if names::is_directory(path) {
                tree.insert(path.clone(), Vec::new());
            } else if !self.look_at(path, &listing, &mut tree)? {
                return Ok(None);
            }
        }
        Ok(Some(tree))
    }

    // A file and its streams, or a stream. False: a visitor is in the way.
    fn look_at(&mut self, path: &str, listing: &Listing, tree: &mut Tree) -> Result<bool, Lost> {
        // A handle has moved with its file; a file that was to be replaced and still exists has no
        // handle any more.
        let is_there = |name: &String| listing.iter().any(|(path, _)| path == name);
        let moving = self.moving.clone().filter(|(from, to)| to == path && !is_there(from));
        let key = moving.map_or_else(|| path.to_owned(), |(from, _)| from);
        let handle = self.handles.get(path).or_else(|| self.handles.get(&key));
        let kept = handle.map(|handle| handle.id);
        let id = match kept {
            Some(id) => id,
            None => {
                // A client that still has the file open without sharing decides whether the file
                // goes.
                let is_dying = self.dying.contains(path);
                let shares = if is_dying { ShareAccess::empty() } else { SHARES_ALL };
                let access = AccessMask::FILE_GENERIC_READ;
                let request = ask::create(path, access, shares, CreateDisposition::OPEN);
                match self.create(&request)? {
                    Ok(id) => id,
                    Err(status) => {
                        self.in_the_way = Some((path.to_owned(), status));
                        return Ok(false);
                    }
                }
            }
        };
        let content = self.content(id, path)?;
        let streams = match names::is_stream(path) || !self.has_streams() {
            true => Vec::new(),
            false => self.streams(id, path)?,
        };
        if kept.is_none() {
            self.close_id(id)?;
        }
        let Some(content) = content else {
            self.in_the_way = Some((path.to_owned(), NtStatus::FILE_LOCK_CONFLICT));
            return Ok(false);
        };
        tree.insert(path.to_owned(), content);
        for (stream, _) in streams {
            if !self.look_at(&stream, listing, tree)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// How an open was granted.
pub(crate) fn granted(response: &CreateResponse<'_>) -> Kind {
    let durable = response.contexts.iter().find_map(|context| match context {
        CreateResponseContext::DurableV2 { persistent: true, .. } => Some(Kind::Persistent),
        CreateResponseContext::DurableV2 { .. } => Some(Kind::Durable),
        _ => None,
    });
    durable.unwrap_or(Kind::Plain)
}

/// How long a server may take to start again.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long visitors of a file may be in the way: the server may not know yet that a visitor is
/// gone.
const PATIENCE_WITH_VISITORS: Duration = Duration::from_secs(60);
/// How often the connection is cut again during recovery.
const CUT_ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(20);
