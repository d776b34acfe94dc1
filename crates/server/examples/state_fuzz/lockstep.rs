//! Two servers are asked the same, step by step, and have to do alike.
//!
//! Clients take turns, so that a step has one outcome. A run ends at its first difference: behind it the servers are
//! in different states. A difference that the file of differences explains ends its run too, and is no fault.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use crate::differences::Differences;
use crate::link::Place;
use crate::plan::{Part, Plan};
use crate::random::Random;
use crate::side::Side;
use crate::step::{Act, Outcome};

/// What is tried.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) part: Part,
    /// Ours, and the one beside it: the address, and the directory of the share.
    pub(crate) servers: [(SocketAddr, PathBuf); 2],
    pub(crate) differences: PathBuf,
    pub(crate) place: Place,
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
}

/// Runs seed after seed until the time is over. What differs, one of each kind.
pub(crate) fn run(options: &Options) -> Vec<String> {
    let mut differences = Differences::read(&options.differences);
    let clients = options.part.clients();
    let mut sides = options
        .servers
        .clone()
        .map(|(address, directory)| Side::enter(address, &directory, &options.place, clients));
    let (begin, mut faults) = (Instant::now(), Vec::<String>::new());
    let (mut seed, mut steps, mut explained) = (options.seed, 0, 0);
    while faults.len() < FAULTS_MAX
        && (seed == options.seed || begin.elapsed().as_secs_f64() < options.seconds)
    {
        let (taken, end) = run_seed(options.part, seed, &mut sides, &mut differences);
        match end {
            End::Alike => {}
            End::Explained => explained += 1,
            End::Differs(fault) => {
                let fault = format!("seed {seed}: {fault}");
                println!("FAULT {fault}");
                faults.push(fault);
            }
        }
        (seed, steps) = (seed + 1, steps + taken);
    }
    let runs = seed - options.seed;
    println!(
        "ran {:?}: {runs} runs, {steps} steps, {explained} ended by known differences",
        options.part
    );
    for pattern in differences.unmet() {
        println!("not met: {pattern}");
    }
    faults
}

/// How a run ended.
enum End {
    Alike,
    Explained,
    Differs(String),
}

fn run_seed(
    part: Part,
    seed: u64,
    sides: &mut [Side; 2],
    differences: &mut Differences,
) -> (u64, End) {
    for side in &mut *sides {
        side.begin(format!("run{seed}"));
    }
    let (mut random, mut plan) = (Random::new(seed), Plan::new(part));
    let (mut taken, mut said) = (0, Vec::new());
    let mut found = None;
    for _ in 0..STEPS {
        let step = plan.next(&mut random);
        let outcomes = sides.each_mut().map(|side| side.act(&step));
        let outcomes = settle(sides, outcomes);
        let [ours, theirs] = &outcomes;
        taken += 1;
        if !ours.is_like(theirs) {
            found = Some(format!("{step} => {ours} | {theirs}"));
            break;
        }
        said.push(format!("{step} => {ours}"));
        plan.is_done(&step, ours);
        if let (Act::Open(_), true) = (&step.act, ours.status.is_error()) {
            sides.iter_mut().for_each(|side| side.forget(step.open));
        }
    }
    let [ours, theirs] = sides.each_mut().map(Side::end);
    if found.is_none() && ours != theirs {
        found = Some(format!("at the end => {} | {}", ours.join(" "), theirs.join(" ")));
    }
    let end = match found {
        None => End::Alike,
        Some(difference) if differences.explain(&difference) => End::Explained,
        Some(difference) => {
            End::Differs(format!("{difference}\n    after\n    {}", said.join("\n    ")))
        }
    };
    (taken, end)
}

// A break that nobody waits for may come behind the answer.
fn settle(sides: &mut [Side; 2], mut outcomes: [Outcome; 2]) -> [Outcome; 2] {
    for _ in 0..LATE_MAX {
        let [ours, theirs] = &outcomes;
        if ours.breaks == theirs.breaks {
            break;
        }
        let [ours, theirs] = &mut outcomes;
        sides[0].wait_for_breaks(ours);
        sides[1].wait_for_breaks(theirs);
    }
    outcomes
}

/// Of one run.
const STEPS: usize = 60;
/// How often late breaks are waited for.
const LATE_MAX: usize = 5;
/// Enough to see what kinds of differences there are.
const FAULTS_MAX: usize = 20;
