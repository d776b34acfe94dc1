//! One run of a plan: a server, its clients, what befalls them, and whether all that must hold does.

mod clients;
mod push;
mod rests;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::machine::{Event, Machine, ProgramNumber};
use crate::plan::{Plan, Work};

/// The programs that run.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// `landfast`.
    pub(crate) landfast: PathBuf,
    /// The directory of `model`, `rivals` and `commit_stream`.
    pub(crate) directory: PathBuf,
    /// Variables of their environment.
    pub(crate) variables: Vec<(String, String)>,
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
    let name = format!("landfast-sim-{}", std::process::id());
    let mut machine = Machine::new(name, plan.conditions(), lines)?;
    machine.variables.clone_from(&programs.variables);
    let mut scenario = Scenario {
        plan,
        programs,
        site,
        machine,
        server: 0,
        faults: Vec::new(),
        ended: Vec::new(),
    };
    scenario.prepare()?;
    if scenario.start_server()? {
        match plan.work {
            Work::Push => scenario.push()?,
            Work::Smb | Work::Rivals | Work::All => scenario.clients()?,
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
        // A full disk refuses the blocks of the one; the other has them.
        if self.plan.work.has_rivals() {
            let contested = share.join(CONTESTED);
            let made = fs::File::create(&contested).and_then(|file| file.set_len(CONTESTED_LEN));
            made.map_err(|error| Failure::io("making", &contested, error))?;
        }
        if self.plan.work == Work::Push {
            let stream = share.join(STREAM);
            fs::write(&stream, vec![0; STREAM_LEN])
                .map_err(|error| Failure::io("writing", &stream, error))?;
        }
        Ok(())
    }

    /// Whether the server listens.
    fn start_server(&mut self) -> Result<bool, Failure> {
        let (config, control) = (self.site.join(CONFIG), self.site.join(CONTROL));
        let _ = fs::remove_file(&control);
        let landfast = self.program(&self.programs.landfast, "landfast")?;
        let mut words: Vec<OsString> = vec![landfast, "serve".into()];
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

    fn start_other(&mut self, name: &str, words: &[&str]) -> Result<ProgramNumber, Failure> {
        let program = self.program(&self.programs.directory.join(name), name)?;
        let words: Vec<OsString> =
            [program].into_iter().chain(words.iter().map(OsString::from)).collect();
        self.machine.start(&words, &self.output(name), &self.errors(name))
    }

    /// The name in the run's directory under which a program is started: where it was built shows in addresses.
    fn program(&self, built: &Path, name: &str) -> Result<OsString, Failure> {
        let link = self.site.join(format!("{name}.program"));
        let _ = fs::remove_file(&link);
        symlink(built, &link).map_err(|error| Failure::io("linking", &link, error))?;
        Ok(link.into())
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

    /// What a program has printed, its errors last.
    fn said(&self, name: &str) -> String {
        self.printed(name) + &fs::read_to_string(self.errors(name)).unwrap_or_default()
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
    fn finish(
        &mut self,
        program: ProgramNumber,
        name: &str,
        limit: u64,
    ) -> Result<Option<i32>, Failure> {
        let end = self.machine.now + limit;
        loop {
            if let Some((_, status)) = self.ended.iter().find(|(number, _)| *number == program) {
                return Ok(status.or(Some(-1)));
            }
            if self.machine.now >= end || self.machine.steps > STEPS_MAX {
                self.faults
                    .push(format!("{name} does not end: {}", last_line(&self.printed(name))));
                return Ok(None);
            }
            if !self.pass(self.machine.now + 10 * MILLISECOND)? {
                return Ok(None);
            }
        }
    }

    /// Kills the server, with the power where `power` says so, and starts it again; false where it does not start.
    fn kill_server(&mut self, power: bool) -> Result<bool, Failure> {
        self.machine.kill(self.server)?;
        self.machine.programs[self.server].is_told = true;
        if power {
            self.machine.disk.power_fails()?;
        }
        let down = 20 * MILLISECOND;
        let _ = self.pass(self.machine.now + down)?;
        self.start_server()
    }

    fn read_log(&mut self) -> Result<(), Failure> {
        let path = self.site.join(LOG);
        let log =
            fs::read_to_string(&path).map_err(|error| Failure::io("reading", &path, error))?;
        let panics = log.lines().filter(|line| line.contains("panicked"));
        self.faults.extend(panics.map(|line| format!("the server says: {line}")));
        Ok(())
    }
}

/// What a program said last.
pub(super) fn last_line(text: &str) -> String {
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

const CONTESTED: &str = "contested";
/// The region of `rivals` with a page on both sides that nobody may write.
const CONTESTED_LEN: u64 = 4096 + 17 * 1024 + 4096;
const STREAM: &str = "stream";
/// The blocks of `commit_stream`, and the one with its pointer.
const STREAM_LEN: usize = 257 * 4096;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
const START_MAX: u64 = 60 * SECOND;
/// No request waits longer than 30 s for its answer, and a client that lost its server asks some more.
const WORK_MAX: u64 = 600 * SECOND;
/// Some hundred times what a run takes that comes on.
const STEPS_MAX: u64 = 5_000_000;
