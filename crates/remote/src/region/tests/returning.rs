//! What a region does without push mode, or without an operation of it, and when it returns.

use std::time::SystemTime;

use basics::{Clock, ManualClock};
use pmem::DurabilityClass;
use rdma::{PeerOperations, PollPolicy};

use super::*;
use crate::region::{MAP_PAUSE_MAX, MAP_PAUSE_MIN, Promise};

#[test]
fn a_region_returns_to_push_mode_after_a_pause_that_grows_while_it_fails() {
    let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH));
    let environment =
        Environment { clock: Clock::given(Arc::clone(&clock) as _), ..Environment::host() };
    let settings = RegionSettings { polling: PollPolicy::Block, ..RegionSettings::default() };
    let peer = Peer::start();
    let mut region = peer.region_in(&environment, settings);
    peer.recall();
    region.write(0, &[1; 8]).unwrap();
    assert_eq!(region.path().reason(), Some(FallbackReason::Recalled));
    let almost = |pause: Duration| pause - Duration::from_nanos(1);
    clock.advance(almost(MAP_PAUSE_MIN));
    region.write(0, &[2; 8]).unwrap();
    assert!(!is_push(&region), "too early");
    // Nobody listens: the attempt fails, and the next one is twice as far away.
    let addresses = std::mem::take(&mut *peer.addresses.lock().unwrap());
    clock.advance(Duration::from_nanos(1));
    region.write(0, &[3; 8]).unwrap();
    assert!(!is_push(&region), "{}", region.path());
    *peer.addresses.lock().unwrap() = addresses;
    clock.advance(almost(2 * MAP_PAUSE_MIN));
    region.write(0, &[4; 8]).unwrap();
    assert!(!is_push(&region), "too early");
    clock.advance(Duration::from_nanos(1));
    region.write_commit(0, &[5; 8]).unwrap();
    assert!(is_push(&region), "{}", region.path());
    assert_eq!(peer.bytes(0, 8), [5; 8]);
}

#[test]
fn the_pauses_between_attempts_have_a_limit() {
    let peer = Peer::start();
    let mut region = peer.region();
    for _ in 0..64 {
        region.map_later();
    }
    let before = Instant::now();
    region.map_later();
    assert!(region.map_again.unwrap() <= Instant::now() + MAP_PAUSE_MAX);
    assert!(region.map_again.unwrap() >= before + MAP_PAUSE_MAX);
}

/// A peer that answers all requests on a region but these.
fn without(operations: PeerOperations) -> (Arc<Peer>, Region) {
    let peer = Peer::with_region(4096..4096 + (3 << 20));
    *peer.operations.lock().unwrap() = PeerOperations::all() - operations;
    let region = peer.region();
    (peer, region)
}

#[test]
fn a_commit_by_messages_names_the_bytes_of_the_file() {
    let (peer, mut region) = without(PeerOperations::FLUSH);
    region.write(100, &[1; 10]).unwrap();
    region.commit(100, 10).unwrap();
    assert!(is_push(&region), "{}", region.path());
    let commits = peer.commits.lock().unwrap();
    assert_eq!((commits.len(), &commits[0]), (1, &(4196..4206)));
}

#[test]
fn a_verify_that_the_peer_does_not_answer_hashes_what_is_read() {
    let (peer, mut region) = without(PeerOperations::VERIFY);
    let bytes: Vec<u8> =
        (0..(2_u32 << 20) + 9).map(|n| n.wrapping_mul(7).to_le_bytes()[1]).collect();
    peer.another_writes(5, &bytes);
    let expected = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes);
    let hash = region.verify(5, u32::try_from(bytes.len()).unwrap()).unwrap();
    assert!(is_push(&region), "{}", region.path());
    assert_eq!(u64::from(hash), expected);
}

#[test]
fn more_reads_than_there_is_staging_memory_for_keep_their_own_bytes() {
    const MIB: u32 = 1 << 20;
    let peer = Peer::with_region(4096..4096 + (3 << 20));
    let mut region = peer.region();
    let places = [0, MIB, 2 * MIB];
    for (place, value) in places.into_iter().zip(1..) {
        peer.another_writes(u64::from(place), &vec![value; 1 << 20]);
    }
    // Each more than the ring has room for beside the others, which are not finished.
    let reads: Vec<u32> = places.into_iter().cycle().take(40).collect();
    for place in &reads {
        region.submit_read(u64::from(*place), MIB).unwrap();
    }
    let mut out = vec![0; 1 << 20];
    for place in &reads {
        assert_eq!(region.finish(&mut out).unwrap().value, u64::from(MIB), "the bytes it has read");
        let value = u8::try_from(place / MIB).unwrap() + 1;
        assert!(out.iter().all(|byte| *byte == value), "of {place}");
    }
    assert!(is_push(&region), "{}", region.path());
}

#[test]
fn a_read_that_was_answered_keeps_its_bytes_when_push_mode_ends() {
    let peer = Peer::start();
    let mut region = peer.region();
    peer.another_writes(100, &[5; 50]);
    region.submit_read(100, 50).unwrap();
    peer.recall();
    region.write(0, &[1; 8]).unwrap();
    assert_eq!(region.path().reason(), Some(FallbackReason::Recalled));
    peer.another_writes(100, &[6; 50]);
    let mut out = [0; 50];
    assert_eq!(region.finish(&mut out).unwrap().value, 50);
    assert_eq!(out, [5; 50], "those of the time of its answer");
}

#[test]
fn a_commit_that_was_answered_succeeds_though_its_region_cannot_be_returned() {
    let peer = Peer::start();
    let mut region = peer.region();
    let commit = region.submit_write_commit(0, &[1; 8]).unwrap();
    peer.recall();
    // One look takes the answer, and then fails to end the mapping.
    peer.smb_fails.store(true, Ordering::SeqCst);
    assert_eq!(region.finish(&mut []).unwrap().ticket, commit);
    assert!(matches!(region.write(0, &[2; 8]), Err(RegionError::Broken)));
    assert!(region.lost().is_empty());
}

#[test]
fn the_path_names_the_class_of_the_server_that_answered_the_unmapping() {
    let other = Promise { class: DurabilityClass::Storage, is_emulated: false };
    let peer = Peer::start();
    let mut region = peer.region();
    *peer.promise_after_unmap.lock().unwrap() = Some(other);
    peer.recall();
    region.write(0, &[1; 8]).unwrap();
    let path = region.path();
    assert!(matches!(path, Path::Messages { promise: Some(now), .. } if *now == other), "{path}");
}

#[test]
fn a_verify_by_messages_begins_with_the_first_byte_of_the_region() {
    let peer = Peer::start();
    let mut region = peer.region();
    peer.another_writes(0, b"the first bytes");
    peer.recall();
    let expected = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, b"the first bytes");
    region.write(100, &[1; 8]).unwrap();
    assert_eq!(region.path().reason(), Some(FallbackReason::Recalled));
    assert_eq!(u64::from(region.verify(0, 15).unwrap()), expected);
}
