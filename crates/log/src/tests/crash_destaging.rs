//! What every crash leaves of a tail and its archive, also a crash while both are opened after the first one.
//!
//! A run appends, commits, destages and has the archive forget, at random. After each event of the medium every legal
//! state is opened: the archive and behind it the tail must have every acknowledged record that was not forgotten, may have
//! the next ones that were appended, and nothing else.

use std::sync::Arc;

use pmem::Medium;
use pmem::crash::{AckLog, Budget, CrashState, Log, Recorder, Violation, check};

use super::crash_images::{History, Numbers, Record};
use super::memory::{MEMBER_LEN, Part};
use crate::destager::Work;
use crate::planted::Planted;
use crate::store::Store;
use crate::{Archive, CreateOptions, LogError, OpenOptions, TailLog};

/// Labels and four times the ring of the tail.
const ARCHIVE_LEN: u64 = 8192 + 4 * 4096;

fn tail(medium: &Arc<dyn Medium>) -> Vec<Box<dyn Store>> {
    vec![Part::range(medium, 0, MEMBER_LEN)]
}

fn archive(medium: &Arc<dyn Medium>) -> Box<dyn Store> {
    Part::range(medium, MEMBER_LEN, ARCHIVE_LEN)
}

struct Run {
    recorder: Arc<Recorder>,
    numbers: Numbers,
    history: History,
    acks: AckLog<History>,
}

impl Run {
    fn new(recorder: Recorder, seed: u64, history: History) -> Self {
        let recorder = Arc::new(recorder);
        let mut run = Self { recorder, numbers: Numbers::of(seed), history, acks: AckLog::new() };
        run.note();
        run
    }

    fn medium(&self) -> Arc<dyn Medium> {
        Arc::clone(&self.recorder) as _
    }

    fn note(&mut self) {
        self.acks.note(self.recorder.position(), self.history.clone());
    }

