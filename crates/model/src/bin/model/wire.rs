//! One connection: a logon, or the binding to an existing session, then requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use client::transport::InFrame;
use client::transport::direct::Slots;
use smb::auth::{ClientFreshness, Initiate, Initiator, NtlmInitiator};
use smb::crypto::{KeySchedule, PreauthHash, Role};
use smb::negotiate::{
    Capabilities, Dialect, HashId, NegotiateContext, NegotiateRequest, SecurityMode,
};
use smb::{
    BreakNotification, Command, Empty, Guid, Header, HeaderFlags, LeaseBreakAck, MessageId, Name,
    NtStatus, OplockBreak, ReadResponse, Route, SessionId, SessionSetupRequest,
    SessionSetupResponse, TreeConnectRequest, TreeId,
};
use tokio::runtime::Runtime;

use crate::ask::{Body, LENGTH_MAX};
use crate::link::{Link, Lost, Way, patience};
use crate::secrecy::{self, Protection, Secret};

/// The address of the share, and the user.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) tcp: SocketAddr,
    /// The address of the server's SMB Direct listener.
    pub(crate) direct: Option<SocketAddr>,
    pub(crate) share: String,
    pub(crate) user: String,
    pub(crate) password: String,
    /// Whether files on the share can have streams.
    pub(crate) streams: bool,
    /// Whether the disk may be full at times.
    pub(crate) full: bool,
    /// The start of the run.
    pub(crate) began: Instant,
}

/// A machine that connects.
#[derive(Clone, Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) place: &'a Place,
    pub(crate) guid: [u8; 16],
    pub(crate) protection: Protection,
    /// The runtime on whose one thread the machine waits.
    pub(crate) runtime: Arc<Runtime>,
}

/// A header and its whole PDU.
pub(crate) type Answer = (Header, Vec<u8>);

/// A connection that has logged on and entered the share.
#[derive(Debug)]
pub(crate) struct Wire {
    link: Link,
    /// Memory that the server may read or write for the request in flight.
    lent: Option<Slots>,
    next_id: u64,
    pub(crate) session: u64,
    tree: u32,
    protection: Protection,
    /// The keys of this connection.
    own: Option<Arc<Secret>>,
    /// The keys of the session, which the connection that set it up made.
    shared: Option<Arc<Secret>>,
    /// How often the client has lost a channel of its session.
    pub(crate) sequence: u16,
    /// Breaks received.
    pub(crate) breaks: u64,
}

/// A session that a connection can join.
#[derive(Clone, Debug)]
pub(crate) struct Joinable {
    session: u64,
    tree: u32,
    shared: Arc<Secret>,
}

impl Wire {
    /// Connects, logs on in the place of the machine's session `previous` if there was one, and
    /// enters the share.
    pub(crate) fn enter(machine: &Machine<'_>, way: &Way, previous: u64) -> Result<Self, Lost> {
        let mut wire = Self::dial(machine, way)?;
        let place = machine.place;
        let preauth = wire.negotiate(machine.guid)?;
        wire.log_on(place, preauth, previous, false)?;
        wire.shared.clone_from(&wire.own);
        let path = Name::new(format!("\\\\{}\\{}", place.tcp.ip(), place.share));
        let path = path.map_err(|_| Lost::Fault("the share's name is too long".to_owned()))?;
        let request = TreeConnectRequest { flags: 0, path };
        let (header, _) = wire.ask(Command::TREE_CONNECT, |out| request.emit(out))?;
        wire.tree = header.tree_id().map_or(0, |tree| tree.0);
        match header.status {
            NtStatus::SUCCESS => Ok(wire),
            status => Err(Lost::Fault(format!("TREE_CONNECT: {status:?}"))),
        }
    }

