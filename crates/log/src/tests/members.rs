//! Several members: losses, returns, additions, and which of them may be opened alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pmem::Medium;

use super::behaving::{Behaving, Behaviour};
use super::memory::{MEMBER_LEN, Part, create, in_memory, open, records};
use crate::planted::Planted;
use crate::store::{Store, StoreError};
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

/// As [`diverged`], and a newcomer has got the number of the third member before that one comes back, with or without
/// the newcomer.
fn replaced(here: &[u64]) -> Vec<Vec<u8>> {
    let medium = in_memory(4);
    let (stores, switches): (Vec<_>, Vec<_>) =
        (0..3).map(|number| Part::of(&medium, number)).unzip();
    let log = TailLog::create(stores, &CreateOptions::default()).unwrap();
    log.append_commit(b"one").unwrap();
    switches[0].store(true, Ordering::Relaxed);
    switches[1].store(true, Ordering::Relaxed);
    log.append(b"never acknowledged").unwrap();
    log.append_commit(&[0; 200]).unwrap_err();
    drop(log);
    let log = TailLog::open(some(&medium, &[0, 1]), &OpenOptions::default()).unwrap();
    log.append_commit(b"two").unwrap();
    log.append_commit(b"three").unwrap();
    assert_eq!(log.add_member(Part::of(&medium, 3).0).unwrap(), 2, "the number of the third");
    drop(log);
    // What the third member has lies before the end of the log now.
    drop(TailLog::open(some(&medium, &[0, 1, 3]), &OpenOptions::default()).unwrap());
    let log = TailLog::open(some(&medium, here), &OpenOptions::default()).unwrap();
    records(&log).into_iter().map(|(_, record)| record).collect()
}

#[test]
fn a_member_whose_number_another_one_has_got_is_not_in_sync() {
    let acknowledged = [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()];
    for here in [&[0, 1, 2][..], &[2, 0, 1], &[0, 1, 3, 2], &[2, 3, 1, 0]] {
        assert_eq!(replaced(here), acknowledged, "{here:?}");
    }
}

/// A store that says of its first label that it failed, though the label is there.
#[derive(Debug)]
struct SaysNo;

impl Behaviour for SaysNo {
    fn place(&mut self, below: &mut dyn Store, at: u64, bytes: &[u8]) -> Result<(), StoreError> {
        below.place(at, bytes)?;
        // Copies of records have no label's magic, and erased labels neither.
        if bytes.starts_with(b"LFTAILOG") { Err(failure()) } else { Ok(()) }
    }
}

fn failure() -> StoreError {
    StoreError::new(pmem::MediumError::MediaIo(5))
}

#[test]
fn a_newcomer_that_was_not_taken_in_is_not_taken_for_the_next_one() {
    let medium = in_memory(3);
    let log = TailLog::create(some(&medium, &[0]), &CreateOptions::default()).unwrap();
    log.append_commit(b"one").unwrap();
    log.add_member(Box::new(Behaving(Part::of(&medium, 1).0, SaysNo))).unwrap_err();
    log.append_commit(b"two").unwrap();
    // Its label is as new as could be, and names it.
    for here in [&[0, 1][..], &[1, 0]] {
        let copy = copy_of(&medium);
        let log = TailLog::open(some(&copy, here), &OpenOptions::default()).unwrap();
        assert_eq!(records(&log).len(), 2, "{here:?}");
        assert_eq!(log.status().in_sync, MemberSet::of(&[0, 1]), "it was brought up to date");
    }
    assert_eq!(log.add_member(Part::of(&medium, 2).0).unwrap(), 1, "the same number");
    log.append_commit(b"three").unwrap();
    drop(log);
    let refused = TailLog::open(some(&medium, &[1, 0]), &OpenOptions::default()).unwrap_err();
    assert!(matches!(refused, LogError::Missing { .. }), "it stands for nobody: {refused}");
    let gone = OpenOptions { given_up: MemberSet::of(&[1]), ..OpenOptions::default() };
    // Beside the second newcomer it gets another number.
    for (here, in_sync) in [(&[1, 0][..], 2), (&[1, 2, 0], 3), (&[0, 2, 1], 3)] {
        let copy = copy_of(&medium);
        let log = TailLog::open(some(&copy, here), &gone).unwrap();
        assert_eq!(records(&log).len(), 3, "{here:?}");
        assert_eq!(log.status().in_sync.len(), in_sync, "{here:?}");
    }
}

/// The labels of a member.
fn labels_of(medium: &Arc<dyn Medium>, number: u64) -> Vec<u8> {
    let mut labels = vec![0; 8192];
    medium.read(number * MEMBER_LEN, &mut labels).unwrap();
    labels
}

