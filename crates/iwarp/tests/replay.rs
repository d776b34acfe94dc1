//! Conversations of Linux's siw, replayed through two of our streams.
//!
//! Each captured frame is received by one stream, and framed again by the other from nothing but
//! what the first said it means. The bytes must come out the same.

#![cfg(test)]

mod support;

use std::time::{Duration, Instant};

use iwarp::mpa::{Attempt, Initiator, Responder, Revision, StartConfig};
use iwarp::stream::SendKind;
use iwarp::{Agreement, Indication, Received, Stream};
use support::{From, captured, copy};

const WITHOUT_CRC: &str = include_str!("fixtures/siw-rping-without-crc.hex");
const WITH_CRC: &str = include_str!("fixtures/siw-rping-with-crc.hex");
const MPA_REQUEST: &str = include_str!("fixtures/siw-mpa-request.hex");

/// Bytes rping moves each way per round.
const PING_SIZE: u32 = 4000;

fn config(crc: bool) -> StartConfig {
    StartConfig { crc, ird: 1, ord: 1, profile: None, timeout: Duration::from_secs(5) }
}

/// The start-up as captured: we make the same Request and the same Reply.
fn start(segments: &[(From, Vec<u8>)], crc: bool) -> [Agreement; 2] {
    let now = Instant::now();
    let mut initiator = Initiator::new(config(false), Attempt::CLIENT_SERVER, &[], now).unwrap();
    assert_eq!(initiator.poll_transmit().as_ref(), Some(&segments[0].1));
    let mut responder = Responder::new(config(crc), now).unwrap();
    assert_eq!(responder.handle_bytes(&segments[0].1), segments[0].1.len());
    responder.accept(&[]).unwrap();
    assert_eq!(responder.poll_transmit().as_ref(), Some(&segments[1].1));
    assert_eq!(initiator.handle_bytes(&segments[1].1), segments[1].1.len());
    let ends = [initiator.outcome(), responder.outcome()];
    ends.map(|outcome| outcome.unwrap().unwrap())
}

/// Frames again what `indication` says was framed. A Write's length is in no frame, so the test
/// keeps count of what is `written` of it.
fn frame_again(
    stream: &mut Stream,
    indication: &Indication<'_>,
    written: &mut u32,
    out: &mut [u8],
) -> usize {
    match indication {
        Indication::Write(write) => {
            let (stag, offset, remaining) = (write.stag, write.tagged_offset, PING_SIZE - *written);
            let fill = copy(write.payload);
            let framed = stream.frame_write(out, stag, offset, remaining, fill).unwrap();
            assert_eq!(framed.last, write.last);
            *written = if framed.last { 0 } else { *written + framed.payload };
            framed.size
        }
        Indication::Send(send) => {
            assert!(send.last && send.invalidate.is_none());
            let kind = SendKind { solicited: send.solicited, invalidate: None };
            let remaining = u32::try_from(send.payload.len()).unwrap();
            stream.frame_send(out, kind, remaining, copy(send.payload)).unwrap().size
        }
        Indication::ReadRequest(request) => stream.frame_read_request(out, request).unwrap(),
        Indication::ReadResponse(response) => {
            let framed = stream.frame_read_response(out, copy(response.payload)).unwrap();
            assert_eq!(framed.last, response.last);
            framed.size
        }
        other => panic!("rping never does {other:?}"),
    }
}

fn replay(text: &str, crc: bool) {
    let segments = captured(text);
    let [guest, host] = start(&segments, crc);
    assert_eq!((guest.crc, guest.revision), (crc, Revision::RFC_6581));
    // siw fills 1448 bytes of a segment, the other end 1420.
    let (mut guest, mut host) = (Stream::new(&guest, 1448), Stream::new(&host, 1420));
    let mut written = 0;
    for (from, bytes) in &segments[2..] {
        let (sender, receiver) = match from {
            From::Initiator => (&mut guest, &mut host),
            From::Responder => (&mut host, &mut guest),
        };
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let received = receiver.receive(rest).unwrap();
            let Received::Frame { consumed, indication } = received else {
                panic!("captured segments hold whole frames: {received:?}");
            };
            let mut out = [0; 1500];
            let size = frame_again(sender, &indication, &mut written, &mut out);
            assert_eq!(out[..size], rest[..consumed]);
            rest = &rest[consumed..];
        }
    }
    assert_eq!((guest.unanswered(), host.outstanding()), (0, 0));
}

#[test]
fn a_ping_of_siw_without_crc_is_understood_and_framed_alike() {
    replay(WITHOUT_CRC, false);
}

#[test]
fn a_ping_of_siw_with_crc_is_understood_and_framed_alike() {
    replay(WITH_CRC, true);
}

#[test]
fn the_request_siw_dials_with_is_one_we_can_accept() {
    let request = &captured(MPA_REQUEST)[0].1;
    let mut responder = Responder::new(StartConfig::default(), Instant::now()).unwrap();
    // One byte at a time, as TCP may have it.
    for byte in request {
        assert_eq!(responder.handle_bytes(&[*byte]), 1);
    }
    let asked = responder.request().unwrap();
    assert_eq!((asked.depths, asked.crc, asked.private_data), (Some((1, 1)), false, &[][..]));
    let agreement = responder.accept(b"hello").unwrap();
    assert_eq!((agreement.ird, agreement.ord, agreement.crc), (1, 1, true));
    let reply = responder.poll_transmit().unwrap();
    assert_eq!(reply, b"MPA ID Rep Frame\x50\x02\x00\x09\x00\x01\x00\x01hello");
}
