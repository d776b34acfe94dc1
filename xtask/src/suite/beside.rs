//! Steps that run one after the other beside those in front, in a process of their own: so what they print stays
//! together, and comes when they have ended.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::report::Report;
use crate::failure::Failure;
use crate::process::{Running, Step};
use crate::workspace;

/// Steps under way.
#[derive(Debug)]
pub(super) struct Beside {
    names: Vec<&'static str>,
    begun: Result<Begun, Failure>,
}

#[derive(Debug)]
struct Begun {
    process: Running,
    output: PathBuf,
    reports: PathBuf,
}

impl Beside {
    /// Begins the steps of these names.
    pub(super) fn begin(names: Vec<&'static str>) -> Self {
        let begun = begin(&names);
        Self { names, begun }
    }

    /// Waits for the end of the steps, and prints what they printed.
    pub(super) fn end(self) -> Vec<Report> {
        let Self { names, begun } = self;
        let (ended, reports) = match begun {
            Ok(begun) => begun.end(),
            Err(failure) => (failure.to_string(), Vec::new()),
        };
        let report_of = |name: &&str| {
            let of_step = reports.iter().find(|report| report.step == **name).cloned();
            of_step.unwrap_or_else(|| Report::missing(name, &format!("no result: {ended}")))
        };
        names.iter().map(report_of).collect()
    }
}

impl Begun {
    /// How the process ended, and what is known of its steps.
    fn end(mut self) -> (String, Vec<Report>) {
        let ended = match self.process.wait(LIMIT) {
            Ok(status) => format!("their process ended with {status}"),
            Err(failure) => failure.to_string(),
        };
        print!("{}", fs::read_to_string(&self.output).unwrap_or_default());
        let reports = fs::read_to_string(&self.reports).unwrap_or_default();
        (ended, reports.lines().filter_map(Report::parse).collect())
    }
}

fn begin(names: &[&str]) -> Result<Begun, Failure> {
    let kept = workspace::kept("beside")?;
    let (output, reports) = (kept.join("output.log"), kept.join("reports.json"));
    if reports.exists() {
        fs::remove_file(&reports).map_err(Failure::io("removing", &reports))?;
    }
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(format!("finding this program: {error}")))?;
    let chosen = names.iter().flat_map(|name| ["--step", name]);
    println!("\n[beside] {} ({})", names.join(", "), output.display());
    let step = Step::new(program).arg("test").args(chosen).arg("--report").arg(&reports);
    let process = step.serve(&output, false)?;
    Ok(Begun { process, output, reports })
}

/// Longest to wait for them once the steps in front have ended: several times what they take in all.
const LIMIT: Duration = Duration::from_secs(1800);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_without_a_result_has_failed() {
        let begun = Err(Failure::new("no process"));
        let reports = Beside { names: vec!["pike"], begun }.end();
        assert_eq!(reports[0].found.failed, ["pike: no result: no process"]);
    }
}
