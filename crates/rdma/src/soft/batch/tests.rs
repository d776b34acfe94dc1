//! Tests of which operations count as done when a batch fails half way.

use std::sync::Mutex;

use pmem::{DurabilityClass, StoreGranularity};

use super::*;
use crate::interface::{QpId, WcOpcode};

/// Memory whose flushes end as the test says, and that is shorter than its length claims.
#[derive(Debug)]
struct Scripted {
    persists: Mutex<Vec<Result<(), MediumError>>>,
    /// Offsets and lengths.
    persisted: Mutex<Vec<(u64, u64)>>,
}

const LEN: u64 = 64;
const SHRUNK: Failure = Failure::Medium(MediumError::Truncated);
const LOST: Failure = Failure::Medium(MediumError::MediaIo(5));

impl Scripted {
    /// The first flushes end as in the list, in its order; those after it succeed.
    fn new(persists: &[Result<(), MediumError>]) -> Arc<Self> {
        let persists = Mutex::new(persists.iter().rev().copied().collect());
        Arc::new(Self { persists, persisted: Mutex::default() })
    }

    /// Where the flushes that were tried began.
    fn persisted(&self) -> Vec<u64> {
        self.persisted.lock().unwrap().iter().map(|(offset, _)| *offset).collect()
    }

    fn reach(offset: u64) -> Result<(), MediumError> {
        if offset < LEN { Ok(()) } else { Err(MediumError::Truncated) }
    }
}

impl Medium for Scripted {
    fn class(&self) -> DurabilityClass {
        DurabilityClass::Pmem
    }

    fn store_granularity(&self) -> StoreGranularity {
        StoreGranularity::CacheLine
    }

    fn len(&self) -> u64 {
        u64::MAX
    }

    fn try_place(&self, _offset: u64, _bytes: &[u8]) -> Result<(), MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn try_read(&self, _offset: u64, _out: &mut [u8]) -> Result<(), MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn try_persist(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn try_atomic(&self, _offset: u64, _op: AtomicOp) -> Result<u64, MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn place(&self, offset: u64, _bytes: &[u8]) -> Result<(), MediumError> {
        Self::reach(offset)
    }

    fn read(&self, offset: u64, _out: &mut [u8]) -> Result<(), MediumError> {
        Self::reach(offset)
    }

    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.persisted.lock().unwrap().push((offset, len));
        self.persists.lock().unwrap().pop().unwrap_or(Ok(()))
    }

    fn atomic(&self, offset: u64, _op: AtomicOp) -> Result<u64, MediumError> {
        Self::reach(offset).map(|()| 7)
    }

    fn prepare(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        Ok(())
    }
}

/// A batch of one-word operations, each on its own medium, carried out.
fn ran(operations: &[(&Arc<Scripted>, u64, Work)]) -> Batch {
    let mut batch = Batch::new(Key { index: 0, generation: 0 });
    batch.payload.extend_from_slice(&[1; 8]);
    for (medium, offset, work) in operations {
        let medium: Arc<dyn Medium> = Arc::clone(medium) as _;
        let target = Target { tag: 1, medium, offset: *offset, len: 8 };
        let (work, after) = (work.clone(), After::Answer(Serial::FIRST));
        batch.operations.push(Deferred { target: Some(target), work, after, result: 0 });
    }
    assert_eq!(batch.run(&AtomicBool::new(false), Pace::Short), Pause::Over);
    batch
}

#[test]
fn a_flush_ahead_of_a_failed_operation_succeeds_only_when_carried_out() {
    let medium = Scripted::new(&[]);
    let batch = ran(&[(&medium, 8, Work::Persist), (&medium, LEN, Work::Place(0..8))]);
    assert_eq!((batch.succeeded, batch.failure), (1, Some(SHRUNK)));
    assert_eq!(medium.persisted(), [8], "what counts as succeeded is durable");
    assert_eq!(batch.persists, 1);
}

#[test]
fn a_failed_flush_counts_before_a_later_operation_that_failed_first() {
    let medium = Scripted::new(&[Err(MediumError::MediaIo(5))]);
    let flush = (&medium, 8, Work::Persist);
    let batch = ran(&[(&medium, 0, Work::Place(0..8)), flush, (&medium, LEN, Work::Place(0..8))]);
    assert_eq!((batch.succeeded, batch.failure), (1, Some(LOST)));
    assert_eq!(medium.persisted(), [8]);
}

