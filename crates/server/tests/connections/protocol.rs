//! The rules of the protocol, spoken byte by byte on real sockets.

use server::SigningPolicy;
use smb::create::{
    AccessMask, CreateOptions, CreateRequest, CreateRequestContext, CreateResponseContext, Lease,
    LeaseKey, LeaseState, LeaseVersion, OplockLevel, ShareAccess,
};
use smb::fsctl::ValidateNegotiateRequest;
use smb::info::{InfoType, SecurityInformation};
use smb::negotiate::{Capabilities, Dialect, NegotiateRequest, SecurityMode};
use smb::{
    BreakNotification, CloseRequest, Command, ControlCode, Empty, ErrorResponse, FileId,
    FlushRequest, Guid, HeaderFlags, LeaseBreakAck, LockElement, LockFlags, LockRequest, NtStatus,
    OutputResponse, QueryInfoRequest, ReadResponse, WriteFlags, WriteRequest,
};

use crate::support::{self, Fixture, Wire, read, write};

const ALL: LeaseState = LeaseState::READ.union(LeaseState::WRITE).union(LeaseState::HANDLE);

fn lease(key: u8, state: LeaseState) -> CreateRequestContext<'static> {
    CreateRequestContext::Lease(Lease {
        key: LeaseKey([key; 16]),
        state,
        break_in_progress: false,
        version: LeaseVersion::V2 { parent: None, epoch: 0 },
    })
}

fn open_leased(wire: &mut Wire, name: &str, key: u8) -> (FileId, LeaseState) {
    let opened = wire.open(name, |request| {
        request.oplock_level = OplockLevel::LEASE;
        request.contexts.push(lease(key, ALL));
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
    let granted = opened.response().contexts.iter().find_map(|context| match context {
        CreateResponseContext::Lease(lease) => Some(lease.state),
        _ => None,
    });
    (opened.id, granted.unwrap())
}

#[test]
fn what_is_written_is_read_back_flushed_and_signed() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let id = wire.open("f", |_| {}).id;
    let (header, _) = wire.ask(Command::WRITE, |out| write(id, 5, b"hello").emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    let (header, _) = wire.ask(Command::FLUSH, |out| FlushRequest { file_id: id }.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    let (header, mut pdu) = wire.ask(Command::READ, |out| read(id, 0, 100).emit(out));
    assert!(header.flags.contains(HeaderFlags::SIGNED));
    wire.keys.as_ref().unwrap().signing.verify(&mut pdu).unwrap();
    assert_eq!(ReadResponse::parse(&pdu).unwrap().data, b"\0\0\0\0\0hello");
    let (header, _) = wire.ask(Command::READ, |out| read(id, 10, 1).emit(out));
    assert_eq!(header.status, NtStatus::END_OF_FILE);
}

#[test]
fn an_unsigned_request_is_refused_and_a_tampered_one_too() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let id = wire.open("f", |_| {}).id;
    wire.signs = false;
    let (header, _) = wire.ask(Command::READ, |out| read(id, 0, 1).emit(out));
    assert_eq!(header.status, NtStatus::ACCESS_DENIED);
    wire.signs = true;
    let message = wire.next_id;
    let mut pdu = wire.pdu(Command::WRITE, |out| write(id, 0, b"good").emit(out));
    wire.sign(&mut pdu);
    let last = pdu.len() - 1;
    pdu[last] ^= 1;
    wire.send_frame(&pdu);
    assert_eq!(wire.answer_to(message).0.status, NtStatus::ACCESS_DENIED);
    assert_eq!(std::fs::read(fixture.dir.path().join("f")).unwrap(), b"");
}

#[test]
fn a_message_id_used_twice_ends_the_connection() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    wire.ask(Command::ECHO, |out| Empty.emit(out));
    wire.next_id -= 1;
    wire.start(Command::ECHO, |out| Empty.emit(out));
    assert!(wire.is_closed());
}

#[test]
fn credits_nobody_granted_end_the_connection() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    wire.next_id += 100_000;
    wire.start(Command::ECHO, |out| Empty.emit(out));
    assert!(wire.is_closed());
}

#[test]
fn a_second_negotiate_ends_the_connection() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    wire.start(Command::NEGOTIATE, |out| Empty.emit(out));
    assert!(wire.is_closed());
}

