//! A registration without an engine: what each stage allows, and what its end waits for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pmem::crash::Recorder;
use rdma::{Lkey, PeerOperations};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;

use super::*;
use crate::host::registrar::Later;

/// Registers everything, and deregisters when a test lets it.
#[derive(Debug)]
struct Fake {
    unseen: bool,
    may_deregister: Arc<Semaphore>,
    deregistered: Arc<AtomicU64>,
}

impl Registrar for Fake {
    fn reaches_files(&self) -> bool {
        true
    }

    fn register(
        &self,
        _: PushConnection,
        _: Arc<dyn Medium>,
        range: Range<u64>,
        _: Access,
    ) -> Later<Result<MemoryRegion, HostError>> {
        let (rkey, lkey, offers) = (Rkey(9), Lkey(9), PeerOperations::all());
        let (len, unseen) = (range.end - range.start, self.unseen);
        let region = MemoryRegion { rkey, lkey, remote_addr_base: 0, len, offers, unseen };
        Box::pin(async move { Ok(region) })
    }

    fn deregister(&self, _: PushConnection, rkey: Rkey) -> Later<()> {
        assert_eq!(rkey, Rkey(9));
        let (may, done) = (Arc::clone(&self.may_deregister), Arc::clone(&self.deregistered));
        Box::pin(async move {
            may.acquire().await.unwrap().forget();
            done.fetch_add(1, Ordering::SeqCst);
        })
    }

    fn disconnect(&self, _: PushConnection) {}
}

/// A registration of reason `u8`, and what its registrar waits for and has done.
struct Case {
    registration: Arc<Registration<u8>>,
    may_deregister: Arc<Semaphore>,
    deregistered: Arc<AtomicU64>,
    runtime: Runtime,
}

impl Case {
    fn of(medium: Arc<dyn Medium>, unseen: bool) -> Self {
        let (may_deregister, deregistered) = (Arc::new(Semaphore::new(0)), Arc::default());
        let fake = Fake {
            unseen,
            may_deregister: Arc::clone(&may_deregister),
            deregistered: Arc::clone(&deregistered),
        };
        let registration =
            Arc::new(Registration::new(Arc::new(fake), PushConnection(1), medium, 0..4096));
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        Self { registration, may_deregister, deregistered, runtime }
    }

    fn new() -> Self {
        Self::of(Arc::new(Recorder::pmem(4096)), false)
    }

    fn registered() -> Self {
        let case = Self::new();
        case.register().unwrap();
        case
    }

    fn register(&self) -> Result<MemoryRegion, NotRegistered> {
        let registering = self.registration.register(Access::PUSH, DurabilityClass::Pmem);
        self.runtime.block_on(registering)
    }

    fn stage(&self) -> Stage {
        self.registration.stage().0
    }

    /// Begins an end on a task of its own.
    fn end(&self, last: Arc<AtomicBool>) -> tokio::task::JoinHandle<()> {
        let registration = Arc::clone(&self.registration);
        self.runtime.spawn(async move {
            let runtime = Handle::current();
            registration.end(&runtime, async move { last.store(true, Ordering::SeqCst) }).await;
        })
    }

