//! Clients that do anything, cut connections and a server that is killed: at the end the files are
//! what a model says, and the server holds nothing any more.
//!
//! ```text
//!  crates/server/examples/model   24 clients, each with a model of its directory
//!           |  requests, cuts
//!           v
//!  landfast serve  <-- SIGKILL, start again: this task
//!           |
//!           v  at the end: files against the models (by the clients), `landfast status`, memory
//! ```
//!
//! One seed gives the same clients the same intentions; which of them meet is up to the scheduler.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use crate::failure::{Failure, Outcome, Tally};
use crate::landfast::Landfast;
use crate::peer::{PASSWORD, SHARE, USER};
use crate::process::{Finished, Step, tail};
use crate::workspace;

/// Options of `cargo xtask model`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How many clients.
    #[arg(long, default_value_t = 24)]
    pub(crate) clients: usize,
    /// How long they work, in seconds.
    #[arg(long, default_value_t = 300)]
    pub(crate) seconds: u64,
    /// What repeats their intentions.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seconds from one kill of the server to the next, on average; 0 for none.
    #[arg(long, default_value_t = 8)]
    pub(crate) kill_every: u64,
    /// How much memory the server may keep of its clients, in MiB.
    #[arg(long, default_value_t = KEPT_MAX_MIB)]
    pub(crate) kept_max_mib: u64,
}

impl Options {
    /// A few seconds of it, for the suite.
    pub(crate) fn short() -> Self {
        let (clients, seconds, kill_every) = (12, 8, 2);
        Self { clients, seconds, seed: 1, kill_every, kept_max_mib: KEPT_MAX_MIB }
    }
}

/// Runs the clients, kills the server under them, and looks at what is left.
pub(crate) fn run(options: &Options) -> Outcome {
    let program = program()?;
    let scratch = workspace::scratch()?;
    let site = Site::new(scratch.path())?;
    let mut server = site.start(None)?;
    let fresh = resident_kib(server.running.id())?;
    let clients = {
        let step = clients(&program, &server, options);
        thread::spawn(move || step.finish())
    };
    let (mut kills, mut panics) = (0, Vec::new());
    let (begin, mut random) = (Instant::now(), options.seed);
    let work = Duration::from_secs(options.seconds);
    while options.kill_every > 0 && !clients.is_finished() {
        // From nothing to twice the average.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let pause = Duration::from_millis((random >> 33) % (2_000 * options.kill_every));
        if begin.elapsed() + pause >= work {
            break;
        }
        thread::sleep(pause);
        panics.extend(panicked(&server)?);
        server.running.kill();
        kills += 1;
        server = site.start(Some(&server))?;
    }
    let finished = clients.join().map_err(|_| Failure::new("a thread of ours panicked"))??;
    let mut tally = Tally { note: format!("{kills} kills; "), ..Tally::default() };
    judge(&finished, &mut tally);
    let left = until_empty(&site.control)?;
    tally.count("nothing is left open", left);
    let kept = until_small(&server, fresh + 1024 * options.kept_max_mib)?;
    tally.note.push_str(&format!("; {} MiB resident when fresh, {} at the end", fresh / 1024, {
        kept / 1024
    }));
    let bounded = kept <= fresh + 1024 * options.kept_max_mib;
    let evidence = format!("{kept} KiB, {fresh} KiB when it was fresh");
    tally.count("memory is given back", if bounded { Ok(()) } else { Err(evidence) });
    panics.extend(panicked(&server)?);
    let lives = server.running.ended().map_or(Ok(()), |status| Err(status.to_string()));
    tally.count("the server lives", lives);
    let calm = if panics.is_empty() { Ok(()) } else { Err(panics.join("; ")) };
    tally.count("no thread of the server panics", calm);
    Ok(tally)
}

/// The clients, built: for the whole workspace, as `cargo test --workspace` has built them before in the suite.
pub(crate) fn program() -> Result<PathBuf, Failure> {
    let build = ["build", "--release", "--workspace", "--example", "model"];
    if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
        return Ok(PathBuf::from(program));
    }
    Step::new("cargo").args(build).dir(&workspace::root()).run()?;
    Ok(workspace::target().join("release/examples/model"))
}

