//! A small SMB client on a blocking socket, for saying exactly what a test wants to say.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod compound;
pub(crate) mod crash;
pub(crate) mod crowd;
pub(crate) mod logon;
pub(crate) mod mounts;
#[path = "../../../../tests/skipped.rs"]
pub(crate) mod skipped;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use server::{Running, Server, ServerConfig, ShareConfig, Users};
use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext,
    CreateResponse, ImpersonationLevel, OplockLevel, ShareAccess,
};
use smb::crypto::{Cipher, PreauthHash, SessionKeys, SigningAlgorithm};
use smb::info::{
    FileAttributes, FileInfoClass, InfoType, Rename, RenameFlags, SecurityInformation,
};
use smb::negotiate::{
    Capabilities, CipherId, Dialect, HashId, NegotiateContext, NegotiateRequest, SecurityMode,
    SigningId,
};
use smb::{
    Channel, CloseRequest, Command, ControlCode, Empty, FileId, Guid, Header, IoctlRequest,
    IoctlResponse, MessageId, Name, NtStatus, OutputResponse, Protocol, QueryInfoRequest,
    ReadFlags, ReadRequest, ReadResponse, Route, SessionFlags, SessionId, SetInfoRequest,
    TransformHeader, TreeConnectRequest, TreeId, WriteFlags, WriteRequest,
};
use tempfile::TempDir;
use tokio::runtime;
use tokio::task::JoinHandle;

/// A server with the share `data` for `user` with password `secret`.
pub(crate) struct Fixture {
    pub(crate) dir: Arc<TempDir>,
    pub(crate) running: Running,
    pub(crate) runtime: runtime::Runtime,
}

