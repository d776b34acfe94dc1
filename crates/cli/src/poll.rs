//! How an RDMA engine waits, as options name it.

use clap::ValueEnum;
use rdma::PollPolicy;

/// How an RDMA engine waits for work.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Poll {
    /// Spin for a window that grows and shrinks with the traffic, then sleep
    Adaptive,
    /// Never sleep
    Spin,
    /// Always sleep
    Block,
    /// Spin for 50 us, then sleep: what moderation of a fixed length does
    Fixed,
}

impl Poll {
    /// The policy of the engine.
    pub(crate) fn policy(self) -> PollPolicy {
        match self {
            Self::Adaptive => PollPolicy::Adaptive,
            Self::Spin => PollPolicy::Spin,
            Self::Block => PollPolicy::Block,
            Self::Fixed => PollPolicy::Fixed(FIXED_US),
        }
    }
}

// The control arm of comparisons of polling policies.
const FIXED_US: u32 = 50;
