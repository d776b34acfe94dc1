//! One run of a plan: a server, its clients, what befalls them, and whether all that must hold does.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::machine::{Event, Machine, ProgramNumber};
use crate::plan::{Plan, Work};

/// The programs that run.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// `landfast`.
    pub(crate) landfast: PathBuf,
    /// The directory of `model` and `commit_stream`.
    pub(crate) examples: PathBuf,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// What must not be, empty where all is well.
    pub(crate) faults: Vec<String>,
    /// Equal for two runs in which the same happened.
    pub(crate) digest: u64,
    pub(crate) steps: u64,
    /// Nanoseconds of the run's clock.
    pub(crate) lasted: u64,
}

/// Runs `plan` in the empty directory `site`.
pub(crate) fn run(
    plan: &Plan,
    programs: &Programs,
    site: &Path,
    lines: Option<fs::File>,
) -> Result<Outcome, Failure> {
    let _ = fs::remove_dir_all(site);
    let machine = Machine::new(format!("landfast-sim-{}", std::process::id()), plan.conditions(), lines)?;
    let mut scenario =
        Scenario { plan, programs, site, machine, server: 0, faults: Vec::new(), ended: Vec::new() };
    scenario.prepare()?;
    if scenario.start_server()? {
        match plan.work {
            Work::Smb => scenario.smb()?,
            Work::Push => scenario.push()?,
        }
    }
    scenario.read_log()?;
    let Scenario { machine, faults, .. } = scenario;
    let (digest, steps, lasted) = (machine.trace.digest(), machine.steps, machine.now);
    Ok(Outcome { faults, digest, steps, lasted })
}

struct Scenario<'a> {
    plan: &'a Plan,
    programs: &'a Programs,
    site: &'a Path,
    machine: Machine,
    server: ProgramNumber,
    faults: Vec<String>,
    ended: Vec<(ProgramNumber, Option<i32>)>,
}

