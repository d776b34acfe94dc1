//! `cargo xtask test`: every step in its short form, one table, one closing line.
//!
//! ```text
//!   front    deps check build tests-build | tests | demo smbclient ... guest sim fuzz |              latency bulk ...
//!   beside                                        | smbtorture kerberos ...           | their output
//!   behind                                | fuzz build, seeds                         |
//! ```

mod behind;
mod beside;
mod cargo_tests;
mod processors;
mod report;
mod steps;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;

use self::beside::Beside;
use self::processors::Processors;
use self::report::Report;
use self::steps::{DEPS, FUZZ, GUEST, Place, SIM, STEPS, SuiteStep, TESTS, TESTS_BUILD};
use crate::failure::{Failure, Outcome, Tally};
use crate::{guest, workspace};

/// Options of `cargo xtask test`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Run only this step; may be given several times.
    #[arg(long, value_parser = steps::names(), conflicts_with = "quick")]
    step: Vec<String>,
    /// For daily work: lints, all unit and story tests, the demo, a Python client, kill -9 and the model
    #[arg(long)]
    quick: bool,
    /// Write to this file what each step found: for a suite beside whose steps these run.
    #[arg(long, hide = true, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl Options {
    fn chooses(&self, step: &SuiteStep) -> bool {
        let by_name = self.step.is_empty() || self.step.iter().any(|name| name == step.name);
        by_name && (step.is_quick || !self.quick)
    }
}

/// Runs the steps and prints the table.
pub(crate) fn run(options: &Options) -> Outcome {
    let chosen: Vec<_> = STEPS.iter().filter(|step| options.chooses(step)).collect();
    if let Some(file) = &options.report {
        return for_another(&chosen, file);
    }
    // Steps asked for by name show what they do while they do it.
    let has_lane = |step: &SuiteStep| step.place == Place::Beside && options.step.is_empty();
    let (aside, front): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|step| has_lane(step));
    let mut suite = Suite { aside, ..Suite::default() };
    let begins = |name: &str| front.iter().any(|step| step.name == name);
    let mut begins_guest = begins(GUEST);
    for (index, step) in front.iter().enumerate() {
        // Its programs come with the first step; its making takes as long as some of the others.
        if step.name != DEPS && std::mem::take(&mut begins_guest) {
            guest::begin();
        }
        if step.place == Place::Alone {
            suite.end_beside();
        }
        println!("\n[{}/{}] {}: {}", index + 1, front.len(), step.name, step.about);
        let report = carry_out(step);
        let stop = step.is_needed_by_all && !report.found.failed.is_empty();
        suite.reports.push(report);
        if stop {
            println!("  the steps after this one need it");
            break;
        }
        // What comes after all is built waits for peers more than it computes.
        if step.name == TESTS_BUILD {
            // Before any of them runs, so that none is replaced under another.
            workspace::ship()?;
            behind::begin(begins(FUZZ), begins(SIM));
        }
        if step.name == TESTS {
            suite.begin_beside();
        }
    }
    suite.end_beside();
    Ok(suite.conclude())
}

/// The steps of one run, where they run and what they found.
#[derive(Default)]
struct Suite {
    /// What waits for its turn to run beside the steps in front.
    aside: Vec<&'static SuiteStep>,
    beside: Option<Beside>,
    reports: Vec<Report>,
}

impl Suite {
    fn begin_beside(&mut self) {
        let aside = std::mem::take(&mut self.aside);
        if !aside.is_empty() {
            self.beside = Some(Beside::begin(aside.iter().map(|step| step.name).collect()));
        }
    }

    fn end_beside(&mut self) {
        if let Some(beside) = self.beside.take() {
            println!("\n[beside] what ran beside the steps above");
            self.reports.extend(beside.end());
        }
    }

    fn conclude(self) -> Tally {
        let mut total = Tally::default();
        println!(
            "\n{:<14} {:>8} {:>5} {:>7} {:>7} {:>7}",
            "step", "seconds", "busy", "passed", "failed", "skipped"
        );
        for report in self.reports {
            println!("{}", report.row());
            total.add(report.found);
        }
        total.note.clear();
        total
    }
}

/// Runs steps of a suite that has others in front of it.
fn for_another(steps: &[&'static SuiteStep], file: &std::path::Path) -> Outcome {
    let mut total = Tally::default();
    for step in steps {
        println!("\n[beside] {}: {}", step.name, step.about);
        let report = carry_out(step);
        report.append(file)?;
        total.add(report.found);
    }
    total.note.clear();
    Ok(total)
}

fn carry_out(step: &SuiteStep) -> Report {
    let (begin, processors) = (Instant::now(), Processors::now());
    let found = (step.run)().unwrap_or_else(|failure| broken(step.name, &failure));
    for fault in &found.failed {
        println!("  FAILED {fault}");
    }
    let seconds = begin.elapsed().as_secs_f64();
    Report { step: step.name.to_owned(), seconds, busy: Processors::busy_since(processors), found }
}

fn broken(name: &str, failure: &Failure) -> Tally {
    Tally { failed: vec![format!("{name}: {failure}")], ..Tally::default() }
}
