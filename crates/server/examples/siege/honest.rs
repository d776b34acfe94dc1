//! The honest client: what it does in each line, and how long it took.

use std::fmt;
use std::time::{Duration, Instant};

use smb::NtStatus;

use crate::Siege;

/// How the honest client was served.
pub(crate) struct Served {
    pub(crate) p99: u64,
    slowest: u64,
    rounds: usize,
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p99, slowest, rounds } = self;
        write!(f, "honest_us={p99} slowest_us={slowest} rounds={rounds}")
    }
}

impl Siege {
    /// Rounds of an honest client, logons of its own included.
    pub(crate) fn honest(&self) -> Served {
        let begin = Instant::now();
        let mut took = Vec::new();
        let mut wire = self.log_on(200, ("other", "hidden"));
        while begin.elapsed().as_secs_f64() < self.seconds || took.len() < ROUNDS_MIN {
            let round = Instant::now();
            if took.len() % 50 == 49 {
                wire = self.log_on(200, ("other", "hidden"));
            }
            let opened = wire.open("honest", |_| {});
            assert_eq!(opened.status, NtStatus::SUCCESS, "an honest client is refused");
            let written = wire.write(opened.id, &[7; 4096]);
            assert_eq!(written, NtStatus::SUCCESS, "an honest client is refused");
            assert_eq!(wire.close(opened.id), NtStatus::SUCCESS);
            took.push(u64::try_from(round.elapsed().as_micros()).unwrap());
        }
        took.sort_unstable();
        let (p99, slowest) = (took[took.len() * 99 / 100], took[took.len() - 1]);
        Served { p99, slowest, rounds: took.len() }
    }
}

/// How long an honest client waits for an answer: as long as the clients that people have.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const ROUNDS_MIN: usize = 100;
