//! The storm, for the example and for the short test.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flash::{Pool, PoolStats, map_file};
use pmem::Medium;

/// See the example.
#[derive(Debug)]
pub(crate) struct Storm {
    pub(crate) folder: PathBuf,
    pub(crate) budget: u64,
    pub(crate) len: u64,
    pub(crate) placed_len: u64,
    pub(crate) threads: u64,
}

/// The state of the process at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    /// Bytes that the storm made resident.
    pub(crate) resident: u64,
    pub(crate) accesses: u64,
    pub(crate) stats: PoolStats,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resident, accesses, stats } = self;
        write!(
            f,
            "resident {} KiB   budget {} KiB   accesses {accesses}   evicted {}   fetched {}   written {}   waits {}",
            resident >> 10,
            stats.budget >> 10,
            stats.evictions,
            stats.fetched,
            stats.written,
            stats.waits
        )
    }
}

impl Storm {
    /// Storms for a time; calls `each` about once a second, and returns the report with the most memory.
    pub(crate) fn run(
        &self,
        time: Duration,
        mut each: impl FnMut(Report),
    ) -> Result<Report, Box<dyn std::error::Error>> {
        let file = tempfile::tempfile_in(&self.folder)?;
        file.set_len(self.len)?;
        let before = resident()?;
        let pool = Pool::new(self.budget)?;
        let medium = map_file(&file, self.len, &pool.share(self.budget)?)?;
        let (stop, accesses) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut worst = Report::default();
        thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
            for thread in 0..self.threads {
                let (medium, stop, accesses) = (&*medium, &stop, &accesses);
                scope.spawn(move || self.storm(medium, thread, stop, accesses));
            }
            let (start, mut told) = (Instant::now(), Instant::now());
            let looked = loop {
                thread::sleep(Duration::from_millis(5));
                let resident = match resident() {
                    Ok(resident) => resident.saturating_sub(before),
                    Err(error) => break Err(error),
                };
                let accesses = accesses.load(Ordering::Relaxed);
                let report = Report { resident, accesses, stats: pool.stats() };
                if report.resident >= worst.resident {
                    worst = report;
                }
                if told.elapsed() >= Duration::from_secs(1) {
                    told = Instant::now();
                    each(report);
                }
                if start.elapsed() >= time {
                    break Ok(());
                }
            };
            stop.store(true, Ordering::Relaxed);
            Ok(looked?)
        })?;
        Ok(worst)
    }

    fn storm(&self, medium: &dyn Medium, seed: u64, stop: &AtomicBool, accesses: &AtomicU64) {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |bound: u64| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound
        };
        let mut page = [0; 4096];
        while !stop.load(Ordering::Relaxed) {
            accesses.fetch_add(1, Ordering::Relaxed);
            let outcome = if below(10) == 0 {
                medium.place(below(self.placed_len / 4096) * 4096, &page)
            } else {
                // Half of the reads meet pages that were placed, the others holes or anything.
                let len = if below(2) == 0 { self.placed_len } else { self.len };
                medium.read(below(len / 4096) * 4096, &mut page)
            };
            if let Err(error) = outcome {
                panic!("an access failed: {error}");
            }
        }
    }
}

/// Bytes of this process in memory.
fn resident() -> Result<u64, std::io::Error> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.unwrap_or(0) * 4096)
}
