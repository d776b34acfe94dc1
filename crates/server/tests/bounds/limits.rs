//! What one peer can make the server hold and do, at the limits of the ledger (docs/limits.md).

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use server::Status;
use smb::create::{CreateOptions, CreateRequest};
use smb::fsctl::{FileLevelTrim, FileRange};
use smb::info::FileInfoClass;
use smb::{
    Command, ControlCode, FileId, FlushRequest, LockElement, LockFlags, LockRequest, Name,
    NtStatus, OutputResponse, QueryDirectoryFlags, QueryDirectoryRequest,
};

use crate::support::compound::{compound, headers, with_header};
use crate::support::crowd::{
    CHARGE, LARGEST, OF_GUESTS, guest, save_credits, to_read, with_guests,
};
use crate::support::{Fixture, Wire, read};

fn user(fixture: &Fixture, number: u8) -> Wire {
    let mut wire = fixture.client(number);
    assert_eq!(wire.enter("shown"), NtStatus::SUCCESS);
    wire
}

fn to_list(request: &mut CreateRequest<'_>) {
    to_read(request);
    request.options = CreateOptions::DIRECTORY_FILE;
}

/// A READ that pays for what it asks for.
fn paid_read(wire: &mut Wire, id: FileId, length: u32) -> Vec<u8> {
    let charge = u16::try_from(length.div_ceil(64 << 10)).unwrap();
    let mut pdu = wire.pdu(Command::READ, |out| read(id, 0, length).emit(out));
    with_header(&mut pdu, |header| header.credit_charge = charge);
    wire.next_id += u64::from(charge) - 1;
    pdu
}

/// Looks at the server until it is as wanted; what it holds is bounded all the time.
fn watch(fixture: &Fixture, is_wanted: impl Fn(&Status) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let status = fixture.running.status();
        // A user who reads meanwhile holds one answer.
        let most = OF_GUESTS + (9 << 20);
        assert!(status.answer_bytes <= most && status.request_bytes <= most, "{status:?}");
        if is_wanted(&status) {
            return;
        }
        assert!(Instant::now() < deadline, "{status:?}");
        std::thread::yield_now();
    }
}

#[test]
fn what_a_compound_asks_for_is_bounded_as_one_request_is() {
    let fixture = Fixture::start_with(with_guests);
    let mut wire = user(&fixture, 1);
    let id = wire.open("long", to_read).id;
    save_credits(&mut wire, 4 * 64);
    let pdus = (0..3).map(|_| paid_read(&mut wire, id, 4 << 20)).collect();
    let frame = compound(&wire, pdus);
    wire.send_frame(&frame);
    let frame = wire.receive_frame().unwrap();
    let statuses: Vec<_> = headers(&frame).iter().map(|header| header.status).collect();
    let fits = NtStatus::SUCCESS;
    assert_eq!(statuses, [fits, fits, NtStatus::INSUFFICIENT_RESOURCES]);
    assert!(frame.len() < (9 << 20));
    // What was asked for and did not come counts no more.
    save_credits(&mut wire, 4 * 64);
    let short = wire.open("short", |_| {}).id;
    let pdus = (0..3).map(|_| paid_read(&mut wire, short, 4 << 20)).collect();
    let frame = compound(&wire, pdus);
    wire.send_frame(&frame);
    let frame = wire.receive_frame().unwrap();
    assert!(headers(&frame).iter().all(|header| header.status == NtStatus::END_OF_FILE));
}

#[test]
fn answers_that_nobody_reads_hold_a_bounded_amount_of_memory() {
    let fixture = Fixture::start_with(with_guests);
    let guests: Vec<_> = (1..=24)
        .map(|number| {
            let mut wire = guest(&fixture, number);
            let id = wire.open("long", to_read).id;
            save_credits(&mut wire, 3 * CHARGE);
            for _ in 0..3 {
                let pdu = paid_read(&mut wire, id, LARGEST);
                wire.send_frame(&pdu);
            }
            wire
        })
        .collect();
    watch(&fixture, |status| status.answer_bytes >= OF_GUESTS / 2);
    let mut wire = user(&fixture, 200);
    let id = wire.open("long", to_read).id;
    save_credits(&mut wire, CHARGE);
    for _ in 0..3 {
        let message = wire.next_id;
        let mut pdu = paid_read(&mut wire, id, 1 << 20);
        wire.sign(&mut pdu);
        wire.send_frame(&pdu);
        assert_eq!(wire.answer_to(message).0.status, NtStatus::SUCCESS);
        watch(&fixture, |_| true);
    }
    drop(guests);
    watch(&fixture, |status| status.answer_bytes == 0);
}

