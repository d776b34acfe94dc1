//! The members of a group as processes, what is done to them, and what they say.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::network::Network;
use crate::failure::Failure;
use crate::process::{Finished, Running, Step};
use crate::workspace;

/// The names of the members.
pub(super) const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];
/// The volumes, and their MiB.
pub(super) const VOLUMES: [(&str, u64); 2] = [("data", 8), ("log", 8)];

/// A group of which some members may run.
#[derive(Debug)]
pub(super) struct Group {
    directory: PathBuf,
    landfast: PathBuf,
    pub(super) network: Network,
    seats: Vec<Seat>,
}

#[derive(Debug, Default)]
struct Seat {
    running: Option<Running>,
    starts: u32,
}

/// What a group is made of.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) members: usize,
    /// As `replica create` takes it.
    pub(super) log_size: &'static str,
    /// More lines for the file of the group.
    pub(super) values: String,
    /// Records go from log to log by RDMA.
    pub(super) rdma: bool,
    pub(super) tables: String,
}

impl Group {
    /// Describes and prepares a group in an empty directory.
    pub(super) fn create(directory: &Path, plan: &Plan, network: Network) -> Result<Self, Failure> {
        let seats = (0..plan.members).map(|_| Seat::default()).collect();
        let landfast = workspace::landfast()?;
        let group = Self { directory: directory.to_owned(), landfast, network, seats };
        let mut create = group.command("create").args(["--log-size", plan.log_size]);
        for (name, mib) in VOLUMES {
            create = create.arg("--volume").arg(format!("{name}={mib}M"));
        }
        for (member, name) in NAMES.iter().enumerate().take(plan.members) {
            let place = directory.join(name);
            let address = group.network.address(member);
            let member = format!("{name}={address},{}", place.display());
            create = create.arg("--member").arg(member);
        }
        create.output()?;
        let file = group.file();
        let text = fs::read_to_string(&file).map_err(Failure::io("reading", &file))?;
        let text = text.replacen("silence_ms = 5000\n", &format!("silence_ms = {SILENCE_MS}\n"), 1);
        let text =
            match plan.rdma {
                false => text,
                true => text
                    .replacen("transport = \"tcp\"\n", "transport = \"rdma\"\n", 1)
                    .replacen("links_are_private = false\n", "links_are_private = true\n", 1),
            };
        // Plain values come before all tables.
        let text = format!("{}\n{text}\n{}", plan.values, plan.tables);
        fs::write(&file, text).map_err(Failure::io("writing", &file))?;
        for name in &NAMES[..plan.members] {
            group.command("prepare").arg(name).output()?;
        }
        Ok(group)
    }

    pub(super) fn len(&self) -> usize {
        self.seats.len()
    }

    /// The members but one.
    pub(super) fn others(&self, than: usize) -> Vec<usize> {
        (0..self.len()).filter(|member| *member != than).collect()
    }

    /// The unix socket on which a member offers the volumes.
    pub(super) fn socket(&self, member: usize) -> PathBuf {
        self.directory.join(format!("{}.nbd", NAMES[member]))
    }

    /// The file of a member's volume.
    pub(super) fn volume(&self, member: usize, volume: usize) -> PathBuf {
        self.directory.join(NAMES[member]).join(format!("{}.volume", VOLUMES[volume].0))
    }

    /// Starts a member.
    pub(super) fn start(&mut self, member: usize) -> Result<(), Failure> {
        self.seats[member].starts += 1;
        let name = NAMES[member];
        let log = self.directory.join(format!("{name}.{}.log", self.seats[member].starts));
        let step = self.network.step(member, &self.landfast);
        let step = step.args(["replica", "serve"]).arg(self.file()).arg(name);
        let step = step.arg("--unix").arg(self.socket(member)).arg("--emulate-persistence");
        let level = std::env::var("LANDFAST_FAILOVERS_LOG").unwrap_or_else(|_| "info".to_owned());
        let running = step.env("RUST_LOG", level).quiet().serve(&log, false)?;
        self.seats[member].running = Some(running);
        self.wait(&format!("{name} answers"), |group| Ok(group.status(member).is_some()))
    }

    /// Ends a member at once.
    pub(super) fn kill(&mut self, member: usize) {
        if let Some(mut running) = self.seats[member].running.take() {
            running.kill();
        }
    }

