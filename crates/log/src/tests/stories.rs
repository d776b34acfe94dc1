//! One member: records, rings, room, seals, bad memory.

use std::sync::Arc;

use super::memory::{MEMBER_LEN, create, in_memory, open, parts, records};
use crate::format::{Header, Kind};
use crate::store::LocalStore;
use crate::{CreateOptions, LabelError, LogError, Lsn, MasterKey, OpenOptions, TailLog};

#[test]
fn committed_records_are_there_when_the_log_is_opened_again() {
    let medium = in_memory(1);
    let log = create(&medium);
    let first = log.append(b"one").unwrap();
    let second = log.append_commit(&[2; 200]).unwrap();
    assert_eq!(log.durable_lsn(), Lsn(64 + 256));
    drop(log);
    let log = open(&medium);
    assert_eq!(records(&log), [(first, b"one".to_vec()), (second, vec![2; 200])]);
    assert_eq!(log.replay(second).unwrap().count(), 1);
}

#[test]
fn a_record_that_no_commit_took_is_not_in_the_log() {
    let medium = in_memory(1);
    let log = create(&medium);
    log.append(b"staged").unwrap();
    assert_eq!(records(&log), []);
    drop(log);
    assert_eq!(records(&open(&medium)), []);
}

#[test]
fn a_full_log_refuses_records_until_it_is_trimmed() {
    let medium = in_memory(1);
    let log = create(&medium);
    let mut appended = Vec::new();
    let full = loop {
        match log.append_commit(&[1; 32]) {
            Ok(lsn) => appended.push(lsn),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, LogError::Full { kept: 4096, capacity: 4096 }), "{full}");
    assert_eq!(appended.len(), 64);
    log.trim(appended[10]).unwrap();
    for _ in 0..10 {
        log.append_commit(&[2; 32]).unwrap();
    }
    assert!(matches!(log.append(&[2; 32]), Err(LogError::Full { .. })));
    drop(log);
    let found = records(&open(&medium));
    assert_eq!(found.len(), 64);
    assert_eq!(found[0].0, appended[10]);
    assert_eq!(found[63].1, [2; 32]);
}

#[test]
fn a_ring_goes_round_many_times_with_records_of_every_length() {
    let medium = in_memory(1);
    let mut log = create(&medium);
    let mut kept: Vec<(Lsn, Vec<u8>)> = Vec::new();
    for round in 0..300_usize {
        let byte = u8::try_from(round % 251).unwrap();
        let record = vec![byte; round * 7 % log.record_max()];
        while let Err(error) = log.append(&record) {
            assert!(matches!(error, LogError::Full { .. }), "{error}");
            log.commit(kept.last().unwrap().0).unwrap();
            let rest = kept.split_off(kept.len().div_ceil(2));
            log.trim(rest.first().map_or_else(|| log.durable_lsn(), |(lsn, _)| *lsn)).unwrap();
            kept = rest;
        }
        let lsn = log.append_commit(&record);
        // The first of the two was staged; both are records.
        if let Ok(lsn) = lsn {
            let staged = records(&log).into_iter().rev().nth(1).unwrap();
            kept.extend([staged, (lsn, record)]);
        } else {
            let staged = log.status().tail;
            log.commit(Lsn(staged.0 - 64)).unwrap();
            kept.push(records(&log).pop().unwrap());
        }
        if round % 13 == 0 {
            drop(log);
            log = open(&medium);
        }
        assert_eq!(records(&log), kept, "round {round}");
    }
    assert!(log.durable_lsn() > Lsn(10 * 4096), "the ring went round");
}

#[test]
fn an_emptied_log_goes_on_where_it_was() {
    let medium = in_memory(1);
    let log = create(&medium);
    log.append_commit(b"gone").unwrap();
    log.trim(log.durable_lsn()).unwrap();
    drop(log);
    let log = open(&medium);
    assert_eq!(records(&log), []);
    assert_eq!(log.append_commit(b"next").unwrap(), Lsn(64));
    assert_eq!(records(&open(&medium)), [(Lsn(64), b"next".to_vec())]);
}

