//! Answers as an honest server gives them: the body behind the header.

use std::net::SocketAddr;

use smb::create::{
    AccessMask, CreateAction, CreateOptions, CreateRequest, CreateRequestContext, CreateResponse,
    CreateResponseContext, Lease, LeaseKey, OplockLevel,
};
use smb::crypto::{Cipher, KeySchedule, PreauthHash, SigningAlgorithm};
use smb::fsctl::{InterfaceCapability, NetworkInterface};
use smb::info::{DirectoryEntry, DirectoryWriter, FileAttributes, FileInfoClass, NetworkOpen};
use smb::negotiate::{
    Capabilities, CipherId, Dialect, HashId, NegotiateContext, NegotiateResponse, SecurityMode,
};
use smb::push::{Capabilities as PushCapabilities, Durability, PushGrant, PushResponse};
use smb::push::{PushToken, Refusal, Rights};
use smb::{
    CloseResponse, Command, ControlCode, Empty, FileId, FileTime, Guid, Header, IoctlRequest,
    IoctlResponse, Name, NtStatus, OutputResponse, QueryInfoRequest, ReadRequest, ReadResponse,
    SessionFlags, SessionSetupResponse, SetInfoResponse, ShareCapabilities, ShareFlags, ShareType,
    TreeConnectResponse, WriteRequest, WriteResponse,
};

use super::Standing;
use super::misdeed::Misdeed;

/// What the server has to know for its answers.
#[derive(Debug)]
pub(super) struct Honest {
    pub(super) dialect: Dialect,
    pub(super) flags: SessionFlags,
    pub(super) lease: Option<LeaseKey>,
    /// The client's NEGOTIATE, for FSCTL_VALIDATE_NEGOTIATE_INFO.
    security_mode: SecurityMode,
    /// An address that the client must not dial.
    trap: SocketAddr,
    can_seal: bool,
    opens: u64,
    /// Whether the listing was sent.
    listed: bool,
}

impl Honest {
    pub(super) fn new(standing: Standing, dialect: Dialect, trap: SocketAddr) -> Self {
        let flags = match standing {
            Standing::Guest => SessionFlags::GUEST,
            _ => SessionFlags::empty(),
        };
        let security_mode = SecurityMode::SIGNING_ENABLED;
        let can_seal = standing == Standing::Sealed && dialect >= Dialect::SMB_3_0;
        let (lease, opens, listed) = (None, 0, false);
        Self { dialect, flags, lease, security_mode, trap, can_seal, opens, listed }
    }

    /// How the keys of a session come of its logon.
    pub(super) fn schedule(&self, preauth: PreauthHash) -> KeySchedule {
        let signing = SigningAlgorithm::AesCmac;
        match self.dialect {
            Dialect::SMB_2_0_2 | Dialect::SMB_2_1 => KeySchedule::Smb2,
            Dialect::SMB_3_1_1 => {
                let cipher = self.can_seal.then_some(Cipher::Aes128Gcm);
                KeySchedule::Smb311 { preauth, signing, cipher }
            }
            _ => KeySchedule::Smb30 { encryption: self.can_seal },
        }
    }