#[test]
fn nothing_but_negotiate_comes_first_and_no_frame_is_large_before_logon() {
    let fixture = Fixture::start();
    let mut wire = fixture.dial();
    wire.start(Command::ECHO, |out| Empty.emit(out));
    assert!(wire.is_closed());
    let mut wire = fixture.dial();
    wire.negotiate(1);
    wire.stream.set_nodelay(true).unwrap();
    std::io::Write::write_all(&mut wire.stream, &[0, 1, 0, 1]).unwrap();
    assert!(wire.is_closed(), "65,537 bytes are announced");
}

#[test]
fn a_session_of_another_connection_is_not_usable() {
    let fixture = Fixture::start();
    let owner = fixture.client(1);
    let mut thief = fixture.client(2);
    thief.session = owner.session;
    let (header, _) = thief.ask(Command::ECHO, |out| Empty.emit(out));
    assert_eq!(header.status, NtStatus::USER_SESSION_DELETED);
}

#[test]
fn a_second_client_waits_until_the_first_gives_its_lease_back() {
    let fixture = Fixture::start();
    let (mut one, mut two) = (fixture.client(1), fixture.client(2));
    let (_, granted) = open_leased(&mut one, "f", 1);
    assert_eq!(granted, ALL);
    let pending = two.start_open("f", |_| {});
    let (_, pdu) = one.notification();
    let BreakNotification::Lease(notice) = BreakNotification::parse(&pdu).unwrap() else {
        panic!("a lease is broken by a lease break");
    };
    assert!(notice.ack_required);
    assert_eq!(notice.new, LeaseState::READ | LeaseState::HANDLE);
    let ack = LeaseBreakAck { lease_key: notice.lease_key, state: notice.new };
    let (header, _) = one.ask(Command::OPLOCK_BREAK, |out| ack.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    assert_eq!(two.finish_open(pending).status, NtStatus::SUCCESS);
    let (_, granted) = open_leased(&mut two, "f", 2);
    assert_eq!(granted, LeaseState::READ | LeaseState::HANDLE);
}

#[test]
fn a_holder_that_is_silent_loses_its_lease_in_time() {
    let fixture = Fixture::start_with(|config| {
        config.limits.break_timeout = std::time::Duration::from_millis(50);
    });
    let (mut one, mut two) = (fixture.client(1), fixture.client(2));
    open_leased(&mut one, "f", 1);
    assert_eq!(two.open("f", |_| {}).status, NtStatus::SUCCESS);
}

#[test]
fn the_interim_answer_comes_first_though_the_wait_is_over_at_once() {
    // In memory an open needs no other thread, and a break that is given no time is over when it
    // is first looked at: the CREATE is answered in the turn in which it went asynchronous.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let fixture = Fixture::start_with(|config| {
        config.shares = vec![server::ShareConfig::new("data", memory.path())];
        config.limits.break_timeout = std::time::Duration::ZERO;
    });
    let (mut one, mut two) = (fixture.client(1), fixture.client(2));
    let opened = one.open("f", |request| request.oplock_level = OplockLevel::BATCH);
    assert_eq!(opened.response().oplock_level, OplockLevel::BATCH);
    let asked = two.start_open("f", |_| {});
    let (interim, _) = two.receive();
    assert_eq!((interim.message_id.0, interim.status), (asked, NtStatus::PENDING));
    let (last, _) = two.receive();
    assert_eq!((last.message_id.0, last.status), (asked, NtStatus::SUCCESS));
    assert_eq!(last.route, interim.route);
}

#[test]
fn a_writer_takes_read_caching_from_the_others() {
    // In memory a WRITE that nobody is in the way of is carried out on the spot.
    for directory in ["/dev/shm", "/var/tmp"] {
        let fixture = Fixture::start_in(std::path::Path::new(directory), |_| {});
        let (mut one, mut two) = (fixture.client(1), fixture.client(2));
        let id = one.open("f", |_| {}).id;
        let (_, granted) = open_leased(&mut two, "f", 2);
        assert_eq!(granted, LeaseState::READ | LeaseState::HANDLE, "{directory}");
        assert_eq!(one.write(id, b"new"), NtStatus::SUCCESS);
        // What the server had to say when it answered the WRITE is there before the second of these answers.
        for _ in 0..2 {
            two.ask(Command::ECHO, |out| Empty.emit(out));
        }
        let (_, pdu) = two.unsolicited.pop().expect("it is told before the WRITE is answered");
        let BreakNotification::Lease(notice) = BreakNotification::parse(&pdu).unwrap() else {
            panic!("a lease is broken by a lease break");
        };
        assert_eq!(notice.new, LeaseState::empty(), "{directory}");
    }
}