#[test]
fn a_trim_to_no_record_changes_nothing() {
    let medium = in_memory(1);
    let log = create(&medium);
    log.append_commit(&[1; 300]).unwrap();
    let staged = log.append(b"staged").unwrap();
    for lsn in [Lsn(64), Lsn(staged.0 + 64), Lsn(1 << 40)] {
        assert!(matches!(log.trim(lsn), Err(LogError::NoRecord { .. })), "{lsn}");
        assert!(matches!(log.replay(lsn), Err(LogError::NoRecord { .. })), "{lsn}");
    }
    assert_eq!(records(&log).len(), 1);
}

#[test]
fn writers_of_many_threads_lose_no_record() {
    let medium =
        pmem::anonymous_with(8192 + (1 << 20), pmem::OpenOptions { emulate_persistence: true })
            .unwrap();
    let stores = || vec![Box::new(LocalStore::of_medium(Arc::clone(&medium))) as _];
    let log = TailLog::create(stores(), &CreateOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..8_u8 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..200_u8 {
                    log.append_commit(&[writer, number]).unwrap();
                }
            });
        }
    });
    drop(log);
    let log = TailLog::open(stores(), &OpenOptions::default()).unwrap();
    let mut next = [0_u8; 8];
    for (_, record) in records(&log) {
        let writer = usize::from(record[0]);
        assert_eq!(record[1], next[writer], "writer {writer}");
        next[writer] += 1;
    }
    assert_eq!(next, [200; 8]);
}

#[test]
fn a_sealed_log_opens_with_its_key_alone() {
    let medium = in_memory(1);
    let key = Some(MasterKey([7; 32]));
    let options = CreateOptions { key: key.clone(), ..CreateOptions::default() };
    let log = TailLog::create(parts(&medium), &options).unwrap();
    let lsn = log.append_commit(b"a secret that nobody reads").unwrap();
    assert_eq!(records(&log), [(lsn, b"a secret that nobody reads".to_vec())]);
    drop(log);
    let mut bytes = vec![0; usize::try_from(MEMBER_LEN).unwrap()];
    medium.read(0, &mut bytes).unwrap();
    assert!(!bytes.windows(6).any(|window| window == b"secret"));
    for wrong in [None, Some(MasterKey([8; 32]))] {
        let options = OpenOptions { key: wrong, ..OpenOptions::default() };
        assert!(matches!(TailLog::open(parts(&medium), &options), Err(LogError::ConfigKey)));
    }
    let log =
        TailLog::open(parts(&medium), &OpenOptions { key, ..OpenOptions::default() }).unwrap();
    assert_eq!(records(&log).len(), 1);
}

#[test]
fn a_damaged_durable_record_is_an_error_and_no_early_end() {
    let medium = in_memory(1);
    let log = create(&medium);
    let records: Vec<Lsn> = (0..4).map(|byte| log.append_commit(&[byte; 40]).unwrap()).collect();
    drop(log);
    medium.place(8192 + records[1].0 + 50, &[9]).unwrap();
    let error = TailLog::open(parts(&medium), &OpenOptions::default()).unwrap_err();
    let LogError::Damaged { lsn, durable } = error else { panic!("{error}") };
    assert_eq!((lsn, durable), (records[1], records[3]));
}

#[test]
fn memory_without_a_log_or_with_a_foreign_one_is_refused() {
    let medium = in_memory(2);
    let nothing = TailLog::open(parts(&medium), &OpenOptions::default()).unwrap_err();
    assert!(matches!(nothing, LogError::NoLog { cause: LabelError::NoLabel }), "{nothing}");
    for member in parts(&medium) {
        drop(TailLog::create(vec![member], &CreateOptions::default()).unwrap());
    }
    let foreign = TailLog::open(parts(&medium), &OpenOptions::default()).unwrap_err();
    assert!(matches!(foreign, LogError::Foreign { member: 1 }), "{foreign}");
    let exists = TailLog::create(parts(&medium), &CreateOptions::default()).unwrap_err();
    assert!(matches!(exists, LogError::ConfigExists { member: 0 }), "{exists}");
    let replace = CreateOptions { replace: true, ..CreateOptions::default() };
    assert_eq!(records(&TailLog::create(parts(&medium), &replace).unwrap()), []);
}