    /// The status and body of the answer to a request, `misdeed` where it is one of content.
    pub(super) fn answer(&mut self, command: Command, pdu: &[u8], misdeed: &Misdeed) -> Answer {
        // Offsets in a body count from the header before it.
        let mut body = vec![0; Header::LEN];
        let out = &mut body;
        let is_more = *misdeed == Misdeed::TooMuch;
        let status = match command {
            Command::NEGOTIATE => self.negotiate(is_more, out),
            Command::SESSION_SETUP => {
                let goes_on = *misdeed == Misdeed::Endless;
                SessionSetupResponse { flags: self.flags, token: &[] }.emit(out);
                if goes_on { NtStatus::MORE_PROCESSING_REQUIRED } else { NtStatus::SUCCESS }
            }
            Command::TREE_CONNECT => {
                TreeConnectResponse {
                    share_type: ShareType::DISK,
                    flags: if is_more { ShareFlags::ENCRYPT_DATA } else { ShareFlags::empty() },
                    capabilities: ShareCapabilities::empty(),
                    maximal_access: AccessMask::empty(),
                }
                .emit(out);
                NtStatus::SUCCESS
            }
            Command::CREATE => self.create(pdu, misdeed, out),
            Command::CLOSE => {
                CloseResponse { attributes: None }.emit(out);
                NtStatus::SUCCESS
            }
            Command::READ => {
                let asked = ReadRequest::parse(pdu).map_or(0, |request| request.length);
                let len = usize::try_from(asked).unwrap_or(0).min(1 << 20);
                let data = vec![7; if is_more { len + 4096 } else { len }];
                let data_remaining = if is_more { u32::MAX } else { 0 };
                ReadResponse { data: &data, data_remaining }.emit(out);
                NtStatus::SUCCESS
            }
            Command::WRITE => {
                let len = WriteRequest::parse(pdu).map_or(0, |request| request.data.len());
                let count = u32::try_from(len).unwrap_or(0).wrapping_add(u32::from(is_more));
                WriteResponse { count }.emit(out);
                NtStatus::SUCCESS
            }
            Command::QUERY_DIRECTORY => self.list(misdeed, out),
            Command::QUERY_INFO => self.query(pdu, is_more, out),
            Command::SET_INFO => {
                SetInfoResponse.emit(out);
                NtStatus::SUCCESS
            }
            Command::IOCTL => self.control(pdu, is_more, out),
            _ => {
                Empty.emit(out);
                NtStatus::SUCCESS
            }
        };
        body.drain(..Header::LEN);
        Answer { status, body }
    }

    fn negotiate(&self, is_more: bool, out: &mut Vec<u8>) -> NtStatus {
        let capabilities = if is_more { Capabilities::all() } else { self.capabilities() };
        let hashes = vec![HashId::SHA_512];
        let mut contexts = Vec::new();
        if self.dialect == Dialect::SMB_3_1_1 {
            contexts.push(NegotiateContext::PreauthIntegrity { hashes, salt: &[5; 32] });
            if self.can_seal {
                let cipher = CipherId(Cipher::Aes128Gcm.id());
                contexts.push(NegotiateContext::Encryption(vec![cipher]));
            }
        }
        let size = if is_more { u32::MAX } else { 1 << 17 };
        NegotiateResponse {
            security_mode: self.security_mode,
            dialect: self.dialect,
            server_guid: GUID,
            capabilities,
            transact_size_max: size,
            read_size_max: size,
            write_size_max: size,
            system_time: FileTime(0),
            start_time: FileTime(0),
            token: &[],
            contexts,
        }
        .emit(out);
        NtStatus::SUCCESS
    }

    fn capabilities(&self) -> Capabilities {
        match self.dialect {
            Dialect::SMB_2_0_2 => Capabilities::empty(),
            Dialect::SMB_3_0_2 if self.can_seal => {
                Capabilities::LARGE_MTU | Capabilities::LEASING | Capabilities::ENCRYPTION
            }
            _ => Capabilities::LARGE_MTU | Capabilities::LEASING,
        }
    }

    fn create(&mut self, pdu: &[u8], misdeed: &Misdeed, out: &mut Vec<u8>) -> NtStatus {
        self.opens += 1;
        self.listed = false;
        let Ok(request) = CreateRequest::parse(pdu) else { return NtStatus::INVALID_PARAMETER };
        let is_directory = request.options.contains(CreateOptions::DIRECTORY_FILE);
        let mut contexts = Vec::new();
        let mut oplock_level = OplockLevel::NONE;
        for context in &request.contexts {
            match context {
                CreateRequestContext::Lease(asked) => {
                    self.lease = Some(asked.key);
                    oplock_level = OplockLevel::LEASE;
                    contexts.push(CreateResponseContext::Lease(Lease { ..*asked }));
                }
                CreateRequestContext::Push(_) => {
                    contexts.push(CreateResponseContext::Push(match *misdeed {
                        Misdeed::Grant => PushResponse::Granted(grant(self.trap)),
                        _ => PushResponse::Refused(Refusal::DISABLED.into()),
                    }));
                }
                _ => {}
            }
        }
        CreateResponse {
            oplock_level,
            reparse_point: false,
            action: CreateAction::OPENED,
            creation_time: FileTime(1),
            last_access_time: FileTime(1),
            last_write_time: FileTime(1),
            change_time: FileTime(1),
            allocation_size: LEN,
            end_of_file: if *misdeed == Misdeed::TooMuch { u64::MAX } else { LEN },
            attributes: match is_directory {
                true => FileAttributes::DIRECTORY,
                false => FileAttributes::NORMAL,
            },
            file_id: FileId { persistent: self.opens, volatile: self.opens },
            contexts,
        }
        .emit(out);
        NtStatus::SUCCESS
    }

