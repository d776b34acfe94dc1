//! Named pipes, spoken byte by byte: calls in pieces, pipes that are not there, bytes that are no call.

use smb::{CloseRequest, Command, ControlCode, FileId, IoctlRequest, IoctlResponse, NtStatus};

use crate::support::{self, Fixture, Wire};

// srvsvc 3.0 in NDR under context 0, fragments of 4280 bytes: what impacket sends.
const BIND: [u8; 72] = [
    5, 0, 11, 3, 0x10, 0, 0, 0, 72, 0, 0, 0, 1, 0, 0, 0, //
    0xb8, 0x10, 0xb8, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, //
    0xc8, 0x4f, 0x32, 0x4b, 0x70, 0x16, 0xd3, 0x01, 0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1, 0x88,
    3, 0, 0, 0, //
    0x04, 0x5d, 0x88, 0x8a, 0xeb, 0x1c, 0xc9, 0x11, 0x9f, 0xe8, 0x08, 0x00, 0x2b, 0x10, 0x48, 0x60,
    2, 0, 0, 0,
];

// NetrShareEnum of level 1.
const SHARE_ENUM: [u8; 56] = [
    5, 0, 0, 3, 0x10, 0, 0, 0, 56, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 15, 0, //
    0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
    0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0,
];

fn pipes(fixture: &Fixture) -> Wire {
    let mut wire = fixture.client(1);
    assert_eq!(wire.enter("IPC$"), NtStatus::SUCCESS);
    wire
}

fn transceive(wire: &mut Wire, id: FileId, input: &[u8], max: u32) -> (NtStatus, Vec<u8>) {
    let control = support::control(id, ControlCode::PIPE_TRANSCEIVE, input);
    let request = IoctlRequest { output_response_max: max, ..control };
    let (header, pdu) = wire.ask(Command::IOCTL, |out| request.emit(out));
    let output = IoctlResponse::parse(&pdu).map(|response| response.output.to_vec());
    (header.status, output.unwrap_or_default())
}

#[test]
fn an_answer_longer_than_asked_for_goes_on_with_the_next_read() {
    let fixture = Fixture::start();
    let mut wire = pipes(&fixture);
    let pipe = wire.open("srvsvc", |_| {});
    assert_eq!(pipe.status, NtStatus::SUCCESS);
    let (status, ack) = transceive(&mut wire, pipe.id, &BIND, 4280);
    assert_eq!((status, ack[2]), (NtStatus::SUCCESS, 12));
    let (status, begin) = transceive(&mut wire, pipe.id, &SHARE_ENUM, 100);
    assert_eq!((status, begin.len()), (NtStatus::BUFFER_OVERFLOW, 100));
    let (status, rest) = wire.read(pipe.id, 4280);
    assert_eq!(status, NtStatus::SUCCESS);
    let all = [begin, rest].concat();
    assert_eq!(usize::from(u16::from_le_bytes([all[8], all[9]])), all.len());
    let name: Vec<u8> = "data".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(all.windows(name.len()).any(|window| window == name), "the share is listed");
    assert_eq!(wire.read(pipe.id, 4280).0, NtStatus::PIPE_EMPTY);
}

#[test]
fn a_call_may_be_written_and_its_answer_read() {
    let fixture = Fixture::start();
    let mut wire = pipes(&fixture);
    let pipe = wire.open("\\SRVSVC", |_| {});
    assert_eq!(wire.write(pipe.id, &BIND[..20]), NtStatus::SUCCESS);
    assert_eq!(wire.read(pipe.id, 100).0, NtStatus::PIPE_EMPTY);
    assert_eq!(wire.write(pipe.id, &BIND[20..]), NtStatus::SUCCESS);
    let (status, ack) = wire.read(pipe.id, 4280);
    assert_eq!((status, ack[2]), (NtStatus::SUCCESS, 12));
    let close = CloseRequest { query_attributes: true, file_id: pipe.id };
    let closed = wire.ask(Command::CLOSE, |out| close.emit(out)).0.status;
    assert_eq!(closed, NtStatus::SUCCESS);
    assert_eq!(wire.read(pipe.id, 1).0, NtStatus::FILE_CLOSED);
}

#[test]
fn a_pipe_that_is_not_served_is_not_found() {
    let fixture = Fixture::start();
    let mut wire = pipes(&fixture);
    for name in ["spoolss", "", "srvsvc2"] {
        assert_eq!(wire.open(name, |_| {}).status, NtStatus::OBJECT_NAME_NOT_FOUND, "{name}");
    }
}

#[test]
fn a_pipe_is_reached_through_its_own_tree_only() {
    let fixture = Fixture::start();
    let mut wire = pipes(&fixture);
    let pipe = wire.open("srvsvc", |_| {});
    assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
    let (status, _) = transceive(&mut wire, pipe.id, &BIND, 4280);
    assert_eq!(status, NtStatus::NETWORK_NAME_DELETED);
    assert_eq!(wire.read(pipe.id, 1).0, NtStatus::FILE_CLOSED, "no file has that id");
}

#[test]
fn bytes_that_are_no_call_end_the_pipe_and_nothing_else() {
    let fixture = Fixture::start();
    let mut wire = pipes(&fixture);
    let (bad, good) = (wire.open("srvsvc", |_| {}), wire.open("srvsvc", |_| {}));
    assert_eq!(wire.write(bad.id, &[0xff; 64]), NtStatus::PIPE_DISCONNECTED);
    assert_eq!(wire.write(bad.id, &BIND), NtStatus::FILE_CLOSED);
    let (status, _) = transceive(&mut wire, good.id, &BIND, 4280);
    assert_eq!(status, NtStatus::SUCCESS);
}

#[test]
fn pipes_of_one_session_are_bounded() {
    let fixture = Fixture::start();
    let mut wire = pipes(&fixture);
    let refused = (0..1000).find(|_| wire.open("srvsvc", |_| {}).status != NtStatus::SUCCESS);
    assert_eq!(refused, Some(64));
    assert_eq!(wire.open("srvsvc", |_| {}).status, NtStatus::INSUFFICIENT_RESOURCES);
}
