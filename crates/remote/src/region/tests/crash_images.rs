//! The push path under power failure: region, wire, engine and medium, crashed at every store.
//!
//! The server's medium is pmem's recorder, so its tape holds every store, write-back, fence and
//! flush that pushed writes and commits cause; the client notes on the same tape when a commit was
//! acknowledged. Then the power fails at each position, in many legal ways. A second stream is
//! recalled at times, mapped again, and loses its lease to another client that writes to the same
//! places.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use pmem::crash::{AckLog, Budget, CrashState, Recorder, Sabotage, Violation, check};

use super::Region;
use super::peer::Peer;
use crate::region::planted::Planted;

/// Bytes of one record; the last record of a page is shorter, so records straddle lines and
/// sectors.
const RECORD: usize = 328;
const SLOTS: usize = 24;
const WRITES: u64 = 220;
/// The region begins in the middle of the medium.
const START: usize = 4096;
const LEN: usize = 16_384;

/// One acknowledged commit: its slot and its write.
#[derive(Clone, Copy, Debug)]
struct Committed {
    slot: usize,
    number: u64,
}

fn slot_of(number: u64) -> usize {
    // A stride coprime to the number of slots: successive writes do not lie next to each other.
    usize::try_from(number * 7).unwrap() % SLOTS
}

