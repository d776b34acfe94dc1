//! The control side of a region at a server that does as a test says.

mod back;
mod breaks;
mod calls;
mod dialled;

use std::net::{SocketAddr, SocketAddrV6};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use remote::{Control, Recall};
use smb::create::{
    CreateAction, CreateDisposition, CreateRequest, CreateRequestContext, CreateResponse,
    CreateResponseContext, Lease, LeaseVersion, OplockLevel,
};
use smb::fsctl::{InterfaceCapability, NetworkInterface};
use smb::info::FileAttributes;
use smb::negotiate::{HashId, NegotiateContext};
use smb::push::{
    Capabilities as PushCapabilities, CommitRequest, CommitResponse, Durability, Generation,
    MapRequest, MapResponse, PushGrant, PushRequest, PushResponse, PushToken, RecallResponse,
    RegistrationId, Rights, UnmapRequest, WriteUnderLease,
};
use smb::{
    BreakAck, CloseRequest, CloseResponse, ControlCode, FileId, FlushRequest, IoctlRequest,
    IoctlResponse, LeaseBreakAck, ReadRequest, ReadResponse, WriteRequest, WriteResponse,
};
use smbdirect::{BufferDescriptor, Token};
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::client::Client;
use crate::file::{File, OpenOptions};
use crate::region::FileControl;

/// What a client asked of the server; files by the numbers that the server gave them, from 1.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Asked {
    Open(CreateDisposition, LeaseKey),
    Map { file: u64, rights: Rights, connection: u64, offset: u64, len: u64 },
    Unmap { file: u64, registration: u64, generation: u64 },
    Commit { file: u64, registration: u64, ranges: Vec<Range<u64>> },
    WriteAgain { file: u64, offset: u64, epoch: u16, data: Vec<u8> },
    Read { file: u64, offset: u64 },
    Write { file: u64, offset: u64, data: Vec<u8> },
    Flush { file: u64 },
    Close { file: u64 },
    Acknowledge(LeaseKey, LeaseState),
    Interfaces,
}

/// What the server does.
struct Manners {
    /// The status of what is asked.
    status: Box<dyn FnMut(&Asked) -> NtStatus + Send>,
    /// The lease that each CREATE grants.
    lease: (u16, LeaseState),
    grace_ms: u32,
    durability: Durability,
    /// Where it listens for push connections.
    addresses: Vec<SocketAddr>,
    same_host: Option<SocketAddrV6>,
    /// The addresses of its interfaces, as it announces them.
    announced: Vec<IpAddr>,
    /// Bytes that a READ finds.
    found: &'static [u8],
    /// Registrations so far.
    mapped: u64,
    opened: u64,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            status: Box::new(|_| NtStatus::SUCCESS),
            lease: (1, whole()),
            // Longer than a test takes.
            grace_ms: 3_600_000,
            durability: Durability::STORAGE,
            addresses: Vec::new(),
            same_host: None,
            announced: Vec::new(),
            found: b"found",
            mapped: 0,
            opened: 0,
        }
    }
}

fn whole() -> LeaseState {
    LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE
}

/// A server, as the test sees it.
struct Site {
    voice: Arc<Server>,
    manners: Arc<Mutex<Manners>>,
    asked: Receiver<Asked>,
    /// Requests that wait for a recall.
    waiting: Receiver<Header>,
}

impl Site {
    /// A server, and a client of its share.
    fn start(runtime: &Runtime) -> (Self, Client) {
        Self::start_at(runtime, Vec::new(), true)
    }

    /// The same at one of these addresses; `signs`: requests are signed.
    fn start_at(runtime: &Runtime, addresses: Vec<IpAddr>, signs: bool) -> (Self, Client) {
        let (heard, asked) = channel();
        let (waits, waiting) = channel();
        let manners = Arc::new(Mutex::new(Manners::default()));
        let kept = Arc::clone(&manners);
        let (voice, client) = runtime.block_on(async move {
            let patience = Patience { silence: PATIENCE, call: PATIENCE };
            let session = |keys| SessionSecurity::new(SESSION, keys, signs, false);
            let (connection, session, mut server) = connected_at(addresses, patience, session);
            let (_, none) = mpsc::unbounded_channel();
            let requests = std::mem::replace(&mut server.requests, none);
            let voice = Arc::new(server);
            tokio::spawn(serve(Arc::clone(&voice), requests, kept, heard, waits));
            let options = ConnectOptions::default();
            super::super::negotiate(&connection, &options, "host").await.unwrap();
            let tree = Tree::enter(connection, session, "host", "share", false).await.unwrap();
            (voice, Client::of(tree))
        });
        (Self { voice, manners, asked, waiting }, client)
    }

