//! What every crash leaves, also a crash while a member recovers from the first one.
//!
//! A run appends, persists, frees room, starts again after its program died, and follows other sources at random. After
//! each event of the medium every legal state is opened: it must have the label that was in force or the one that was
//! being stored, every acknowledged record of that label, perhaps the next ones that were placed, and nothing else; and
//! the dirty map must have whatever the absent member lacks and the ring does not. Of some states the recovery and a few
//! steps more are a run of their own, whose crashes are looked at too.

use std::sync::Arc;

use pmem::Medium;
use pmem::crash::{CrashState, Recorder, Sabotage, StateId, Violation, check};

use super::order::GEOMETRY;
use super::run::{Claim, Run};
use crate::planted::Planted;

/// How hard to look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    pub(super) steps: u32,
    pub(super) states_per_point: u64,
    /// One state in so many is crashed again.
    pub(super) again_every: u64,
}

const EFFORT: Effort = Effort { steps: 40, states_per_point: 24, again_every: 50 };

fn budget(states_per_point: u64, seed: u64) -> pmem::crash::Budget {
    pmem::crash::Budget { states_per_point, seed }
}

/// The states that were opened, or the first that broke a promise.
fn crash_everywhere(
    recorder: Recorder,
    seed: u64,
    effort: Effort,
) -> Result<u64, Violation<String>> {
    let (mut run, created) = Run::create(recorder, seed, false);
    for _ in 0..effort.steps {
        let at = run.position();
        run.step().map_err(|error| Violation { at, state: StateId::Nth(0), error })?;
    }
    let (tape, acks) = run.end();
    let (mut seen, mut second) = (0_u64, 0_u64);
    let first = check(
        &tape,
        &acks,
        budget(effort.states_per_point, seed),
        |state: CrashState<'_, Claim>| {
            if state.at < created {
                return Ok(());
            }
            seen += 1;
            let claim = &state.acknowledged.last().expect("one is noted at the beginning").1;
            let again = || Recorder::after_crash(&tape, state.image.to_vec());
            look(again(), claim)?;
            if seen.is_multiple_of(effort.again_every) {
                second += crash_again(again(), seen ^ seed, claim, effort)?;
            }
            Ok(())
        },
    )?;
    // States before the ring was made have not been looked at.
    Ok(first.min(seen) + second)
}

/// Recovers after a crash, goes on a little, and looks at every crash in between.
fn crash_again(
    recorder: Recorder,
    seed: u64,
    claim: &Claim,
    effort: Effort,
) -> Result<u64, String> {
    let mut run = Run::recover(recorder, seed, claim)?;
    for _ in 0..2 {
        run.step()?;
    }
    let (tape, acks) = run.end();
    let budget = budget(effort.states_per_point.min(16), seed);
    let outcome = check(&tape, &acks, budget, |state: CrashState<'_, Claim>| {
        let claim = &state.acknowledged.last().expect("one is noted at the beginning").1;
        let again = Recorder::after_crash(&tape, state.image.to_vec());
        look(again, claim).map_err(|error| format!("second crash: {error}"))
    });
    outcome.map_err(|violation| violation.to_string())
}

/// Whether a state keeps the promises.
pub(super) fn look(recorder: Recorder, claim: &Claim) -> Result<(), String> {
    let medium: Arc<dyn Medium> = Arc::new(recorder);
    claim.allows(&medium).map(|_| ())
}

fn recorders() -> [Recorder; 2] {
    let len = usize::try_from(GEOMETRY.total()).unwrap();
    [Recorder::pmem(len), Recorder::storage(len)]
}

/// States to look at: `LANDFAST_CRASH_STATES`, or few.
fn wanted() -> u64 {
    std::env::var("LANDFAST_CRASH_STATES").map_or(60_000, |states| states.parse().unwrap())
}

#[test]
fn no_crash_loses_tears_or_invents_a_record() {
    let (mut shown, mut seed) = ([0_u64; 2], 0);
    while shown.iter().sum::<u64>() < wanted() {
        seed += 1;
        for (shown, recorder) in shown.iter_mut().zip(recorders()) {
            let outcome = crash_everywhere(recorder, seed, EFFORT);
            *shown += outcome.unwrap_or_else(|bad| panic!("seed {seed}: {bad}"));
        }
    }
    let [pmem, storage] = shown;
    println!(
        "{} crash states of {seed} seeds: {pmem} of memory, {storage} of a disk",
        pmem + storage
    );
}

/// Whether any of a few seeds finds the fault.
fn is_found(fault: Planted) -> bool {
    let effort = Effort { steps: 30, again_every: 5, ..EFFORT };
    fault.during(|| {
        (1..=20).any(|seed| {
            recorders()
                .into_iter()
                .any(|recorder| crash_everywhere(recorder, seed, effort).is_err())
        })
    })
}

#[test]
fn records_that_were_never_made_durable_are_found() {
    assert!(is_found(Planted::SkipsPersist));
}

#[test]
fn what_a_recovery_used_before_it_was_durable_is_found() {
    assert!(is_found(Planted::SkipsPersistOfFound));
}

#[test]
fn a_label_that_is_ahead_of_its_records_is_found() {
    assert!(is_found(Planted::LabelBeforeRecords));
}

#[test]
fn a_record_of_an_epoch_that_ended_before_it_is_found() {
    assert!(is_found(Planted::TakesOldEpochs));
}

#[test]
fn a_chain_that_is_not_checked_is_found() {
    assert!(is_found(Planted::SkipsChain));
}

#[test]
fn a_payload_that_is_not_checked_is_found() {
    assert!(is_found(Planted::SkipsPayloadSum));
}

#[test]
fn room_that_is_used_before_the_label_says_so_is_found() {
    assert!(is_found(Planted::FreesBeforeLabel));
}

#[test]
fn a_label_that_is_stored_over_the_one_in_force_is_found() {
    assert!(is_found(Planted::UsesOneSlot));
}

#[test]
fn a_torn_label_that_a_later_one_makes_whole_is_found() {
    assert!(is_found(Planted::KeepsTornLabels));
}

#[test]
fn dirty_bits_that_are_stored_after_the_room_is_free_are_found() {
    assert!(is_found(Planted::DirtyAfterReuse));
}

#[test]
fn an_epoch_that_is_used_twice_is_found() {
    assert!(is_found(Planted::ReusesEpoch));
}

#[test]
fn a_machine_that_ignores_what_makes_durable_is_found() {
    let len = usize::try_from(GEOMETRY.total()).unwrap();
    for sabotage in [
        Sabotage::SkipDrain,
        Sabotage::SkipWriteBack,
        Sabotage::SkipFlush,
        Sabotage::FlushBeganEarlier,
    ] {
        let is_found = (1..=10).any(|seed| {
            crash_everywhere(Recorder::sabotaged(len, sabotage), seed, EFFORT).is_err()
        });
        assert!(is_found, "{sabotage:?}");
    }
}
