//! Labels that were damaged or put back after they were durable: the log opens with every record, or not at all.

use std::sync::Arc;

use pmem::Medium;

use super::behaving::{Behaving, Behaviour};
use super::memory::{Part, create, in_memory, open, parts, records};
use crate::format::SLOT_LEN;
use crate::planted::Planted;
use crate::store::{Store, StoreError};
use crate::{CreateOptions, LogError, Lsn, MemberSet, OpenOptions, TailLog};

fn bytes_of(medium: &Arc<dyn Medium>) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(medium.len()).unwrap()];
    medium.read(0, &mut bytes).unwrap();
    bytes
}

fn copy_of(bytes: &[u8], members: u64) -> Arc<dyn Medium> {
    let copy = in_memory(members);
    copy.place(0, bytes).unwrap();
    copy
}

/// What a log has after either copy of its labels was damaged, for logs after each of a few steps.
fn after_damage_of_either_copy() -> Result<(), String> {
    let medium = in_memory(1);
    let mut log = create(&medium);
    for step in 0..24_u8 {
        match step % 4 {
            0 => log.append_commit(&[step; 700]).map(drop).unwrap(),
            1 => log.append_commit(&[step; 200]).map(drop).unwrap(),
            2 => log.trim(log.durable_lsn()).unwrap(),
            _ => {
                drop(log);
                log = open(&medium);
            }
        }
        let before = bytes_of(&medium);
        for (slot, at) in [(0, 0), (SLOT_LEN, 0), (0, 33), (SLOT_LEN, 33), (0, 60), (SLOT_LEN, 60)]
        {
            let copy = copy_of(&before, 1);
            copy.place(slot + at, &[before[usize::try_from(slot + at).unwrap()] ^ 1]).unwrap();
            let opened = TailLog::open(parts(&copy), &OpenOptions::default());
            let opened = opened.map_err(|error| format!("step {step}, {slot}: {error}"))?;
            if records(&opened) != records(&log) || opened.start_lsn() != log.start_lsn() {
                return Err(format!("step {step}, {slot}: other records"));
            }
            let next = opened.append_commit(b"the next").unwrap();
            drop(opened);
            let again = TailLog::open(parts(&copy), &OpenOptions::default());
            let again = again.map_err(|error| format!("step {step}, {slot}, again: {error}"))?;
            if records(&again).last() != Some(&(next, b"the next".to_vec())) {
                return Err(format!("step {step}, {slot}: the next record is not there"));
            }
        }
    }
    Ok(())
}

#[test]
fn a_damaged_label_copy_costs_no_record() {
    after_damage_of_either_copy().unwrap();
}

#[test]
fn a_log_with_one_copy_of_its_label_is_found() {
    Planted::LabelsOnce.during(after_damage_of_either_copy).unwrap_err();
}

/// Both labels of an earlier moment in the memory of a later one.
fn put_back(earlier: &[u8], medium: &Arc<dyn Medium>) {
    for slot in [0, SLOT_LEN] {
        let at = usize::try_from(slot).unwrap();
        medium.place(slot, &earlier[at..at + 128]).unwrap();
    }
}

fn is_refused(medium: &Arc<dyn Medium>) {
    let before = bytes_of(medium);
    let refused = TailLog::open(parts(medium), &OpenOptions::default()).unwrap_err();
    assert!(matches!(refused, LogError::LabelLost { .. }), "{refused}");
    assert_eq!(bytes_of(medium), before, "nothing is written");
}

#[test]
fn a_log_whose_labels_are_of_an_earlier_opening_is_refused() {
    let medium = in_memory(1);
    drop(create(&medium));
    let earlier = bytes_of(&medium);
    let log = open(&medium);
    log.append_commit(b"of the later opening").unwrap();
    drop(log);
    put_back(&earlier, &medium);
    is_refused(&medium);
}

#[test]
fn a_log_whose_labels_are_of_before_a_lap_is_refused() {
    let medium = in_memory(1);
    let log = create(&medium);
    let earlier = bytes_of(&medium);
    for _ in 0..3 {
        for _ in 0..4 {
            log.append_commit(&[5; 900]).unwrap();
        }
        log.trim(log.durable_lsn()).unwrap();
    }
    log.append_commit(b"of a later lap").unwrap();
    drop(log);
    put_back(&earlier, &medium);
    is_refused(&medium);
}

#[test]
fn what_a_newcomer_had_of_the_same_log_never_counts() {
    let medium = in_memory(2);
    let both = TailLog::create(parts(&medium), &CreateOptions::default()).unwrap();
    both.append_commit(b"at both").unwrap();
    drop(both);
    let alone = |number: u64| {
        let others = MemberSet::of(&[0, 1]).without(usize::try_from(number).unwrap());
        let options = OpenOptions { given_up: others, ..OpenOptions::default() };
        TailLog::open(vec![Part::of(&medium, number).0], &options).unwrap()
    };
    // Each goes on without the other, against the rules: one generation, other records.
    let strayed = alone(1);
    for _ in 0..8 {
        strayed.append_commit(b"strayed").unwrap();
    }
    drop(strayed);
    let log = alone(0);
    let store: Box<dyn Store> = Part::of(&medium, 1).0;
    log.add_member(store).unwrap();
    drop(log);
    let log = open(&medium);
    assert_eq!(records(&log), [(Lsn(0), b"at both".to_vec())]);
}

#[test]
fn a_label_of_the_last_generation_is_refused_before_a_record_is_taken() {
    use crate::format::Label;
    use crate::lsn::Generation;
    let medium = in_memory(1);
    drop(create(&medium));
    let bytes = bytes_of(&medium);
    let label = Label::parse(bytes.first_chunk().unwrap()).unwrap();
    let last = Label { generation: Generation(u32::MAX - 1), sequence: 8, ..label };
    medium.place(0, &last.emit()).unwrap();
    let refused = TailLog::open(parts(&medium), &OpenOptions::default()).unwrap_err();
    assert!(matches!(refused, LogError::NoLog { .. }), "{refused}");
}

/// A store that cannot read some of its places until they are written again.
#[derive(Debug)]
struct Unreadable(Vec<u64>);

impl Behaviour for Unreadable {
    fn read(&mut self, below: &mut dyn Store, at: u64, out: &mut [u8]) -> Result<(), StoreError> {
        if self.0.contains(&at) {
            return Err(StoreError::new(pmem::MediumError::MediaIo(5)));
        }
        below.read(at, out)
    }

    fn place(&mut self, below: &mut dyn Store, at: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.0.retain(|place| *place != at);
        below.place(at, bytes)
    }
}

#[test]
fn a_log_opens_with_either_label_unreadable_and_not_with_both() {
    let medium = in_memory(1);
    let log = create(&medium);
    log.append_commit(b"trimmed").unwrap();
    log.trim(log.durable_lsn()).unwrap();
    log.append_commit(b"kept").unwrap();
    let expected = records(&log);
    drop(log);
    let open = |places: &[u64]| {
        let store = Behaving(Part::of(&medium, 0).0, Unreadable(places.to_vec()));
        TailLog::open(vec![Box::new(store)], &OpenOptions::default())
    };
    for slot in [0, SLOT_LEN] {
        assert_eq!(records(&open(&[slot]).unwrap()), expected, "without the label at {slot}");
    }
    let refused = open(&[0, SLOT_LEN]).unwrap_err();
    assert!(matches!(refused, LogError::Store { member: 0, .. }), "{refused}");
}
