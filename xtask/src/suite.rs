//! `cargo xtask test`: every step in its short form, one table, one closing line.

use std::time::{Duration, Instant};

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::interop::samples::Spread;
use crate::peer::Against;
use crate::process::Step;
use crate::{
    behind, bindings, bulk, check, compare, databases, demo, deps, failovers, flood, fuzz, group,
    guest, interop, kill9, latency, model, polling, siege, states, torture, workspace,
};

/// Options of `cargo xtask test`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Run only this step; may be given several times.
    #[arg(long, value_parser = step_names(), conflicts_with = "quick")]
    step: Vec<String>,
    /// For daily work: lints, all unit and story tests, the demo, a Python client, kill -9 and the model
    #[arg(long)]
    quick: bool,
}

impl Options {
    fn chooses(&self, step: &SuiteStep) -> bool {
        let by_name = self.step.is_empty() || self.step.iter().any(|name| name == step.name);
        by_name && (step.is_quick || !self.quick)
    }
}

/// Runs the steps and prints the table.
pub(crate) fn run(options: &Options) -> Outcome {
    let steps: Vec<_> = STEPS.iter().filter(|step| options.chooses(step)).collect();
    let chosen = |name: &str| steps.iter().any(|step| step.name == name);
    let mut total = Tally::default();
    let mut rows = Vec::new();
    let mut begins_guest = chosen(GUEST);
    for (index, step) in steps.iter().enumerate() {
        // Its programs come with the first step; its making takes as long as some of the others.
        if step.name != DEPS && std::mem::take(&mut begins_guest) {
            guest::begin();
        }
        println!("\n[{}/{}] {}: {}", index + 1, steps.len(), step.name, step.about);
        let begin = Instant::now();
        let found = (step.run)().unwrap_or_else(|failure| broken(step.name, &failure));
        for fault in &found.failed {
            println!("  FAILED {fault}");
        }
        rows.push(row(step.name, &found, begin.elapsed()));
        // The steps after it wait for peers more than they compute.
        if step.name == TESTS {
            behind::begin(chosen(FUZZ), chosen(SIM));
        }
        let stop = step.needed_by_all && !found.failed.is_empty();
        total.add(found);
        if stop {
            println!("  the steps after this one need it");
            break;
        }
    }
    println!("\n{:<14} {:>8} {:>7} {:>7} {:>7}", "step", "seconds", "passed", "failed", "skipped");
    rows.iter().for_each(|row| println!("{row}"));
    total.note.clear();
    Ok(total)
}

/// Prints what failed, what was skipped and the closing line; gives the exit code.
pub(crate) fn conclude(tally: &Tally) -> std::process::ExitCode {
    println!();
    for reason in &tally.skipped {
        println!("SKIPPED {reason}");
    }
    for fault in &tally.failed {
        println!("FAILED {fault}");
    }
    if !tally.note.is_empty() {
        println!("{}", tally.note);
    }
    println!("{}", closing_line(tally));
    if tally.failed.is_empty() { 0.into() } else { 1.into() }
}

fn closing_line(tally: &Tally) -> String {
    let mut line = format!("{} passed, {} failed", tally.passed, tally.failed.len());
    if !tally.skipped.is_empty() {
        line.push_str(&format!(", {} skipped", tally.skipped.len()));
    }
    line
}

fn row(name: &str, tally: &Tally, took: Duration) -> String {
    let (failed, skipped) = (tally.failed.len(), tally.skipped.len());
    let seconds = took.as_secs_f64();
    let passed = tally.passed;
    format!("{name:<14} {seconds:>8.1} {passed:>7} {failed:>7} {skipped:>7}  {}", tally.note)
}

fn broken(name: &str, failure: &Failure) -> Tally {
    Tally { failed: vec![format!("{name}: {failure}")], ..Tally::default() }
}

/// All tests of the workspace, counted from what libtest prints.
fn cargo_test() -> Outcome {
    let args = ["test", "--workspace", "--release", "--no-fail-fast"];
    Step::new("cargo").args(args).arg("--no-run").dir(&workspace::root()).builds().run()?;
    let run = Step::new("cargo").args(args).dir(&workspace::root()).limit(TESTS_LIMIT);
    let finished = run.tee()?;
    let mut tally = count_tests(&finished.stdout);
    if !finished.status.success() && tally.failed.is_empty() {
        tally.failed.push(format!("`cargo {}` ended with {}", args.join(" "), finished.status));
    }
    Ok(tally)
}

