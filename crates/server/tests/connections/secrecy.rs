//! A share that requires encryption is neither spoken of nor acted on in the clear.

use server::ShareConfig;
use smb::create::{CreateRequestContext, Lease, LeaseKey, LeaseState, LeaseVersion, OplockLevel};
use smb::crypto::Cipher;
use smb::fsctl::{CopyChunk, CopyChunkRequest, ResumeKey};
use smb::info::{FileInfoClass, InfoType};
use smb::{
    BreakNotification, CloseRequest, Command, ControlCode, Empty, FileId, LeaseBreakAck, NtStatus,
    OplockBreak,
};

use crate::support::{Fixture, Wire, control, create, query, read, write};

const KEY: LeaseKey = LeaseKey([3; 16]);
const NO_FILE: FileId = FileId { persistent: u64::MAX, volatile: u64::MAX };

type Body = Box<dyn Fn(&mut Vec<u8>)>;

/// A server whose share requires encryption.
fn secret() -> Fixture {
    Fixture::start_with(|config| config.shares[0].encrypt_required = true)
}

/// A client that seals everything it says, in the share.
fn sealing(fixture: &Fixture, client: u8) -> Wire {
    let mut wire = fixture.dial();
    wire.cipher = Some(Cipher::Aes128Gcm);
    wire.negotiate(client);
    wire.log_on();
    assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
    wire
}

fn with_caching(wire: &mut Wire, is_lease: bool) -> FileId {
    let opened = wire.open("f", |request| {
        request.oplock_level = OplockLevel::BATCH;
        if is_lease {
            request.oplock_level = OplockLevel::LEASE;
            let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
            let version = LeaseVersion::V2 { parent: None, epoch: 0 };
            let lease = Lease { key: KEY, state, break_in_progress: false, version };
            request.contexts.push(CreateRequestContext::Lease(lease));
        }
    });
    opened.id
}

#[test]
fn an_acknowledgement_in_the_clear_is_refused_on_an_encrypted_share() {
    for is_lease in [true, false] {
        let fixture = secret();
        let mut holder = sealing(&fixture, 1);
        let file_id = with_caching(&mut holder, is_lease);
        let mut other = sealing(&fixture, 2);
        let waiting = other.start_open("f", |_| {});
        BreakNotification::parse(&holder.notification().1).unwrap();
        let acknowledge = |wire: &mut Wire| {
            let body = |out: &mut Vec<u8>| match is_lease {
                true => LeaseBreakAck { lease_key: KEY, state: LeaseState::empty() }.emit(out),
                false => OplockBreak { level: OplockLevel::NONE, file_id }.emit(out),
            };
            wire.ask(Command::OPLOCK_BREAK, body).0.status
        };
        let tree = holder.tree;
        holder.in_clear = true;
        assert_eq!(acknowledge(&mut holder), NtStatus::ACCESS_DENIED, "{is_lease}");
        holder.tree = 0;
        let status = acknowledge(&mut holder);
        assert!(status.is_error(), "{is_lease}: whichever tree it names: {status}");
        (holder.tree, holder.in_clear) = (tree, false);
        assert_eq!(acknowledge(&mut holder), NtStatus::SUCCESS, "{is_lease}: nothing was taken");
        assert_eq!(other.finish_open(waiting).status, NtStatus::SUCCESS);
    }
}

#[test]
fn a_request_in_the_clear_is_refused_on_an_encrypted_share_whatever_it_asks() {
    let fixture = secret();
    let mut wire = sealing(&fixture, 1);
    let id = wire.open("f", |_| {}).id;
    wire.in_clear = true;
    let close = CloseRequest { query_attributes: false, file_id: id };
    let interfaces = ControlCode::QUERY_NETWORK_INTERFACE_INFO;
    let requests: [(Command, Body); 10] = [
        (Command::CREATE, Box::new(|out| create("f", |_| {}).emit(out))),
        (Command::READ, Box::new(move |out| read(id, 0, 1).emit(out))),
        (Command::WRITE, Box::new(move |out| write(id, 0, b"x").emit(out))),
        (Command::IOCTL, Box::new(move |out| control(NO_FILE, interfaces, &[]).emit(out))),
        (
            Command::QUERY_INFO,
            Box::new(move |out| query(id, InfoType::FILE, FileInfoClass::BASIC.0).emit(out)),
        ),
        (Command::LOCK, Box::new(|out| Empty.emit(out))),
        (Command::QUERY_DIRECTORY, Box::new(|out| Empty.emit(out))),
        (Command::CHANGE_NOTIFY, Box::new(|out| Empty.emit(out))),
        (Command::CLOSE, Box::new(move |out| close.emit(out))),
        (Command::TREE_DISCONNECT, Box::new(|out| Empty.emit(out))),
    ];
    for (command, body) in requests {
        let (header, _) = wire.ask(command, body);
        assert_eq!(header.status, NtStatus::ACCESS_DENIED, "{command:?}");
    }
    wire.in_clear = false;
    assert_eq!(wire.write(id, b"sealed"), NtStatus::SUCCESS);
}

#[test]
fn bytes_of_an_encrypted_share_are_copied_by_no_request_in_the_clear() {
    let fixture = Fixture::start_with(|config| {
        config.shares[0].encrypt_required = true;
        let plain = config.shares[0].path.join("plain");
        std::fs::create_dir(&plain).unwrap();
        config.shares.push(ShareConfig::new("plain", plain));
    });
    let mut wire = sealing(&fixture, 1);
    let source = wire.open("f", |_| {}).id;
    assert_eq!(wire.write(source, b"secret"), NtStatus::SUCCESS);
    let (_, output) = wire.control(source, ControlCode::SRV_REQUEST_RESUME_KEY, &[]);
    let key = ResumeKey::parse(&output).unwrap();
    assert_eq!(wire.enter("plain"), NtStatus::SUCCESS);
    let target = wire.open("g", |_| {}).id;
    let chunks = vec![CopyChunk { source_offset: 0, target_offset: 0, length: 6 }];
    let mut input = Vec::new();
    CopyChunkRequest { source: key, chunks }.emit(&mut input);
    for (in_clear, status) in [(true, NtStatus::ACCESS_DENIED), (false, NtStatus::SUCCESS)] {
        wire.in_clear = in_clear;
        let copied = wire.control(target, ControlCode::SRV_COPYCHUNK, &input).0;
        assert_eq!(copied, status, "in the clear: {in_clear}");
    }
}
