//! A server that neither answers nor closes: every wait for it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::peer::{Ask, Peer};
use super::{FallbackReason, Path, Region};
use crate::region::MAP_PAUSE_MIN;

/// Far longer than the timeouts of these regions, far shorter than the limit of a test run.
const FOREVER: Duration = Duration::from_secs(60);

const SILENT: Path = Path::Messages { reason: FallbackReason::Silent };

fn impatient(peer: &Arc<Peer>) -> Region {
    peer.region_with(|settings| {
        settings.answer_timeout = Duration::from_millis(50);
        settings.unconfirmed_bytes = 64 << 20;
    })
}

/// Runs `deed` on a region whose server has fallen silent; `deed` must end.
fn ends(peer: &Arc<Peer>, deed: impl FnOnce(&mut Region) + Send + 'static) {
    let mut region = impatient(peer);
    assert!(super::is_push(&region), "{}", region.path());
    peer.ask(Ask::FallSilent);
    let (done, outcome) = mpsc::channel();
    std::thread::spawn(move || {
        deed(&mut region);
        done.send(region.path().clone())
    });
    assert_eq!(outcome.recv_timeout(FOREVER), Ok(SILENT), "it goes on over SMB");
}

#[test]
fn a_commit_to_a_silent_server_continues_over_smb() {
    let peer = Peer::start();
    ends(&peer, |region| region.write_commit(0, &[1; 8]).unwrap());
    assert_eq!(peer.bytes(0, 8), [1; 8]);
}

#[test]
fn an_owner_that_polls_by_itself_learns_of_a_silent_server() {
    let peer = Peer::start();
    ends(&peer, |region| {
        region.submit_write_commit(0, &[1; 8]).unwrap();
        while region.try_finish(&mut []).unwrap().is_none() {
            region.wait(Duration::from_secs(5));
        }
    });
    assert_eq!(peer.bytes(0, 8), [1; 8]);
}

#[test]
fn writes_to_a_silent_server_do_not_wait_for_room_for_ever() {
    let peer = Peer::start();
    // More bytes than both sockets hold: the queue is full before any answer is awaited.
    ends(&peer, |region| {
        for _ in 0..600 {
            region.write(0, &[2; 65536]).unwrap();
            if *region.path() == SILENT {
                break;
            }
        }
    });
    assert_eq!(peer.bytes(65528, 8), [2; 8]);
}

#[test]
fn a_slow_attempt_to_map_is_not_repeated_soon() {
    let peer = Peer::start();
    peer.ask(Ask::FallSilent);
    let region = impatient(&peer);
    assert_eq!(*region.path(), SILENT);
    let pause = region.map_again.unwrap().saturating_duration_since(Instant::now());
    assert!(pause > MAP_PAUSE_MIN * 4, "an attempt costs every caller its patience");
}

#[tokio::test]
async fn an_async_caller_does_not_wait_for_a_silent_server_for_ever() {
    let peer = Peer::start();
    let region = impatient(&peer).into_async();
    peer.ask(Ask::FallSilent);
    let committed = region.write_commit(0, vec![1; 8]);
    tokio::time::timeout(FOREVER, committed).await.expect("it ends").unwrap();
    assert_eq!(region.path().await.unwrap(), SILENT);
    assert_eq!(peer.smb_writes.load(Ordering::SeqCst), 1);
    assert_eq!(peer.bytes(0, 8), [1; 8]);
}
