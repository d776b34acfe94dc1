//! Compounds: what their answers look like.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use smb::create::{AccessMask, CreateDisposition, CreateOptions};
use smb::info::FileInfoClass;
use smb::{
    CloseRequest, Command, FileId, Header, NtStatus, QueryDirectoryFlags, QueryDirectoryRequest,
    ReadResponse,
};
use support::compound::{compound, headers, related};
use support::{Fixture, Wire, create, read};

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

// MS-SMB2 §2.2.20: a READ's answer before its data.
const READ_ANSWER: usize = 64 + 16;
