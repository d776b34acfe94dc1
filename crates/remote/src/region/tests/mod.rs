//! A region against a real engine on loopback and a control side that fails on cue.

mod addresses;
mod asynchronous;
mod crash_images;
mod lease;
mod ordering;
mod peer;
mod refused;
mod returning;
mod shared;
mod silent;

use std::sync::atomic::Ordering;

use proptest::prelude::*;

use self::peer::{Ask, CueError, Peer};
use super::*;

/// Messages that arrive always, unless a test says otherwise.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cues {}

type Region = RemoteRegion<Cues>;
type Path = super::Path<Cues>;
type FallbackReason = super::FallbackReason<Cues>;
type RegionError = super::RegionError<CueError>;

impl Messages for Cues {
    type Error = CueError;
    type Refusal = u32;
    type Status = u32;

    const NAME: &'static str = "fake";
    const PLAIN: &'static str = "fake messages";
    const COMMIT: &'static str = "fake commit";

    fn reason(_: &CueError) -> FallbackReason {
        FallbackReason::ControlLost
    }
}

fn is_push(region: &Region) -> bool {
    matches!(region.path(), Path::Push { .. })
}

#[test]
fn a_committed_write_is_in_the_file_without_a_single_smb_request() {
    let peer = Peer::start();
    let mut region = peer.region();
    assert!(is_push(&region), "{}", region.path());
    region.write_commit(100, b"persistent").unwrap();
    assert_eq!(peer.bytes(100, 10), b"persistent");
    let mut read = [0; 10];
    region.read(100, &mut read).unwrap();
    assert_eq!(&read, b"persistent");
    assert_eq!(peer.smb_writes.load(Ordering::SeqCst), 0);
}

#[test]
fn submitted_operations_finish_in_order() {
    let peer = Peer::start();
    let mut region = peer.region();
    let first = region.submit_write_commit(0, &[1; 4096]).unwrap();
    let second = region.submit_read(0, 4096).unwrap();
    let third = region.submit_write_commit(0, &[2; 4096]).unwrap();
    let mut out = [0; 4096];
    assert_eq!(region.finish(&mut out).unwrap().ticket, first);
    assert_eq!(region.finish(&mut out).unwrap().ticket, second);
    // RFC 5040 §5.5: a later write may overtake the answer to a read, an earlier write never does.
    assert!(out == [1; 4096] || out == [2; 4096], "the read saw the write before it");
    assert_eq!(region.finish(&mut out).unwrap().ticket, third);
    assert!(matches!(region.finish(&mut out), Err(RegionError::NothingOutstanding)));
}

#[test]
fn verify_and_atomic_write_reach_the_servers_bytes() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.write_commit(0, b"123456789").unwrap();
    assert_eq!(region.verify(0, 9).unwrap(), 0xe306_9283, "the check value of CRC-32C");
    region.atomic_write(64, 0x0102_0304_0506_0708).unwrap();
    region.commit(64, 8).unwrap();
    assert_eq!(peer.bytes(64, 8), [8, 7, 6, 5, 4, 3, 2, 1]);
    assert!(matches!(region.atomic_write(65, 0), Err(RegionError::Misaligned { offset: 65 })));
}

