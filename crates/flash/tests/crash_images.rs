//! No crash, at any moment, loses or tears bytes that a persist of a flash region acknowledged; and the check fails on a
//! machine that ignores flushes. `examples/page_crash_states.rs` tries as many states as it is told to.

#[cfg(test)]
#[path = "support/numbers.rs"]
mod numbers;

#[cfg(test)]
#[path = "support/crash_run.rs"]
mod crash_run;

#[cfg(test)]
mod tests {
    use pmem::crash::{Recorder, Sabotage};

    use super::crash_run::{LEN, check_run};

    #[test]
    fn no_crash_state_loses_what_a_persist_of_flash_acknowledged() {
        let states = (0..12).map(|seed| check_run(Recorder::storage(LEN), seed, 40).unwrap());
        let states: u64 = states.sum();
        assert!(states >= 10_000, "only {states} states were tried");
    }

    #[test]
    fn the_check_fails_on_a_machine_that_ignores_flushes() {
        for sabotage in [Sabotage::SkipFlush, Sabotage::FlushBeganEarlier] {
            let found = (0..12).try_for_each(|seed| {
                check_run(Recorder::sabotaged(LEN, sabotage), seed, 40).map(drop)
            });
            found.unwrap_err();
        }
    }
}