    fn list(&mut self, misdeed: &Misdeed, out: &mut Vec<u8>) -> NtStatus {
        let goes_on = matches!(misdeed, Misdeed::Endless | Misdeed::Dots | Misdeed::TooMuch);
        if std::mem::replace(&mut self.listed, true) && !goes_on {
            return NtStatus::NO_MORE_FILES;
        }
        let long = "y".repeat(200);
        let names: Vec<String> = match misdeed {
            Misdeed::Dots => vec![".".into()],
            Misdeed::Names => vec!["..\\..\\x".into(), "a/b".into()],
            Misdeed::Endless | Misdeed::TooMuch => {
                (0..100).map(|number| format!("{number}{long}")).collect()
            }
            _ => vec![".".into(), "..".into(), "file".into()],
        };
        let mut output = Vec::new();
        let writer = DirectoryWriter::new(FileInfoClass::ID_FULL_DIRECTORY, &output, 1 << 16);
        let mut writer = writer.expect("a class of directories");
        for name in names {
            let name = Name::new(name).expect("short");
            writer.push(&mut output, &DirectoryEntry { name, ..DirectoryEntry::default() });
        }
        OutputResponse { output: &output }.emit(out);
        NtStatus::SUCCESS
    }

    fn query(&self, pdu: &[u8], is_more: bool, out: &mut Vec<u8>) -> NtStatus {
        let class = QueryInfoRequest::parse(pdu).map_or(0, |request| request.class);
        let mut output = Vec::new();
        match FileInfoClass(class) {
            FileInfoClass::NETWORK_OPEN => NetworkOpen {
                creation_time: FileTime(1),
                last_access_time: FileTime(1),
                last_write_time: FileTime(1),
                change_time: FileTime(1),
                allocation_size: LEN,
                end_of_file: LEN,
                attributes: FileAttributes::NORMAL,
            }
            .emit(&mut output),
            _ => output.resize(8, 0),
        }
        if is_more {
            output.resize(output.len() + (64 << 10), 7);
        }
        OutputResponse { output: &output }.emit(out);
        NtStatus::SUCCESS
    }

    fn control(&self, pdu: &[u8], is_more: bool, out: &mut Vec<u8>) -> NtStatus {
        let Ok(request) = IoctlRequest::parse(pdu) else { return NtStatus::INVALID_PARAMETER };
        let mut output = Vec::new();
        match request.code {
            ControlCode::VALIDATE_NEGOTIATE_INFO => {
                output.extend(self.capabilities().bits().to_le_bytes());
                output.extend(GUID.0);
                output.extend(self.security_mode.bits().to_le_bytes());
                output.extend(self.dialect.0.to_le_bytes());
            }
            // Its own interface, as it says.
            ControlCode::QUERY_NETWORK_INTERFACE_INFO => {
                let capability = InterfaceCapability::RDMA;
                let address = self.trap.ip();
                let interface = NetworkInterface { index: 1, capability, link_speed: 1, address };
                NetworkInterface::emit_list(&[interface], &mut output);
            }
            _ if is_more => output.resize(128 << 10, 7),
            _ => return NtStatus::NOT_SUPPORTED,
        }
        let (code, file_id) = (request.code, request.file_id);
        IoctlResponse { code, file_id, output: &output }.emit(out);
        NtStatus::SUCCESS
    }
}

/// An answer behind its header.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: NtStatus,
    pub(super) body: Vec<u8>,
}

/// A grant that leads elsewhere: to another service of the client's machine, and nowhere (RFC 5737).
fn grant(trap: SocketAddr) -> PushGrant {
    PushGrant {
        capabilities: PushCapabilities::FLUSH,
        durability: Durability::PMEM,
        store_granularity: 64,
        regions_max: 8,
        region_length_max: 1 << 40,
        rights: Rights::READ | Rights::WRITE | Rights::FLUSH,
        token_lifetime_ms: 60_000,
        token: PushToken::new(*b"\r\nCONFIG SET dir x\r\nSAVE\r\n      "),
        recall_grace_ms: 5000,
        addresses: vec![trap, "192.0.2.1:6379".parse().expect("an address")],
        same_host: None,
    }
}

const GUID: Guid = Guid([9; 16]);
/// Length of every file.
pub(super) const LEN: u64 = 1 << 20;
