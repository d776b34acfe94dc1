//! Uncommitted bytes at the loss of the lease, and bytes written over SMB beside a mapping.
#![expect(clippy::single_range_in_vec_init, reason = "a list of one range is what is meant")]

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::peer::{Ask, Peer};
use super::{Region, RegionError, is_push};

/// Waits until the written bytes are in the file.
fn until_placed(region: &mut Region) {
    region.read(0, &mut [0]).unwrap();
}

#[test]
fn uncommitted_bytes_are_not_written_over_those_of_the_next_holder() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.write(0, &[1; 8]).unwrap();
    region.write_commit(100, &[2; 8]).unwrap();
    until_placed(&mut region);
    peer.take_the_lease();
    peer.another_writes(0, &[3; 8]);
    assert!(matches!(region.write_commit(200, &[4; 8]), Err(RegionError::Broken)));
    assert_eq!(peer.bytes(0, 8), [3; 8]);
    assert_eq!(peer.smb_writes.load(Ordering::SeqCst), 0);
    assert_eq!(region.lost(), [0..8]);
    assert!(matches!(region.read(0, &mut [0; 8]), Err(RegionError::Broken)));
}

#[test]
fn unanswered_operations_end_when_the_lease_is_lost() {
    let peer = Peer::start();
    let mut region = peer.region();
    until_placed(&mut region);
    peer.take_the_lease();
    peer.ask(Ask::FallSilent);
    // The operations are posted before the owner learns of the recall.
    region.recall.grant(region.channel.as_ref().unwrap().waker());
    region.submit_write_commit(8, &[1; 8]).unwrap();
    region.submit_read(0, 8).unwrap();
    region.retire(super::FallbackReason::Silent).unwrap_err();
    assert!(matches!(region.finish(&mut [0; 8]), Err(RegionError::Broken)));
    assert!(matches!(region.finish(&mut [0; 8]), Err(RegionError::Broken)));
    assert_eq!(region.lost(), [8..16]);
}

#[test]
fn a_fully_committed_region_outlives_its_lease() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.write_commit(0, &[1; 8]).unwrap();
    peer.take_the_lease();
    peer.another_writes(0, &[3; 8]);
    region.write_commit(8, &[2; 8]).unwrap();
    assert_eq!(peer.bytes(0, 8), [3; 8]);
    assert_eq!(peer.bytes(8, 8), [2; 8]);
    assert!(region.lost().is_empty());
}

#[test]
fn a_region_that_ends_with_push_mode_writes_nothing_behind_a_recall() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.end_with_push();
    region.write_commit(0, &[1; 8]).unwrap();
    peer.take_the_lease();
    peer.another_writes(0, &[3; 8]);
    for _ in 0..2 {
        assert!(matches!(region.write(0, &[2; 8]), Err(RegionError::PushEnded)));
        assert!(matches!(region.commit(0, 8), Err(RegionError::PushEnded)));
        assert!(matches!(region.read(0, &mut [0; 8]), Err(RegionError::PushEnded)));
        // It would be mapped again by now, and be in push mode.
        region.map_again = Some(Instant::now());
    }
    assert_eq!(peer.bytes(0, 8), [3; 8]);
    assert_eq!(peer.smb_writes.load(Ordering::SeqCst), 0);
}

#[test]
fn a_region_that_ends_with_push_mode_ends_what_a_lost_connection_left_open() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.end_with_push();
    peer.ask(Ask::FallSilent);
    region.submit_write_commit(0, &[1; 8]).unwrap();
    region.retire(super::FallbackReason::Silent).unwrap();
    region.finish(&mut []).unwrap();
    assert_eq!(peer.bytes(0, 8), [1; 8]);
    assert!(matches!(region.write_commit(0, &[2; 8]), Err(RegionError::PushEnded)));
    assert_eq!(peer.bytes(0, 8), [1; 8]);
}

#[test]
fn a_replay_ends_when_the_lease_ends() {
    let peer = Peer::start();
    let mut region = peer.region();
    for slot in 0..4 {
        region.write(slot * 100, &[1; 8]).unwrap();
    }
    peer.lease_goes_after.store(3, Ordering::SeqCst);
    region.retire(super::FallbackReason::Silent).unwrap_err();
    assert_eq!(peer.smb_writes.load(Ordering::SeqCst), 2);
    assert_eq!(region.lost(), [0..8, 100..108, 200..208, 300..308]);
}

#[test]
fn lost_ranges_are_reported_to_async_callers() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.write(40, &[1; 2]).unwrap();
    until_placed(&mut region);
    peer.take_the_lease();
    region.commit(0, 64).unwrap_err();
    let region = region.into_async();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(region.lost()).unwrap(), [40..42]);
}

#[test]
fn a_commit_after_a_new_mapping_covers_bytes_written_over_smb() {
    let peer = Peer::start();
    let mut region = peer.region();
    *peer.cache.lock().unwrap() = Some(Vec::new());
    peer.recall();
    region.write(0, &[1; 8]).unwrap();
    assert!(!is_push(&region), "{}", region.path());
    region.map_again = Some(Instant::now());
    region.commit(0, 8).unwrap();
    assert!(is_push(&region), "{}", region.path());
    assert_eq!(peer.bytes(0, 8), [1; 8]);
}

#[test]
fn a_commit_fails_if_the_flush_before_its_mapping_failed() {
    let peer = Peer::start();
    let mut region = peer.region();
    peer.recall();
    region.write(100, &[9; 8]).unwrap();
    region.write(0, &[1; 8]).unwrap();
    peer.flushes_fail.store(true, Ordering::SeqCst);
    region.map_again = Some(Instant::now());
    assert!(matches!(region.commit(0, 8), Err(RegionError::Broken)));
    assert_eq!(region.lost(), [0..108]);
    peer.flushes_fail.store(false, Ordering::SeqCst);
    assert!(matches!(region.commit(0, 8), Err(RegionError::Broken)), "nothing is tried again");
}

#[test]
fn flushed_bytes_are_not_flushed_again_for_a_mapping() {
    let peer = Peer::start();
    let mut region = peer.region();
    peer.recall();
    region.write_commit(0, &[1; 8]).unwrap();
    peer.flushes_fail.store(true, Ordering::SeqCst);
    region.map_again = Some(Instant::now());
    region.write_commit(0, &[2; 8]).unwrap();
    assert!(is_push(&region), "{}", region.path());
}
