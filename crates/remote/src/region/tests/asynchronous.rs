//! A region that async tasks share.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::peer::Peer;
use super::{FallbackReason, is_push};
use crate::RegionError;

#[tokio::test]
async fn async_tasks_share_a_region() {
    let peer = Peer::start();
    let region = peer.region().into_async();
    let writes = (0..8_u8).map(|index| {
        let region = region.clone();
        async move { region.write_commit(u64::from(index) * 512, vec![index; 512]).await }
    });
    let handles: Vec<_> = writes.map(tokio::spawn).collect();
    for handle in handles {
        handle.await.unwrap().unwrap();
    }
    let read = region.read(0, 4096).await.unwrap();
    assert_eq!(read, peer.bytes(0, 4096));
    assert!(read.chunks(512).zip(0..8_u8).all(|(chunk, index)| chunk == [index; 512]));
}

#[tokio::test]
async fn the_async_form_has_every_operation_of_the_blocking_form() {
    let peer = Peer::with_region(4096..4096 + (3 << 20));
    let region = peer.region().into_async();
    assert_eq!(region.len(), 3 << 20);
    let data: Vec<u8> = (0..3_usize << 20).map(|at| u8::try_from(at % 251).unwrap()).collect();
    region.write_commit(0, data.clone()).await.unwrap();
    region.write(0, b"123456789".to_vec()).await.unwrap();
    assert_eq!(region.verify(0, 9).await.unwrap(), 0xe306_9283, "the check value of CRC-32C");
    region.atomic_write(16, 7).await.unwrap();
    region.commit(0, 24).await.unwrap();
    let read = region.read(0, 3 << 20).await.unwrap();
    assert!(read[..9] == *b"123456789" && read[16..24] == [7, 0, 0, 0, 0, 0, 0, 0]);
    assert!(read[24..] == data[24..], "more than one request reads");
    assert!(region.read(8, 3 << 20).await.is_err(), "beyond the end");
    region.read(0, usize::MAX).await.unwrap_err();
    assert_eq!(region.read(3 << 20, 0).await.unwrap(), []);
}

#[tokio::test]
async fn calls_are_carried_out_in_the_order_in_which_they_were_made_awaited_or_not() {
    let peer = Peer::with_region(4096..4096 + (3 << 20));
    let region = peer.region().into_async();
    let mut calls = Vec::new();
    for number in 0..1000_u64 {
        let written = region.write(0, number.to_le_bytes().to_vec());
        calls.push((number, written, region.read(0, 8)));
    }
    // The last is asked first.
    while let Some((number, written, read)) = calls.pop() {
        let seen = u64::from_le_bytes(read.await.unwrap().try_into().unwrap());
        // Those before it; it may see some behind it as well.
        assert!(number <= seen && seen < 1000, "{seen} at {number}");
        drop(written);
    }
    assert_eq!(region.read(0, 8).await.unwrap(), 999_u64.to_le_bytes());
    // Of all its requests.
    let whole = region.read(0, 3 << 20);
    let last = region.write(8, vec![2; 8]);
    region.close().await.unwrap();
    drop(last);
    assert_eq!(whole.await.unwrap().len(), 3 << 20);
    assert_eq!(peer.bytes(8, 8), [2; 8]);
}

#[tokio::test]
async fn an_answer_goes_to_its_own_request_behind_submitted_ones() {
    let peer = Peer::start();
    let mut region = peer.region();
    assert!(is_push(&region), "{}", region.path());
    region.submit_read(0, 4096).unwrap();
    region.submit_verify(0, 4096).unwrap();
    let region = region.into_async();
    region.write_commit(0, b"123456789".to_vec()).await.unwrap();
    assert_eq!(peer.bytes(0, 9), b"123456789");
    assert_eq!(region.verify(0, 9).await.unwrap(), 0xe306_9283);
    assert_eq!(region.read(0, 9).await.unwrap(), b"123456789");
}

#[tokio::test]
async fn a_region_is_closed_behind_what_was_asked_before_and_answers_nothing_after() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.submit_write_commit(0, b"submitted").unwrap();
    let region = region.into_async();
    let other = region.clone();
    region.write(9, b" and written".to_vec()).await.unwrap();
    region.close().await.unwrap();
    assert_eq!(peer.closes.load(Ordering::SeqCst), 1);
    assert_eq!(peer.bytes(0, 9), b"submitted");
    let late = other.write_commit(0, b"late".to_vec()).await;
    assert!(matches!(late, Err(RegionError::Broken)), "{late:?}");
    assert_eq!(peer.bytes(0, 9), b"submitted");
}

#[test]
fn a_close_says_what_the_server_says_of_it() {
    let peer = Peer::start();
    let region = peer.region();
    peer.smb_fails.store(true, Ordering::SeqCst);
    assert!(matches!(region.close(), Err(RegionError::Server(_))));
    assert_eq!(peer.closes.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_idle_recalled_region_is_returned_at_once() {
    let peer = Peer::start();
    let region = peer.region().into_async();
    region.write(0, vec![9; 64]).await.unwrap();
    // Time enough for the region's thread to become idle and sleep.
    (0..1000).for_each(|_| std::thread::yield_now());
    peer.recall();
    let recalled = Some(FallbackReason::Recalled);
    let deadline = Instant::now() + Duration::from_secs(60);
    while peer.unmaps.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < deadline, "nobody has asked the region for anything");
        tokio::task::yield_now().await;
    }
    assert_eq!(peer.bytes(0, 64), [9; 64]);
    assert_eq!(region.path().await.unwrap().reason(), recalled);
}
