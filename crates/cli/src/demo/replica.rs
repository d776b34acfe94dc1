//! `landfast demo replica`: two members as processes, a file system on the volume, the source killed under load.
//!
//! ```text
//!   1. write     4 threads, O_DSYNC, into a file on ext4 on the source's loop device; each answered write is noted
//!   2. kill      the source --- SIGKILL ---> promote the other member, mount there, look for every write
//!   3. go on     write there
//!   4. rejoin    start the first member again: it gets what it lacks; both volumes are compared, byte by byte
//! ```

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use pmem::DurabilityClass;
use serde_json::Value;

use super::child;
use super::life::{MEMORY, class_of, kill};
use crate::args::DemoReplica;
use crate::failure::Failure;
use crate::interrupt::Asked;
use crate::output;

/// Runs the demonstration; success means that every check held.
pub(crate) fn run(options: &DemoReplica, asked: &Asked) -> Result<(), Failure> {
    let base = options.directory.clone().unwrap_or_else(|| PathBuf::from(MEMORY));
    let directory = tempfile::Builder::new()
        .prefix("landfast-demo-")
        .tempdir_in(&base)
        .map_err(Failure::local("cannot make a directory in", &base))?;
    let is_root = rustix::process::geteuid().is_root();
    let has_ext4 = !options.plain && is_root && Path::new("/dev/loop-control").exists();
    let class = class_of(directory.path())?;
    let stage = Stage {
        directory: directory.path(),
        has_ext4,
        emulates: class == DurabilityClass::Volatile,
        asked,
    };
    output::say(&format!(
        "two members in {} (durability class {class}), {}\n",
        directory.path().display(),
        match has_ext4 {
            true => "ext4 on the loop device of the source's volume",
            false =>
                "writing to the file of the source's volume: a file system on it needs root and loop devices",
        }
    ))?;
    if stage.emulates {
        output::say(
            "persistence is EMULATED here: killed programs lose nothing, a power failure all\n",
        )?;
    }
    stage.run(options.duration_s)
}

struct Stage<'a> {
    directory: &'a Path,
    has_ext4: bool,
    emulates: bool,
    asked: &'a Asked,
}

