//! What clients send that nobody here wrote, and other servers take.

use smb::create::{AccessMask, CreateDisposition, OplockLevel};
use smb::info::{FileInfoClass, InfoType, SecurityInformation};
use smb::negotiate::{
    Capabilities, CipherId, Dialect, HashId, NegotiateContext, NegotiateRequest, SecurityMode,
    SigningId,
};
use smb::{
    ChangeNotifyRequest, CloseRequest, Command, ControlCode, Empty, FileId, FlushRequest, Guid,
    LockElement, LockFlags, LockRequest, NtStatus, OplockBreak, QueryDirectoryFlags,
    QueryDirectoryRequest, QueryInfoRequest, SessionSetupResponse,
};

use crate::support::compound::{compound, headers, related};
use crate::support::logon::session_setup;
use crate::support::{Answer, Fixture, Wire, control, create, query, read, set, write};

#[test]
fn a_compound_of_more_requests_than_files_have_steps_is_answered_whole() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    for number in 0..FILES {
        std::fs::write(fixture.dir.path().join(format!("f{number}")), "x").unwrap();
    }
    // Three requests for each file of a directory, its security descriptor among them.
    let gathered: usize = 3 * FILES;
    grow_credits(&mut wire, gathered);
    let first = wire.next_id;
    let mut pdus = Vec::new();
    for number in 0..FILES {
        let open = create(&format!("f{number}"), |request| {
            request.disposition = CreateDisposition::OPEN;
            request.desired_access = AccessMask::FILE_GENERIC_READ;
        });
        let mut ask = query(FileId::RELATED, InfoType::SECURITY, 0);
        ask.additional = SecurityInformation::OWNER | SecurityInformation::DACL;
        let close = CloseRequest { query_attributes: false, file_id: FileId::RELATED };
        pdus.push(wire.pdu(Command::CREATE, |out| open.emit(out)));
        pdus.push(related(&mut wire, Command::QUERY_INFO, |out| ask.emit(out)));
        pdus.push(related(&mut wire, Command::CLOSE, |out| close.emit(out)));
    }
    let frame = compound(&wire, pdus);
    wire.send_frame(&frame);
    let frame = wire.receive_frame().expect("the connection stays");
    let answers: Vec<_> = smb::compound::walk(&frame).collect::<Result<_, _>>().unwrap();
    assert_eq!(answers.len(), gathered);
    for ((range, header), id) in answers.into_iter().zip(first..) {
        assert_eq!((header.status, header.message_id.0), (NtStatus::SUCCESS, id));
        wire.keys.as_ref().unwrap().signing.verify(&mut frame[range].to_vec()).unwrap();
    }
    assert_eq!(fixture.running.status().opens, 0);
}