    fn step(&mut self, log: &TailLog, work: &mut Work) {
        for _ in 0..=self.numbers.below(3) {
            let len = usize::try_from(16 + 100 * self.numbers.below(6)).unwrap();
            let byte = u8::try_from(self.numbers.below(256)).unwrap();
            match log.append(&vec![byte; len]) {
                Ok(lsn) => self.history.appended.push((lsn, vec![byte; len])),
                Err(LogError::Full { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        if let Some((last, _)) = self.history.appended.last().cloned() {
            self.note();
            log.commit(last).unwrap();
            self.history.acknowledged = self.history.appended.len();
            self.note();
        }
        let is_urgent = self.numbers.below(3) == 0;
        match work.round(log, is_urgent) {
            Ok(()) => {}
            Err(LogError::ArchiveFull) => self.forget(work),
            Err(error) => panic!("{error}"),
        }
    }

    /// The archive keeps the newer half of what it has.
    fn forget(&mut self, work: &mut Work) {
        let end = work.archive.end();
        let there = self.history.appended.iter().take_while(|(lsn, _)| *lsn < end).count();
        let gone = there / 2;
        let upto = self.history.appended.get(gone).map_or(end, |(lsn, _)| *lsn);
        self.history.trimming_to = Some(upto);
        self.note();
        work.archive.forget(upto).unwrap();
        self.history.appended.drain(..gone);
        self.history.acknowledged -= gone;
        self.history.trimming_to = None;
        self.note();
    }
}

#[derive(Clone, Copy, Debug)]
struct Effort {
    steps: u32,
    states_per_point: u64,
    again_every: u64,
}

fn crash_everywhere(
    recorder: Recorder,
    seed: u64,
    effort: Effort,
) -> Result<u64, Violation<String>> {
    let mut run = Run::new(recorder, seed, History::default());
    let log = TailLog::create(tail(&run.medium()), &CreateOptions::default()).unwrap();
    let mut work = Work::begin(&log, archive(&run.medium())).unwrap();
    let begun = run.recorder.position();
    for _ in 0..effort.steps {
        run.step(&log, &mut work);
    }
    drop((log, work));
    let tape = run.recorder.log();
    let (mut seen, mut second) = (0_u64, 0_u64);
    let budget = Budget { states_per_point: effort.states_per_point, seed };
    let first = check(&tape, &run.acks, budget, |state: CrashState<'_, History>| {
        if state.at < begun {
            return Ok(());
        }
        seen += 1;
        let history = &state.acknowledged.last().expect("one is noted at the beginning").1;
        look(&tape, state.image, history)?;
        if seen.is_multiple_of(effort.again_every) {
            let recorder = Recorder::after_crash(&tape, state.image.to_vec());
            second += crash_again(recorder, seen, history, effort)?;
        }
        Ok(())
    })?;
    Ok(first + second)
}

/// Opens both after a crash, goes on, and looks at every crash in between.
fn crash_again(
    recorder: Recorder,
    seed: u64,
    history: &History,
    effort: Effort,
) -> Result<u64, String> {
    let mut run = Run::new(recorder, seed, history.clone());
    let log = TailLog::open(tail(&run.medium()), &OpenOptions::default()).unwrap();
    let found = records(&log, &run.medium())?;
    let begun = Work::begin(&log, archive(&run.medium()));
    let mut work = begun.map_err(|error| format!("to destage again: {error}"))?;
    run.history.appended = found;
    run.history.acknowledged = run.history.appended.len();
    run.history.trimming_to = None;
    run.note();
    for _ in 0..3 {
        run.step(&log, &mut work);
    }
    drop((log, work));
    let tape = run.recorder.log();
    let budget = Budget { states_per_point: effort.states_per_point.min(16), seed };
    let outcome = check(&tape, &run.acks, budget, |state: CrashState<'_, History>| {
        let history = &state.acknowledged.last().expect("one is noted at the beginning").1;
        look(&tape, state.image, history)
            .map_err(|error| format!("second crash ({} events): {error}", state.at))
    });
    outcome.map_err(|violation| violation.to_string())
}

fn look(tape: &Log, image: &[u8], history: &History) -> Result<(), String> {
    let medium: Arc<dyn Medium> = Arc::new(Recorder::after_crash(tape, image.to_vec()));
    let log = TailLog::open(tail(&medium), &OpenOptions::default());
    let log = log.map_err(|error| error.to_string())?;
    history.allows(&records(&log, &medium)?)?;
    // A destager can continue.
    Work::begin(&log, archive(&medium)).map(drop).map_err(|error| format!("to destage: {error}"))
}

/// What the archive has before the tail begins, and what the tail has.
fn records(log: &TailLog, medium: &Arc<dyn Medium>) -> Result<Vec<Record>, String> {
    let start = log.start_lsn();
    let mut archive =
        Archive::open(archive(medium), None).map_err(|error| format!("archive: {error}"))?;
    let first = archive.start();
    let all: Result<Vec<Record>, LogError> = archive.replay(first).collect();
    let mut all = all.map_err(|error| format!("archive: {error}"))?;
    all.retain(|(lsn, _)| *lsn < start);
    let tail: Result<Vec<Record>, LogError> =
        log.replay(start).map_err(|error| error.to_string())?.collect();
    all.extend(tail.map_err(|error| error.to_string())?);
    Ok(all)
}

fn recorders() -> [Recorder; 2] {
    let len = usize::try_from(MEMBER_LEN + ARCHIVE_LEN).unwrap();
    [Recorder::pmem(len), Recorder::storage(len)]
}

const EFFORT: Effort = Effort { steps: 30, states_per_point: 12, again_every: 60 };

/// As many seeds as `LANDFAST_CRASH_SEEDS` says.
#[test]
fn no_crash_loses_a_record_between_tail_and_archive() {
    let seeds = std::env::var("LANDFAST_CRASH_SEEDS").map_or(1, |seeds| seeds.parse().unwrap());
    let mut shown = 0;
    for seed in 1..=seeds {
        for recorder in recorders() {
            let outcome = crash_everywhere(recorder, seed, EFFORT);
            shown += outcome.unwrap_or_else(|bad| panic!("seed {seed}: {bad}"));
        }
    }
    println!("{shown} states of a tail and its archive");
    assert!(shown > 500 * seeds, "{shown} states");
}

fn is_found(fault: Planted) -> bool {
    let effort = Effort { steps: 12, again_every: 5, ..EFFORT };
    fault.during(|| {
        (1..=10).any(|seed| {
            recorders()
                .into_iter()
                .any(|recorder| crash_everywhere(recorder, seed, effort).is_err())
        })
    })
}

#[test]
fn a_tail_that_forgets_before_the_archive_has_the_records_is_found() {
    assert!(is_found(Planted::TrimsBeforeArchive));
}

#[test]
fn a_round_that_is_noted_before_its_records_are_there_is_found() {
    assert!(is_found(Planted::NotesBeforeSettled));
}