impl Fixture {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    pub(crate) fn start_with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::start_on(runtime::Runtime::new().unwrap(), change)
    }

    /// On threads of the test's choice.
    pub(crate) fn start_on(
        runtime: runtime::Runtime,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Self {
        Self::serve(Arc::new(tempfile::tempdir().unwrap()), runtime, change)
    }

    /// With what it serves in a directory made there.
    pub(crate) fn start_in(
        directory: &std::path::Path,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Self {
        let dir = tempfile::tempdir_in(directory).unwrap();
        Self::serve(Arc::new(dir), runtime::Runtime::new().unwrap(), change)
    }

    /// Another server of what this one serves.
    pub(crate) fn another(&self, change: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::serve(Arc::clone(&self.dir), runtime::Runtime::new().unwrap(), change)
    }

    fn serve(
        dir: Arc<TempDir>,
        runtime: runtime::Runtime,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Self {
        let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        config.shares.push(ShareConfig::new("data", dir.path()));
        config.users = Users::with_passwords([("user", "secret"), ("other", "hidden")]);
        change(&mut config);
        let running = runtime.block_on(Server::start(config)).unwrap();
        Self { dir, running, runtime }
    }

    /// With one thread for what may wait, for [`Fixture::take_thread`].
    pub(crate) fn start_with_one_thread() -> Self {
        Self::start_with_one_thread_and(|_| {})
    }

    /// The same, of a server set up as the test wants.
    pub(crate) fn start_with_one_thread_and(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut threads = runtime::Builder::new_multi_thread();
        threads.worker_threads(2).max_blocking_threads(1).enable_all();
        Self::start_on(threads.build().unwrap(), change)
    }

    /// Takes a thread for what may wait until the answer is dropped; returns once it is taken.
    pub(crate) fn take_thread(&self) -> Taken {
        let (release, wait) = mpsc::channel::<()>();
        let (busy, is_busy) = mpsc::channel();
        let work = self.runtime.spawn_blocking(move || {
            busy.send(()).unwrap();
            let _ = wait.recv();
        });
        is_busy.recv().unwrap();
        Taken { work, _release: release }
    }

    /// A connection that has said nothing.
    pub(crate) fn dial(&self) -> Wire {
        Wire::dial(self.running.tcp_address())
    }

    /// The same client again, over a new connection: its session takes the place of `lost`.
    pub(crate) fn again(&self, number: u8, lost: &Wire) -> Wire {
        let mut wire = self.dial();
        wire.negotiate(number);
        wire.previous = lost.session;
        wire.log_on();
        wire.enter("data");
        wire
    }

    /// A connection with a session and a tree. Clients of different numbers are different.
    pub(crate) fn client(&self, number: u8) -> Wire {
        let mut wire = self.dial();
        wire.negotiate(number);
        wire.log_on();
        wire.enter("data");
        wire
    }
}

/// A thread that does nothing else.
pub(crate) struct Taken {
    pub(crate) work: JoinHandle<()>,
    _release: mpsc::Sender<()>,
}

/// One connection.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    pub(crate) next_id: u64,
    pub(crate) session: u64,
    /// The session that the next logon takes the place of.
    pub(crate) previous: u64,
    pub(crate) tree: u32,
    pub(crate) keys: Option<Arc<SessionKeys>>,
    /// What the server said of the session at the end of the last logon.
    pub(crate) flags: SessionFlags,
    /// Sign requests.
    pub(crate) signs: bool,
    /// What it negotiates to sign with.
    pub(crate) signing: SigningAlgorithm,
    /// What it negotiates to seal with; then every request of a session with keys is sealed.
    pub(crate) cipher: Option<Cipher>,
    /// Signs alone, though it could seal.
    pub(crate) in_clear: bool,
    pub(crate) preauth: PreauthHash,
    /// What came and belongs to no request: notifications.
    pub(crate) unsolicited: Vec<(Header, Vec<u8>)>,
}

/// An answer: its header and its whole PDU.
pub(crate) type Answer = (Header, Vec<u8>);

impl Wire {
    pub(crate) fn dial(address: std::net::SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        // A test that hangs fails instead.
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self {
            stream,
            next_id: 0,
            session: 0,
            previous: 0,
            tree: 0,
            keys: None,
            flags: SessionFlags::empty(),
            signs: true,
            signing: SigningAlgorithm::AesCmac,
            cipher: None,
            in_clear: false,
            preauth: PreauthHash::new(),
            unsolicited: Vec::new(),
        }
    }

    pub(crate) fn negotiate(&mut self, client: u8) -> Answer {
        self.negotiate_with(client, Vec::new())
    }

    pub(crate) fn negotiate_with(&mut self, client: u8, more: Vec<NegotiateContext<'_>>) -> Answer {
        let hashes = vec![HashId::SHA_512];
        let mut contexts = vec![NegotiateContext::PreauthIntegrity { hashes, salt: &[7; 32] }];
        contexts.extend(more);
        if self.signing != SigningAlgorithm::AesCmac {
            contexts.push(NegotiateContext::Signing(vec![SigningId(self.signing.id())]));
        }
        if let Some(cipher) = self.cipher {
            contexts.push(NegotiateContext::Encryption(vec![CipherId(cipher.id())]));
        }
        let mut capabilities = Capabilities::LEASING | Capabilities::LARGE_MTU;
        capabilities.set(Capabilities::ENCRYPTION, self.cipher.is_some());
        let request = NegotiateRequest {
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities,
            client_guid: Guid([client; 16]),
            dialects: vec![Dialect::SMB_3_1_1],
            contexts,
        };
        let pdu = self.pdu(Command::NEGOTIATE, |out| request.emit(out));
        self.preauth.update(&pdu);
        self.send_frame(&pdu);
        let answer = self.receive();
        assert_eq!(answer.0.status, NtStatus::SUCCESS);
        self.preauth.update(&answer.1);
        answer
    }

    pub(crate) fn enter(&mut self, share: &str) -> NtStatus {
        let path = Name::new(format!("\\\\127.0.0.1\\{share}")).unwrap();
        let request = TreeConnectRequest { flags: 0, path };
        let (header, _) = self.ask(Command::TREE_CONNECT, |out| request.emit(out));
        if let Some(tree) = header.tree_id() {
            self.tree = tree.0;
        }
        header.status
    }

    /// Opens for reading and writing, sharing everything.
    pub(crate) fn open(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut CreateRequest<'_>),
    ) -> Opened {
        let id = self.start_open(name, change);
        self.finish_open(id)
    }

    pub(crate) fn start_open(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut CreateRequest<'_>),
    ) -> u64 {
        let request = create(name, change);
        self.start(Command::CREATE, |out| request.emit(out))
    }

    pub(crate) fn finish_open(&mut self, id: u64) -> Opened {
        let (header, pdu) = self.answer_to(id);
        if header.status.is_error() {
            return Opened { status: header.status, id: FileId::RELATED, pdu };
        }
        let response = CreateResponse::parse(&pdu).unwrap();
        Opened { status: header.status, id: response.file_id, pdu: pdu.clone() }
    }

    /// A PDU with the next message id, unsigned.
    pub(crate) fn pdu(&mut self, command: Command, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut header = Header::request(command, MessageId(self.next_id));
        self.next_id += 1;
        header.credits = 32;
        header.credit_charge = 1;
        header.session_id = SessionId(self.session);
        header.route = Route::Sync { process_id: 0, tree_id: TreeId(self.tree) };
        let mut out = Vec::new();
        header.emit(&mut out);
        body(&mut out);
        out
    }

    /// Sends a request, signed if this client signs, and returns its message id.
    pub(crate) fn start(&mut self, command: Command, body: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let id = self.next_id;
        let mut pdu = self.pdu(command, body);
        if self.cipher.is_some() && self.keys.is_some() && !self.in_clear {
            pdu = self.sealed(pdu);
        } else {
            self.sign(&mut pdu);
        }
        self.send_frame(&pdu);
        id
    }

    /// The frame of a PDU that is sealed.
    pub(crate) fn sealed(&self, mut pdu: Vec<u8>) -> Vec<u8> {
        let header = TransformHeader {
            signature: [0; 16],
            nonce: [0; 16],
            original_size: u32::try_from(pdu.len()).unwrap(),
            session_id: SessionId(self.session),
        };
        let mut frame = Vec::new();
        header.emit(&mut frame);
        let key = self.keys.as_ref().unwrap().sealing.as_ref().unwrap();
        key.seal(frame.as_mut_slice().try_into().unwrap(), &mut pdu).unwrap();
        frame.extend(pdu);
        frame
    }

    /// What a sealed frame holds; one that is not is as it is.
    pub(crate) fn opened(&self, mut frame: Vec<u8>) -> Vec<u8> {
        if Protocol::of(&frame) != Ok(Protocol::Encrypted) {
            return frame;
        }
        let mut payload = frame.split_off(TransformHeader::LEN);
        let key = self.keys.as_ref().unwrap().opening.as_ref().unwrap();
        key.open(frame.as_slice().try_into().unwrap(), &mut payload).unwrap();
        payload
    }

    pub(crate) fn ask(&mut self, command: Command, body: impl FnOnce(&mut Vec<u8>)) -> Answer {
        let id = self.start(command, body);
        self.answer_to(id)
    }

    pub(crate) fn close(&mut self, file_id: FileId) -> NtStatus {
        let close = CloseRequest { query_attributes: false, file_id };
        self.ask(Command::CLOSE, |out| close.emit(out)).0.status
    }

    /// Asks something of an open file; no bytes where there was an error.
    pub(crate) fn query(&mut self, id: FileId, class: FileInfoClass) -> (NtStatus, Vec<u8>) {
        self.query_of(id, InfoType::FILE, class.0)
    }

    /// The same of what belongs to it, as its volume.
    pub(crate) fn query_of(
        &mut self,
        file_id: FileId,
        info_type: InfoType,
        class: u8,
    ) -> (NtStatus, Vec<u8>) {
        let request = query(file_id, info_type, class);
        let (header, pdu) = self.ask(Command::QUERY_INFO, |out| request.emit(out));
        let output = OutputResponse::parse(&pdu).map(|response| response.output.to_vec());
        (header.status, output.unwrap_or_default())
    }

    /// Asks a file, or the server with it, to do something; no bytes where there was an error.
    pub(crate) fn control(
        &mut self,
        id: FileId,
        code: ControlCode,
        input: &[u8],
    ) -> (NtStatus, Vec<u8>) {
        let request = control(id, code, input);
        let (header, pdu) = self.ask(Command::IOCTL, |out| request.emit(out));
        let output = IoctlResponse::parse(&pdu).map(|response| response.output.to_vec());
        (header.status, output.unwrap_or_default())
    }

    /// Cancels a request that said by which route it waits.
    pub(crate) fn cancel(&mut self, message: u64, route: Route) {
        let mut cancel = Header::request(Command::CANCEL, MessageId(message));
        cancel.session_id = SessionId(self.session);
        cancel.route = route;
        let mut pdu = Vec::new();
        cancel.emit(&mut pdu);
        Empty.emit(&mut pdu);
        self.sign(&mut pdu);
        self.send_frame(&pdu);
    }

    /// Writes at the beginning of an open file.
    pub(crate) fn write(&mut self, id: FileId, data: &[u8]) -> NtStatus {
        self.ask(Command::WRITE, |out| write(id, 0, data).emit(out)).0.status
    }

    /// Sets something of an open file.
    pub(crate) fn set(&mut self, id: FileId, class: FileInfoClass, buffer: &[u8]) -> NtStatus {
        self.ask(Command::SET_INFO, |out| set(id, class, buffer).emit(out)).0.status
    }

    /// Renames an open file.
    pub(crate) fn rename(&mut self, id: FileId, to: &str, flags: RenameFlags) -> NtStatus {
        self.set(id, FileInfoClass::RENAME, &new_name(to, flags))
    }

    /// Reads from the beginning of an open file; no bytes where there was an error.
    pub(crate) fn read(&mut self, id: FileId, length: u32) -> (NtStatus, Vec<u8>) {
        let (header, pdu) = self.ask(Command::READ, |out| read(id, 0, length).emit(out));
        let data = ReadResponse::parse(&pdu).map(|response| response.data.to_vec());
        (header.status, data.unwrap_or_default())
    }

    pub(crate) fn sign(&self, pdu: &mut [u8]) {
        if let Some(keys) = self.keys.as_ref().filter(|_| self.signs) {
            sign_with(keys, pdu);
        }
    }

    pub(crate) fn send_frame(&mut self, frame: &[u8]) {
        let len = u32::try_from(frame.len()).unwrap();
        let mut bytes = len.to_be_bytes().to_vec();
        bytes.extend_from_slice(frame);
        self.stream.write_all(&bytes).unwrap();
    }

    pub(crate) fn receive_frame(&mut self) -> Option<Vec<u8>> {
        let mut prefix = [0; 4];
        self.fill(&mut prefix)?;
        let mut frame = vec![0; u32::from_be_bytes(prefix) as usize];
        self.fill(&mut frame)?;
        Some(frame)
    }

    // Silence is no end.
    fn fill(&mut self, bytes: &mut [u8]) -> Option<()> {
        let error = self.stream.read_exact(bytes).err();
        let kind = error.map(|error| error.kind());
        assert_ne!(kind, Some(ErrorKind::WouldBlock), "the server says nothing");
        kind.is_none().then_some(())
    }

    pub(crate) fn receive(&mut self) -> Answer {
        self.receive_if_any().expect("the server answers")
    }

    /// The next PDU; `None` when the server has closed the connection.
    pub(crate) fn receive_if_any(&mut self) -> Option<Answer> {
        let frame = self.receive_frame()?;
        let frame = self.opened(frame);
        Some((Header::parse(&frame).unwrap(), frame))
    }

    /// Whether the server has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.receive_frame().is_none()
    }

    /// The final answer to a request; interim answers, notifications and answers to others are passed over, and kept.
    pub(crate) fn answer_to(&mut self, id: u64) -> Answer {
        let is_final =
            |header: &Header| header.message_id.0 == id && header.status != NtStatus::PENDING;
        if let Some(at) = self.unsolicited.iter().position(|(header, _)| is_final(header)) {
            return self.unsolicited.remove(at);
        }
        loop {
            let (header, pdu) = self.receive();
            if header.message_id.0 != id {
                self.unsolicited.push((header, pdu));
            } else if header.status != NtStatus::PENDING {
                return (header, pdu);
            }
        }
    }

    /// The next notification.
    pub(crate) fn notification(&mut self) -> Answer {
        if !self.unsolicited.is_empty() {
            return self.unsolicited.remove(0);
        }
        let answer = self.receive();
        assert_eq!(answer.0.message_id.0, u64::MAX, "a notification");
        answer
    }
}

