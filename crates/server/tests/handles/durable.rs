//! Handles that outlive their connection, and requests that come twice, on real sockets.

use std::time::{Duration, Instant};

use smb::create::{
    CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext, CreateResponseContext,
    DurableReconnectV2, DurableRequestV2, Lease, LeaseKey, LeaseState, LeaseVersion, OplockLevel,
    ShareAccess,
};
use smb::fsctl::ZeroData;
use smb::info::{EndOfFile, FileInfoClass};
use smb::push::{Durability, PushRequest, Rights};
use smb::{
    BreakNotification, CloseRequest, Command, ControlCode, FileId, Guid, Header, HeaderFlags,
    LockElement, LockFlags, LockRequest, NtStatus,
};

use crate::support::{self, Fixture, Opened, Wire, create, write};

const GUID: Guid = Guid([5; 16]);

fn asks(timeout_ms: u32) -> CreateRequestContext<'static> {
    let asked = DurableRequestV2 { timeout_ms, persistent: false, create_guid: GUID };
    CreateRequestContext::DurableV2(asked)
}

fn open_durable(wire: &mut Wire, name: &str, timeout_ms: u32) -> Opened {
    wire.open(name, |request| {
        request.oplock_level = OplockLevel::BATCH;
        request.contexts.push(asks(timeout_ms));
    })
}

fn take_back(wire: &mut Wire, id: FileId) -> Opened {
    let back = DurableReconnectV2 { file_id: id, create_guid: GUID, persistent: false };
    wire.open("any name", |request| {
        request.contexts.push(CreateRequestContext::DurableReconnectV2(back));
    })
}

fn lock(file_id: FileId, flags: LockFlags) -> LockRequest {
    let locks = vec![LockElement { offset: 0, length: 10, flags }];
    LockRequest { lock_sequence: 0, file_id, locks }
}

fn orphans(fixture: &Fixture) -> usize {
    fixture.running.status().orphans
}

fn wait_until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !what() {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
}

#[test]
fn a_stream_with_a_lease_comes_back_by_its_own_name() {
    let fixture = Fixture::start();
    let version = LeaseVersion::V2 { parent: None, epoch: 0 };
    let state = LeaseState::READ | LeaseState::HANDLE;
    let lease = Lease { key: LeaseKey([7; 16]), state, break_in_progress: false, version };
    let leased = |request: &mut CreateRequest<'_>, context| {
        request.oplock_level = OplockLevel::LEASE;
        request.contexts.extend([CreateRequestContext::Lease(lease), context]);
    };
    let mut wire = fixture.client(1);
    let opened = wire.open("f:s", |request| leased(request, asks(0)));
    assert_eq!(opened.status, NtStatus::SUCCESS);
    drop(wire);
    let back = DurableReconnectV2 { file_id: opened.id, create_guid: GUID, persistent: false };
    let mut wire = fixture.client(1);
    for (name, status) in [
        ("f", NtStatus::INVALID_PARAMETER),
        ("g:s", NtStatus::INVALID_PARAMETER),
        ("f:s", NtStatus::SUCCESS),
    ] {
        let context = CreateRequestContext::DurableReconnectV2(back);
        let again = wire.open(name, |request| leased(request, context));
        assert_eq!(again.status, status, "{name}");
    }
}

#[test]
fn a_leased_durable_open_comes_back_to_no_other_machine() {
    let fixture = Fixture::start();
    let version = LeaseVersion::V2 { parent: None, epoch: 0 };
    let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
    let lease = Lease { key: LeaseKey([7; 16]), state, break_in_progress: false, version };
    let leased = |request: &mut CreateRequest<'_>, context| {
        request.oplock_level = OplockLevel::LEASE;
        request.contexts.extend([CreateRequestContext::Lease(lease), context]);
    };
    let mut wire = fixture.client(1);
    let opened = wire.open("f", |request| leased(request, asks(0)));
    drop(wire);
    wait_until(|| orphans(&fixture) == 1);
    let back = DurableReconnectV2 { file_id: opened.id, create_guid: GUID, persistent: false };
    // The same user, lease key and GUID of the CREATE.
    for (machine, status) in [(2, NtStatus::OBJECT_NAME_NOT_FOUND), (1, NtStatus::SUCCESS)] {
        let context = CreateRequestContext::DurableReconnectV2(back);
        let again = fixture.client(machine).open("f", |request| leased(request, context));
        assert_eq!(again.status, status, "machine {machine}");
    }
}

