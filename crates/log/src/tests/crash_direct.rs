//! What every crash leaves of records that threads place side by side, each its own.
//!
//! The threads are steps in an order that a seed decides: some room is reserved, some of it has its record, some records
//! are published. So crashes meet records behind room that is empty or torn, also while the log is opened again and the
//! same room gets other records.

use std::sync::Arc;

use pmem::Medium;
use pmem::crash::{AckLog, Budget, CrashState, Recorder, Violation, check};

use super::crash_images::{Numbers, Record};
use super::memory::{MEMBER_LEN, records};
use crate::direct::Reserved;
use crate::planted::Planted;
use crate::store::Store;
use crate::{CreateOptions, LocalStore, LogError, Lsn, OpenOptions, TailLog};

/// A log under test, with what its threads do.
struct Run {
    recorder: Arc<Recorder>,
    numbers: Numbers,
    /// Every record for which there was room, oldest first.
    appended: Vec<Record>,
    /// Room without its record.
    reserved: Vec<(Reserved, Vec<u8>)>,
    /// Records that are not published.
    written: Vec<Reserved>,
    trimmed: Lsn,
    acks: AckLog<Claim>,
}

/// What was said up to some moment.
#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    /// Everything below was acknowledged.
    durable: Lsn,
    /// Records below may be gone.
    trimmed: Lsn,
}

impl Run {
    fn new(recorder: Recorder, seed: u64) -> Self {
        let recorder = Arc::new(recorder);
        let (reserved, written) = (Vec::new(), Vec::new());
        let numbers = Numbers::of(seed);
        let (appended, trimmed, acks) = (Vec::new(), Lsn::FIRST, AckLog::new());
        Self { recorder, numbers, appended, reserved, written, trimmed, acks }
    }

    fn member(&self) -> Vec<Box<dyn Store>> {
        let medium = Arc::clone(&self.recorder) as Arc<dyn Medium>;
        vec![Box::new(LocalStore::of_medium(medium))]
    }

    fn note(&mut self, log: &TailLog) {
        let claim = Claim { durable: log.durable_lsn(), trimmed: self.trimmed };
        self.acks.note(self.recorder.position(), claim);
    }

    fn any<T>(numbers: &mut Numbers, list: &mut Vec<T>) -> Option<T> {
        let count = u64::try_from(list.len()).unwrap();
        let place = usize::try_from(numbers.below(count.max(1))).unwrap();
        (count > 0).then(|| list.swap_remove(place))
    }

    fn step(&mut self, log: &TailLog) {
        match self.numbers.below(3) {
            0 if self.reserved.len() + self.written.len() < 4 => self.reserve(log),
            1 => {
                if let Some((reserved, record)) = Self::any(&mut self.numbers, &mut self.reserved) {
                    let medium: &dyn Medium = &*self.recorder;
                    reserved.write(medium, &record).unwrap();
                    self.written.push(reserved);
                }
            }
            _ => {
                if let Some(written) = Self::any(&mut self.numbers, &mut self.written) {
                    log.publish(written.range());
                    self.note(log);
                }
            }
        }
    }

