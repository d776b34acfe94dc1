//! Push payloads against the byte maps of docs/push-mode.md, typed by hand from there.

#![cfg(test)]

mod support;

use proptest::collection::vec;
use proptest::prelude::*;
use smb::ParseError;
use smb::create::{CreateRequest, CreateRequestContext, CreateResponse, CreateResponseContext};
use smb::push::{
    CREATE_CONTEXT_NAME, Capabilities, CommitRange, CommitRequest, CommitResponse, Durability,
    Generation, MapRequest, MapResponse, PushAccept, PushConnect, PushConnectionId, PushGrant,
    PushProof, PushRefusal, PushRequest, PushResponse, PushToken, QueryRequest, QueryResponse,
    Recall, RecallReason, RecallRequest, RecallResponse, Refusal, RegionEntry, RegionState,
    RegistrationId, Rights, UnmapRequest, WriteUnderLease,
};
use smb::{Command, NtStatus};
use smbdirect::{BufferDescriptor, Token};
use support::{Body, captured_pdus, parse, request};

fn emitted(emit: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    emit(&mut out);
    out
}

fn refuses_truncations<T: std::fmt::Debug>(
    bytes: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, ParseError>,
) {
    for len in 0..bytes.len() {
        assert!(parse(&bytes[..len]).is_err(), "{len} of {}", bytes.len());
    }
}

fn grant() -> PushGrant {
    PushGrant {
        capabilities: Capabilities::FLUSH | Capabilities::ATOMIC_WRITE,
        durability: Durability::STORAGE,
        store_granularity: 4096,
        regions_max: 8,
        region_length_max: 1 << 40,
        rights: Rights::READ | Rights::WRITE | Rights::FLUSH,
        token_lifetime_ms: 10_000,
        token: PushToken::new([0xab; 32]),
        recall_grace_ms: 5000,
        addresses: vec!["192.0.2.1:5445".parse().unwrap(), "[2001:db8::1]:5445".parse().unwrap()],
        same_host: None,
    }
}

#[test]
fn the_create_context_request_is_24_bytes() {
    let golden = b"\x01\0\x18\0\x07\0\0\0\x02\0\0\0\x01\0\0\0\x04\0\0\0\0\0\0\0";
    let asks = PushRequest {
        rights: Rights::READ | Rights::WRITE | Rights::FLUSH,
        durability: Durability::STORAGE,
        accept_emulated: true,
        regions_max: 4,
    };
    assert_eq!(PushRequest::parse(golden), Ok(asks));
    assert_eq!(emitted(|out| asks.emit(out)), golden);
    refuses_truncations(golden, PushRequest::parse);
}

#[test]
fn a_grant_carries_token_and_addresses() {
    let mut golden = b"\x01\0\x50\0\0\0\0\0\x05\0\0\0\x02\0\0\0\0\x10\0\0\x08\0\0\0".to_vec();
    golden.extend(b"\0\0\0\0\0\x01\0\0\x07\0\0\0\x10\x27\0\0");
    golden.extend([0xab; 32]);
    golden.extend(b"\x88\x13\0\0\x02\0\x50\0");
    golden.extend(b"\x02\0\x45\x15\xc0\0\x02\x01\0\0\0\0\0\0\0\0\0\0\0\0");
    golden.extend(b"\x17\0\x45\x15\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01");
    let granted = PushResponse::Granted(grant());
    assert_eq!(PushResponse::parse(&golden).unwrap(), granted);
    assert_eq!(emitted(|out| granted.emit(out)), golden);
    refuses_truncations(&golden, PushResponse::parse);
    assert!(format!("{granted:?}").contains("PushToken(..)"), "the token does not print");
}

#[test]
fn a_grant_carries_the_name_of_a_listener_of_the_same_host() {
    let same_host = Some("[fd00:102:304::5]:49152".parse().unwrap());
    let granted = PushResponse::Granted(PushGrant { same_host, ..grant() });
    let bytes = emitted(|out| granted.emit(out));
    assert_eq!(bytes[76..78], [3, 0]);
    assert_eq!(bytes[80..100], *b"\x01\0\x00\xc0\xfd\0\x01\x02\x03\x04\0\0\0\0\0\0\0\0\0\x05");
    assert_eq!(PushResponse::parse(&bytes), Ok(granted));
}

