//! Commits of a file in which nothing can be made durable, or not as much as the caller asked for.
#![expect(clippy::single_range_in_vec_init, reason = "a list of one range is what is meant")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pmem::DurabilityClass;

use super::peer::{Ask, Peer};
use super::{Region, RegionError, is_push};
use crate::region::Promise;

/// A server of memory that makes no commit.
fn forgetful() -> Arc<Peer> {
    let file = pmem::anonymous_with(1 << 20, pmem::OpenOptions::default()).unwrap();
    file.prepare(0, 1 << 20).unwrap();
    Peer::serving(file, 4096..4096 + 65536)
}

fn says(peer: &Peer, is_emulated: bool) {
    *peer.promise.lock().unwrap() = Promise { class: DurabilityClass::Volatile, is_emulated };
}

fn refuses(commit: Result<(), RegionError>) {
    let class = DurabilityClass::Volatile;
    assert!(
        matches!(&commit, Err(RegionError::CommitRefused { class: it }) if *it == class),
        "{commit:?}"
    );
}

fn nothing_follows(region: &mut Region) {
    assert!(matches!(region.atomic_write(64, 7), Err(RegionError::Broken)), "a pointer to it");
    assert!(matches!(region.commit(0, 8), Err(RegionError::Broken)));
}

#[test]
fn a_commit_of_memory_fails_in_push_mode_and_by_messages() {
    let peer = forgetful();
    says(&peer, false);
    let mut region = peer.region();
    assert!(is_push(&region), "{}", region.path());
    refuses(region.write_commit(0, &[1; 8]));
    nothing_follows(&mut region);
    let mut region = peer.region();
    peer.ask(Ask::CutConnections);
    region.write(0, &[2; 8]).unwrap();
    region.read(0, &mut [0; 8]).unwrap();
    assert!(!is_push(&region), "{}", region.path());
    assert!(region.path().to_string().contains("commits refused"), "{}", region.path());
    refuses(region.commit(0, 8));
    nothing_follows(&mut region);
}

#[test]
fn a_commit_that_a_server_refuses_against_its_word_fails_and_is_not_repeated() {
    let peer = forgetful();
    let mut region = peer.region();
    region.write(0, &[1; 8]).unwrap();
    region.submit_commit(0, 8).unwrap();
    region.submit_read(0, 8).unwrap();
    refuses(region.finish(&mut []).map(drop));
    assert!(matches!(region.finish(&mut [0; 8]), Err(RegionError::Broken)));
    assert_eq!(peer.smb_writes.load(Ordering::SeqCst), 0);
    assert_eq!(region.lost(), [0..8]);
    nothing_follows(&mut region);
}

#[test]
fn writes_of_memory_without_a_commit_stay_in_push_mode() {
    let peer = forgetful();
    says(&peer, false);
    let mut region = peer.region_with(|settings| settings.unconfirmed_bytes = 8192);
    for round in 1..100_u8 {
        region.write(u64::from(round % 8) * 4096, &[round; 4096]).unwrap();
        // Its bytes are written over behind it.
        region.atomic_write(0, 7).unwrap();
        region.write(0, &[round; 8]).unwrap();
    }
    region.read(0, &mut [0; 8]).unwrap();
    assert!(is_push(&region), "{}", region.path());
    assert_eq!(peer.bytes(0, 8), [99; 8]);
    // The end in good order confirms that all is placed.
    peer.recall();
    region.read(0, &mut [0; 8]).unwrap();
    assert!(!is_push(&region) && !region.is_broken(), "{}", region.path());
    assert_eq!(peer.smb_writes.load(Ordering::SeqCst), 0);
}

#[test]
fn a_commit_that_is_worth_less_than_the_caller_asked_for_is_refused() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.write_commit(0, &[1; 8]).unwrap();
    peer.asks_for_more.store(true, Ordering::SeqCst);
    refuses(region.write_commit(0, &[2; 8]));
    nothing_follows(&mut region);
}
