//! Long frames are read to a place of their own, short ones where they came: in any order, however the
//! stream is cut, each is dealt with whole.

use std::io::Write as _;
use std::net::Shutdown;
use std::time::Duration;

use smb::crypto::Cipher;
use smb::{Command, Empty, FileId, NtStatus};

use crate::support::compound::with_header;
use crate::support::crowd::save_credits;
use crate::support::logon::{first_token, session_setup};
use crate::support::{Fixture, Wire, write};

/// Around what the buffers of a connection hold (4 KiB, 64 KiB) and what counts as long (32 KiB).
const LENGTHS: [usize; 16] = [
    60_000, 1, 3_980, 3_981, 3_985, 32_000, 33_000, 65_536, 65_000, 100, 31_000, 5_000, 65_536,
    4_096, 65_536, 65_420,
];
/// More than a reactor opens or verifies.
const LONG: usize = 2 << 20;
/// How many bytes are sent at a time.
const CUTS: [usize; 6] = [1 << 20, 65_536, 4_096, 4_097, 1_021, 70_001];

#[test]
fn long_and_short_frames_come_whole_in_any_order() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let id = wire.open("f", |_| {}).id;
    for (round, cut) in CUTS.into_iter().enumerate() {
        let (mut stream, mut expected, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        for (index, len) in LENGTHS.into_iter().enumerate() {
            let data = vec![u8::try_from(round * LENGTHS.len() + index + 1).unwrap(); len];
            ids.push(wire.next_id);
            stream.extend(frame(&mut wire, id, expected.len(), &data));
            expected.extend_from_slice(&data);
        }
        for piece in stream.chunks(cut) {
            wire.stream.write_all(piece).unwrap();
        }
        for _ in &ids {
            let (header, _) = wire.receive();
            assert_eq!(header.status, NtStatus::SUCCESS);
            ids.iter().find(|id| **id == header.message_id.0).expect("one of those asked for");
        }
        assert_eq!(std::fs::read(fixture.dir.path().join("f")).unwrap(), expected, "{cut}");
    }
}

#[test]
fn a_session_setup_of_a_user_is_no_longer_than_that_of_a_stranger() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let token = first_token("user", "secret");
    let mut ask = |len: usize| {
        let mut pdu = wire.pdu(Command::SESSION_SETUP, |out| session_setup(&token).emit(out));
        pdu.resize(len, 0);
        wire.sign(&mut pdu);
        wire.send_frame(&pdu);
        wire.receive().0.status
    };
    assert_eq!(ask((64 << 10) + 1), NtStatus::INVALID_PARAMETER);
    assert_eq!(ask(64 << 10), NtStatus::MORE_PROCESSING_REQUIRED);
}

#[test]
fn what_follows_a_long_frame_that_came_slowly_is_seen_at_once() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let id = wire.open("f", |_| {}).id;
    let long = frame(&mut wire, id, 0, &[7; 65_536]);
    send_slowly(&mut wire, &long);
    assert_eq!(wire.receive().0.status, NtStatus::SUCCESS);
    // It has fewer bytes than the server last waited for.
    let (header, _) = wire.ask(Command::ECHO, |out| Empty.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
}

#[test]
fn a_peer_that_goes_in_the_middle_of_a_long_frame_is_not_waited_for() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let id = wire.open("f", |_| {}).id;
    let long = frame(&mut wire, id, 0, &[7; 65_536]);
    send_slowly(&mut wire, &long[..40_000]);
    wire.stream.shutdown(Shutdown::Write).unwrap();
    assert!(wire.is_closed());
    assert_eq!(std::fs::read(fixture.dir.path().join("f")).unwrap(), b"", "not a part of it");
}

