//! Requests that wait, for other clients or for room: what they hold meanwhile, and when they end.

use std::fs::File;
use std::io::Write as _;
use std::time::{Duration, Instant};

use server::Status;
use smb::create::{CreateOptions, CreateRequest};
use smb::info::FileInfoClass;
use smb::{
    CloseRequest, Command, FileId, LockElement, LockFlags, LockRequest, Name, NtStatus,
    QueryDirectoryFlags, QueryDirectoryRequest,
};

use crate::support::compound::{compound, headers, related, with_header};
use crate::support::crowd::{
    CHARGE, LARGEST, OF_GUESTS, guest, save_credits, to_read, with_guests,
};
use crate::support::{Fixture, Wire, read};

fn until(fixture: &Fixture, reached: impl Fn(&Status) -> bool) -> Status {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let status = fixture.running.status();
        if reached(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "{status:?}");
        std::thread::yield_now();
    }
}

/// A READ whose credits pay for it, signed.
fn start_read(wire: &mut Wire, id: FileId, length: u32) -> u64 {
    let (charge, message) = (u16::try_from(length.div_ceil(64 << 10)).unwrap(), wire.next_id);
    let mut pdu = wire.pdu(Command::READ, |out| read(id, 0, length).emit(out));
    with_header(&mut pdu, |header| header.credit_charge = charge);
    wire.next_id += u64::from(charge) - 1;
    wire.sign(&mut pdu);
    wire.send_frame(&pdu);
    message
}

fn lock(file_id: FileId, flags: LockFlags) -> LockRequest {
    LockRequest {
        lock_sequence: 0,
        file_id,
        locks: vec![LockElement { offset: 0, length: 1, flags }],
    }
}

/// Opens the long file and locks it.
fn hold_lock(wire: &mut Wire) {
    let id = wire.open("long", to_read).id;
    let request = lock(id, LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY);
    assert_eq!(wire.ask(Command::LOCK, |out| request.emit(out)).0.status, NtStatus::SUCCESS);
}

/// Begins a request that is as long as any, and does not go on.
fn begin_long(wire: &mut Wire) {
    wire.stream.write_all(&LARGEST.to_be_bytes()).unwrap();
    wire.stream.write_all(&[0; 64]).unwrap();
}

#[test]
fn locks_that_wait_hold_no_room_of_requests_however_long_they_are() {
    let fixture = Fixture::start_with(with_guests);
    let mut holder = guest(&fixture, 100);
    hold_lock(&mut holder);
    let guests: Vec<_> = (1..=10)
        .map(|number| {
            let mut wire = guest(&fixture, number);
            let id = wire.open("long", to_read).id;
            let request = lock(id, LockFlags::EXCLUSIVE);
            let mut pdu = wire.pdu(Command::LOCK, |out| request.emit(out));
            pdu.resize(8 << 20, 0);
            wire.send_frame(&pdu);
            assert_eq!(wire.receive().0.status, NtStatus::PENDING);
            wire
        })
        .collect();
    until(&fixture, |status| status.request_bytes == 0);
    let waiting = fixture.running.status().waiting_bytes;
    assert!((10 * 5_000..10 * 16_384).contains(&waiting), "{waiting}");
    drop((guests, holder));
    until(&fixture, |status| status.waiting_bytes == 0);
}

#[test]
fn a_connection_that_waits_for_room_notices_that_its_peer_has_gone() {
    let fixture = Fixture::start_with(with_guests);
    let mut waits = guest(&fixture, 100);
    hold_lock(&mut waits);
    let mut guests: Vec<_> = (1..=8).map(|number| guest(&fixture, number)).collect();
    guests.iter_mut().for_each(begin_long);
    until(&fixture, |status| status.request_bytes == OF_GUESTS);
    begin_long(&mut waits);
    // More than is read before there is room for it.
    waits.stream.write_all(&[0; 100_000]).unwrap();
    drop(waits);
    until(&fixture, |status| (status.opens, status.locks) == (0, 0));
    assert_eq!(fixture.running.status().request_bytes, OF_GUESTS);
}