    fn manners(&self) -> MutexGuard<'_, Manners> {
        self.manners.lock().unwrap()
    }

    /// The server refuses what `is_meant` says.
    fn refuses(&self, status: NtStatus, is_meant: impl Fn(&Asked) -> bool + Send + 'static) {
        self.manners().status =
            Box::new(move |asked| if is_meant(asked) { status } else { NtStatus::SUCCESS });
    }

    /// What is asked next.
    fn next(&self) -> Asked {
        self.asked.recv_timeout(PATIENCE).expect("the client asks")
    }

    /// What was asked, as far as it has come.
    fn so_far(&self) -> Vec<Asked> {
        self.asked.try_iter().collect()
    }

    /// Takes caching rights back.
    fn breaks(&self, key: LeaseKey, epoch: u16, new: LeaseState) {
        let header = Header {
            flags: HeaderFlags::RESPONSE,
            ..Header::request(Command::OPLOCK_BREAK, MessageId::UNSOLICITED)
        };
        let (ack_required, current) = (true, whole());
        let found = LeaseBreakNotification { epoch, ack_required, lease_key: key, current, new };
        self.voice.say(false, header, |out| found.emit(out));
    }

    /// Answers the request that waits for a recall.
    fn recalls(&self) {
        let mut header = self.waiting.recv_timeout(PATIENCE).expect("the client waits");
        (header.status, header.credits) = (NtStatus::SUCCESS, 0);
        let (code, file_id) = (ControlCode::WAIT_REGION_RECALL, file(1));
        self.voice.say(true, header, |out| {
            IoctlResponse::emit_with(out, code, file_id, |out| {
                RecallResponse { recalls: Vec::new() }.emit(out);
            });
        });
    }

    /// Ends the connection: the client takes none of these bytes for a message.
    fn ends(&self) {
        self.voice.answers.send(vec![0; 64]).unwrap();
    }
}

fn file(number: u64) -> FileId {
    FileId { persistent: number, volatile: number }
}

async fn serve(
    voice: Arc<Server>,
    mut requests: mpsc::UnboundedReceiver<Vec<u8>>,
    manners: Arc<Mutex<Manners>>,
    heard: Sender<Asked>,
    waits: Sender<Header>,
) {
    let mut asyncs = 0;
    while let Some(pdu) = requests.recv().await {
        let request = Header::parse(&pdu).unwrap();
        let mut header = request.response(NtStatus::SUCCESS);
        header.credits = 64;
        let is_signed = request.flags.contains(HeaderFlags::SIGNED);
        match request.command {
            Command::NEGOTIATE => {
                let hashes = vec![HashId::SHA_512];
                let contexts = vec![NegotiateContext::PreauthIntegrity { hashes, salt: &[] }];
                let answer = NegotiateResponse { contexts, ..hello(Dialect::SMB_3_1_1) };
                voice.say(false, header, |out| answer.emit(out));
                continue;
            }
            Command::TREE_CONNECT => {
                voice.say(is_signed, header, |out| entered().emit(out));
                continue;
            }
            Command::TREE_DISCONNECT | Command::CANCEL => continue,
            _ => {}
        }
        let Some(asked) = asked_by(&pdu, request.command) else {
            asyncs += 1;
            (header.status, header.route) = (NtStatus::PENDING, Route::Async(AsyncId(asyncs)));
            voice.say(false, header, |out| ErrorResponse::NONE.emit(out));
            // A test that has ended waits for nothing.
            let _ = waits.send(header);
            continue;
        };
        let mut manners = manners.lock().unwrap();
        header.status = (manners.status)(&asked);
        // Offsets count from the header.
        let mut body = vec![0; Header::LEN];
        match header.status == NtStatus::SUCCESS {
            true => manners.answer(&asked, &mut body),
            false => ErrorResponse::NONE.emit(&mut body),
        }
        drop(manners);
        let _ = heard.send(asked);
        voice.say(is_signed, header, |out| out.extend_from_slice(&body[Header::LEN..]));
    }
}