#[test]
fn after_a_failed_flush_no_flush_is_tried_or_repeated() {
    let broken = Scripted::new(&[Err(MediumError::MediaIo(5))]);
    let store = Work::Atomic(AtomicOp::Store(1));
    // The second range is not next to the first, so that it is a flush of its own.
    let flushes = [(&broken, 0, Work::Persist), (&broken, 32, Work::Persist)];
    let batch = ran(&[flushes[0].clone(), flushes[1].clone(), (&broken, 40, store)]);
    assert_eq!((batch.succeeded, batch.failure), (0, Some(LOST)));
    assert_eq!(broken.persisted(), [0]);
    let broken = Scripted::new(&[Ok(()), Err(MediumError::MediaIo(5))]);
    let flushes = [(&broken, 0, Work::Persist), (&broken, 32, Work::Persist)];
    let batch = ran(&flushes);
    assert_eq!((batch.succeeded, batch.failure), (1, Some(LOST)));
    assert_eq!(broken.persisted(), [0, 32], "and the first of them did succeed");
}

/// A file whose bytes reach it when they are asked to, but for those of the first word. The second word reaches it once.
#[derive(Debug, Default)]
struct Paged {
    flushes: Mutex<u32>,
    seconds: Mutex<u32>,
    /// What was to be brought to the file: offsets and lengths.
    written: Mutex<Vec<(u64, u64)>>,
    /// Bytes are in the file when they are placed.
    is_direct: bool,
}

impl Medium for Paged {
    fn class(&self) -> DurabilityClass {
        DurabilityClass::Storage
    }

    fn store_granularity(&self) -> StoreGranularity {
        StoreGranularity::Page
    }

    fn len(&self) -> u64 {
        LEN
    }

    fn try_place(&self, _offset: u64, _bytes: &[u8]) -> Result<(), MediumError> {
        Ok(())
    }

    fn try_read(&self, _offset: u64, _out: &mut [u8]) -> Result<(), MediumError> {
        Ok(())
    }

    fn try_persist(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn try_atomic(&self, _offset: u64, _op: AtomicOp) -> Result<u64, MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn place(&self, _offset: u64, _bytes: &[u8]) -> Result<(), MediumError> {
        Ok(())
    }

    fn read(&self, _offset: u64, _out: &mut [u8]) -> Result<(), MediumError> {
        Ok(())
    }

    fn is_written_later(&self) -> bool {
        !self.is_direct
    }

    fn write_back(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.written.lock().unwrap().push((offset, len));
        let mut seconds = self.seconds.lock().unwrap();
        *seconds += u32::from(offset == 8 && len > 0);
        let is_lost = len > 0 && (offset == 0 || (offset == 8 && *seconds > 1));
        if is_lost { Err(MediumError::MediaIo(5)) } else { Ok(()) }
    }

    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.write_back(offset, len)?;
        *self.flushes.lock().unwrap() += 1;
        Ok(())
    }

    fn atomic(&self, _offset: u64, _op: AtomicOp) -> Result<u64, MediumError> {
        Err(MediumError::ReadOnly)
    }

    fn prepare(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        Ok(())
    }
}

/// A file with this device, of which nothing is asked but placements.
#[derive(Debug)]
struct OnDevice(u64);

impl Medium for OnDevice {
    fn class(&self) -> DurabilityClass {
        DurabilityClass::Storage
    }

    fn store_granularity(&self) -> StoreGranularity {
        StoreGranularity::Page
    }

    fn len(&self) -> u64 {
        LEN
    }

    fn backing(&self) -> Option<Backing> {
        Some(Backing { device: self.0, file: 9 })
    }

    fn try_place(&self, _: u64, _: &[u8]) -> Result<(), MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn try_read(&self, _: u64, _: &mut [u8]) -> Result<(), MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn try_persist(&self, _: u64, _: u64) -> Result<(), MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn try_atomic(&self, _: u64, _: AtomicOp) -> Result<u64, MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn place(&self, _: u64, _: &[u8]) -> Result<(), MediumError> {
        Ok(())
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), MediumError> {
        Ok(())
    }

    fn persist(&self, _: u64, _: u64) -> Result<(), MediumError> {
        Ok(())
    }

    fn atomic(&self, _: u64, _: AtomicOp) -> Result<u64, MediumError> {
        Ok(0)
    }

    fn prepare(&self, _: u64, _: u64) -> Result<(), MediumError> {
        Ok(())
    }
}

