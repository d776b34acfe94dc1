//! A stream refuses every frame that it may not send, and stays unchanged.

#![cfg(test)]

mod support;

use iwarp::mpa::ReadyKind;
use iwarp::rdmap::{FlushRequestRepr, Opcode, PlacementFlags, ReadRequestRepr, VerifyRequestRepr};
use iwarp::stream::SendKind;
use iwarp::{Agreement, FrameError, Indication, Role, Stag, Stream};
use support::{STAG, copy, extended, initiator, refused, responder, take, terminate, untagged};

const SEND: [u8; 2] = [0x41, 0x43];

#[test]
fn a_responder_is_silent_until_it_has_validated_a_frame() {
    let mut stream = Stream::new(&Agreement::plain(Role::Responder, 1, 1), 1460);
    let mut out = [0; 128];
    assert!(!stream.is_ready());
    assert_eq!(stream.frame_kick(&mut out), Err(FrameError::NotReady));
    let mut bad = untagged(SEND, (0, 1, 0), b"x");
    bad[20] ^= 1;
    let error = refused(&mut stream, &bad);
    let last_words = terminate(&stream, error).unwrap();
    assert_eq!(stream.frame_terminate(&mut out, &last_words), Err(FrameError::NotReady));

    let mut stream = Stream::new(&Agreement::plain(Role::Responder, 1, 1), 1460);
    take(&mut stream, &untagged(SEND, (0, 1, 0), b"x"));
    let error = refused(&mut stream, &untagged(SEND, (0, 1, 0), b"x"));
    let last_words = terminate(&stream, error).unwrap();
    assert!(stream.frame_terminate(&mut out, &last_words).is_ok(), "it has seen one good frame");
}

#[test]
fn a_frame_that_may_not_be_sent_changes_nothing() {
    let mut stream = initiator(&Agreement::plain(Role::Initiator, 1, 1));
    let mut out = [0; 2048];
    let flush = FlushRequestRepr {
        stag: STAG,
        length: 8,
        tagged_offset: 0,
        flags: PlacementFlags::PERSISTENCE,
    };
    let not_offered = Err(FrameError::NotOffered(Opcode::FLUSH_REQUEST));
    assert_eq!(stream.frame_flush_request(&mut out, &flush), not_offered);
    assert_eq!(
        stream.frame_flush_response(&mut out),
        Err(FrameError::NotDue(Opcode::FLUSH_RESPONSE))
    );
    assert_eq!(stream.frame_ready(&mut out), Err(FrameError::ReadyNotDue));
    let read = ReadRequestRepr {
        sink_stag: Stag(1),
        sink_offset: 0,
        size: 8,
        source_stag: STAG,
        source_offset: 0,
    };
    let need = 52;
    assert_eq!(stream.frame_read_request(&mut out[..51], &read), Err(FrameError::NoRoom { need }));
    assert_eq!(stream.ord_available(), 1);
    stream.frame_read_request(&mut out, &read).unwrap();
    assert_eq!(
        stream.frame_read_request(&mut out, &read),
        Err(FrameError::OrdExhausted { ord: 1 })
    );
    let wraps = ReadRequestRepr { source_offset: u64::MAX, ..read };
    assert_eq!(stream.frame_read_request(&mut out, &wraps), Err(FrameError::OffsetWrap));
    let verify = VerifyRequestRepr { stag: STAG, length: 1, tagged_offset: 0, expected: &[0; 65] };
    let mut able = initiator(&extended(Role::Initiator));
    assert_eq!(
        able.frame_verify_request(&mut out, &verify),
        Err(FrameError::HashTooLong { got: 65 })
    );
}

