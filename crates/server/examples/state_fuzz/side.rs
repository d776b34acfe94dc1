//! One of two servers in a lockstep run: the same clients with the same opens as at the other one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
    CreateResponse, CreateResponseContext, Lease, LeaseKey, LeaseState, LeaseVersion, OplockLevel,
    ShareAccess,
};
use smb::info::{
    Basic, Disposition, EndOfFile, FileAttributes, FileInfoClass, InfoType, RenameFlags, Standard,
    Stream,
};
use smb::{
    CloseRequest, Command, FileId, FileTime, Header, LockElement, LockFlags, LockRequest,
    MessageId, NtStatus, OutputResponse, ReadResponse,
};

use crate::link::{Holder, Key, Link, PATIENCE, Place, caching};
use crate::step::{Act, Caching, DIRECTORY, Outcome, Step, Wanted, letters};
use crate::support::{Answer, create, new_name, query, read, set, write};

/// A server, its clients and their opens.
pub(crate) struct Side {
    links: Vec<(Link, Told)>,
    /// By their place in the run.
    opens: BTreeMap<usize, (usize, FileId)>,
    /// The directory of the share.
    directory: PathBuf,
    /// The run's own directory below it.
    base: String,
    /// The connection of a client is.
    is_lost: bool,
    address: SocketAddr,
    place: Place,
}

/// What a client was told to give up.
#[derive(Default)]
struct Told {
    /// What is held under each key, and a name of the key that is the same at both servers.
    held: BTreeMap<Key, (LeaseState, String)>,
    breaks: Vec<String>,
}

impl Holder for Told {
    fn broken(&mut self, key: Key, left: LeaseState) -> LeaseState {
        let Some((state, name)) = self.held.get_mut(&key) else { return LeaseState::empty() };
        self.breaks.push(format!("{name} breaks from {} to {}", letters(*state), letters(left)));
        std::mem::replace(state, *state & left)
    }
}

impl Side {
    /// Enters a share as several clients.
    pub(crate) fn enter(
        address: SocketAddr,
        directory: &Path,
        place: &Place,
        clients: usize,
    ) -> Self {
        Self {
            links: enter_all(address, place, clients),
            opens: BTreeMap::new(),
            directory: directory.to_owned(),
            base: String::new(),
            is_lost: false,
            address,
            place: place.clone(),
        }
    }

    /// Begins a run in a directory of its own.
    pub(crate) fn begin(&mut self, base: String) {
        let (link, _) = &mut self.links[0];
        let made = link.wire.open(&base, |open| {
            open.options = CreateOptions::DIRECTORY_FILE;
            open.disposition = CreateDisposition::CREATE;
        });
        assert_eq!(made.status, NtStatus::SUCCESS, "{base} is made");
        assert_eq!(link.wire.close(made.id), NtStatus::SUCCESS);
        self.base = base;
    }

    /// Ends a run: closes what is open. What is on the disk then.
    pub(crate) fn end(&mut self) -> Vec<String> {
        let opens = std::mem::take(&mut self.opens);
        if std::mem::take(&mut self.is_lost) {
            self.links = enter_all(self.address, &self.place, self.links.len());
        } else {
            self.close(opens.into_values());
        }
        for (_, told) in &mut self.links {
            *told = Told::default();
        }
        let root = self.directory.join(&self.base);
        let mut found = Vec::new();
        collect(&root, "", &mut found);
        found.sort();
        std::fs::remove_dir_all(&root).expect("the run's directory is removed");
        found
    }

    fn close(&mut self, opens: impl Iterator<Item = (usize, FileId)>) {
        for (client, file_id) in opens {
            let close = CloseRequest { query_attributes: false, file_id };
            self.ask(client, Command::CLOSE, |out| close.emit(out));
        }
    }

