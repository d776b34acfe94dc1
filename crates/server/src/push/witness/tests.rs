#![cfg(test)]

use std::sync::Mutex;

use super::*;

/// A medium that says by what it was called, and answers to each call what it answers to no other.
#[derive(Debug)]
struct Told {
    class: DurabilityClass,
    is_written_later: bool,
    memory: Arc<dyn Medium>,
    calls: Mutex<Vec<(&'static str, u64, u64)>>,
    outcome: Mutex<Result<(), MediumError>>,
}

impl Told {
    fn new(class: DurabilityClass, is_written_later: bool) -> Arc<Self> {
        let memory = pmem::anonymous(4096).unwrap();
        let (calls, outcome) = (Mutex::default(), Mutex::new(Ok(())));
        Arc::new(Self { class, is_written_later, memory, calls, outcome })
    }

    fn called(
        &self,
        what: &'static str,
        offset: u64,
        len: impl TryInto<u64>,
    ) -> Result<(), MediumError> {
        self.calls.lock().unwrap().push((what, offset, len.try_into().ok().unwrap()));
        *self.outcome.lock().unwrap()
    }

    fn answers(&self, outcome: Result<(), MediumError>) {
        *self.outcome.lock().unwrap() = outcome;
    }
}

impl Medium for Told {
    fn class(&self) -> DurabilityClass {
        self.class
    }

    fn store_granularity(&self) -> StoreGranularity {
        StoreGranularity::CacheLine
    }

    fn len(&self) -> u64 {
        4096
    }

    fn is_emulated(&self) -> bool {
        self.class == DurabilityClass::Volatile
    }

    fn backing(&self) -> Option<Backing> {
        Some(Backing { device: 5, file: 6 })
    }

    fn is_written_later(&self) -> bool {
        self.is_written_later
    }

    fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.called("try_place", offset, bytes.len())
    }

    fn try_place_part(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.called("try_place_part", offset, bytes.len())
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.called("try_read", offset, out.len())
    }

    fn new_fetcher(&self) -> Option<Box<dyn Fetcher>> {
        self.called("new_fetcher", 0, 0_u64).ok()?;
        Some(Box::new(Nobody))
    }

    fn try_fetch(&self, _: &mut dyn Fetcher, offset: u64, len: u64, tag: Option<u64>) -> bool {
        self.called("try_fetch", offset, len).is_ok() && tag.is_some()
    }

    fn try_persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.called("try_persist", offset, len)
    }

    fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.called("try_atomic", offset, 8_u64).map(|()| word(op))
    }

    fn direct(&self) -> Option<DirectMemory> {
        self.memory.direct()
    }

    fn persist_foreign(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.called("persist_foreign", offset, len)
    }

    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.called("place", offset, bytes.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.called("read", offset, out.len())
    }

    fn write_back(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.called("write_back", offset, len)
    }

    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.called("persist", offset, len)
    }

    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.called("atomic", offset, 8_u64).map(|()| word(op))
    }

    fn prepare(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.called("prepare", offset, len)
    }
}

fn word(op: AtomicOp) -> u64 {
    match op {
        AtomicOp::Store(value) => value + 40,
        _ => 0,
    }
}

#[derive(Debug)]
struct Nobody;

impl Fetcher for Nobody {
    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }

    fn submit(&mut self) -> bool {
        true
    }

    fn has_ended(&mut self) -> bool {
        false
    }

    fn collect(&mut self, _: &mut dyn FnMut(u64, bool)) {}

    fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        unreachable!("nobody waits for it")
    }
}

fn watched(told: &Arc<Told>) -> (Arc<dyn Medium>, Arc<Witness>) {
    let Media { medium, witness } = Media::new(Arc::clone(told) as Arc<dyn Medium>, None);
    (medium, witness.unwrap())
}

type Call = fn(&dyn Medium) -> Result<u64, MediumError>;

