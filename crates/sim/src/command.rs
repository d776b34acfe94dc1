//! The command line: many runs side by side, or one with all that happened in it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use clap::{Args, Parser, Subcommand};

use crate::failure::Failure;
use crate::machine::{Event, Machine};
use crate::plan::Plan;
use crate::scenario::{self, Outcome, Programs};
use crate::site::Site;
use crate::stage;

/// Landfast's programs on virtual time: one seed, one run.
///
/// A run starts the server and its clients, as they are built, on a machine that this program plays: one thread computes
/// at a time, the seed decides which, how long everything takes, which connections break and when the server dies.
/// The same seed does the same again, to the last byte.
#[derive(Debug, Parser)]
#[command(name = "landfast-sim")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run the plans of many seeds, and make those that fail small
    Run(Run),
    /// Run one plan: a seed, or what `run` printed of one that failed
    Replay(Replay),
    /// Say whether this host lets a program be traced as a run needs it; status 3 where not
    Probe,
    /// Runs of one worker.
    #[command(hide = true)]
    Work(Work),
    /// Become a program that is traced.
    #[command(hide = true)]
    Stage { words: Vec<OsString> },
}

#[derive(Args, Clone, Debug)]
struct Build {
    /// `landfast`, as it is built
    #[arg(long)]
    landfast: PathBuf,
    /// The directory of `model`, `rivals` and `commit_stream`, as they are built
    #[arg(long)]
    programs: PathBuf,
    /// A variable of the programs' environment
    #[arg(long, value_name = "NAME=VALUE")]
    variable: Vec<String>,
}

#[derive(Args, Clone, Debug)]
struct Run {
    #[command(flatten)]
    build: Build,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many seeds
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// Runs side by side; each needs a core of its own
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// End at the first seed that fails
    #[arg(long)]
    first: bool,
    /// Leave plans that fail as they are
    #[arg(long)]
    keep: bool,
    /// Run each seed twice: it must do the same to the last byte
    #[arg(long)]
    twice: bool,
    /// End after so many seconds, whatever was run
    #[arg(long)]
    limit: Option<u64>,
}

#[derive(Args, Clone, Debug)]
struct Replay {
    #[command(flatten)]
    build: Build,
    /// A seed, or a plan as `run` prints it
    plan: Plan,
    /// Write all that happens to this file
    #[arg(long)]
    trace: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
struct Work {
    #[command(flatten)]
    run: Run,
    /// Which of the jobs this is
    #[arg(long)]
    job: u64,
}

/// Carries out the command line.
pub(crate) fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Run(run) => all(&run),
        Task::Replay(replay) => one(&replay),
        Task::Probe => probe(),
        Task::Work(work) => worker(&work),
        Task::Stage { words } => Err(stage::become_traced(&words)),
    };
    done.unwrap_or_else(|failure| {
        eprintln!("landfast-sim: {failure}");
        ExitCode::from(2)
    })
}

impl Build {
    fn programs(&self) -> Result<Programs, Failure> {
        let whole = |path: &Path| {
            fs::canonicalize(path).map_err(|error| Failure::io("finding", path, error))
        };
        let variables = self.variable.iter().map(|text| {
            let odd = || Failure::Usage(format!("`{text}` is no NAME=VALUE"));
            let (name, value) = text.split_once('=').ok_or_else(odd)?;
            Ok((name.to_owned(), value.to_owned()))
        });
        Ok(Programs {
            landfast: whole(&self.landfast)?,
            directory: whole(&self.programs)?,
            variables: variables.collect::<Result<_, Failure>>()?,
        })
    }
}

fn probe() -> Result<ExitCode, Failure> {
    let ended = probed();
    match &ended {
        Ok(Event::Ended(_, Some(0))) => return Ok(ExitCode::SUCCESS),
        Ok(other) => eprintln!("landfast-sim: /bin/true does not end as it should: {other:?}"),
        Err(failure) => eprintln!("landfast-sim: {failure}"),
    }
    Ok(ExitCode::from(CANNOT))
}

fn probed() -> Result<Event, Failure> {
    let name = format!("landfast-sim-probe-{}", std::process::id());
    let mut machine = Machine::new(name, Plan::of(0).conditions(), None)?;
    let nowhere = Path::new("/dev/null");
    machine.start(&["/bin/true".into()], nowhere, nowhere)?;
    machine.run(u64::MAX)
}

/// The exit status that says that this host cannot run a simulation.
const CANNOT: u8 = 3;

fn one(replay: &Replay) -> Result<ExitCode, Failure> {
    let lines = match &replay.trace {
        Some(path) => {
            Some(File::create(path).map_err(|error| Failure::io("creating", path, error))?)
        }
        None => None,
    };
    let site = Site::free()?;
    let outcome = scenario::run(&replay.plan, &replay.build.programs()?, site.path(), lines)?;
    println!("{}", replay.plan);
    println!("{}", summary(&outcome));
    for fault in &outcome.faults {
        println!("FAULT {fault}");
    }
    Ok(ExitCode::from(u8::from(!outcome.faults.is_empty())))
}

