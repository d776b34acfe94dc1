//! What ends a log, or must not: builders that panic, members that fail while the set changes, waits that nobody ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use pmem::DurabilityClass;

use super::behaving::{Behaving, Behaviour};
use super::memory::{MEMBER_LEN, Part, create, in_memory, open, records};
use crate::format::RING_START;
use crate::store::{Store, StoreError, Worth};
use crate::{CreateOptions, DestageOptions, Destager, LogError, Lsn, TailLog};

#[test]
fn a_record_whose_builder_panics_leaves_no_hole_in_the_log() {
    let medium = in_memory(1);
    let log = create(&medium);
    let panics = || log.append_with(100, |_| panic!("the caller's"));
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    let lsn = log.append_commit(b"acknowledged").unwrap();
    drop(log);
    assert_eq!(records(&open(&medium)), [(lsn, b"acknowledged".to_vec())]);
}

#[test]
fn a_log_without_members_acknowledges_nothing() {
    let medium = in_memory(2);
    let (stores, switches): (Vec<_>, Vec<_>) = (0..2).map(|one| Part::of(&medium, one)).unzip();
    let log = TailLog::create(stores, &CreateOptions::default()).unwrap();
    switches[1].store(true, Ordering::Relaxed);
    // The other one is to go, and the one that would be left cannot note it.
    let error = log.remove_member(0).unwrap_err();
    assert!(matches!(error, LogError::Store { member: 1, .. }), "{error}");
    assert!(matches!(log.append_commit(b"nowhere"), Err(LogError::Broken)));
    assert!(matches!(log.trim(log.durable_lsn().plus(64)), Err(LogError::NoRecord { .. })));
}

#[test]
fn a_writer_that_waits_for_room_hears_that_the_log_broke() {
    let medium = in_memory(1);
    let (store, switch) = Part::of(&medium, 0);
    let log = TailLog::create(vec![store], &CreateOptions::default()).unwrap();
    for _ in 0..4 {
        log.append_commit(&[1; 900]).unwrap();
    }
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| log.wait_for_room(900));
        while log.gates().lock().wanting_room == 0 {
            std::thread::yield_now();
        }
        switch.store(true, Ordering::Relaxed);
        log.trim(log.durable_lsn()).unwrap_err();
        assert!(matches!(waits.join().unwrap(), Err(LogError::Broken)));
    });
}

#[test]
fn an_address_that_no_record_has_is_not_committed() {
    let log = create(&in_memory(1));
    log.append_commit(b"one").unwrap();
    for lsn in [Lsn(64), Lsn(u64::MAX)] {
        assert!(matches!(log.commit(lsn), Err(LogError::NoRecord { .. })), "{lsn}");
    }
}

/// A member that says that it lies on a disk.
#[derive(Debug)]
struct OnDisk;

impl Behaviour for OnDisk {
    fn worth(&self, below: &dyn Store) -> Worth {
        Worth { class: DurabilityClass::Storage, ..below.worth() }
    }
}

#[test]
fn commits_keep_to_sectors_from_when_a_member_on_a_disk_joins() {
    let medium = in_memory(2);
    let log = TailLog::create(vec![Part::of(&medium, 0).0], &CreateOptions::default()).unwrap();
    log.append_commit(b"in memory").unwrap();
    log.trim(Lsn(64)).unwrap();
    // What is staged fills the ring in lines of 64 bytes: the last sector cannot be filled up.
    let kept: Vec<Lsn> = (0..64).map(|_| log.append(&[7; 8]).unwrap()).collect();
    log.add_member(Box::new(Behaving(Part::of(&medium, 1).0, OnDisk))).unwrap();
    log.commit(kept[63]).unwrap();
    assert_eq!(log.durable_lsn(), Lsn(64 + MEMBER_LEN - 8192));
    assert_eq!(records(&log).len(), 64);
    log.trim(log.durable_lsn()).unwrap();
    for _ in 0..3 {
        log.append_commit(b"in sectors").unwrap();
        assert_eq!(log.durable_lsn().0 % 512, 0);
    }
    drop(log);
    assert_eq!(records(&open(&medium)).len(), 3);
}

#[test]
fn a_writer_hears_that_the_destager_has_ended() {
    let medium = in_memory(2);
    let log = TailLog::create(vec![Part::of(&medium, 0).0], &CreateOptions::default()).unwrap();
    let log = Arc::new(log);
    let archive = Part::of(&medium, 1).0;
    drop(Destager::start(Arc::clone(&log), archive, DestageOptions::default()).unwrap());
    while log.append(&[1; 900]).is_ok() {}
    let ended = log.append_when_room(&[1; 900]).unwrap_err();
    assert!(matches!(ended, LogError::DestagerEnded), "{ended}");
    log.trim(log.durable_lsn()).unwrap();
    log.append_when_room(&[1; 900]).unwrap();
}

/// A task that its executor has let go of: its waker holds the last of it, and its future names the gates.
struct LastOfATask(Arc<TailLog>);

impl Wake for LastOfATask {
    fn wake(self: Arc<Self>) {}
}

impl Drop for LastOfATask {
    fn drop(&mut self) {
        self.0.gates().forget(7);
    }
}

#[test]
fn a_waker_that_drops_the_last_of_its_task_ends_no_commit() {
    let log = Arc::new(create(&in_memory(1)));
    let waker = Waker::from(Arc::new(LastOfATask(Arc::clone(&log))));
    log.gates().wake_later(&mut log.gates().lock(), 7, &waker);
    drop(waker);
    log.append_commit(b"one").unwrap();
    assert_eq!(log.gates().lock().tasks(), 0);
}

/// Panics at the first change in the ring, or of a label, from when it is told to.
#[derive(Debug)]
struct PanicsAt(std::ops::Range<u64>, Arc<AtomicBool>);

impl Behaviour for PanicsAt {
    fn place(&mut self, below: &mut dyn Store, at: u64, bytes: &[u8]) -> Result<(), StoreError> {
        assert!(!(self.0.contains(&at) && self.1.load(Ordering::Relaxed)), "planned");
        below.place(at, bytes)
    }
}

#[test]
fn a_thread_that_panics_for_all_ends_the_log_for_those_behind_it() {
    type Act = fn(&TailLog);
    let leads: Act = |log| drop(log.append(b"never there").and_then(|lsn| log.commit(lsn)));
    let trims: Act = |log| drop(log.trim(log.durable_lsn()));
    let removes: Act = |log| drop(log.remove_member(1));
    for (range, act) in
        [(RING_START..u64::MAX, leads), (0..RING_START, trims), (0..RING_START, removes)]
    {
        let (medium, is_time) = (in_memory(2), Arc::new(AtomicBool::new(false)));
        let stores = (0..2).map(|one| {
            let behaviour = PanicsAt(range.clone(), Arc::clone(&is_time));
            Box::new(Behaving(Part::of(&medium, one).0, behaviour)) as Box<dyn Store>
        });
        let options = CreateOptions { least_in_sync: Some(1), ..CreateOptions::default() };
        let log = TailLog::create(stores.collect(), &options).unwrap();
        log.append_commit(b"acknowledged").unwrap();
        is_time.store(true, Ordering::Relaxed);
        catch_unwind(AssertUnwindSafe(|| act(&log))).unwrap_err();
        is_time.store(false, Ordering::Relaxed);
        assert!(log.is_broken());
        assert!(matches!(log.append_commit(b"refused"), Err(LogError::Broken)));
    }
}