    /// Does a step.
    pub(crate) fn act(&mut self, step: &Step) -> Outcome {
        let (status, said) = self.carry_out(step);
        for (link, told) in self.links.iter_mut().filter(|_| !self.is_lost) {
            link.fence(told);
        }
        Outcome { status, said, breaks: self.breaks() }
    }

    /// Breaks that came late, added to those of an outcome.
    pub(crate) fn wait_for_breaks(&mut self, outcome: &mut Outcome) {
        for (link, told) in &mut self.links {
            link.listen(LATE, told);
        }
        outcome.breaks.extend(self.breaks());
        outcome.breaks.sort();
    }

    /// Closes an open that the other server has not granted.
    pub(crate) fn forget(&mut self, open: usize) {
        let opened = self.opens.remove(&open);
        self.close(opened.into_iter());
    }

    fn breaks(&mut self) -> Vec<String> {
        let told = self.links.iter_mut().flat_map(|(_, told)| std::mem::take(&mut told.breaks));
        let mut told: Vec<_> = told.collect();
        told.sort();
        told
    }

    // Other clients acknowledge breaks meanwhile. A connection that is lost has answered so.
    fn ask(&mut self, client: usize, command: Command, body: impl FnOnce(&mut Vec<u8>)) -> Answer {
        let (begin, id) = (Instant::now(), self.links[client].0.wire.start(command, body));
        loop {
            let (link, told) = &mut self.links[client];
            if let Some(answer) = link.finish_within(id, TURN, told) {
                return answer;
            }
            if link.is_closed || begin.elapsed() > PATIENCE {
                self.is_lost = true;
                let mut header = Header::request(command, MessageId(id));
                header.status = match link.is_closed {
                    true => NtStatus::CONNECTION_DISCONNECTED,
                    false => NtStatus::IO_TIMEOUT,
                };
                return (header, Vec::new());
            }
            for (at, (link, told)) in self.links.iter_mut().enumerate() {
                while at != client && link.listen(GLANCE, told) {}
            }
        }
    }

    fn path(&self, name: &str) -> String {
        if name.starts_with(':') { name.to_owned() } else { format!("{}\\{name}", self.base) }
    }

    fn carry_out(&mut self, step: &Step) -> (NtStatus, String) {
        let (client, id) = match (&step.act, self.opens.get(&step.open)) {
            (Act::Open(wanted), _) => return self.open(step, wanted),
            (Act::List, _) => return (NtStatus::SUCCESS, self.list(step.client)),
            (_, Some(open)) => *open,
            (_, None) => unreachable!("steps are about opens that both servers granted"),
        };
        let plain = |(header, _): Answer| (header.status, String::new());
        match &step.act {
            Act::Close => {
                self.opens.remove(&step.open);
                let close = CloseRequest { query_attributes: false, file_id: id };
                plain(self.ask(client, Command::CLOSE, |out| close.emit(out)))
            }
            Act::Rename { to, replace } => {
                (self.name(client, id, FileInfoClass::RENAME, to, *replace), String::new())
            }
            Act::Link { to, replace } => {
                (self.name(client, id, FileInfoClass::LINK, to, *replace), String::new())
            }
            Act::Write { offset, length } => {
                let bytes = vec![b'w'; usize::try_from(*length).unwrap()];
                let write = write(id, *offset, &bytes);
                plain(self.ask(client, Command::WRITE, |out| write.emit(out)))
            }
            Act::Read { offset, length } => self.read(client, id, *offset, *length),
            Act::Lock { offset, length, is_exclusive } => {
                let kind = if *is_exclusive { LockFlags::EXCLUSIVE } else { LockFlags::SHARED };
                let flags = kind | LockFlags::FAIL_IMMEDIATELY;
                (self.lock(client, id, *offset, *length, flags), String::new())
            }
            Act::Unlock { offset, length } => {
                (self.lock(client, id, *offset, *length, LockFlags::UNLOCK), String::new())
            }
            Act::AskAttributes | Act::AskStandard | Act::AskStreams => {
                self.query(client, id, &step.act)
            }
            act => (self.set(client, id, act), String::new()),
        }
    }

