//! Regions that share an engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use basics::Environment;
use rdma::{PollPolicy, ProviderChoice};

use super::peer::{Ask, Peer};
use super::{Path, Region, is_push};
use crate::region::{FallbackReason, SharedEngine};

const PATIENCE: Duration = Duration::from_secs(60);

fn engine_of(choice: ProviderChoice) -> SharedEngine {
    SharedEngine::open(choice, PollPolicy::Block, &Environment::host()).unwrap()
}

fn engine() -> SharedEngine {
    engine_of(ProviderChoice::Soft)
}

fn on(shared: &SharedEngine, peer: &Arc<Peer>) -> Region {
    let region = peer.region_with(|settings| settings.shared = Some(shared.clone()));
    assert!(is_push(&region), "{}", region.path());
    region
}

#[test]
fn regions_of_several_servers_are_waited_for_together() {
    let (shared, peers) = (engine(), [Peer::start(), Peer::start(), Peer::start()]);
    let mut regions = peers.each_ref().map(|peer| on(&shared, peer));
    for round in 1..=100_u8 {
        for region in &mut regions {
            region.submit_write_commit(0, &[round; 512]).unwrap();
            region.submit_read(0, 512).unwrap();
        }
        let mut left = 2 * regions.len();
        while left > 0 {
            for region in regions.iter_mut().filter(|region| region.outstanding() > 0) {
                let mut out = [0; 512];
                while region.outstanding() > 0
                    && let Some(finished) = region.try_finish(&mut out).unwrap()
                {
                    left -= 1;
                    assert!(finished.value == 0 || out == [round; 512]);
                }
            }
            if left > 0 {
                shared.wait(PATIENCE);
            }
        }
        assert!(peers.iter().all(|peer| peer.bytes(0, 512) == [round; 512]));
    }
}

#[test]
fn a_region_waits_for_its_own_answer_while_those_of_others_come() {
    let (shared, peers) = (engine(), [Peer::start(), Peer::start()]);
    let [mut busy, mut patient] = peers.each_ref().map(|peer| on(&shared, peer));
    patient.submit_write_commit(0, &[3; 64]).unwrap();
    (0..200_u8).for_each(|round| busy.write_commit(0, &[round; 64]).unwrap());
    // Its answer came while the other one polled.
    assert_eq!(patient.finish(&mut []).unwrap().value, 0);
    assert_eq!(peers[1].bytes(0, 64), [3; 64]);
}

#[test]
fn the_end_of_a_connection_leaves_the_other_regions_of_an_engine_alone() {
    let (shared, peers) = (engine(), [Peer::start(), Peer::start(), Peer::start()]);
    let [mut kept, dropped, mut cut] = peers.each_ref().map(|peer| on(&shared, peer));
    drop(dropped);
    peers[2].ask(Ask::CutConnections);
    kept.write_commit(0, &[1; 64]).unwrap();
    cut.write_commit(0, &[2; 64]).unwrap();
    kept.write_commit(64, &[1; 64]).unwrap();
    assert!(is_push(&kept) && !is_push(&cut));
    assert!(peers[2].smb_writes.load(Ordering::SeqCst) > 0, "replayed by messages");
    // The engine's places are used again.
    let mut next = on(&shared, &peers[1]);
    next.write_commit(0, &[4; 64]).unwrap();
    kept.write_commit(0, &[5; 64]).unwrap();
    assert_eq!((peers[0].bytes(0, 64), peers[1].bytes(0, 64)), (vec![5; 64], vec![4; 64]));
}

#[test]
fn a_shared_engine_of_shared_memory_finds_servers_by_their_name() {
    let (shared, peer) = (engine_of(ProviderChoice::Shm), Peer::of_the_same_host());
    let mut regions = [on(&shared, &peer)];
    regions[0].write_commit(0, &[1; 64]).unwrap();
    assert!(matches!(regions[0].path(), Path::Push { provider: "shm", .. }));
}

#[tokio::test]
async fn one_thread_drives_the_async_regions_of_an_engine() {
    let shared = engine();
    let peers: Vec<_> = (0..8).map(|_| Peer::start()).collect();
    let mut regions = Vec::new();
    for peer in &peers {
        regions.push(peer.region_on(&shared).await);
    }
    let tasks = regions.iter().cloned().map(|region| {
        tokio::spawn(async move {
            for round in 0..50_u8 {
                region.write_commit(0, vec![round; 512]).await.unwrap();
                assert_eq!(region.read(0, 512).await.unwrap(), [round; 512]);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let first = *peers[0].mapped_by.lock().unwrap();
    assert_ne!(first, Some(std::thread::current().id()));
    for peer in &peers {
        assert_eq!(peer.smb_writes.load(Ordering::SeqCst), 0, "pushed");
        assert_eq!(*peer.mapped_by.lock().unwrap(), first);
    }
}

#[tokio::test]
async fn an_idle_recalled_region_of_a_shared_engine_is_returned_at_once() {
    let (shared, peers) = (engine(), [Peer::start(), Peer::start()]);
    let (region, other) = (peers[0].region_on(&shared).await, peers[1].region_on(&shared).await);
    region.write(0, vec![9; 64]).await.unwrap();
    peers[0].recall();
    while peers[0].unmaps.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(peers[0].bytes(0, 64), [9; 64]);
    let recalled = Some(FallbackReason::Recalled);
    assert_eq!(region.path().await.unwrap().reason(), recalled);
    other.write_commit(0, vec![1; 64]).await.unwrap();
    assert_eq!(peers[1].smb_writes.load(Ordering::SeqCst), 0, "the other is still mapped");
}

#[tokio::test]
async fn an_async_region_ends_with_its_last_handle_and_not_with_its_engine() {
    let (shared, peers) = (engine(), [Peer::start(), Peer::start()]);
    let (region, other) = (peers[0].region_on(&shared).await, peers[1].region_on(&shared).await);
    drop(shared);
    region.write_commit(0, vec![1; 64]).await.unwrap();
    drop(region);
    // The control side of the region is gone with it.
    while Arc::strong_count(&peers[0]) > 1 {
        tokio::task::yield_now().await;
    }
    other.write_commit(0, vec![1; 64]).await.unwrap();
    drop(other);
    while Arc::strong_count(&peers[1]) > 1 {
        tokio::task::yield_now().await;
    }
}
