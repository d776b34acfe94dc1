//! Garbled bytes: no parser panics, and every message that parses emits the same bytes.

#![cfg(test)]

mod support;

use iwarp::ddp::{TaggedRepr, UntaggedRepr};
use iwarp::mpa::{EnhancedRepr, Profile, StartKind, StartRepr};
use iwarp::rdmap::{
    AtomicRequestRepr, AtomicResponseRepr, AtomicWriteRequestRepr, FlushRequestRepr,
    PlacementFlags, ReadRequestRepr, TerminateOrder, TerminateRepr, VerifyRequestRepr,
};
use iwarp::{Agreement, Received, Role, Stag, Stream};
use proptest::prelude::*;
use support::{STAG, extended, frame, hex, initiator, responder};

/// A stream that waits for one answer of each kind.
fn waiting(first: usize) -> Stream {
    let mut stream = initiator(&extended(Role::Initiator));
    let mut out = [0; 256];
    let read = ReadRequestRepr {
        sink_stag: Stag(1),
        sink_offset: 0,
        size: 16,
        source_stag: STAG,
        source_offset: 0,
    };
    let flags = PlacementFlags::PERSISTENCE;
    let flush = FlushRequestRepr { stag: STAG, length: 8, tagged_offset: 0, flags };
    let verify = VerifyRequestRepr { stag: STAG, length: 8, tagged_offset: 0, expected: &[] };
    for turn in 0..3 {
        match (turn + first) % 3 {
            0 => stream.frame_read_request(&mut out, &read).unwrap(),
            1 => stream.frame_flush_request(&mut out, &flush).unwrap(),
            _ => stream.frame_verify_request(&mut out, &verify).unwrap(),
        };
    }
    stream
}

/// Feeds bytes until they are used up or refused, and asks for the Terminate.
fn feed(stream: &mut Stream, mut bytes: &[u8]) {
    loop {
        match stream.receive(bytes) {
            Ok(Received::Frame { consumed, .. }) => bytes = &bytes[consumed..],
            Ok(Received::Incomplete { .. }) => return,
            Err(error) => {
                if let Some(terminate) = stream.terminate(error, stream.segment_context()) {
                    let mut out = [0; 256];
                    stream.frame_terminate(&mut out, &terminate).unwrap();
                }
                return;
            }
        }
    }
}

/// One frame of each kind an initiator sends.
fn conversation() -> Vec<u8> {
    let lines = [
        "0022 4143 00000000 00000000 00000001 00000000 55d1b92b30a0c300c10000000fa00000",
        "002e 4141 00000000 00000001 00000001 00000000 \
         00001234 0000000000000000 00000fa0 c300c100 000055d1b92b30a0",
        "0016 8140 00000001 0000000000001000 0102030405060708",
        "0016 c140 00000001 0000000000001008 0102030405060708",
        "0026 414c 00000000 00000001 00000002 00000000 \
         00abcd00 00001000 0000000000001000 00000001",
        "002a 4150 00000000 00000001 00000003 00000000 \
         00abcd00 00000008 0000000000001000 0102030405060708",
        "001a 4149 00000000 00000000 00000002 00000000 0102030405060708",
        "0018 4147 00000000 00000002 00000001 00000000 0100e000 0000",
    ];
    let mut bytes = Vec::new();
    for line in lines {
        let line = hex(line);
        let len = usize::from(u16::from_be_bytes([line[0], line[1]]));
        let mut ulpdu = line[2..].to_vec();
        ulpdu.resize(len, 0);
        bytes.extend(frame(&ulpdu));
    }
    bytes
}

#[test]
fn no_changed_byte_of_a_conversation_makes_a_stream_panic() {
    let golden = conversation();
    let agreement = Agreement { crc: false, ..extended(Role::Responder) };
    for index in 0..golden.len() {
        for value in 0..=u8::MAX {
            let mut bytes = golden.clone();
            bytes[index] = value;
            feed(&mut responder(&agreement), &bytes);
        }
    }
}

#[test]
fn the_unchanged_conversation_is_accepted() {
    let mut stream = responder(&extended(Role::Responder));
    let mut bytes = &conversation()[..];
    while let Received::Frame { consumed, .. } = stream.receive(bytes).unwrap() {
        bytes = &bytes[consumed..];
    }
    assert!(bytes.is_empty());
    assert_eq!(stream.unanswered(), 3);
}