#[test]
fn long_requests_are_opened_and_verified_in_order_and_a_wrong_one_is_not_done() {
    let fixture = Fixture::start();
    for cipher in [None, Some(Cipher::Aes128Gcm)] {
        let mut wire = fixture.dial();
        wire.cipher = cipher;
        wire.negotiate(1);
        wire.log_on();
        wire.enter("data");
        save_credits(&mut wire, 256);
        let id = wire.open("f", |_| {}).id;
        let (mut stream, mut ids, mut data) = (Vec::new(), Vec::new(), Vec::new());
        for (number, is_right) in [(1, true), (2, false), (3, true)] {
            let bytes = vec![number; LONG];
            ids.push((wire.next_id, is_right));
            let mut pdu = wire.pdu(Command::WRITE, |out| {
                write(id, (usize::from(number - 1) * LONG) as u64, &bytes).emit(out);
            });
            let charge = u16::try_from(LONG >> 16).unwrap();
            with_header(&mut pdu, |header| header.credit_charge = charge);
            wire.next_id += u64::from(charge) - 1;
            if cipher.is_none() {
                wire.sign(&mut pdu);
                // Of the signature.
                pdu[50] ^= u8::from(!is_right);
            } else {
                pdu = wire.sealed(pdu);
            }
            stream.extend(framed(&pdu));
            ids.push((wire.next_id, true));
            let mut echo = wire.pdu(Command::ECHO, |out| Empty.emit(out));
            if cipher.is_none() {
                wire.sign(&mut echo);
            } else {
                echo = wire.sealed(echo);
            }
            stream.extend(framed(&echo));
            let is_done = is_right || cipher.is_some();
            data.extend(vec![if is_done { number } else { 0 }; LONG]);
        }
        wire.stream.write_all(&stream).unwrap();
        for _ in &ids {
            let (header, _) = wire.receive();
            let (_, is_right) = ids.iter().find(|(id, _)| *id == header.message_id.0).unwrap();
            let is_done = *is_right || cipher.is_some();
            let expected = if is_done { NtStatus::SUCCESS } else { NtStatus::ACCESS_DENIED };
            assert_eq!(header.status, expected);
        }
        assert!(std::fs::read(fixture.dir.path().join("f")).unwrap() == data);
        wire.close(id);
        std::fs::remove_file(fixture.dir.path().join("f")).unwrap();
        if cipher.is_some() {
            let echo = wire.pdu(Command::ECHO, |out| Empty.emit(out));
            let mut wrong = wire.sealed(echo);
            wrong.resize(LONG, 0);
            wire.send_frame(&wrong);
            assert!(wire.is_closed(), "of a seal that does not open");
        }
    }
}

#[test]
fn what_has_come_whole_is_done_and_answered_though_the_client_sends_nothing_more() {
    let fixture = Fixture::start();
    for cipher in [None, Some(Cipher::Aes128Gcm)] {
        let mut wire = fixture.dial();
        wire.cipher = cipher;
        wire.negotiate(1);
        wire.log_on();
        wire.enter("data");
        save_credits(&mut wire, 256);
        let id = wire.open("f", |_| {}).id;
        let (mut stream, mut ids) = (Vec::new(), Vec::new());
        for number in 0..3 {
            ids.push(wire.next_id);
            let pdu = long_write(&mut wire, id, number);
            stream.extend(protected(&wire, pdu));
            ids.push(wire.next_id);
            let echo = wire.pdu(Command::ECHO, |out| Empty.emit(out));
            stream.extend(protected(&wire, echo));
        }
        wire.stream.write_all(&stream).unwrap();
        wire.stream.shutdown(Shutdown::Write).unwrap();
        for _ in 0..ids.len() {
            let (header, _) = wire.receive();
            assert_eq!(header.status, NtStatus::SUCCESS);
            ids.retain(|id| *id != header.message_id.0);
        }
        assert!(ids.is_empty() && wire.is_closed());
        let data: Vec<u8> = (0..3).flat_map(|number| vec![number; LONG]).collect();
        assert!(std::fs::read(fixture.dir.path().join("f")).unwrap() == data);
        std::fs::remove_file(fixture.dir.path().join("f")).unwrap();
    }
}

/// A WRITE of the piece of a file with that number, neither signed nor sealed yet.
fn long_write(wire: &mut Wire, id: FileId, number: u8) -> Vec<u8> {
    let bytes = vec![number; LONG];
    let at = usize::from(number) * LONG;
    let mut pdu = wire.pdu(Command::WRITE, |out| write(id, at as u64, &bytes).emit(out));
    let charge = u16::try_from(LONG >> 16).unwrap();
    with_header(&mut pdu, |header| header.credit_charge = charge);
    wire.next_id += u64::from(charge) - 1;
    pdu
}

/// A request as it travels: sealed if the connection has a cipher, else signed.
fn protected(wire: &Wire, mut pdu: Vec<u8>) -> Vec<u8> {
    if wire.cipher.is_some() {
        return framed(&wire.sealed(pdu));
    }
    wire.sign(&mut pdu);
    framed(&pdu)
}

fn framed(frame: &[u8]) -> Vec<u8> {
    [&u32::try_from(frame.len()).unwrap().to_be_bytes(), frame].concat()
}

/// A signed WRITE as it travels.
fn frame(wire: &mut Wire, id: FileId, at: usize, data: &[u8]) -> Vec<u8> {
    let at = u64::try_from(at).unwrap();
    let mut pdu = wire.pdu(Command::WRITE, |out| write(id, at, data).emit(out));
    wire.sign(&mut pdu);
    framed(&pdu)
}

/// In pieces, with pauses in which the server comes to wait for the next: no peer can see that it does. If
/// it does not, the tests show less and still pass.
fn send_slowly(wire: &mut Wire, bytes: &[u8]) {
    for piece in bytes.chunks(10_000) {
        wire.stream.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
}
