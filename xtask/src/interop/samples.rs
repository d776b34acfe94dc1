//! One hundred files whose sizes sit where transfers break: nothing, one byte, both sides of every
//! page, sector, credit and transfer limit, and one far larger than any buffer.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::failure::Failure;
use crate::process::Step;

/// How many bytes a set of files may hold in all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Spread {
    /// About 1.2 GiB.
    Full,
    /// About 350 MiB, the 256 MiB file included.
    Short,
}

/// The sizes of the set, smallest first. The same on every run.
pub(crate) fn sizes(spread: Spread) -> Vec<u64> {
    let mut sizes: Vec<u64> = vec![0, 1, 2, 7, 8, 9, LARGEST];
    for power in EDGES {
        let edge = 1_u64 << power;
        sizes.extend([edge - 1, edge, edge + 1]);
    }
    // The rest grows evenly in the logarithm up to the size that gives the total: each file is a
    // fixed ratio larger than the one before.
    let last: u64 = match spread {
        Spread::Full => 96 << 20,
        Spread::Short => 8 << 20,
    };
    let mut size = last;
    while sizes.len() < FILES {
        sizes.push(size | 1);
        size = size * 9 / 10;
    }
    sizes.sort_unstable();
    sizes
}

/// The name of file `index` in the set.
pub(crate) fn name(index: usize, size: u64) -> String {
    format!("{index:03}-{size}.bin")
}

/// Writes the whole set into `dir` and its checksums into `checksums`, in the form `sha256sum`
/// reads. Hands back the number of bytes.
pub(crate) fn write(dir: &Path, checksums: &Path, spread: Spread) -> Result<u64, Failure> {
    let mut total = 0;
    let sizes = sizes(spread);
    for (index, size) in sizes.iter().enumerate() {
        let path = dir.join(name(index, *size));
        write_one(&path, index, *size).map_err(Failure::io("writing", &path))?;
        total += size;
    }
    let sums = Step::new("sha256sum")
        .arg("--")
        .args(sizes.iter().enumerate().map(|(index, size)| name(index, *size)))
        .dir(dir)
        .quiet()
        .output()?;
    std::fs::write(checksums, sums).map_err(Failure::io("writing", checksums))?;
    Ok(total)
}

/// How many files of `dir` have the checksums that [`write`] recorded; the others are evidence.
pub(crate) fn verify(dir: &Path, checksums: &Path) -> Result<Vec<String>, Failure> {
    let finished = Step::new("sha256sum")
        .args(["--check", "--quiet", "--strict"])
        .arg(checksums)
        .dir(dir)
        .finish()?;
    let mut bad: Vec<String> = finished.stdout.lines().map(str::to_owned).collect();
    if !finished.status.success() && bad.is_empty() {
        bad.push(finished.stderr);
    }
    Ok(bad)
}

/// Bytes that no two places share, so that a misplaced block never goes unseen: a 64-bit
/// xorshift stream seeded by the file's number.
fn write_one(path: &Path, index: usize, size: u64) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let seed = u64::try_from(index).unwrap_or(u64::MAX).wrapping_add(1);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut left = size;
    while left > 0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let bytes = state.to_le_bytes();
        let take = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        file.write_all(&bytes[..take])?;
        left -= u64::try_from(take).unwrap_or(left);
    }
    file.flush()
}

/// How many files a set has (issue: "100 files of 0 B to 256 MiB").
const FILES: usize = 100;
/// The largest file.
const LARGEST: u64 = 256 << 20;
/// Powers of two with a limit at them: sector, page, credit unit, transfer sizes of clients.
const EDGES: [u32; 10] = [9, 12, 13, 15, 16, 17, 18, 20, 22, 23];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sets_have_one_hundred_files_from_nothing_to_256_mib() {
        for (spread, least, most) in
            [(Spread::Full, 1100 << 20, 1300 << 20), (Spread::Short, 300 << 20, 400 << 20)]
        {
            let sizes = sizes(spread);
            assert_eq!((sizes.len(), sizes[0], sizes[99]), (100, 0, 256 << 20));
            let total: u64 = sizes.iter().sum();
            assert!((least..=most).contains(&total), "{spread:?} holds {} MiB", total >> 20);
        }
    }

    #[test]
    fn a_changed_byte_and_a_missing_file_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let sums = dir.path().join("sums");
        let files = dir.path().join("files");
        std::fs::create_dir(&files).unwrap();
        std::fs::write(files.join("a"), "one").unwrap();
        std::fs::write(files.join("b"), "two").unwrap();
        let text = Step::new("sha256sum").args(["a", "b"]).dir(&files).quiet().output().unwrap();
        std::fs::write(&sums, text).unwrap();
        assert!(verify(&files, &sums).unwrap().is_empty());
        std::fs::write(files.join("a"), "ons").unwrap();
        std::fs::remove_file(files.join("b")).unwrap();
        assert_eq!(verify(&files, &sums).unwrap().len(), 2);
    }
}
