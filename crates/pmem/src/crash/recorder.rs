//! A medium over plain memory that records every request to the machine.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use super::{Event, Log};
use crate::arch::CACHE_LINE;
use crate::commit_group::{Extent, Group, SyncTarget};
use crate::lines::{LineMedium, Memory, Worth};
use crate::presence::Touch;
use crate::storage::{Device, StorageMedium, native_bytes, native_word};
use crate::{AtomicOp, DurabilityClass, Medium, MediumError, StoreGranularity};

/// A [`Medium`] whose crash images can be made: see the [module](super).
#[derive(Debug)]
pub struct Recorder {
    tape: Arc<Tape>,
    inner: Inner,
}

impl Recorder {
    /// Zeroed persistent memory.
    pub fn pmem(len: usize) -> Self {
        Self::of_image(Model::Pmem, vec![0; len], None)
    }

    /// A zeroed file on storage.
    pub fn storage(len: usize) -> Self {
        Self::of_image(Model::Storage, vec![0; len], None)
    }

    /// A medium that holds `image`, durably, as a program finds it after a crash.
    pub fn after_crash(log: &Log, image: Vec<u8>) -> Self {
        let model = match log.class {
            DurabilityClass::Storage => Model::Storage,
            DurabilityClass::Pmem | DurabilityClass::Volatile => Model::Pmem,
        };
        Self::of_image(model, image, None)
    }

    /// A zeroed medium on a machine that ignores one kind of request. A check must fail on it.
    pub fn sabotaged(len: usize, sabotage: Sabotage) -> Self {
        let model = match sabotage {
            Sabotage::SkipDrain | Sabotage::SkipWriteBack => Model::Pmem,
            Sabotage::SkipFlush | Sabotage::FlushBeganEarlier => Model::Storage,
        };
        Self::of_image(model, vec![0; len], Some(sabotage))
    }

    /// The number of events recorded so far: the present position for [`super::AckLog`].
    pub fn position(&self) -> usize {
        self.tape.lock().events.len()
    }

    /// Everything recorded so far.
    pub fn log(&self) -> Log {
        let (class, state) = (self.class(), self.tape.lock());
        Log { class, initial: self.tape.initial.clone(), events: state.events.clone() }
    }

    fn of_image(model: Model, image: Vec<u8>, sabotage: Option<Sabotage>) -> Self {
        let len = u64::try_from(image.len()).expect("64 address bits at most");
        let mut state = TapeState { bytes: image.clone(), ..TapeState::default() };
        if sabotage == Some(Sabotage::FlushBeganEarlier) {
            state.events.push(Event::FlushBegun { run: 0 });
        }
        let tape = Arc::new(Tape { initial: image, sabotage, state: Mutex::new(state) });
        let inner = match model {
            Model::Pmem => {
                Inner::Pmem(LineMedium::new(Recorded(Arc::clone(&tape)), Worth::Durable, true))
            }
            Model::Storage => {
                let group = Group::new(Recorded(Arc::clone(&tape)));
                let device = RecordedDisk { tape: Arc::clone(&tape), group };
                Inner::Storage(StorageMedium::new(device, len, true))
            }
        };
        Self { tape, inner }
    }

    fn medium(&self) -> &dyn Medium {
        match &self.inner {
            Inner::Pmem(medium) => medium,
            Inner::Storage(medium) => medium,
        }
    }
}

/// A kind of request that the machine ignores.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sabotage {
    /// Persistent memory without its fences.
    SkipDrain,
    /// Persistent memory whose lines stay in the caches.
    SkipWriteBack,
    /// Storage that acknowledges without flushing.
    SkipFlush,
    /// Storage whose flush covers only the writes before the *previous* flush ended, as if a
    /// waiter were answered by a flush that was already under way when the waiter arrived.
    FlushBeganEarlier,
}

impl Medium for Recorder {
    fn class(&self) -> DurabilityClass {
        self.medium().class()
    }

    fn store_granularity(&self) -> StoreGranularity {
        self.medium().store_granularity()
    }

    fn len(&self) -> u64 {
        self.medium().len()
    }

    fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.medium().try_place(offset, bytes)
    }

    fn try_place_part(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.medium().try_place_part(offset, bytes)
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.medium().try_read(offset, out)
    }

    fn try_persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.medium().try_persist(offset, len)
    }

    fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.medium().try_atomic(offset, op)
    }

    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.medium().place(offset, bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.medium().read(offset, out)
    }

    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.medium().persist(offset, len)
    }

    fn persist_foreign(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.medium().persist_foreign(offset, len)
    }

    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.medium().atomic(offset, op)
    }

    fn prepare(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.medium().prepare(offset, len)
    }
}