fn summary(outcome: &Outcome) -> String {
    let Outcome { digest, steps, lasted, .. } = outcome;
    format!("digest {digest:016x}, {steps} steps, {} ms of virtual time", lasted / 1_000_000)
}

fn worker(work: &Work) -> Result<ExitCode, Failure> {
    let Work { run, job } = work;
    let (programs, site) = (run.build.programs()?, Site::free()?);
    let site = site.path();
    let began = Instant::now();
    let mut seed = run.from + job;
    while seed < run.from + run.seeds
        && run.limit.is_none_or(|limit| began.elapsed().as_secs() < limit)
    {
        let plan = Plan::of(seed);
        let mut outcome = scenario::run(&plan, &programs, site, None)?;
        if run.twice {
            let again = scenario::run(&plan, &programs, site, None)?;
            if again.digest != outcome.digest {
                let (first, second) = (summary(&outcome), summary(&again));
                outcome.faults.push(format!("two runs differ: {first}; {second}"));
            }
        }
        println!("ran {seed} {:016x} {} {}", outcome.digest, outcome.steps, outcome.lasted);
        if !outcome.faults.is_empty() {
            let (plan, outcome) =
                if run.keep { (plan, outcome) } else { shrink(plan, outcome, &programs, site)? };
            println!("fault {plan}");
            outcome.faults.iter().for_each(|fault| println!("  {fault}"));
            if run.first {
                return Ok(ExitCode::FAILURE);
            }
        }
        seed += run.jobs;
    }
    Ok(ExitCode::SUCCESS)
}

// A smaller plan is kept where it fails too, with whatever fault.
fn shrink(
    mut plan: Plan,
    mut outcome: Outcome,
    programs: &Programs,
    site: &Path,
) -> Result<(Plan, Outcome), Failure> {
    let mut tries = SHRINK_TRIES;
    'smaller: loop {
        for smaller in plan.smaller() {
            if tries == 0 {
                return Ok((plan, outcome));
            }
            tries -= 1;
            let found = scenario::run(&smaller, programs, site, None)?;
            if !found.faults.is_empty() {
                (plan, outcome) = (smaller, found);
                continue 'smaller;
            }
        }
        return Ok((plan, outcome));
    }
}

const SHRINK_TRIES: u32 = 40;

fn all(run: &Run) -> Result<ExitCode, Failure> {
    let (began, own) = (Instant::now(), std::env::current_exe()?);
    let mut workers = Vec::new();
    for job in 0..run.jobs {
        let mut worker = Command::new("taskset");
        let job = job.to_string();
        worker.args(["--cpu-list", &job]).arg(&own).args(["work", "--job", &job]);
        worker
            .arg("--landfast")
            .arg(&run.build.landfast)
            .arg("--programs")
            .arg(&run.build.programs);
        worker.args(run.build.variable.iter().flat_map(|text| ["--variable", text]));
        for (name, value) in [("--from", run.from), ("--seeds", run.seeds), ("--jobs", run.jobs)] {
            worker.args([name, &value.to_string()]);
        }
        worker.args(run.limit.iter().flat_map(|limit| ["--limit".to_owned(), limit.to_string()]));
        worker.args(run.first.then_some("--first")).args(run.keep.then_some("--keep"));
        worker.args(run.twice.then_some("--twice"));
        let mut worker = worker.stdout(Stdio::piped()).spawn()?;
        let output = worker.stdout.take().map(BufReader::new);
        workers.push((worker, output));
    }
    let mut told = Told::default();
    std::thread::scope(|scope| {
        let (say, said) = std::sync::mpsc::channel();
        for (_, output) in &mut workers {
            let (output, say) = (output.take(), say.clone());
            scope.spawn(move || {
                for line in output.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
                    let _ = say.send(line);
                }
            });
        }
        drop(say);
        said.iter().for_each(|line| told.take(&line, began));
    });
    let mut is_whole = true;
    for (mut worker, _) in workers {
        is_whole &= worker.wait()?.code().is_some_and(|code| code <= 1);
    }
    let Told { runs, faults, steps, virtual_time, .. } = told;
    let seconds = began.elapsed().as_secs_f64();
    let virtual_seconds = virtual_time / 1_000_000_000;
    println!(
        "{runs} seeds, {faults} with faults, {steps} steps, {virtual_seconds} s of virtual time in {seconds:.1} s"
    );
    if !is_whole {
        return Err(Failure::Unknown("a worker has ended early; it said why above".into()));
    }
    Ok(ExitCode::from(u8::from(faults > 0)))
}

#[derive(Debug, Default)]
struct Told {
    runs: u64,
    faults: u64,
    steps: u64,
    virtual_time: u64,
}

impl Told {
    fn take(&mut self, line: &str, began: Instant) {
        let Some(ran) = line.strip_prefix("ran ") else {
            self.faults += u64::from(line.starts_with("fault"));
            println!("{line}");
            return;
        };
        let mut words = ran.split(' ').skip(2).filter_map(|word| word.parse::<u64>().ok());
        self.runs += 1;
        self.steps += words.next().unwrap_or(0);
        self.virtual_time += words.next().unwrap_or(0);
        if self.runs.is_multiple_of(100) {
            println!("{} seeds after {} s", self.runs, began.elapsed().as_secs());
        }
    }
}
