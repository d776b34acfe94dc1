//! What a disk, or memory, does that a log or volumes would lie on.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use serde::Serialize;

use super::samples::Percentiles;

/// What was measured in a directory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskRates {
    /// The directory.
    pub directory: PathBuf,
    /// A write of 4 KiB at the end of a file, and making it durable.
    pub append: Percentiles,
    /// Bytes in a second, written in a row and made durable at the end.
    pub write_per_second: f64,
    /// Bytes in a second, read in a row after the kernel was asked to forget them. What lies below may remember them.
    pub read_per_second: f64,
}

/// Why a directory cannot be measured.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", directory.display())]
pub struct DiskError {
    /// The directory.
    pub directory: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Measures the file system of `directory` with a file of `len` bytes that has no name, and is gone afterwards; a part of
/// the measurement that takes longer than `limit` ends there.
///
/// # Errors
///
/// No such file can be made, written, made durable or read.
pub fn measure_disk(directory: &Path, len: u64, limit: Duration) -> Result<DiskRates, DiskError> {
    measure(directory, len, limit)
        .map_err(|source| DiskError { directory: directory.to_owned(), source })
}

fn measure(directory: &Path, len: u64, limit: Duration) -> io::Result<DiskRates> {
    let file = tempfile::tempfile_in(directory)?;
    let append = appends(&file, limit)?;
    // Bytes that no disk makes smaller.
    let block = noise();
    let began = Instant::now();
    let mut written = 0;
    while written < len.max(BLOCK as u64) && began.elapsed() < limit {
        file.write_all_at(&block, written)?;
        written += BLOCK as u64;
    }
    file.sync_data()?;
    let write_per_second = rate(written, began);
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    let (mut out, mut read) = (vec![0; BLOCK], 0);
    let began = Instant::now();
    while read < written && began.elapsed() < limit {
        file.read_exact_at(&mut out, read)?;
        read += BLOCK as u64;
    }
    let read_per_second = rate(read, began);
    Ok(DiskRates { directory: directory.to_owned(), append, write_per_second, read_per_second })
}

fn appends(file: &File, limit: Duration) -> io::Result<Percentiles> {
    let bytes = [7; 4096];
    let (began, mut times) = (Instant::now(), Vec::new());
    while times.len() < APPENDS && began.elapsed() < limit {
        let at = u64::try_from(times.len() * bytes.len()).unwrap_or(u64::MAX);
        let one = Instant::now();
        file.write_all_at(&bytes, at)?;
        file.sync_data()?;
        times.push(one.elapsed());
    }
    Ok(Percentiles::of(times))
}

#[allow(clippy::cast_precision_loss, reason = "a rate of 53 bits says enough")]
pub(super) fn rate(bytes: u64, began: Instant) -> f64 {
    bytes as f64 / began.elapsed().as_secs_f64().max(1e-9)
}

fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let word = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..BLOCK / 8).flat_map(word).collect()
}

/// Bytes that are written or read at once.
const BLOCK: usize = 1 << 20;
/// Appends that are measured.
const APPENDS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_measured_and_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let rates = measure_disk(directory.path(), 8 << 20, Duration::from_secs(5)).unwrap();
        assert!(rates.append.count > 0 && rates.append.p50_us > 0.0);
        assert!(rates.write_per_second > 0.0 && rates.read_per_second > 0.0);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let missing = directory.path().join("missing");
        let refused = measure_disk(&missing, 1, Duration::from_secs(1)).unwrap_err();
        assert!(refused.to_string().contains("missing"), "{refused}");
    }
}