fn clients(program: &Path, server: &Landfast, options: &Options) -> Step {
    Step::new(program)
        .args([&server.address.smb.to_string(), SHARE])
        .arg(&server.address.directory)
        .args(["--user", &format!("{USER}:{PASSWORD}")])
        .args(["--clients", &options.clients.to_string()])
        .args(["--seconds", &options.seconds.to_string()])
        .args(["--seed", &options.seed.to_string()])
        .limit(Duration::from_secs(options.seconds) + ENDING_LIMIT)
}

fn judge(finished: &Finished, tally: &mut Tally) {
    let faults: Vec<_> =
        finished.stdout.lines().filter(|line| line.starts_with("FAULT ")).collect();
    let sound = match (faults.is_empty(), finished.status.success()) {
        (true, true) => Ok(()),
        (true, false) => Err(format!("{}{}", finished.status, tail(&finished.stderr))),
        (false, _) => Err(faults.join("; ")),
    };
    tally.count("files and answers are as the models say", sound);
    tally.note.push_str(finished.stdout.lines().next().unwrap_or_default());
}

/// Where the server keeps what outlives it.
struct Site {
    share: PathBuf,
    config: PathBuf,
    control: PathBuf,
}

impl Site {
    fn new(directory: &Path) -> Result<Self, Failure> {
        let share = directory.join("share");
        fs::create_dir(&share).map_err(Failure::io("creating", &share))?;
        let config = directory.join("landfast.toml");
        let opens = directory.join("opens");
        let text = format!(
            "[[share]]\nname = \"{SHARE}\"\npath = {share:?}\npersistent_opens = {opens:?}\n\n\
             [[user]]\nname = \"{USER}\"\npassword = \"{PASSWORD}\"\n"
        );
        fs::write(&config, text).map_err(Failure::io("writing", &config))?;
        Ok(Self { share, config, control: directory.join("control") })
    }

    /// Starts the server, where `earlier` was if there was one.
    fn start(&self, earlier: Option<&Landfast>) -> Result<Landfast, Failure> {
        // A socket of one that was killed is in nobody's way.
        let _ = fs::remove_file(&self.control);
        let control = self.control.to_string_lossy().into_owned();
        let config = self.config.to_string_lossy().into_owned();
        let args = ["--config", &config, "--control", &control];
        Landfast::start_configured(&self.share, earlier.map(|server| &server.address), &args)
    }
}

/// Threads of the server that panicked, as its log says.
fn panicked(server: &Landfast) -> Result<Option<String>, Failure> {
    let log = fs::read_to_string(&server.log).map_err(Failure::io("reading", &server.log))?;
    Ok(log.lines().find(|line| line.contains("panicked at")).map(str::to_owned))
}

/// Waits until `landfast status` shows nothing, or says what it shows.
fn until_empty(control: &Path) -> Result<Result<(), String>, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = Step::new(workspace::landfast()?)
            .args(["status", "--json", "--control"])
            .arg(control)
            .quiet()
            .output()?;
        let report: Value = serde_json::from_str(&status)
            .map_err(|error| Failure::new(format!("`landfast status --json`: {error}")))?;
        let count = |what: &&str| report["counters"][*what].as_u64() != Some(0);
        let left: Vec<_> = NOTHING.iter().filter(|what| count(what)).collect();
        if left.is_empty() {
            return Ok(Ok(()));
        }
        if Instant::now() > deadline {
            return Ok(Err(format!("{}", report["counters"])));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

// Memory goes back a little after the connections.
fn until_small(server: &Landfast, limit_kib: u64) -> Result<u64, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let resident = resident_kib(server.running.id())?;
        if resident <= limit_kib || Instant::now() > deadline {
            return Ok(resident);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Resident memory of a process.
pub(crate) fn resident_kib(pid: u32) -> Result<u64, Failure> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).map_err(Failure::io("reading", Path::new(&path)))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.ok_or_else(|| Failure::new(format!("{path} has no VmRSS")))
}

/// What has to be 0 once all clients have gone.
const NOTHING: [&str; 8] = [
    "connections",
    "unauthenticated",
    "sessions",
    "opens",
    "orphans",
    "files",
    "leases",
    "regions",
];
/// How long the server may take to let go: less than a durable open may wait for its client.
const PATIENCE: Duration = Duration::from_secs(50);
/// 8 to 22 were seen: what threads and the allocator keep.
const KEPT_MAX_MIB: u64 = 32;
/// How long the clients may take to give everything back.
const ENDING_LIMIT: Duration = Duration::from_secs(180);
/// Names clients built elsewhere.
const PROGRAM_VARIABLE: &str = "LANDFAST_MODEL";
