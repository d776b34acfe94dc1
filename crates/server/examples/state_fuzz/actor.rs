//! A client that does anything to a few files that others use as well, and caches what it is granted.
//!
//! It keeps the bytes that it read under a caching grant, as a client's cache does, and drops them when the server
//! takes the grant back. Where it still has the grant, the file holds these bytes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
    CreateResponse, CreateResponseContext, Lease, LeaseKey, LeaseState, LeaseVersion, OplockLevel,
    ShareAccess,
};
use smb::info::{FileInfoClass, FileName, RenameFlags, Standard};
use smb::{CloseRequest, Command, FileId, NtStatus, OutputResponse, ReadResponse};

use crate::books::{Body, Books, Open};
use crate::link::{Holder, Key, Link, caching};
use crate::random::Random;
use crate::support::{create, new_name, query, read, set};

/// A client, its opens and what it caches.
pub(crate) struct Actor<'a> {
    pub(crate) link: Link,
    pub(crate) random: Random,
    pub(crate) opens: Vec<Held>,
    pub(crate) cached: Cached<'a>,
    directory: &'a Path,
}

/// An open of an actor.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) id: FileId,
    /// As it was opened.
    pub(crate) name: &'static str,
    pub(crate) body: Body,
    pub(crate) access: AccessMask,
    pub(crate) key: Key,
    /// Ranges of this open that are locked exclusively, and the bytes there.
    pub(crate) locked: Vec<(u64, Vec<u8>)>,
}

/// The bytes that a client has cached.
pub(crate) struct Cached<'a> {
    pub(crate) client: usize,
    books: &'a Mutex<Books>,
    bytes: BTreeMap<Key, Vec<u8>>,
}

impl Cached<'_> {
    /// The grants of all clients.
    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap()
    }

    fn may_read(&self, key: Key) -> bool {
        self.books().state(self.client, key).contains(LeaseState::READ)
    }
}

impl Holder for Cached<'_> {
    fn broken(&mut self, key: Key, left: LeaseState) -> LeaseState {
        if !left.contains(LeaseState::READ) {
            self.bytes.remove(&key);
        }
        self.books().broken(self.client, key, left)
    }
}

impl<'a> Actor<'a> {
    pub(crate) fn new(
        client: usize,
        link: Link,
        random: Random,
        books: &'a Mutex<Books>,
        directory: &'a Path,
    ) -> Self {
        let cached = Cached { client, books, bytes: BTreeMap::new() };
        Self { link, random, opens: Vec::new(), cached, directory }
    }

