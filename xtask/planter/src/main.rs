//! `cargo xtask mutants --planted`: the mutants that cargo-mutants lists, all in one build, each behind a switch that an
//! environment variable turns on. A build for each mutant would take a minute; so a mutant costs the tests that reach it.
//!
//! ```text
//!   list ---> copy, plant <---+ those that do not build are dropped
//!                 |           |
//!               check --------+
//!                 |
//!             tests, each alone: what it reaches ---> for each mutant the tests that reach it, until one fails twice
//! ```

mod build;
mod judge;
mod mutant;
mod render;
mod sites;
mod tests;
mod tree;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use serde::{Deserialize, Serialize};

use crate::build::{Binary, Builder};
use crate::judge::{Judge, Verdict};
use crate::mutant::Mutant;
use crate::tests::Test;
use crate::tree::Tree;

/// Plants all mutants of a list at once, and says which of them no test finds
#[derive(Debug, Parser)]
struct Options {
    /// The repository
    #[arg(long)]
    root: PathBuf,
    /// Where the copy, the build and the results are
    #[arg(long)]
    work: PathBuf,
    /// Where packages of others have been built by `cargo test --release`
    #[arg(long)]
    target: PathBuf,
    /// What `cargo mutants --list --json` printed
    #[arg(long)]
    list: PathBuf,
    /// The packages whose tests run, without their prefix
    #[arg(long, value_delimiter = ',')]
    packages: Vec<String>,
    /// Packages whose tests may find mutants of others too, without their prefix
    #[arg(long, value_delimiter = ',')]
    also: Vec<String>,
    /// Runs only programs of tests with these names, such as `server`, the unit tests, or `files`
    #[arg(long, value_delimiter = ',')]
    programs: Vec<String>,
    /// Judges only mutants whose names this file has, one a line, in its order
    #[arg(long)]
    only: Option<PathBuf>,
    /// Judges only every Nth mutant
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Tests that run at once
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Builds and ends
    #[arg(long)]
    build_only: bool,
    /// Takes the programs of the last build, which had the same list
    #[arg(long, conflicts_with = "build_only")]
    built: bool,
    /// Seconds that a test gets at least: other work on the machine may delay a short test by them
    #[arg(long, default_value_t = 10)]
    limit: u64,
}

