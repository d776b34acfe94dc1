//! Crashes a volume at as many moments, and in as many ways, as asked for: `crash_states [STATES]`.
//!
//! Each story is one of `tests/crash`: one to three writers, a crash after every store, every legal state of what was not
//! durable or a sample of them, recovery, and for some a second crash. The long form of `cargo test --test crash`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use pmem::Medium;
use pmem::crash::Recorder;

#[expect(clippy::unwrap_used, reason = "it is a module of a test")]
#[path = "../tests/crash/story.rs"]
mod story;

use story::{LEN, Plan, Tally, check_story, tell};

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let (began, mut tally, mut seed) = (Instant::now(), Tally::default(), 0);
    while tally.states < wanted {
        let threads = 1 + usize::try_from(seed % 3).unwrap_or(0);
        let recorder = Arc::new(match seed % 8 {
            7 => Recorder::storage(LEN),
            _ => Recorder::pmem(LEN),
        });
        let medium = Arc::clone(&recorder) as Arc<dyn Medium>;
        let story = tell(&recorder, &medium, Plan { seed, threads, steps: 32 });
        match check_story(&story, 64) {
            Ok(more) => tally += more,
            Err(why) => {
                println!("seed {seed}: {why}");
                return ExitCode::FAILURE;
            }
        }
        seed += 1;
    }
    println!(
        "{} states of {seed} stories, {} of them after a second crash: nothing torn or lost, {} s",
        tally.states,
        tally.second_crashes,
        began.elapsed().as_secs()
    );
    ExitCode::SUCCESS
}