#[test]
fn a_durable_open_comes_back_with_its_oplock_and_its_locks() {
    let fixture = Fixture::start();
    let mut one = fixture.client(1);
    let opened = open_durable(&mut one, "f", 0);
    assert_eq!(opened.response().oplock_level, OplockLevel::BATCH);
    let granted = opened.response().contexts.iter().any(|context| {
        matches!(context, CreateResponseContext::DurableV2 { timeout_ms: 60_000, .. })
    });
    assert!(granted, "durable for the server's own time");
    let exclusive = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    one.ask(Command::LOCK, |out| lock(opened.id, exclusive).emit(out));
    drop(one);
    // At once: the server may not yet know that the first connection has ended.
    let mut again = fixture.client(1);
    let back = take_back(&mut again, opened.id);
    assert_eq!(back.status, NtStatus::SUCCESS);
    assert_eq!(back.id.persistent, opened.id.persistent);
    assert_eq!(back.response().oplock_level, OplockLevel::BATCH);
    let (header, _) = again.ask(Command::LOCK, |out| lock(back.id, LockFlags::UNLOCK).emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS, "the lock was still there");
    assert_eq!(take_back(&mut again, opened.id).status, NtStatus::OBJECT_NAME_NOT_FOUND, "once");
}

#[test]
fn an_open_without_cached_handles_ends_with_its_connection() {
    let fixture = Fixture::start();
    let mut one = fixture.client(1);
    let opened = one.open("f", |request| {
        request.oplock_level = OplockLevel::EXCLUSIVE;
        request.contexts.push(asks(0));
    });
    assert!(opened.response().contexts.is_empty());
    drop(one);
    wait_until(|| fixture.running.status().opens == 0);
    assert_eq!(orphans(&fixture), 0);
    let mut again = fixture.client(1);
    assert_eq!(take_back(&mut again, opened.id).status, NtStatus::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn nobody_else_and_no_other_create_guid_gets_it() {
    let fixture = Fixture::start_with(|config| {
        config.users = server::Users::with_passwords([("user", "secret"), ("other", "hidden")]);
    });
    let mut one = fixture.client(1);
    let opened = open_durable(&mut one, "f", 0);
    drop(one);
    wait_until(|| orphans(&fixture) == 1);
    let mut thief = fixture.dial();
    thief.negotiate(1);
    thief.log_on_as("other", "hidden");
    thief.enter("data");
    assert_eq!(take_back(&mut thief, opened.id).status, NtStatus::ACCESS_DENIED);
    let mut again = fixture.client(1);
    let wrong =
        DurableReconnectV2 { file_id: opened.id, create_guid: Guid([6; 16]), persistent: false };
    let refused = again.open("f", |request| {
        request.contexts.push(CreateRequestContext::DurableReconnectV2(wrong));
    });
    assert_eq!(refused.status, NtStatus::OBJECT_NAME_NOT_FOUND);
    assert_eq!(take_back(&mut again, opened.id).status, NtStatus::SUCCESS);
}

#[test]
fn another_client_that_wants_the_file_does_not_wait_for_one_that_is_gone() {
    let fixture = Fixture::start();
    let mut one = fixture.client(1);
    let opened = one.open("f", |request| {
        request.oplock_level = OplockLevel::BATCH;
        request.share_access = ShareAccess::empty();
        request.options |= CreateOptions::DELETE_ON_CLOSE;
        request.contexts.push(asks(0));
    });
    drop(one);
    wait_until(|| orphans(&fixture) == 1);
    let mut two = fixture.client(2);
    let taken = two.open("f", |_| {});
    assert_eq!(taken.status, NtStatus::SUCCESS);
    assert_eq!(taken.response().action, smb::create::CreateAction::CREATED, "it was deleted");
    let mut again = fixture.client(1);
    assert_eq!(take_back(&mut again, opened.id).status, NtStatus::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn an_open_nobody_comes_back_for_is_closed_in_time() {
    let fixture = Fixture::start();
    let mut one = fixture.client(1);
    open_durable(&mut one, "f", 1);
    drop(one);
    wait_until(|| {
        let status = fixture.running.status();
        (status.opens, status.orphans, status.files) == (0, 0, 0)
    });
}

#[test]
fn a_write_of_another_client_closes_an_orphan_whose_lease_it_breaks() {
    let fixture = Fixture::start();
    let (mut one, mut two) = (fixture.client(1), fixture.client(2));
    let lease = Lease {
        key: LeaseKey([1; 16]),
        state: LeaseState::READ | LeaseState::HANDLE,
        break_in_progress: false,
        version: LeaseVersion::V2 { parent: None, epoch: 0 },
    };
    let writer = two.open("f", |_| {}).id;
    one.open("f", |request| {
        request.oplock_level = OplockLevel::LEASE;
        request.contexts.extend([CreateRequestContext::Lease(lease), asks(0)]);
    });
    drop(one);
    wait_until(|| orphans(&fixture) == 1);
    assert_eq!(two.write(writer, b"new"), NtStatus::SUCCESS);
    // The writer does not wait for it: what was cached for reading is merely stale.
    wait_until(|| orphans(&fixture) == 0);
}

fn open_alone(wire: &mut Wire, key: u8, pushes: bool) -> Opened {
    let version = LeaseVersion::V2 { parent: None, epoch: 0 };
    let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
    let lease = Lease { key: LeaseKey([key; 16]), state, break_in_progress: false, version };
    let push = PushRequest {
        rights: Rights::READ | Rights::WRITE,
        durability: Durability::ANY,
        accept_emulated: true,
        regions_max: 1,
    };
    wire.open("f", |request| {
        request.oplock_level = OplockLevel::LEASE;
        request.share_access = ShareAccess::empty();
        request.disposition = CreateDisposition::OPEN;
        request.contexts.push(CreateRequestContext::Lease(lease));
        request.contexts.extend(pushes.then_some(CreateRequestContext::Push(push)));
    })
}

#[test]
fn an_open_for_push_mode_under_its_own_lease_meets_no_share_mode_of_its_own() {
    let fixture = Fixture::start_with(|config| {
        config.limits.break_timeout = Duration::from_millis(1);
    });
    let mut one = fixture.client(1);
    let made = one.open("f", |_| {});
    assert_eq!(one.close(made.id), NtStatus::SUCCESS);
    let first = open_alone(&mut one, 1, true);
    assert_eq!(first.status, NtStatus::SUCCESS);
    assert_eq!(open_alone(&mut one, 1, false).status, NtStatus::SHARING_VIOLATION);
    let again = open_alone(&mut one, 1, true);
    assert_eq!(again.status, NtStatus::SUCCESS);
    // Nobody else gets in: the second one has a share mode of its own.
    assert_eq!(one.close(first.id), NtStatus::SUCCESS);
    let other = open_alone(&mut fixture.client(2), 1, true);
    assert_eq!(other.status, NtStatus::SHARING_VIOLATION);
}

#[test]
fn logging_off_keeps_durable_opens_and_leaving_the_share_does_not() {
    let fixture = Fixture::start();
    let mut one = fixture.client(1);
    open_durable(&mut one, "f", 0);
    one.ask(Command::TREE_DISCONNECT, |out| smb::Empty.emit(out));
    assert_eq!((fixture.running.status().opens, orphans(&fixture)), (0, 0));
    one.enter("data");
    let opened = open_durable(&mut one, "f", 0);
    one.ask(Command::LOGOFF, |out| smb::Empty.emit(out));
    assert_eq!(orphans(&fixture), 1);
    let mut again = fixture.client(1);
    assert_eq!(take_back(&mut again, opened.id).status, NtStatus::SUCCESS);
}

/// Sends a CREATE with the replay flag.
fn replay(wire: &mut Wire, request: &CreateRequest<'_>) -> Opened {
    let id = wire.next_id;
    let mut pdu = wire.pdu(Command::CREATE, |out| request.emit(out));
    let mut header = Header::parse(&pdu).unwrap();
    header.flags |= HeaderFlags::REPLAY;
    let mut flagged = Vec::new();
    header.emit(&mut flagged);
    pdu.splice(..Header::LEN, flagged);
    wire.sign(&mut pdu);
    wire.send_frame(&pdu);
    wire.finish_open(id)
}

#[test]
fn a_create_that_comes_again_gets_the_same_open_until_it_is_used() {
    let fixture = Fixture::start();
    let mut one = fixture.client(1);
    let first = open_durable(&mut one, "f", 0);
    let request = create("f", |request| {
        request.oplock_level = OplockLevel::BATCH;
        request.contexts.push(asks(0));
    });
    let again = replay(&mut one, &request);
    assert_eq!((again.status, again.id), (NtStatus::SUCCESS, first.id));
    assert_eq!(again.response().action, first.response().action);
    assert_eq!(open_durable(&mut one, "f", 0).status, NtStatus::DUPLICATE_OBJECTID);
    assert_eq!(fixture.running.status().opens, 1);
    let close = CloseRequest { query_attributes: false, file_id: first.id };
    one.ask(Command::CLOSE, |out| close.emit(out));
    let anew = replay(&mut one, &request);
    assert_eq!(anew.status, NtStatus::SUCCESS);
    assert_ne!(anew.id, first.id);
}

#[test]
fn a_create_that_comes_again_while_the_first_waits_is_told_to_wait() {
    let fixture = Fixture::start();
    let (mut one, mut two) = (fixture.client(1), fixture.client(2));
    open_durable(&mut one, "f", 0);
    let request = create("f", |request| {
        request.contexts.push(CreateRequestContext::DurableV2(DurableRequestV2 {
            timeout_ms: 0,
            persistent: false,
            create_guid: Guid([7; 16]),
        }));
    });
    let waiting = two.start(Command::CREATE, |out| request.emit(out));
    assert_eq!(two.receive().0.status, NtStatus::PENDING);
    assert_eq!(replay(&mut two, &request).status, NtStatus::FILE_NOT_AVAILABLE);
    let (_, pdu) = one.notification();
    let BreakNotification::Oplock(notice) = BreakNotification::parse(&pdu).unwrap() else {
        panic!("an oplock is broken by an oplock break");
    };
    one.ask(Command::OPLOCK_BREAK, |out| notice.emit(out));
    let first = two.finish_open(waiting);
    assert_eq!(first.status, NtStatus::SUCCESS);
    assert_eq!(replay(&mut two, &request).id, first.id);
}

#[test]
fn a_change_from_before_a_lost_channel_is_refused() {
    let fixture = Fixture::start();
    let mut one = fixture.client(1);
    let id = one.open("f", |_| {}).id;
    let mut ask_as = |sequence: u32, command: Command, body: &dyn Fn(&mut Vec<u8>)| {
        let message = one.next_id;
        let mut pdu = one.pdu(command, body);
        pdu[8..12].copy_from_slice(&sequence.to_le_bytes());
        one.sign(&mut pdu);
        one.send_frame(&pdu);
        one.answer_to(message).0.status
    };
    let written = |data: &'static [u8]| move |out: &mut Vec<u8>| write(id, 0, data).emit(out);
    let mut zeros = Vec::new();
    ZeroData { offset: 0, end: 3 }.emit(&mut zeros);
    let zeroed = |out: &mut Vec<u8>| {
        support::control(id, ControlCode::SET_ZERO_DATA, &zeros).emit(out);
    };
    let mut end = Vec::new();
    EndOfFile { end_of_file: 1 }.emit(&mut end);
    let cut = |out: &mut Vec<u8>| {
        support::set(id, FileInfoClass::END_OF_FILE, &end).emit(out);
    };
    assert_eq!(ask_as(1, Command::WRITE, &written(b"new")), NtStatus::SUCCESS);
    type Body<'b> = &'b dyn Fn(&mut Vec<u8>);
    let stale: [(Command, Body<'_>); 3] =
        [(Command::WRITE, &written(b"old")), (Command::IOCTL, &zeroed), (Command::SET_INFO, &cut)];
    for (command, body) in stale {
        assert_eq!(ask_as(0, command, body), NtStatus::FILE_NOT_AVAILABLE, "{command:?}");
        assert_eq!(std::fs::read(fixture.dir.path().join("f")).unwrap(), b"new", "{command:?}");
    }
    assert_eq!(ask_as(1, Command::SET_INFO, &cut), NtStatus::SUCCESS);
    assert_eq!(std::fs::read(fixture.dir.path().join("f")).unwrap(), b"n");
}

#[test]
fn an_open_that_its_client_still_has_is_waited_for_and_then_refused() {
    let fixture = Fixture::start();
    let (mut one, mut two) = (fixture.client(1), fixture.client(1));
    let opened = open_durable(&mut one, "f", 0);
    assert_eq!(take_back(&mut two, opened.id).status, NtStatus::OBJECT_NAME_NOT_FOUND);
    assert_eq!(one.write(opened.id, b"mine"), NtStatus::SUCCESS);
}