#[test]
fn a_newcomer_whose_admission_a_crash_cuts_off_is_not_in_sync() {
    let (medium, log, switches) = mirrored(3);
    log.append_commit(b"one").unwrap();
    switches[0].store(true, Ordering::Relaxed);
    switches[1].store(true, Ordering::Relaxed);
    log.append(&[1; 30]).unwrap();
    log.append(&[2; 30]).unwrap();
    log.append_commit(&[3; 300]).unwrap_err();
    drop(log);
    let log = TailLog::open(some(&medium, &[0, 1]), &OpenOptions::default()).unwrap();
    log.append_commit(b"two").unwrap();
    // The third comes back as a newcomer; a crash leaves its label and none of the others'.
    let before = [0, 1].map(|number| labels_of(&medium, number));
    log.add_member(Part::of(&medium, 2).0).unwrap();
    drop(log);
    for (number, labels) in (0..).zip(before) {
        medium.place(number * MEMBER_LEN, &labels).unwrap();
    }
    for record in [b"three", b"four."] {
        let log = TailLog::open(some(&medium, &[0, 1]), &OpenOptions::default()).unwrap();
        log.append_commit(record).unwrap();
    }
    drop(TailLog::open(some(&medium, &[0, 1]), &OpenOptions::default()).unwrap());
    for here in [[0, 1, 2], [2, 1, 0]] {
        let log = TailLog::open(some(&copy_of(&medium), &here), &OpenOptions::default()).unwrap();
        let found: Vec<_> = records(&log).into_iter().map(|(_, record)| record).collect();
        assert_eq!(found, [&b"one"[..], b"two", b"three", b"four."], "{here:?}");
    }
}

fn copy_of(medium: &Arc<dyn Medium>) -> Arc<dyn Medium> {
    let mut bytes = vec![0; usize::try_from(medium.len()).unwrap()];
    medium.read(0, &mut bytes).unwrap();
    let copy = in_memory(medium.len() / MEMBER_LEN);
    copy.place(0, &bytes).unwrap();
    copy
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

#[test]
fn an_opening_with_fewer_members_than_the_fewest_in_sync_is_refused() {
    let (medium, log, _) = mirrored(3);
    log.append_commit(b"at all").unwrap();
    drop(log);
    drop(TailLog::open(some(&medium, &[0, 1]), &OpenOptions::default()).unwrap());
    let alone = TailLog::open(some(&medium, &[0]), &OpenOptions::default()).unwrap_err();
    assert!(matches!(alone, LogError::TooFew { here: 1, least: 2 }), "{alone}");
    // A strict mirror goes on with both or not at all.
    let medium = in_memory(2);
    let strict = CreateOptions { least_in_sync: Some(2), ..CreateOptions::default() };
    drop(TailLog::create(some(&medium, &[0, 1]), &strict).unwrap());
    for one in [0, 1] {
        let alone = TailLog::open(some(&medium, &[one]), &OpenOptions::default()).unwrap_err();
        assert!(matches!(alone, LogError::TooFew { here: 1, least: 2 }), "{alone}");
    }
    drop(TailLog::open(some(&medium, &[0, 1]), &OpenOptions::default()).unwrap());
}

#[test]
fn a_member_in_sync_and_one_that_catches_up_are_enough() {
    let (medium, log, switches) = mirrored(3);
    switches[2].store(true, Ordering::Relaxed);
    log.append_commit(b"at two").unwrap();
    drop(log);
    let log = TailLog::open(some(&medium, &[0, 2]), &OpenOptions::default()).unwrap();
    assert_eq!(log.status().in_sync, MemberSet::of(&[0, 2]));
    log.append_commit(b"at the first and the last").unwrap();
    drop(log);
    let log = TailLog::open(some(&medium, &[1, 2]), &OpenOptions::default()).unwrap();
    assert_eq!(records(&log).len(), 2);
}

#[test]
fn members_that_are_left_are_enough_once_the_others_are_given_up() {
    let (medium, log, _) = mirrored(3);
    log.append_commit(b"at all").unwrap();
    drop(log);
    let options = OpenOptions { given_up: MemberSet::of(&[1, 2]), ..OpenOptions::default() };
    let log = TailLog::open(some(&medium, &[0]), &options).unwrap();
    log.append_commit(b"at the first alone").unwrap();
    drop(log);
    // The label says so: nobody has to say it again.
    let log = TailLog::open(some(&medium, &[0]), &OpenOptions::default()).unwrap();
    assert_eq!(records(&log).len(), 2);
}

/// Any order of openings with any members, each with a record: what was acknowledged is in every later opening.
#[test]
fn a_record_that_some_members_acknowledged_is_in_every_later_opening() {
    let subsets: [&[u64]; 7] = [&[0], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]];
    for least in [2, 3] {
        for order in 0..7_usize.pow(4) {
            let medium = in_memory(3);
            let options = CreateOptions { least_in_sync: Some(least), ..CreateOptions::default() };
            drop(TailLog::create(some(&medium, &[0, 1, 2]), &options).unwrap());
            let mut acknowledged = Vec::new();
            for step in 0..4 {
                let members = subsets[order / 7_usize.pow(step) % 7];
                let Ok(log) = TailLog::open(some(&medium, members), &OpenOptions::default()) else {
                    continue;
                };
                assert_eq!(records(&log), acknowledged, "least {least}, order {order}");
                let record = vec![u8::try_from(step).unwrap()];
                acknowledged.push((log.append_commit(&record).unwrap(), record));
            }
        }
    }
}