#[test]
fn a_lock_is_not_waited_for_in_a_compound_behind_long_answers() {
    let fixture = Fixture::start_with(with_guests);
    let mut holder = guest(&fixture, 100);
    hold_lock(&mut holder);
    for (charge, read_status, lock_status) in [
        (1, NtStatus::INVALID_PARAMETER, NtStatus::PENDING),
        (CHARGE, NtStatus::SUCCESS, NtStatus::INSUFFICIENT_RESOURCES),
    ] {
        let mut wire = guest(&fixture, 1);
        let id = wire.open("long", to_read).id;
        save_credits(&mut wire, CHARGE);
        let mut reads = wire.pdu(Command::READ, |out| read(id, 4096, LARGEST).emit(out));
        with_header(&mut reads, |header| header.credit_charge = charge);
        wire.next_id += u64::from(charge) - 1;
        let request = lock(id, LockFlags::EXCLUSIVE);
        let locks = wire.pdu(Command::LOCK, |out| request.emit(out));
        let frame = compound(&wire, vec![reads, locks]);
        wire.send_frame(&frame);
        let frame = wire.receive_frame().unwrap();
        let statuses: Vec<_> = headers(&frame).iter().map(|header| header.status).collect();
        if lock_status == NtStatus::PENDING {
            assert_eq!(statuses, [lock_status]);
            // What the READ asks for was not paid for.
            let status = until(&fixture, |status| status.waiting_bytes > 0);
            assert_eq!((status.answer_bytes, status.request_bytes), (0, 0), "{read_status}");
        } else {
            assert_eq!(statuses, [read_status, lock_status]);
        }
    }
    until(&fixture, |status| status.answer_bytes == 0);
}

/// What waits is counted by the memory that it keeps.
#[test]
fn a_request_that_waits_behind_a_failed_read_keeps_no_memory_of_it() {
    let fixture = Fixture::start_with(with_guests);
    let mut holder = guest(&fixture, 100);
    hold_lock(&mut holder);
    let mut wire = guest(&fixture, 1);
    let id = wire.open("long", to_read).id;
    save_credits(&mut wire, CHARGE);
    let mut reads = read(id, (64 << 20) - u64::from(LARGEST) + 8192, LARGEST);
    reads.minimum_count = LARGEST;
    let mut reads = wire.pdu(Command::READ, |out| reads.emit(out));
    with_header(&mut reads, |header| header.credit_charge = CHARGE);
    wire.next_id += u64::from(CHARGE) - 1;
    let request = lock(id, LockFlags::EXCLUSIVE);
    let locks = wire.pdu(Command::LOCK, |out| request.emit(out));
    let frame = compound(&wire, vec![reads, locks]);
    wire.send_frame(&frame);
    assert_eq!(wire.receive().0.status, NtStatus::PENDING);
    let status = until(&fixture, |status| status.waiting_bytes > 0);
    assert!(status.waiting_bytes < 64 << 10, "{}", status.waiting_bytes);
    drop(holder);
    let frame = wire.receive_frame().unwrap();
    let statuses: Vec<_> = headers(&frame).iter().map(|header| header.status).collect();
    assert_eq!(statuses, [NtStatus::END_OF_FILE, NtStatus::SUCCESS]);
    until(&fixture, |status| status.answer_bytes == 0);
}

#[test]
fn a_lock_in_the_middle_of_a_compound_that_would_wait_is_an_internal_error() {
    let fixture = Fixture::start_with(with_guests);
    let mut holder = guest(&fixture, 100);
    hold_lock(&mut holder);
    let mut wire = guest(&fixture, 1);
    let id = wire.open("long", to_read).id;
    let request = lock(id, LockFlags::EXCLUSIVE);
    let close = CloseRequest { query_attributes: false, file_id: FileId::RELATED };
    let pdus = vec![
        wire.pdu(Command::LOCK, |out| request.emit(out)),
        related(&mut wire, Command::CLOSE, |out| close.emit(out)),
    ];
    let frame = compound(&wire, pdus);
    wire.send_frame(&frame);
    let frame = wire.receive_frame().unwrap();
    let statuses: Vec<_> = headers(&frame).iter().map(|header| header.status).collect();
    assert_eq!(statuses[0], NtStatus::INTERNAL_ERROR);
}