#[test]
fn a_log_with_impossible_options_is_not_made() {
    let medium = in_memory(1);
    for capacity in [0, 64, 4097, 8192] {
        let options = CreateOptions { capacity: Some(capacity), ..CreateOptions::default() };
        let refused = TailLog::create(parts(&medium), &options).unwrap_err();
        assert!(matches!(refused, LogError::ConfigCapacity { max: 4096, .. }), "{refused}");
    }
    let none = TailLog::create(Vec::new(), &CreateOptions::default()).unwrap_err();
    assert!(matches!(none, LogError::ConfigMembers { given: 0, .. }), "{none}");
    let log = create(&medium);
    let long = log.append(&[0; 4096]).unwrap_err();
    assert!(matches!(long, LogError::TooLong { len: 4096, .. }), "{long}");
}

#[test]
fn a_log_is_not_made_over_memory_that_holds_something_else() {
    let medium = in_memory(1);
    medium.place(1024, b"a superblock, perhaps").unwrap();
    let refused = TailLog::create(parts(&medium), &CreateOptions::default()).unwrap_err();
    assert!(matches!(refused, LogError::ConfigNotEmpty { member: 0 }), "{refused}");
    let replace = CreateOptions { replace: true, ..CreateOptions::default() };
    TailLog::create(parts(&medium), &replace).unwrap();
}

#[test]
fn a_file_that_holds_something_else_is_left_as_it_is() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("customers.db");
    std::fs::write(&path, b"SQLite format 3\0 and the rest").unwrap();
    let emulated = pmem::OpenOptions { emulate_persistence: true };
    for refused in [
        LocalStore::open(&path, 1 << 20, emulated).map(drop).unwrap_err(),
        crate::DeviceStore::file(&path, 1 << 20).map(drop).unwrap_err(),
    ] {
        assert!(matches!(refused, crate::LocalStoreError::Foreign), "{refused}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"SQLite format 3\0 and the rest");
}

#[test]
fn a_sealed_log_refuses_a_record_that_is_not_sealed() {
    let medium = in_memory(1);
    let key = Some(MasterKey([7; 32]));
    let options = CreateOptions { key: key.clone(), ..CreateOptions::default() };
    let log = TailLog::create(parts(&medium), &options).unwrap();
    let sealed = log.append_commit(b"sealed").unwrap();
    let (at, generation) = (log.durable_lsn(), log.status().generation);
    drop(log);
    // Whoever can write to the memory reads the id and the generation on the label.
    let mut label = [0; 128];
    medium.read(0, &mut label).unwrap();
    let id = label[16..32].try_into().unwrap();
    let header = Header { kind: Kind::Data, length: 6, lsn: at, durable: at, generation };
    medium.place(8192 + at.0, &header.emit(&id, b"forged")).unwrap();
    medium.place(8192 + at.0 + 32, b"forged").unwrap();
    let log =
        TailLog::open(parts(&medium), &OpenOptions { key, ..OpenOptions::default() }).unwrap();
    let found: Vec<_> = log.replay(log.start_lsn()).unwrap().collect();
    assert_eq!(found[0].as_ref().unwrap(), &(sealed, b"sealed".to_vec()));
    assert!(matches!(found[1], Err(LogError::SealBroken { lsn }) if lsn == at));
}

#[test]
fn a_sparse_file_that_is_long_enough_is_reserved_before_it_is_a_log() {
    use std::os::unix::fs::MetadataExt as _;
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, len) = (directory.path().join("tail"), 8192 + (1 << 20));
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(len).unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), 0);
    let emulated = pmem::OpenOptions { emulate_persistence: true };
    let store = LocalStore::open(&path, 8192 + 4096, emulated).unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 >= len, "a full disk would meet a commit");
    TailLog::create(vec![Box::new(store)], &CreateOptions::default()).unwrap();
}