    /// Sends a request and waits for its answer. Its status and its PDU.
    pub(crate) fn ask(
        &mut self,
        command: Command,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> (NtStatus, Vec<u8>) {
        let (header, pdu) = self.link.ask(command, body, &mut self.cached);
        for (key, status) in std::mem::take(&mut self.link.refused) {
            if self.opens.iter().any(|open| open.key == key) {
                self.fault(&format!("the acknowledgement of {key:?} is refused: {status}"));
            }
        }
        (header.status, pdu)
    }

    pub(crate) fn fault(&self, what: &str) {
        let client = self.cached.client;
        self.cached.books().fault(&format!("client {client}: {what}"));
    }

    pub(crate) fn note(&self, what: &str) {
        self.cached.books().note(self.cached.client, what);
    }

    /// Opens or makes one of the names.
    pub(crate) fn open(&mut self) {
        let name = self.random.pick(NAMES);
        let is_kept = KEPT.contains(&name);
        let accesses = if is_kept { &ACCESSES[..3] } else { ACCESSES };
        let access = self.random.pick(accesses);
        let mut request = create(name, |request| {
            request.desired_access = access;
            request.disposition = self.random.pick(DISPOSITIONS);
            request.share_access = self.random.pick(SHARES);
        });
        if name == LOCKED {
            request.disposition = CreateDisposition::OPEN;
            request.share_access = SHARES[0];
        }
        if DIRECTORIES.contains(&name) {
            request.options |= CreateOptions::DIRECTORY_FILE;
            request.disposition =
                self.random.pick(&[CreateDisposition::OPEN, CreateDisposition::OPEN_IF]);
        } else if access.contains(AccessMask::DELETE) && self.random.one_in(6) {
            request.options |= CreateOptions::DELETE_ON_CLOSE;
        }
        let key = self.ask_for_caching(name, &mut request);
        // What an overwrite empties is cached no more by its own client either.
        key.map(|key| self.cached.bytes.remove(&key));
        let what = format!(
            "open {name} {access:?} share {:?} {:?} {:?} oplock {:?} {key:?}",
            request.share_access, request.disposition, request.options, request.oplock_level
        );
        let (status, pdu) = self.ask(Command::CREATE, |out| request.emit(out));
        self.note(&format!("{what}: {status}"));
        if !status.is_error() {
            self.enter(name, &request, key, &pdu);
        }
    }

    // Returns the key of the lease that is asked for.
    fn ask_for_caching(&mut self, name: &str, request: &mut CreateRequest<'_>) -> Option<Key> {
        request.contexts.push(CreateRequestContext::QueryOnDiskId);
        if DIRECTORIES.contains(&name) {
            return None;
        }
        let again = self.opens.iter().find(|open| open.name == name && is_lease(open));
        let key = match self.random.below(6) {
            0 => return None,
            1 => {
                let levels = [OplockLevel::II, OplockLevel::EXCLUSIVE, OplockLevel::BATCH];
                request.oplock_level = self.random.pick(&levels);
                return None;
            }
            2..4 if again.is_some() => again?.key,
            _ => Key(self.random.guid()),
        };
        let state = LeaseState::from_bits_retain(self.random.pick(&[1, 3, 5, 7]));
        let version = LeaseVersion::V2 { parent: None, epoch: 0 };
        let lease = Lease { key: LeaseKey(key.0), state, break_in_progress: false, version };
        request.oplock_level = OplockLevel::LEASE;
        request.contexts.push(CreateRequestContext::Lease(lease));
        Some(key)
    }

    fn enter(
        &mut self,
        name: &'static str,
        request: &CreateRequest<'_>,
        lease: Option<Key>,
        pdu: &[u8],
    ) {
        let opened = CreateResponse::parse(pdu).expect("a CREATE's answer");
        let client = self.cached.client;
        let mut number = 0;
        let key = lease.unwrap_or_else(|| Key::of_open(opened.file_id));
        let mut state = caching(opened.oplock_level);
        for context in &opened.contexts {
            match context {
                CreateResponseContext::OnDiskId { file_id, .. } => number = *file_id,
                CreateResponseContext::Lease(lease) if lease.break_in_progress => {
                    state = self.cached.books().state(client, key);
                }
                CreateResponseContext::Lease(lease) => state = lease.state,
                _ => {}
            }
        }
        let stream = name.split_once(':').map_or("", |(_, stream)| stream).to_uppercase();
        let body = (number, stream);
        let access = request.desired_access;
        if self.cached.books().is_elsewhere(client, key, &body) {
            self.fault(&format!("one lease is about two files: {key:?}, {body:?}"));
        }
        let share = request.share_access;
        let open = Open { client, body: body.clone(), access, share, key };
        self.cached.books().open(opened.file_id, open, state);
        self.note(&format!("  is {body:?} {key:?} {state:?}"));
        let id = opened.file_id;
        self.opens.push(Held { id, name, body, access, key, locked: Vec::new() });
        self.look_at_name(self.opens.len() - 1);
        self.fill(self.opens.len() - 1);
    }

    /// Closes an open.
    pub(crate) fn close(&mut self, at: usize) {
        let closed = self.opens.swap_remove(at);
        self.cached.books().close(self.cached.client, closed.id);
        if !self.opens.iter().any(|open| open.key == closed.key) {
            self.cached.bytes.remove(&closed.key);
        }
        let request = CloseRequest { query_attributes: false, file_id: closed.id };
        let (status, _) = self.ask(Command::CLOSE, |out| request.emit(out));
        self.note(&format!("close {}: {status}", closed.name));
        if status.is_error() {
            self.fault(&format!("the CLOSE of {} is answered {status}", closed.name));
        }
    }

    /// Reads what the grant lets the client cache.
    pub(crate) fn fill(&mut self, at: usize) {
        let Held { id, key, access, .. } = self.opens[at];
        if !access.contains(AccessMask::READ_DATA) || !self.cached.may_read(key) {
            return;
        }
        let bytes = self.read(id, 0, LENGTH_MAX);
        // A break that came before the bytes has taken the grant.
        if let Some(bytes) = bytes
            && self.cached.may_read(key)
        {
            self.cached.bytes.insert(key, bytes);
        }
    }

    /// Reads a range; `None` where it is locked, or the open is no file.
    pub(crate) fn read(&mut self, id: FileId, offset: u64, length: u32) -> Option<Vec<u8>> {
        let (status, pdu) = self.ask(Command::READ, |out| read(id, offset, length).emit(out));
        match status {
            NtStatus::END_OF_FILE => Some(Vec::new()),
            status if status.is_error() => None,
            _ => Some(ReadResponse::parse(&pdu).expect("a READ's answer").data.to_vec()),
        }
    }

    /// Compares everything that is cached with the files.
    pub(crate) fn look_at_caches(&mut self) {
        for key in self.cached.bytes.keys().copied().collect::<Vec<_>>() {
            self.look_at_cache(key);
        }
    }

    /// Compares what is cached with the file.
    pub(crate) fn look_at_cache(&mut self, key: Key) {
        let reads = |open: &&Held| open.key == key && open.access.contains(AccessMask::READ_DATA);
        let Some(open) = self.opens.iter().find(reads).cloned() else { return };
        let Some(file) = self.read(open.id, 0, LENGTH_MAX) else { return };
        if self.cached.bytes.get(&key).is_none_or(|bytes| *bytes == file) {
            return;
        }
        // The client may hear of a change at once, instead of before.
        self.link.fence(&mut self.cached);
        let Some(bytes) = self.cached.bytes.remove(&key) else { return };
        let at = bytes.iter().zip(&file).position(|(cached, now)| cached != now);
        self.fault(&format!(
            "{} is cached with {} bytes, and has {}; they differ from {at:?} on; {key:?}",
            open.name,
            bytes.len(),
            file.len()
        ));
    }

    /// What is cached, to choose from.
    pub(crate) fn cached_keys(&self) -> Vec<Key> {
        self.cached.bytes.keys().copied().collect()
    }

    /// Does what changes the bytes of an open, and caches them again.
    pub(crate) fn change(&mut self, at: usize, act: impl FnOnce(&mut Self, &Held)) {
        let open = self.opens[at].clone();
        self.cached.bytes.remove(&open.key);
        act(self, &open);
        self.fill(at);
    }

    /// An open has a name, or is to be deleted.
    pub(crate) fn look_at_name(&mut self, at: usize) -> Option<Standard> {
        let Held { id, name, .. } = self.opens[at];
        let known = self.query(id, FileInfoClass::STANDARD)?;
        let known = Standard::parse(&known).expect("FileStandardInformation");
        if known.links == 0 && !known.delete_pending {
            self.fault(&format!("an open by {name} is of a file without a name"));
        }
        Some(known)
    }

    /// The name that the server knows leads to the file of the open. Returns its path and number if it is to be
    /// deleted. Nobody changes names meanwhile.
    pub(crate) fn look_at_disk(&mut self, at: usize) -> Option<(std::path::PathBuf, u64)> {
        use std::os::unix::fs::MetadataExt as _;
        let known = self.look_at_name(at)?;
        let Held { id, name, body, .. } = self.opens[at].clone();
        let path = self.query(id, FileInfoClass::NAME)?;
        let path = FileName::parse(&path).expect("FileNameInformation").name.into_string();
        let base = path.split(':').next().unwrap_or_default();
        let path = self.directory.join(base.trim_start_matches('\\').replace('\\', "/"));
        let found = std::fs::symlink_metadata(&path).map(|metadata| metadata.ino());
        if found.as_ref().ok() != Some(&body.0) {
            let pending = known.delete_pending;
            self.fault(&format!(
                "an open by {name} is of {body:?}, and its name {} leads to {found:?}; pending: {pending}",
                path.display()
            ));
        }
        known.delete_pending.then_some((path, body.0))
    }

    fn query(&mut self, id: FileId, class: FileInfoClass) -> Option<Vec<u8>> {
        let request = query(id, smb::info::InfoType::FILE, class.0);
        let (status, pdu) = self.ask(Command::QUERY_INFO, |out| request.emit(out));
        let parsed = OutputResponse::parse(&pdu).map(|response| response.output.to_vec());
        parsed.ok().filter(|_| !status.is_error())
    }

    /// Sets information of an open.
    pub(crate) fn set(&mut self, open: &Held, class: FileInfoClass, buffer: &[u8]) -> NtStatus {
        let (status, _) = self.ask(Command::SET_INFO, |out| set(open.id, class, buffer).emit(out));
        status
    }

    /// Gives an open another name, or one more.
    pub(crate) fn name_anew(&mut self, at: usize) {
        let open = self.opens[at].clone();
        let targets: Vec<&str> = NAMES.iter().copied().filter(|name| !name.contains(':')).collect();
        let to = self.random.pick(&targets);
        let renames = open.access.contains(AccessMask::DELETE) && self.random.one_in(2);
        // What is linked by another name could be emptied by that.
        if KEPT.contains(&to) || open.name == LOCKED || !open.body.1.is_empty() {
            return;
        }
        let mut flags = RenameFlags::empty();
        flags.set(RenameFlags::REPLACE_IF_EXISTS, !self.random.one_in(3));
        let class = if renames { FileInfoClass::RENAME } else { FileInfoClass::LINK };
        let status = self.set(&open, class, &new_name(to, flags));
        let what = if renames { "rename" } else { "link" };
        self.note(&format!("{what} {} {:?} to {to} {flags:?}: {status}", open.name, open.body));
    }
}

fn is_lease(open: &Held) -> bool {
    open.key != Key::of_open(open.id)
}

/// What clients open. The one with locks more often: few requests lock.
pub(crate) const NAMES: &[&str] = &[
    "a", "b", "A", "x", "d\\x", "e\\x", "a:s", "b:s", "d", "e", GOES, STAYS, LOCKED, LOCKED, LOCKED,
];
/// Names that no client removes, renames or replaces.
pub(crate) const KEPT: &[&str] = &[STAYS, LOCKED];
/// A hard link of [`STAYS`].
pub(crate) const GOES: &str = "k1";
/// A name that has to be there in the end.
pub(crate) const STAYS: &str = "k0";
/// A file that is neither emptied nor cut: byte-range locks keep nobody from that.
pub(crate) const LOCKED: &str = "l";
const DIRECTORIES: &[&str] = &["d", "e"];
const READS_AND_WRITES: AccessMask =
    AccessMask::FILE_GENERIC_READ.union(AccessMask::FILE_GENERIC_WRITE);
const ACCESSES: &[AccessMask] = &[
    READS_AND_WRITES,
    AccessMask::FILE_GENERIC_READ,
    AccessMask::READ_ATTRIBUTES,
    READS_AND_WRITES.union(AccessMask::DELETE),
    AccessMask::DELETE.union(AccessMask::READ_ATTRIBUTES),
];
const SHARES: &[ShareAccess] = &[ALL, ALL, ALL, ALL, ShareAccess::READ, ShareAccess::empty()];
const ALL: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE).union(ShareAccess::DELETE);
const DISPOSITIONS: &[CreateDisposition] = &[
    CreateDisposition::OPEN,
    CreateDisposition::OPEN,
    CreateDisposition::OPEN_IF,
    CreateDisposition::OPEN_IF,
    CreateDisposition::CREATE,
    CreateDisposition::OVERWRITE,
    CreateDisposition::OVERWRITE_IF,
    CreateDisposition::SUPERSEDE,
];
/// Longer than any file here gets.
pub(crate) const LENGTH_MAX: u32 = 65_536;