#[test]
fn heads_of_long_requests_hold_a_bounded_amount_of_memory() {
    let fixture = Fixture::start_with(with_guests);
    let guests: Vec<_> = (1..=24)
        .map(|number| {
            let mut wire = guest(&fixture, number);
            wire.stream.write_all(&LARGEST.to_be_bytes()).unwrap();
            wire.stream.write_all(&[0; 64]).unwrap();
            wire
        })
        .collect();
    watch(&fixture, |status| status.request_bytes >= OF_GUESTS);
    let mut wire = fixture.client(200);
    let id = wire.open("mine", |_| {}).id;
    assert_eq!(wire.write(id, &[7; 60 << 10]), NtStatus::SUCCESS);
    drop(guests);
    watch(&fixture, |status| status.request_bytes == 0);
}

#[test]
fn a_user_has_a_bounded_number_of_files_open_in_all_sessions() {
    let fixture = Fixture::start_with(|config| config.limits.user_opens_max = 10);
    let mut wires = [fixture.client(1), fixture.dial()];
    wires[1].negotiate(2);
    // The same user, however the name is written.
    wires[1].log_on_as("USER@example.org", "secret");
    assert_eq!(wires[1].enter("data"), NtStatus::SUCCESS);
    let mut opened = Vec::new();
    for number in 0..10 {
        let made = wires[number % 2].open(&format!("f{number}"), |_| {});
        assert_eq!(made.status, NtStatus::SUCCESS);
        opened.push(made.id);
    }
    for wire in &mut wires {
        assert_eq!(wire.open("more", |_| {}).status, NtStatus::INSUFFICIENT_RESOURCES);
    }
    let mut other = fixture.dial();
    other.negotiate(3);
    other.log_on_as("other", "hidden");
    assert_eq!(other.enter("data"), NtStatus::SUCCESS);
    assert_eq!(other.open("theirs", |_| {}).status, NtStatus::SUCCESS);
    assert_eq!(wires[0].close(opened[0]), NtStatus::SUCCESS);
    assert_eq!(wires[1].open("more", |_| {}).status, NtStatus::SUCCESS);
}

#[test]
fn an_open_counts_as_many_descriptors_as_it_has() {
    let fixture = Fixture::start_in(Path::new("/var/tmp"), |config| {
        config.limits.user_opens_max = 8;
    });
    let mut wire = fixture.client(1);
    // Of a stream three: its own, its file's, that of the directory of its streams.
    let streams: Vec<_> = (0..2).map(|_| wire.open("f:stream", |_| {})).collect();
    assert!(streams.iter().all(|opened| opened.status == NtStatus::SUCCESS));
    assert_eq!(wire.open("f:stream", |_| {}).status, NtStatus::INSUFFICIENT_RESOURCES);
    let files = [wire.open("a", |_| {}), wire.open("b", |_| {})];
    assert!(files.iter().all(|opened| opened.status == NtStatus::SUCCESS));
    assert_eq!(wire.open("c", |_| {}).status, NtStatus::INSUFFICIENT_RESOURCES);
    // What a file on a disk is flushed through is one more.
    let flush = |wire: &mut Wire, file_id| {
        wire.ask(Command::FLUSH, |out| FlushRequest { file_id }.emit(out)).0.status
    };
    assert_eq!(flush(&mut wire, files[0].id), NtStatus::INSUFFICIENT_RESOURCES);
    assert_eq!(wire.close(streams[0].id), NtStatus::SUCCESS);
    assert_eq!(flush(&mut wire, files[0].id), NtStatus::SUCCESS);
    assert_eq!(flush(&mut wire, files[0].id), NtStatus::SUCCESS, "no more of them");
    let opened: Vec<_> = (0..3).map(|_| wire.open("c", |_| {}).status).collect();
    let full = NtStatus::INSUFFICIENT_RESOURCES;
    assert_eq!(opened, [NtStatus::SUCCESS, NtStatus::SUCCESS, full]);
}

