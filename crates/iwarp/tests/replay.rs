//! Conversations of Linux's siw, replayed through two of our streams.
//!
//! One stream receives each captured frame, and the other frames it again from the indication of
//! the first alone. The bytes must be the same.

#![cfg(test)]

mod support;

use std::time::{Duration, Instant};

use iwarp::mpa::{Attempt, Initiator, Responder, Revision, StartConfig};
use iwarp::rdmap::TerminateCode;
use iwarp::stream::SendKind;
use iwarp::{Agreement, Indication, Received, Stream};
use support::{From, captured, copy};

const WITHOUT_CRC: &str = include_str!("fixtures/siw-rping-without-crc.hex");
const WITH_CRC: &str = include_str!("fixtures/siw-rping-with-crc.hex");
const MPA_REQUEST: &str = include_str!("fixtures/siw-mpa-request.hex");
const TERMINATES: &str = include_str!("fixtures/siw-terminates.hex");

/// Bytes rping moves each way per round.
const PING_SIZE: u32 = 4000;

fn config(crc: bool) -> StartConfig {
    StartConfig { crc, ird: 1, ord: 1, profile: None, timeout: Duration::from_secs(5) }
}

/// The start-up as captured: both machines make the same Request and the same Reply.
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

/// Frames the message of `indication` again. No frame carries the `size` of a Write, so the test
/// passes it, and counts the bytes `written`.
fn frame_again(
    stream: &mut Stream,
    indication: &Indication<'_>,
    size: u32,
    written: &mut u32,
    out: &mut [u8],
) -> usize {
    match indication {
        Indication::Write(write) => {
            let (stag, offset, remaining) = (write.stag, write.tagged_offset, size - *written);
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
        Indication::Terminate(terminate) => stream.frame_terminate(out, terminate).unwrap(),
        other => panic!("neither end does {other:?}"),
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
            let size = frame_again(sender, &indication, PING_SIZE, &mut written, &mut out);
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
fn the_request_of_a_dialling_siw_can_be_accepted() {
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

/// One of several conversations in a fixture.
struct Conversation<'t> {
    name: &'t str,
    segments: Vec<(From, Vec<u8>)>,
}

fn conversations(text: &str) -> Vec<Conversation<'_>> {
    let named = text.split("# siw dials: ").skip(1);
    named
        .map(|conversation| {
            let (name, segments) = conversation.split_once('\n').unwrap();
            Conversation { name, segments: captured(segments) }
        })
        .collect()
}

/// What siw (`Initiator`) and soft say of each misdeed. siw serves a Read of memory that was not
/// registered for it.
const SAID: [(&str, From, Option<TerminateCode>); 16] = {
    use TerminateCode as Code;
    let (siw, soft) = (From::Initiator, From::Responder);
    [
        ("i-write-key", soft, Some(Code::TAGGED_INVALID_STAG)),
        ("r-write-key", siw, Some(Code::TAGGED_INVALID_STAG)),
        ("i-read-key", soft, Some(Code::RDMAP_INVALID_STAG)),
        ("r-read-key", siw, Some(Code::RDMAP_INVALID_STAG)),
        ("i-write-bounds", soft, Some(Code::TAGGED_BOUNDS)),
        ("r-write-bounds", siw, Some(Code::TAGGED_BOUNDS)),
        ("i-read-bounds", soft, Some(Code::RDMAP_BOUNDS)),
        ("r-read-bounds", siw, Some(Code::RDMAP_BOUNDS)),
        ("i-write-right", soft, Some(Code::TAGGED_INVALID_STAG)),
        ("r-write-right", siw, Some(Code::TAGGED_INVALID_STAG)),
        ("i-read-right", soft, Some(Code::RDMAP_ACCESS)),
        ("r-read-right", siw, None),
        ("i-send-long", soft, Some(Code::UNTAGGED_TOO_LONG)),
        ("r-send-long", siw, Some(Code::UNTAGGED_NO_BUFFER)),
        ("i-send-none", soft, Some(Code::UNTAGGED_NO_BUFFER)),
        ("r-send-none", siw, Some(Code::UNTAGGED_NO_BUFFER)),
    ]
};

#[test]
fn captured_terminates_of_siw_and_of_soft_keep_their_reasons() {
    let conversations = conversations(TERMINATES);
    assert_eq!(conversations.len(), SAID.len());
    for (Conversation { name, segments }, (expected, from, code)) in
        conversations.into_iter().zip(SAID)
    {
        assert_eq!(name, expected);
        let now = Instant::now();
        let siw = StartConfig { ird: 8, ord: 8, ..config(false) };
        let attempt = Attempt::CLIENT_SERVER;
        let mut initiator = Initiator::new(siw, attempt, name.as_bytes(), now).unwrap();
        assert_eq!(initiator.poll_transmit().as_ref(), Some(&segments[0].1));
        let mut responder = Responder::new(StartConfig::default(), now).unwrap();
        responder.handle_bytes(&segments[0].1);
        let host = responder.accept(&[]).unwrap();
        assert_eq!(responder.poll_transmit().as_ref(), Some(&segments[1].1));
        initiator.handle_bytes(&segments[1].1);
        let guest = initiator.outcome().unwrap().unwrap();
        assert_eq!((guest.crc, host.crc, host.ird, host.ord), (true, true, 8, 8));
        let (mut guest, mut host) = (Stream::new(&guest, 1448), Stream::new(&host, 65_495));
        let mut said = None;
        for (sender_end, bytes) in &segments[2..] {
            let (sender, receiver) = match sender_end {
                From::Initiator => (&mut guest, &mut host),
                From::Responder => (&mut host, &mut guest),
            };
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let received = receiver.receive(rest).unwrap();
                let Received::Frame { consumed, indication } = received else {
                    panic!("captured segments hold whole frames: {received:?}");
                };
                let (frame, behind) = rest.split_at(consumed);
                rest = behind;
                if let Indication::Terminate(terminate) = &indication {
                    assert_eq!(said.replace((*sender_end, terminate.code)), None, "{name}");
                    assert!(rest.is_empty(), "nothing follows a Terminate");
                    if *sender_end == From::Initiator {
                        // siw writes the bits in an order of its own, which this crate only reads.
                        continue;
                    }
                }
                let mut out = [0; 1500];
                // Every misdeed that is a Write has 64 bytes.
                let size = frame_again(sender, &indication, 64, &mut 0, &mut out);
                assert_eq!(out[..size], *frame, "{name}");
            }
        }
        assert_eq!(said, code.map(|code| (from, code)), "{name}");
    }
}
