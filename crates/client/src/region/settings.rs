//! What a region may use, and how long it waits.

use std::time::Duration;

use rdma::PollPolicy;

/// Bounds and habits of one region.
#[derive(Clone, Debug)]
pub struct RegionSettings {
    /// Bytes of writes that are kept until a commit confirms them. A write beyond it commits
    /// first.
    pub journal_bytes: usize,
    /// Operations submitted and not finished.
    pub outstanding_max: usize,
    /// How the engine waits for answers.
    pub polling: PollPolicy,
    /// How long the server may take for an answer on the push connection before the region falls
    /// back to SMB.
    pub answer_timeout: Duration,
}

impl Default for RegionSettings {
    fn default() -> Self {
        Self {
            journal_bytes: 4 << 20,
            outstanding_max: 256,
            polling: PollPolicy::Adaptive,
            answer_timeout: Duration::from_secs(30),
        }
    }
}