impl Stage<'_> {
    fn run(&self, seconds: f64) -> Result<(), Failure> {
        self.describe()?;
        let mut alpha = self.serve("alpha")?;
        let beta = self.serve("beta")?;
        self.ask(&["promote", "--at", "alpha", "--force"])?;
        let files = self.offered("alpha")?;
        let mut mounted = self.mount(&files, "alpha", true)?;
        self.wait_for_sync("alpha", "beta")?;
        let ledger = Ledger::new(self.place(&mounted, &files));

        let time = Duration::from_secs_f64(seconds.clamp(0.1, 60.0));
        let (pid, killed) = (alpha.child.id(), Mutex::new(None));
        let stops = AtomicBool::new(false);
        ledger.write(&stops, || {
            self.sleep(time)?;
            // The writers end with it.
            let done = kill(pid);
            *killed.lock().expect("nobody panics here") = Some(Instant::now());
            done
        })?;
        let killed = killed.into_inner().expect("nobody panics here");
        let killed = killed.unwrap_or_else(Instant::now);
        alpha.reap();
        let answered = ledger.answered();

        self.ask(&["promote", "--at", "beta"])?;
        let promoted = killed.elapsed();
        let files = self.offered("beta")?;
        drop(mounted.take());
        mounted = self.mount(&files, "beta", false)?;
        let usable = killed.elapsed();
        let second = Ledger { path: self.place(&mounted, &files), ..ledger };
        let lost = second.lost()?;
        let checked = killed.elapsed();

        let stops = AtomicBool::new(false);
        second.write(&stops, || {
            let asked = self.sleep(Duration::from_secs(1));
            stops.store(true, Ordering::SeqCst);
            asked
        })?;
        let more = second.answered() - answered;
        let began = Instant::now();
        let alpha = self.serve("alpha")?;
        self.wait_for_sync("beta", "alpha")?;
        let rejoined = began.elapsed();
        let lost_later = second.lost()?;
        drop(mounted);
        let differing = self.differing()?;
        drop((alpha, beta));

        let figures = Figures {
            answered,
            more,
            lost: lost + lost_later,
            differing,
            promoted,
            usable,
            checked,
            rejoined,
        };
        figures.judge(&second.latency())
    }

    fn describe(&self) -> Result<(), Failure> {
        let ports = [free_port()?, free_port()?];
        let member = |name: &str, port: u16| {
            format!("{name}=127.0.0.1:{port},{}", self.directory.join(name).display())
        };
        let (alpha, beta) = (member("alpha", ports[0]), member("beta", ports[1]));
        let mut create = self.command("create")?;
        create.args(["--volume", "data=256M", "--log-size", "64M", "--member", &alpha]);
        finish(create.args(["--member", &beta]), "landfast replica create")?;
        for name in ["alpha", "beta"] {
            finish(self.command("prepare")?.arg(name), "landfast replica prepare")?;
            let files = self.files(name);
            fs::create_dir_all(&files).map_err(Failure::local("cannot make", &files))?;
        }
        Ok(())
    }

    /// A command on the group.
    fn command(&self, what: &str) -> Result<Command, Failure> {
        let mut command = child::command()?;
        command.args(["replica", what]).arg(self.directory.join("db.toml"));
        command.stdin(Stdio::null());
        Ok(command)
    }

    /// Until then, or a signal.
    fn sleep(&self, time: Duration) -> Result<(), Failure> {
        let began = Instant::now();
        while began.elapsed() < time {
            self.asked.check()?;
            thread::sleep(PAUSE.min(time.saturating_sub(began.elapsed())));
        }
        Ok(())
    }

    fn wait(
        &self,
        what: &str,
        mut is_so: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        while began.elapsed() < LIMIT {
            self.asked.check()?;
            if is_so()? {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        Err(Failure::Child {
            process: "the group",
            what: format!("does not come to this in {} s: {what}", LIMIT.as_secs()),
        })
    }

    fn files(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}-files"))
    }

    fn serve(&self, name: &str) -> Result<Process, Failure> {
        let mut command = self.command("serve")?;
        command.arg(name).arg("--fuse").arg(self.files(name));
        if self.has_ext4 {
            command.arg("--loop");
        }
        if self.emulates {
            command.arg("--emulate-persistence");
        }
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(Failure::system("cannot start a member"))?;
        let output = child.stdout.take().expect("the output was asked to be piped");
        let process = Process { child, files: self.files(name) };
        let mut lines = BufReader::new(output);
        let mut line = String::new();
        lines.read_line(&mut line).map_err(Failure::system("a member's output"))?;
        if line.is_empty() {
            return Err(Failure::Child { process: "a member", what: "ended at once".into() });
        }
        // What it says later is of no interest, and must not fill the pipe.
        thread::spawn(move || lines.lines().for_each(drop));
        Ok(process)
    }

    fn ask(&self, words: &[&str]) -> Result<(), Failure> {
        let (what, rest) = words.split_first().expect("a command");
        finish(self.command(what)?.args(rest), "landfast replica")
    }

    fn status(&self, name: &str) -> Result<Value, Failure> {
        let mut command = self.command("status")?;
        let output = command.args(["--at", name, "--json"]).output();
        let output = output.map_err(Failure::system("cannot ask a member"))?;
        serde_json::from_slice(&output.stdout).map_err(|error| Failure::Child {
            process: "a member",
            what: format!("answered what is no JSON: {error}"),
        })
    }

    fn wait_for_sync(&self, source: &str, member: &str) -> Result<(), Failure> {
        self.wait("the members are in sync", || {
            let status = self.status(source)?;
            let names = status["in_sync"].as_array().into_iter().flatten();
            let is_in_sync = names.filter_map(Value::as_str).any(|name| name == member);
            let states = status["replicas"].as_array().into_iter().flatten();
            let lacks = states.filter_map(|it| it["bytes_remaining"].as_u64()).sum::<u64>();
            Ok(is_in_sync && lacks == 0)
        })
    }

    /// The file of the source's volume, once it is there.
    fn offered(&self, name: &str) -> Result<PathBuf, Failure> {
        let file = self.files(name).join("data");
        self.wait("the volume is offered", || Ok(file.exists()))?;
        Ok(file)
    }

    fn mount(&self, file: &Path, name: &str, makes: bool) -> Result<Option<Mount>, Failure> {
        if !self.has_ext4 {
            return Ok(None);
        }
        let mut device = None;
        self.wait("there is a loop device", || {
            device = loop_of(file)?;
            Ok(device.is_some())
        })?;
        let device = device.unwrap_or_default();
        if makes {
            let mut make = Command::new("mkfs.ext4");
            finish(make.args(["-q", "-F"]).arg(&device), "mkfs.ext4")?;
        }
        let at = self.directory.join(format!("{name}-mounted"));
        fs::create_dir_all(&at).map_err(Failure::local("cannot make", &at))?;
        finish(Command::new("mount").arg(&device).arg(&at), "mount")?;
        Ok(Some(Mount(at)))
    }

    fn place(&self, mounted: &Option<Mount>, file: &Path) -> PathBuf {
        mounted.as_ref().map_or_else(|| file.to_owned(), |mount| mount.0.join("stream"))
    }

    /// Bytes in which the volumes differ once nobody writes.
    fn differing(&self) -> Result<usize, Failure> {
        let volume = |name: &str| {
            let path = self.directory.join(name).join("data.volume");
            fs::read(&path).map_err(Failure::local("cannot read", path))
        };
        self.wait("the destination has applied everything", || {
            let (beta, alpha) = (self.status("beta")?, self.status("alpha")?);
            Ok(beta["log"]["end_lsn"] == alpha["log"]["applied_lsn"])
        })?;
        let (alpha, beta) = (volume("alpha")?, volume("beta")?);
        Ok(alpha.iter().zip(&beta).filter(|(one, other)| one != other).count()
            + alpha.len().abs_diff(beta.len()))
    }
}