fn main() -> ExitCode {
    match work(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn work(options: &Options) -> Result<(), String> {
    fs::create_dir_all(&options.work).map_err(|error| error.to_string())?;
    let list = fs::read_to_string(&options.list).map_err(|error| error.to_string())?;
    let mutants: Vec<Mutant> = serde_json::from_str(&list).map_err(|error| error.to_string())?;
    let kept = options.work.join("built.json");
    let Built { mut binaries, unviable, placeless } = match options.built {
        true => {
            let text = fs::read(&kept).map_err(|error| format!("{}: {error}", kept.display()))?;
            serde_json::from_slice(&text).map_err(|error| error.to_string())?
        }
        false => {
            let built = build(options, &mutants)?;
            let text = serde_json::to_vec(&built).map_err(|error| error.to_string())?;
            fs::write(&kept, text).map_err(|error| format!("{}: {error}", kept.display()))?;
            built
        }
    };
    if options.build_only {
        return Ok(());
    }
    let mut report = Report::begin(&options.work)?;
    for (verdict, ids) in [("unviable", &unviable), ("placeless", &placeless)] {
        for id in ids {
            report.line(verdict, &mutants[*id as usize].name, "", 0)?;
        }
    }
    binaries.retain(|binary| options.programs.is_empty() || binary.is_one_of(&options.programs));
    let (tests, failing) = tests::examine(&binaries, &options.work, &stamp(&list), options.jobs)?;
    for test in &failing {
        report.line("fails-without", test, "", 0)?;
    }
    let chosen = chosen(options, &mutants, |id| unviable.contains(&id) || placeless.contains(&id))?;
    let limit = Duration::from_secs(options.limit);
    let reaching = tests::by_mutant(&tests);
    let also = &options.also;
    let judge = Judge { binaries: &binaries, tests: &tests, also, reaching, limit };
    println!(
        "  {} mutants, {} tests; {} fail without a mutant",
        chosen.len(),
        tests.len(),
        failing.len()
    );
    judge_all(options, &mutants, &chosen, &judge, &Mutex::new(report))
}

/// What a build has brought.
#[derive(Debug, Deserialize, Serialize)]
struct Built {
    binaries: Vec<Binary>,
    unviable: HashSet<u32>,
    placeless: HashSet<u32>,
}

// Plants and builds until what is left builds.
fn build(options: &Options, mutants: &[Mutant]) -> Result<Built, String> {
    let mut packages = options.packages.clone();
    packages.extend(options.also.iter().filter(|also| !options.packages.contains(also)).cloned());
    let builder = Builder { target: options.target.clone(), packages };
    let remembered = options.work.join("unviable.txt");
    let known = fs::read_to_string(&remembered).unwrap_or_default();
    let known: HashSet<&str> = known.lines().collect();
    let mut unviable: HashSet<u32> = (0..)
        .zip(mutants)
        .filter(|(_, mutant)| known.contains(mutant.name.as_str()))
        .map(|(id, _)| id)
        .collect();
    let files: HashSet<&str> = mutants.iter().map(|mutant| mutant.file.as_str()).collect();
    let mut tree = Tree::copy(&options.root, &options.work.join("tree"), &files)?;
    tree.add_switch(&packages_of(mutants))?;
    loop {
        let placeless: HashSet<u32> = tree.plant(mutants, &unviable)?.into_iter().collect();
        let mut broken = builder.broken(&tree)?;
        if broken.is_empty() {
            match builder.tests(&tree)? {
                Ok(binaries) => return Ok(Built { binaries, unviable, placeless }),
                Err(of_tests) => broken = of_tests,
            }
        }
        println!("  {} more do not build", broken.len());
        unviable.extend(broken);
        let names: Vec<&str> =
            unviable.iter().map(|id| mutants[*id as usize].name.as_str()).collect();
        fs::write(&remembered, names.join("\n")).map_err(|error| error.to_string())?;
    }
}

// What numbers of mutants mean depends on the list.
fn stamp(list: &str) -> String {
    let mut hasher = DefaultHasher::new();
    list.hash(&mut hasher);
    format!("{:x}", hasher.finish())
}

fn packages_of(mutants: &[Mutant]) -> Vec<String> {
    let names: HashSet<&str> = mutants.iter().map(package).collect();
    names.into_iter().map(str::to_owned).collect()
}

fn package(mutant: &Mutant) -> &str {
    mutant.package.strip_prefix("landfast-").unwrap_or(&mutant.package)
}

fn chosen(
    options: &Options,
    mutants: &[Mutant],
    is_out: impl Fn(u32) -> bool,
) -> Result<Vec<u32>, String> {
    let only = options
        .only
        .as_deref()
        .map(fs::read_to_string)
        .transpose()
        .map_err(|error| error.to_string())?;
    let all = || (0..).zip(mutants).map(|(id, mutant)| (mutant.name.as_str(), id));
    let wanted: Vec<u32> = match &only {
        // In the order of the file.
        Some(only) => {
            let ids: HashMap<&str, u32> = all().collect();
            only.lines().filter_map(|name| ids.get(name).copied()).collect()
        }
        None => all().map(|(_, id)| id).collect(),
    };
    let wanted = wanted.into_iter().filter(|id| !is_out(*id));
    Ok(wanted.step_by(options.every.max(1)).collect())
}

fn judge_all(
    options: &Options,
    mutants: &[Mutant],
    chosen: &[u32],
    judge: &Judge<'_>,
    report: &Mutex<Report>,
) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    // The tests that found mutants of a function will find others of it.
    let lucky: Mutex<HashMap<(String, String), VecDeque<usize>>> = Mutex::default();
    let failed = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                while let Some(id) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mutant = &mutants[*id as usize];
                    let key = (mutant.file.clone(), mutant.function().to_owned());
                    let guess: Vec<usize> = {
                        let lucky = lucky.lock().expect("no worker panics with it");
                        lucky.get(&key).into_iter().flatten().copied().collect()
                    };
                    let begun = Instant::now();
                    let verdict = judge.judge(*id, package(mutant), &mutant.file, &guess);
                    if let Verdict::Caught(test) = verdict {
                        let mut lucky = lucky.lock().expect("no worker panics with it");
                        let tests = lucky.entry(key).or_default();
                        tests.retain(|other| *other != test);
                        tests.push_front(test);
                        tests.truncate(4);
                    }
                    let (word, test) = described(&verdict, judge.tests);
                    let mut report = report.lock().expect("no worker panics with it");
                    if let Err(error) =
                        report.line(word, &mutant.name, test, begun.elapsed().as_millis())
                    {
                        *failed.lock().expect("no worker panics with it") = Some(error);
                        return;
                    }
                }
            });
        }
    });
    failed.into_inner().expect("no worker panics with it").map_or(Ok(()), Err)
}

fn described<'a>(verdict: &Verdict, tests: &'a [Test]) -> (&'static str, &'a str) {
    match verdict {
        Verdict::Caught(test) => ("caught", &tests[*test].name),
        Verdict::Timeout(test) => ("timeout", &tests[*test].name),
        Verdict::Missed => ("missed", ""),
        Verdict::Unreached => ("unreached", ""),
    }
}

/// The lines of the result: verdict, mutant, the test that found it, milliseconds.
#[derive(Debug)]
struct Report(File);

impl Report {
    fn begin(work: &Path) -> Result<Self, String> {
        let path = work.join("verdicts.tsv");
        let file = OpenOptions::new().create(true).write(true).truncate(true).open(&path);
        Ok(Self(file.map_err(|error| format!("{}: {error}", path.display()))?))
    }

    fn line(&mut self, verdict: &str, name: &str, test: &str, took_ms: u128) -> Result<(), String> {
        writeln!(self.0, "{verdict}\t{name}\t{test}\t{took_ms}").map_err(|error| error.to_string())
    }
}