#[test]
fn a_shared_commit_fails_for_those_whose_own_bytes_failed() {
    let file = Arc::new(Paged::default());
    let stop = AtomicBool::new(false);
    let mut group: Vec<Batch> = [0, 8, 16]
        .map(|offset| {
            let mut batch = Batch::new(Key { index: 0, generation: 0 });
            let medium: Arc<dyn Medium> = Arc::clone(&file) as _;
            let target = Some(Target { tag: 1, medium, offset, len: 8 });
            let (work, after) = (Work::Persist, After::Answer(Serial::FIRST));
            batch.operations.push(Deferred { target, work, after, result: 0 });
            assert!(matches!(batch.run(&stop, Pace::Short), Pause::Commit(_)));
            batch
        })
        .into();
    let outcome = commit_together(group.iter_mut(), &stop);
    assert_eq!(outcome, Ok(()));
    group.iter_mut().for_each(|batch| batch.committed(outcome));
    assert!(group.iter_mut().all(|batch| batch.ends(&stop)));
    let failures: Vec<_> = group.iter().map(|batch| (batch.succeeded, batch.failure)).collect();
    assert_eq!(failures, [(0, Some(LOST)), (1, None), (1, None)]);
    assert_eq!(*file.flushes.lock().unwrap(), 1, "one flush for all of them");
}

/// A batch that waits for the flush of a file: a placement, and a flush behind it.
fn waiting_for_its_flush() -> Batch {
    waiting_for_a_flush_of(&Arc::default())
}

fn waiting_for_a_flush_of(file: &Arc<Paged>) -> Batch {
    let mut batch = Batch::new(Key { index: 0, generation: 0 });
    batch.payload.extend_from_slice(&[1; 8]);
    for work in [Work::Place(0..8), Work::Persist] {
        let medium: Arc<dyn Medium> = Arc::clone(file) as _;
        let target = Some(Target { tag: 1, medium, offset: 16, len: 8 });
        let after = After::Answer(Serial::FIRST);
        batch.operations.push(Deferred { target, work, after, result: 0 });
    }
    assert!(matches!(batch.run(&AtomicBool::new(false), Pace::Short), Pause::Commit(_)));
    batch
}

#[test]
fn a_batch_brings_to_the_file_the_bytes_that_it_has_to_have_flushed() {
    let file = Arc::new(Paged::default());
    let mut batch = waiting_for_a_flush_of(&file);
    let outcome = commit_together(std::iter::once(&mut batch), &AtomicBool::new(false));
    assert_eq!(outcome, Ok(()));
    assert_eq!(*file.written.lock().unwrap(), [(16, 8), (0, 0)], "the second is the flush's own");
    assert_eq!((*file.flushes.lock().unwrap(), batch.persists), (1, 1));
    // Where a flush alone brings bytes to the file, it is a flush of these bytes.
    let file = Arc::new(Paged { is_direct: true, ..Paged::default() });
    let mut batch = waiting_for_a_flush_of(&file);
    commit_together(std::iter::once(&mut batch), &AtomicBool::new(false)).unwrap();
    assert_eq!(file.written.lock().unwrap().last(), Some(&(16, 8)));
}

#[test]
fn a_batch_goes_on_where_its_next_operation_may_wait() {
    let mut batch = Batch::new(Key { index: 0, generation: 0 });
    assert_eq!(batch.goes_on(), None);
    for device in [3, 4] {
        let medium: Arc<dyn Medium> = Arc::new(OnDevice(device));
        let target = Some(Target { tag: 1, medium, offset: 0, len: 8 });
        let (work, after) = (Work::Place(0..0), After::Nothing);
        batch.operations.push(Deferred { target, work, after, result: 0 });
    }
    assert_eq!(batch.goes_on(), Some(Site { device: 3, file: 9 }));
    assert_eq!(batch.run(&AtomicBool::new(false), Pace::Short), Pause::Over);
    assert_eq!((batch.succeeded, batch.goes_on()), (1, Some(Site { device: 4, file: 9 })));
    let mut failed = waiting_for_its_flush();
    failed.next = 0;
    failed.fail(LOST);
    assert_eq!(failed.goes_on(), None, "nothing is carried out behind a failure");
    assert_eq!(batch.run(&AtomicBool::new(false), Pace::Short), Pause::Over);
    assert_eq!((batch.succeeded, batch.goes_on()), (2, None));
}

