//! Just enough of an SMB 3.0.2 client to log on and use a file.

use std::net::SocketAddr;

use rdma::Rkey;
use smb::auth::{ClientFreshness, Initiate, Initiator as _, NtlmInitiator};
use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, ImpersonationLevel, OplockLevel, ShareAccess,
};
use smb::crypto::{KeySchedule, Role, SessionKeys};
use smb::info::FileAttributes;
use smb::negotiate::{Capabilities, Dialect, SecurityMode};
use smb::{
    Channel, Command, CreateRequest, CreateResponse, Empty, FileId, Guid, Header, MessageId, Name,
    NegotiateRequest, NtStatus, ReadFlags, ReadRequest, ReadResponse, Route, SessionId,
    SessionSetupRequest, SessionSetupResponse, TreeConnectRequest, TreeId, WriteFlags,
    WriteRequest, WriteResponse,
};
use smbdirect::Config;

use super::peer::Peer;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) peer: Peer,
    next_id: u64,
    /// What each request costs but the first: the ids that it uses up.
    pub(crate) charge: u16,
    session: SessionId,
    tree: TreeId,
    /// Those of its session, once it has one.
    pub(crate) keys: Option<SessionKeys>,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) header: Header,
    pub(crate) pdu: Vec<u8>,
    pub(crate) invalidated: Option<Rkey>,
}

impl Client {
    /// Negotiates SMB Direct and SMB 3.0.2, logs on, enters the share.
    pub(crate) fn log_on(address: SocketAddr) -> Self {
        Self::log_on_with(address, Config::default())
    }

    pub(crate) fn log_on_with(address: SocketAddr, config: Config) -> Self {
        Self::log_on_over(Peer::connect(address, config))
    }

    /// Negotiates SMB Direct alone.
    pub(crate) fn strange(address: SocketAddr) -> Self {
        Self::over(Peer::connect(address, Config::default()))
    }

    fn over(peer: Peer) -> Self {
        let (session, tree) = (SessionId(0), TreeId(0));
        Self { peer, next_id: 0, charge: CHARGE, session, tree, keys: None }
    }

    pub(crate) fn log_on_over(peer: Peer) -> Self {
        let mut client = Self::over(peer);
        client.negotiate();
        client.set_up_session();
        let path = Name::new("\\\\server\\data").unwrap();
        let request = TreeConnectRequest { flags: 0, path };
        let answer = client.call(Command::TREE_CONNECT, |out| request.emit(out));
        assert_eq!(answer.header.status, NtStatus::SUCCESS);
        let Route::Sync { tree_id, .. } = answer.header.route else { panic!("an async tree") };
        client.tree = tree_id;
        client
    }

    pub(crate) fn negotiate(&mut self) {
        let request = NegotiateRequest {
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Capabilities::LARGE_MTU,
            client_guid: Guid([9; 16]),
            dialects: vec![Dialect::SMB_3_0_2],
            contexts: Vec::new(),
        };
        let answer = self.call(Command::NEGOTIATE, |out| request.emit(out));
        assert_eq!(answer.header.status, NtStatus::SUCCESS);
    }

    fn set_up_session(&mut self) {
        let mut initiator = NtlmInitiator::with_password(
            "user",
            "",
            "secret",
            "server",
            ClientFreshness::new(&[7; 24], 0),
        )
        .unwrap();
        let mut token = None;
        while let Initiate::Send(mine) = initiator.step(token.as_deref()).unwrap() {
            let request = SessionSetupRequest {
                binding: false,
                security_mode: SecurityMode::SIGNING_ENABLED,
                capabilities: Capabilities::empty(),
                previous_session_id: SessionId(0),
                token: &mine,
            };
            let answer = self.call(Command::SESSION_SETUP, |out| request.emit(out));
            self.session = answer.header.session_id;
            let theirs = SessionSetupResponse::parse(&answer.pdu).unwrap().token.to_vec();
            match answer.header.status {
                NtStatus::SUCCESS => {
                    let _ = initiator.step(Some(&theirs));
                    break;
                }
                NtStatus::MORE_PROCESSING_REQUIRED => token = Some(theirs),
                other => panic!("logon failed: {other}"),
            }
        }
        let schedule = KeySchedule::Smb30 { encryption: false };
        self.keys = initiator.session_key().map(|key| schedule.derive(&key, Role::Client));
    }

    /// Opens or creates a file for everything.
    pub(crate) fn open(&mut self, name: &str) -> FileId {
        let request = CreateRequest {
            oplock_level: OplockLevel::NONE,
            impersonation: ImpersonationLevel::IMPERSONATION,
            desired_access: AccessMask::READ_DATA | AccessMask::WRITE_DATA,
            attributes: FileAttributes::NORMAL,
            share_access: ShareAccess::READ | ShareAccess::WRITE,
            disposition: CreateDisposition::OPEN_IF,
            options: CreateOptions::NON_DIRECTORY_FILE,
            name: Name::new(name).unwrap(),
            contexts: Vec::new(),
        };
        let answer = self.call(Command::CREATE, |out| request.emit(out));
        assert_eq!(answer.header.status, NtStatus::SUCCESS);
        CreateResponse::parse(&answer.pdu).unwrap().file_id
    }

