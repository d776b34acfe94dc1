//! Under which conditions a number was measured: without them it means nothing tomorrow.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

/// The machine at the beginning of a measurement.
#[derive(Debug)]
pub(crate) struct Watch {
    begin: Instant,
    waited: Duration,
    stolen: Duration,
}

impl Watch {
    /// Notes the counters.
    pub(crate) fn start() -> Self {
        Self { begin: Instant::now(), waited: run_delay(), stolen: stolen() }
    }

    /// What the machine was, and how busy it was since [`Watch::start`].
    pub(crate) fn conditions(&self) -> Conditions {
        let first_line = |path: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.lines().next().unwrap_or_default().to_owned()
        };
        Conditions {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            load: first_line("/proc/loadavg"),
            seconds: self.begin.elapsed(),
            run_delay: run_delay().saturating_sub(self.waited),
            stolen: stolen().saturating_sub(self.stolen),
        }
    }
}

/// What was true of the machine while something was measured.
#[derive(Debug)]
pub(crate) struct Conditions {
    cores: usize,
    kernel: String,
    load: String,
    seconds: Duration,
    run_delay: Duration,
    stolen: Duration,
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, kernel, load, seconds, run_delay, stolen } = self;
        write!(
            f,
            "{cores} cores, Linux {kernel}, load {load}; in {:.1} s ",
            seconds.as_secs_f64()
        )?;
        write!(f, "tasks waited {:.2} s for a core, ", run_delay.as_secs_f64())?;
        write!(f, "{:.2} s stolen by the hypervisor", stolen.as_secs_f64())
    }
}

/// Time all tasks together were ready to run and did not (/proc/schedstat, 8th number of a cpu).
fn run_delay() -> Duration {
    let text = fs::read_to_string("/proc/schedstat").unwrap_or_default();
    Duration::from_nanos(sum_of_cpus(&text, 8))
}

/// Time the hypervisor gave to others (/proc/stat, 8th number of the sum, in hundredths).
fn stolen() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let total = text.lines().next().unwrap_or_default();
    Duration::from_millis(field(total, 8).saturating_mul(10))
}

fn sum_of_cpus(text: &str, index: usize) -> u64 {
    text.lines().filter(|line| line.starts_with("cpu")).map(|line| field(line, index)).sum()
}

fn field(line: &str, index: usize) -> u64 {
    line.split_whitespace().nth(index).and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_delay_is_summed_over_the_cores() {
        let text = "version 15\ntimestamp 1\ncpu0 0 0 0 0 0 0 70 5 9\ndomain0 3 1\ncpu1 0 0 0 0 0 0 8 6 9\n";
        assert_eq!(sum_of_cpus(text, 8), 11);
    }
}
