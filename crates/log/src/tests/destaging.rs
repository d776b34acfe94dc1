//! Destaging: what goes to the archive, what the tail keeps, and who waits for whom.

use std::sync::Arc;

use block::MemoryDevice;

use super::memory::{Part, create, in_memory, open, records};
use crate::store::{DeviceStore, Store};
use crate::{Archive, CreateOptions, DestageOptions, Destager, LogError, Lsn, MasterKey, TailLog};

fn disk(len: u64) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::anonymous(len).unwrap())
}

fn on(disk: &Arc<MemoryDevice>) -> Box<dyn Store> {
    Box::new(DeviceStore::new(Arc::clone(disk) as _))
}

/// A ring of 16 KiB in memory.
fn tail() -> (Arc<dyn pmem::Medium>, Arc<TailLog>) {
    let emulated = pmem::OpenOptions { emulate_persistence: true };
    let medium = pmem::anonymous_with(8192 + (16 << 10), emulated).unwrap();
    let log = Arc::new(TailLog::create(whole(&medium), &CreateOptions::default()).unwrap());
    (medium, log)
}

fn whole(medium: &Arc<dyn pmem::Medium>) -> Vec<Box<dyn Store>> {
    vec![Box::new(crate::LocalStore::of_medium(Arc::clone(medium)))]
}

fn reopened(medium: &Arc<dyn pmem::Medium>) -> Arc<TailLog> {
    Arc::new(TailLog::open(whole(medium), &crate::OpenOptions::default()).unwrap())
}

fn archived(disk: &Arc<MemoryDevice>) -> Vec<(Lsn, Vec<u8>)> {
    let mut archive = Archive::open(on(disk), None).unwrap();
    let start = archive.start();
    archive.replay(start).map(Result::unwrap).collect()
}

