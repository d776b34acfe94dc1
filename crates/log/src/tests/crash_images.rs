//! What every crash leaves, also a crash while the log is opened after the first one.
//!
//! A run appends, commits and trims at random. After each event of the medium every legal state is opened: it must
//! have every acknowledged record that was not trimmed, may have the next ones that were appended, and nothing else.
//! Of some states the opening and a few records more are a run of their own, whose crashes are looked at too.

use std::sync::Arc;

use pmem::Medium;
use pmem::crash::{AckLog, Budget, CrashState, Log, Recorder, Violation, check};

use super::memory::{MEMBER_LEN, Part, parts, records};
use crate::planted::Planted;
use crate::store::Store;
use crate::{CreateOptions, LogError, Lsn, MemberSet, OpenOptions, TailLog};

pub(super) type Record = (Lsn, Vec<u8>);

/// What a run did, up to some moment.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Every record that was appended and not trimmed, oldest first.
    pub(super) appended: Vec<Record>,
    /// How many of these were acknowledged.
    pub(super) acknowledged: usize,
    /// A trim was begun: records before it may be gone, or there.
    pub(super) trimming_to: Option<Lsn>,
}

impl History {
    /// Whether a log with these records is what a crash may leave.
    pub(super) fn allows(&self, found: &[Record]) -> Result<(), String> {
        let first = found.first().map_or(Lsn(u64::MAX), |(lsn, _)| *lsn);
        let is_gone =
            |(lsn, _): &&Record| self.trimming_to.is_some_and(|to| *lsn < to) && *lsn < first;
        let gone = self.appended.iter().take_while(is_gone).count();
        let expected = &self.appended[gone..];
        let least = self.acknowledged.saturating_sub(gone);
        if found.len() < least {
            return Err(format!("{} records, {least} were acknowledged", found.len()));
        }
        if expected.get(..found.len()) != Some(found) {
            return Err(format!("{:?} is no part of what was appended", lsns(found)));
        }
        Ok(())
    }
}

fn lsns(records: &[Record]) -> Vec<Lsn> {
    records.iter().map(|(lsn, _)| *lsn).collect()
}

/// Numbers that a seed decides (xorshift64*).
#[derive(Debug)]
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// A log under test, with what it did.
#[derive(Debug)]
struct Run {
    recorder: Arc<Recorder>,
    numbers: Numbers,
    history: History,
    acks: AckLog<History>,
}

impl Run {
    fn new(recorder: Recorder, seed: u64, history: History) -> Self {
        let numbers = Numbers::of(seed);
        let mut run = Self { recorder: Arc::new(recorder), numbers, history, acks: AckLog::new() };
        run.note();
        run
    }

    fn medium(&self) -> Arc<dyn Medium> {
        Arc::clone(&self.recorder) as _
    }

    fn note(&mut self) {
        self.acks.note(self.recorder.position(), self.history.clone());
    }