#[test]
fn a_write_whose_posting_ends_the_channel_is_not_lost() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.write(0, &[1; 8]).unwrap();
    region.record(4, &[2; 8], Order::Free, |_| Err(ChannelError::Silent)).unwrap();
    assert_eq!(region.path().reason(), Some(FallbackReason::Silent));
    assert_eq!(peer.bytes(0, 12), [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
}

#[test]
fn a_lost_connection_loses_and_reorders_nothing() {
    lose_the_connection(&Peer::start(), "soft");
}

#[test]
fn a_lost_connection_through_shared_memory_loses_and_reorders_nothing() {
    lose_the_connection(&Peer::of_the_same_host(), "shm");
}

fn lose_the_connection(peer: &Arc<Peer>, expected: &str) {
    let mut region = peer.region();
    let Path::Push { provider, .. } = *region.path() else { panic!("{}", region.path()) };
    assert_eq!(provider, expected);
    region.write(0, &[1; 100]).unwrap();
    region.write(50, &[2; 100]).unwrap();
    region.submit_commit(0, 150).unwrap();
    region.submit_read(0, 150).unwrap();
    region.write(0, &[3; 10]).unwrap();
    peer.ask(Ask::CutConnections);
    let mut out = [0; 150];
    region.finish(&mut []).unwrap();
    region.finish(&mut out).unwrap();
    // RFC 5040 §5.5: a read may see a write that was posted after it, here too.
    assert!(matches!(out[0], 1 | 3), "{}", out[0]);
    assert_eq!((out[49], out[50], out[149]), (1, 2, 2));
    region.commit(0, 150).unwrap();
    assert_eq!(peer.bytes(0, 10), [3; 10]);
    assert_eq!(peer.bytes(50, 100), [2; 100]);
    assert!(!is_push(&region), "{}", region.path());
}

#[test]
fn a_verify_by_messages_hashes_what_a_verify_of_push_mode_hashes() {
    let peer = Peer::with_region(4096..4096 + (3 << 20));
    let mut region = peer.region();
    // More than two of the pieces in which this end reads.
    let bytes: Vec<u8> =
        (0..(2_u32 << 20) + 9).map(|n| n.wrapping_mul(7).to_le_bytes()[1]).collect();
    let len = u32::try_from(bytes.len()).unwrap();
    peer.another_writes(5, &bytes);
    let hash = region.verify(5, len).unwrap();
    assert!(is_push(&region), "{}", region.path());
    peer.ask(Ask::CutConnections);
    assert_eq!(region.verify(5, len).unwrap(), hash);
    peer.another_writes(4 + u64::from(len), &[bytes[bytes.len() - 1] ^ 1]);
    assert_ne!(region.verify(5, len).unwrap(), hash, "the last byte counts");
}

#[test]
fn a_recalled_region_is_committed_returned_and_mapped_again() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.write(0, &[9; 64]).unwrap();
    peer.recall();
    region.write(64, &[8; 64]).unwrap();
    assert_eq!(region.path().reason(), Some(FallbackReason::Recalled));
    assert_eq!(peer.unmaps.load(Ordering::SeqCst), 1);
    assert_eq!(peer.bytes(0, 64), [9; 64]);
    assert_eq!(peer.bytes(64, 64), [8; 64]);
    region.map_again = Some(Instant::now());
    region.write_commit(0, &[7; 64]).unwrap();
    assert!(is_push(&region), "{}", region.path());
    assert_eq!(peer.bytes(0, 64), [7; 64]);
}

#[test]
fn a_region_whose_two_paths_failed_stays_broken() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.write_commit(0, &[1; 8]).unwrap();
    peer.smb_fails.store(true, Ordering::SeqCst);
    peer.ask(Ask::CutConnections);
    let mut failed = false;
    for _ in 0..100 {
        failed |= region.write_commit(8, &[2; 8]).is_err();
    }
    assert!(failed);
    assert!(matches!(region.write(0, &[0]), Err(RegionError::Broken)));
}

#[test]
fn a_commit_fails_if_a_replayed_write_before_it_failed() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.submit_write_commit(0, &[1; 8]).unwrap();
    peer.smb_writes_fail.store(true, Ordering::SeqCst);
    region.retire(FallbackReason::Silent).unwrap_err();
    assert!(region.finish(&mut []).is_err(), "its write never arrived");
}

#[test]
fn a_replay_stores_no_pointer_behind_a_failed_commit() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.submit_write_commit(0, &[1; 8]).unwrap();
    region.atomic_write(64, 7).unwrap();
    peer.flushes_fail.store(true, Ordering::SeqCst);
    region.retire(FallbackReason::Silent).unwrap_err();
    assert_eq!(peer.smb_writes.load(Ordering::SeqCst), 1, "what it points to, not the pointer");
}

#[test]
fn smb_stores_no_pointer_behind_a_failed_commit() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.retire(FallbackReason::Silent).unwrap();
    peer.flushes_fail.store(true, Ordering::SeqCst);
    region.submit_write_commit(0, &[1; 8]).unwrap();
    assert!(matches!(region.atomic_write(64, 7), Err(RegionError::Broken)));
    assert!(matches!(region.finish(&mut []), Err(RegionError::Server(_))));
}

#[test]
fn outstanding_operations_end_with_an_error_when_both_paths_fail() {
    let peer = Peer::start();
    let mut region = peer.region();
    for _ in 0..3 {
        region.submit_write_commit(0, &[1; 8]).unwrap();
    }
    peer.smb_fails.store(true, Ordering::SeqCst);
    region.retire(FallbackReason::Silent).unwrap_err();
    for _ in 0..3 {
        assert!(matches!(region.finish(&mut []), Err(RegionError::Broken)));
    }
    assert_eq!(region.outstanding(), 0);
}

#[test]
fn writes_over_smb_wait_for_the_unmap_of_the_control_task() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.write(0, &[1; 8]).unwrap();
    // The control task has taken the step and waits for the server's answer.
    peer.recall();
    assert!(region.recall.leave());
    region.write(0, &[2; 8]).unwrap();
    assert_eq!(peer.unmaps.load(Ordering::SeqCst), 1, "the owner has waited for an answer too");
    assert_eq!(peer.bytes(0, 8), [2; 8]);
}

