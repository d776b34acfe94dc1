//! What a stream takes as an answer, what an announced profile allows, and what a Terminate echoes.

#![cfg(test)]

mod support;

use iwarp::mpa::{Profile, ProfileFlags, ReadyKind};
use iwarp::rdmap::{
    AtomicWriteRequestRepr, FlushRequestRepr, Opcode, PlacementFlags, ReadRequestRepr,
    TerminateCode, VerifyRequestRepr,
};
use iwarp::{Agreement, FrameError, Indication, Protection, Role, Stag, Stream, StreamError};
use support::{
    STAG, copy, extended, frame, initiator, refused, responder, tagged, take, terminate, untagged,
};

const SEND: [u8; 2] = [0x41, 0x43];
const SEND_SOLICITED: [u8; 2] = [0x41, 0x45];
const HASH_MAX: usize = 64;

fn ready(kind: ReadyKind) -> Stream {
    let agreement = Agreement { ready: Some(kind), ..Agreement::plain(Role::Responder, 2, 2) };
    Stream::new(&agreement, 1460)
}

fn is_send(indication: &Indication<'_>) -> bool {
    matches!(indication, Indication::Send(_))
}

#[test]
fn only_the_first_empty_send_is_the_ready_message_and_only_where_it_was_agreed() {
    let mut stream = ready(ReadyKind::Send);
    assert_eq!(take(&mut stream, &untagged(SEND, (0, 1, 0), &[])), Indication::Ready);
    assert!(is_send(&take(&mut stream, &untagged(SEND, (0, 2, 0), &[]))), "the second");
    assert!(is_send(&take(&mut ready(ReadyKind::Send), &untagged(SEND, (0, 1, 0), b"x"))));
    let solicited = untagged(SEND_SOLICITED, (0, 1, 0), &[]);
    assert!(is_send(&take(&mut ready(ReadyKind::Send), &solicited)));
    assert!(is_send(&take(&mut ready(ReadyKind::Write), &untagged(SEND, (0, 1, 0), &[]))));
}

#[test]
fn only_an_initiator_sends_a_ready_message() {
    let mut stream = ready(ReadyKind::Write);
    assert_eq!(stream.frame_ready(&mut [0; 128]), Err(FrameError::ReadyNotDue));
}

/// An end whose peer, or which itself, has announced nothing but Flush.
fn flush_alone(role: Role) -> Agreement {
    let profile = Some(Profile::new(ProfileFlags::FLUSH, 0, &[]).unwrap());
    Agreement { ours: profile, theirs: profile, ..Agreement::plain(role, 16, 16) }
}

#[test]
fn what_a_profile_does_not_announce_is_no_opcode_of_the_stream() {
    for (control, queue) in [(0x4e, 1), (0x4f, 3), (0x50, 1), (0x51, 3)] {
        let mut stream = responder(&flush_alone(Role::Responder));
        let opcode = Opcode(control & 0x1f);
        let error = refused(&mut stream, &untagged([0x41, control], (queue, 1, 0), &[0; 24]));
        assert_eq!(error, StreamError::PeerOpcode(opcode), "{opcode}");
    }
}