    /// Appends a few records, commits them, and now and then trims.
    fn step(&mut self, log: &TailLog) {
        let begun = self.history.appended.len();
        for _ in 0..=self.numbers.below(3) {
            let len = usize::try_from(32 + 64 * self.numbers.below(3)).unwrap();
            let byte = u8::try_from(self.numbers.below(256)).unwrap();
            match log.append(&vec![byte; len]) {
                Ok(lsn) => self.history.appended.push((lsn, vec![byte; len])),
                Err(LogError::Full { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        if begun < self.history.appended.len() {
            // From here on a crash may leave any of them.
            self.note();
            log.commit(self.history.appended.last().unwrap().0).unwrap();
            self.history.acknowledged = self.history.appended.len();
            self.note();
        }
        if self.numbers.below(4) == 0 || begun == self.history.appended.len() {
            self.trim(log);
        }
    }

    fn trim(&mut self, log: &TailLog) {
        let keep = usize::try_from(self.numbers.below(4)).unwrap();
        let gone = self.history.appended.len().saturating_sub(keep);
        let upto =
            self.history.appended.get(gone).map_or_else(|| log.durable_lsn(), |(lsn, _)| *lsn);
        self.history.trimming_to = Some(upto);
        self.note();
        log.trim(upto).unwrap();
        self.history.appended.drain(..gone);
        self.history.acknowledged = self.history.appended.len();
        self.history.trimming_to = None;
        self.note();
    }
}

/// How hard to look.
#[derive(Clone, Copy, Debug)]
struct Effort {
    steps: u32,
    states_per_point: u64,
    /// One state in so many is crashed again.
    again_every: u64,
}

/// The states that were opened, or the first that broke a promise.
fn crash_everywhere(
    recorder: Recorder,
    members: u64,
    seed: u64,
    effort: Effort,
) -> Result<u64, Violation<String>> {
    let mut run = Run::new(recorder, seed, History::default());
    let log = TailLog::create(parts(&run.medium()), &CreateOptions::default()).unwrap();
    let created = run.recorder.position();
    for _ in 0..effort.steps {
        run.step(&log);
    }
    drop(log);
    let tape = run.recorder.log();
    let (mut seen, mut second) = (0_u64, 0_u64);
    let budget = Budget { states_per_point: effort.states_per_point, seed };
    let first = check(&tape, &run.acks, budget, |state: CrashState<'_, History>| {
        if state.at < created {
            return Ok(());
        }
        seen += 1;
        let history = &state.acknowledged.last().expect("one is noted at the beginning").1;
        look_at_each(&tape, state.image, members, history)?;
        if seen.is_multiple_of(effort.again_every) {
            let recorder = Recorder::after_crash(&tape, state.image.to_vec());
            second += crash_again(recorder, members, seen, history, effort)?;
        }
        Ok(())
    })?;
    Ok(first + second)
}

/// Opens after a crash, appends a little, and looks at every crash in between.
fn crash_again(
    recorder: Recorder,
    members: u64,
    seed: u64,
    history: &History,
    effort: Effort,
) -> Result<u64, String> {
    let mut run = Run::new(recorder, seed, history.clone());
    let log = TailLog::open(parts(&run.medium()), &OpenOptions::default()).unwrap();
    let opened = run.recorder.position();
    // What the opening found is durable now, and nothing else may come back.
    run.history.appended = records(&log);
    run.history.acknowledged = run.history.appended.len();
    run.history.trimming_to = None;
    run.note();
    for _ in 0..2 {
        run.step(&log);
    }
    drop(log);
    let tape = run.recorder.log();
    let budget = Budget { states_per_point: effort.states_per_point.min(16), seed };
    let outcome = check(&tape, &run.acks, budget, |state: CrashState<'_, History>| {
        let history = &state.acknowledged.last().expect("one is noted at the beginning").1;
        look_at_each(&tape, state.image, members, history).map_err(|error| {
            format!("second crash ({} events, {opened} to open): {error}", state.at)
        })
    });
    outcome.map_err(|violation| violation.to_string())
}

/// All members together, and each alone where the others are lost.
fn look_at_each(tape: &Log, image: &[u8], members: u64, history: &History) -> Result<(), String> {
    for alone in (0..members).filter(|_| members > 1) {
        let copy: Arc<dyn Medium> = Arc::new(Recorder::after_crash(tape, image.to_vec()));
        let numbers: Vec<usize> = (0..usize::try_from(members).unwrap()).collect();
        let given_up = MemberSet::of(&numbers).without(usize::try_from(alone).unwrap());
        look(vec![Part::of(&copy, alone).0], given_up, history)
            .map_err(|error| format!("member {alone} alone: {error}"))?;
    }
    let medium: Arc<dyn Medium> = Arc::new(Recorder::after_crash(tape, image.to_vec()));
    look(parts(&medium), MemberSet::default(), history)
}

fn look(stores: Vec<Box<dyn Store>>, given_up: MemberSet, history: &History) -> Result<(), String> {
    let options = OpenOptions { given_up, ..OpenOptions::default() };
    let log = TailLog::open(stores, &options).map_err(|error| error.to_string())?;
    history.allows(&records(&log))
}

fn recorders(members: u64) -> [Recorder; 2] {
    let len = usize::try_from(members * MEMBER_LEN).unwrap();
    [Recorder::pmem(len), Recorder::storage(len)]
}

const EFFORT: Effort = Effort { steps: 60, states_per_point: 24, again_every: 50 };

/// Looks at every crash of runs of both kinds of media, as many seeds as `LANDFAST_CRASH_SEEDS` says.
fn no_crash_loses_a_record(members: u64) {
    let seeds = std::env::var("LANDFAST_CRASH_SEEDS").map_or(1, |seeds| seeds.parse().unwrap());
    let mut shown = 0;
    for seed in 1..=seeds {
        for recorder in recorders(members) {
            let outcome = crash_everywhere(recorder, members, seed, EFFORT);
            shown += outcome.unwrap_or_else(|bad| panic!("seed {seed}: {bad}"));
        }
    }
    println!("{shown} states of {members} members");
    assert!(shown > 500 * seeds, "{shown} states");
}

#[test]
fn no_crash_loses_or_tears_an_acknowledged_record() {
    no_crash_loses_a_record(1);
}

#[test]
fn no_crash_loses_an_acknowledged_record_of_a_mirror() {
    no_crash_loses_a_record(2);
}

/// Whether any of a few seeds finds the fault.
fn is_found(fault: Planted, members: u64) -> bool {
    let effort = Effort { steps: 20, again_every: 3, ..EFFORT };
    fault.during(|| {
        (1..=10).any(|seed| {
            recorders(members)
                .into_iter()
                .any(|recorder| crash_everywhere(recorder, members, seed, effort).is_err())
        })
    })
}

#[test]
fn a_commit_that_is_left_out_is_found() {
    assert!(is_found(Planted::SkipsCommit, 1));
}

#[test]
fn an_acknowledgement_before_a_member_has_the_record_is_found() {
    assert!(is_found(Planted::AcknowledgesBeforeMembers, 2));
}

#[test]
fn a_record_of_an_old_generation_that_is_taken_for_new_is_found() {
    assert!(is_found(Planted::AcceptsOldGeneration, 1));
}

#[test]
fn a_generation_that_is_used_twice_is_found() {
    assert!(is_found(Planted::ReusesGeneration, 1));
}

#[test]
fn room_that_is_free_before_the_label_says_so_is_found() {
    assert!(is_found(Planted::FreesBeforeLabel, 1));
}