#[test]
fn a_write_into_a_range_that_another_handle_has_locked_is_refused() {
    for directory in ["/dev/shm", "/var/tmp"] {
        let fixture = Fixture::start_in(std::path::Path::new(directory), |_| {});
        let (mut one, mut two) = (fixture.client(1), fixture.client(2));
        let (first, second) = (one.open("f", |_| {}).id, two.open("f", |_| {}).id);
        assert_eq!(one.write(first, b"locked"), NtStatus::SUCCESS);
        let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
        let locks = vec![LockElement { offset: 2, length: 1, flags }];
        let lock = LockRequest { lock_sequence: 0, file_id: first, locks };
        let (header, _) = one.ask(Command::LOCK, |out| lock.emit(out));
        assert_eq!(header.status, NtStatus::SUCCESS);
        // A WRITE through to the medium is carried out by another thread.
        for flags in [WriteFlags::empty(), WriteFlags::WRITE_THROUGH] {
            for (offset, status) in [
                (0, NtStatus::FILE_LOCK_CONFLICT),
                (2, NtStatus::FILE_LOCK_CONFLICT),
                (3, NtStatus::SUCCESS),
            ] {
                let request = WriteRequest { flags, ..write(second, offset, b"abc") };
                let (header, _) = two.ask(Command::WRITE, |out| request.emit(out));
                assert_eq!(header.status, status, "{directory}, {flags:?}, {offset}");
            }
        }
        assert_eq!(std::fs::read(fixture.dir.path().join("f")).unwrap(), b"locabc");
    }
}

#[test]
fn a_refused_lock_of_several_ranges_keeps_none_of_them() {
    let fixture = Fixture::start();
    let (mut one, mut two) = (fixture.client(1), fixture.client(2));
    let (first, second) = (one.open("f", |_| {}).id, two.open("f", |_| {}).id);
    let lock = |file_id, offsets: &[u64]| {
        let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
        let range = |&offset: &u64| LockElement { offset, length: 10, flags };
        LockRequest { lock_sequence: 0, file_id, locks: offsets.iter().map(range).collect() }
    };
    for (is_first, request, status) in [
        (true, lock(first, &[40]), NtStatus::SUCCESS),
        (false, lock(second, &[0, 20, 40]), NtStatus::LOCK_NOT_GRANTED),
        (true, lock(first, &[0, 20]), NtStatus::SUCCESS),
    ] {
        let wire = if is_first { &mut one } else { &mut two };
        let (header, _) = wire.ask(Command::LOCK, |out| request.emit(out));
        assert_eq!(header.status, status);
    }
}

#[test]
fn caching_is_not_shared_where_bytes_are_locked() {
    let fixture = Fixture::start();
    let (mut one, mut two) = (fixture.client(1), fixture.client(2));
    let id = one.open("f", |_| {}).id;
    assert_eq!(one.write(id, b"locked"), NtStatus::SUCCESS);
    let lock = |flags| LockRequest {
        lock_sequence: 0,
        file_id: id,
        locks: vec![LockElement { offset: 0, length: 1, flags }],
    };
    one.ask(Command::LOCK, |out| lock(LockFlags::EXCLUSIVE).emit(out));
    let mut granted = |key| {
        let opened = two.open("f", |request| {
            request.oplock_level = OplockLevel::LEASE;
            request.contexts.push(lease(key, ALL));
        });
        let leases = opened.response().contexts.iter().find_map(|context| match context {
            CreateResponseContext::Lease(Lease {
                state,
                version: LeaseVersion::V2 { epoch, .. },
                ..
            }) => Some((*state, *epoch)),
            _ => None,
        });
        leases.unwrap()
    };
    // The epoch counts changes, and nothing is none.
    assert_eq!(granted(2), (LeaseState::empty(), 0));
    assert_eq!(
        one.ask(Command::LOCK, |out| lock(LockFlags::UNLOCK).emit(out)).0.status,
        NtStatus::SUCCESS
    );
    assert_eq!(granted(3), (LeaseState::READ | LeaseState::HANDLE, 1));
}

#[test]
fn writes_are_cached_beside_those_who_look_at_attributes_alone() {
    let fixture = Fixture::start();
    let (mut one, mut two) = (fixture.client(1), fixture.client(2));
    for (key, name, looks, granted) in [
        (2, "attributes", AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE, ALL),
        (
            3,
            "descriptor",
            AccessMask::READ_ATTRIBUTES | AccessMask::READ_CONTROL,
            LeaseState::READ | LeaseState::HANDLE,
        ),
    ] {
        assert_eq!(one.open(name, |open| open.desired_access = looks).status, NtStatus::SUCCESS);
        assert_eq!(open_leased(&mut two, name, key).1, granted, "{name}");
    }
}