#[test]
fn what_was_fetched_is_found_again_in_the_payload() {
    let medium: Arc<dyn Medium> = pmem::anonymous(4096).unwrap();
    medium.place(16, b"fetched!").unwrap();
    let mut batch = Batch::new(Key { index: 0, generation: 0 });
    batch.payload.extend_from_slice(b"placed");
    for offset in [0, 16] {
        let target = Some(Target { tag: 1, medium: Arc::clone(&medium), offset, len: 8 });
        let (work, after) = (Work::Fetch, After::FetchedForResponse(Serial::FIRST));
        batch.operations.push(Deferred { target, work, after, result: 0 });
    }
    assert_eq!(batch.run(&AtomicBool::new(false), Pace::Short), Pause::Over);
    let fetched: Vec<&[u8]> = batch.operations.iter().map(|it| batch.fetched(it)).collect();
    assert_eq!(fetched, [&[0; 8][..], b"fetched!"]);
    assert_eq!(batch.payload.len(), 6 + 8 + 8);
}

#[test]
fn an_engine_that_is_gone_brings_nothing_more_to_a_file() {
    let file = Arc::new(Paged::default());
    let mut batch = waiting_for_a_flush_of(&file);
    let outcome = commit_together(std::iter::once(&mut batch), &AtomicBool::new(true));
    batch.committed(outcome);
    assert_eq!((batch.succeeded, batch.failure), (1, Some(Failure::Stopped)));
    assert_eq!(*file.written.lock().unwrap(), []);
    assert_eq!(*file.flushes.lock().unwrap(), 0);
}

#[test]
fn a_flush_that_fails_counts_what_was_before_it_and_one_that_panics_nothing() {
    for (failure, succeeded) in [(LOST, 1), (Failure::Stopped, 1), (Failure::Panicked, 0)] {
        let mut batch = waiting_for_its_flush();
        batch.committed(Err(failure));
        assert_eq!((batch.succeeded, batch.failure), (succeeded, Some(failure)));
    }
}

#[test]
fn a_batch_that_no_worker_takes_fails_where_it_stands() {
    let mut batch = Batch::new(Key { index: 0, generation: 0 });
    batch.fail(LOST);
    assert_eq!((batch.succeeded, batch.failure), (0, Some(LOST)));
    let mut batch = waiting_for_its_flush();
    batch.fail(LOST);
    assert_eq!((batch.succeeded, batch.failure), (2, Some(LOST)), "both were looked at");
}

#[test]
fn memory_of_ours_that_fails_is_a_fault_of_this_end_and_memory_for_the_peer_is_told_to_it() {
    let qp = QpId { index: 0, generation: 0 };
    let completion = WorkCompletion::new(qp, 1, WcOpcode::Recv, WcStatus::Success, 8);
    let ours = [
        After::Received(completion),
        After::ReceivedAndInvalidates(completion),
        After::ReadPlaced(Serial::FIRST),
        After::FetchedForRequest(Serial::FIRST),
    ];
    let of_peer =
        [After::Nothing, After::Answer(Serial::FIRST), After::FetchedForResponse(Serial::FIRST)];
    let fault = |after| {
        let mut batch = waiting_for_its_flush();
        batch.succeeded = 1;
        batch.operations[1].after = after;
        batch.fault(LOST)
    };
    for after in ours {
        let found = fault(after);
        assert!(matches!(found, Fault::Local(WcStatus::LocalMedia)), "{after:?}: {found:?}");
    }
    for after in of_peer {
        let found = fault(after);
        assert!(!matches!(found, Fault::Local(_)), "{after:?}: {found:?}");
    }
}

#[test]
fn a_hash_that_is_not_the_expected_one_ends_the_batch() {
    let medium = Scripted::new(&[]);
    let hashed = ran(&[(&medium, 0, Work::Hash(None))]);
    assert_eq!((hashed.succeeded, hashed.failure), (1, None));
    let hash = u32::try_from(hashed.operations[0].result).unwrap();
    let asked = |expected| {
        ran(&[(&medium, 0, Work::Hash(Some(expected))), (&medium, 0, Work::Place(0..8))])
    };
    let found = asked(hash);
    assert_eq!((found.succeeded, found.failure), (2, None));
    let other = asked(hash ^ 1);
    assert_eq!((other.succeeded, other.failure), (0, Some(Failure::HashDiffers)));
}

