//! Compounds: what their answers look like, and what they say before they are there.

use smb::create::{AccessMask, CreateDisposition, CreateOptions, OplockLevel};
use smb::info::FileInfoClass;
use smb::{
    CloseRequest, Command, FileId, Header, NtStatus, QueryDirectoryFlags, QueryDirectoryRequest,
    ReadResponse,
};

use crate::support::compound::{compound, headers, related};
use crate::support::{Fixture, Wire, create, read};

fn send(wire: &mut Wire, pdus: Vec<Vec<u8>>) {
    let frame = compound(wire, pdus);
    wire.send_frame(&frame);
}

#[test]
fn a_compound_opens_lists_and_closes_in_one_frame() {
    let fixture = Fixture::start();
    std::fs::write(fixture.dir.path().join("one"), "1").unwrap();
    let mut wire = fixture.client(1);
    let list = QueryDirectoryRequest {
        class: FileInfoClass::NAMES,
        flags: QueryDirectoryFlags::empty(),
        file_index: 0,
        file_id: FileId::RELATED,
        pattern: smb::Name::new("o*").unwrap(),
        output_length_max: 4096,
    };
    let close = CloseRequest { query_attributes: false, file_id: FileId::RELATED };
    let root = create("", |request| {
        request.disposition = CreateDisposition::OPEN;
        request.options = CreateOptions::DIRECTORY_FILE;
        request.desired_access = AccessMask::FILE_GENERIC_READ;
    });
    let first = wire.next_id;
    let pdus = vec![
        wire.pdu(Command::CREATE, |out| root.emit(out)),
        related(&mut wire, Command::QUERY_DIRECTORY, |out| list.emit(out)),
        related(&mut wire, Command::CLOSE, |out| close.emit(out)),
    ];
    send(&mut wire, pdus);
    let frame = wire.receive_frame().unwrap();
    let answers: Vec<_> = smb::compound::walk(&frame).collect::<Result<_, _>>().unwrap();
    assert_eq!(answers.len(), 3);
    for ((range, header), id) in answers.into_iter().zip(first..) {
        assert_eq!((header.status, header.message_id.0), (NtStatus::SUCCESS, id));
        wire.keys.as_ref().unwrap().signing.verify(&mut frame[range].to_vec()).unwrap();
    }
    assert_eq!(fixture.running.status().opens, 0);
}

#[test]
fn what_is_related_to_a_failed_create_fails_the_same_way() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let missing = create("missing", |request| request.disposition = CreateDisposition::OPEN);
    let close = CloseRequest { query_attributes: false, file_id: FileId::RELATED };
    let pdus = vec![
        wire.pdu(Command::CREATE, |out| missing.emit(out)),
        related(&mut wire, Command::CLOSE, |out| close.emit(out)),
    ];
    send(&mut wire, pdus);
    let frame = wire.receive_frame().unwrap();
    let answers = headers(&frame);
    let fails = |answer: &Header| answer.status == NtStatus::OBJECT_NAME_NOT_FOUND;
    assert!(answers.len() == 2 && answers.iter().all(fails), "{answers:?}");
}

#[test]
fn what_is_related_to_a_request_of_no_session_is_invalid_though_others_came_before() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let open = create("f", |_| {});
    let close = CloseRequest { query_attributes: false, file_id: FileId::RELATED };
    let mut pdus = vec![
        wire.pdu(Command::CREATE, |out| open.emit(out)),
        related(&mut wire, Command::CLOSE, |out| close.emit(out)),
        related(&mut wire, Command::CLOSE, |out| close.emit(out)),
        related(&mut wire, Command::CLOSE, |out| close.emit(out)),
        related(&mut wire, Command::CLOSE, |out| close.emit(out)),
    ];
    // No longer related, and of no session.
    pdus[2][16] &= !4;
    send(&mut wire, pdus);
    let frame = wire.receive_frame().unwrap();
    assert_eq!(
        headers(&frame).iter().map(|answer| answer.status).collect::<Vec<_>>(),
        [
            NtStatus::SUCCESS,
            NtStatus::SUCCESS,
            NtStatus::USER_SESSION_DELETED,
            NtStatus::INVALID_PARAMETER,
            NtStatus::INVALID_PARAMETER,
        ]
    );
}