#[test]
fn ranges_and_sizes_beyond_the_region_are_refused() {
    let peer = Peer::start();
    let mut region = peer.region();
    let beyond = region.write(region.len() - 1, &[0; 2]);
    assert!(matches!(beyond, Err(RegionError::OutOfRange { .. })));
    assert!(matches!(region.commit(u64::MAX, 2), Err(RegionError::OutOfRange { .. })));
}

#[test]
fn a_mapping_of_another_length_is_unmapped_and_not_used() {
    let peer = Peer::start();
    peer.length_missing.store(8, Ordering::SeqCst);
    let region = peer.region();
    assert_eq!(region.path().reason(), Some(FallbackReason::PeerIncapable));
    assert_eq!(peer.unmaps.load(Ordering::SeqCst), 1);
}

#[test]
fn verifies_answered_together_keep_their_own_hashes() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.write(0, b"123456789").unwrap();
    region.submit_verify(0, 9).unwrap();
    region.submit_verify(9, 32).unwrap();
    region.submit_commit(0, 9).unwrap();
    region.submit_verify(0, 9).unwrap();
    // The engine receives the answers; the region takes none before all have arrived.
    for _ in 0..1000 {
        region.wait(Duration::ZERO);
        std::thread::yield_now();
    }
    let hashes = [0; 4].map(|_| region.finish(&mut []).unwrap().value);
    // RFC 3720 §B.4: 32 bytes of zeros.
    assert_eq!(hashes, [0xe306_9283, 0x8a91_36aa, 0, 0xe306_9283]);
    assert!(is_push(&region), "{}", region.path());
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize),
    Commit,
    Read(u64, usize),
    SubmitWriteCommit(u64, usize),
    Finish,
    Recall,
    Cut,
    MapAgain,
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0_u64..60_000, 1_usize..5000);
    prop_oneof![
        6 => place().prop_map(|(offset, len)| Step::Write(offset, len)),
        3 => Just(Step::Commit),
        4 => place().prop_map(|(offset, len)| Step::Read(offset, len)),
        6 => place().prop_map(|(offset, len)| Step::SubmitWriteCommit(offset, len)),
        4 => Just(Step::Finish),
        1 => Just(Step::Recall),
        1 => Just(Step::Cut),
        2 => Just(Step::MapAgain),
    ]
}

#[test]
fn a_replay_of_an_older_write_does_not_undo_a_durable_one() {
    let peer = Peer::start();
    let mut region = peer.region();
    region.write(0, &[1; 4000]).unwrap();
    region.submit_write_commit(0, &[2]).unwrap();
    // The answer to this read comes behind that of the commit, which is then acknowledged.
    region.read(0, &mut [0]).unwrap();
    peer.ask(Ask::CutConnections);
    region.commit(0, 65536).unwrap();
    assert_eq!(peer.bytes(0, 4000), [&[2][..], &[1; 3999]].concat());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn recalls_and_cuts_leave_the_file_as_one_writer_wrote_it(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let peer = Peer::start();
        let mut region = peer.region();
        let mut model = vec![0_u8; 65536];
        for (index, step) in steps.iter().enumerate() {
            let byte = u8::try_from(index % 251 + 1).unwrap();
            match *step {
                Step::Write(offset, len) => {
                    region.write(offset, &vec![byte; len]).unwrap();
                    let start = usize::try_from(offset).unwrap();
                    model[start..start + len].fill(byte);
                }
                Step::SubmitWriteCommit(offset, len) => {
                    region.submit_write_commit(offset, &vec![byte; len]).unwrap();
                    let start = usize::try_from(offset).unwrap();
                    model[start..start + len].fill(byte);
                }
                Step::Read(offset, len) => {
                    let mut out = vec![0; len];
                    region.read(offset, &mut out).unwrap();
                    let start = usize::try_from(offset).unwrap();
                    prop_assert_eq!(&out, &model[start..start + len]);
                }
                Step::Commit => region.commit(0, 65536).unwrap(),
                Step::Finish if region.outstanding() > 0 => { region.finish(&mut []).unwrap(); }
                Step::Recall => peer.recall(),
                Step::Cut => peer.ask(Ask::CutConnections),
                Step::MapAgain => region.map_again = region.map_again.map(|_| Instant::now()),
                Step::Finish => {}
            }
        }
        region.commit(0, 65536).unwrap();
        prop_assert_eq!(peer.bytes(0, 65536), model);
    }
}