    /// Connects, and becomes one more channel of the session that `first` belongs to, or belonged
    /// to.
    pub(crate) fn join(machine: &Machine<'_>, way: &Way, first: &Joinable) -> Result<Self, Lost> {
        let mut wire = Self::dial(machine, way)?;
        let preauth = wire.negotiate(machine.guid)?;
        (wire.session, wire.tree) = (first.session, first.tree);
        wire.shared = Some(Arc::clone(&first.shared));
        if first.shared.signed().is_multiple_of(4) {
            wire.stray(&first.shared)?;
        }
        wire.log_on(machine.place, preauth, 0, true)?;
        Ok(wire)
    }

    /// What another connection needs to join the session.
    pub(crate) fn joinable(&self) -> Option<Joinable> {
        let shared = Arc::clone(self.shared.as_ref()?);
        Some(Joinable { session: self.session, tree: self.tree, shared })
    }

    fn dial(machine: &Machine<'_>, way: &Way) -> Result<Self, Lost> {
        let link = Link::dial(&machine.runtime, way)?;
        let (next_id, session, tree, sequence, breaks) = (0, 0, 0, 0, 0);
        let (lent, own, shared, protection) = (None, None, None, machine.protection);
        Ok(Self { link, lent, next_id, session, tree, protection, own, shared, sequence, breaks })
    }

    // Requests of a session that this connection has not joined, as an attacker would replay them
    // who has seen them on another connection: whatever key signs the answers, no nonce is
    // repeated.
    fn stray(&mut self, shared: &Secret) -> Result<(), Lost> {
        for _ in 0..STRAYS {
            let mut pdu = self.pdu(Command::ECHO, HeaderFlags::empty(), |out| Empty.emit(out));
            shared.sign(&mut pdu);
            self.link.send(&pdu)?;
            let frame = self.receive()?;
            let answer = self.open(&frame)?;
            let status = Header::parse(&answer).map(|header| header.status);
            if status != Ok(NtStatus::USER_SESSION_DELETED) {
                return Err(Lost::Fault(format!("a stray ECHO: {status:?}")));
            }
        }
        Ok(())
    }

    fn negotiate(&mut self, client: [u8; 16]) -> Result<PreauthHash, Lost> {
        let hashes = vec![HashId::SHA_512];
        let request = NegotiateRequest {
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Capabilities::LEASING
                | Capabilities::LARGE_MTU
                | Capabilities::MULTI_CHANNEL
                | Capabilities::PERSISTENT_HANDLES,
            client_guid: Guid(client),
            dialects: vec![Dialect::SMB_3_1_1],
            contexts: [NegotiateContext::PreauthIntegrity { hashes, salt: &[7; 32] }]
                .into_iter()
                .chain(self.protection.contexts())
                .collect(),
        };
        let mut hash = PreauthHash::new();
        let pdu = self.pdu(Command::NEGOTIATE, HeaderFlags::empty(), |out| request.emit(out));
        hash.update(&pdu);
        self.link.send(&pdu)?;
        hash.update(&self.receive()?);
        Ok(hash)
    }