/// What came of it.
struct Figures {
    answered: u64,
    more: u64,
    lost: u64,
    differing: usize,
    promoted: Duration,
    usable: Duration,
    checked: Duration,
    rejoined: Duration,
}

impl Figures {
    /// Prints them, and says whether every check held.
    fn judge(&self, latency: &Histogram<u64>) -> Result<(), Failure> {
        let Self { answered, more, lost, differing, .. } = self;
        let us = |quantile| latency.value_at_quantile(quantile) / 1000;
        output::say(&format!(
            "\n\
             writes answered before the kill        {answered:>10}\n\
             \x20 latency p50 / p99                 {:>7} / {} us\n\
             SIGKILL to promotion                   {:>10} ms\n\
             SIGKILL to the file system mounted     {:>10} ms\n\
             SIGKILL to all writes looked for       {:>10} ms\n\
             writes answered after it               {more:>10}\n\
             the old source starts to it is in sync {:>10} ms\n\
             answered writes lost                   {lost:>10}\n\
             bytes in which the members differ      {differing:>10}\n",
            us(0.5),
            us(0.99),
            self.promoted.as_millis(),
            self.usable.as_millis(),
            self.checked.as_millis(),
            self.rejoined.as_millis(),
        ))?;
        if *lost > 0 {
            return Err(Failure::Lost(format!("{lost} answered writes")));
        }
        if *differing > 0 {
            return Err(Failure::Lost(format!("the members differ in {differing} bytes")));
        }
        if *answered == 0 || *more == 0 {
            return Err(Failure::Child { process: "the writers", what: "wrote nothing".into() });
        }
        Ok(())
    }
}

/// What was written, block by block.
struct Ledger {
    path: PathBuf,
    /// The newest stamp of each block that was answered.
    blocks: Vec<AtomicU64>,
    /// That of the newest write, answered or not.
    begun: Vec<AtomicU64>,
    count: AtomicU64,
    latency: Mutex<Histogram<u64>>,
}

