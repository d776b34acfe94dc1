//! A server without sockets, whose engine is a test: one session, whose requests the test
//! dispatches.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use basics::{Clock, Environment, TimeSource};
use pmem::Medium;
use rdma::{Access, Lkey, MemoryRegion, Rkey};
use remote::host::{HostError, Later, PushConnection, Registrar};
use rustix::fs::{CWD, FileType, Mode};
use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
    CreateResponse, CreateResponseContext, ImpersonationLevel, Lease, LeaseKey, LeaseState,
    LeaseVersion, OplockLevel, ShareAccess,
};
use smb::crypto::{Lane, SigningAlgorithm, SigningKey};
use smb::info::{self, FileAttributes, FileInfoClass, InfoType};
use smb::negotiate::{Capabilities, Dialect, SecurityMode};
use smb::push::{
    Durability, MapRequest, MapResponse, PushConnect, PushConnectionId, PushRequest, PushResponse,
    Rights,
};
use smb::{
    Command, ControlCode, FileId, Guid, Header, HeaderFlags, IoctlRequest, IoctlResponse,
    MessageId, Name, NtStatus, Route, SessionId, SetInfoRequest, TreeId,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tree::{Body, CommonNames, Share, ShareConfig};

use crate::access;
use crate::access::Target;
use crate::access::{Identity, Tree};
use crate::config::{PushPolicy, SigningPolicy, Users};
use crate::connections::link::Agreed;
use crate::connections::session::SessionParts;
use crate::connections::{Channel, Link, Outbox, Parcel, Session};
use crate::dispatch::call::Call;
use crate::limits::Limits;
use crate::push::Push;
use crate::service::{Core, CoreParts};

/// The server, its engine and its client.
pub(crate) struct Rig {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) core: Arc<Core>,
    pub(crate) engine: Arc<TestEngine>,
    link: Arc<Link>,
    channel: Arc<Channel>,
    tree: Arc<Tree>,
    next_message: AtomicU64,
}

impl Rig {
    /// Imitates a client that has lost its connection and set up another session.
    pub(crate) fn reconnect(&mut self) {
        let (old, share) = (self.channel.session.id, Arc::clone(&self.core.files.shares()[0]));
        let (channel, tree) = log_on(&self.core, old + 1, share);
        let work = Arc::clone(self.channel.session.work());
        self.core.dissolve_session(old);
        while !work.is_settled() {
            std::thread::yield_now();
        }
        self.channel = channel;
        self.tree = tree;
    }

    /// Another session of the user, over no connection yet.
    pub(crate) fn log_on_beside(&self) -> Arc<Session> {
        let (id, share) =
            (self.channel.session.id + 1_000, Arc::clone(&self.core.files.shares()[0]));
        let (channel, _) = log_on(&self.core, id, share);
        Arc::clone(&channel.session)
    }

