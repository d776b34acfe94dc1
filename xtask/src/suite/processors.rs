//! How much of the machine's processors was at work meanwhile: where it is little, steps may run side by side.
//!
//! Spec: proc_stat(5).

use std::fs;

/// The time that the processors have spent so far, in ticks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Processors {
    idle: u64,
    all: u64,
}

impl Processors {
    pub(super) fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The fraction of all processors that was not idle since then.
    pub(super) fn busy_since(before: Option<Self>) -> Option<f64> {
        let (before, now) = (before?, Self::now()?);
        let all = now.all.checked_sub(before.all).filter(|ticks| *ticks > 0)?;
        Some(1.0 - now.idle.saturating_sub(before.idle) as f64 / all as f64)
    }

    /// `cpu user nice system idle iowait irq softirq steal ...`, of all processors together.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(Self { idle, all: ticks.iter().take(8).sum() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_disk_counts_as_idle() {
        let stat = "cpu  100 5 20 800 70 1 2 3 0 0\ncpu0 50 2 10 400 35 0 1 1 0 0\n";
        assert_eq!(Processors::parse(stat), Some(Processors { idle: 870, all: 1001 }));
    }
}
