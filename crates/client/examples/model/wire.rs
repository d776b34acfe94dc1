//! One connection: a logon, or the joining of a session that there is, then requests.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use smb::auth::{Initiate, Initiator, NtlmInitiator};
use smb::crypto::{KeySchedule, PreauthHash, Role, SessionKeys, SigningAlgorithm};
use smb::negotiate::{
    Capabilities, Dialect, HashId, NegotiateContext, NegotiateRequest, SecurityMode,
};
use smb::{
    BreakNotification, Command, Empty, Guid, Header, HeaderFlags, LeaseBreakAck, MessageId, Name,
    NtStatus, OplockBreak, Route, SessionId, SessionSetupRequest, SessionSetupResponse,
    TreeConnectRequest, TreeId,
};

/// Where the share is, and who asks.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    pub(crate) share: String,
    pub(crate) user: String,
    pub(crate) password: String,
    /// Files have streams there.
    pub(crate) streams: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Lost {
    /// The connection ended, or never began.
    Connection,
    /// The server has said nothing for [`PATIENCE`], or something nobody understands.
    Fault(String),
}

/// A header and its whole PDU.
pub(crate) type Answer = (Header, Vec<u8>);

/// A connection that has logged on and entered the share.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    next_id: u64,
    pub(crate) session: u64,
    tree: u32,
    keys: Option<Arc<SessionKeys>>,
    /// How often the client has lost a channel of its session.
    pub(crate) sequence: u16,
    /// Breaks that came.
    pub(crate) breaks: u64,
}

/// A session that a connection can join.
#[derive(Clone, Debug)]
pub(crate) struct Joinable {
    session: u64,
    tree: u32,
    keys: Arc<SessionKeys>,
}

impl Wire {
    /// Connects, logs on as the machine `client`, in the place of its session `previous` if there was
    /// one, and enters the share.
    pub(crate) fn enter(place: &Place, client: [u8; 16], previous: u64) -> Result<Self, Lost> {
        let mut wire = Self::dial(place)?;
        let preauth = wire.negotiate(client)?;
        wire.log_on(place, preauth, previous, None)?;
        let path = Name::new(format!("\\\\{}\\{}", place.address.ip(), place.share));
        let path = path.map_err(|_| Lost::Fault("the share's name is too long".to_owned()))?;
        let request = TreeConnectRequest { flags: 0, path };
        let (header, _) = wire.ask(Command::TREE_CONNECT, |out| request.emit(out))?;
        wire.tree = header.tree_id().map_or(0, |tree| tree.0);
        match header.status {
            NtStatus::SUCCESS => Ok(wire),
            status => Err(Lost::Fault(format!("TREE_CONNECT: {status:?}"))),
        }
    }

    /// Connects, and becomes one more channel of the session that `first` has, or had.
    pub(crate) fn join(place: &Place, client: [u8; 16], first: &Joinable) -> Result<Self, Lost> {
        let mut wire = Self::dial(place)?;
        let preauth = wire.negotiate(client)?;
        (wire.session, wire.tree) = (first.session, first.tree);
        wire.log_on(place, preauth, 0, Some(&first.keys))?;
        Ok(wire)
    }

    /// What it takes to join the session.
    pub(crate) fn joinable(&self) -> Option<Joinable> {
        let keys = Arc::clone(self.keys.as_ref()?);
        Some(Joinable { session: self.session, tree: self.tree, keys })
    }

