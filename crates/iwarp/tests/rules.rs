//! A stream refuses a peer that breaks a rule with the right reason and the right Terminate.

#![cfg(test)]

mod support;

use iwarp::ddp::QueueNumber;
use iwarp::rdmap::{
    AtomicOperation, AtomicRequestRepr, FlushRequestRepr, Opcode, PlacementFlags, ReadRequestRepr,
    TerminateCode, TerminateRepr,
};
use iwarp::{
    Agreement, FrameError, Indication, Protection, Received, Role, Stag, Stream, StreamError,
};
use support::{
    STAG, copy, extended, frame, initiator, refused, responder, tagged, take, terminate, untagged,
};

const SEND: [u8; 2] = [0x41, 0x43];
const SEND_MORE: [u8; 2] = [0x01, 0x43];
const WRITE: [u8; 2] = [0xc1, 0x40];
const WRITE_MORE: [u8; 2] = [0x81, 0x40];
const READ_RESPONSE: [u8; 2] = [0xc1, 0x42];
const READ_RESPONSE_MORE: [u8; 2] = [0x81, 0x42];

/// Lets a plain stream take each frame of `before`, and returns its refusal of `last`.
fn after(before: &[&[u8]], last: &[u8]) -> (StreamError, Option<TerminateRepr>) {
    let mut stream = responder(&Agreement::plain(Role::Responder, 2, 2));
    for bytes in before {
        take(&mut stream, bytes);
    }
    let error = refused(&mut stream, last);
    assert_eq!(refused(&mut stream, last), StreamError::Ended, "the first error is final");
    (error, terminate(&stream, error))
}

/// The error and the code alone.
fn code_after(before: &[&[u8]], last: &[u8]) -> (StreamError, TerminateCode) {
    let (error, terminate) = after(before, last);
    (error, terminate.unwrap().code)
}

fn read_request(source_offset: u64, size: u32) -> Vec<u8> {
    let mut body = [0; ReadRequestRepr::LEN];
    let (sink_stag, source_stag) = (Stag(1), STAG);
    ReadRequestRepr { sink_stag, sink_offset: 0, size, source_stag, source_offset }.emit(&mut body);
    body.to_vec()
}

#[test]
fn a_bad_crc_is_found_before_anything_else_and_echoes_nothing() {
    let mut bytes = untagged(SEND, (9, 9, 9), b"garbage");
    bytes[30] ^= 1;
    let (error, terminate) = after(&[], &bytes);
    assert!(matches!(error, StreamError::PeerCrc { .. }));
    let expected =
        TerminateRepr { code: TerminateCode::MPA_CRC, segment: None, read_request: None };
    assert_eq!(terminate, Some(expected));
}

#[test]
fn a_frame_without_a_whole_header_is_refused() {
    let truncated =
        |need, got| (StreamError::PeerTruncated { need, got }, TerminateCode::MPA_LENGTH);
    assert_eq!(code_after(&[], &frame(&[])), truncated(18, 0));
    assert_eq!(code_after(&[], &frame(&[0x41; 17])), truncated(18, 17));
    assert_eq!(code_after(&[], &frame(&[0xc1; 13])), truncated(14, 13));
}

#[test]
fn foreign_versions_are_refused() {
    let error = StreamError::PeerDdpVersion { version: 2, tagged: true };
    let bytes = tagged([0xc2, 0x40], 1, 0, &[]);
    assert_eq!(code_after(&[], &bytes), (error, TerminateCode::TAGGED_VERSION));
    let error = StreamError::PeerDdpVersion { version: 0, tagged: false };
    let bytes = untagged([0x40, 0x43], (0, 1, 0), &[]);
    assert_eq!(code_after(&[], &bytes), (error, TerminateCode::UNTAGGED_VERSION));
    let bytes = untagged([0x41, 0x03], (0, 1, 0), &[]);
    let expected = (StreamError::PeerRdmapVersion(0), TerminateCode::RDMAP_VERSION);
    assert_eq!(code_after(&[], &bytes), expected);
}