    fn reserve(&mut self, log: &TailLog) {
        let len = usize::try_from(self.numbers.below(200)).unwrap();
        let record = vec![u8::try_from(self.numbers.below(256)).unwrap(); len];
        match log.reserve(len) {
            Ok(reserved) => {
                let reserved = reserved.expect("nothing is staged");
                self.appended.push((reserved.lsn, record.clone()));
                self.reserved.push((reserved, record));
            }
            Err(LogError::Full { .. }) => {
                self.trimmed = log.durable_lsn();
                self.note(log);
                log.trim(self.trimmed).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Whether a log with these records is what a crash may leave.
fn allows(appended: &[Record], claim: Claim, found: &[Record]) -> Result<(), String> {
    let first = found.first().map_or(Lsn(u64::MAX), |(lsn, _)| *lsn);
    let gone = appended.iter().take_while(|(lsn, _)| *lsn < claim.trimmed && *lsn < first).count();
    let appended = &appended[gone..];
    let least = appended.iter().filter(|(lsn, _)| *lsn < claim.durable).count();
    if found.len() < least {
        return Err(format!("{} records, {least} were acknowledged", found.len()));
    }
    if appended.get(..found.len()) != Some(found) {
        return Err(format!("{} records are no part of what was appended", found.len()));
    }
    Ok(())
}

/// The states that were opened, or the first that broke a promise.
fn crash_everywhere(recorder: Recorder, seed: u64, steps: u32) -> Result<u64, String> {
    let mut run = Run::new(recorder, seed);
    let log = TailLog::create(run.member(), &CreateOptions::default()).unwrap();
    let created = run.recorder.position();
    run.note(&log);
    for _ in 0..steps {
        run.step(&log);
    }
    drop(log);
    let tape = run.recorder.log();
    let (mut seen, mut second) = (0_u64, 0_u64);
    let budget = Budget { states_per_point: 24, seed };
    let outcome = check(&tape, &run.acks, budget, |state: CrashState<'_, Claim>| {
        if state.at < created {
            return Ok(());
        }
        seen += 1;
        let claim = state.acknowledged.last().map(|(_, claim)| *claim).unwrap_or_default();
        let again = Recorder::after_crash(&tape, state.image.to_vec());
        let mut next = Run::new(again, seen);
        let log = TailLog::open(next.member(), &OpenOptions::default());
        let log = log.map_err(|error| error.to_string())?;
        let found = records(&log);
        allows(&run.appended, claim, &found)?;
        if seen.is_multiple_of(25) {
            next.appended = found;
            next.trimmed = claim.trimmed;
            second += crash_again(next, &log)?;
        }
        Ok(())
    });
    outcome.map_err(|violation: Violation<String>| violation.to_string())?;
    Ok(seen + second)
}

/// Appends a little where the log was opened, and looks at every crash in between.
fn crash_again(mut run: Run, log: &TailLog) -> Result<u64, String> {
    let opened = run.recorder.position();
    run.note(log);
    for _ in 0..12 {
        run.step(log);
    }
    let tape = run.recorder.log();
    let mut seen = 0;
    let budget = Budget { states_per_point: 16, seed: seen };
    let outcome = check(&tape, &run.acks, budget, |state: CrashState<'_, Claim>| {
        if state.at < opened {
            return Ok(());
        }
        seen += 1;
        let claim = state.acknowledged.last().map(|(_, claim)| *claim).unwrap_or_default();
        let medium = Arc::new(Recorder::after_crash(&tape, state.image.to_vec()));
        let member = vec![Box::new(LocalStore::of_medium(medium)) as Box<dyn Store>];
        let log =
            TailLog::open(member, &OpenOptions::default()).map_err(|error| error.to_string())?;
        allows(&run.appended, claim, &records(&log)).map_err(|error| format!("again: {error}"))
    });
    outcome.map_err(|violation: Violation<String>| violation.to_string())?;
    Ok(seen)
}

fn recorder() -> Recorder {
    Recorder::pmem(usize::try_from(MEMBER_LEN).unwrap())
}

#[test]
fn no_crash_loses_a_record_of_threads_side_by_side() {
    let seeds = std::env::var("LANDFAST_CRASH_SEEDS").map_or(1, |seeds| seeds.parse().unwrap());
    let runs = 4 * seeds;
    let states: u64 = (1..=runs)
        .map(|seed| {
            let outcome = crash_everywhere(recorder(), seed, 120);
            outcome.unwrap_or_else(|bad| panic!("seed {seed}: {bad}"))
        })
        .sum();
    println!("{states} states of records side by side");
    assert!(states > 500 * seeds, "{states} states");
}

#[test]
fn threads_that_append_in_both_ways_find_all_their_records_in_order() {
    let emulated = pmem::OpenOptions { emulate_persistence: true };
    let medium = pmem::anonymous_with(8192 + (4 << 20), emulated).unwrap();
    let member = || vec![Box::new(LocalStore::of_medium(Arc::clone(&medium))) as Box<dyn Store>];
    let log = TailLog::create(member(), &CreateOptions::default()).unwrap();
    let acknowledged = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u8)
            .map(|writer| {
                let log = &log;
                scope.spawn(move || {
                    let mut last = Lsn::FIRST;
                    for number in 0..2000_u32 {
                        let mut record = vec![writer; usize::try_from(number % 150).unwrap()];
                        record.extend(number.to_le_bytes());
                        // Now and then the record is staged, and the next one cannot go beside it.
                        let lsn = match number % 7 {
                            6 => log.append(&record).unwrap(),
                            _ => log.append_commit(&record).unwrap(),
                        };
                        assert!(number % 7 == 6 || log.durable_lsn() > lsn);
                        last = lsn;
                    }
                    last
                })
            })
            .collect();
        writers.into_iter().map(|one| one.join().unwrap()).max().unwrap()
    });
    log.commit(acknowledged).unwrap();
    assert_eq!(log.durable_lsn(), log.tail());
    drop(log);
    let log = TailLog::open(member(), &OpenOptions::default()).unwrap();
    let found = records(&log);
    assert_eq!(found.len(), 8000);
    let mut next = [0_u32; 4];
    for (_, record) in found {
        let (writer, number) = record.split_at(record.len() - 4);
        let number = u32::from_le_bytes(number.try_into().unwrap());
        // The first of a hundred and fifty says nothing of its writer.
        let Some(writer) = writer.first() else { continue };
        let next = &mut next[usize::from(*writer)];
        assert!(*next <= number && number <= *next + 1);
        *next = number + 1;
    }
}

#[test]
fn a_thread_whose_memory_fails_ends_the_log_for_those_behind_it() {
    let medium = Arc::new(Recorder::pmem(usize::try_from(MEMBER_LEN).unwrap()));
    let memory = Arc::clone(&medium) as Arc<dyn Medium>;
    let member: Box<dyn Store> = Box::new(LocalStore::of_medium(Arc::clone(&memory)));
    let log = TailLog::create(vec![member], &CreateOptions::default()).unwrap();
    log.append_commit(b"acknowledged").unwrap();
    let before = log.reserve(10).unwrap().unwrap();
    let behind = log.reserve(10).unwrap().unwrap();
    behind.write(&*memory, b"0123456789").unwrap();
    log.publish(behind.range());
    assert_eq!(log.durable_lsn(), before.start);
    log.fail_directly(pmem::MediumError::MediaIo(5));
    assert!(matches!(log.commit(behind.lsn), Err(LogError::Broken)));
    assert!(matches!(log.append_commit(b"refused"), Err(LogError::Broken)));
    drop(log);
    let member: Box<dyn Store> = Box::new(LocalStore::of_medium(memory));
    let log = TailLog::open(vec![member], &OpenOptions::default()).unwrap();
    assert_eq!(records(&log).len(), 1);
}

/// Whether any of a few seeds finds the fault.
fn is_found(fault: Planted) -> bool {
    fault.during(|| (1..=10).any(|seed| crash_everywhere(recorder(), seed, 60).is_err()))
}

#[test]
fn a_record_that_counts_before_those_before_it_is_found() {
    assert!(is_found(Planted::PublishesOutOfOrder));
}

#[test]
fn a_record_that_its_thread_does_not_commit_is_found() {
    assert!(is_found(Planted::SkipsCommit));
}