impl Ledger {
    fn new(path: PathBuf) -> Self {
        let zeros = || (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
        let latency = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("sound bounds");
        Self {
            path,
            blocks: zeros(),
            begun: zeros(),
            count: AtomicU64::new(0),
            latency: Mutex::new(latency),
        }
    }

    fn answered(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    fn latency(&self) -> Histogram<u64> {
        self.latency.lock().expect("nobody panics here").clone()
    }

    /// Has threads write until writing fails or is stopped, and does something meanwhile.
    fn write(
        &self,
        stops: &AtomicBool,
        meanwhile: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut options = File::options();
        let sync = i32::try_from(rustix::fs::OFlags::DSYNC.bits()).unwrap_or_default();
        let file = options.read(true).write(true).create(true).custom_flags(sync).open(&self.path);
        let file = file.map_err(Failure::local("cannot open", &self.path))?;
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let file = &file;
                scope.spawn(move || self.write_one(file, writer, stops));
            }
            let done = meanwhile();
            if done.is_err() {
                stops.store(true, Ordering::SeqCst);
            }
            done
        })
    }

    // Each writer has blocks of its own, so that the newest write of a block is the last one of its thread.
    fn write_one(&self, file: &File, writer: usize, stops: &AtomicBool) {
        let mut bytes = [0; BLOCK];
        for round in 0_u64.. {
            let at = usize::try_from(round * 7 % BLOCKS_OF_ONE).unwrap_or(0) * WRITERS + writer;
            let stamp = self.begun[at].load(Ordering::SeqCst) + 1;
            self.begun[at].store(stamp, Ordering::SeqCst);
            fill(&mut bytes, at, stamp);
            let began = Instant::now();
            let offset = u64::try_from(at * BLOCK).unwrap_or(u64::MAX);
            if stops.load(Ordering::SeqCst) || file.write_all_at(&bytes, offset).is_err() {
                return;
            }
            let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.blocks[at].store(stamp, Ordering::SeqCst);
            self.count.fetch_add(1, Ordering::SeqCst);
            self.latency.lock().expect("nobody panics here").saturating_record(took);
        }
    }

    /// Answered writes that are not there.
    fn lost(&self) -> Result<u64, Failure> {
        let failed = || Failure::local("cannot read", &self.path);
        let file = File::open(&self.path).map_err(failed())?;
        let (mut found, mut wanted, mut lost) = ([0; BLOCK], [0; BLOCK], 0);
        for (at, block) in self.blocks.iter().enumerate() {
            let (answered, begun) =
                (block.load(Ordering::SeqCst), self.begun[at].load(Ordering::SeqCst));
            if answered == 0 {
                continue;
            }
            let offset = u64::try_from(at * BLOCK).unwrap_or(u64::MAX);
            file.read_exact_at(&mut found, offset).map_err(failed())?;
            let is_there = (answered..=begun).any(|stamp| {
                fill(&mut wanted, at, stamp);
                found == wanted
            });
            lost += u64::from(!is_there);
        }
        Ok(lost)
    }
}

fn fill(bytes: &mut [u8; BLOCK], at: usize, stamp: u64) {
    let place = u64::try_from(at).unwrap_or(u64::MAX);
    for (number, word) in (0_u64..).zip(bytes.chunks_exact_mut(8)) {
        word.copy_from_slice(
            &(stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place << 20 ^ number).to_le_bytes(),
        );
    }
}

/// A member, which ends when this is dropped, and leaves nothing mounted.
struct Process {
    child: Child,
    /// Where it shows its volumes.
    files: PathBuf,
}

impl Process {
    fn reap(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        // It takes its files and loop devices away when it is asked to end.
        if let Some(pid) = pid
            && !self.has_ended()
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        for _ in 0..200 {
            if self.has_ended() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.reap();
        // One that was killed has left them.
        for device in loops_below(&self.files) {
            succeeds("losetup", &["--detach", &device]);
        }
        if is_mounted(&self.files) {
            succeeds("umount", &["--lazy", &self.files.to_string_lossy()]);
        }
    }
}

/// A mounted file system.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let at = self.0.to_string_lossy();
        // What was mounted from a member that was killed cannot be written back.
        if !succeeds("umount", &[&at]) {
            succeeds("umount", &["--lazy", &at]);
        }
    }
}

fn succeeds(program: &str, words: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|it| it.success())
}

/// Loop devices on files of a directory, whose file system may not answer any more.
fn loops_below(directory: &Path) -> Vec<String> {
    let mut command = Command::new("losetup");
    let listed = command.args(["--list", "--noheadings", "--output", "NAME,BACK-FILE"]).output();
    let text =
        listed.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
    let ours = lines.filter(|(_, file)| Path::new(file.trim()).starts_with(directory));
    ours.map(|(name, _)| name.to_owned()).collect()
}

fn is_mounted(directory: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let place = directory.to_string_lossy();
    mounts.lines().filter_map(|line| line.split(' ').nth(1)).any(|at| at == place)
}

fn loop_of(file: &Path) -> Result<Option<String>, Failure> {
    let mut command = Command::new("losetup");
    let output =
        command.args(["--noheadings", "--output", "NAME", "--associated"]).arg(file).output();
    let output = output.map_err(Failure::system("cannot run losetup"))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok((!text.is_empty()).then_some(text))
}

fn finish(command: &mut Command, process: &'static str) -> Result<(), Failure> {
    let output = command.output().map_err(Failure::system("cannot start a program"))?;
    if output.status.success() {
        return Ok(());
    }
    let what = format!("failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Err(Failure::Child { process, what })
}

fn free_port() -> Result<u16, Failure> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0");
    let address = listener.and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(Failure::system("there is no free port"))
}

const BLOCK: usize = 4096;
const WRITERS: usize = 4;
const BLOCKS_OF_ONE: u64 = 2000;
const BLOCKS: usize = WRITERS * 2000;
/// How long the group may take for anything.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at what is waited for.
const PAUSE: Duration = Duration::from_millis(20);