#[test]
fn opcodes_without_an_agreement_are_refused() {
    for control in 0x4c..0x50 {
        let opcode = Opcode(control & 0x0f);
        let bytes = untagged([0x41, control], (1, 1, 0), &[0; 20]);
        let expected = (StreamError::PeerOpcode(opcode), TerminateCode::RDMAP_OPCODE);
        assert_eq!(code_after(&[], &bytes), expected);
    }
    // With four bits an Atomic Write Request reads as a Write in the wrong model.
    let bytes = untagged([0x41, 0x50], (1, 1, 0), &[0; 24]);
    let error = StreamError::PeerModel { opcode: Opcode::WRITE, tagged: false };
    assert_eq!(code_after(&[], &bytes), (error, TerminateCode::RDMAP_OPCODE));
    let mut stream = responder(&extended(Role::Responder));
    let bytes = untagged([0x41, 0x52], (1, 1, 0), &[]);
    assert_eq!(refused(&mut stream, &bytes), StreamError::PeerOpcode(Opcode(0x12)));
}

#[test]
fn the_model_must_match_the_opcode() {
    let error = StreamError::PeerModel { opcode: Opcode::SEND, tagged: true };
    let bytes = tagged([0xc1, 0x43], 1, 0, &[]);
    assert_eq!(code_after(&[], &bytes), (error, TerminateCode::RDMAP_OPCODE));
    let error = StreamError::PeerModel { opcode: Opcode::READ_RESPONSE, tagged: false };
    let bytes = untagged([0x41, 0x42], (0, 1, 0), &[]);
    assert_eq!(code_after(&[], &bytes), (error, TerminateCode::RDMAP_OPCODE));
}

#[test]
fn the_queue_must_match_the_opcode() {
    for (queue, control) in [(1, 0x43), (0, 0x41), (4, 0x43), (0, 0x47), (1, 0x4b)] {
        let opcode = Opcode(control & 0x0f);
        let error = StreamError::PeerQueue { opcode, queue: QueueNumber(queue) };
        let bytes = untagged([0x41, control], (queue, 1, 0), &[]);
        assert_eq!(code_after(&[], &bytes), (error, TerminateCode::UNTAGGED_QUEUE));
    }
}

#[test]
fn message_numbers_and_offsets_out_of_order_are_refused() {
    let msn = |expected, got| {
        let queue = QueueNumber::SEND;
        (StreamError::PeerMsn { queue, expected, got }, TerminateCode::UNTAGGED_MSN)
    };
    assert_eq!(code_after(&[], &untagged(SEND, (0, 2, 0), b"x")), msn(1, 2));
    let first = untagged(SEND, (0, 1, 0), b"x");
    assert_eq!(code_after(&[&first], &first), msn(2, 1));
    let offset = |expected, got| {
        (StreamError::PeerMessageOffset { expected, got }, TerminateCode::UNTAGGED_OFFSET)
    };
    assert_eq!(code_after(&[], &untagged(SEND, (0, 1, 4), b"x")), offset(0, 4));
    let more = untagged(SEND_MORE, (0, 1, 0), b"four");
    assert_eq!(code_after(&[&more], &untagged(SEND, (0, 1, 5), b"x")), offset(4, 5));
    assert_eq!(code_after(&[&more], &untagged(SEND, (0, 1, 3), b"x")), offset(4, 3));
}

