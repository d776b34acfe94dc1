//! The memory of a process stays within its budget while pages come and go: the short form of `examples/storm`.
//!
//! A program of its own: other tests would use memory of the same process.

#[cfg(test)]
#[path = "../examples/storm/run.rs"]
mod run;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::run::Storm;

    #[test]
    fn an_eviction_storm_keeps_memory_within_the_budget_and_five_percent() {
        let (budget, len) = (64 << 20, 1 << 30);
        let folder = "/var/tmp".into();
        let storm = Storm { folder, budget, len, placed_len: 256 << 20, threads: 2 };
        let worst = storm.run(Duration::from_secs(2), |_| {}).unwrap();
        assert!(worst.resident <= budget + budget / 20, "{worst}");
    }
}
