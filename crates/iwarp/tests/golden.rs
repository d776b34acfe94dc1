//! Frames, byte for byte as the specifications and other implementations have them.

#![cfg(test)]

mod support;

use iwarp::mpa::ReadyKind;
use iwarp::rdmap::{AtomicWriteRequestRepr, FlushRequestRepr, PlacementFlags};
use iwarp::stream::{InboundRequest, SendKind};
use iwarp::{Agreement, Indication, Role, Stream};
use support::{STAG, copy, extended, hex, initiator, responder, take};

fn marked() -> Agreement {
    Agreement { markers: true, ..Agreement::plain(Role::Initiator, 1, 1) }
}

fn send(stream: &mut Stream, len: usize) -> Vec<u8> {
    let mut out = [0xee; 1024];
    let payload = vec![0; len];
    let remaining = u32::try_from(len).unwrap();
    let framed =
        stream.frame_send(&mut out, SendKind::default(), remaining, copy(&payload)).unwrap();
    assert!(framed.last);
    out[..framed.size].to_vec()
}

#[test]
fn rfc_5044_figure_5_is_the_first_frame_with_markers() {
    let expected = hex(&format!(
        "00000000 002a 4143 00000000 00000000 00000001 00000000 {} 52239983",
        "00".repeat(24)
    ));
    assert_eq!(send(&mut Stream::new(&marked(), 1460), 24), expected);
}

#[test]
fn rfc_5044_figure_6_is_the_second_frame_with_a_marker_inside() {
    let mut stream = Stream::new(&marked(), 1460);
    assert_eq!(send(&mut stream, 464).len(), 492);
    let expected = hex(&format!(
        "002a 4143 00000000 00000000 00000002 00000000 00000014 {} 84925898",
        "00".repeat(24)
    ));
    assert_eq!(send(&mut stream, 24), expected);
}

#[test]
fn a_frame_without_markers_matches_rfc_5044_figure_5() {
    let expected =
        hex(&format!("002a 4143 00000000 00000000 00000001 00000000 {} b7243ec3", "00".repeat(24)));
    let mut stream = Stream::new(&Agreement::plain(Role::Initiator, 1, 1), 1460);
    assert_eq!(send(&mut stream, 24), expected);
}

const READY_WRITE: &str = "000e c140 00000001 0000000000000000 ebd34c5f";
const FLUSH_REQUEST: &str = "0026 414c 00000000 00000001 00000001 00000000 \
    00abcd00 00001000 0000000000001000 00000001 4a486c09";
const FLUSH_RESPONSE: &str = "0012 414d 00000000 00000003 00000001 00000000 58c70fec";
const ATOMIC_WRITE_REQUEST: &str = "002a 4150 00000000 00000001 00000002 00000000 \
    00abcd00 00000008 0000000000001000 0102030405060708 803d40da";
const ATOMIC_WRITE_RESPONSE: &str = "0012 4151 00000000 00000003 00000002 00000000 fe17adc6";

#[test]
fn an_empty_ready_write_matches_its_golden_bytes() {
    let agreement =
        Agreement { ready: Some(ReadyKind::Write), ..Agreement::plain(Role::Initiator, 1, 1) };
    let mut out = [0; 64];
    let size = Stream::new(&agreement, 1460).frame_ready(&mut out).unwrap();
    assert_eq!(out[..size], hex(READY_WRITE));
    let mut peer = Stream::new(&Agreement { role: Role::Responder, ..agreement }, 1460);
    assert!(!peer.is_ready());
    assert_eq!(take(&mut peer, &hex(READY_WRITE)), Indication::Ready);
    assert!(peer.is_ready());
}

const FLUSH: FlushRequestRepr = FlushRequestRepr {
    stag: STAG,
    length: 4096,
    tagged_offset: 0x1000,
    flags: PlacementFlags::PERSISTENCE,
};
const ATOMIC_WRITE: AtomicWriteRequestRepr =
    AtomicWriteRequestRepr { stag: STAG, tagged_offset: 0x1000, data: 0x0102_0304_0506_0708 };

#[test]
fn flush_and_atomic_write_with_answers_match_their_golden_bytes() {
    let mut asking = initiator(&extended(Role::Initiator));
    let mut out = [0; 64];
    let size = asking.frame_flush_request(&mut out, &FLUSH).unwrap();
    assert_eq!(out[..size], hex(FLUSH_REQUEST));
    let size = asking.frame_atomic_write_request(&mut out, &ATOMIC_WRITE).unwrap();
    assert_eq!(out[..size], hex(ATOMIC_WRITE_REQUEST));
    assert_eq!(asking.outstanding(), 2);

    let mut answering = responder(&extended(Role::Responder));
    let request = hex(FLUSH_REQUEST);
    assert_eq!(take(&mut answering, &request), Indication::FlushRequest(FLUSH));
    let request = hex(ATOMIC_WRITE_REQUEST);
    assert_eq!(take(&mut answering, &request), Indication::AtomicWriteRequest(ATOMIC_WRITE));
    assert_eq!(answering.next_request(), Some(&InboundRequest::Flush));
    let size = answering.frame_flush_response(&mut out).unwrap();
    assert_eq!(out[..size], hex(FLUSH_RESPONSE));
    let size = answering.frame_atomic_write_response(&mut out).unwrap();
    assert_eq!(out[..size], hex(ATOMIC_WRITE_RESPONSE));
    assert_eq!(answering.unanswered(), 0);

    assert_eq!(take(&mut asking, &hex(FLUSH_RESPONSE)), Indication::FlushResponse);
    assert_eq!(take(&mut asking, &hex(ATOMIC_WRITE_RESPONSE)), Indication::AtomicWriteResponse);
    assert_eq!(asking.outstanding(), 0);
}
