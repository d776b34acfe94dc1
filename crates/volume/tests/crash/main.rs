//! No crash, at any moment, loses or tears a sector whose write has returned; and the checks fail on a volume whose
//! fences, flog writes or persists are left out.

#[cfg(test)]
#[path = "../support/hooked.rs"]
mod hooked;
#[cfg(test)]
mod planted;
#[cfg(test)]
mod story;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pmem::Medium;
    use pmem::crash::{Recorder, Sabotage};

    use crate::planted::Planted;
    use crate::story::{LEN, Plan, Tally, check_story, tell};

    /// Stories of one thread and of two.
    fn check_stories(count: u64, states_per_point: u64) -> Result<Tally, String> {
        let mut tally = Tally::default();
        for seed in 0..count {
            let plan = Plan { seed, threads: 1 + usize::from(seed % 2 == 1), steps: 24 };
            let recorder = Arc::new(Recorder::pmem(LEN));
            let story = tell(&recorder, &(Arc::clone(&recorder) as Arc<dyn Medium>), plan);
            tally += check_story(&story, states_per_point)?;
        }
        Ok(tally)
    }

    #[test]
    fn no_crash_on_persistent_memory_loses_or_tears_a_written_sector() {
        let tally = check_stories(12, 24).unwrap();
        assert!(tally.states >= 10_000, "only {tally:?}");
        assert!(tally.second_crashes >= 1_000, "only {tally:?}");
    }

    #[test]
    fn no_crash_on_storage_loses_or_tears_a_written_sector() {
        for seed in 0..4 {
            let recorder = Arc::new(Recorder::storage(LEN));
            let medium = Arc::clone(&recorder) as Arc<dyn Medium>;
            let story = tell(&recorder, &medium, Plan { seed, threads: 1, steps: 16 });
            check_story(&story, 64).unwrap();
        }
    }

    #[test]
    fn a_machine_without_fences_or_write_backs_is_found() {
        for sabotage in [Sabotage::SkipDrain, Sabotage::SkipWriteBack] {
            let recorder = Arc::new(Recorder::sabotaged(LEN, sabotage));
            let medium = Arc::clone(&recorder) as Arc<dyn Medium>;
            let story = tell(&recorder, &medium, Plan { seed: 1, threads: 1, steps: 24 });
            assert!(check_story(&story, 24).is_err(), "{sabotage:?} went unnoticed");
        }
    }

    #[test]
    fn a_disk_without_flushes_is_found() {
        for sabotage in [Sabotage::SkipFlush, Sabotage::FlushBeganEarlier] {
            let recorder = Arc::new(Recorder::sabotaged(LEN, sabotage));
            let medium = Arc::clone(&recorder) as Arc<dyn Medium>;
            let story = tell(&recorder, &medium, Plan { seed: 1, threads: 1, steps: 16 });
            assert!(check_story(&story, 64).is_err(), "{sabotage:?} went unnoticed");
        }
    }

    #[test]
    fn each_left_out_step_of_a_write_is_found() {
        for fault in Planted::ALL {
            let recorder = Arc::new(Recorder::storage(LEN));
            let medium = fault.medium(Arc::clone(&recorder) as Arc<dyn Medium>);
            let story = tell(&recorder, &medium, Plan { seed: 2, threads: 1, steps: 24 });
            assert!(check_story(&story, 64).is_err(), "{fault:?} went unnoticed");
        }
    }
}