    /// The session of the requests.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.channel.session
    }

    /// The connection of the requests.
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// A share in memory, with a grace that ends only when the test ends it.
    pub(crate) fn new() -> Self {
        Self::with_grace(Duration::from_secs(3600))
    }

    pub(crate) fn with_grace(grace: Duration) -> Self {
        Self::on("/dev/shm", grace)
    }

    /// A share in a directory of its own in `parent`.
    pub(crate) fn on(parent: &str, grace: Duration) -> Self {
        Self::of_share(parent, graced(grace), Clock::host(), |_| {}, |_| {})
    }

    /// A share in a directory of its own in `parent`, with other settings.
    pub(crate) fn of(
        parent: &str,
        policy: PushPolicy,
        configure: impl FnOnce(&mut ShareConfig),
    ) -> Self {
        Self::of_share(parent, policy, Clock::host(), configure, |_| {})
    }

    /// A share in memory, by this clock.
    pub(crate) fn at(clock: Clock) -> Self {
        Self::of_share("/dev/shm", graced(Duration::from_secs(3600)), clock, |_| {}, |_| {})
    }

    /// A share in memory, whose persistent opens are in this log.
    pub(crate) fn with_log(log: &Path) -> Self {
        let keep = |share: &mut ShareConfig| share.persistent_opens = Some(log.to_owned());
        let open = |share: &mut Share| share.take_over().unwrap();
        Self::of_share("/dev/shm", graced(Duration::from_secs(3600)), Clock::host(), keep, open)
    }

    /// A share in memory, with a node `device` that stands for a medium.
    pub(crate) fn with_device(medium: Arc<dyn Medium>) -> Self {
        Self::with_node(|share| share.stand_in(0, medium))
    }

    /// The same with any body.
    pub(crate) fn with_body(body: Arc<dyn Body>) -> Self {
        Self::with_node(|share| share.show(0, body))
    }

    fn with_node(show: impl FnOnce(&mut Share)) -> Self {
        let rig = Self::of_share(
            "/dev/shm",
            graced(Duration::from_secs(3600)),
            Clock::host(),
            |_| {},
            show,
        );
        // A node of device number 0:0, which takes no privilege.
        let (path, kind) = (rig.dir.path().join("device"), FileType::CharacterDevice);
        rustix::fs::mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, 0).unwrap();
        rig
    }

    fn of_share(
        parent: &str,
        policy: PushPolicy,
        clock: Clock,
        configure: impl FnOnce(&mut ShareConfig),
        change: impl FnOnce(&mut Share),
    ) -> Self {
        let dir = tempfile::tempdir_in(parent).unwrap();
        let mut exported = ShareConfig::new("data", dir.path());
        exported.emulate_persistence = true;
        configure(&mut exported);
        let mut share = Share::open(&exported).unwrap();
        change(&mut share);
        let share = Arc::new(share);
        let core = Arc::new(Core::new(CoreParts {
            environment: Environment { clock: clock.clone(), ..Environment::host() },
            limits: Limits::default(),
            shares: vec![Arc::clone(&share)],
            names: CommonNames::default(),
            users: Users::with_passwords([("user", "secret")]),
            signing: SigningPolicy::Required,
            encrypt_required: false,
            guid: Guid([1; 16]),
            tcp_address: None,
            announced: Vec::new(),
            push: Push::new(policy, clock, Handle::current()),
            runtime: Handle::current(),
            first_serial: 1,
        }));
        let address = "127.0.0.1:5445".parse().unwrap();
        let engine = Arc::new(TestEngine::default());
        core.push.attach(Arc::clone(&engine) as Arc<dyn Registrar>, address, None);
        let link = Arc::new(Link::new(
            Arc::clone(&core.connections),
            address,
            address,
            Box::new(Nowhere),
            None,
        ));
        link.agreed.set(agreed()).unwrap();
        let (channel, tree) = log_on(&core, 7, share);
        Self { dir, core, engine, link, channel, tree, next_message: AtomicU64::new(1) }
    }

    /// A file of 64 KiB, opened by the holder of lease `key`.
    pub(crate) async fn open(&self, name: &str, key: u8) -> Opened {
        self.open_with(name, key, CreateRequestContext::QueryOnDiskId).await.unwrap()
    }

    /// The same with one more context in the request.
    pub(crate) async fn open_with(
        &self,
        name: &str,
        key: u8,
        context: CreateRequestContext<'static>,
    ) -> Result<Opened, NtStatus> {
        let path = self.dir.path().join(name);
        if !path.exists() {
            std::fs::write(&path, vec![0; usize::try_from(LEN).unwrap()]).unwrap();
        }
        let pdu = self.create(name, key, CreateDisposition::OPEN, context).await?;
        let response = CreateResponse::parse(&pdu).unwrap();
        let grant = response.contexts.iter().find_map(|context| match context {
            CreateResponseContext::Push(PushResponse::Granted(grant)) => Some(grant.clone()),
            _ => None,
        });
        let mut hello = Vec::new();
        let grant = grant.expect("push is granted");
        PushConnect { proof: grant.token.proof(grant.places()[0]) }.emit(&mut hello);
        let accepted = self.core.push.admit(&hello, PushConnection(u64::from(key))).unwrap();
        let connection = smb::push::PushAccept::parse(&accepted).unwrap().push_connection_id;
        Ok(Opened { id: response.file_id, connection })
    }

    /// Opens a file and empties it.
    pub(crate) async fn overwrite(&self, name: &str, key: u8) -> FileId {
        self.try_overwrite(name, key).await.unwrap()
    }

    pub(crate) async fn try_overwrite(&self, name: &str, key: u8) -> Result<FileId, NtStatus> {
        let (how, context) = (CreateDisposition::OVERWRITE, CreateRequestContext::QueryOnDiskId);
        let pdu = self.create(name, key, how, context).await?;
        Ok(CreateResponse::parse(&pdu).unwrap().file_id)
    }

    pub(crate) async fn close(&self, file_id: FileId) {
        let request = smb::CloseRequest { query_attributes: false, file_id };
        self.ask(Command::CLOSE, |out| request.emit(out)).await.unwrap();
    }

    pub(crate) async fn create(
        &self,
        name: &str,
        key: u8,
        disposition: CreateDisposition,
        context: CreateRequestContext<'static>,
    ) -> Result<Vec<u8>, NtStatus> {
        self.create_as(name, key, disposition, context, |_, _, _| ()).await
    }

    /// The same with another request.
    pub(crate) async fn create_as(
        &self,
        name: &str,
        key: u8,
        disposition: CreateDisposition,
        context: CreateRequestContext<'static>,
        change: impl FnOnce(&mut CreateRequest<'_>, &mut Lease, &mut PushRequest),
    ) -> Result<Vec<u8>, NtStatus> {
        let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
        let version = LeaseVersion::V2 { parent: None, epoch: 0 };
        let mut lease =
            Lease { key: LeaseKey([key; 16]), state, break_in_progress: false, version };
        let mut push = PushRequest {
            rights: Rights::READ | Rights::WRITE | Rights::FLUSH,
            durability: Durability::ANY,
            accept_emulated: true,
            regions_max: 1,
        };
        let mut request = CreateRequest {
            oplock_level: OplockLevel::LEASE,
            impersonation: ImpersonationLevel::IMPERSONATION,
            desired_access: AccessMask::FILE_GENERIC_READ
                | AccessMask::FILE_GENERIC_WRITE
                | AccessMask::DELETE,
            attributes: FileAttributes::empty(),
            share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            disposition,
            options: CreateOptions::empty(),
            name: Name::new(name).unwrap(),
            contexts: vec![context],
        };
        change(&mut request, &mut lease, &mut push);
        let asked = [CreateRequestContext::Lease(lease), CreateRequestContext::Push(push)];
        request.contexts.splice(0..0, asked);
        self.ask(Command::CREATE, |out| request.emit(out)).await
    }

    pub(crate) async fn map(
        &self,
        open: Opened,
        file_offset: u64,
        length: u64,
    ) -> Result<MapResponse, NtStatus> {
        let request = MapRequest {
            rights: Rights::READ | Rights::WRITE | Rights::FLUSH,
            push_connection_id: open.connection,
            file_offset,
            length,
        };
        let code = ControlCode::MAP_REMOTE_REGION;
        let output = self.control(open, code, |out| request.emit(out), 4096).await?;
        Ok(MapResponse::parse(&output).unwrap())
    }

    pub(crate) async fn control(
        &self,
        open: Opened,
        code: ControlCode,
        input: impl FnOnce(&mut Vec<u8>),
        output_max: u32,
    ) -> Result<Vec<u8>, NtStatus> {
        let mut bytes = Vec::new();
        input(&mut bytes);
        let request = IoctlRequest {
            code,
            file_id: open.id,
            input: &bytes,
            input_response_max: 0,
            output_response_max: output_max,
            is_fsctl: true,
        };
        let pdu = self.ask(Command::IOCTL, |out| request.emit(out)).await?;
        Ok(IoctlResponse::parse(&pdu).unwrap().output.to_vec())
    }

    pub(crate) async fn set_end(&self, open: Opened, end_of_file: u64) -> Result<(), NtStatus> {
        let mut buffer = Vec::new();
        info::EndOfFile { end_of_file }.emit(&mut buffer);
        self.set_info(open, FileInfoClass::END_OF_FILE, &buffer).await
    }

    pub(crate) async fn set_info(
        &self,
        open: Opened,
        class: FileInfoClass,
        buffer: &[u8],
    ) -> Result<(), NtStatus> {
        let request = SetInfoRequest {
            info_type: InfoType::FILE,
            class: class.0,
            additional: info::SecurityInformation::empty(),
            file_id: open.id,
            buffer,
        };
        self.ask(Command::SET_INFO, |out| request.emit(out)).await.map(drop)
    }

    /// Dispatches a request; returns the whole answer if it is a success.
    pub(crate) async fn ask(
        &self,
        command: Command,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Vec<u8>, NtStatus> {
        let mut call = self.call(command, body);
        let mut out = Vec::new();
        Header { flags: HeaderFlags::RESPONSE, ..call.header }.emit(&mut out);
        crate::dispatch::dispatch(&mut call, &mut out).await?;
        Ok(out)
    }

    /// A request as the dispatcher gets it.
    pub(crate) fn call(&self, command: Command, body: impl FnOnce(&mut Vec<u8>)) -> Call {
        let id = self.next_message.fetch_add(1, Ordering::Relaxed);
        let mut header = Header::request(command, MessageId(id));
        header.flags |= HeaderFlags::SIGNED;
        header.credit_charge = 16;
        header.session_id = SessionId(self.channel.session.id);
        header.route = Route::Sync { process_id: 0, tree_id: TreeId(self.tree.id) };
        let mut frame = Vec::new();
        header.emit(&mut frame);
        body(&mut frame);
        let range = 0..frame.len();
        Call {
            core: Arc::clone(&self.core),
            link: Arc::clone(&self.link),
            header,
            channel: Arc::clone(&self.channel),
            sealed: false,
            frame: Arc::new(frame.into()),
            range,
            chain_file: None,
            chain_tree: None,
            pending: self.link.add_pending(id, self.channel.session.id),
            may_pend: true,
            under_way: None,
            prepared: None,
            breaks_wait: None,
        }
    }

    pub(crate) fn size(&self, name: &str) -> u64 {
        std::fs::metadata(self.dir.path().join(name)).unwrap().len()
    }

    /// Regions that the engine would let a peer use.
    pub(crate) fn registered(&self) -> usize {
        self.engine.registered.lock().unwrap().len()
    }
}

fn graced(grace: Duration) -> PushPolicy {
    PushPolicy { grace, ..PushPolicy::default() }
}

fn log_on(core: &Core, id: u64, share: Arc<Share>) -> (Arc<Channel>, Arc<Tree>) {
    let key = SigningKey::new(SigningAlgorithm::AesCmac, &[7; 16]);
    let (of_channel, signing) = key.divide(Lane::new().id(), 0);
    let session = Arc::new(Session::new(SessionParts {
        id,
        identity: Identity::user("user"),
        account: core.connections.accounts.of(&Identity::user("user")),
        place: None,
        agreed: agreed(),
        signing: Some(signing),
        sealing: None,
        opening: None,
        signing_required: true,
        encrypt_required: false,
        since: core.now(),
    }));
    let tree = session.connect_tree(Target::Disk(share), access::Rights::ALL).unwrap();
    assert!(core.sessions.add(Arc::clone(&session)));
    (Arc::new(Channel { session, signing: Some(of_channel) }), tree)
}

/// An open with a push connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) id: FileId,
    pub(crate) connection: PushConnectionId,
}