#[test]
fn a_user_has_a_bounded_number_of_connections_and_others_log_on() {
    let fixture = Fixture::start_with(|config| config.limits.user_connections_max = 3);
    let mut held: Vec<_> = (1..=3).map(|number| fixture.client(number)).collect();
    let try_log_on = |user: &str, password: &str| {
        let mut wire = fixture.dial();
        wire.negotiate(9);
        wire.try_log_on_as(user, password)
    };
    assert_eq!(try_log_on("user", "secret"), NtStatus::INSUFFICIENT_RESOURCES);
    assert_eq!(try_log_on("other", "hidden"), NtStatus::SUCCESS);
    drop(held.pop());
    let deadline = Instant::now() + Duration::from_secs(20);
    while try_log_on("user", "secret") != NtStatus::SUCCESS {
        assert!(Instant::now() < deadline, "the place comes back");
    }
}

#[test]
fn a_name_is_kept_without_what_makes_no_other_user() {
    let fixture = Fixture::start();
    let mut wire = fixture.dial();
    wire.negotiate(1);
    let long = format!("user@{}", "x".repeat(10_000));
    assert_eq!(wire.log_on_unproven(&long), NtStatus::LOGON_FAILURE);
    let mut wire = fixture.dial();
    wire.negotiate(2);
    wire.log_on_as("User@example.org", "secret");
    let report = fixture.running.observer().report(10).unwrap();
    assert_eq!(report.sessions.rows[0].user.as_deref(), Some("user"));
}

#[test]
fn scans_of_guests_leave_threads_to_others() {
    let fixture = Fixture::start_with(with_guests);
    let shown = fixture.dir.path().join("shown");
    (0..3_000).for_each(|number| drop(File::create(shown.join(format!("f{number}"))).unwrap()));
    let mut guests: Vec<_> = (1..=2).map(|number| guest(&fixture, number)).collect();
    for wire in &mut guests {
        save_credits(wire, 450);
        let ids: Vec<_> = (0..100).map(|_| wire.open("", to_list).id).collect();
        for id in ids.iter().cycle().take(400) {
            let request = list(*id, "*nothing*", QueryDirectoryFlags::RESTART_SCANS);
            wire.start(Command::QUERY_DIRECTORY, |out| request.emit(out));
        }
    }
    let mut wire = fixture.client(200);
    for round in 0..20 {
        let id = wire.open(&format!("mine{round}"), |_| {}).id;
        assert_eq!(wire.write(id, b"mine"), NtStatus::SUCCESS);
        assert_eq!(wire.close(id), NtStatus::SUCCESS);
        let jobs = fixture.running.status().jobs;
        // Two that scan for guests, and the one of this client.
        assert!(jobs <= 3, "{jobs} threads");
    }
}

fn list(file_id: FileId, pattern: &str, flags: QueryDirectoryFlags) -> QueryDirectoryRequest {
    let (class, pattern) = (FileInfoClass::NAMES, Name::new(pattern).unwrap());
    QueryDirectoryRequest {
        class,
        flags,
        file_index: 0,
        file_id,
        pattern,
        output_length_max: 60_000,
    }
}