/// What a request asks; none if it waits for a recall.
fn asked_by(pdu: &[u8], command: Command) -> Option<Asked> {
    let asked = match command {
        Command::CREATE => {
            let asked = CreateRequest::parse(pdu).unwrap();
            let key = asked.contexts.iter().find_map(|context| match context {
                CreateRequestContext::Lease(lease) => Some(lease.key),
                _ => None,
            });
            Asked::Open(asked.disposition, key.unwrap())
        }
        Command::READ => {
            let asked = ReadRequest::parse(pdu).unwrap();
            Asked::Read { file: asked.file_id.volatile, offset: asked.offset }
        }
        Command::WRITE => {
            let asked = WriteRequest::parse(pdu).unwrap();
            let data = asked.data.to_vec();
            Asked::Write { file: asked.file_id.volatile, offset: asked.offset, data }
        }
        Command::FLUSH => Asked::Flush { file: FlushRequest::parse(pdu).unwrap().file_id.volatile },
        Command::CLOSE => Asked::Close { file: CloseRequest::parse(pdu).unwrap().file_id.volatile },
        Command::OPLOCK_BREAK => match BreakAck::parse(pdu).unwrap() {
            BreakAck::Lease(LeaseBreakAck { lease_key, state }) => {
                Asked::Acknowledge(lease_key, state)
            }
            BreakAck::Oplock(ack) => panic!("{ack:?}"),
        },
        Command::IOCTL => return controlled(&IoctlRequest::parse(pdu).unwrap()),
        other => panic!("{other:?}"),
    };
    Some(asked)
}

fn controlled(asked: &IoctlRequest<'_>) -> Option<Asked> {
    let file = asked.file_id.volatile;
    Some(match asked.code {
        ControlCode::MAP_REMOTE_REGION => {
            let MapRequest { rights, push_connection_id, file_offset, length } =
                MapRequest::parse(asked.input).unwrap();
            let connection = push_connection_id.0;
            Asked::Map { file, rights, connection, offset: file_offset, len: length }
        }
        ControlCode::UNMAP_REMOTE_REGION => {
            let UnmapRequest { registration, generation } =
                UnmapRequest::parse(asked.input).unwrap();
            Asked::Unmap { file, registration: registration.0, generation: generation.0 }
        }
        ControlCode::COMMIT_REMOTE_REGION => {
            let asked = CommitRequest::parse(asked.input).unwrap();
            let ranges = asked
                .ranges
                .iter()
                .map(|range| range.file_offset..range.file_offset + range.length);
            let registration = asked.registration.0;
            Asked::Commit { file, registration, ranges: ranges.collect() }
        }
        ControlCode::WRITE_UNDER_LEASE => {
            let WriteUnderLease { file_offset, epoch, data } =
                WriteUnderLease::parse(asked.input).unwrap();
            Asked::WriteAgain { file, offset: file_offset, epoch, data: data.to_vec() }
        }
        ControlCode::QUERY_NETWORK_INTERFACE_INFO => Asked::Interfaces,
        ControlCode::WAIT_REGION_RECALL => return None,
        other => panic!("{other:?}"),
    })
}

impl Manners {
    /// The body of an answer that reports success.
    fn answer(&mut self, asked: &Asked, out: &mut Vec<u8>) {
        let mut output = Vec::new();
        let (code, number) = match *asked {
            Asked::Open(_, key) => return self.open(key, out),
            Asked::Read { .. } => {
                return ReadResponse { data: self.found, data_remaining: 0 }.emit(out);
            }
            Asked::Write { ref data, .. } => {
                return WriteResponse { count: u32::try_from(data.len()).unwrap() }.emit(out);
            }
            Asked::Flush { .. } => return Empty.emit(out),
            Asked::Close { .. } => return CloseResponse { attributes: None }.emit(out),
            Asked::Acknowledge(lease_key, state) => {
                return LeaseBreakAck { lease_key, state }.emit(out);
            }
            Asked::Map { file, rights, offset, len, .. } => {
                self.mapped += 1;
                self.map(rights, offset..offset + len).emit(&mut output);
                (ControlCode::MAP_REMOTE_REGION, file)
            }
            Asked::Unmap { file, .. } => (ControlCode::UNMAP_REMOTE_REGION, file),
            Asked::Commit { file, .. } => {
                CommitResponse { durability: self.durability, emulated: false }.emit(&mut output);
                (ControlCode::COMMIT_REMOTE_REGION, file)
            }
            Asked::WriteAgain { file, .. } => (ControlCode::WRITE_UNDER_LEASE, file),
            Asked::Interfaces => {
                let (capability, link_speed) = (InterfaceCapability::empty(), 1);
                let each = self.announced.iter().map(|address| NetworkInterface {
                    index: 1,
                    capability,
                    link_speed,
                    address: *address,
                });
                NetworkInterface::emit_list(&each.collect::<Vec<_>>(), &mut output);
                (ControlCode::QUERY_NETWORK_INTERFACE_INFO, u64::MAX)
            }
        };
        IoctlResponse { code, file_id: file(number), output: &output }.emit(out);
    }