#[test]
fn share_modes_exclude_until_the_handle_is_closed() {
    let fixture = Fixture::start();
    let (mut one, mut two) = (fixture.client(1), fixture.client(2));
    let id = one.open("f", |request| request.share_access = ShareAccess::READ).id;
    assert_eq!(two.open("f", |_| {}).status, NtStatus::SHARING_VIOLATION);
    let close = CloseRequest { query_attributes: true, file_id: id };
    assert_eq!(one.ask(Command::CLOSE, |out| close.emit(out)).0.status, NtStatus::SUCCESS);
    assert_eq!(two.open("f", |_| {}).status, NtStatus::SUCCESS);
    assert_eq!(one.ask(Command::CLOSE, |out| close.emit(out)).0.status, NtStatus::FILE_CLOSED);
}

#[test]
fn a_file_deleted_on_close_goes_with_its_last_handle() {
    let fixture = Fixture::start();
    let (mut one, mut two) = (fixture.client(1), fixture.client(2));
    let kept = two.open("f", |_| {}).id;
    let doomed = one.open("f", |request| request.options |= CreateOptions::DELETE_ON_CLOSE).id;
    let close = |file_id| CloseRequest { query_attributes: false, file_id };
    one.ask(Command::CLOSE, |out| close(doomed).emit(out));
    assert!(fixture.dir.path().join("f").exists());
    assert_eq!(one.open("f", |_| {}).status, NtStatus::DELETE_PENDING);
    two.ask(Command::CLOSE, |out| close(kept).emit(out));
    assert!(!fixture.dir.path().join("f").exists());
}

#[test]
fn a_lock_that_waits_is_pending_and_can_be_cancelled_or_granted() {
    let fixture = Fixture::start();
    let (mut one, mut two) = (fixture.client(1), fixture.client(2));
    let (first, second) = (one.open("f", |_| {}).id, two.open("f", |_| {}).id);
    let lock = |file_id, flags| LockRequest {
        lock_sequence: 0,
        file_id,
        locks: vec![LockElement { offset: 0, length: 10, flags }],
    };
    let exclusive = LockFlags::EXCLUSIVE;
    one.ask(Command::LOCK, |out| lock(first, exclusive).emit(out));
    let at_once = exclusive | LockFlags::FAIL_IMMEDIATELY;
    let (header, _) = two.ask(Command::LOCK, |out| lock(second, at_once).emit(out));
    assert_eq!(header.status, NtStatus::LOCK_NOT_GRANTED);
    let (header, _) = two.ask(Command::READ, |out| read(second, 0, 1).emit(out));
    assert_eq!(header.status, NtStatus::FILE_LOCK_CONFLICT);

    let waiting = two.start(Command::LOCK, |out| lock(second, exclusive).emit(out));
    let (interim, _) = two.receive();
    assert_eq!(interim.status, NtStatus::PENDING);
    two.cancel(waiting, interim.route);
    assert_eq!(two.answer_to(waiting).0.status, NtStatus::CANCELLED);

    let waiting = two.start(Command::LOCK, |out| lock(second, exclusive).emit(out));
    assert_eq!(two.receive().0.status, NtStatus::PENDING);
    one.ask(Command::LOCK, |out| lock(first, LockFlags::UNLOCK).emit(out));
    assert_eq!(two.answer_to(waiting).0.status, NtStatus::SUCCESS);
}

#[test]
fn a_lock_that_waits_when_its_session_ends_is_refused_and_not_cancelled() {
    let fixture = Fixture::start();
    // Which of the two files is closed first is chance.
    for _ in 0..8 {
        let mut wire = fixture.client(1);
        let (first, second) = (wire.open("f", |_| {}).id, wire.open("f", |_| {}).id);
        let lock = |file_id| LockRequest {
            lock_sequence: 0,
            file_id,
            locks: vec![LockElement { offset: 0, length: 10, flags: LockFlags::EXCLUSIVE }],
        };
        wire.ask(Command::LOCK, |out| lock(first).emit(out));
        let waiting = wire.start(Command::LOCK, |out| lock(second).emit(out));
        assert_eq!(wire.receive().0.status, NtStatus::PENDING);
        let logoff = wire.start(Command::LOGOFF, |out| Empty.emit(out));
        let (mut status, mut answers) = (NtStatus::PENDING, 0);
        while answers < 2 {
            let (header, _) = wire.receive();
            answers += 1;
            if header.message_id.0 == waiting {
                status = header.status;
            } else {
                assert_eq!((header.message_id.0, header.status), (logoff, NtStatus::SUCCESS));
            }
        }
        let expected = [NtStatus::RANGE_NOT_LOCKED, NtStatus::SUCCESS];
        assert!(expected.contains(&status), "{status}");
    }
}

