//! `landfast bench-local`: what durable writes and reads cost on this machine, mapped, through a volume, through a file and
//! through the tail of a log, with control arms that are none of ours, in turns.

mod arms;
mod fio;
mod row;

use std::fmt::Write as _;
use std::time::Duration;

use rustix::system::uname;
use serde_json::{Value, json};

use self::arms::{Arm, Site};
use self::row::{ROWS, Row, Sample};
use crate::args::BenchLocal;
use crate::failure::Failure;
use crate::output;

/// Measures all rows with all arms.
pub(crate) fn run(options: &BenchLocal) -> Result<(), Failure> {
    let failed = |what: String| Failure::BenchLocal { path: options.directory.clone(), what };
    let site = Site::new(&options.directory, options.size).map_err(failed)?;
    let mut arms = Vec::new();
    let mut missing = Vec::new();
    for (name, made) in arms::make(&site, &options.mode) {
        match made {
            Ok(arm) => arms.push(arm),
            Err(why) => missing.push((name, why)),
        }
    }
    if options.fio {
        match fio::find() {
            Ok(()) => arms.push(fio::arm(&site)),
            Err(why) => missing.push(("fio mmap", why)),
        }
    }
    let threads: Vec<usize> = options.threads.clone();
    let rows: Vec<Row> = ROWS.iter().flat_map(|row| row.with_threads(&threads)).collect();
    let turn = Duration::from_secs_f64(options.seconds.clamp(0.01, 60.0));
    let mut samples: Vec<Vec<Vec<Sample>>> = vec![vec![Vec::new(); arms.len()]; rows.len()];
    let total = rows.len() * arms.len() * options.rounds;
    let mut done = 0;
    for _ in 0..options.rounds {
        for (row, samples) in rows.iter().zip(&mut samples) {
            for (arm, samples) in arms.iter().zip(samples) {
                done += 1;
                tracing::info!(row = %row.name(), arm = arm.name(), "turn {done} of {total}");
                if let Some(sample) = arm.measure(row, turn).map_err(failed)? {
                    samples.push(sample);
                }
            }
        }
    }
    let report =
        Report { site: &site, arms: &arms, rows: &rows, samples: &samples, missing: &missing };
    output::say(&if options.json { format!("{}\n", report.json()) } else { report.text(options) })
}

/// What came of it.
struct Report<'a> {
    site: &'a Site,
    arms: &'a [Box<dyn Arm>],
    rows: &'a [Row],
    samples: &'a [Vec<Vec<Sample>>],
    missing: &'a [(&'static str, String)],
}

impl Report<'_> {
    fn text(&self, options: &BenchLocal) -> String {
        let mut out = format!(
            "{}: class {}{}, {} MiB, {} rounds of {} s in turns, middle of the rounds\n",
            options.directory.display(),
            self.site.class,
            self.site.as_if(),
            self.site.len >> 20,
            options.rounds,
            options.seconds
        );
        for (row, samples) in self.rows.iter().zip(self.samples) {
            let _ = writeln!(out, "{}", row.name());
            for (arm, samples) in self.arms.iter().zip(samples) {
                let Some(sample) = row::middle(samples) else { continue };
                let _ = writeln!(
                    out,
                    "  {:<28} {:>11.0}/s {:>9.1} MB/s   p50 {:>9.2} us   p99 {:>9.2} us",
                    arm.name(),
                    sample.rate,
                    sample.rate * row.bytes_f64() / 1e6,
                    sample.p50_us,
                    sample.p99_us
                );
            }
        }
        for (name, why) in self.missing {
            let _ = writeln!(out, "without {name}: {why}");
        }
        let _ = writeln!(out, "{}", conditions());
        out
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().zip(self.samples).map(|(row, samples)| {
            let arms = self.arms.iter().zip(samples).filter_map(|(arm, samples)| {
                let sample = row::middle(samples)?;
                Some(json!({
                    "arm": arm.name(),
                    "per_second": sample.rate,
                    "p50_us": sample.p50_us,
                    "p99_us": sample.p99_us,
                }))
            });
            json!({ "row": row.name(), "arms": arms.collect::<Vec<_>>() })
        });
        let missing = self.missing.iter().map(|(name, why)| json!({ "arm": name, "why": why }));
        json!({
            "class": self.site.class.to_string(),
            "is_emulated": self.site.is_emulated(),
            "bytes": self.site.len,
            "rows": rows.collect::<Vec<_>>(),
            "missing": missing.collect::<Vec<_>>(),
            "conditions": conditions(),
        })
    }
}

fn conditions() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores, Linux {}, load {}", uname().release().to_string_lossy(), load.trim())
}