/// Signs whatever a test wants, as often as it wants.
#[expect(clippy::disallowed_methods, reason = "this plays clients that break rules, too")]
pub(crate) fn sign_with(keys: &SessionKeys, pdu: &mut [u8]) {
    keys.signing.sign_unguarded(pdu).unwrap();
}

/// What an open came to.
pub(crate) struct Opened {
    pub(crate) status: NtStatus,
    pub(crate) id: FileId,
    pub(crate) pdu: Vec<u8>,
}

impl Opened {
    pub(crate) fn response(&self) -> CreateResponse<'_> {
        CreateResponse::parse(&self.pdu).unwrap()
    }
}

/// A CREATE for reading and writing, sharing everything, making the file if need be.
pub(crate) fn create<'a>(
    name: &str,
    change: impl FnOnce(&mut CreateRequest<'a>),
) -> CreateRequest<'a> {
    let mut request = CreateRequest {
        oplock_level: OplockLevel::NONE,
        impersonation: ImpersonationLevel::IMPERSONATION,
        desired_access: AccessMask::FILE_GENERIC_READ
            | AccessMask::FILE_GENERIC_WRITE
            | AccessMask::DELETE,
        attributes: FileAttributes::empty(),
        share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
        disposition: CreateDisposition::OPEN_IF,
        options: CreateOptions::empty(),
        name: Name::new(name).unwrap(),
        contexts: Vec::<CreateRequestContext<'a>>::new(),
    };
    change(&mut request);
    request
}