impl Scenario<'_> {
    fn prepare(&self) -> Result<(), Failure> {
        let share = self.site.join("share");
        fs::create_dir_all(&share).map_err(|error| Failure::io("creating", &share, error))?;
        let opens = self.site.join("opens");
        let text = format!(
            "[[share]]\nname = \"{SHARE}\"\npath = {share:?}\npersistent_opens = {opens:?}\n\n\
             [[user]]\nname = \"{USER}\"\npassword = \"{PASSWORD}\"\n"
        );
        let config = self.site.join(CONFIG);
        let failed = |error| Failure::io("writing", &config, error);
        fs::write(&config, text).map_err(failed)?;
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        if self.plan.work == Work::Push {
            let stream = share.join(STREAM);
            fs::write(&stream, vec![0; STREAM_LEN]).map_err(|error| Failure::io("writing", &stream, error))?;
        }
        Ok(())
    }

    /// Whether the server listens.
    fn start_server(&mut self) -> Result<bool, Failure> {
        let (config, control) = (self.site.join(CONFIG), self.site.join(CONTROL));
        let _ = fs::remove_file(&control);
        let mut words: Vec<OsString> = vec![self.programs.landfast.clone().into(), "serve".into()];
        words.extend(["--listen", SMB, "--rdma-listen", RDMA, "--config"].map(OsString::from));
        words.extend([config.into(), "--control".into(), control.into()]);
        self.server = self.machine.start(&words, &self.output("server"), &self.site.join(LOG))?;
        self.machine.programs[self.server].has_disk = true;
        let end = self.machine.now + START_MAX;
        // A server does not start on a disk that fails, and says so.
        let wear = std::mem::take(&mut self.machine.disk.wear);
        while !self.machine.net.is_listening(RDMA_PORT) {
            let event = self.machine.run((self.machine.now + MILLISECOND).min(end))?;
            if event != Event::Time || self.machine.now >= end {
                self.faults.push(format!("the server does not start: {event:?}"));
                return Ok(false);
            }
        }
        self.machine.disk.wear = wear;
        Ok(true)
    }

    fn start_example(&mut self, name: &str, words: &[&str]) -> Result<ProgramNumber, Failure> {
        let program = self.programs.examples.join(name);
        let words: Vec<OsString> =
            [program.into()].into_iter().chain(words.iter().map(OsString::from)).collect();
        self.machine.start(&words, &self.output(name), &self.errors(name))
    }

    fn output(&self, name: &str) -> PathBuf {
        self.site.join(format!("{name}.out"))
    }

    fn errors(&self, name: &str) -> PathBuf {
        self.site.join(format!("{name}.err"))
    }

    fn printed(&self, name: &str) -> String {
        fs::read_to_string(self.output(name)).unwrap_or_default()
    }

    /// Runs until then; false where the server has ended, or nothing will ever happen.
    fn pass(&mut self, until: u64) -> Result<bool, Failure> {
        loop {
            match self.machine.run(until)? {
                Event::Time => return Ok(true),
                Event::Ended(number, status) if number == self.server => {
                    self.faults.push(format!("the server has ended by itself: {status:?}"));
                    return Ok(false);
                }
                Event::Ended(number, status) => self.ended.push((number, status)),
                Event::Stuck => {
                    self.faults.push("every thread waits for ever".into());
                    return Ok(false);
                }
            }
        }
    }

    /// Runs until `program` has ended; its status, or none where it does not.
    fn finish(&mut self, program: ProgramNumber, name: &str, limit: u64) -> Result<Option<i32>, Failure> {
        let end = self.machine.now + limit;
        loop {
            if let Some((_, status)) = self.ended.iter().find(|(number, _)| *number == program) {
                return Ok(status.or(Some(-1)));
            }
            if self.machine.now >= end || self.machine.steps > STEPS_MAX {
                self.faults.push(format!("{name} does not end: {}", last_line(&self.printed(name))));
                return Ok(None);
            }
            if !self.pass(self.machine.now + 10 * MILLISECOND)? {
                return Ok(None);
            }
        }
    }

    fn kill_server(&mut self) -> Result<bool, Failure> {
        self.machine.kill(self.server)?;
        self.machine.programs[self.server].is_told = true;
        let down = 20 * MILLISECOND;
        let _ = self.pass(self.machine.now + down)?;
        self.start_server()
    }

    fn smb(&mut self) -> Result<(), Failure> {
        let Plan { seed, clients, lasts, .. } = *self.plan;
        let seconds = format!("{}.{:03}", lasts / 1_000, lasts % 1_000);
        let share = self.site.join("share").to_string_lossy().into_owned();
        let (clients, seed) = (clients.to_string(), seed.to_string());
        let user = format!("{USER}:{PASSWORD}");
        let began = self.machine.now;
        let words = [
            SMB, SHARE, &share, "--direct", RDMA, "--user", &user, "--clients", &clients, "--seconds", &seconds,
            "--seed", &seed,
        ];
        let model = self.start_example("model", &words)?;
        for (at, befalls) in self.timeline() {
            if !self.ended.is_empty() {
                break;
            }
            if !self.pass(began + at * MILLISECOND)? {
                return Ok(());
            }
            match befalls {
                Befalls::Kill => {
                    if !self.kill_server()? {
                        return Ok(());
                    }
                }
                Befalls::Pause(length) => {
                    let until = self.machine.now + length * MILLISECOND;
                    self.machine.pause(self.server, until);
                }
            }
        }
        match self.finish(model, "model", WORK_MAX)? {
            None => return Ok(()),
            Some(0) => {}
            Some(status) => {
                let printed = self.printed("model");
                let mut faults: Vec<_> =
                    printed.lines().filter(|line| line.starts_with("FAULT")).map(str::to_owned).collect();
                if faults.is_empty() {
                    faults.push(format!("model ends with {status}: {}", last_line(&printed)));
                }
                self.faults.extend(faults);
                return Ok(());
            }
        }
        self.look_for_rests()
    }

    // What befalls the server, in order.
    fn timeline(&self) -> Vec<(u64, Befalls)> {
        let kills = self.plan.kills.iter().map(|at| (*at, Befalls::Kill));
        let pauses = self.plan.pauses.iter().map(|(at, length)| (*at, Befalls::Pause(*length)));
        let mut all: Vec<_> = kills.chain(pauses).collect();
        all.sort_by_key(|(at, _)| *at);
        all
    }

    /// When all clients have gone the server holds nothing, at the latest when its patience is over.
    fn look_for_rests(&mut self) -> Result<(), Failure> {
        let end = self.machine.now + REST_MAX;
        loop {
            let seen = self.status()?;
            match seen {
                None => return Ok(()),
                Some(rests) if rests.is_empty() => return Ok(()),
                Some(rests) if self.machine.now >= end => {
                    self.faults.push(format!("left when all clients have gone: {rests}"));
                    return Ok(());
                }
                Some(_) if !self.pass(self.machine.now + 5 * SECOND)? => return Ok(()),
                Some(_) => {}
            }
        }
    }

    /// What the server says it holds; none where it says nothing.
    fn status(&mut self) -> Result<Option<String>, Failure> {
        let _ = fs::remove_file(self.output("status"));
        let control = self.site.join(CONTROL);
        let mut words: Vec<OsString> = vec![self.programs.landfast.clone().into(), "status".into()];
        words.extend(["--json".into(), "--control".into(), control.into()]);
        let output = self.output("status");
        let program = self.machine.start(&words, &output, &self.errors("status"))?;
        let Some(status) = self.finish(program, "status", WORK_MAX)? else { return Ok(None) };
        let printed = self.printed("status");
        if status != 0 {
            self.faults.push(format!("`landfast status` ends with {status}: {}", last_line(&printed)));
            return Ok(None);
        }
        let report: serde_json::Value = serde_json::from_str(&printed).unwrap_or_default();
        let held = NOTHING.iter().filter(|what| report["counters"][**what].as_u64() != Some(0));
        let held: Vec<_> = held.map(|what| format!("{what} {}", report["counters"][*what])).collect();
        Ok(Some(held.join(", ")))
    }

    fn push(&mut self) -> Result<(), Failure> {
        let url = format!("smb://{USER}:{PASSWORD}@{SMB}/{SHARE}/{STREAM}");
        let stream = self.start_example(STREAMER, &["stream", &url, "1"])?;
        let Some((acknowledged, sent)) = self.stream(stream)? else { return Ok(()) };
        if acknowledged < BLOCKS {
            return Ok(());
        }
        // The checker reads all, by SMB, over a network that lost nothing since.
        self.machine.net.weather = crate::net::Weather::default();
        let numbers = [acknowledged.to_string(), sent.to_string()];
        let words = ["check", &url, &numbers[0], &numbers[1]];
        let check = self.start_example(STREAMER, &words)?;
        match self.finish(check, STREAMER, WORK_MAX)? {
            Some(0) | None => {}
            Some(_) => {
                let said = last_line(&self.printed(STREAMER));
                self.faults.push(format!("acknowledged {acknowledged}, sent {sent}: {said}"));
            }
        }
        Ok(())
    }

    /// Runs the stream until the power fails; what it says was acknowledged, and sent.
    fn stream(&mut self, stream: ProgramNumber) -> Result<Option<(u64, u64)>, Failure> {
        let extra = self.plan.kills.first().copied().unwrap_or(3) * MILLISECOND;
        let mut pauses = self.plan.pauses.iter();
        let end = self.machine.now + WORK_MAX;
        let mut fails_at = None;
        while self.ended.is_empty() && fails_at.is_none_or(|at| self.machine.now < at) {
            if self.machine.now >= end {
                self.faults.push("the stream does not come on".into());
                return Ok(None);
            }
            if !self.pass(self.machine.now + MILLISECOND)? {
                return Ok(None);
            }
            let reached = numbers(&self.printed(STREAMER), "acknowledged").map_or(0, |(reached, _)| reached);
            if reached >= BLOCKS && fails_at.is_none() {
                fails_at = Some(self.machine.now + extra);
                if let Some((_, length)) = pauses.next() {
                    self.machine.pause(self.server, self.machine.now + length * MILLISECOND);
                }
            }
        }
        self.machine.kill(self.server)?;
        self.machine.programs[self.server].is_told = true;
        self.machine.disk.power_fails()?;
        let Some(status) = self.finish(stream, STREAMER, WORK_MAX)? else { return Ok(None) };
        if !self.start_server()? {
            return Ok(None);
        }
        let told = numbers(&self.printed(STREAMER), "ended");
        if told.is_none() && status != 1 {
            self.faults.push(format!("the stream ends with {status}: {}", last_line(&self.printed(STREAMER))));
        }
        Ok(told)
    }

    fn read_log(&mut self) -> Result<(), Failure> {
        let path = self.site.join(LOG);
        let log = fs::read_to_string(&path).map_err(|error| Failure::io("reading", &path, error))?;
        let panics = log.lines().filter(|line| line.contains("panicked"));
        self.faults.extend(panics.map(|line| format!("the server says: {line}")));
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Befalls {
    Kill,
    Pause(u64),
}

// The last line that begins with `word`: `acknowledged N`, or `ended acknowledged N sent M`.
fn numbers(printed: &str, word: &str) -> Option<(u64, u64)> {
    let line = printed.lines().rev().find(|line| line.starts_with(word))?;
    let mut numbers = line.split(' ').filter_map(|word| word.parse().ok());
    let first = numbers.next()?;
    Some((first, numbers.next().unwrap_or(first)))
}

fn last_line(text: &str) -> String {
    text.lines().rev().find(|line| !line.is_empty()).unwrap_or("it says nothing").to_owned()
}

const SHARE: &str = "data";
const USER: &str = "sim";
const PASSWORD: &str = "a password of the simulator";
const CONFIG: &str = "landfast.toml";
const CONTROL: &str = "control";
const LOG: &str = "server.log";
const SMB: &str = "127.0.0.1:445";
const RDMA: &str = "127.0.0.1:5445";
const RDMA_PORT: u16 = 5445;

const STREAMER: &str = "commit_stream";
const STREAM: &str = "stream";
/// Blocks that `commit_stream` writes in turn; the pointer's is behind them.
const BLOCKS: u64 = 256;
const STREAM_LEN: usize = 257 * 4096;

/// Counters that are zero when nobody is there.
const NOTHING: [&str; 8] =
    ["connections", "unauthenticated", "sessions", "opens", "orphans", "files", "leases", "regions"];

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
const START_MAX: u64 = 60 * SECOND;
/// No request waits longer than 30 s for its answer, and a client that lost its server asks some more.
const WORK_MAX: u64 = 600 * SECOND;
const REST_MAX: u64 = 600 * SECOND;
/// Some hundred times what a run takes that comes on.
const STEPS_MAX: u64 = 5_000_000;