/// Reads libtest's lines: one for each ignored test with its reason, one result for each binary; and what a
/// test itself says that finds its host lacking, past libtest's capture.
fn count_tests(output: &str) -> Tally {
    let mut tally = Tally::default();
    let mut binaries = 0;
    for line in output.lines() {
        if let Some(result) = line.strip_prefix("test result: ") {
            binaries += 1;
            tally.passed += counted(result, "passed");
        } else if let Some(reason) = line.strip_prefix("skipped: ") {
            tally.skipped.push(reason.to_owned());
        } else if let Some((name, verdict)) =
            line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        {
            match verdict.split(',').next() {
                Some("FAILED") => tally.failed.push(format!("test {name}")),
                Some("ignored") => tally.skipped.push(format!("test {name}: {verdict}")),
                _ => {}
            }
        }
    }
    tally.note = format!("{binaries} test binaries");
    tally
}

/// The number before `word` in `ok. 12 passed; 0 failed; ...`.
fn counted(result: &str, word: &str) -> u32 {
    let words: Vec<&str> = result.split([' ', ';']).collect();
    let pair = words.windows(2).find(|pair| pair[1] == word);
    pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

/// One step of the suite.
struct SuiteStep {
    name: &'static str,
    about: &'static str,
    run: fn() -> Outcome,
    /// Whether nothing after it can be expected to work when it fails.
    needed_by_all: bool,
    /// Whether `--quick` runs it.
    is_quick: bool,
}

fn step_names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

const DEPS: &str = "deps";
const FUZZ: &str = "fuzz";
const GUEST: &str = "guest";
const SIM: &str = "sim";
const TESTS: &str = "tests";
/// Longest the tests may run: six times what they take on two quiet cores.
const TESTS_LIMIT: Duration = Duration::from_secs(1800);
/// The steps, quickest answer first; those that measure come last, when nothing else runs.
const STEPS: [SuiteStep; 32] = [
    SuiteStep {
        name: DEPS,
        about: "programs and Python packages the tests start",
        run: deps::run,
        needed_by_all: true,
        is_quick: true,
    },
    SuiteStep {
        name: "check",
        about: "formatting, lints, the rules of the house",
        run: check::run,
        needed_by_all: false,
        is_quick: true,
    },
    SuiteStep {
        name: "build",
        about: "the product as it is shipped",
        run: || workspace::landfast().map(|_| Tally::passed("")),
        needed_by_all: true,
        is_quick: true,
    },
    SuiteStep {
        name: TESTS,
        about: "cargo test, corpora and crash images included",
        run: cargo_test,
        needed_by_all: false,
        is_quick: true,
    },
    SuiteStep {
        name: "demo",
        about: "the README's first command",
        run: demo::run,
        needed_by_all: false,
        is_quick: true,
    },
    SuiteStep {
        name: "smbclient",
        about: "100 files with Debian's smbclient, encrypted and signed",
        run: || interop::smbclient::run(Against::Landfast, Spread::Short),
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "smbtorture",
        about: "those of Samba's server tests that passed before",
        run: || torture::run(&torture::Options::known()),
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "python",
        about: "smbprotocol and impacket",
        run: || interop::python::run(Against::Landfast),
        needed_by_all: false,
        is_quick: true,
    },
    SuiteStep {
        name: "c",
        about: "liblandfast installed, its example compiled with cc and run, also with the address sanitizer",
        run: || bindings::c::run(false),
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "python-package",
        about: "the wheel in a clean environment: its tests, fsspec's own tests, the examples of its guide",
        run: || bindings::python::run(&bindings::python::Options::short()),
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "pike",
        about: "the tests of pike-smb2",
        run: || interop::pike::run(Against::Landfast),
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "kerberos",
        about: "logons by ticket, with Debian's KDC",
        run: interop::kerberos::run,
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "go",
        about: "go-smb2, signed and encrypted",
        run: || interop::go::run(Against::Landfast),
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "nbd",
        about: "nbdinfo, nbdcopy, qemu-img, qemu-io and fio against served volumes",
        run: interop::nbd::run,
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "fuse",
        about: "ext4 and XFS on loop devices of volumes: filled, checked, read after SIGKILL",
        run: interop::fuse::run,
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "tshark",
        about: "a capture of SMB Direct and push, dissected",
        run: interop::capture::run,
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "kill9",
        about: "SIGKILL in the middle of a stream of commits",
        run: || kill9::run(&kill9::Options { rounds: 5 }),
        needed_by_all: false,
        is_quick: true,
    },
    SuiteStep {
        name: "model",
        about: "clients that do anything, cut off and with the server killed, against a model",
        run: || model::run(&model::Options::short()),
        needed_by_all: false,
        is_quick: true,
    },
    SuiteStep {
        name: "lockstep",
        about: "names, locks and leases, step by step beside smbd",
        run: || states::lockstep(&states::Lockstep::short()),
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "caching",
        about: "clients that cache, lock, rename and delete the same files at once",
        run: || states::caching(&states::Caching::short()),
        needed_by_all: false,
        is_quick: true,
    },
    SuiteStep {
        name: SIM,
        about: "server and clients on virtual time, one seed a run",
        run: behind::simulation,
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "group-sim",
        about: "a group of replicated volumes on virtual time, one seed a run",
        run: || group::run(&group::Options::short()),
        needed_by_all: false,
        is_quick: true,
    },
    SuiteStep {
        name: "failovers",
        about: "landfast demo replica; a replicated group as processes, its source killed under load",
        run: || failovers::run(&failovers::Options::short()),
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "databases",
        about: "landfast demo log; SQLite by two processes at once, with kills of clients and server",
        run: || databases::run(&databases::Options { seconds: 8, bench: false, rounds: 1 }),
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "flood",
        about: "10,000 unfinished connections and one honest client",
        run: || flood::run(&flood::Options::short()),
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "siege",
        about: "hostile clients at each limit of docs/limits.md, and one honest client",
        run: || siege::run(&siege::Options::short()),
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: FUZZ,
        about: "each fuzz target for a second, after an instrumented build",
        run: || fuzz::run(&fuzz::Options { seconds: 1, target: None }),
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: GUEST,
        about: "a Linux kernel: its SMB client, its software iWARP, its persistent memory",
        run: guest::short,
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "latency",
        about: "ratios of push mode to the floor and to SMB (shown, not judged: a busy machine)",
        run: || latency::run(&latency::Options { rounds: 1, seconds: 0.5, assert: false }),
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "bulk",
        about: "bytes per second of the software iWARP next to iperf3 (shown, not judged)",
        run: || bulk::run(&bulk::Options::short()),
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "polling",
        about: "what each way of waiting costs (shown, not judged)",
        run: || polling::run(&polling::Options::short()),
        needed_by_all: false,
        is_quick: false,
    },
    SuiteStep {
        name: "compare-smbd",
        about: "4 KiB requests over TCP against Samba's smbd",
        run: || compare::run(&compare::Options::short()),
        needed_by_all: false,
        is_quick: false,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_of_all_binaries_are_counted() {
        let output = "\
running 3 tests
test a::holds ... ok
test a::breaks ... FAILED
test a::waits ... ignored, needs a kernel with DAX
test a::vanishes ...
skipped: a::vanishes: no network namespaces
ok
test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
";
        let tally = count_tests(output);
        assert_eq!(tally.passed, 13);
        assert_eq!(tally.failed, ["test a::breaks"]);
        let waits = "test a::waits: ignored, needs a kernel with DAX";
        assert_eq!(tally.skipped, [waits, "a::vanishes: no network namespaces"]);
    }

    #[test]
    fn the_closing_line_names_skips_only_where_there_are_any() {
        assert_eq!(closing_line(&Tally::passed("")), "1 passed, 0 failed");
        assert_eq!(
            closing_line(&Tally { skipped: vec!["why".into()], ..Tally::default() }),
            "0 passed, 0 failed, 1 skipped"
        );
    }
}
