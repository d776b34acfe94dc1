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
        Self { begin: Instant::now(), waited: waited(), stolen: stolen() }
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
            waited: waited().saturating_sub(self.waited),
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
    waited: Duration,
    stolen: Duration,
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, kernel, load, seconds, waited, stolen } = self;
        write!(
            f,
            "{cores} cores, Linux {kernel}, load {load}; in {:.1} s ",
            seconds.as_secs_f64()
        )?;
        write!(f, "some task waited for a core during {:.2} s, ", waited.as_secs_f64())?;
        write!(f, "{:.2} s stolen by the hypervisor", stolen.as_secs_f64())
    }
}

/// Time in which at least one task was ready to run and did not (/proc/pressure/cpu).
fn waited() -> Duration {
    parse_pressure(&fs::read_to_string("/proc/pressure/cpu").unwrap_or_default())
}

/// `some avg10=1.00 avg60=2.00 avg300=3.00 total=4` counts microseconds.
fn parse_pressure(text: &str) -> Duration {
    let some = text.lines().find(|line| line.starts_with("some ")).unwrap_or_default();
    let total = some.rsplit_once("total=").and_then(|(_, total)| total.parse().ok());
    Duration::from_micros(total.unwrap_or(0))
}

/// Time the hypervisor gave to others (/proc/stat, 8th number of the sum, in hundredths).
fn stolen() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let total = text.lines().next().unwrap_or_default();
    Duration::from_millis(field(total, 8).saturating_mul(10))
}

fn field(line: &str, index: usize) -> u64 {
    line.split_whitespace().nth(index).and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pressure_is_that_of_some_tasks() {
        let text = "some avg10=39.89 avg60=25.11 avg300=33.76 total=3546574744\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parse_pressure(text), Duration::from_micros(3_546_574_744));
        assert_eq!(parse_pressure(""), Duration::ZERO);
    }
}