    // Bound to a session and signed with its keys, if there is a session to join.
    fn log_on(
        &mut self,
        place: &Place,
        mut hash: PreauthHash,
        previous: u64,
        binding: bool,
    ) -> Result<(), Lost> {
        let fault = |_| Lost::Fault("the server's token is wrong".to_owned());
        let (user, password) = (&place.user, &place.password);
        // Nobody listens who must not know the key.
        let fresh = ClientFreshness::new(&[7; 24], 0);
        let mut initiator =
            NtlmInitiator::with_password(user, "", password, "127.0.0.1", fresh).map_err(fault)?;
        let mut token: Option<Vec<u8>> = None;
        let mut last = Vec::new();
        while let Initiate::Send(next) = initiator.step(token.as_deref()).map_err(fault)? {
            let request = SessionSetupRequest {
                binding,
                security_mode: SecurityMode::SIGNING_ENABLED,
                capabilities: Capabilities::empty(),
                previous_session_id: SessionId(previous),
                token: &next,
            };
            let mut pdu = self.pdu(Command::SESSION_SETUP, HeaderFlags::empty(), |out| {
                request.emit(out);
            });
            if let Some(shared) = self.shared.as_ref().filter(|_| binding) {
                shared.sign(&mut pdu);
            }
            hash.update(&pdu);
            self.link.send(&pdu)?;
            let frame = self.receive()?;
            let answer = self.open(&frame)?;
            let header = Header::parse(&answer).map_err(|error| Lost::Fault(error.to_string()))?;
            if header.status == NtStatus::USER_SESSION_DELETED {
                return Err(Lost::Connection);
            }
            self.session = header.session_id.0;
            let response = SessionSetupResponse::parse(&answer)
                .map_err(|_| Lost::Fault(format!("SESSION_SETUP: {:?}", header.status)))?;
            token = Some(response.token.to_vec());
            if header.status == NtStatus::SUCCESS {
                let _ = initiator.step(token.as_deref());
                last = answer;
                break;
            }
            hash.update(&answer);
        }
        let key = initiator.session_key();
        let key = key.ok_or_else(|| Lost::Fault("no session key".to_owned()))?;
        let (signing, cipher) = (self.protection.signing(), self.protection.cipher());
        let schedule = KeySchedule::Smb311 { preauth: hash, signing, cipher };
        let own = Secret::new(schedule.derive(&key, Role::Client));
        // MS-SMB2 §3.3.5.5.3: a new key signs its own first answer.
        if !own.has_signed(&last)? {
            return Err(Lost::Fault("the end of a logon is not signed".to_owned()));
        }
        self.own = Some(Arc::new(own));
        Ok(())
    }