#[test]
fn a_client_that_vanishes_lets_go_of_everything() {
    let fixture = Fixture::start();
    let mut one = fixture.client(1);
    open_leased(&mut one, "f", 1);
    let opened = one.open("exclusive", |request| request.share_access = ShareAccess::empty());
    assert_eq!(opened.status, NtStatus::SUCCESS);
    drop(one);
    let mut two = fixture.client(2);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while two.open("exclusive", |_| {}).status == NtStatus::SHARING_VIOLATION {
        assert!(std::time::Instant::now() < deadline);
    }
    assert_eq!(open_leased(&mut two, "f", 2).1, ALL);
}

#[test]
fn connections_that_never_log_on_make_room_for_newcomers() {
    let fixture = Fixture::start_with(|config| config.limits.unauthenticated_max = 8);
    let mut waiting: Vec<_> = (0..8).map(|_| fixture.dial()).collect();
    fixture.client(1);
    assert!(waiting[0].is_closed(), "the oldest made room");
    drop(waiting);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while fixture.running.status().unauthenticated > 0 {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    fixture.client(1);
}

#[test]
fn a_connection_that_never_logs_on_is_closed_in_time() {
    let fixture = Fixture::start_with(|config| {
        config.limits.authentication_timeout = std::time::Duration::from_millis(50);
    });
    let mut idle = fixture.dial();
    assert!(idle.is_closed());
}

#[test]
fn stopping_ends_sessions_and_closes_files() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    wire.open("doomed", |request| request.options |= CreateOptions::DELETE_ON_CLOSE);
    let Fixture { dir, running, runtime } = fixture;
    runtime.block_on(running.shutdown());
    assert!(wire.is_closed());
    assert!(!dir.path().join("doomed").exists());
}

#[test]
fn a_flush_makes_the_name_durable_once_per_change_of_a_name() {
    let disk = tempfile::tempdir_in("/var/tmp").unwrap();
    let fixture = Fixture::start_with(|config| {
        config.shares.push(server::ShareConfig::new("disk", disk.path()));
    });
    let mut wire = fixture.client(1);
    assert_eq!(wire.enter("disk"), NtStatus::SUCCESS);
    let synced = || fixture.running.status().directories_synced;
    let flush = |wire: &mut Wire, file_id| {
        let (header, _) = wire.ask(Command::FLUSH, |out| FlushRequest { file_id }.emit(out));
        assert_eq!(header.status, NtStatus::SUCCESS);
    };
    let one = wire.open("one", |_| {}).id;
    assert_eq!(synced(), 0, "a file that nobody asked to be durable");
    flush(&mut wire, one);
    flush(&mut wire, one);
    assert_eq!(synced(), 1);
    let two = wire.open("two", |_| {}).id;
    let through = WriteRequest { flags: WriteFlags::WRITE_THROUGH, ..write(two, 0, b"durable") };
    let (header, _) = wire.ask(Command::WRITE, |out| through.emit(out));
    assert_eq!((header.status, synced()), (NtStatus::SUCCESS, 2));
    // What was closed without a flush is owed to whoever flushes it later.
    let three = wire.open("three", |_| {}).id;
    let close = CloseRequest { query_attributes: false, file_id: three };
    wire.ask(Command::CLOSE, |out| close.emit(out));
    let three = wire.open("three", |_| {}).id;
    flush(&mut wire, three);
    assert_eq!(synced(), 3);
}

#[test]
fn whoever_wants_a_negotiation_of_3_1_1_confirmed_is_disconnected() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let mut input = Vec::new();
    let request = ValidateNegotiateRequest {
        capabilities: Capabilities::LEASING | Capabilities::LARGE_MTU,
        client_guid: Guid([1; 16]),
        security_mode: SecurityMode::SIGNING_ENABLED,
        dialects: vec![Dialect::SMB_3_1_1],
    };
    request.emit(&mut input);
    let code = ControlCode::VALIDATE_NEGOTIATE_INFO;
    let request = support::control(FileId::RELATED, code, &input);
    wire.start(Command::IOCTL, |out| request.emit(out));
    assert!(wire.is_closed());
}