#[test]
fn untagged_messages_may_interleave_with_tagged_messages_only() {
    let more = untagged(SEND_MORE, (0, 1, 0), b"four");
    let error = StreamError::PeerInterleaved { opcode: Opcode::READ_REQUEST };
    let bytes = untagged([0x41, 0x41], (1, 1, 0), &read_request(0, 8));
    assert_eq!(code_after(&[&more], &bytes), (error, TerminateCode::RDMAP_OPCODE));
    let error = StreamError::PeerMessageChanged;
    let bytes = untagged([0x41, 0x45], (0, 1, 4), b"x");
    assert_eq!(code_after(&[&more], &bytes), (error, TerminateCode::RDMAP_OPERATION));
    let mut stream = responder(&Agreement::plain(Role::Responder, 2, 2));
    take(&mut stream, &more);
    take(&mut stream, &tagged(WRITE, 7, 0, b"between"));
    take(&mut stream, &untagged(SEND, (0, 1, 4), b"x"));
}

#[test]
fn segments_of_a_write_must_name_one_region_and_be_contiguous() {
    let more = tagged(WRITE_MORE, 7, 100, b"four");
    let cases = [
        (
            tagged(WRITE, 8, 104, b"x"),
            StreamError::PeerMessageChanged,
            TerminateCode::RDMAP_OPERATION,
        ),
        (
            tagged(WRITE, 7, 105, b"x"),
            StreamError::PeerTaggedOffset { expected: 104, got: 105 },
            TerminateCode::TAGGED_BOUNDS,
        ),
        (
            tagged(READ_RESPONSE, 7, 104, b"x"),
            StreamError::PeerInterleaved { opcode: Opcode::READ_RESPONSE },
            TerminateCode::RDMAP_OPCODE,
        ),
        (
            tagged(WRITE_MORE, 7, 104, b""),
            StreamError::PeerEmptySegment { opcode: Opcode::WRITE },
            TerminateCode::RDMAP_OPERATION,
        ),
    ];
    for (bytes, error, code) in cases {
        assert_eq!(code_after(&[&more], &bytes), (error, code));
    }
}

#[test]
fn offsets_that_wrap_are_refused_in_segments_and_in_requests() {
    let error = StreamError::PeerOffsetWrap { tagged: true };
    let bytes = tagged(WRITE, 7, u64::MAX - 2, b"four");
    assert_eq!(code_after(&[], &bytes), (error, TerminateCode::TAGGED_OFFSET_WRAP));
    let error = StreamError::PeerOffsetWrap { tagged: false };
    let bytes = untagged([0x41, 0x41], (1, 1, 0), &read_request(u64::MAX, 2));
    assert_eq!(code_after(&[], &bytes), (error, TerminateCode::RDMAP_OFFSET_WRAP));
}

#[test]
fn an_empty_tagged_message_names_no_memory() {
    let mut stream = responder(&Agreement::plain(Role::Responder, 2, 2));
    let bytes = tagged(WRITE, 0xdead, u64::MAX, &[]);
    let Indication::Write(write) = take(&mut stream, &bytes) else { panic!() };
    assert!(write.payload.is_empty() && write.last);
}

#[test]
fn requests_and_immediates_must_be_one_segment_of_their_length() {
    let error = StreamError::PeerFragmented { opcode: Opcode::READ_REQUEST };
    let bytes = untagged([0x01, 0x41], (1, 1, 0), &read_request(0, 8));
    assert_eq!(code_after(&[], &bytes), (error, TerminateCode::RDMAP_OPERATION));
    for (control, queue, need) in [(0x41, 1, 28), (0x4a, 1, 52), (0x48, 0, 8), (0x49, 0, 8)] {
        for got in [0, need - 1, need + 1] {
            let opcode = Opcode(control & 0x0f);
            let error = StreamError::PeerLength { opcode, need, got };
            let bytes = untagged([0x41, control], (queue, 1, 0), &vec![0; got]);
            assert_eq!(code_after(&[], &bytes), (error, TerminateCode::RDMAP_OPERATION));
        }
    }
}