    fn open(&mut self, step: &Step, wanted: &Wanted) -> (NtStatus, String) {
        let path = self.path(&step.name);
        let request = create(&path, |request| fill_in(request, wanted));
        let (header, pdu) = self.ask(step.client, Command::CREATE, |out| request.emit(out));
        if header.status.is_error() {
            return (header.status, String::new());
        }
        let opened = CreateResponse::parse(&pdu).expect("a CREATE's answer");
        self.opens.insert(step.open, (step.client, opened.file_id));
        let leased = opened.contexts.iter().find_map(|context| match context {
            CreateResponseContext::Lease(lease) => Some((Key(lease.key.0), lease.state)),
            _ => None,
        });
        let (key, state) =
            leased.unwrap_or_else(|| (Key::of_open(opened.file_id), caching(opened.oplock_level)));
        let name = match wanted.caching {
            Caching::Lease(..) => format!("client {}'s lease {:?}", step.client, &key.0[..2]),
            _ => format!("the oplock of open {}", step.open),
        };
        let (_, told) = &mut self.links[step.client];
        told.held.insert(key, (state, name));
        let is_directory = opened.attributes.contains(FileAttributes::DIRECTORY);
        let said = format!(
            "action={} size={} caches={}{}",
            opened.action.0,
            opened.end_of_file,
            letters(state),
            if is_directory { format!(" {DIRECTORY}") } else { String::new() }
        );
        (header.status, said)
    }

    fn name(
        &mut self,
        client: usize,
        id: FileId,
        class: FileInfoClass,
        to: &str,
        replace: bool,
    ) -> NtStatus {
        let mut flags = RenameFlags::empty();
        flags.set(RenameFlags::REPLACE_IF_EXISTS, replace);
        let buffer = new_name(&self.path(to), flags);
        self.ask(client, Command::SET_INFO, |out| set(id, class, &buffer).emit(out)).0.status
    }

    fn set(&mut self, client: usize, id: FileId, act: &Act) -> NtStatus {
        let mut buffer = Vec::new();
        let class = match act {
            Act::Delete(delete) => {
                Disposition { delete: *delete }.emit(&mut buffer);
                FileInfoClass::DISPOSITION
            }
            Act::Size(size) => {
                EndOfFile { end_of_file: *size }.emit(&mut buffer);
                FileInfoClass::END_OF_FILE
            }
            Act::Attributes(bits) => {
                let zero = FileTime(0);
                Basic {
                    creation_time: zero,
                    last_access_time: zero,
                    last_write_time: zero,
                    change_time: zero,
                    attributes: FileAttributes::from_bits_retain(*bits),
                }
                .emit(&mut buffer);
                FileInfoClass::BASIC
            }
            act => unreachable!("{act} sets nothing"),
        };
        self.ask(client, Command::SET_INFO, |out| set(id, class, &buffer).emit(out)).0.status
    }

    fn read(&mut self, client: usize, id: FileId, offset: u64, length: u32) -> (NtStatus, String) {
        let read = read(id, offset, length);
        let (header, pdu) = self.ask(client, Command::READ, |out| read.emit(out));
        let said = match header.status {
            NtStatus::SUCCESS => {
                let read = ReadResponse::parse(&pdu).expect("a READ's answer");
                String::from_utf8_lossy(read.data).replace('\0', ".")
            }
            _ => String::new(),
        };
        (header.status, said)
    }

    fn lock(
        &mut self,
        client: usize,
        file_id: FileId,
        offset: u64,
        length: u64,
        flags: LockFlags,
    ) -> NtStatus {
        let locks = vec![LockElement { offset, length, flags }];
        let request = LockRequest { lock_sequence: 0, file_id, locks };
        self.ask(client, Command::LOCK, |out| request.emit(out)).0.status
    }