fn record(number: u32) -> Vec<u8> {
    let len = usize::try_from(number % 700).unwrap() + 4;
    let mut bytes = vec![u8::try_from(number % 251).unwrap(); len];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[test]
fn a_full_log_goes_on_once_its_oldest_records_are_destaged() {
    let (medium, log) = tail();
    let disk = disk(8192 + (1 << 20));
    let destager = Destager::start(Arc::clone(&log), on(&disk), DestageOptions::default()).unwrap();
    let mut kept = Vec::new();
    // Some twenty times what the ring holds, also uncommitted, from one thread that never trims.
    for number in 0..900 {
        let lsn = log.append_when_room(&record(number)).unwrap();
        kept.push((lsn, record(number)));
        if number % 7 == 0 {
            log.commit(lsn).unwrap();
        }
    }
    log.commit(kept.last().unwrap().0).unwrap();
    let end = destager.drain().unwrap();
    assert_eq!(end, log.durable_lsn());
    assert_eq!(destager.status().lag, 0);
    drop(destager);
    assert_eq!(archived(&disk), kept);
    // What is destaged is gone from the tail, also after the next opening.
    drop(log);
    assert_eq!(records(&reopened(&medium)), []);
}

#[test]
fn full_blocks_alone_are_destaged_while_nobody_waits() {
    let (_, log) = tail();
    let disk = disk(8192 + (64 << 10));
    let options = DestageOptions { batch: Some(4096) };
    let destager = Destager::start(Arc::clone(&log), on(&disk), options).unwrap();
    for number in 0..30 {
        log.append_commit(&[number; 200]).unwrap();
    }
    // 30 records of 256 bytes: one full block and most of a second one.
    while destager.status().destaged < Lsn(4096) {
        std::thread::yield_now();
    }
    assert_eq!(destager.status().destaged, Lsn(4096));
    assert_eq!(log.start_lsn(), Lsn(4096), "records that are in the archive in part stay");
    let tail = records(&log);
    assert_eq!(archived_by(&destager).len() + tail.len(), 30);
}

fn archived_by(destager: &Destager) -> Vec<(Lsn, Vec<u8>)> {
    destager.archived().unwrap()
}

#[test]
fn a_next_destager_continues_where_the_last_one_ended() {
    let (medium, log) = tail();
    let disk = disk(8192 + (1 << 20));
    let mut kept = Vec::new();
    let mut log = log;
    for life in 0..6 {
        let options = DestageOptions::default();
        let destager = Destager::start(Arc::clone(&log), on(&disk), options).unwrap();
        let refused = Destager::start(Arc::clone(&log), on(&disk), options).unwrap_err();
        assert!(matches!(refused, LogError::ConfigDestaged), "{refused}");
        for number in 0..100 {
            let bytes = record(life * 100 + number);
            kept.push((log.append_when_room(&bytes).unwrap(), bytes));
        }
        log.commit(kept.last().unwrap().0).unwrap();
        if life % 2 == 0 {
            destager.drain().unwrap();
        }
        drop(destager);
        drop(log);
        log = reopened(&medium);
    }
    let start = log.start_lsn();
    let mut found: Vec<_> = archived(&disk).into_iter().filter(|(lsn, _)| *lsn < start).collect();
    found.extend(records(&log));
    assert_eq!(found, kept);
}

#[test]
fn a_writer_hears_that_the_archive_is_full_and_goes_on_after_it_forgets() {
    let (_, log) = tail();
    let disk = disk(8192 + (32 << 10));
    let destager = Destager::start(Arc::clone(&log), on(&disk), DestageOptions::default()).unwrap();
    let mut kept = Vec::new();
    let full = loop {
        match log.append_when_room(&[7; 900]) {
            Ok(lsn) => kept.push(lsn),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, LogError::ArchiveFull), "{full}");
    assert!(kept.len() * 960 > 40 << 10, "archive and tail are full: {}", kept.len());
    assert!(matches!(destager.forget(kept[10].plus(64)), Err(LogError::NoRecord { .. })));
    destager.forget(kept[20]).unwrap();
    let next = log.append_when_room(&[8; 900]).unwrap();
    log.commit(next).unwrap();
    destager.drain().unwrap();
    let found: Vec<Lsn> = archived_by(&destager).into_iter().map(|(lsn, _)| lsn).collect();
    assert_eq!(found[..], [&kept[20..], &[next]].concat());
}

#[test]
fn an_archive_that_does_not_fit_its_log_is_refused() {
    let medium = in_memory(2);
    let log =
        Arc::new(TailLog::create(vec![Part::of(&medium, 0).0], &CreateOptions::default()).unwrap());
    let start = |log: &Arc<TailLog>, disk| {
        Destager::start(Arc::clone(log), on(disk), DestageOptions::default())
    };
    let small = disk(8192);
    let refused = start(&log, &small).unwrap_err();
    assert!(matches!(refused, LogError::ConfigCapacity { .. }), "{refused}");
    // An archive that was left behind while the log was trimmed without it.
    let one = disk(8192 + 8192);
    drop(start(&log, &one).unwrap());
    log.append_commit(b"trimmed").unwrap();
    log.trim(log.durable_lsn()).unwrap();
    let refused = start(&log, &one).unwrap_err();
    assert!(matches!(refused, LogError::ArchiveGap { .. }), "{refused}");
    // The archive of another log, and the other way round: an archive is no member.
    let other =
        Arc::new(TailLog::create(vec![Part::of(&medium, 1).0], &CreateOptions::default()).unwrap());
    let refused = start(&other, &one).unwrap_err();
    assert!(matches!(refused, LogError::Foreign { .. }), "{refused}");
    let refused = TailLog::open(vec![on(&one)], &crate::OpenOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("archive"), "{refused}");
    let refused = Archive::open(Part::of(&medium, 1).0, None).unwrap_err();
    assert!(refused.to_string().contains("member"), "{refused}");
}

#[test]
fn an_archive_with_records_that_the_log_lost_is_refused() {
    let medium = in_memory(1);
    let log = Arc::new(create(&medium));
    let disk = disk(8192 + (64 << 10));
    let mut before = vec![0; 12 << 10];
    medium.read(0, &mut before).unwrap();
    log.append_commit(b"destaged").unwrap();
    let destager = Destager::start(Arc::clone(&log), on(&disk), DestageOptions::default()).unwrap();
    destager.drain().unwrap();
    drop((destager, log));
    // The member comes back as it was, and the log goes on: other records get the same addresses.
    medium.place(0, &before).unwrap();
    let log = Arc::new(open(&medium));
    let ahead = || Destager::start(Arc::clone(&log), on(&disk), DestageOptions::default());
    assert!(matches!(ahead(), Err(LogError::ArchiveAhead { .. })));
    log.append_commit(b"of another history").unwrap();
    assert!(matches!(ahead(), Err(LogError::ArchiveAhead { .. })));
}

#[test]
fn a_sealed_log_is_sealed_in_its_archive() {
    let medium = in_memory(1);
    let key = MasterKey([7; 32]);
    let options = CreateOptions { key: Some(key.clone()), ..CreateOptions::default() };
    let log = Arc::new(TailLog::create(vec![Part::of(&medium, 0).0], &options).unwrap());
    let disk = disk(8192 + 8192);
    let destager = Destager::start(Arc::clone(&log), on(&disk), DestageOptions::default()).unwrap();
    let lsn = log.append_commit(b"a secret that nobody reads").unwrap();
    destager.drain().unwrap();
    drop(destager);
    let mut bytes = vec![0; 16 << 10];
    on(&disk).read(0, &mut bytes).unwrap();
    assert!(!bytes.windows(6).any(|window| window == b"secret"));
    assert!(matches!(Archive::open(on(&disk), None), Err(LogError::ConfigKey)));
    let mut archive = Archive::open(on(&disk), Some(&key)).unwrap();
    let found: Vec<_> = archive.replay(Lsn::FIRST).map(Result::unwrap).collect();
    assert_eq!(found, [(lsn, b"a secret that nobody reads".to_vec())]);
}