/// Segments that are valid enough to pass the first checks.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let control = prop_oneof![Just(0x41_u8), Just(0x01), Just(0xc1), Just(0x81), any::<u8>()];
    let opcode = prop_oneof![9 => 0x40_u8..0x52, 1 => any::<u8>()];
    let word = || prop_oneof![0_u32..4, any::<u32>()];
    let body = proptest::collection::vec(any::<u8>(), 0..80);
    (control, opcode, [word(), word(), word(), word()], body).prop_map(
        |(control, opcode, words, body)| {
            let mut ulpdu = vec![control, opcode];
            words.iter().for_each(|word| ulpdu.extend_from_slice(&word.to_be_bytes()));
            ulpdu.extend(body);
            ulpdu
        },
    )
}

proptest! {
    #[test]
    fn no_sequence_of_segments_makes_a_stream_panic(
        segments in proptest::collection::vec(plausible(), 1..12), first in 0_usize..3,
    ) {
        let bytes: Vec<u8> = segments.iter().flat_map(|segment| frame(segment)).collect();
        feed(&mut responder(&extended(Role::Responder)), &bytes);
        feed(&mut waiting(first), &bytes);
    }

    #[test]
    fn no_bytes_make_a_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let plain = Agreement { crc: false, ..extended(Role::Responder) };
        feed(&mut responder(&plain), &bytes);
        let _ = StartRepr::parse(StartKind::Request, &bytes);
        let _ = Profile::parse(&bytes);
        let _ = TerminateRepr::parse(&bytes, TerminateOrder::BeforeFirstFrame);
    }

    #[test]
    fn every_message_that_parses_emits_the_same_bytes(bytes in any::<[u8; 64]>()) {
        macro_rules! round_trip {
            ($repr:ty, $reserved:expr) => {
                let mut clean = bytes;
                $reserved(&mut clean);
                let input = &clean[..<$repr>::LEN];
                if let Ok(repr) = <$repr>::parse(input) {
                    let mut out = [0; <$repr>::LEN];
                    repr.emit(&mut out);
                    prop_assert_eq!(&out[..], input);
                }
            };
        }
        round_trip!(ReadRequestRepr, |_: &mut [u8; 64]| {});
        round_trip!(FlushRequestRepr, |_: &mut [u8; 64]| {});
        round_trip!(AtomicResponseRepr, |_: &mut [u8; 64]| {});
        round_trip!(AtomicWriteRequestRepr, |bytes: &mut [u8; 64]| {
            bytes[4..8].copy_from_slice(&[0, 0, 0, 8]);
        });
        // A FetchAdd has no compare value.
        round_trip!(AtomicRequestRepr, |bytes: &mut [u8; 64]| {
            let code = bytes[3] & 2;
            bytes[..4].copy_from_slice(&[0, 0, 0, code]);
            if bytes[3] == 0 {
                bytes[36..44].fill(0);
                bytes[44..52].fill(0xff);
            }
        });
        let mut clean = bytes;
        clean[0] = (clean[0] & 0xc0) | 1;
        if let Ok((repr, _)) = TaggedRepr::parse(&clean) {
            let mut out = [0; TaggedRepr::LEN];
            repr.emit(&mut out);
            prop_assert_eq!(&out[..], &clean[..TaggedRepr::LEN]);
        }
        if let Ok((repr, _)) = UntaggedRepr::parse(&clean) {
            let mut out = [0; UntaggedRepr::LEN];
            repr.emit(&mut out);
            prop_assert_eq!(&out[..], &clean[..UntaggedRepr::LEN]);
        }
        let (word, _) = EnhancedRepr::parse(&bytes).unwrap();
        let again = EnhancedRepr::parse(&word.emit()).unwrap().0;
        prop_assert_eq!(word, again);
    }

    #[test]
    fn a_profile_parses_as_it_was_emitted(
        ulp in proptest::collection::vec(any::<u8>(), 0..160),
        flags in any::<u16>(), fpdu_max in any::<u32>(), ids in proptest::collection::vec(any::<u8>(), 0..8),
    ) {
        let ids: Vec<_> = ids.into_iter().map(iwarp::mpa::HashId).collect();
        let flags = iwarp::mpa::ProfileFlags::from_bits_retain(flags);
        let profile = Profile::new(flags, fpdu_max, &ids).unwrap();
        let mut out = Vec::new();
        profile.emit(&ulp, &mut out).unwrap();
        prop_assert_eq!(Profile::parse(&out), Ok((Some(profile), &ulp[..])));
    }
}
