//! Several members: losses, returns, additions, and which of them may be opened alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pmem::Medium;

use super::memory::{Part, create, in_memory, open, records};
use crate::planted::Planted;
use crate::store::Store;
use crate::{CreateOptions, LogError, MemberSet, OpenOptions, TailLog};

/// A log of so many members, each with a switch that makes it fail.
fn mirrored(members: u64) -> (Arc<dyn Medium>, TailLog, Vec<Arc<AtomicBool>>) {
    let medium = in_memory(members);
    let (stores, switches): (Vec<_>, Vec<_>) =
        (0..members).map(|number| Part::of(&medium, number)).unzip();
    let log = TailLog::create(stores, &CreateOptions::default()).unwrap();
    (medium, log, switches)
}

fn some(medium: &Arc<dyn Medium>, numbers: &[u64]) -> Vec<Box<dyn Store>> {
    numbers.iter().map(|number| Part::of(medium, *number).0).collect()
}

#[test]
fn every_member_in_sync_has_every_acknowledged_record() {
    let (medium, log, _) = mirrored(2);
    let lsn = log.append_commit(b"at both").unwrap();
    drop(log);
    for number in [0, 1] {
        let gone = MemberSet::of(&[0, 1]).without(usize::try_from(number).unwrap());
        let copy = in_memory(2);
        let mut bytes = vec![0; usize::try_from(medium.len()).unwrap()];
        medium.read(0, &mut bytes).unwrap();
        copy.place(0, &bytes).unwrap();
        let options = OpenOptions { given_up: gone, ..OpenOptions::default() };
        let log = TailLog::open(some(&copy, &[number]), &options).unwrap();
        assert_eq!(records(&log), [(lsn, b"at both".to_vec())]);
    }
}

#[test]
fn a_log_goes_on_without_a_member_that_failed() {
    let (medium, log, switches) = mirrored(2);
    log.append_commit(b"one").unwrap();
    switches[1].store(true, Ordering::Relaxed);
    log.append_commit(b"two").unwrap();
    let status = log.status();
    assert_eq!(status.in_sync, MemberSet::of(&[0]));
    assert_eq!(status.failed[0].0, 1);
    drop(log);
    // The member that failed is back, and behind: it gets what it lacks.
    let log = open(&medium);
    assert_eq!(records(&log).len(), 2);
    assert_eq!(log.status().in_sync, MemberSet::of(&[0, 1]));
    drop(log);
    let options = OpenOptions { given_up: MemberSet::of(&[0]), ..OpenOptions::default() };
    let log = TailLog::open(some(&medium, &[1]), &options).unwrap();
    assert_eq!(records(&log).len(), 2);
}

#[test]
fn a_member_that_may_be_behind_is_not_opened_alone() {
    let (medium, log, switches) = mirrored(2);
    switches[1].store(true, Ordering::Relaxed);
    log.append_commit(b"at the first alone").unwrap();
    drop(log);
    let refused = TailLog::open(some(&medium, &[1]), &OpenOptions::default()).unwrap_err();
    let LogError::Missing { missing } = refused else { panic!("{refused}") };
    assert_eq!(missing, MemberSet::of(&[0]));
    assert_eq!(
        records(&TailLog::open(some(&medium, &[0]), &OpenOptions::default()).unwrap()).len(),
        1
    );
}

#[test]
fn two_of_three_members_are_enough_and_one_is_not() {
    let (medium, log, _) = mirrored(3);
    log.append_commit(b"at all").unwrap();
    drop(log);
    let one = TailLog::open(some(&medium, &[2]), &OpenOptions::default()).unwrap_err();
    assert!(matches!(one, LogError::Missing { .. }), "{one}");
    let log = TailLog::open(some(&medium, &[2, 0]), &OpenOptions::default()).unwrap();
    assert_eq!(log.status().in_sync, MemberSet::of(&[0, 2]));
}