const CHANGES: [(&str, Call); 5] = [
    ("try_place", |medium| medium.try_place(8, &[1; 3]).map(|()| 0)),
    ("try_place_part", |medium| medium.try_place_part(8, &[1; 3]).map(|()| 0)),
    ("place", |medium| medium.place(8, &[1; 3]).map(|()| 0)),
    ("try_atomic", |medium| medium.try_atomic(8, AtomicOp::Store(2))),
    ("atomic", |medium| medium.atomic(8, AtomicOp::Store(2))),
];
const LOOKS: [(&str, Call); 7] = [
    ("try_read", |medium| medium.try_read(8, &mut [0; 3]).map(|()| 0)),
    ("read", |medium| medium.read(8, &mut [0; 3]).map(|()| 0)),
    ("try_persist", |medium| medium.try_persist(8, 3).map(|()| 0)),
    ("persist", |medium| medium.persist(8, 3).map(|()| 0)),
    ("persist_foreign", |medium| medium.persist_foreign(8, 3).map(|()| 0)),
    ("write_back", |medium| medium.write_back(8, 3).map(|()| 0)),
    ("prepare", |medium| medium.prepare(8, 3).map(|()| 0)),
];

#[test]
fn what_places_bytes_is_noted_once_and_what_does_not_is_not() {
    let told = Told::new(DurabilityClass::Pmem, false);
    let (medium, witness) = watched(&told);
    for (_, call) in LOOKS {
        call(&*medium).unwrap();
    }
    assert!(!witness.is_touched() && !witness.take());
    for (name, call) in CHANGES {
        call(&*medium).unwrap();
        assert!(witness.is_touched(), "{name}");
        assert!(witness.take(), "{name}");
        assert!(!witness.take() && !witness.is_touched(), "{name}");
    }
}

#[test]
fn a_placement_that_failed_may_have_placed_a_part_and_one_that_has_to_wait_has_placed_nothing() {
    let told = Told::new(DurabilityClass::Pmem, false);
    let (medium, witness) = watched(&told);
    for (error, is_noted) in [(MediumError::WouldBlock, false), (MediumError::Poisoned, true)] {
        told.answers(Err(error));
        for (name, call) in CHANGES {
            assert_eq!(call(&*medium), Err(error), "{name}");
            assert_eq!(witness.take(), is_noted, "{name}");
        }
    }
}

#[test]
fn a_witness_hands_every_call_and_every_answer_on() {
    let told = Told::new(DurabilityClass::Volatile, true);
    let (medium, _) = watched(&told);
    for (name, call) in CHANGES.into_iter().chain(LOOKS) {
        told.answers(Ok(()));
        let is_atomic = name.ends_with("atomic");
        assert_eq!(call(&*medium), Ok(if is_atomic { 42 } else { 0 }), "{name}");
        let len = if is_atomic { 8 } else { 3 };
        assert_eq!(told.calls.lock().unwrap().pop(), Some((name, 8, len)));
        told.answers(Err(MediumError::Truncated));
        assert_eq!(call(&*medium), Err(MediumError::Truncated), "{name}");
    }
    assert_eq!(medium.class(), DurabilityClass::Volatile);
    assert_eq!(medium.store_granularity(), StoreGranularity::CacheLine);
    assert_eq!((medium.len(), medium.is_emulated(), medium.is_written_later()), (4096, true, true));
    assert_eq!(medium.backing(), Some(Backing { device: 5, file: 6 }));
    let (direct, inner) = (medium.direct(), told.direct());
    assert_eq!(direct.map(|memory| memory.start()), inner.map(|memory| memory.start()));
    told.answers(Ok(()));
    let mut fetcher = medium.new_fetcher().unwrap();
    assert!(medium.try_fetch(&mut *fetcher, 9, 4, Some(1)));
    assert!(!medium.try_fetch(&mut *fetcher, 9, 4, None));
    assert_eq!(told.calls.lock().unwrap().pop(), Some(("try_fetch", 9, 4)));
    let plain = Told::new(DurabilityClass::Pmem, false);
    let (medium, _) = watched(&plain);
    assert_eq!((medium.is_emulated(), medium.is_written_later()), (false, false));
}

#[test]
fn a_file_whose_times_the_kernel_moves_has_no_witness() {
    for (class, is_written_later, has_witness) in [
        (DurabilityClass::Storage, false, false),
        (DurabilityClass::Storage, true, true),
        (DurabilityClass::Volatile, false, true),
        (DurabilityClass::Pmem, false, true),
    ] {
        let media = Media::new(Told::new(class, is_written_later), None);
        assert_eq!(media.witness.is_some(), has_witness, "{class} {is_written_later}");
    }
}