#[test]
fn requests_that_wait_are_counted_by_what_they_cost_and_those_too_many_are_refused() {
    let fixture = Fixture::start();
    let (mut holder, mut wire) = (fixture.client(1), fixture.client(2));
    File::create(fixture.dir.path().join("long")).unwrap();
    hold_lock(&mut holder);
    let id = wire.open("long", to_read).id;
    // As many as a connection may have, with 8 KiB each.
    let most: usize = (32 << 20) / (8 << 10);
    let request = lock(id, LockFlags::EXCLUSIVE);
    let mut waits = 0;
    loop {
        wire.start(Command::LOCK, |out| request.emit(out));
        let status = wire.receive().0.status;
        if status != NtStatus::PENDING {
            assert_eq!(status, NtStatus::INSUFFICIENT_RESOURCES);
            break;
        }
        waits += 1;
        let bytes = fixture.running.status().waiting_bytes;
        assert!(bytes >= waits * (8 << 10) && bytes <= 32 << 20, "{bytes} of {waits}");
    }
    assert!((most - 100..most).contains(&waits), "{waits}");
    // It goes on with what does not wait.
    assert_eq!(wire.close(id), NtStatus::SUCCESS);
}

#[test]
fn who_waits_for_room_of_answers_ends_with_its_connection() {
    let fixture = Fixture::start_with(with_guests);
    let guests: Vec<_> = (1..=8)
        .map(|number| {
            let mut wire = guest(&fixture, number);
            let id = wire.open("long", to_read).id;
            save_credits(&mut wire, CHARGE);
            // No more than there is room for: who wants more has those dropped that take nothing.
            start_read(&mut wire, id, LARGEST);
            wire
        })
        .collect();
    until(&fixture, |status| status.answer_bytes >= OF_GUESTS - (1 << 20));
    let mut waits = guest(&fixture, 100);
    let id = waits.open("long", to_read).id;
    save_credits(&mut waits, CHARGE);
    start_read(&mut waits, id, LARGEST);
    until(&fixture, |status| status.request_bytes > 0);
    drop(waits);
    // The others have not been dropped.
    let left = guests.len();
    until(&fixture, |status| (status.request_bytes, status.connections) == (0, left));
    drop(guests);
    until(&fixture, |status| (status.request_bytes, status.answer_bytes) == (0, 0));
}

#[test]
fn a_request_that_releases_something_does_not_wait_for_scans() {
    let fixture = Fixture::start_with_one_thread();
    let folder = fixture.dir.path();
    (0..1_000).for_each(|number| drop(File::create(folder.join(format!("f{number}"))).unwrap()));
    let mut wire = fixture.client(1);
    save_credits(&mut wire, 450);
    let to_list = |request: &mut CreateRequest<'_>| {
        to_read(request);
        request.options = CreateOptions::DIRECTORY_FILE;
    };
    let ids: Vec<_> = (0..100).map(|_| wire.open("", to_list).id).collect();
    let tree = wire.tree;
    assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
    let other_tree = std::mem::replace(&mut wire.tree, tree);
    let taken = fixture.take_thread();
    for id in ids.iter().cycle().take(300) {
        let request = QueryDirectoryRequest {
            class: FileInfoClass::NAMES,
            flags: QueryDirectoryFlags::RESTART_SCANS,
            file_index: 0,
            file_id: *id,
            pattern: Name::new("*nothing*").unwrap(),
            output_length_max: 60_000,
        };
        wire.start(Command::QUERY_DIRECTORY, |out| request.emit(out));
    }
    wire.tree = other_tree;
    let id = wire.start(Command::TREE_DISCONNECT, |out| smb::Empty.emit(out));
    until(&fixture, |status| status.jobs >= 4);
    drop(taken);
    let before = (0..).find(|_| wire.receive().0.message_id.0 == id).unwrap();
    assert!(before < 80, "{before} scans came first");
}

#[test]
fn a_connection_on_which_a_user_logs_on_after_a_guest_is_counted_for_the_user() {
    let fixture = Fixture::start_with(with_guests);
    let mut wire = guest(&fixture, 100);
    let mut guests: Vec<_> = (1..=8).map(|number| guest(&fixture, number)).collect();
    guests.iter_mut().for_each(begin_long);
    until(&fixture, |status| status.request_bytes == OF_GUESTS);
    wire.session = 0;
    wire.log_on();
    assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
    let id = wire.open("theirs", |_| {}).id;
    assert_eq!(wire.write(id, &[7; 60 << 10]), NtStatus::SUCCESS);
    assert_eq!(fixture.running.status().request_bytes, OF_GUESTS, "guests have all they may have");
}