    /// Writes; the data lies in our memory, or in the message when there is no channel.
    pub(crate) fn write(&mut self, file_id: FileId, offset: u64, from: From<'_>) -> Answer {
        let request = Self::write_request(file_id, offset, from);
        self.call(Command::WRITE, |out| request.emit(out))
    }

    pub(crate) fn write_request<'a>(
        file_id: FileId,
        offset: u64,
        from: From<'a>,
    ) -> WriteRequest<'a> {
        let (channel, remaining_bytes, data, channel_info): (_, _, &[u8], &[u8]) = match from {
            From::Message(data) => (Channel::NONE, 0, data, &[]),
            From::Memory { channel, len, descriptors } => (channel, len, &[], descriptors),
        };
        WriteRequest {
            offset,
            file_id,
            channel,
            remaining_bytes,
            flags: WriteFlags::empty(),
            data,
            channel_info,
        }
    }

    /// Reads into our memory, or into the message when there is no channel.
    pub(crate) fn read(
        &mut self,
        file_id: FileId,
        offset: u64,
        length: u32,
        to: (Channel, &[u8]),
    ) -> Answer {
        let request = Self::read_request(file_id, offset, length, to);
        self.call(Command::READ, |out| request.emit(out))
    }

    pub(crate) fn read_request<'a>(
        file_id: FileId,
        offset: u64,
        length: u32,
        (channel, channel_info): (Channel, &'a [u8]),
    ) -> ReadRequest<'a> {
        ReadRequest {
            flags: ReadFlags::empty(),
            length,
            offset,
            file_id,
            minimum_count: 0,
            channel,
            remaining_bytes: 0,
            channel_info,
        }
    }

    /// Sends a request and waits for its final answer.
    pub(crate) fn call(&mut self, command: Command, body: impl FnOnce(&mut Vec<u8>)) -> Answer {
        let id = self.send(command, body);
        loop {
            let answer = self.next();
            if answer.header.status != NtStatus::PENDING {
                assert_eq!(answer.header.message_id, id);
                return answer;
            }
        }
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, command: Command, body: impl FnOnce(&mut Vec<u8>)) -> MessageId {
        let (id, message) = self.message(command, body);
        self.peer.send(message);
        id
    }

    /// A request that is not sent.
    fn message(
        &mut self,
        command: Command,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> (MessageId, Vec<u8>) {
        let id = MessageId(self.next_id);
        let charge = if self.next_id == 0 { 1 } else { self.charge };
        self.next_id += u64::from(charge);
        let mut header = Header::request(command, id);
        header.credit_charge = charge;
        header.credits = 512;
        header.session_id = self.session;
        header.route = Route::Sync { process_id: 0, tree_id: self.tree };
        let mut message = Vec::new();
        header.emit(&mut message);
        body(&mut message);
        (id, message)
    }

    /// Sends so many ECHOs as one message, all signed. The id of the first.
    #[expect(clippy::disallowed_methods, reason = "this plays clients that break rules, too")]
    pub(crate) fn send_signed_echoes(&mut self, count: usize) -> MessageId {
        let (mut frame, mut first) = (Vec::new(), None);
        for left in (0..count).rev() {
            let (id, mut pdu) = self.message(Command::ECHO, |out| Empty.emit(out));
            first.get_or_insert(id);
            pdu.resize(pdu.len().next_multiple_of(8), 0);
            let next = if left == 0 { 0 } else { u32::try_from(pdu.len()).unwrap() };
            pdu[NEXT_COMMAND..NEXT_COMMAND + 4].copy_from_slice(&next.to_le_bytes());
            self.keys.as_ref().unwrap().signing.sign_unguarded(&mut pdu).unwrap();
            frame.extend_from_slice(&pdu);
        }
        self.peer.send(frame);
        first.unwrap()
    }

    pub(crate) fn next(&mut self) -> Answer {
        let incoming = self.peer.next();
        let header = Header::parse(&incoming.message).unwrap();
        Answer { header, pdu: incoming.message, invalidated: incoming.invalidated }
    }
}

/// Where the bytes of a write come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum From<'a> {
    Message(&'a [u8]),
    Memory { channel: Channel, len: u32, descriptors: &'a [u8] },
}

pub(crate) fn written(answer: &Answer) -> u32 {
    assert_eq!(answer.header.status, NtStatus::SUCCESS);
    WriteResponse::parse(&answer.pdu).unwrap().count
}

/// Bytes in the message and bytes written into our memory.
pub(crate) fn read(answer: &Answer) -> (Vec<u8>, u32) {
    assert_eq!(answer.header.status, NtStatus::SUCCESS);
    let response = ReadResponse::parse(&answer.pdu).unwrap();
    (response.data.to_vec(), response.data_remaining)
}

// MS-SMB2 §2.2.1.
const NEXT_COMMAND: usize = 20;
/// Each credit pays for 64 KiB: enough for every request of these tests.
const CHARGE: u16 = 16;
