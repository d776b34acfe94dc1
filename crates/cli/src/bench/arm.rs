//! One mode of the benchmark, in its turn.

use std::time::Instant;

use hdrhistogram::Histogram;

use super::plan::Operations;
use super::report::histogram;
use crate::failure::Failure;

/// A connected mode.
pub(crate) trait Arm {
    /// Keeps the planned number of operations outstanding until `until`, then lets them finish.
    fn run(
        &mut self,
        operations: &mut Operations,
        until: Instant,
        recording: &mut Recording,
    ) -> Result<(), Failure>;

    /// The durability class of a commit on this arm, and the operation that reaches it.
    fn durability(&self) -> String;

    /// The kind of a commit, in a word for programs.
    fn commit(&self) -> &'static str;
}

/// The measurements of one thread in one turn.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) bytes: u64,
    pub(crate) durability: String,
    pub(crate) commit: &'static str,
}

impl Recording {
    /// An empty recording.
    pub(crate) fn new(durability: String, commit: &'static str) -> Self {
        Self { latency_ns: histogram(), bytes: 0, durability, commit }
    }

    /// Counts an operation on `bytes` that was issued at `issued` and is over now.
    pub(crate) fn finished(&mut self, issued: Instant, bytes: usize) {
        let ns = u64::try_from(issued.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.latency_ns.saturating_record(ns.max(1));
        self.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
    }
}
