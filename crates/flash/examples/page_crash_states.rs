//! Crash states of flash regions, as many as wanted: runs, cuts after every event, checks.
//!
//! `cargo run --release -p landfast-flash --example page_crash_states -- [STATES [SEED]]`, 500,000 states without more. A state
//! that loses or tears what was acknowledged ends the program with the seed of its run.

#[path = "../tests/support/numbers.rs"]
mod numbers;

#[path = "../tests/support/crash_run.rs"]
mod crash_run;

use pmem::crash::Recorder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (wanted, mut seed) = (number(500_000)?, number(1)?);
    let first = seed;
    let mut states = 0;
    while states < wanted {
        let run = crash_run::check_run(Recorder::storage(crash_run::LEN), seed, 60);
        states += run.map_err(|error| format!("seed {seed}: {error}"))?;
        seed += 1;
    }
    println!(
        "{states} states of {} runs from seed {first} on: nothing lost, nothing torn",
        seed - first
    );
    Ok(())
}