#[test]
fn a_log_with_too_few_members_acknowledges_nothing_more() {
    let (medium, log, switches) = mirrored(3);
    let first = log.append_commit(b"one").unwrap();
    switches[0].store(true, Ordering::Relaxed);
    log.append_commit(b"two").unwrap();
    switches[1].store(true, Ordering::Relaxed);
    let error = log.append_commit(b"three").unwrap_err();
    assert!(matches!(error, LogError::Store { member: 1, .. }), "{error}");
    assert!(matches!(log.append_commit(b"four"), Err(LogError::Broken)));
    drop(log);
    let found = records(&open(&medium));
    assert_eq!(found[0].0, first);
    assert!(found.len() >= 2);
}

#[test]
fn a_member_joins_while_others_write() {
    let medium = in_memory(2);
    let log = TailLog::create(some(&medium, &[0]), &CreateOptions::default()).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..40_u8 {
                log.append_commit(&[number]).unwrap();
            }
        });
        assert_eq!(log.add_member(Part::of(&medium, 1).0).unwrap(), 1);
        writer.join().unwrap();
    });
    assert_eq!(log.status().in_sync, MemberSet::of(&[0, 1]));
    drop(log);
    let options = OpenOptions { given_up: MemberSet::of(&[0]), ..OpenOptions::default() };
    let log = TailLog::open(some(&medium, &[1]), &options).unwrap();
    assert_eq!(records(&log).len(), 40);
}

#[test]
fn a_member_that_was_taken_out_is_not_asked_for() {
    let (medium, log, _) = mirrored(2);
    log.remove_member(1).unwrap();
    log.append_commit(b"one").unwrap();
    let last = log.remove_member(0).unwrap_err();
    assert!(matches!(last, LogError::ConfigLeastInSync { .. }), "{last}");
    drop(log);
    assert_eq!(
        records(&TailLog::open(some(&medium, &[0]), &OpenOptions::default()).unwrap()).len(),
        1
    );
}

#[test]
fn damage_of_one_member_is_healed_from_another() {
    let medium = in_memory(2);
    let log = create(&medium);
    for byte in 0..4 {
        log.append_commit(&[byte; 40]).unwrap();
    }
    drop(log);
    medium.place(8192 + 128 + 50, &[9]).unwrap();
    let log = open(&medium);
    assert_eq!(records(&log).len(), 4);
    drop(log);
    let options = OpenOptions { given_up: MemberSet::of(&[1]), ..OpenOptions::default() };
    assert_eq!(records(&TailLog::open(some(&medium, &[0]), &options).unwrap()).len(), 4);
}

/// A record that the third member alone got before its log ended, another one in its place at the other two, and then
/// all three again.
fn diverged() -> Result<Vec<Vec<u8>>, LogError> {
    let (medium, log, switches) = mirrored(3);
    log.append_commit(b"one").unwrap();
    switches[0].store(true, Ordering::Relaxed);
    switches[1].store(true, Ordering::Relaxed);
    log.append(b"never acknowledged").unwrap();
    log.append_commit(b"nor this").unwrap_err();
    drop(log);
    let log = TailLog::open(some(&medium, &[0, 1]), &OpenOptions::default()).unwrap();
    log.append_commit(b"two").unwrap();
    drop(log);
    let log = TailLog::open(some(&medium, &[0, 1, 2]), &OpenOptions::default())?;
    let replay = log.replay(log.start_lsn())?;
    replay.map(|found| found.map(|(_, record)| record)).collect()
}

#[test]
fn a_member_with_more_records_of_an_older_generation_is_not_followed() {
    assert_eq!(diverged().unwrap(), [b"one".to_vec(), b"two".to_vec()]);
}

/// The records of a member that was behind, after it came back.
fn records_of_one_that_came_back() -> Result<usize, LogError> {
    let (medium, log, switches) = mirrored(2);
    switches[1].store(true, Ordering::Relaxed);
    log.append_commit(b"missed").unwrap();
    drop(log);
    drop(open(&medium));
    let options = OpenOptions { given_up: MemberSet::of(&[0]), ..OpenOptions::default() };
    TailLog::open(some(&medium, &[1]), &options).map(|log| records(&log).len())
}

#[test]
fn a_member_that_is_taken_in_without_what_it_lacks_is_found() {
    assert_eq!(records_of_one_that_came_back().unwrap(), 1);
    let found = Planted::AdmitsBehind.during(records_of_one_that_came_back);
    assert!(matches!(found, Err(LogError::Damaged { .. })), "{found:?}");
}