    /// Sends a request, and waits for the answer.
    pub(crate) fn ask(
        &mut self,
        command: Command,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Answer, Lost> {
        let id = self.start(command, HeaderFlags::empty(), &Body::of(body), false)?;
        loop {
            let frame = self.receive()?;
            if let Some(answer) = self.take(&frame, Some(id))? {
                return Ok(answer);
            }
        }
    }

    /// Waits until a frame comes over one of several connections, or one of them ends. Returns
    /// which.
    pub(crate) fn next_of(
        wires: &mut [Self],
        deadline: Instant,
    ) -> Result<(usize, Result<InFrame, Lost>), Lost> {
        Link::next_of(wires.iter_mut().map(|wire| &mut wire.link), deadline)
    }

    /// The answer, if the frame holds the answer to request `id`. A break is acknowledged, and all
    /// the rights it asks for are given up.
    pub(crate) fn take(&mut self, frame: &[u8], id: Option<u64>) -> Result<Option<Answer>, Lost> {
        let frame = &*self.open(frame)?;
        let header = Header::parse(frame).map_err(|error| Lost::Fault(error.to_string()))?;
        if Some(header.message_id.0) == id && header.status != NtStatus::PENDING {
            let pdu = match self.lent.take() {
                Some(slots) => unload(&header, frame, slots)?,
                None => frame.to_vec(),
            };
            return Ok(Some((header, pdu)));
        }
        if header.message_id.0 == u64::MAX {
            self.acknowledge(frame)?;
        }
        Ok(None)
    }

    /// Sends a request without waiting; moves data by RDMA if asked to and possible. Returns the id
    /// of the request.
    pub(crate) fn start(
        &mut self,
        command: Command,
        flags: HeaderFlags,
        body: &Body<'_>,
        by_rdma: bool,
    ) -> Result<u64, Lost> {
        let id = self.next_id;
        let by_rdma = by_rdma && self.protection != Protection::Sealed;
        let lent = body.data_len().filter(|_| by_rdma).and_then(|len| self.link.lend(len));
        if let Some(slots) = &lent {
            let fault = |error: pmem::MediumError| Lost::Fault(error.to_string());
            match body {
                Body::Write { data, .. } => slots.fill(data).map_err(fault)?,
                // Bytes that an earlier request left there must not pass for the bytes of this
                // READ.
                _ => slots.fill(&STALE).map_err(fault)?,
            }
        }
        let memory = lent.as_ref().map(Slots::channel_info);
        let mut pdu = self.pdu(command, flags, |out| body.emit(memory.as_deref(), out));
        // A break may be acknowledged while the data of a request is in flight.
        self.lent = lent.or_else(|| self.lent.take());
        match (&self.own, &self.shared) {
            (Some(_), Some(shared)) if self.protection == Protection::Sealed => {
                pdu = shared.seal(self.session, pdu);
            }
            (Some(own), _) => own.sign(&mut pdu),
            (None, _) => {}
        }
        self.link.send(&pdu)?;
        Ok(id)
    }

    /// Whether the data of the request in flight travels by RDMA.
    pub(crate) fn lends(&self) -> bool {
        self.lent.is_some()
    }

    /// Cuts the connection without notice to the server.
    pub(crate) fn cut(self) {
        self.link.cut();
    }

    /// Ends the session.
    pub(crate) fn log_off(&mut self) -> Result<NtStatus, Lost> {
        Ok(self.ask(Command::LOGOFF, |out| Empty.emit(out))?.0.status)
    }

    // The answer is ignored when it comes.
    fn acknowledge(&mut self, pdu: &[u8]) -> Result<(), Lost> {
        self.breaks += 1;
        match BreakNotification::parse(pdu) {
            Ok(BreakNotification::Lease(notice)) if notice.ack_required => {
                let ack = LeaseBreakAck { lease_key: notice.lease_key, state: notice.new };
                self.tell(Command::OPLOCK_BREAK, |out| ack.emit(out))?;
            }
            Ok(BreakNotification::Oplock(notice)) => {
                let OplockBreak { level, file_id } = notice;
                let ack = OplockBreak { level, file_id };
                self.tell(Command::OPLOCK_BREAK, |out| ack.emit(out))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn tell(&mut self, command: Command, body: impl FnOnce(&mut Vec<u8>)) -> Result<(), Lost> {
        self.start(command, HeaderFlags::empty(), &Body::of(body), false).map(drop)
    }

    fn pdu(
        &mut self,
        command: Command,
        flags: HeaderFlags,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Vec<u8> {
        let mut header = Header::request(command, MessageId(self.next_id));
        self.next_id += 1;
        header.credits = 32;
        header.credit_charge = 1;
        header.flags = flags;
        // MS-SMB2 §2.2.1.2: the field that holds the status in answers.
        header.status = NtStatus(u32::from(self.sequence));
        header.session_id = SessionId(self.session);
        header.route = Route::Sync { process_id: 0, tree_id: TreeId(self.tree) };
        let mut out = Vec::new();
        header.emit(&mut out);
        body(&mut out);
        out
    }

    fn open(&self, frame: &[u8]) -> Result<Vec<u8>, Lost> {
        secrecy::open(frame, self.own.as_deref(), self.shared.as_deref(), self.protection)
    }

    fn receive(&mut self) -> Result<InFrame, Lost> {
        Self::next_of(std::slice::from_mut(self), Instant::now() + patience())?.1
    }
}

// The answer with its data put into the message.
fn unload(header: &Header, frame: &[u8], slots: Slots) -> Result<Vec<u8>, Lost> {
    let mut pdu = frame.to_vec();
    if header.command == Command::READ && header.status == NtStatus::SUCCESS {
        let fault = |why: String| Lost::Fault(format!("READ by RDMA: {why}"));
        let response = ReadResponse::parse(frame).map_err(|error| fault(error.to_string()))?;
        let len = response.data_remaining;
        if !response.data.is_empty() || len > LENGTH_MAX {
            return Err(fault(format!("{} bytes in the message, {len} not", response.data.len())));
        }
        let mut data = vec![0; usize::try_from(len).unwrap_or(0)];
        slots.copy_to(&mut data).map_err(|error| fault(error.to_string()))?;
        pdu.truncate(Header::LEN);
        ReadResponse { data: &data, data_remaining: 0 }.emit(&mut pdu);
    }
    drop(slots);
    Ok(pdu)
}

/// Few: the ids they take are those of binds.
const STRAYS: usize = 3;
/// Fills lent memory before a READ.
static STALE: [u8; LENGTH_MAX as usize] = [0xa5; LENGTH_MAX as usize];