    fn open(&mut self, key: LeaseKey, out: &mut Vec<u8>) {
        self.opened += 1;
        let (epoch, state) = self.lease;
        let version = LeaseVersion::V2 { parent: None, epoch };
        let grant = PushGrant {
            capabilities: PushCapabilities::FLUSH,
            durability: self.durability,
            store_granularity: 8,
            regions_max: 1,
            region_length_max: 1 << 30,
            rights: Rights::all(),
            token_lifetime_ms: 1_000,
            token: PushToken::new([1; 32]),
            recall_grace_ms: self.grace_ms,
            addresses: self.addresses.clone(),
            same_host: self.same_host,
        };
        CreateResponse {
            oplock_level: OplockLevel::LEASE,
            reparse_point: false,
            action: CreateAction::OPENED,
            creation_time: FileTime(0),
            last_access_time: FileTime(0),
            last_write_time: FileTime(0),
            change_time: FileTime(0),
            allocation_size: 0,
            end_of_file: 1 << 20,
            attributes: FileAttributes::empty(),
            file_id: file(self.opened),
            contexts: vec![
                CreateResponseContext::Lease(Lease {
                    key,
                    state,
                    break_in_progress: false,
                    version,
                }),
                CreateResponseContext::Push(PushResponse::Granted(grant)),
            ],
        }
        .emit(out);
    }

    fn map(&self, rights: Rights, range: Range<u64>) -> MapResponse {
        let length = u32::try_from(range.end - range.start).unwrap();
        MapResponse {
            rights,
            registration: RegistrationId(self.mapped),
            generation: Generation(10 + self.mapped),
            file_offset: range.start,
            length: u64::from(length),
            durability: self.durability,
            store_granularity: 8,
            capabilities: PushCapabilities::FLUSH,
            descriptors: vec![BufferDescriptor { offset: 0, token: Token(7), length }],
        }
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn pushing() -> OpenOptions {
    OpenOptions::read_write().with_push(PushRequest {
        rights: Rights::READ | Rights::WRITE | Rights::FLUSH,
        durability: Durability::STORAGE,
        accept_emulated: false,
        regions_max: 1,
    })
}

/// A server, the control side of a region of its file 1, and the key of the lease, all on a runtime that goes last.
fn opened(manners: impl FnOnce(&mut Manners)) -> (Runtime, Site, FileControl, LeaseKey) {
    opened_at(Vec::new(), true, manners)
}

fn opened_at(
    addresses: Vec<IpAddr>,
    signs: bool,
    manners: impl FnOnce(&mut Manners),
) -> (Runtime, Site, FileControl, LeaseKey) {
    let runtime = runtime();
    let (site, client) = Site::start_at(&runtime, addresses, signs);
    manners(&mut site.manners());
    let (file, key) = open(&runtime, &site, &client);
    let handle = runtime.handle().clone();
    let control = FileControl::new(handle, client, "region", &pushing(), file, REGION);
    (runtime, site, control, key)
}

/// The same, mapped.
fn mapped(
    manners: impl FnOnce(&mut Manners),
) -> (Runtime, Site, FileControl, LeaseKey, Arc<Recall>) {
    let (runtime, site, mut control, key) = opened(manners);
    let recall = Arc::new(Recall::default());
    control.invite().unwrap();
    control.map(CONNECTION, &recall).unwrap();
    assert!(matches!(site.next(), Asked::Map { .. }));
    (runtime, site, control, key, recall)
}

fn open(runtime: &Runtime, site: &Site, client: &Client) -> (File, LeaseKey) {
    let file = runtime.block_on(client.open("region", &pushing())).unwrap();
    let Asked::Open(_, key) = site.next() else { panic!("it is opened") };
    (file, key)
}

/// Waits until the tasks that watch a mapping are gone.
fn unwatched(recall: &Arc<Recall>) {
    until(|| Arc::strong_count(recall) == 1);
}

/// Waits until the owner is asked to give its region back.
fn asked_back(recall: &Recall) {
    until(|| !recall.is_granted());
}

fn until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it never is");
        std::thread::yield_now();
    }
}

const REGION: Range<u64> = 4096..12_288;
const CONNECTION: u64 = 77;
