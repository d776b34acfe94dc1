//! What a commit costs beside a path: 4 KiB are placed and made durable, again and again, in a file without a name.

use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use pmem::{DurabilityClass, MapError, MediumError};
use serde::Serialize;

use super::place::Place;

/// What was measured.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(super) enum Cost {
    /// Nothing, and why.
    NotMeasured { why: String },
    /// Commits of 4 KiB, one after the other.
    Measured { commits: u64, p50_ns: u64, p99_ns: u64, is_emulated: bool },
}

impl Cost {
    pub(super) fn measure(place: &Place, seconds: f64) -> Self {
        let Some(directory) = &place.directory else {
            let why = "it would be overwritten; a directory on it can be measured";
            return Self::NotMeasured { why: why.to_owned() };
        };
        measured(directory, Duration::from_secs_f64(seconds.clamp(0.0, SECONDS_MAX)))
            .unwrap_or_else(|why| Self::NotMeasured { why })
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::NotMeasured { why } => format!("not measured: {why}"),
            Self::Measured { commits, p50_ns, p99_ns, is_emulated } => {
                let as_if = if *is_emulated { ", as if this memory were persistent" } else { "" };
                format!(
                    "4 KiB placed and durable in {} (p50), {} (p99), of {commits}{as_if}",
                    time(*p50_ns),
                    time(*p99_ns)
                )
            }
        }
    }
}

fn measured(directory: &Path, limit: Duration) -> Result<Cost, String> {
    let file = tempfile::tempfile_in(directory)
        .map_err(|error| format!("no file can be made in {}: {error}", directory.display()))?;
    let told = |error: std::io::Error| error.to_string();
    file.set_len(LEN).map_err(told)?;
    let options = pmem::OpenOptions { emulate_persistence: true };
    let medium =
        pmem::map_file(&file, LEN, options).map_err(|error: MapError| error.to_string())?;
    let failed = |error: MediumError| error.to_string();
    // Blocks of the file system and pages of the mapping are there before the clock runs.
    medium.prepare(0, LEN).map_err(failed)?;
    let bytes = [0x5a; BLOCK];
    for offset in (0..LEN).step_by(BLOCK) {
        medium.place(offset, &bytes).map_err(failed)?;
    }
    medium.persist(0, LEN).map_err(failed)?;
    let mut times =
        Histogram::<u64>::new_with_max(HOUR_NS, 3).map_err(|error| error.to_string())?;
    let (began, blocks) = (Instant::now(), LEN / BLOCK as u64);
    let mut block = 0;
    while began.elapsed() < limit || times.is_empty() {
        // Every block once, none beside the one before.
        block = (block + STRIDE) % blocks;
        let at = Instant::now();
        medium.place(block * BLOCK as u64, &bytes).map_err(failed)?;
        medium.persist(block * BLOCK as u64, BLOCK as u64).map_err(failed)?;
        let took = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        times.saturating_record(took.max(1));
    }
    Ok(Cost::Measured {
        commits: times.len(),
        p50_ns: times.value_at_quantile(0.5),
        p99_ns: times.value_at_quantile(0.99),
        is_emulated: medium.class() == DurabilityClass::Volatile,
    })
}

#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} us", ns as f64 / 1e3),
        _ => format!("{:.2} ms", ns as f64 / 1e6),
    }
}

/// Bytes of the file.
const LEN: u64 = 16 << 20;
/// No commit takes longer.
const HOUR_NS: u64 = 3_600_000_000_000;
/// Bytes of a commit.
const BLOCK: usize = 4096;
/// Coprime to the number of blocks.
const STRIDE: u64 = 1_237;
const SECONDS_MAX: f64 = 60.0;