#[test]
fn a_proof_is_good_for_one_address_and_shows_no_byte_of_its_token() {
    let granted = PushGrant { same_host: Some("[fd00::5]:5445".parse().unwrap()), ..grant() };
    let shown: Vec<_> = granted.places().into_iter().map(|at| granted.token.proof(at)).collect();
    let [same_host, four, six] = shown.as_slice() else { panic!("{shown:?}") };
    assert!(same_host != four && four != six && same_host != six);
    let as_sent = |proof: &PushProof| emitted(|out| PushConnect { proof: proof.clone() }.emit(out));
    // HMAC-SHA256 of 00000001, the label, 0, the entry of the address, and 00000100 (hex), by Python's hmac.
    let golden = "c5fdb0d623288549f875657b227057ed8fb047141229e6612224a019e6fea54e";
    let hex: String = as_sent(four)[16..].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, golden);
    let is_of_the_token = |pair: &[u8]| pair == [0xab, 0xab];
    assert!(!as_sent(four).windows(2).any(is_of_the_token));
}

#[test]
fn an_address_family_of_the_future_is_skipped() {
    let mut bytes = emitted(|out| PushResponse::Granted(grant()).emit(out));
    bytes[80] = 0x99;
    let Ok(PushResponse::Granted(found)) = PushResponse::parse(&bytes) else { panic!() };
    assert_eq!(found.addresses, grant().addresses[1..]);
}

#[test]
fn a_refusal_names_its_reason_and_nothing_else() {
    let refused = PushResponse::Refused(Refusal::GUEST.into());
    let bytes = emitted(|out| refused.emit(out));
    assert_eq!((bytes.len(), bytes[4]), (80, 3));
    assert!(bytes[5..].iter().all(|&byte| byte == 0));
    assert_eq!(PushResponse::parse(&bytes), Ok(refused));
}

#[test]
fn a_refusal_of_a_file_names_the_class_of_its_flushes() {
    let (reason, durability) = (Refusal::DURABILITY, Durability::VOLATILE);
    let refused = PushResponse::Refused(PushRefusal { reason, durability, is_emulated: true });
    let bytes = emitted(|out| refused.emit(out));
    assert_eq!((bytes.len(), bytes[4], bytes[8], bytes[12]), (80, 8, 0x10, 1));
    assert!(bytes[13..].iter().all(|&byte| byte == 0));
    assert_eq!(PushResponse::parse(&bytes), Ok(refused));
}

#[test]
fn the_private_data_of_both_directions_fits_96_bytes() {
    let connect = PushConnect { proof: PushProof::new([7; 32]) };
    let mut golden = b"LFPC\x01\0\x30\0\0\0\0\0\0\0\0\0".to_vec();
    golden.extend([7; 32]);
    assert_eq!(emitted(|out| connect.emit(out)), golden);
    assert_eq!(PushConnect::parse(&golden).unwrap(), connect);
    refuses_truncations(&golden, PushConnect::parse);

    let accept = PushAccept {
        status: NtStatus::ACCESS_DENIED,
        push_connection_id: PushConnectionId(0x0102),
    };
    let golden = b"LFPR\x01\0\x18\0\x22\0\0\xc0\0\0\0\0\x02\x01\0\0\0\0\0\0";
    assert_eq!(emitted(|out| accept.emit(out)), golden);
    assert_eq!(PushAccept::parse(golden).unwrap(), accept);
    refuses_truncations(golden, PushAccept::parse);
}

fn map_response() -> MapResponse {
    let piece = |offset, length| BufferDescriptor { offset, token: Token(0xdead_beef), length };
    MapResponse {
        rights: Rights::WRITE,
        registration: RegistrationId(1),
        generation: Generation(2),
        file_offset: 4096,
        length: 0x1_0000_0000,
        durability: Durability::PMEM,
        store_granularity: 64,
        capabilities: Capabilities::FLUSH,
        descriptors: vec![piece(0, 0xffff_f000), piece(0xffff_f000, 0x1000)],
    }
}

