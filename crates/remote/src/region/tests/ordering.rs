//! An operation behind a commit, such as the store of a published pointer, does not happen without
//! that commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rdma::PeerOperations;

use super::peer::{Ask, Peer};
use super::silent::impatient;
use super::{Region, RegionError, is_push};

const POINTER: u64 = u64::from_le_bytes(*b"pointer!");

/// A region whose peer answers these operations, over a push connection.
fn pushed(peer: &Arc<Peer>, operations: PeerOperations) -> Region {
    *peer.operations.lock().unwrap() = operations;
    let region = peer.region();
    assert!(is_push(&region), "{}", region.path());
    region
}

fn all_are_over(region: &Region) -> bool {
    region.pending.iter().all(|pending| pending.outcome.is_some())
}

#[test]
fn a_store_waits_for_commits_that_the_peer_does_not_order() {
    for operations in [
        PeerOperations::empty(),
        PeerOperations::FLUSH | PeerOperations::VERIFY,
        PeerOperations::ATOMIC_WRITE | PeerOperations::VERIFY,
    ] {
        let peer = Peer::start();
        let mut region = pushed(&peer, operations);
        region.submit_write_commit(0, &[1; 64]).unwrap();
        region.submit_write_commit(64, &[2; 64]).unwrap();
        assert!(!region.orders_atomic_writes());
        region.atomic_write(128, POINTER).unwrap();
        assert!(all_are_over(&region), "{operations:?}");
        region.commit(128, 8).unwrap();
        assert_eq!(peer.bytes(128, 8), b"pointer!");
        region.finish(&mut []).unwrap();
        region.finish(&mut []).unwrap();
        assert!(is_push(&region), "{}", region.path());
    }
}

#[test]
fn a_store_is_posted_behind_a_commit_that_the_peer_orders() {
    let peer = Peer::start();
    let mut region = pushed(&peer, PeerOperations::all());
    assert!(region.orders_atomic_writes());
    peer.ask(Ask::FallSilent);
    region.submit_write_commit(0, &[1; 64]).unwrap();
    region.atomic_write(64, POINTER).unwrap();
    assert!(!all_are_over(&region));
}

#[test]
fn a_write_behind_an_atomic_write_of_the_same_bytes_stays_though_a_read_is_open() {
    let peer = Peer::with_region(4096..4096 + (1 << 21));
    let mut region = pushed(&peer, PeerOperations::all());
    for round in 0..20_u8 {
        // Its answer fills the peer's transmit buffer, so that the store waits behind it.
        let read = region.submit_read(1 << 20, 1 << 20).unwrap();
        region.atomic_write(0, POINTER).unwrap();
        region.write(0, &[round; 8]).unwrap();
        region.commit(0, 8).unwrap();
        assert_eq!(peer.bytes(0, 8), [round; 8], "round {round}");
        // A write beside the word waits for nothing.
        region.atomic_write(0, POINTER).unwrap();
        region.write(8, &[round; 8]).unwrap();
        let mut bytes = vec![0; 1 << 20];
        assert_eq!(region.finish(&mut bytes).unwrap().ticket, read);
    }
    assert!(is_push(&region), "{}", region.path());
}

#[test]
fn a_peer_without_flush_stores_no_pointer_behind_a_failed_commit() {
    let peer = Peer::start();
    peer.ask(Ask::AnnounceNothing);
    let mut region = pushed(&peer, PeerOperations::all());
    region.submit_write_commit(0, &[1; 64]).unwrap();
    peer.flushes_fail.store(true, Ordering::SeqCst);
    let stored = region.atomic_write(64, POINTER);
    assert!(matches!(stored, Err(RegionError::Server(_))), "{stored:?}");
    assert_eq!(peer.bytes(64, 8), [0; 8]);
    assert!(matches!(region.finish(&mut []), Err(RegionError::Broken)));
}

#[test]
fn no_operation_follows_a_commit_that_failed_in_a_recall() {
    let peer = Peer::start();
    let mut region = impatient(&peer);
    peer.ask(Ask::FallSilent);
    region.submit_write_commit(0, &[1; 64]).unwrap();
    // The first flush ends the replay of the writes, the second is the commit.
    peer.failing_flush.store(2, Ordering::SeqCst);
    peer.recall();
    assert!(matches!(region.write(64, &[2; 8]), Err(RegionError::Broken)));
    assert_eq!(peer.bytes(64, 8), [0; 8]);
    assert!(matches!(region.finish(&mut []), Err(RegionError::Server(_))));
    assert_eq!(region.outstanding(), 0);
}

#[test]
fn an_operation_with_a_reported_failure_is_not_outstanding() {
    let peer = Peer::start();
    let mut region = impatient(&peer);
    peer.ask(Ask::FallSilent);
    region.submit_write_commit(0, &[1; 64]).unwrap();
    peer.smb_fails.store(true, Ordering::SeqCst);
    assert!(matches!(region.commit(0, 64), Err(RegionError::Server(_))));
    assert_eq!(region.outstanding(), 1);
    assert!(matches!(region.finish(&mut []), Err(RegionError::Broken)));
    assert!(matches!(region.finish(&mut []), Err(RegionError::NothingOutstanding)));
}

#[test]
fn a_word_that_wraps_in_the_ring_is_replayed_in_one_request() {
    let peer = Peer::start();
    let mut region = peer.region_with(|settings| settings.unconfirmed_bytes = 4096);
    region.write_commit(0, &[1; 4092]).unwrap();
    peer.ask(Ask::FallSilent);
    region.atomic_write(4096, POINTER).unwrap();
    region.retire(super::FallbackReason::Silent).unwrap();
    assert_eq!(peer.smb_writes.load(Ordering::SeqCst), 1);
    assert_eq!(peer.bytes(4096, 8), b"pointer!");
}

#[test]
fn an_empty_commit_at_the_end_of_a_region_reads_nothing_beyond_it() {
    let peer = Peer::start();
    peer.ask(Ask::AnnounceNothing);
    let mut region = pushed(&peer, PeerOperations::all());
    region.commit(region.len(), 0).unwrap();
    region.write_commit(0, &[1; 8]).unwrap();
    assert!(is_push(&region), "{}", region.path());
}