#[test]
fn flushes_are_joined_where_one_serves_both() {
    let ranges = |medium: Arc<dyn Medium>, list: &[(u64, u64)]| {
        let mut flushes = Flushes::default();
        for (index, (offset, len)) in list.iter().enumerate() {
            let target = Target { tag: 1, medium: Arc::clone(&medium), offset: *offset, len: *len };
            flushes.add(index, &target);
        }
        let taken = std::iter::from_fn(|| flushes.take_first());
        taken.map(|flush| (flush.first_index, flush.start..flush.end)).collect::<Vec<_>>()
    };
    // Of memory those that touch or overlap: each walks its cache lines.
    let memory = || -> Arc<dyn Medium> { Scripted::new(&[]) };
    assert_eq!(ranges(memory(), &[(8, 8), (16, 8)]), [(0, 8..24)]);
    assert_eq!(ranges(memory(), &[(16, 8), (8, 8)]), [(0, 8..24)]);
    assert_eq!(ranges(memory(), &[(8, 16), (12, 4)]), [(0, 8..24)]);
    assert_eq!(ranges(memory(), &[(8, 8), (17, 8)]), [(0, 8..16), (1, 17..25)]);
    assert_eq!(ranges(memory(), &[(17, 8), (8, 8)]), [(0, 17..25), (1, 8..16)]);
    // A file is synchronised whole.
    let file = || -> Arc<dyn Medium> { Arc::new(Paged::default()) };
    assert_eq!(ranges(file(), &[(8, 8), (100, 8)]), [(0, 8..108)]);
    let (one, other) = (Scripted::new(&[]), Scripted::new(&[]));
    let batch = ran(&[(&one, 8, Work::Persist), (&other, 16, Work::Persist)]);
    assert_eq!((batch.persists, one.persisted(), other.persisted()), (2, vec![8], vec![16]));
}

fn noted(medium: &Arc<Scripted>, list: &[(u64, u64)]) -> Flushes {
    let mut flushes = Flushes::default();
    for (index, (offset, len)) in list.iter().enumerate() {
        let medium: Arc<dyn Medium> = Arc::clone(medium) as _;
        flushes.add(index, &Target { tag: 1, medium, offset: *offset, len: *len });
    }
    flushes
}

#[test]
fn a_long_flush_of_memory_goes_on_where_the_turn_before_ended() {
    let medium = Scripted::new(&[]);
    let mut flushes = noted(&medium, &[(8, 20), (100, 10)]);
    let stop = AtomicBool::new(false);
    let mut persists = 0;
    let mut settled = |bytes_left| {
        let mut turn = Turn { stop: &stop, bytes_left };
        let settled = flushes.settle(&mut persists, &mut turn, |_| false).unwrap();
        (settled == Settled::All, turn.bytes_left, persists, flushes.is_empty())
    };
    assert_eq!(settled(12), (false, 0, 0, false));
    assert_eq!(settled(16), (false, 0, 1, false));
    assert_eq!(settled(16), (true, 14, 2, true));
    let done = [(8, 12), (20, 8), (100, 8), (108, 2)];
    assert_eq!(*medium.persisted.lock().unwrap(), done);
}

#[test]
fn a_flush_of_no_bytes_needs_nothing_of_a_turn() {
    let medium = Scripted::new(&[]);
    let mut flushes = noted(&medium, &[(8, 0)]);
    let stop = AtomicBool::new(false);
    let mut turn = Turn { stop: &stop, bytes_left: 0 };
    let mut persists = 0;
    assert_eq!(flushes.settle(&mut persists, &mut turn, |_| false), Ok(Settled::All));
    assert_eq!((persists, medium.persisted()), (1, vec![8]));
}

#[test]
fn a_batch_that_is_used_again_has_nothing_of_the_one_before() {
    let mut batch = waiting_for_its_flush();
    batch.fail(LOST);
    batch.withdrawn().all();
    batch.clear();
    assert!(batch.operations.is_empty() && batch.payload.is_empty() && batch.flushes.is_empty());
    assert_eq!((batch.succeeded, batch.failure, batch.goes_on()), (0, None, None));
    assert!(!batch.withdrawn().covers(1));
    assert_eq!(batch.run(&AtomicBool::new(false), Pace::Short), Pause::Over);
    assert_eq!((batch.succeeded, batch.persists), (0, 0));
}

#[test]
fn an_operation_on_nothing_only_keeps_its_place() {
    let medium = Scripted::new(&[]);
    let mut batch = Batch::new(Key { index: 0, generation: 0 });
    batch.payload.extend_from_slice(&[1; 8]);
    let after = After::Answer(Serial::FIRST);
    batch.operations.push(Deferred { target: None, work: Work::Nothing, after, result: 0 });
    let target = Some(Target { tag: 1, medium, offset: 0, len: 8 });
    batch.operations.push(Deferred { target, work: Work::Place(0..8), after, result: 0 });
    assert_eq!(batch.run(&AtomicBool::new(false), Pace::Short), Pause::Over);
    assert_eq!((batch.succeeded, batch.failure), (2, None));
}