#[test]
fn a_map_and_its_answer_lie_where_the_document_says() {
    let map = MapRequest {
        rights: Rights::WRITE | Rights::FLUSH,
        push_connection_id: PushConnectionId(5),
        file_offset: 0x1000,
        length: 0x2000,
    };
    let golden = b"\x01\0\x28\0\x06\0\0\0\x05\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\
        \0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    assert_eq!(emitted(|out| map.emit(out)), golden);
    assert_eq!(MapRequest::parse(golden).unwrap(), map);
    refuses_truncations(golden, MapRequest::parse);

    let response = map_response();
    let golden = b"\x01\0\x38\0\x02\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\
        \0\x10\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x03\0\0\0\x40\0\0\0\x01\0\0\0\x02\0\x38\0\
        \0\0\0\0\0\0\0\0\xef\xbe\xad\xde\0\xf0\xff\xff\
        \0\xf0\xff\xff\0\0\0\0\xef\xbe\xad\xde\0\x10\0\0";
    assert_eq!(emitted(|out| response.emit(out)), golden);
    assert_eq!(MapResponse::parse(golden).unwrap(), response);
    refuses_truncations(golden, MapResponse::parse);
}

#[test]
fn descriptors_that_do_not_add_up_to_the_length_are_refused() {
    let response = MapResponse { length: 1, ..map_response() };
    MapResponse::parse(&emitted(|out| response.emit(out))).unwrap_err();
    let response = MapResponse { descriptors: vec![], length: 0, ..map_response() };
    MapResponse::parse(&emitted(|out| response.emit(out))).unwrap_err();
}

#[test]
fn commit_unmap_query_and_recall_round_trip_and_refuse_truncations() {
    let (registration, generation) = (RegistrationId(9), Generation(3));
    let range = CommitRange { file_offset: 8192, length: 64 };
    let commit = CommitRequest { registration, generation, ranges: vec![range; 2] };
    let bytes = emitted(|out| commit.emit(out));
    assert_eq!((bytes.len(), CommitRequest::parse(&bytes)), (64, Ok(commit)));
    refuses_truncations(&bytes, CommitRequest::parse);

    let done = CommitResponse { durability: Durability::VOLATILE, emulated: true };
    let golden = b"\x01\0\x10\0\x01\0\0\0\x01\0\0\0\0\0\0\0";
    assert_eq!(emitted(|out| done.emit(out)), golden);
    assert_eq!(CommitResponse::parse(golden), Ok(done));

    let unmap = UnmapRequest { registration, generation };
    let golden = b"\x01\0\x18\0\0\0\0\0\x09\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0";
    assert_eq!(emitted(|out| unmap.emit(out)), golden);
    assert_eq!(UnmapRequest::parse(golden), Ok(unmap));

    let again = WriteUnderLease { file_offset: 4096, epoch: 0x0203, data: b"bytes" };
    let golden = b"\x01\0\x18\0\0\0\0\0\0\x10\0\0\0\0\0\0\x05\0\0\0\x03\x02\0\0bytes";
    assert_eq!(emitted(|out| again.emit(out)), golden);
    assert_eq!(WriteUnderLease::parse(golden), Ok(again));
    refuses_truncations(golden, |bytes| WriteUnderLease::parse(bytes).map(drop));

    let entry = RegionEntry {
        registration,
        generation,
        file_offset: 1,
        length: 2,
        rights: Rights::READ,
        state: RegionState::RECALLING,
        durability: Durability::PMEM,
        reason: RecallReason::UNLINK,
        push_connection_id: PushConnectionId(4),
    };
    let response = QueryResponse { regions: vec![entry; 3] };
    let bytes = emitted(|out| response.emit(out));
    assert_eq!((bytes.len(), QueryResponse::parse(&bytes)), (16 + 3 * 56, Ok(response)));
    refuses_truncations(&bytes, QueryResponse::parse);

    let reason = RecallReason::TRUNCATION;
    let recall = Recall { registration, generation, reason, grace_ms: 5000 };
    let response = RecallResponse { recalls: vec![recall; 2] };
    let bytes = emitted(|out| response.emit(out));
    assert_eq!((bytes.len(), RecallResponse::parse(&bytes)), (16 + 2 * 24, Ok(response)));
    refuses_truncations(&bytes, RecallResponse::parse);

    let empty = b"\x01\0\x08\0\0\0\0\0";
    assert_eq!(emitted(|out| QueryRequest.emit(out)), empty);
    assert_eq!(emitted(|out| RecallRequest.emit(out)), empty);
}