    /// Asks a member to end, and waits until it has.
    pub(super) fn terminate(&mut self, member: usize) -> Result<(), Failure> {
        let Some(mut running) = self.seats[member].running.take() else { return Ok(()) };
        let status = running.stop(LIMIT)?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::new(format!("{} ended with {status}", NAMES[member]))),
        }
    }

    /// Stops all threads of a member where they are.
    pub(super) fn pause(&self, member: usize) {
        let Some(running) = &self.seats[member].running else { return };
        running.signal(Signal::STOP);
        let state = || fs::read_to_string(format!("/proc/{}/stat", running.id()));
        for _ in 0..500 {
            if state().is_ok_and(|it| it.rsplit(')').next().is_some_and(|it| it.starts_with(" T")))
            {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The end of [`Self::pause`].
    pub(super) fn go_on(&self, member: usize) {
        if let Some(running) = &self.seats[member].running {
            running.signal(Signal::CONT);
        }
    }

    /// A member that runs no more, though nobody ended it.
    pub(super) fn dead(&mut self) -> Option<String> {
        self.seats.iter_mut().zip(NAMES).find_map(|(seat, name)| {
            let status = seat.running.as_mut()?.ended()?;
            Some(format!("{name} ended by itself: {status}"))
        })
    }

    /// What a member says of itself; `None` if it does not answer.
    pub(super) fn status(&self, member: usize) -> Option<Value> {
        let path = self.directory.join(NAMES[member]).join("control.sock");
        let mut stream = UnixStream::connect(path).ok()?;
        stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
        stream.write_all(b"{\"landfast\":1,\"do\":\"status\"}\n").ok()?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).ok()?;
        let mut answer: Value = serde_json::from_str(&line).ok()?;
        Some(answer["ok"].take())
    }

    /// Whether a member is the source, and writers may come.
    pub(super) fn is_serving(&self, member: usize) -> bool {
        self.status(member).is_some_and(|status| status["state"] == "Serving")
    }

    /// A command at a member; its words if it is refused.
    pub(super) fn ask(&self, at: usize, words: &[&str]) -> Result<Result<(), String>, Failure> {
        let Finished { status, stderr, .. } = self.asked(at, words).finish()?;
        Ok(if status.success() { Ok(()) } else { Err(stderr.trim().to_owned()) })
    }

    /// A command at a member that has to be carried out.
    pub(super) fn order(&self, at: usize, words: &[&str]) -> Result<(), Failure> {
        self.asked(at, words).output().map(drop)
    }

    fn asked(&self, at: usize, words: &[&str]) -> Step {
        let (what, rest) = words.split_first().unwrap_or((&"status", &[]));
        self.command(what).args(rest).args(["--at", NAMES[at]]).limit(LIMIT * 3)
    }

    /// Waits until something is so.
    pub(super) fn wait(
        &mut self,
        what: &str,
        is_so: impl Fn(&Self) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        while began.elapsed() < LIMIT {
            if is_so(self)? {
                return Ok(());
            }
            if let Some(dead) = self.dead() {
                return Err(Failure::new(format!("{dead}, while this was waited for: {what}")));
            }
            thread::sleep(LOOK_EVERY);
        }
        let states = self.states();
        Err(Failure::new(format!("not so after {} s: {what}\n{states}", LIMIT.as_secs())))
    }

    /// Waits until all members are in sync, as the source has it, and nobody lacks anything.
    pub(super) fn wait_in_sync(&mut self, source: usize) -> Result<(), Failure> {
        let count = self.len();
        self.wait("all members are in sync", |group| {
            Ok(group.status(source).is_some_and(|status| {
                let replicas = status["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
                status["state"] == "Serving"
                    && status["in_sync"].as_array().map(Vec::len) == Some(count)
                    && replicas.iter().all(|it| it["state"] == "ContinuouslyReplicating")
            }))
        })
    }

    /// Waits until all members have applied everything; nobody writes.
    pub(super) fn wait_at_rest(&mut self, source: usize) -> Result<(), Failure> {
        self.wait("all members have applied everything", |group| {
            let Some(status) = group.status(source) else { return Ok(false) };
            let end = &status["log"]["end_lsn"];
            Ok((0..group.len()).all(|member| {
                let status = group.status(member).unwrap_or_default();
                status["log"]["applied_lsn"] == *end && status["log"]["end_lsn"] == *end
            }))
        })
    }

    /// What all members say, for people who look for a fault.
    pub(super) fn states(&self) -> String {
        let mut text = String::new();
        for (member, name) in NAMES.iter().enumerate().take(self.len()) {
            match self.status(member) {
                Some(status) => text.push_str(&format!("    {name}: {status}\n")),
                None => text.push_str(&format!("    {name} does not answer\n")),
            }
        }
        text
    }

    /// A thread of a member that panicked, as its output says.
    pub(super) fn panicked(&self) -> Option<String> {
        for (seat, name) in self.seats.iter().zip(NAMES) {
            for start in 1..=seat.starts {
                let log = self.directory.join(format!("{name}.{start}.log"));
                let text = fs::read_to_string(log).unwrap_or_default();
                if let Some(line) = text.lines().find(|line| line.contains("panicked at")) {
                    return Some(format!("{name}, start {start}: {line}"));
                }
            }
        }
        None
    }

    /// Keeps events and output of all members for people who look for a fault.
    pub(super) fn keep(&self, place: &Path) -> Result<(), Failure> {
        fs::create_dir_all(place).map_err(Failure::io("creating", place))?;
        for name in NAMES.iter().take(self.len()) {
            let events = self.command("events").args(["--at", name]).finish()?;
            let path = place.join(format!("{name}.events"));
            fs::write(&path, events.stdout).map_err(Failure::io("writing", &path))?;
        }
        let entries = fs::read_dir(&self.directory);
        for entry in entries.map_err(Failure::io("reading", &self.directory))?.flatten() {
            let path = entry.path();
            if path.is_file() {
                let to = place.join(entry.file_name());
                fs::copy(&path, &to).map_err(Failure::io("copying", &path))?;
            }
        }
        Ok(())
    }

    fn file(&self) -> PathBuf {
        self.directory.join("group.toml")
    }

    fn command(&self, what: &str) -> Step {
        let step = Step::new(&self.landfast).args(["replica", what]).arg(self.file());
        step.env("RUST_LOG", "error").quiet()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        (0..self.len()).for_each(|member| self.kill(member));
    }
}

/// A member that is silent for so long is taken for gone: the least that is allowed.
pub(super) const SILENCE_MS: u64 = 1_500;
/// How long the group may take for anything.
const LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