#[derive(Debug)]
enum Inner {
    Pmem(LineMedium<Recorded>),
    Storage(StorageMedium<RecordedDisk>),
}

#[derive(Clone, Copy, Debug)]
enum Model {
    Pmem,
    Storage,
}

/// The bytes as running programs see them, and the events that made them.
#[derive(Debug)]
struct Tape {
    initial: Vec<u8>,
    sabotage: Option<Sabotage>,
    state: Mutex<TapeState>,
}

#[derive(Debug, Default)]
struct TapeState {
    bytes: Vec<u8>,
    events: Vec<Event>,
    cpus: Vec<ThreadId>,
    flushes: usize,
}

impl Tape {
    fn lock(&self) -> MutexGuard<'_, TapeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TapeState {
    /// The number of the calling thread.
    fn cpu(&mut self) -> usize {
        let caller = thread::current().id();
        let known = self.cpus.iter().position(|cpu| *cpu == caller);
        known.unwrap_or_else(|| {
            self.cpus.push(caller);
            self.cpus.len() - 1
        })
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn get(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes[offset..offset + out.len()]);
    }
}

/// The tape as memory, and as a target of flushes.
#[derive(Debug)]
struct Recorded(Arc<Tape>);

impl Memory for Recorded {
    fn len(&self) -> usize {
        self.0.initial.len()
    }

    fn is_present(&self, _offset: usize, _len: usize, _touch: Touch) -> bool {
        true
    }

    fn populate(&self, _offset: usize, _len: usize, _touch: Touch) -> Result<(), MediumError> {
        Ok(())
    }

    fn health(&self, _offset: usize, _len: usize) -> Result<(), MediumError> {
        Ok(())
    }

    fn load(&self, offset: usize, out: &mut [u8]) {
        self.0.lock().get(offset, out);
    }

    fn store(&self, offset: usize, bytes: &[u8]) {
        let mut state = self.0.lock();
        let cpu = state.cpu();
        state.put(offset, bytes);
        state.events.push(Event::Store { cpu, offset, bytes: bytes.to_vec() });
    }

    fn stream(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.is_multiple_of(CACHE_LINE) && bytes.len().is_multiple_of(CACHE_LINE));
        let mut state = self.0.lock();
        let cpu = state.cpu();
        state.put(offset, bytes);
        state.events.push(Event::Stream { cpu, offset, bytes: bytes.to_vec() });
    }

    fn write_back(&self, offset: usize, len: usize) {
        let Some(last) = len.checked_sub(1) else { return };
        if self.0.sabotage == Some(Sabotage::SkipWriteBack) {
            return;
        }
        let mut state = self.0.lock();
        let cpu = state.cpu();
        let lines = offset / CACHE_LINE..=(offset + last) / CACHE_LINE;
        state.events.extend(lines.map(|line| Event::WriteBack { cpu, line }));
    }

    fn drain(&self) {
        if self.0.sabotage == Some(Sabotage::SkipDrain) {
            return;
        }
        let mut state = self.0.lock();
        let cpu = state.cpu();
        state.events.push(Event::Drain { cpu });
    }

    fn atomic(&self, offset: usize, op: AtomicOp) -> u64 {
        let mut state = self.0.lock();
        let cpu = state.cpu();
        let mut word = [0; 8];
        state.get(offset, &mut word);
        let previous = native_word(word);
        if let Some(next) = op.apply(previous) {
            let bytes = native_bytes(next);
            state.put(offset, &bytes);
            state.events.push(Event::Store { cpu, offset, bytes: bytes.to_vec() });
        }
        previous
    }
}

impl SyncTarget for Recorded {
    fn sync(&self, _extent: Extent) -> io::Result<()> {
        if self.0.sabotage == Some(Sabotage::SkipFlush) {
            return Ok(());
        }
        let run = {
            let mut state = self.0.lock();
            let run = state.flushes;
            state.flushes += 1;
            if self.0.sabotage != Some(Sabotage::FlushBeganEarlier) {
                state.events.push(Event::FlushBegun { run });
            }
            run
        };
        // Other threads may write here: their writes come after the begin and before the end of the flush.
        thread::yield_now();
        let mut state = self.0.lock();
        state.events.push(Event::FlushEnded { run });
        if self.0.sabotage == Some(Sabotage::FlushBeganEarlier) {
            state.events.push(Event::FlushBegun { run: run + 1 });
        }
        Ok(())
    }
}

