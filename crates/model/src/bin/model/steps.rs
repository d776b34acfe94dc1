//! The steps of a client: each does one thing.

use smb::create::{AccessMask, CreateDisposition, CreateOptions, LeaseState, OplockLevel};
use smb::create::{CreateRequestContext, ShareAccess};
use smb::info::{FileInfoClass, Rename, RenameFlags};
use smb::{
    CloseRequest, Command, CreateResponse, FileId, FlushRequest, HeaderFlags, Name, NtStatus,
    ReadResponse,
};

use crate::ask::{self, Body, SHARES_ALL};
use crate::client::Client;
use crate::link::Lost;
use crate::names;
use crate::public::Range;
use crate::worlds::{Change, compare};

impl Client<'_> {
    /// Does one random step.
    pub(crate) fn step(&mut self) -> Result<(), Lost> {
        match self.random.below(100) {
            0..15 => {
                let path = self.some_path();
                if self.handles.contains_key(&path) {
                    return self.open_twice(&path);
                }
                let wish = self.wish(path);
                if wish.empties() {
                    // The streams go with the file, open or not.
                    self.close_streams(&wish.path)?;
                }
                self.open(&wish, false).map(drop)
            }
            15..40 => self.write(),
            40..52 => self.read(),
            52..57 => self.resize(),
            57..65 => self.lock(),
            65..71 => self.unlock(),
            71..75 => self.list(),
            75..79 => self.remove(),
            79..84 => self.rename(),
            84..86 => self.flush(),
            86..89 => match self.some_handle() {
                Some((path, _)) => self.close(&path),
                None => Ok(()),
            },
            89..92 => self.work_on_directories(),
            93 => self.change_channels(),
            92 if self.has_streams() => self.compare_streams(),
            _ => self.visit(),
        }
    }

    fn write(&mut self) -> Result<(), Lost> {
        let Some((path, handle)) = self.some_handle() else { return Ok(()) };
        let (offset, len) = (self.random.below(48 << 10), 1 + self.random.below(16 << 10));
        let data = self.random.bytes(len);
        let (at, length) = (ask::wide(offset), ask::wide(len));
        let is_shared = |lock: &Range| !lock.exclusive && lock.overlaps(at, length);
        let is_refused = handle.locks.iter().any(is_shared);
        let change = Change::Write { path: path.clone(), offset, data: data.clone() };
        let body = Body::Write { id: handle.id, offset, data: &data };
        let status = self.change(&change, Command::WRITE, &body)?;
        match status {
            NtStatus::SUCCESS if is_refused => {
                self.fault(format!("{path} was written at {offset} under a shared lock"));
            }
            NtStatus::SUCCESS | NtStatus::FILE_LOCK_CONFLICT => {}
            status => self.refused(status, format!("WRITE to {path}: {status:?}")),
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Lost> {
        let Some((path, handle)) = self.some_handle() else { return Ok(()) };
        let Some(seen) = self.content(handle.id, &path)? else { return Ok(()) };
        let tree = self.worlds.tree();
        let difference = match tree.get(&path) {
            Some(expected) => compare(expected, &seen),
            None => Some("it has a handle and should not be there".to_owned()),
        };
        self.counts.compared += 1;
        if let Some(difference) = difference {
            self.fault(format!("{path} was read: {difference}"));
        }
        Ok(())
    }

    /// The content of a file; `None` if another client has locked it.
    pub(crate) fn content(&mut self, id: FileId, path: &str) -> Result<Option<Vec<u8>>, Lost> {
        let (header, pdu) = self.ask_body(Command::READ, HeaderFlags::empty(), &Body::Read(id))?;
        Ok(match header.status {
            NtStatus::SUCCESS => ReadResponse::parse(&pdu).ok().map(|read| read.data.to_vec()),
            NtStatus::END_OF_FILE => Some(Vec::new()),
            NtStatus::FILE_LOCK_CONFLICT => None,
            status => {
                self.fault(format!("READ of {path}: {status:?}"));
                None
            }
        })
    }

    fn resize(&mut self) -> Result<(), Lost> {
        let Some((path, handle)) = self.some_handle() else { return Ok(()) };
        let len = self.random.below(64 << 10);
        let buffer = ask::wide(len).to_le_bytes();
        let change = Change::Resize { path: path.clone(), len };
        let request = ask::set(handle.id, FileInfoClass::END_OF_FILE, &buffer);
        let status = self.change(&change, Command::SET_INFO, &Body::of(|out| request.emit(out)))?;
        if status != NtStatus::SUCCESS {
            self.refused(status, format!("{path} cannot be cut or grown to {len}: {status:?}"));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Lost> {
        let Some((path, handle)) = self.some_handle() else { return Ok(()) };
        let request = FlushRequest { file_id: handle.id };
        let (header, _) =
            self.ask(Command::FLUSH, HeaderFlags::empty(), |out| request.emit(out))?;
        if header.status != NtStatus::SUCCESS {
            self.fault(format!("FLUSH of {path}: {:?}", header.status));
        }
        Ok(())
    }

    fn lock(&mut self) -> Result<(), Lost> {
        let Some((path, handle)) = self.some_handle() else { return Ok(()) };
        if handle.locks.len() >= LOCKS_MAX {
            return Ok(());
        }
        let offset = ask::wide(self.random.below(12) * 6_000);
        let length = 1 + self.random.next() % 9_000;
        let range = Range { offset, length, exclusive: self.random.one_in(2) };
        let status = self.lock_or_unlock(&path, range, true)?;
        let clashes = handle.locks.iter().any(|held| held.excludes(&range));
        match status {
            NtStatus::SUCCESS if clashes => {
                self.fault(format!("{path}: {range:?} beside {:?}", handle.locks));
            }
            NtStatus::SUCCESS | NtStatus::LOCK_NOT_GRANTED => {}
            status => self.refused(status, format!("LOCK of {path}: {status:?}")),
        }
        Ok(())
    }

    fn unlock(&mut self) -> Result<(), Lost> {
        let held = self.handles.iter().find(|(_, handle)| !handle.locks.is_empty());
        let Some((path, range)) = held.map(|(path, handle)| (path.clone(), handle.locks[0])) else {
            return Ok(());
        };
        let status = self.lock_or_unlock(&path, range, false)?;
        if status != NtStatus::SUCCESS {
            self.fault(format!("{path}: {range:?} cannot be given back: {status:?}"));
        }
        Ok(())
    }

    /// Sends LOCK for a range of a handle, and handles the answer.
    pub(crate) fn lock_or_unlock(
        &mut self,
        path: &str,
        range: Range,
        take: bool,
    ) -> Result<NtStatus, Lost> {
        let Some(handle) = self.handles.get_mut(path) else { return Ok(NtStatus::SUCCESS) };
        let sequence = handle.next_sequence();
        self.send_lock((path.to_owned(), sequence, range, take))
    }

    pub(crate) fn send_lock(
        &mut self,
        (path, sequence, range, take): (String, u32, Range, bool),
    ) -> Result<NtStatus, Lost> {
        let Some(handle) = self.handles.get_mut(&path) else { return Ok(NtStatus::SUCCESS) };
        let request = ask::lock(handle.id, sequence, range, take);
        if !take {
            // From here on the server may have released the lock.
            handle.locks.retain(|held| *held != range);
            let locks = handle.certain_locks();
            self.public.change(&path, |known| known.locks = locks);
        }
        self.locking = Some((path.clone(), sequence, range, take));
        let (header, _) = self.ask(Command::LOCK, HeaderFlags::empty(), |out| request.emit(out))?;
        self.locking = None;
        if take
            && header.status == NtStatus::SUCCESS
            && let Some(handle) = self.handles.get_mut(&path)
        {
            handle.locks.push(range);
            let locks = handle.certain_locks();
            self.public.change(&path, |known| known.locks = locks);
        }
        Ok(header.status)
    }

    /// Closes the handle of a path, if there is one.
    pub(crate) fn close(&mut self, path: &str) -> Result<(), Lost> {
        let Some(id) = self.handles.get(path).map(|handle| handle.id) else { return Ok(()) };
        self.public.change(path, |known| known.locks.clear());
        self.closing = Some(path.to_owned());
        let status = self.close_id(id)?;
        self.closing = None;
        self.handles.remove(path);
        if status != NtStatus::SUCCESS {
            self.fault(format!("CLOSE of {path}: {status:?}"));
        }
        Ok(())
    }

    pub(crate) fn close_id(&mut self, file_id: FileId) -> Result<NtStatus, Lost> {
        let request = CloseRequest { query_attributes: false, file_id };
        let (header, _) =
            self.ask(Command::CLOSE, HeaderFlags::empty(), |out| request.emit(out))?;
        Ok(header.status)
    }

    // The same file once more under the same lease, with more caching: then both opens have it.
    fn open_twice(&mut self, path: &str) -> Result<(), Lost> {
        let lease = self.handles.get(path).and_then(|handle| handle.wish.lease);
        let access = AccessMask::FILE_GENERIC_READ;
        let mut request = ask::create(path, access, SHARES_ALL, CreateDisposition::OPEN);
        if let Some((key, _)) = lease {
            let all = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
            request.oplock_level = OplockLevel::LEASE;
            request.contexts.push(CreateRequestContext::Lease(ask::lease(key, all)));
        }
        match self.create(&request)? {
            Ok(id) => {
                self.close_id(id)?;
            }
            Err(NtStatus::SHARING_VIOLATION) => {}
            Err(status) => self.fault(format!("{path} once more: {status:?}")),
        }
        Ok(())
    }

    /// A CREATE whose caller needs only the id.
    pub(crate) fn create(
        &mut self,
        request: &smb::CreateRequest<'_>,
    ) -> Result<Result<FileId, NtStatus>, Lost> {
        let (header, pdu) =
            self.ask(Command::CREATE, HeaderFlags::empty(), |out| request.emit(out))?;
        Ok(match (header.status, CreateResponse::parse(&pdu)) {
            (NtStatus::SUCCESS, Ok(response)) => Ok(response.file_id),
            (status, _) => Err(status),
        })
    }

    // Through a handle of its own, which excludes visitors while it is open.
    fn remove(&mut self) -> Result<(), Lost> {
        let path = self.some_path();
        self.close(&path)?;
        self.close_streams(&path)?;
        let exists = self.worlds.tree().contains_key(&path);
        let access = AccessMask::DELETE | AccessMask::READ_ATTRIBUTES;
        let mut request = ask::create(&path, access, SHARES_ALL, CreateDisposition::OPEN);
        let on_close = self.random.one_in(2);
        request.options.set(CreateOptions::DELETE_ON_CLOSE, on_close);
        let gone = Change::Remove { path: path.clone() };
        let reached = self.reached(&[&path]);
        self.hide(&reached);
        let may_be_gone = |client: &mut Self, lost| {
            client.worlds.may_have(&gone);
            client.dying.insert(path.clone());
            lost
        };
        let opened = match self.create(&request) {
            Ok(opened) => opened,
            Err(lost) if on_close && exists => return Err(may_be_gone(self, lost)),
            Err(lost) => return Err(lost),
        };
        let id = match opened {
            Ok(id) if exists => id,
            Ok(_) => {
                self.fault(format!("{path} was opened and should not be there"));
                return Ok(());
            }
            Err(NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::OBJECT_PATH_NOT_FOUND) if !exists => {
                self.publish(&reached);
                return Ok(());
            }
            Err(NtStatus::SHARING_VIOLATION) => {
                self.publish(&reached);
                return Ok(());
            }
            Err(status) => {
                self.fault(format!("{path} cannot be opened to be removed: {status:?}"));
                return Ok(());
            }
        };
        if !on_close {
            let request = ask::set(id, FileInfoClass::DISPOSITION, &[1]);
            let asked = self.ask(Command::SET_INFO, HeaderFlags::empty(), |out| request.emit(out));
            let (header, _) = asked.map_err(|lost| may_be_gone(self, lost))?;
            if header.status != NtStatus::SUCCESS {
                self.fault(format!("{path} cannot be removed: {:?}", header.status));
            }
        }
        let status = self.close_id(id).map_err(|lost| may_be_gone(self, lost))?;
        if status != NtStatus::SUCCESS {
            self.fault(format!("CLOSE of {path}, to be removed: {status:?}"));
        }
        self.counts.changes += 1;
        self.worlds.apply(&gone);
        self.publish(&reached);
        Ok(())
    }

    fn rename(&mut self) -> Result<(), Lost> {
        let (from, to) = (self.some_file(), self.some_file());
        let tree = self.worlds.tree();
        if from == to || !tree.contains_key(&from) {
            return Ok(());
        }
        let (is_taken, replaces) = (tree.contains_key(&to), self.random.one_in(2));
        if replaces {
            self.close(&to)?;
            self.close_streams(&to)?;
        }
        let is_kept = self.handles.contains_key(&names::stream(&from));
        let has_place = self.has_parent(&to);
        let access = AccessMask::DELETE | AccessMask::READ_ATTRIBUTES;
        let request = ask::create(&from, access, SHARES_ALL, CreateDisposition::OPEN);
        let id = match self.create(&request)? {
            Ok(id) => id,
            Err(NtStatus::SHARING_VIOLATION) => return Ok(()),
            Err(status) => {
                self.fault(format!("{from} cannot be opened to be renamed: {status:?}"));
                return Ok(());
            }
        };
        let mut buffer = Vec::new();
        let flags = if replaces { RenameFlags::REPLACE_IF_EXISTS } else { RenameFlags::empty() };
        let name = Name::new(ask::on_the_wire(&to)).unwrap_or_default();
        Rename { flags, name }.emit(&mut buffer);
        let request = ask::set(id, FileInfoClass::RENAME, &buffer);
        let change = Change::Rename { from: from.clone(), to: to.clone() };
        self.moving = Some((from.clone(), to.clone()));
        // With its stream open the target stays too, unless the session ends under both and the stream
        // goes first.
        let cannot_be = is_taken && !replaces || !has_place;
        let status = if cannot_be {
            // The server must refuse this rename, whether or not the client gets the answer.
            let (header, _) =
                self.ask(Command::SET_INFO, HeaderFlags::empty(), |out| request.emit(out))?;
            header.status
        } else {
            // The handle moves with its file: neither path is certain meanwhile.
            self.change(&change, Command::SET_INFO, &Body::of(|out| request.emit(out)))?
        };
        self.moving = None;
        match status {
            NtStatus::SUCCESS if cannot_be || is_kept => {
                let why = if is_kept { "its stream open" } else { "something there" };
                self.fault(format!("{from} was renamed to {to} with {why}"));
            }
            NtStatus::SUCCESS => {
                self.moved(&from, &to);
                self.publish(&[from.clone(), to.clone()]);
            }
            NtStatus::OBJECT_PATH_NOT_FOUND if !has_place => {}
            NtStatus::OBJECT_NAME_COLLISION if is_taken && !replaces => {}
            // Visitors of the target, or in the directory.
            NtStatus::ACCESS_DENIED | NtStatus::SHARING_VIOLATION => {}
            status => self.refused(status, format!("{from} to {to}: {status:?}")),
        }
        self.close_id(id).map(drop)
    }

    /// A handle has moved with its file.
    pub(crate) fn moved(&mut self, from: &str, to: &str) {
        self.handles.remove(to);
        if let Some(mut handle) = self.handles.remove(from) {
            handle.wish.path = to.to_owned();
            self.handles.insert(to.to_owned(), handle);
        }
    }

    // Looks into the file of another client, which takes caching from its owner.
    fn visit(&mut self) -> Result<(), Lost> {
        let host = self.random.below(self.clients);
        if host == self.number {
            return Ok(());
        }
        let path = self.random.pick_of(names::contents(host));
        let before = self.public.known(&path);
        let shares = ShareAccess::READ | ShareAccess::WRITE;
        let access = AccessMask::FILE_GENERIC_READ;
        let mut request = ask::create(&path, access, shares, CreateDisposition::OPEN);
        if self.random.one_in(2) {
            let state = LeaseState::READ | LeaseState::HANDLE;
            let lease = ask::lease(self.random.guid(), state);
            request.oplock_level = OplockLevel::LEASE;
            request.contexts.push(CreateRequestContext::Lease(lease));
        }
        let is_certain =
            |client: &Self| before.content.is_some() && client.public.known(&path) == before;
        let id = match self.create(&request)? {
            Ok(id) => id,
            Err(NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::OBJECT_PATH_NOT_FOUND)
                if is_certain(self) =>
            {
                self.fault(format!("{path} was visited and is not there"));
                return Ok(());
            }
            Err(_) => return Ok(()),
        };
        let seen = self.content(id, &path)?;
        let unchanged = self.public.known(&path).turn == before.turn;
        let locked = before
            .locks
            .iter()
            .any(|lock| lock.exclusive && lock.overlaps(0, u64::from(ask::LENGTH_MAX)));
        match (&before.content, seen) {
            (Some(content), Some(_)) if locked && unchanged && !content.is_empty() => {
                self.fault(format!("{path} was read in spite of {:?}", before.locks));
            }
            (_, None) if locked && unchanged => self.counts.locked_out += 1,
            (Some(expected), Some(seen)) if unchanged => {
                self.counts.compared += 1;
                if let Some(difference) = compare(expected, &seen) {
                    self.fault(format!("{path} was visited: {difference}"));
                }
            }
            _ => {}
        }
        if self.random.one_in(4) {
            let offset = ask::wide(self.random.below(70_000));
            let range = Range { offset, length: 100, exclusive: self.random.one_in(2) };
            let request = ask::lock(id, 0, range, true);
            self.ask(Command::LOCK, HeaderFlags::empty(), |out| request.emit(out))?;
        }
        self.close_id(id).map(drop)
    }
}

/// Locks of one handle.
const LOCKS_MAX: usize = 3;