    fn query(&mut self, client: usize, id: FileId, act: &Act) -> (NtStatus, String) {
        let class = match act {
            Act::AskAttributes => FileInfoClass::BASIC,
            Act::AskStandard => FileInfoClass::STANDARD,
            _ => FileInfoClass::STREAM,
        };
        let request = query(id, InfoType::FILE, class.0);
        let (header, pdu) = self.ask(client, Command::QUERY_INFO, |out| request.emit(out));
        let Ok(output) = OutputResponse::parse(&pdu).map(|response| response.output.to_vec())
        else {
            return (header.status, String::new());
        };
        if header.status.is_error() {
            return (header.status, String::new());
        }
        let said = match act {
            Act::AskAttributes => {
                let basic = Basic::parse(&output).expect("FileBasicInformation");
                format!("{:#x}", basic.attributes.bits() & COMPARED)
            }
            Act::AskStandard => {
                let it = Standard::parse(&output).expect("FileStandardInformation");
                format!("size={} links={} pending={}", it.end_of_file, it.links, it.delete_pending)
            }
            _ => {
                let streams = Stream::parse_list(&output).expect("FileStreamInformation");
                let name = |stream: &Stream| format!("{}={}", stream.name.as_str(), stream.size);
                let mut names: Vec<_> = streams.iter().map(name).collect();
                names.sort();
                names.join(" ")
            }
        };
        (header.status, said)
    }

    fn list(&mut self, client: usize) -> String {
        let base = self.base.clone();
        let names = crate::listing::names(&mut self.links[client].0.wire, &base);
        // smbd makes a file by the spelling of an earlier look for it.
        let mut names: Vec<_> = names.iter().map(|name| name.to_uppercase()).collect();
        names.sort();
        names.join(" ")
    }
}

fn enter_all(address: SocketAddr, place: &Place, clients: usize) -> Vec<(Link, Told)> {
    let enter = |client| {
        let machine = u8::try_from(client + 1).expect("few clients");
        (Link::enter(address, machine, place), Told::default())
    };
    (0..clients).map(enter).collect()
}

fn fill_in(request: &mut CreateRequest<'_>, wanted: &Wanted) {
    request.desired_access = AccessMask::from_bits_retain(wanted.access);
    request.share_access = ShareAccess::from_bits_retain(wanted.share);
    request.disposition = wanted.disposition;
    request.options = CreateOptions::from_bits_retain(wanted.options);
    request.attributes = FileAttributes::from_bits_retain(wanted.attributes);
    match wanted.caching {
        Caching::Nothing => {}
        Caching::Oplock(level) => request.oplock_level = level,
        Caching::Lease(key, state) => {
            let version = LeaseVersion::V2 { parent: None, epoch: 0 };
            let lease = Lease { key: LeaseKey(key.0), state, break_in_progress: false, version };
            request.oplock_level = OplockLevel::LEASE;
            request.contexts.push(CreateRequestContext::Lease(lease));
        }
    }
}

fn collect(directory: &Path, below: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = format!("{below}{}", entry.file_name().to_string_lossy().to_uppercase());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(format!("{name}\\"));
            collect(&entry.path(), &format!("{name}\\"), found);
        } else {
            let bytes = std::fs::read(entry.path()).unwrap_or_default();
            found.push(format!("{name}={}", String::from_utf8_lossy(&bytes).replace('\0', ".")));
        }
    }
}

/// READONLY, HIDDEN, SYSTEM, DIRECTORY, ARCHIVE: what both servers keep.
const COMPARED: u32 = 0x37;
/// How long a client waits for its answer before the others look for breaks.
const TURN: Duration = Duration::from_millis(2);
/// How long the others look.
const GLANCE: Duration = Duration::from_micros(50);
/// How long a break may take that is sent behind the answer.
const LATE: Duration = Duration::from_millis(20);
