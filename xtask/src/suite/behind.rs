//! What the suite does behind its steps: work of later steps, at the weakest claim to a processor, while the steps before
//! them wait for peers more than they compute.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::failure::Outcome;
use crate::{fuzz, sim};

static SIMULATION: Mutex<Option<JoinHandle<Outcome>>> = Mutex::new(None);

/// Begins what is chosen: the instrumented build of the fuzz targets, then the simulator's seeds.
pub(crate) fn begin(fuzzes: bool, simulates: bool) {
    let run = move || {
        // Of this thread and of what it starts: what other steps measure and compile comes first.
        let _ = rustix::process::nice(NICE);
        if fuzzes {
            fuzz::build_ahead();
        }
        match simulates {
            true => sim::run(&sim::Options::behind()),
            false => Ok(Default::default()),
        }
    };
    let begun = thread::Builder::new().name("behind".to_owned()).spawn(run);
    *SIMULATION.lock().unwrap_or_else(PoisonError::into_inner) = begun.ok().filter(|_| simulates);
}

/// What the simulator found; it runs now if it did not run behind.
pub(crate) fn simulation() -> Outcome {
    let begun = SIMULATION.lock().unwrap_or_else(PoisonError::into_inner).take();
    match begun.map(JoinHandle::join) {
        Some(Ok(outcome)) => outcome,
        _ => sim::run(&sim::Options::short()),
    }
}

/// Weakest claim to a processor.
const NICE: i32 = 19;