#[test]
fn a_message_begins_only_after_the_last_of_its_model_ended() {
    let mut stream = initiator(&Agreement::plain(Role::Initiator, 1, 1));
    let mut out = [0; 2048];
    let payload = [0; 3000];
    let framed = stream.frame_write(&mut out, STAG, 0, 3000, copy(&payload)).unwrap();
    assert_eq!((framed.payload, framed.last), (1440, false));
    let open = Err(FrameError::MessageOpen);
    assert_eq!(stream.frame_write(&mut out, STAG, 1440, 1559, copy(&payload)), open);
    assert_eq!(stream.frame_kick(&mut out), Err(FrameError::MessageOpen));
    let kind = SendKind::default();
    let framed = stream.frame_send(&mut out, kind, 3000, copy(&payload)).unwrap();
    assert_eq!((framed.payload, framed.last), (1436, false));
    assert_eq!(stream.frame_send(&mut out, kind, 3000, copy(&payload)), open);
    assert_eq!(stream.frame_immediate(&mut out, 0, false), Err(FrameError::MessageOpen));
    let framed = stream.frame_write(&mut out, STAG, 1440, 1560, copy(&payload)).unwrap();
    assert_eq!((framed.payload, framed.last), (1440, false));
    let framed = stream.frame_send(&mut out, kind, 1564, copy(&payload)).unwrap();
    assert_eq!((framed.payload, framed.last), (1436, false));
}

#[test]
fn a_closure_that_cannot_provide_the_payload_leaves_the_stream_unchanged() {
    let mut stream = initiator(&Agreement::plain(Role::Initiator, 1, 1));
    let mut out = [0; 256];
    let failed = stream.frame_write(&mut out, STAG, 0, 8, |_| Err("would block"));
    assert_eq!(failed, Err(FrameError::Fill("would block")));
    let mut peer = responder(&Agreement::plain(Role::Responder, 1, 1));
    let framed = stream.frame_write(&mut out, STAG, 0, 8, copy(&[7; 8])).unwrap();
    let Indication::Write(write) = take(&mut peer, &out[..framed.size]) else { panic!() };
    assert_eq!(write.payload, [7; 8]);
}

#[test]
fn a_ready_message_without_room_in_the_buffer_stays_due() {
    let agreement =
        Agreement { ready: Some(ReadyKind::Read), ..Agreement::plain(Role::Initiator, 1, 1) };
    let mut stream = Stream::new(&agreement, 1460);
    assert_eq!(stream.frame_ready(&mut [0; 8]), Err(FrameError::NoRoom { need: 52 }));
    assert!(!stream.is_ready());
    assert_eq!(stream.frame_ready(&mut [0; 64]), Ok(52));
    assert!(stream.is_ready());
    assert_eq!(stream.frame_ready(&mut [0; 64]), Err(FrameError::ReadyNotDue));
}

#[test]
fn the_longest_frame_fills_a_segment_of_tcp_with_its_markers() {
    for (markers, mulpdu) in [(false, 1454), (true, 1442)] {
        let agreement = Agreement { markers, ..Agreement::plain(Role::Initiator, 1, 1) };
        let stream = Stream::new(&agreement, 1460);
        // RFC 5044 §4.5: EMSS - (6 + 4 * Ceiling(EMSS / 512) + EMSS mod 4), without markers EMSS - (6 + EMSS mod 4).
        assert_eq!((stream.mulpdu(), stream.frame_size_max()), (mulpdu, 1460), "{markers}");
    }
}

#[test]
fn an_initiator_that_owes_no_ready_message_may_send_at_once() {
    assert!(Stream::new(&Agreement::plain(Role::Initiator, 1, 1), 1460).is_ready());
}

#[test]
fn each_request_under_way_takes_one_of_those_agreed() {
    let mut stream = initiator(&Agreement::plain(Role::Initiator, 3, 3));
    let read = ReadRequestRepr {
        sink_stag: Stag(1),
        sink_offset: 0,
        size: 8,
        source_stag: STAG,
        source_offset: 0,
    };
    for (available, outstanding) in [(3, 0), (2, 1), (1, 2)] {
        assert_eq!((stream.ord_available(), stream.outstanding()), (available, outstanding));
        stream.frame_read_request(&mut [0; 64], &read).unwrap();
    }
    assert_eq!((stream.ord_available(), stream.outstanding()), (0, 3));
}