/// The tape as a file.
#[derive(Debug)]
struct RecordedDisk {
    tape: Arc<Tape>,
    group: Group<Recorded>,
}

impl Device for RecordedDisk {
    type Target = Recorded;

    fn group(&self) -> &Group<Recorded> {
        &self.group
    }

    fn len(&self) -> io::Result<u64> {
        Ok(u64::try_from(self.tape.initial.len()).expect("64 address bits at most"))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let offset = usize::try_from(offset).expect("checked against the length of a Vec");
        let mut state = self.tape.lock();
        state.put(offset, bytes);
        state.events.push(Event::Write { offset, bytes: bytes.to_vec() });
        Ok(bytes.len())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let offset = usize::try_from(offset).expect("checked against the length of a Vec");
        self.tape.lock().get(offset, out);
        Ok(out.len())
    }

    fn read_at_once(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.read_at(offset, out)
    }

    fn read_ahead(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_a_device_placed_are_written_back_before_the_drain() {
        let recorder = Recorder::pmem(4 * CACHE_LINE);
        let Inner::Pmem(medium) = &recorder.inner else { panic!("persistent memory") };
        // As a device does it: no placement of ours sees these bytes.
        recorder.tape.lock().put(CACHE_LINE, &[7; CACHE_LINE + 1]);
        let (offset, len) = (64, 65);
        medium.persist_foreign(offset, len).unwrap();
        let cpu = 0;
        let expected = [
            Event::WriteBack { cpu, line: 1 },
            Event::WriteBack { cpu, line: 2 },
            Event::Drain { cpu },
        ];
        assert_eq!(recorder.log().events, expected);
    }

    /// What a program sees of a recorder, whatever is behind it.
    fn behaves_as_a_medium(recorder: &Recorder) {
        assert_eq!(recorder.len(), 4096);
        recorder.prepare(0, 4096).unwrap();
        recorder.place(61, &[7; 100]).unwrap();
        let mut out = [0; 102];
        recorder.read(60, &mut out).unwrap();
        assert_eq!((out[0], out[1], out[100], out[101]), (0, 7, 7, 0));
        recorder.try_read(61, &mut out[..2]).unwrap();
        assert_eq!(out[..2], [7, 7]);
        assert_eq!(recorder.atomic(512, AtomicOp::Store(3)), Ok(0));
        assert_eq!(recorder.atomic(512, AtomicOp::Store(4)), Ok(3));
        recorder.persist(0, 4096).unwrap();
        assert!(recorder.prepare(4096, 1).is_err(), "beyond its end");
    }

    #[test]
    fn a_recorder_is_a_medium_of_its_class() {
        let memory = Recorder::pmem(4096);
        behaves_as_a_medium(&memory);
        assert_eq!(memory.try_atomic(512, AtomicOp::Store(5)), Ok(4));
        assert_eq!(memory.try_persist(0, 4096), Ok(()));
        assert!(matches!(memory.log().events.last(), Some(Event::Drain { .. })));
        memory.place(1024, &[9; 1024]).unwrap();
        let mut streamed = [0; 1024];
        memory.read(1024, &mut streamed).unwrap();
        assert_eq!(streamed, [9; 1024]);

        let disk = Recorder::storage(4096);
        behaves_as_a_medium(&disk);
        assert_eq!(disk.try_atomic(512, AtomicOp::Store(5)), Err(MediumError::WouldBlock));
        assert_eq!(disk.try_persist(0, 4096), Err(MediumError::WouldBlock));
    }

    fn flushes(recorder: &Recorder) -> Vec<Event> {
        for value in [1, 2, 3] {
            recorder.place(0, &[value]).unwrap();
            recorder.persist(0, 1).unwrap();
        }
        let is_flush =
            |event: &Event| matches!(event, Event::FlushBegun { .. } | Event::FlushEnded { .. });
        recorder.log().events.into_iter().filter(is_flush).collect()
    }

    #[test]
    fn flushes_are_numbered_and_a_sabotaged_one_began_before_its_writes() {
        let (begun, ended) = (|run| Event::FlushBegun { run }, |run| Event::FlushEnded { run });
        let honest = [begun(0), ended(0), begun(1), ended(1), begun(2), ended(2)];
        assert_eq!(flushes(&Recorder::storage(64)), honest);
        let early = [begun(0), ended(0), begun(1), ended(1), begun(2), ended(2), begun(3)];
        let sabotaged = Recorder::sabotaged(64, Sabotage::FlushBeganEarlier);
        assert_eq!(flushes(&sabotaged), early);
    }
}