    /// Lets all tasks go on as far as they can.
    fn turn(&self) {
        self.runtime.block_on(async {
            for _ in 0..16 {
                tokio::task::yield_now().await;
            }
        });
    }
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_weaker_medium_than_was_promised_is_not_registered() {
    let case = Case::of(Arc::new(Recorder::storage(4096)), false);
    let (promised, found) = (DurabilityClass::Pmem, DurabilityClass::Storage);
    assert_eq!(case.register().unwrap_err(), NotRegistered::Class { promised, found });
    assert_eq!(case.stage(), Stage::Registering);
}

#[test]
fn a_region_that_was_recalled_while_it_was_registered_never_becomes_the_peers() {
    let case = Case::new();
    case.may_deregister.add_permits(1);
    let now = Instant::now();
    assert!(!case.registration.is_recalled());
    assert_eq!(case.registration.recall(3, now, HOUR), now + HOUR);
    assert!(case.registration.is_recalled());
    assert_eq!(case.register().unwrap_err(), NotRegistered::Recalled);
    assert_eq!(case.deregistered.load(Ordering::SeqCst), 1);
    assert_eq!(case.registration.stage(), (Stage::Ending, Some(3)));
    assert!(case.registration.begin_commit().is_none());
}

#[test]
fn of_two_recalls_the_first_reason_and_the_earlier_time_count() {
    let case = Case::registered();
    let now = Instant::now();
    assert_eq!(case.registration.stage(), (Stage::Active, None));
    assert_eq!(case.registration.recall(1, now, HOUR), now + HOUR);
    assert_eq!(case.registration.recall(2, now, 2 * HOUR), now + HOUR);
    assert_eq!(case.registration.recall(2, now, HOUR / 2), now + HOUR / 2);
    assert_eq!(case.registration.stage(), (Stage::Recalling, Some(1)));
    let later = now + HOUR / 4;
    assert_eq!(case.registration.take_report(later), Some((1, HOUR / 4)));
    assert_eq!(case.registration.take_report(later), None, "it is reported once");
}

#[test]
fn a_region_that_ends_has_no_time_left_to_report() {
    let case = Case::registered();
    let now = Instant::now();
    assert_eq!(case.registration.take_report(now), None, "nobody has recalled it");
    case.registration.recall(1, now, HOUR);
    let end = case.end(Arc::default());
    case.turn();
    assert_eq!(case.registration.take_report(now), Some((1, Duration::ZERO)));
    case.may_deregister.add_permits(1);
    case.runtime.block_on(end).unwrap();
}

#[test]
fn an_end_waits_for_the_engine_then_for_the_last_commit_then_for_what_the_program_does() {
    let case = Case::registered();
    let first = case.registration.begin_commit().unwrap();
    let second = case.registration.begin_commit().unwrap();
    assert_eq!(case.registration.commits(), 2);
    let last = Arc::new(AtomicBool::new(false));
    let end = case.end(Arc::clone(&last));
    case.turn();
    assert_eq!(case.stage(), Stage::Ending);
    assert!(case.registration.begin_commit().is_none(), "it is being revoked");
    assert_eq!(case.registration.commits(), 2);
    case.may_deregister.add_permits(1);
    case.turn();
    assert_eq!(case.deregistered.load(Ordering::SeqCst), 1);
    drop(first);
    case.turn();
    assert!(!last.load(Ordering::SeqCst) && !end.is_finished(), "a commit is under way");
    drop(second);
    case.runtime.block_on(end).unwrap();
    assert!(last.load(Ordering::SeqCst));
    assert_eq!(case.stage(), Stage::Ended);
}

#[test]
fn a_second_end_waits_for_the_first_and_a_third_for_nothing() {
    let case = Case::registered();
    let first = case.end(Arc::default());
    case.turn();
    let unused = Arc::new(AtomicBool::new(false));
    let second = case.end(Arc::clone(&unused));
    case.turn();
    assert!(!first.is_finished() && !second.is_finished());
    case.may_deregister.add_permits(1);
    case.runtime.block_on(async { (first.await.unwrap(), second.await.unwrap()) });
    case.runtime.block_on(case.end(Arc::clone(&unused))).unwrap();
    assert_eq!(case.deregistered.load(Ordering::SeqCst), 1, "by the first alone");
    assert!(!unused.load(Ordering::SeqCst), "what the first caller gave is done, and no other");
}

#[test]
fn a_recalled_region_may_commit_until_it_is_given_back() {
    let case = Case::registered();
    let now = Instant::now();
    case.registration.recall(1, now, HOUR);
    drop(case.registration.begin_commit().expect("a last commit"));
    let given_back = |deadline| case.runtime.block_on(case.registration.is_given_back_by(deadline));
    assert!(!given_back(now), "the time is over");
    case.registration.set_ended();
    assert!(given_back(now + HOUR));
    assert!(case.registration.is_recalled(), "whoever ended it");
    case.runtime.block_on(case.registration.wait_ended());
}

#[test]
fn bytes_that_a_device_placed_are_written_back_before_a_commit_counts() {
    for unseen in [false, true] {
        let recorder = Arc::new(Recorder::pmem(4096));
        let case = Case::of(Arc::clone(&recorder) as _, unseen);
        case.register().unwrap();
        assert_eq!(case.registration.is_unseen(), unseen);
        let before = recorder.position();
        case.registration.persist(0, 256).unwrap();
        let events = recorder.log().events.split_off(before);
        let is_write_back =
            |event: &&pmem::crash::Event| matches!(event, pmem::crash::Event::WriteBack { .. });
        let lines = events.iter().filter(is_write_back).count();
        assert_eq!(lines, if unseen { 4 } else { 0 }, "of 256 bytes");
    }
}