#[test]
fn the_reserved_word_of_a_request_of_the_rfcs_is_ignored() {
    let mut body = [0; ReadRequestRepr::LEN];
    let request = ReadRequestRepr {
        sink_stag: Stag(1),
        sink_offset: 0,
        size: 8,
        source_stag: STAG,
        source_offset: 0,
    };
    request.emit(&mut body);
    let mut ulpdu = vec![0x41, 0x41, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    ulpdu.extend_from_slice(&body);
    let mut stream = responder(&extended(Role::Responder));
    assert_eq!(take(&mut stream, &frame(&ulpdu)), Indication::ReadRequest(request));
}

fn flushing() -> Stream {
    let mut stream = initiator(&extended(Role::Initiator));
    let flush = FlushRequestRepr {
        stag: STAG,
        length: 8,
        tagged_offset: 0,
        flags: PlacementFlags::PERSISTENCE,
    };
    stream.frame_flush_request(&mut [0; 128], &flush).unwrap();
    stream
}

fn storing() -> Stream {
    let mut stream = initiator(&extended(Role::Initiator));
    let request = AtomicWriteRequestRepr { stag: STAG, tagged_offset: 0, data: 1 };
    stream.frame_atomic_write_request(&mut [0; 128], &request).unwrap();
    stream
}

#[test]
fn answers_without_content_are_refused_with_any() {
    for (control, mut stream) in [(0x4d, flushing()), (0x51, storing())] {
        let opcode = Opcode(control & 0x1f);
        let error = refused(&mut stream, &untagged([0x41, control], (3, 1, 0), &[0]));
        assert_eq!(error, StreamError::PeerLength { opcode, need: 0, got: 1 });
    }
    let answer = untagged([0x41, 0x51], (3, 1, 0), &[]);
    assert_eq!(take(&mut storing(), &answer), Indication::AtomicWriteResponse);
}

fn verifying(expected: &[u8]) -> (Stream, Vec<u8>) {
    let mut stream = initiator(&extended(Role::Initiator));
    let request = VerifyRequestRepr { stag: STAG, length: 1, tagged_offset: 0, expected };
    let mut out = vec![0; 256];
    let size = stream.frame_verify_request(&mut out, &request).unwrap();
    out.truncate(size);
    (stream, out)
}

#[test]
fn a_verify_carries_the_expected_hash_to_the_other_end() {
    for len in [0, 4, HASH_MAX] {
        let hash = vec![0xab; len];
        let mut peer = responder(&extended(Role::Responder));
        let framed = verifying(&hash).1;
        let Indication::VerifyRequest(request) = take(&mut peer, &framed) else { panic!() };
        assert_eq!(request.expected, hash);
    }
}

#[test]
fn a_hash_may_have_64_bytes_and_not_one_more() {
    let longest = untagged([0x41, 0x4f], (3, 1, 0), &[7; HASH_MAX]);
    let taken = take(&mut verifying(&[]).0, &longest);
    assert_eq!(taken, Indication::VerifyResponse(&[7; HASH_MAX]));
    for got in [HASH_MAX + 1, HASH_MAX + 2] {
        let longer = untagged([0x41, 0x4f], (3, 1, 0), &vec![7; got]);
        let error = refused(&mut verifying(&[]).0, &longer);
        let opcode = Opcode::VERIFY_RESPONSE;
        assert_eq!(error, StreamError::PeerLength { opcode, need: HASH_MAX, got });
    }

    let mut peer = responder(&extended(Role::Responder));
    take(&mut peer, &verifying(&[]).1);
    for got in [HASH_MAX + 1, HASH_MAX + 2] {
        let refused = peer.frame_verify_response(&mut [0; 256], &vec![7; got]);
        assert_eq!(refused, Err(FrameError::HashTooLong { got }));
    }
    peer.frame_verify_response(&mut [0; 256], &[7; HASH_MAX]).unwrap();
}

#[test]
fn a_refused_tagged_segment_is_named_by_ddp_and_echoed() {
    let mut stream = responder(&Agreement::plain(Role::Responder, 2, 2));
    take(&mut stream, &tagged([0xc1, 0x40], 5, 64, b"eight by"));
    let sent = stream.terminate(Protection::PeerStag, stream.segment_context()).unwrap();
    assert_eq!(sent.code, TerminateCode::TAGGED_INVALID_STAG);
    assert_eq!(sent.segment.unwrap().length, 22, "RFC 5040 figure 10: with the DDP header");

    let mut stream = responder(&Agreement::plain(Role::Responder, 2, 2));
    let error = refused(&mut stream, &untagged(SEND, (0, 7, 0), b"x"));
    assert_eq!(terminate(&stream, error).unwrap().segment.unwrap().length, 19);
}

#[test]
fn the_echo_of_a_read_that_is_not_the_oldest_names_all_of_it() {
    let mut stream = responder(&Agreement::plain(Role::Responder, 2, 2));
    stream.set_emss(0);
    let request = |sink_stag, size| {
        let mut body = [0; ReadRequestRepr::LEN];
        let (sink_stag, source_stag) = (Stag(sink_stag), STAG);
        ReadRequestRepr { sink_stag, sink_offset: 0, size, source_stag, source_offset: 0 }
            .emit(&mut body);
        body
    };
    take(&mut stream, &untagged([0x41, 0x41], (1, 1, 0), &request(1, 500)));
    take(&mut stream, &untagged([0x41, 0x41], (1, 2, 0), &request(2, 400)));
    let newer = stream.segment_context();
    assert!(!stream.frame_read_response(&mut [0; 256], copy(&[0; 256])).unwrap().last);
    let echoed = stream.terminate(Protection::PeerStag, newer).unwrap().read_request.unwrap();
    assert_eq!((echoed.sink_stag, echoed.sink_offset, echoed.size), (Stag(2), 0, 400));
}