#[test]
fn others_are_served_while_a_long_compound_goes_on() {
    let fixture = Fixture::start_on(
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap(),
        |_| {},
    );
    let (mut long, mut short) = (fixture.client(1), fixture.client(2));
    grow_credits(&mut long, 2_000);
    let pdus = (0..2_000).map(|_| long.pdu(Command::ECHO, |out| Empty.emit(out))).collect();
    let frame = compound(&long, pdus);
    long.send_frame(&frame);
    let (header, _) = short.ask(Command::ECHO, |out| Empty.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    let frame = long.receive_frame().unwrap();
    assert_eq!(headers(&frame).len(), 2_000);
}

// Asks for credits until there are as many as a long compound costs.
fn grow_credits(wire: &mut Wire, wanted: usize) {
    let mut held = 0;
    while held <= wanted {
        let (header, _) = wire.ask(Command::ECHO, |out| Empty.emit(out));
        held += usize::from(header.credits).saturating_sub(1);
    }
}

#[test]
fn an_ntlm_negotiate_of_names_without_a_version_gets_a_challenge_without() {
    let fixture = Fixture::start();
    let mut wire = fixture.dial();
    wire.negotiate(1);
    let (header, pdu) = begin_logon(&mut wire, &NTLM_WITH_NAMES);
    assert_eq!(header.status, NtStatus::MORE_PROCESSING_REQUIRED);
    let token = SessionSetupResponse::parse(&pdu).unwrap().token;
    assert_eq!(&token[..12], b"NTLMSSP\0\x02\0\0\0");
    let flags = u32::from_le_bytes(token[20..24].try_into().unwrap());
    assert_eq!(flags & 0x0200_0001, 1, "Unicode, and no version");
    assert_eq!(token[48..56], [0; 8], "where a version would be");
}

fn begin_logon(wire: &mut Wire, token: &[u8]) -> Answer {
    let request = session_setup(token);
    wire.ask(Command::SESSION_SETUP, |out| request.emit(out))
}

// MS-NLMP §2.2.1.1 as old libraries write it: two fields, then the OEM names they point to.
const NTLM_WITH_NAMES: [u8; 46] = *b"NTLMSSP\0\x01\0\0\0\x07\xb2\0\0\
    \x09\0\x09\0\x25\0\0\0\x05\0\x05\0\x20\0\0\0HOST1WORKGROUP";

#[test]
fn a_negotiate_with_an_empty_list_is_invalid_as_elsewhere() {
    let fixture = Fixture::start();
    for empty in [
        NegotiateContext::Encryption(Vec::new()),
        NegotiateContext::Signing(Vec::new()),
        NegotiateContext::PreauthIntegrity { hashes: Vec::new(), salt: &[7; 32] },
    ] {
        let hashes = vec![HashId::SHA_512];
        let preauth = NegotiateContext::PreauthIntegrity { hashes, salt: &[7; 32] };
        let contexts = match empty {
            NegotiateContext::PreauthIntegrity { .. } => vec![empty],
            _ => vec![preauth, empty],
        };
        let status = negotiate(&mut fixture.dial(), contexts).0.status;
        assert_eq!(status, NtStatus::INVALID_PARAMETER);
    }
}

#[test]
fn a_negotiate_with_two_contexts_of_a_kind_is_invalid() {
    let fixture = Fixture::start();
    let ciphers = || NegotiateContext::Encryption(vec![CipherId::AES_128_GCM]);
    let signing = || NegotiateContext::Signing(vec![SigningId::AES_CMAC]);
    for twice in [[ciphers(), ciphers()], [signing(), signing()]] {
        let hashes = vec![HashId::SHA_512];
        let mut contexts = vec![NegotiateContext::PreauthIntegrity { hashes, salt: &[7; 32] }];
        contexts.extend(twice);
        let status = negotiate(&mut fixture.dial(), contexts).0.status;
        assert_eq!(status, NtStatus::INVALID_PARAMETER);
    }
}

#[test]
fn unknown_contexts_are_ignored_however_many_fit_a_frame() {
    let fixture = Fixture::start();
    for count in [60_u16, 1_000, 7_000] {
        let mut wire = fixture.dial();
        let unknown = |number| NegotiateContext::Unknown { kind: 0x4000 + number, data: b"" };
        let answer = wire.negotiate_with(1, (0..count).map(unknown).collect());
        assert_eq!(answer.0.status, NtStatus::SUCCESS);
        wire.log_on();
        assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
    }
}

#[test]
fn more_contexts_than_there_are_bytes_are_refused() {
    let fixture = Fixture::start();
    let mut wire = fixture.dial();
    let mut pdu = wire.pdu(Command::NEGOTIATE, |out| request(Vec::new()).emit(out));
    pdu.resize(pdu.len().next_multiple_of(8), 0);
    // MS-SMB2 §2.2.3: where the contexts begin, and how many there are.
    let offset = u32::try_from(pdu.len()).unwrap();
    pdu[64 + 28..64 + 32].copy_from_slice(&offset.to_le_bytes());
    pdu[64 + 32..64 + 34].copy_from_slice(&8_000_u16.to_le_bytes());
    pdu.extend([0; 16]);
    wire.send_frame(&pdu);
    assert_eq!(wire.receive().0.status, NtStatus::INVALID_PARAMETER);
}

fn request(contexts: Vec<NegotiateContext<'_>>) -> NegotiateRequest<'_> {
    NegotiateRequest {
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::LARGE_MTU,
        client_guid: Guid([1; 16]),
        dialects: vec![Dialect::SMB_3_1_1],
        contexts,
    }
}

fn negotiate(wire: &mut Wire, contexts: Vec<NegotiateContext<'_>>) -> Answer {
    wire.ask(Command::NEGOTIATE, |out| request(contexts).emit(out))
}

#[test]
fn each_command_names_a_tree_that_has_been_left_as_deleted() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let id = wire.open("f", |_| {}).id;
    let (header, _) = wire.ask(Command::TREE_DISCONNECT, |out| Empty.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    let gone = |(header, _): Answer, what: &str| {
        assert_eq!(header.status, NtStatus::NETWORK_NAME_DELETED, "{what}");
    };
    gone(wire.ask(Command::READ, |out| read(id, 0, 1).emit(out)), "READ");
    gone(wire.ask(Command::WRITE, |out| write(id, 0, b"x").emit(out)), "WRITE");
    gone(wire.ask(Command::FLUSH, |out| FlushRequest { file_id: id }.emit(out)), "FLUSH");
    let close = CloseRequest { query_attributes: false, file_id: id };
    gone(wire.ask(Command::CLOSE, |out| close.emit(out)), "CLOSE");
    let again = create("f", |_| {});
    gone(wire.ask(Command::CREATE, |out| again.emit(out)), "CREATE");
    let element = LockElement { offset: 0, length: 1, flags: LockFlags::EXCLUSIVE };
    let lock = LockRequest { lock_sequence: 0, file_id: id, locks: vec![element] };
    gone(wire.ask(Command::LOCK, |out| lock.emit(out)), "LOCK");
    for code in [ControlCode::QUERY_NETWORK_INTERFACE_INFO, ControlCode::SET_SPARSE] {
        let named = if code == ControlCode::SET_SPARSE { id } else { FileId::RELATED };
        gone(wire.ask(Command::IOCTL, |out| control(named, code, &[]).emit(out)), "IOCTL");
    }
    let list = QueryDirectoryRequest {
        class: FileInfoClass::NAMES,
        flags: QueryDirectoryFlags::empty(),
        file_index: 0,
        file_id: id,
        pattern: smb::Name::new("*").unwrap(),
        output_length_max: 100,
    };
    gone(wire.ask(Command::QUERY_DIRECTORY, |out| list.emit(out)), "QUERY_DIRECTORY");
    let notify = ChangeNotifyRequest {
        watch_tree: false,
        output_length_max: 100,
        file_id: id,
        completion_filter: 1,
    };
    gone(wire.ask(Command::CHANGE_NOTIFY, |out| notify.emit(out)), "CHANGE_NOTIFY");
    let ask: QueryInfoRequest<'_> = query(id, InfoType::FILE, FileInfoClass::STANDARD.0);
    gone(wire.ask(Command::QUERY_INFO, |out| ask.emit(out)), "QUERY_INFO");
    let cut = set(id, FileInfoClass::END_OF_FILE, &[0; 8]);
    gone(wire.ask(Command::SET_INFO, |out| cut.emit(out)), "SET_INFO");
    let kept = OplockBreak { level: OplockLevel::NONE, file_id: id };
    gone(wire.ask(Command::OPLOCK_BREAK, |out| kept.emit(out)), "OPLOCK_BREAK");
    gone(wire.ask(Command::TREE_DISCONNECT, |out| Empty.emit(out)), "TREE_DISCONNECT");
    // What names no tree goes on.
    let (header, _) = wire.ask(Command::ECHO, |out| Empty.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
    assert_eq!(wire.read(id, 1).0, NtStatus::FILE_CLOSED, "the tree is there, the open is not");
}

#[test]
fn a_pipe_of_a_tree_that_has_been_left_is_deleted_with_it() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    assert_eq!(wire.enter("IPC$"), NtStatus::SUCCESS);
    let pipe = wire.open("srvsvc", |_| {}).id;
    wire.ask(Command::TREE_DISCONNECT, |out| Empty.emit(out));
    assert_eq!(wire.read(pipe, 1).0, NtStatus::NETWORK_NAME_DELETED);
    assert_eq!(wire.write(pipe, b"x"), NtStatus::NETWORK_NAME_DELETED);
    let (status, _) = wire.control(pipe, ControlCode::PIPE_TRANSCEIVE, b"x");
    assert_eq!(status, NtStatus::NETWORK_NAME_DELETED);
}

const FILES: usize = 300;
