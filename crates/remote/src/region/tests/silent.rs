//! A server that neither answers nor closes: every wait for it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::peer::{Ask, Peer};
use super::{FallbackReason, Region, is_push};
use crate::region::MAP_PAUSE_MIN;

/// Far longer than the timeouts of these regions, far shorter than the limit of a test run.
const FOREVER: Duration = Duration::from_secs(60);

const TIMEOUT: Duration = Duration::from_millis(50);

const SILENT: Option<FallbackReason> = Some(FallbackReason::Silent);

/// A region of a server that is given little time once it has been mapped: the mapping itself may take longer on a busy
/// machine.
pub(super) fn impatient(peer: &Arc<Peer>) -> Region {
    let mut region = peer.region_with(|settings| settings.unconfirmed_bytes = 64 << 20);
    region.channel.as_mut().expect("it is mapped").lose_patience(TIMEOUT);
    region.settings.answer_timeout = TIMEOUT;
    region
}

/// Runs `deed` on a region whose server has fallen silent; `deed` must end.
fn ends(peer: &Arc<Peer>, deed: impl FnOnce(&mut Region) + Send + 'static) {
    let mut region = impatient(peer);
    assert!(is_push(&region), "{}", region.path());
    peer.ask(Ask::FallSilent);
    let (done, outcome) = mpsc::channel();
    std::thread::spawn(move || {
        deed(&mut region);
        done.send(region.path().reason())
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
    const PIECE: usize = 65_536;
    // More bytes than both sockets hold: the queue is full before any answer is awaited.
    const PIECES: u64 = 600;
    let place = |piece: u64| piece * u64::try_from(PIECE).unwrap();
    let bytes_of = |piece: u64| vec![u8::try_from(piece % 255 + 1).unwrap(); PIECE];
    let peer = Peer::with_region(0..place(PIECES));
    let (told, written) = mpsc::channel();
    ends(&peer, move |region| {
        let piece_written = |piece: &u64| {
            region.write(place(*piece), &bytes_of(*piece)).unwrap();
            region.path().reason() == SILENT
        };
        told.send((0..PIECES).find(piece_written)).unwrap();
    });
    let last = written.recv().unwrap().expect("a write finds the queue full");
    for piece in 0..=last {
        assert_eq!(peer.bytes(place(piece), PIECE), bytes_of(piece), "{piece} of {last}");
    }
}

#[test]
fn a_slow_attempt_to_map_is_not_repeated_soon() {
    let peer = Peer::start();
    peer.ask(Ask::FallSilent);
    let region = peer.region_with(|settings| settings.answer_timeout = TIMEOUT);
    assert_eq!(region.path().reason(), SILENT);
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
    assert_eq!(region.path().await.unwrap().reason(), SILENT);
    assert_eq!(peer.smb_writes.load(Ordering::SeqCst), 1);
    assert_eq!(peer.bytes(0, 8), [1; 8]);
}

#[test]
fn a_mapped_region_says_how_soon_its_thread_looks_for_answers() {
    let timeout = Duration::from_secs(3600);
    let peer = Peer::start();
    let mut region = peer.region_with(|settings| settings.answer_timeout = timeout);
    assert!(region.look_every().is_some_and(|pause| pause <= timeout));
    peer.recall();
    region.write(0, &[1; 8]).unwrap();
    assert!(!is_push(&region), "{}", region.path());
    assert_eq!(region.look_every(), None, "it waits for no answer");
}
