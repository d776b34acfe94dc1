//! Threads that place their records side by side, on memory that fails under several of them at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use pmem::{AtomicOp, DurabilityClass, Medium, MediumError, StoreGranularity};

use super::behaving::{Behaving, Behaviour};
use super::memory::{MEMBER_LEN, Part, in_memory, open, parts, records};
use crate::format::RING_START;
use crate::store::{Store, StoreError};
use crate::{CreateOptions, LocalStore, LogError, TailLog};

/// Memory of which some calls fail.
#[derive(Debug)]
struct Fails {
    memory: Arc<dyn Medium>,
    /// Placements in the ring fail, each when the other thread's does.
    together: Option<Barrier>,
    in_ring: AtomicBool,
    in_labels: AtomicBool,
    /// Placements in the ring that fail from this one on, each with a panic if `panics`.
    left: AtomicU64,
    panics: Option<Barrier>,
}

impl Fails {
    fn of(memory: &Arc<dyn Medium>) -> Self {
        Self {
            memory: Arc::clone(memory),
            together: None,
            in_ring: AtomicBool::new(false),
            in_labels: AtomicBool::new(false),
            left: AtomicU64::new(u64::MAX),
            panics: None,
        }
    }

    /// A log on this memory alone.
    fn log(self) -> (Arc<Self>, TailLog) {
        let fails = Arc::new(self);
        let medium = Arc::clone(&fails) as Arc<dyn Medium>;
        let member: Vec<Box<dyn Store>> = vec![Box::new(LocalStore::of_medium(medium))];
        (fails, TailLog::create(member, &CreateOptions::default()).unwrap())
    }

    fn check(&self, offset: u64, len: usize) -> Result<(), MediumError> {
        if offset < RING_START && self.in_labels.load(Ordering::Relaxed) {
            return Err(MediumError::MediaIo(5));
        }
        if offset < RING_START || len == 0 || !self.in_ring.load(Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(panics) = &self.panics {
            panics.wait();
            panics.wait();
            panic!("planned");
        }
        if let Some(together) = &self.together {
            together.wait();
            return Err(MediumError::MediaIo(5));
        }
        match self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
        {
            Ok(_) => Ok(()),
            Err(_) => Err(MediumError::MediaIo(5)),
        }
    }
}

impl Medium for Fails {
    fn class(&self) -> DurabilityClass {
        self.memory.class()
    }

    fn store_granularity(&self) -> StoreGranularity {
        self.memory.store_granularity()
    }

    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn is_emulated(&self) -> bool {
        self.memory.is_emulated()
    }

    fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.check(offset, bytes.len())?;
        self.memory.try_place(offset, bytes)
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.memory.try_read(offset, out)
    }

    fn try_persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.memory.try_persist(offset, len)
    }

    fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.memory.try_atomic(offset, op)
    }

    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.check(offset, bytes.len())?;
        self.memory.place(offset, bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.memory.read(offset, out)
    }

    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.memory.persist(offset, len)
    }

    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.memory.atomic(offset, op)
    }

    fn prepare(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.memory.prepare(offset, len)
    }
}

#[test]
fn threads_whose_memory_fails_at_once_all_get_an_error() {
    let memory = in_memory(1);
    let (fails, log) = Fails { together: Some(Barrier::new(2)), ..Fails::of(&memory) }.log();
    log.append_commit(b"acknowledged").unwrap();
    fails.in_ring.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let one = || scope.spawn(|| log.append_commit(b"refused").map(drop));
        for thread in [one(), one()] {
            let refused = thread.join().expect("no panic").unwrap_err();
            assert!(matches!(refused, LogError::Store { member: 0, .. } | LogError::Broken));
        }
    });
    assert!(log.is_broken());
    assert_eq!(log.status().failed.len(), 1);
    drop(log);
    assert_eq!(records(&open(&memory)).len(), 1);
}

#[test]
fn a_thread_that_panics_with_room_ends_the_log_for_those_behind_it() {
    let memory = in_memory(1);
    let (fails, log) = Fails { panics: Some(Barrier::new(2)), ..Fails::of(&memory) }.log();
    fails.in_ring.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let panics = scope.spawn(|| log.append_commit(b"never there").map(drop));
        let meet = fails.panics.as_ref().unwrap();
        meet.wait();
        let behind = log.reserve(6).unwrap().unwrap();
        behind.write(&*memory, b"behind").unwrap();
        log.publish(behind.range());
        meet.wait();
        assert!(matches!(log.commit(behind.lsn), Err(LogError::Broken)));
        panics.join().unwrap_err();
    });
    assert!(matches!(log.append_commit(b"refused"), Err(LogError::Broken)));
    drop(log);
    assert!(records(&open(&memory)).is_empty());
}

