//! Clients that do anything, cut connections and a server that is killed: at the end the files are
//! what a model says, and the server holds nothing any more.
//!
//! ```text
//!  crates/model/src/bin/model     24 clients, each with a model of its directory
//!           |  requests, cuts, over TCP and SMB Direct
//!           v
//!  landfast serve  <-- SIGKILL, start again: this task
//!           |
//!           v  at the end: files against the models (by the clients), `landfast status`, memory
//! ```
//!
//! One seed gives the same clients the same intentions; which of them meet is up to the scheduler.

mod held;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, Outcome, Tally};
use crate::landfast::Landfast;
use crate::peer::{PASSWORD, SHARE, USER};
use crate::process::{Finished, Step, tail};
use crate::workspace;
use clap::Args;

pub(crate) use self::held::resident_kib;
use self::held::{Held, Rest, Rounds};

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
}

impl Options {
    /// A few seconds of it, for the suite.
    pub(crate) fn short() -> Self {
        let (clients, seconds, kill_every) = (12, 6, 2);
        Self { clients, seconds, seed: 1, kill_every }
    }

    /// A round of work after which the server is looked at.
    fn round(&self) -> Self {
        let seconds = (self.seconds / 10).clamp(1, ROUND_SECONDS_MAX);
        Self { seconds, kill_every: 0, ..self.clone() }
    }
}

/// Runs the clients, kills the server under them, and looks at what is left.
pub(crate) fn run(options: &Options) -> Outcome {
    let program = program()?;
    let scratch = workspace::scratch()?;
    let site = Site::new(scratch.path())?;
    let mut server = site.start(None)?;
    let fresh = Held::by(&server, &site.control)?.map_err(Failure::new)?;
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
        panics.extend(server.panicked()?);
        server.running.kill();
        kills += 1;
        server = site.start(Some(&server))?;
    }
    let finished = clients.join().map_err(|_| Failure::new("a thread of ours panicked"))??;
    let mut tally = Tally { note: format!("{kills} kills; "), ..Tally::default() };
    judge(&finished, &mut tally);
    let left = Held::by(&server, &site.control)?;
    let is_empty = left.is_ok();
    tally.count("nothing is left open", left.map(drop));
    if is_empty {
        come_to_rest(&program, &server, &site, &fresh, options, &mut tally)?;
    }
    panics.extend(server.panicked()?);
    let lives = server.running.ended().map_or(Ok(()), |status| Err(status.to_string()));
    tally.count("the server lives", lives);
    let calm = if panics.is_empty() { Ok(()) } else { Err(panics.join("; ")) };
    tally.count("no thread of the server panics", calm);
    Ok(tally)
}

/// Has clients work round for round, and looks at what the server holds after each.
fn come_to_rest(
    program: &Path,
    server: &Landfast,
    site: &Site,
    fresh: &Held,
    options: &Options,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let mut rounds = Rounds::default();
    let (held, rest) = loop {
        site.empty()?;
        let mut sound = Tally::default();
        judge(&clients(program, server, &options.round()).finish()?, &mut sound);
        if !sound.failed.is_empty() {
            tally.failed.extend(sound.failed);
            return Ok(());
        }
        let held = match Held::by(server, &site.control)? {
            Ok(held) => held,
            Err(left) => {
                tally.count("nothing is left open after a round", Err(left));
                return Ok(());
            }
        };
        match rounds.end(&held) {
            Rest::Awaited => {}
            rest => break (held, rest),
        }
    };
    tally.note.push_str(&format!("; {held}, fresh {fresh}; rounds: {rounds}"));
    match rest {
        Rest::Unknown => tally.skipped.push("the C library does not count its heap".to_owned()),
        Rest::Found => tally.count("the heap is given back", Ok(())),
        _ => tally.count("the heap is given back", Err(format!("it grows: {rounds}"))),
    }
    tally.count("memory and descriptors are given back", held.unexplained(fresh));
    Ok(())
}

/// The clients, built.
pub(crate) fn program() -> Result<PathBuf, Failure> {
    if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
        return Ok(PathBuf::from(program));
    }
    workspace::build_of(["--bin", "model"]).run()?;
    Ok(workspace::target().join("release/model"))
}

fn clients(program: &Path, server: &Landfast, options: &Options) -> Step {
    let direct = server.address.rdma.map(|address| ["--direct".to_owned(), address.to_string()]);
    Step::new(program)
        .args([&server.address.smb.to_string(), SHARE])
        .arg(&server.address.directory)
        .args(direct.iter().flatten())
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
        (false, _) => Err(format!("{}{}", faults.join("; "), kept(&finished.stderr))),
    };
    tally.count("files and answers are as the models say", sound);
    tally.note.push_str(finished.stdout.lines().next().unwrap_or_default());
}

/// Keeps what the clients said of what they had done before a fault. Says where.
fn kept(said: &str) -> String {
    let path = workspace::kept("logs").map(|logs| logs.join("model.log"));
    match path.and_then(|path| {
        fs::write(&path, said).map_err(Failure::io("writing", &path))?;
        Ok(path)
    }) {
        Ok(path) => format!("; what they did before is in {}", path.display()),
        Err(failure) => format!("; {failure}"),
    }
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
        let secret = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&config, secret).map_err(Failure::io("hiding", &config))?;
        Ok(Self { share, config, control: directory.join("control") })
    }

    /// Removes what the clients before have left.
    fn empty(&self) -> Result<(), Failure> {
        let listed = fs::read_dir(&self.share).map_err(Failure::io("reading", &self.share))?;
        for entry in listed.filter_map(Result::ok) {
            let path = entry.path();
            // The server's own directory stays where it is.
            if !entry.file_name().to_string_lossy().starts_with(".landfast") {
                fs::remove_dir_all(&path).map_err(Failure::io("removing", &path))?;
            }
        }
        Ok(())
    }

    /// Starts the server, where `earlier` was if there was one.
    fn start(&self, earlier: Option<&Landfast>) -> Result<Landfast, Failure> {
        // A socket of one that was killed is in nobody's way.
        let _ = fs::remove_file(&self.control);
        let control = self.control.to_string_lossy().into_owned();
        let config = self.config.to_string_lossy().into_owned();
        let args = ["--config", &config, "--control", &control];
        let earlier = earlier.map(|server| &server.address);
        let (name, value) = held::EXACT;
        Landfast::start_configured(&self.share, earlier, &args, |step| step.env(name, value))
    }
}

/// Longest round of work.
const ROUND_SECONDS_MAX: u64 = 3;
/// How long the clients may take to give everything back.
const ENDING_LIMIT: Duration = Duration::from_secs(180);
/// Names clients built elsewhere.
const PROGRAM_VARIABLE: &str = "LANDFAST_MODEL";