type Registered = (Arc<dyn Medium>, Range<u64>);

/// Takes the place of the engine: records registrations, and decides when a drain ends.
#[derive(Debug)]
pub(crate) struct TestEngine {
    registered: Mutex<HashMap<Rkey, Registered>>,
    last: AtomicU32,
    /// While true no deregistration ends.
    drain: watch::Sender<bool>,
    /// As an adapter that reaches memory alone.
    is_blind_to_files: AtomicBool,
}

impl Default for TestEngine {
    fn default() -> Self {
        let (registered, last) = (Mutex::default(), AtomicU32::new(0));
        let (drain, is_blind_to_files) = (watch::Sender::new(false), AtomicBool::new(false));
        Self { registered, last, drain, is_blind_to_files }
    }
}

impl TestEngine {
    /// Operations begin that do not end.
    pub(crate) fn hold(&self) {
        self.drain.send_replace(true);
    }

    /// Those operations end.
    pub(crate) fn release(&self) {
        self.drain.send_replace(false);
    }

    /// From now on it reaches memory alone, as an adapter does.
    pub(crate) fn reach_memory_alone(&self) {
        self.is_blind_to_files.store(true, Ordering::Relaxed);
    }

    /// Bytes that the peer of the only region writes.
    pub(crate) fn place(&self, offset: u64, bytes: &[u8]) {
        let registered = self.registered.lock().unwrap();
        let (medium, range) = registered.values().next().unwrap();
        medium.place(range.start + offset, bytes).unwrap();
    }
}