    fn dial(place: &Place) -> Result<Self, Lost> {
        let stream = TcpStream::connect_timeout(&place.address, PATIENCE).map_err(|_| GONE)?;
        stream.set_nodelay(true).map_err(|_| GONE)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|_| GONE)?;
        let (next_id, session, tree, sequence, breaks) = (0, 0, 0, 0, 0);
        Ok(Self { stream, next_id, session, tree, keys: None, sequence, breaks })
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
            contexts: vec![NegotiateContext::PreauthIntegrity { hashes, salt: &[7; 32] }],
        };
        let mut hash = PreauthHash::new();
        let pdu = self.pdu(Command::NEGOTIATE, HeaderFlags::empty(), |out| request.emit(out));
        hash.update(&pdu);
        self.send(&pdu)?;
        hash.update(&self.receive()?.1);
        Ok(hash)
    }

    // Bound, and signed with the keys `of` a session, if there is one to join.
    fn log_on(
        &mut self,
        place: &Place,
        mut hash: PreauthHash,
        previous: u64,
        of: Option<&SessionKeys>,
    ) -> Result<(), Lost> {
        let fault = |_| Lost::Fault("the server's token is wrong".to_owned());
        let (user, password) = (&place.user, &place.password);
        let mut initiator =
            NtlmInitiator::with_password(user, "", password, "127.0.0.1").map_err(fault)?;
        let mut token: Option<Vec<u8>> = None;
        while let Initiate::Send(next) = initiator.step(token.as_deref()).map_err(fault)? {
            let request = SessionSetupRequest {
                binding: of.is_some(),
                security_mode: SecurityMode::SIGNING_ENABLED,
                capabilities: Capabilities::empty(),
                previous_session_id: SessionId(previous),
                token: &next,
            };
            let mut pdu = self.pdu(Command::SESSION_SETUP, HeaderFlags::empty(), |out| {
                request.emit(out);
            });
            if let Some(keys) = of {
                let _ = keys.signing.sign(&mut pdu);
            }
            hash.update(&pdu);
            self.send(&pdu)?;
            let (header, answer) = self.receive()?;
            if header.status == NtStatus::USER_SESSION_DELETED {
                return Err(GONE);
            }
            self.session = header.session_id.0;
            let response = SessionSetupResponse::parse(&answer)
                .map_err(|_| Lost::Fault(format!("SESSION_SETUP: {:?}", header.status)))?;
            token = Some(response.token.to_vec());
            if header.status == NtStatus::SUCCESS {
                let _ = initiator.step(token.as_deref());
                break;
            }
            hash.update(&answer);
        }
        let key = initiator.session_key();
        let key = key.ok_or_else(|| Lost::Fault("no session key".to_owned()))?;
        let signing = SigningAlgorithm::AesCmac;
        let schedule = KeySchedule::Smb311 { preauth: hash, signing, cipher: None };
        self.keys = Some(Arc::new(schedule.derive(&key, Role::Client)));
        Ok(())
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(
        &mut self,
        command: Command,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Answer, Lost> {
        let id = self.start(command, HeaderFlags::empty(), body)?;
        loop {
            if let Some(answer) = self.take(Some(id))? {
                return Ok(answer);
            }
        }
    }

    /// What comes next, if it is the answer to this. A break is acknowledged, with everything given
    /// back as it is asked for.
    pub(crate) fn take(&mut self, id: Option<u64>) -> Result<Option<Answer>, Lost> {
        let (header, pdu) = self.receive()?;
        if Some(header.message_id.0) == id && header.status != NtStatus::PENDING {
            return Ok(Some((header, pdu)));
        }
        if header.message_id.0 == u64::MAX {
            self.acknowledge(&pdu)?;
        }
        Ok(None)
    }

    /// Asks without waiting. The id of the request.
    pub(crate) fn start(
        &mut self,
        command: Command,
        flags: HeaderFlags,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<u64, Lost> {
        let id = self.next_id;
        let mut pdu = self.pdu(command, flags, body);
        self.sign(&mut pdu);
        self.send(&pdu)?;
        Ok(id)
    }

    /// What is readable when something has come.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Cuts the connection without a word.
    pub(crate) fn cut(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Ends the session.
    pub(crate) fn log_off(&mut self) -> Result<NtStatus, Lost> {
        Ok(self.ask(Command::LOGOFF, |out| Empty.emit(out))?.0.status)
    }

    // The answer is passed over when it comes.
    fn acknowledge(&mut self, pdu: &[u8]) -> Result<(), Lost> {
        self.breaks += 1;
        let none = HeaderFlags::empty();
        match BreakNotification::parse(pdu) {
            Ok(BreakNotification::Lease(notice)) if notice.ack_required => {
                let ack = LeaseBreakAck { lease_key: notice.lease_key, state: notice.new };
                self.start(Command::OPLOCK_BREAK, none, |out| ack.emit(out))?;
            }
            Ok(BreakNotification::Oplock(notice)) => {
                let OplockBreak { level, file_id } = notice;
                let ack = OplockBreak { level, file_id };
                self.start(Command::OPLOCK_BREAK, none, |out| ack.emit(out))?;
            }
            _ => {}
        }
        Ok(())
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
        // MS-SMB2 §2.2.1.2: where answers have their status.
        header.status = NtStatus(u32::from(self.sequence));
        header.session_id = SessionId(self.session);
        header.route = Route::Sync { process_id: 0, tree_id: TreeId(self.tree) };
        let mut out = Vec::new();
        header.emit(&mut out);
        body(&mut out);
        out
    }

    fn sign(&self, pdu: &mut [u8]) {
        if let Some(keys) = &self.keys {
            let _ = keys.signing.sign(pdu);
        }
    }

    fn send(&mut self, pdu: &[u8]) -> Result<(), Lost> {
        let len = u32::try_from(pdu.len()).map_err(|_| Lost::Fault("too long".to_owned()))?;
        let mut frame = len.to_be_bytes().to_vec();
        frame.extend_from_slice(pdu);
        self.stream.write_all(&frame).map_err(|_| GONE)
    }

    fn receive(&mut self) -> Result<Answer, Lost> {
        let mut prefix = [0; 4];
        self.fill(&mut prefix)?;
        let len = usize::try_from(u32::from_be_bytes(prefix)).unwrap_or(usize::MAX);
        if len > FRAME_MAX {
            return Err(Lost::Fault(format!("an answer of {len} bytes")));
        }
        let mut frame = vec![0; len];
        self.fill(&mut frame)?;
        let header = Header::parse(&frame).map_err(|error| Lost::Fault(error.to_string()))?;
        Ok((header, frame))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Lost> {
        self.stream.read_exact(bytes).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                Lost::Fault(format!("no answer for {} s", PATIENCE.as_secs()))
            }
            _ => GONE,
        })
    }
}

const GONE: Lost = Lost::Connection;
/// Shorter than the 35 s a holder of a lease has to answer: all here do, as soon as they are asked.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// More than any answer here has.
const FRAME_MAX: usize = 1 << 20;