/// A connection of 3.0.2 with a session that signs nothing, and how it was negotiated.
fn negotiated_3_0_2(fixture: &Fixture) -> (Wire, ValidateNegotiateRequest) {
    let asked = ValidateNegotiateRequest {
        capabilities: Capabilities::LEASING | Capabilities::LARGE_MTU,
        client_guid: Guid([1; 16]),
        security_mode: SecurityMode::SIGNING_ENABLED,
        dialects: vec![Dialect::SMB_3_0, Dialect::SMB_3_0_2],
    };
    let request = NegotiateRequest {
        security_mode: asked.security_mode,
        capabilities: asked.capabilities,
        client_guid: asked.client_guid,
        dialects: asked.dialects.clone(),
        contexts: Vec::new(),
    };
    let mut wire = fixture.dial();
    wire.signs = false;
    let (header, _) = wire.ask(Command::NEGOTIATE, |out| request.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    wire.log_on();
    assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
    (wire, asked)
}

#[test]
fn a_negotiation_that_was_changed_on_its_way_ends_the_connection() {
    let fixture = Fixture::start_with(|config| config.signing = SigningPolicy::WhenAsked);
    let code = ControlCode::VALIDATE_NEGOTIATE_INFO;
    type Change = fn(&mut ValidateNegotiateRequest);
    let changes: [(&str, Change); 5] = [
        ("nothing", |_| {}),
        ("capabilities", |asked| asked.capabilities |= Capabilities::ENCRYPTION),
        ("client", |asked| asked.client_guid = Guid([2; 16])),
        ("security mode", |asked| asked.security_mode |= SecurityMode::SIGNING_REQUIRED),
        ("dialects", |asked| asked.dialects.push(Dialect::SMB_3_1_1)),
    ];
    for (what, change) in changes {
        let (mut wire, mut asked) = negotiated_3_0_2(&fixture);
        change(&mut asked);
        let mut input = Vec::new();
        asked.emit(&mut input);
        let request = support::control(FileId::RELATED, code, &input);
        let id = wire.start(Command::IOCTL, |out| request.emit(out));
        if what == "nothing" {
            assert_eq!(wire.answer_to(id).0.status, NtStatus::SUCCESS);
        } else {
            assert!(wire.is_closed(), "{what}");
        }
    }
}

#[test]
fn who_has_no_room_for_a_security_descriptor_is_told_how_much_it_takes() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let file_id = wire.open("f", |_| {}).id;
    let mut query = |output_length_max| {
        let additional = SecurityInformation::OWNER | SecurityInformation::DACL;
        let query = support::query(file_id, InfoType::SECURITY, 0);
        let request = QueryInfoRequest { output_length_max, additional, ..query };
        wire.ask(Command::QUERY_INFO, |out| request.emit(out))
    };
    let (header, pdu) = query(0);
    assert_eq!(header.status, NtStatus::BUFFER_TOO_SMALL);
    let ErrorResponse::Contexts(contexts) = ErrorResponse::parse(&pdu).unwrap() else {
        panic!("3.1.1 has contexts")
    };
    let len = u32::from_le_bytes(contexts[0].data.try_into().unwrap());
    let (header, pdu) = query(len);
    assert_eq!(header.status, NtStatus::SUCCESS);
    assert_eq!(OutputResponse::parse(&pdu).unwrap().output.len(), len as usize);
    assert_eq!(query(len - 1).0.status, NtStatus::BUFFER_TOO_SMALL);
}

#[test]
fn who_may_append_only_writes_wherever_it_says() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let id = wire.open("f", |_| {}).id;
    assert_eq!(wire.write(id, b"all of it"), NtStatus::SUCCESS);
    let with = |access| move |request: &mut CreateRequest<'_>| request.desired_access = access;
    let appends = wire.open("f", with(AccessMask::APPEND_DATA)).id;
    assert_eq!(wire.write(appends, b"ALL"), NtStatus::SUCCESS);
    let looks = wire.open("f", with(AccessMask::READ_ATTRIBUTES)).id;
    assert_eq!(wire.write(looks, b"not"), NtStatus::ACCESS_DENIED);
    assert_eq!(wire.read(id, 100).1, b"ALL of it");
}