#[test]
fn a_log_that_a_label_has_ended_acknowledges_nothing_more() {
    let memory = in_memory(1);
    let (fails, log) = Fails::of(&memory).log();
    log.append_commit(b"acknowledged").unwrap();
    fails.in_labels.store(true, Ordering::Relaxed);
    log.trim(log.durable_lsn()).unwrap_err();
    assert!(log.is_broken());
    assert!(matches!(log.append_commit(b"refused"), Err(LogError::Broken)));
}

#[test]
fn a_log_that_ended_in_one_way_refuses_records_in_the_other() {
    for is_staged_first in [true, false] {
        let memory = in_memory(1);
        let (fails, log) = Fails { left: AtomicU64::new(0), ..Fails::of(&memory) }.log();
        log.append_commit(b"acknowledged").unwrap();
        fails.in_ring.store(true, Ordering::Relaxed);
        let staged = || log.append(b"refused").and_then(|lsn| log.commit(lsn));
        let beside = || log.append_commit(b"refused").map(drop);
        let (first, second) = match is_staged_first {
            true => (staged(), beside()),
            false => (beside(), staged()),
        };
        assert!(matches!(first, Err(LogError::Store { member: 0, .. })));
        assert!(matches!(second, Err(LogError::Broken)));
        log.add_member(Part::range(&in_memory(2), 0, 2 * MEMBER_LEN)).unwrap_err();
        drop(log);
        assert_eq!(records(&open(&memory)).len(), 1);
    }
}

#[test]
fn what_threads_acknowledged_is_there_wherever_their_memory_fails() {
    for fails_at in [0, 1, 7, 40, 90] {
        let memory = in_memory(1);
        let (fails, log) = Fails { left: AtomicU64::new(fails_at), ..Fails::of(&memory) }.log();
        fails.in_ring.store(true, Ordering::Relaxed);
        let acknowledged: Vec<_> = std::thread::scope(|scope| {
            let writer = |writer: u8| {
                let log = &log;
                scope.spawn(move || {
                    let records = (0..8_u8).map(|number| vec![writer, number, 0, 0]);
                    // A record of one line, or of two.
                    let records = records.map(|mut record| {
                        record.resize(if record[1] % 2 == 0 { 20 } else { 90 }, writer);
                        record
                    });
                    records.map_while(|one| Some((log.append_commit(&one).ok()?, one))).collect()
                })
            };
            let threads: Vec<_> = (0..4).map(writer).collect();
            let outcomes = threads.into_iter().map(|one| one.join().expect("no panic"));
            outcomes.collect::<Vec<Vec<_>>>().concat()
        });
        assert!(fails_at > 64 || log.is_broken());
        drop(log);
        let found = records(&open(&memory));
        assert!(acknowledged.iter().all(|one| found.contains(one)), "{fails_at}");
    }
}

/// A store whose first placement waits for that of another.
#[derive(Debug)]
struct Meets(Option<Arc<Barrier>>);

impl Behaviour for Meets {
    fn place(&mut self, below: &mut dyn Store, at: u64, bytes: &[u8]) -> Result<(), StoreError> {
        if let Some(other) = self.0.take() {
            other.wait();
        }
        below.place(at, bytes)
    }
}

#[test]
fn newcomers_that_come_at_once_have_numbers_of_their_own() {
    let memory = in_memory(3);
    assert_eq!(memory.len(), 3 * MEMBER_LEN);
    let log = TailLog::create(vec![Part::of(&memory, 0).0], &CreateOptions::default()).unwrap();
    log.append_commit(b"before").unwrap();
    let meet = Arc::new(Barrier::new(2));
    let numbers: Vec<_> = std::thread::scope(|scope| {
        let comes = |part| {
            let store =
                Box::new(Behaving(Part::of(&memory, part).0, Meets(Some(Arc::clone(&meet)))));
            scope.spawn(|| log.add_member(store).unwrap())
        };
        let threads = [comes(1), comes(2)];
        threads.map(|one| one.join().unwrap()).into()
    });
    assert_eq!(numbers.iter().sum::<usize>(), 3, "{numbers:?}");
    assert_eq!(log.status().in_sync.len(), 3);
    log.append_commit(b"behind").unwrap();
    drop(log);
    assert_eq!(records(&open(&memory)).len(), 2);
    assert_eq!(parts(&memory).len(), 3);
}