impl Registrar for TestEngine {
    fn reaches_files(&self) -> bool {
        !self.is_blind_to_files.load(Ordering::Relaxed)
    }

    fn register(
        &self,
        _: PushConnection,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        _: Access,
    ) -> Later<Result<MemoryRegion, HostError>> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (rkey, lkey) = (Rkey(number), Lkey(number));
        let len = range.end - range.start;
        self.registered.lock().unwrap().insert(rkey, (medium, range));
        let memory = MemoryRegion {
            rkey,
            lkey,
            remote_addr_base: 0,
            len,
            offers: rdma::PeerOperations::all(),
            unseen: false,
        };
        Box::pin(async move { Ok(memory) })
    }

    fn deregister(&self, _: PushConnection, rkey: Rkey) -> Later<()> {
        self.registered.lock().unwrap().remove(&rkey);
        let mut drain = self.drain.subscribe();
        Box::pin(async move {
            let _ = drain.wait_for(|held| !held).await;
        })
    }

    fn disconnect(&self, _: PushConnection) {}
}

/// Drops lease breaks and interim answers.
#[derive(Debug)]
struct Nowhere;

impl Outbox for Nowhere {
    fn deliver(&self, _: Parcel) {}
    fn close(&self) {}
}

/// A connection of its own whose peer says nothing, of this user or of a stranger.
pub(crate) fn silent_link(rig: &Rig, who: Option<&Identity>) -> Arc<Link> {
    let (address, connections) = (rig.link.peer, Arc::clone(&rig.core.connections));
    let link = Arc::new(Link::new(connections, address, address, Box::new(Nowhere), None));
    link.agreed.set(agreed()).unwrap();
    if let Some(who) = who {
        link.belong_to(rig.core.connections.accounts.of(who), who.is_guest());
    }
    link
}

fn agreed() -> Agreed {
    Agreed {
        dialect: Dialect::SMB_3_1_1,
        client_guid: [1; 16],
        client_capabilities: Capabilities::empty(),
        client_security_mode: SecurityMode::SIGNING_ENABLED,
        server_capabilities: Capabilities::empty(),
        server_security_mode: SecurityMode::SIGNING_ENABLED,
        signing: SigningAlgorithm::AesCmac,
        cipher: None,
        posix: false,
    }
}

/// A clock that lets a second pass each time it is looked at. It is a day behind the timers of tokio, which therefore
/// have fired when they are set: what waits for a deadline alone is over at once, after as many looks as it takes.
pub(crate) fn hasty_clock() -> Clock {
    let started = Instant::now() - Duration::from_secs(24 * 3600);
    Clock::given(Arc::new(Hasty { started, looks: AtomicU64::new(0) }))
}

struct Hasty {
    started: Instant,
    looks: AtomicU64,
}

impl TimeSource for Hasty {
    fn now(&self) -> Instant {
        self.started + Duration::from_secs(self.looks.fetch_add(1, Ordering::SeqCst))
    }

    fn time_of_day(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}

/// Length of every file here.
pub(crate) const LEN: u64 = 64 * 1024;