#[test]
fn a_listing_goes_on_where_its_turn_has_ended() {
    // On a disk, and where memory lies behind everything.
    for fixture in [Fixture::start(), in_memory()] {
        let folder = fixture.dir.path();
        // More than a turn looks at, all in the first answer; and one that matches far behind.
        (0..5_000).for_each(|number| drop(File::create(folder.join(format!("{number}"))).unwrap()));
        fs::write(folder.join("the one"), "").unwrap();
        let mut wire = fixture.client(1);
        let id = wire.open("", to_list).id;
        let mut ask = |pattern: &str, flags| {
            let request = list(id, pattern, flags);
            let (header, pdu) = wire.ask(Command::QUERY_DIRECTORY, |out| request.emit(out));
            (header.status, OutputResponse::parse(&pdu).map_or(0, |found| count(found.output)))
        };
        assert_eq!(ask("the*", QueryDirectoryFlags::RESTART_SCANS), (NtStatus::SUCCESS, 1));
        assert_eq!(ask("the*", QueryDirectoryFlags::empty()), (NtStatus::NO_MORE_FILES, 0));
        let nothing = ask("*nothing*", QueryDirectoryFlags::RESTART_SCANS);
        assert_eq!(nothing, (NtStatus::NO_SUCH_FILE, 0));
        let (mut found, mut flags) = (0, QueryDirectoryFlags::RESTART_SCANS);
        loop {
            let (status, more) = ask("*", flags);
            found += more;
            flags = QueryDirectoryFlags::empty();
            if status != NtStatus::SUCCESS {
                assert_eq!(status, NtStatus::NO_MORE_FILES);
                break;
            }
        }
        assert_eq!(found, 5_003);
    }
}

fn in_memory() -> Fixture {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().to_owned();
    let mut fixture = Fixture::start_with(|config| config.shares[0].path = path);
    fixture.dir = dir.into();
    fixture
}

/// Entries of a list, each with the distance to the next one in front.
fn count(mut entries: &[u8]) -> usize {
    let mut count = 0;
    while let Some(next) = entries.first_chunk().map(|next| u32::from_le_bytes(*next)) {
        count += 1;
        if next == 0 {
            break;
        }
        entries = &entries[usize::try_from(next).unwrap()..];
    }
    count
}

#[test]
fn many_ranges_are_trimmed_unless_one_of_them_is_locked() {
    let fixture = Fixture::start();
    let (mut wire, mut other) = (fixture.client(1), fixture.client(2));
    let id = wire.open("f", |_| {}).id;
    assert_eq!(wire.write(id, &[7; 8_192]), NtStatus::SUCCESS);
    let theirs = other.open("f", |_| {}).id;
    let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    let locks = vec![LockElement { offset: 5_000, length: 10, flags }];
    let request = LockRequest { lock_sequence: 0, file_id: theirs, locks };
    let locked = other.ask(Command::LOCK, |out| request.emit(out)).0.status;
    assert_eq!(locked, NtStatus::SUCCESS);
    for (count, last) in [(10, 5_009), (1_000, 5_009), (10, 5_010), (1_000, 5_010)] {
        let mut ranges = vec![FileRange { offset: 0, length: 16 }; count];
        ranges.push(FileRange { offset: last, length: 1 });
        let mut input = Vec::new();
        FileLevelTrim { key: 0, ranges }.emit(&mut input);
        let (status, _) = wire.control(id, ControlCode::FILE_LEVEL_TRIM, &input);
        let is_locked = last < 5_010;
        let expected = if is_locked { NtStatus::FILE_LOCK_CONFLICT } else { NtStatus::SUCCESS };
        assert_eq!(status, expected, "{count} ranges, the last at {last}");
    }
}

#[test]
fn a_user_enters_a_bounded_number_of_shares() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    for _ in 1..1_024 {
        assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
    }
    assert_eq!(wire.enter("data"), NtStatus::INSUFFICIENT_RESOURCES);
}

#[test]
fn what_one_request_lists_is_bounded() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let id = wire.open("", to_list).id;
    save_credits(&mut wire, 2 * CHARGE);
    for (length, expected) in
        [(LARGEST, NtStatus::SUCCESS), (LARGEST + 1, NtStatus::INVALID_PARAMETER)]
    {
        let request = QueryDirectoryRequest {
            output_length_max: length,
            ..list(id, "*", QueryDirectoryFlags::RESTART_SCANS)
        };
        let message = wire.next_id;
        let mut pdu = wire.pdu(Command::QUERY_DIRECTORY, |out| request.emit(out));
        with_header(&mut pdu, |header| header.credit_charge = CHARGE);
        wire.next_id += u64::from(CHARGE) - 1;
        wire.sign(&mut pdu);
        wire.send_frame(&pdu);
        assert_eq!(wire.answer_to(message).0.status, expected, "{length} bytes");
    }
}