/// A WRITE as most tests want it.
pub(crate) fn write(id: FileId, offset: u64, data: &[u8]) -> WriteRequest<'_> {
    WriteRequest {
        offset,
        file_id: id,
        channel: Channel::NONE,
        remaining_bytes: 0,
        flags: WriteFlags::empty(),
        data,
        channel_info: &[],
    }
}

/// A QUERY_INFO as most tests want it.
pub(crate) fn query(file_id: FileId, info_type: InfoType, class: u8) -> QueryInfoRequest<'static> {
    QueryInfoRequest {
        info_type,
        class,
        output_length_max: 4096,
        additional: SecurityInformation::empty(),
        flags: 0,
        file_id,
        input: &[],
    }
}

/// An IOCTL as most tests want it.
pub(crate) fn control(file_id: FileId, code: ControlCode, input: &[u8]) -> IoctlRequest<'_> {
    IoctlRequest {
        code,
        file_id,
        input,
        input_response_max: 0,
        output_response_max: 4096,
        is_fsctl: true,
    }
}

/// A SET_INFO of a file.
pub(crate) fn set(file_id: FileId, class: FileInfoClass, buffer: &[u8]) -> SetInfoRequest<'_> {
    let additional = SecurityInformation::empty();
    SetInfoRequest { info_type: InfoType::FILE, class: class.0, additional, file_id, buffer }
}

/// What a SET_INFO says that gives a file a name.
pub(crate) fn new_name(name: &str, flags: RenameFlags) -> Vec<u8> {
    let mut buffer = Vec::new();
    Rename { flags, name: Name::new(name).unwrap() }.emit(&mut buffer);
    buffer
}

/// A READ as most tests want it.
pub(crate) fn read(id: FileId, offset: u64, length: u32) -> ReadRequest<'static> {
    ReadRequest {
        flags: ReadFlags::empty(),
        length,
        offset,
        file_id: id,
        minimum_count: 0,
        channel: Channel::NONE,
        remaining_bytes: 0,
        channel_info: &[],
    }
}