fn word_of(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

fn record_of(number: u64) -> Vec<u8> {
    word_of(number).repeat(RECORD / 8)
}

/// Streams commits, eight outstanding; some are a write and a later separate commit.
fn stream(recorder: &Recorder, region: &mut Region) -> AckLog<Committed> {
    let mut acks = AckLog::new();
    let mut outstanding = VecDeque::new();
    let finish = |region: &mut Region, acks: &mut AckLog<_>, outstanding: &mut VecDeque<_>| {
        region.finish(&mut []).unwrap();
        acks.note(recorder.position(), outstanding.pop_front().unwrap());
    };
    for number in 1..=WRITES {
        let slot = slot_of(number);
        let offset = u64::try_from(slot * RECORD).unwrap();
        if number % 3 == 0 {
            region.write(offset, &record_of(number)).unwrap();
            region.submit_commit(0, region.len()).unwrap();
        } else {
            region.submit_write_commit(offset, &record_of(number)).unwrap();
        }
        outstanding.push_back(Committed { slot, number });
        if outstanding.len() == 8 {
            finish(region, &mut acks, &mut outstanding);
        }
    }
    while !outstanding.is_empty() {
        finish(region, &mut acks, &mut outstanding);
    }
    acks
}

/// Writes the same slots, one commit at a time, while the region is mapped and unmapped. Bytes
/// written over SMB stay in a page cache that no one-sided commit reaches.
fn stream_through_changes(recorder: &Recorder, peer: &Arc<Peer>) -> AckLog<Committed> {
    *peer.cache.lock().unwrap() = Some(Vec::new());
    let mut region = peer.region();
    let mut acks = AckLog::new();
    for number in 1..=WRITES {
        let slot = slot_of(number);
        let offset = u64::try_from(slot * RECORD).unwrap();
        let newer = number + u64::try_from(SLOTS).unwrap();
        match number % 20 {
            7 => {
                peer.recall();
                region.write(offset, &record_of(number)).unwrap();
                region.map_again = Some(Instant::now());
                region.commit(0, region.len()).unwrap();
                assert!(super::is_push(&region), "{}", region.path());
            }
            14 if newer <= WRITES => {
                region.write(offset, &record_of(number)).unwrap();
                // The answer shows that the bytes are in the file.
                region.read(0, &mut [0]).unwrap();
                peer.take_the_lease();
                peer.another_writes(offset, &record_of(newer));
                acks.note(recorder.position(), Committed { slot, number: newer });
                // The commit may fail or write again; either way the file is opened again.
                let _ = region.commit(0, region.len());
                region = peer.region();
                continue;
            }
            _ => region.write_commit(offset, &record_of(number)).unwrap(),
        }
        acks.note(recorder.position(), Committed { slot, number });
    }
    acks
}

/// Each word of a slot is of its last acknowledged write or of a later write.
fn nothing_is_lost(state: &CrashState<'_, Committed>) -> Result<(), String> {
    let mut promised = [0; SLOTS];
    for (_, committed) in state.acknowledged {
        promised[committed.slot] = committed.number;
    }
    for (slot, promised) in promised.into_iter().enumerate() {
        let legal: Vec<[u8; 8]> = (promised.max(1)..=WRITES)
            .filter(|number| slot_of(*number) == slot)
            .map(word_of)
            .chain((promised == 0).then_some([0; 8]))
            .collect();
        let at = START + slot * RECORD;
        for word in state.image[at..at + RECORD].chunks(8) {
            if !legal.iter().any(|allowed| allowed == word) {
                return Err(format!("slot {slot} holds {word:02x?}, promised was {promised}"));
            }
        }
    }
    if state.image[..START].iter().any(|byte| *byte != 0) {
        return Err("a byte before the region changed".into());
    }
    Ok(())
}

fn crash_everywhere(recorder: Recorder, states_per_point: u64) -> Result<u64, Violation<String>> {
    let recorder = Arc::new(recorder);
    let mapped = u64::try_from(START).unwrap()..u64::try_from(LEN).unwrap();
    let peer = Peer::serving(Arc::clone(&recorder) as _, mapped);
    let mut region = peer.region();
    assert!(super::is_push(&region), "{}", region.path());
    let acks = stream(&recorder, &mut region);
    drop(region);
    drop(peer);
    let budget = Budget { states_per_point, seed: 11 };
    check(&recorder.log(), &acks, budget, |state| nothing_is_lost(&state))
}

fn crash_through_changes(recorder: Recorder) -> Result<u64, Violation<String>> {
    let recorder = Arc::new(recorder);
    let mapped = u64::try_from(START).unwrap()..u64::try_from(LEN).unwrap();
    let peer = Peer::serving(Arc::clone(&recorder) as _, mapped);
    let acks = stream_through_changes(&recorder, &peer);
    drop(peer);
    let budget = Budget { states_per_point: 32, seed: 12 };
    check(&recorder.log(), &acks, budget, |state| nothing_is_lost(&state))
}

#[test]
fn no_crash_loses_a_commit_through_recalls_and_lost_leases() {
    for recorder in [Recorder::pmem(LEN), Recorder::storage(LEN)] {
        let states = crash_through_changes(recorder).unwrap();
        assert!(states >= 1000, "only {states} states were tried");
    }
}

#[test]
fn a_client_that_replays_without_lease_or_maps_unflushed_is_detected() {
    for fault in [Planted::ReplaysWithoutLease, Planted::MapsUnflushed] {
        for recorder in [Recorder::pmem(LEN), Recorder::storage(LEN)] {
            let found = fault.during(|| crash_through_changes(recorder));
            assert!(found.is_err(), "{fault:?} went unnoticed");
        }
    }
}

#[test]
fn no_crash_of_persistent_memory_loses_acknowledged_bytes() {
    let states = crash_everywhere(Recorder::pmem(LEN), 256).unwrap();
    assert!(states >= 100_000, "only {states} states were tried");
}

#[test]
fn no_crash_of_storage_loses_acknowledged_bytes() {
    // The load decides how many commits share a flush, and so how many states there are.
    let mut states = 0;
    for _ in 0..8 {
        states += crash_everywhere(Recorder::storage(LEN), 1024).unwrap();
        if states >= 100_000 {
            return;
        }
    }
    panic!("only {states} states were tried");
}

#[test]
fn a_server_that_forgets_to_drain_or_flush_is_detected() {
    for sabotage in [Sabotage::SkipDrain, Sabotage::SkipFlush, Sabotage::FlushBeganEarlier] {
        let found = crash_everywhere(Recorder::sabotaged(LEN, sabotage), 32);
        assert!(found.is_err(), "{sabotage:?} went unnoticed");
    }
}