#[test]
fn a_newer_sender_may_append_to_the_fixed_part_and_to_entries() {
    let bytes = b"\x01\0\x20\0\0\0\0\0\x09\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0new data";
    let unmap = UnmapRequest { registration: RegistrationId(9), generation: Generation(3) };
    assert_eq!(UnmapRequest::parse(bytes), Ok(unmap));

    // Entries of 32 bytes instead of 24, behind a fixed part of 24 instead of 16.
    let mut bytes = b"\x01\0\x18\0\0\0\0\0\x01\0\0\0\x18\0\x20\0new data".to_vec();
    bytes.extend(b"\x09\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0new data");
    let recalls = RecallResponse::parse(&bytes).unwrap().recalls;
    assert_eq!(recalls.len(), 1);
    assert_eq!(recalls[0].reason, RecallReason::SHUTDOWN);
}

#[test]
fn another_version_is_told_from_garbage() {
    let bytes = b"\x02\0\x18\0\0\0\0\0\x09\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0";
    assert_eq!(UnmapRequest::parse(bytes), Err(ParseError::PeerPushVersion(2)));
    let bytes = b"\x01\0\x17\0\0\0\0\0\x09\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0";
    assert!(matches!(UnmapRequest::parse(bytes), Err(ParseError::PeerValue { .. })));
}

#[test]
fn counts_above_their_limits_are_refused_before_anything_is_allocated() {
    let mut bytes = emitted(|out| RecallResponse { recalls: vec![] }.emit(out));
    bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(RecallResponse::parse(&bytes), Err(ParseError::PeerTooMany { .. })));
    let (registration, generation) = (RegistrationId(1), Generation(1));
    let ranges = vec![CommitRange { file_offset: 0, length: 1 }; 257];
    let commit = CommitRequest { registration, generation, ranges };
    let bytes = emitted(|out| commit.emit(out));
    assert!(matches!(CommitRequest::parse(&bytes), Err(ParseError::PeerTooMany { .. })));
}

#[test]
fn the_context_travels_in_create_both_ways_and_a_future_version_does_not_fail_it() {
    let pdus = captured_pdus();
    let bodies: Vec<_> = pdus.iter().map(|pdu| parse(pdu).unwrap().1).collect();
    let create = bodies.iter().find_map(|body| match body {
        Body::CreateRequest(create) => Some(create.clone()),
        _ => None,
    });
    let mut create = create.unwrap();
    let asks = PushRequest {
        rights: Rights::WRITE,
        durability: Durability::ANY,
        accept_emulated: false,
        regions_max: 1,
    };
    for context in [CreateRequestContext::Push(asks), CreateRequestContext::PushUnknownVersion(9)] {
        assert_eq!(context.name(), CREATE_CONTEXT_NAME.0);
        create.contexts = vec![context];
        let mut pdu = request(Command::CREATE);
        create.emit(&mut pdu);
        assert_eq!(CreateRequest::parse(&pdu).unwrap(), create);
    }

    let response = bodies.iter().find_map(|body| match body {
        Body::CreateResponse(response) => Some(response.clone()),
        _ => None,
    });
    let mut response = response.unwrap();
    response.contexts = vec![CreateResponseContext::Push(PushResponse::Granted(grant()))];
    let mut pdu = request(Command::CREATE);
    response.emit(&mut pdu);
    assert_eq!(CreateResponse::parse(&pdu).unwrap(), response);
}

proptest! {
    #[test]
    fn random_payloads_never_panic(mut bytes in vec(any::<u8>(), 4..200), size in 0u8..100) {
        bytes[..4].copy_from_slice(&[1, 0, size, 0]);
        let _ = PushRequest::parse(&bytes);
        let _ = PushResponse::parse(&bytes);
        let _ = PushConnect::parse(&bytes);
        let _ = MapRequest::parse(&bytes);
        let _ = MapResponse::parse(&bytes);
        let _ = CommitRequest::parse(&bytes);
        let _ = QueryResponse::parse(&bytes);
        let _ = RecallResponse::parse(&bytes);
    }
}
