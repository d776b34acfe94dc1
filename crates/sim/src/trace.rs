//! What happened in a run, in order: a digest always, lines where somebody wants to read them.

use std::fs::File;
use std::io::{BufWriter, Write};

/// What happened, as a digest and, where asked for, as lines.
#[derive(Debug)]
pub(crate) struct Trace {
    digest: u64,
    lines: Option<BufWriter<File>>,
}

impl Trace {
    pub(crate) fn new(lines: Option<File>) -> Self {
        Self { digest: FNV_OFFSET, lines: lines.map(BufWriter::new) }
    }

    /// The digest so far: FNV-1a of all that was said.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Adds numbers to the digest.
    pub(crate) fn note(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.add(&number.to_le_bytes());
        }
    }

    /// Adds bytes to the digest.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
        }
    }

    /// Writes a line where lines are asked for. It is not part of the digest.
    pub(crate) fn line(&mut self, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            // A history that cannot be written is no fault of the run.
            let _ = writeln!(lines, "{}", text());
        }
    }
}

// Spec: draft-eastlake-fnv, §5, 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