#[test]
fn more_requests_than_the_agreed_depth_are_refused() {
    let request = |msn| untagged([0x41, 0x41], (1, msn, 0), &read_request(0, 8));
    let (error, terminate) = after(&[&request(1), &request(2)], &request(3));
    assert_eq!(error, StreamError::PeerInboundOverflow { ird: 2 });
    let terminate = terminate.unwrap();
    assert_eq!(terminate.code, TerminateCode::RDMAP_STREAM);
    assert_eq!(terminate.segment.unwrap().length, 46);
    assert_eq!(terminate.read_request, None, "RFC 5040 figure 10: not with operation errors");
}

#[test]
fn a_flush_that_invalidates_a_region_is_refused() {
    let mut ulpdu = vec![0x41, 0x4c, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    ulpdu.extend_from_slice(&[0; 20]);
    let mut stream = responder(&extended(Role::Responder));
    let error = refused(&mut stream, &frame(&ulpdu));
    let expected = StreamError::PeerInvalidate { opcode: Opcode::FLUSH_REQUEST, stag: Stag(9) };
    assert_eq!(error, expected);
}

#[test]
fn an_undefined_atomic_is_refused() {
    let mut body = [0; 52];
    body[3] = 5;
    let bytes = untagged([0x41, 0x4a], (1, 1, 0), &body);
    let expected = (StreamError::PeerAtomicOperation(5), TerminateCode::RDMAP_OPCODE);
    assert_eq!(code_after(&[], &bytes), expected);
}

/// A stream with one Read of eight bytes outstanding, into STag 1 at 100.
fn reading() -> Stream {
    let mut stream = initiator(&extended(Role::Initiator));
    let request = ReadRequestRepr {
        sink_stag: Stag(1),
        sink_offset: 100,
        size: 8,
        source_stag: STAG,
        source_offset: 0,
    };
    stream.frame_read_request(&mut [0; 128], &request).unwrap();
    stream
}

#[test]
fn a_read_response_must_match_its_request() {
    let cases = [
        (
            tagged(READ_RESPONSE, 2, 100, &[0; 8]),
            StreamError::PeerResponseStag { expected: Stag(1), got: Stag(2) },
        ),
        (
            tagged(READ_RESPONSE, 1, 101, &[0; 8]),
            StreamError::PeerTaggedOffset { expected: 100, got: 101 },
        ),
        (
            tagged(READ_RESPONSE, 1, 100, &[0; 9]),
            StreamError::PeerResponseLength { expected: 8, got: 9 },
        ),
        (
            tagged(READ_RESPONSE, 1, 100, &[0; 7]),
            StreamError::PeerResponseLength { expected: 8, got: 7 },
        ),
        (
            tagged(READ_RESPONSE_MORE, 1, 100, &[0; 8]),
            StreamError::PeerResponseLength { expected: 8, got: 8 },
        ),
        (untagged([0x41, 0x4d], (3, 1, 0), &[]), StreamError::PeerResponse(Opcode::FLUSH_RESPONSE)),
    ];
    for (bytes, error) in cases {
        assert_eq!(refused(&mut reading(), &bytes), error);
    }
    let mut stream = reading();
    take(&mut stream, &tagged(READ_RESPONSE_MORE, 1, 100, &[0; 3]));
    take(&mut stream, &tagged(READ_RESPONSE, 1, 103, &[0; 5]));
    assert_eq!(stream.outstanding(), 0);
    let unasked = StreamError::PeerResponse(Opcode::READ_RESPONSE);
    assert_eq!(refused(&mut stream, &tagged(READ_RESPONSE, 1, 100, &[0; 8])), unasked);
}

#[test]
fn responses_follow_request_order_and_number_their_own_queue() {
    let mut stream = reading();
    let flush = FlushRequestRepr {
        stag: STAG,
        length: 8,
        tagged_offset: 0,
        flags: PlacementFlags::PERSISTENCE,
    };
    stream.frame_flush_request(&mut [0; 128], &flush).unwrap();
    let response = untagged([0x41, 0x4d], (3, 1, 0), &[]);
    take(&mut stream, &tagged(READ_RESPONSE, 1, 100, &[0; 8]));
    assert_eq!(take(&mut stream, &response), Indication::FlushResponse);
}

#[test]
fn an_atomic_response_names_its_request() {
    let mut stream = initiator(&extended(Role::Initiator));
    let operation = AtomicOperation::FetchAdd { add: 1, mask: 0 };
    let request = AtomicRequestRepr { operation, request_id: 5, stag: STAG, tagged_offset: 0 };
    stream.frame_atomic_request(&mut [0; 128], &request).unwrap();
    let mut body = [0; 12];
    body[3] = 6;
    let error = refused(&mut stream, &untagged([0x41, 0x4b], (3, 1, 0), &body));
    assert_eq!(error, StreamError::PeerResponseId { expected: 5, got: 6 });
}

#[test]
fn no_frame_follows_a_terminate_in_either_direction() {
    let mut stream = responder(&Agreement::plain(Role::Responder, 2, 2));
    let bytes = untagged([0x41, 0x47], (2, 1, 0), &[0x11, 0, 0, 0]);
    let Indication::Terminate(heard) = take(&mut stream, &bytes) else { panic!() };
    assert_eq!(heard.code, TerminateCode::TAGGED_INVALID_STAG);
    let error = refused(&mut stream, &untagged(SEND, (0, 1, 0), &[]));
    assert_eq!((error, terminate(&stream, error)), (StreamError::PeerAfterTerminate, None));
    assert!(matches!(stream.receive(&[]), Ok(Received::Incomplete { .. })));

    let mut stream = responder(&Agreement::plain(Role::Responder, 2, 2));
    let ours = stream.terminate(Protection::Local, stream.segment_context()).unwrap();
    stream.frame_terminate(&mut [0; 128], &ours).unwrap();
    assert_eq!(stream.frame_kick(&mut [0; 128]), Err(FrameError::Ended));
    assert_eq!(stream.frame_terminate(&mut [0; 128], &ours), Err(FrameError::Ended));
}

#[test]
fn a_terminate_may_cut_a_message_short() {
    let mut stream = responder(&Agreement::plain(Role::Responder, 2, 2));
    take(&mut stream, &untagged(SEND_MORE, (0, 1, 0), b"four"));
    let bytes = untagged([0x41, 0x47], (2, 1, 0), &[0, 0, 0, 0]);
    assert!(matches!(take(&mut stream, &bytes), Indication::Terminate(_)));
}

#[test]
fn a_responder_that_sends_first_is_refused() {
    let mut stream = Stream::new(&Agreement::plain(Role::Initiator, 1, 1), 1460);
    let error = refused(&mut stream, &untagged(SEND, (0, 1, 0), b"x"));
    assert_eq!(error, StreamError::PeerSpokeFirst);
}

#[test]
fn the_echo_of_a_refused_read_names_its_unanswered_part() {
    let mut stream = responder(&Agreement::plain(Role::Responder, 2, 2));
    stream.set_emss(0);
    take(&mut stream, &untagged([0x41, 0x41], (1, 1, 0), &read_request(1000, 500)));
    let context = stream.segment_context();
    let untouched = stream.terminate(Protection::PeerStag, context).unwrap();
    assert_eq!(untouched.code, TerminateCode::RDMAP_INVALID_STAG);
    assert_eq!(untouched.read_request.unwrap().size, 500);
    let framed = stream.frame_read_response(&mut [0; 256], copy(&[0; 256])).unwrap();
    assert_eq!((framed.payload, framed.last), (114, false));
    let echoed = stream.terminate(Protection::PeerBounds, context).unwrap().read_request.unwrap();
    assert_eq!((echoed.sink_offset, echoed.source_offset, echoed.size), (114, 1114, 386));
    // A medium that fails is an operation error: the Terminate echoes no Read Request.
    let failed = stream.terminate(Protection::MediaFailed, context).unwrap();
    assert_eq!((failed.code, failed.read_request), (TerminateCode::RDMAP_STREAM, None));
}