#[test]
fn the_last_answer_of_a_compound_is_padded_and_a_single_one_is_not() {
    let fixture = Fixture::start();
    std::fs::write(fixture.dir.path().join("f"), b"123").unwrap();
    let mut wire = fixture.client(1);
    let ids = [wire.next_id, wire.next_id + 1];
    let opens = wire.pdu(Command::CREATE, |out| create("f", |_| {}).emit(out));
    let reads = related(&mut wire, Command::READ, |out| read(FileId::RELATED, 0, 3).emit(out));
    send(&mut wire, vec![opens, reads]);
    let (first, frame) = wire.receive();
    let at = usize::try_from(first.next_command).unwrap();
    let second = Header::parse(&frame[at..]).unwrap();
    assert_eq!([first.message_id.0, second.message_id.0], ids);
    assert_eq!(frame.len() - at, READ_ANSWER + 8, "three bytes and five of padding");
    assert_eq!(ReadResponse::parse(&frame[at..]).unwrap().data, b"123");
    let file = wire.open("f", |_| {}).id;
    let (_, frame) = wire.ask(Command::READ, |out| read(file, 0, 3).emit(out));
    assert_eq!(frame.len(), READ_ANSWER + 3);
}

#[test]
fn what_is_related_is_about_the_file_before_it_whatever_it_names() {
    let fixture = Fixture::start();
    for (name, content) in [("f", "one"), ("g", "two")] {
        std::fs::write(fixture.dir.path().join(name), content).unwrap();
    }
    let mut wire = fixture.client(1);
    let other = wire.open("g", |_| {}).id;
    // As smbtorture writes it.
    let half = FileId { persistent: u64::MAX, volatile: 0 };
    for named in [FileId::RELATED, half, other] {
        let opens = wire.pdu(Command::CREATE, |out| create("f", |_| {}).emit(out));
        let reads = related(&mut wire, Command::READ, |out| read(named, 0, 3).emit(out));
        send(&mut wire, vec![opens, reads]);
        let (first, frame) = wire.receive();
        let at = usize::try_from(first.next_command).unwrap();
        assert_eq!(ReadResponse::parse(&frame[at..]).unwrap().data, b"one", "{named:?}");
    }
    // Nothing is before it.
    let (header, _) = wire.ask(Command::READ, |out| read(FileId::RELATED, 0, 3).emit(out));
    assert_eq!(header.status, NtStatus::FILE_CLOSED);
}

/// Sends a CREATE, a READ and a CLOSE in one frame. The message id of the first.
fn open_read_close(wire: &mut Wire) -> u64 {
    let asked = wire.next_id;
    let open = create("f", |request| request.disposition = CreateDisposition::OPEN);
    let close = CloseRequest { query_attributes: false, file_id: FileId::RELATED };
    let pdus = vec![
        wire.pdu(Command::CREATE, |out| open.emit(out)),
        related(wire, Command::READ, |out| read(FileId::RELATED, 0, 1).emit(out)),
        related(wire, Command::CLOSE, |out| close.emit(out)),
    ];
    send(wire, pdus);
    asked
}

#[test]
fn a_create_that_others_wait_behind_says_that_it_waits() {
    let fixture = Fixture::start();
    let (mut holder, mut wire) = (fixture.client(2), fixture.client(1));
    let held = holder.open("f", |request| request.oplock_level = OplockLevel::BATCH).id;
    assert_eq!(holder.write(held, b"x"), NtStatus::SUCCESS);
    let asked = open_read_close(&mut wire);
    let (interim, pdu) = wire.receive();
    assert_eq!((interim.message_id.0, interim.status), (asked, NtStatus::PENDING));
    assert_eq!(headers(&pdu).len(), 1, "the others have nothing to say yet");
    assert_eq!(holder.close(held), NtStatus::SUCCESS);
    let (_, pdu) = wire.receive();
    let answers = headers(&pdu);
    let of = |header: &Header| (header.message_id.0, header.status);
    let expected: Vec<_> = (asked..asked + 3).map(|id| (id, NtStatus::SUCCESS)).collect();
    assert_eq!(answers.iter().map(of).collect::<Vec<_>>(), expected);
    assert_eq!(answers[0].route, interim.route);
    assert_ne!(answers[1].route, interim.route, "what did not wait is answered as it was asked");
    // The credits of the first left with its interim answer.
    let credits: Vec<_> = answers.iter().map(|header| header.credits > 0).collect();
    assert_eq!((interim.credits > 0, &*credits), (true, &[false, true, true][..]));
}

#[test]
fn a_create_that_is_cancelled_takes_those_behind_it_along() {
    let fixture = Fixture::start();
    let (mut holder, mut wire) = (fixture.client(2), fixture.client(1));
    let held = holder.open("f", |request| request.oplock_level = OplockLevel::BATCH);
    assert_eq!(held.status, NtStatus::SUCCESS);
    let asked = open_read_close(&mut wire);
    let (interim, _) = wire.receive();
    assert_eq!(interim.status, NtStatus::PENDING);
    wire.cancel(asked, interim.route);
    let (_, pdu) = wire.receive();
    let answers = headers(&pdu);
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|header| header.status == NtStatus::CANCELLED), "{answers:?}");
    assert_eq!(fixture.running.status().opens, 1, "nothing was opened");
}

// MS-SMB2 §2.2.20: a READ's answer before its data.
const READ_ANSWER: usize = 64 + 16;
