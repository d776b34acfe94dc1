//! One boot of the guest: an emulated machine whose only job is one command.
//!
//! ```text
//! host                                                guest
//! job directory   <------- 9p "job" ------->  /job     command, status, bin/landfast
//! tests/guest     <------- 9p "tests" ----->  /tests   read only
//! our output      <------- virtio port -----  what the command prints
//! 127.0.0.1:N     <------- 10.0.2.2:N          slirp: no root, no tap device
//! ```
//!
//! The processor is emulated in software (TCG), so that any machine will do.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::failure::Failure;
use crate::guest::cache::Cache;
use crate::guest::packages::program_of;
use crate::process::{Running, Step, tail};
use crate::workspace;

/// What a guest is given.
#[derive(Debug, Default)]
pub(super) struct Setup {
    /// Directory of the host that becomes /host.
    pub(super) share: Option<PathBuf>,
    /// File that becomes the persistent memory of the machine, its whole length.
    pub(super) persistent_memory: Option<PathBuf>,
    /// Ports of the host's loopback that lead to the same port of the guest.
    pub(super) forwarded: Vec<u16>,
    /// File that gets all of the guest's network traffic.
    pub(super) capture: Option<PathBuf>,
    /// Memory in MiB.
    pub(super) memory_mib: Option<u32>,
    /// Programs of the host that the guest finds beside `landfast`.
    pub(super) programs: Vec<PathBuf>,
    /// Image of a disk that becomes /dev/vdb, read only.
    pub(super) second_disk: Option<PathBuf>,
}

/// A running guest. Dropping it ends it at once, as a power failure would.
#[derive(Debug)]
pub(super) struct Guest {
    name: String,
    running: Running,
    lines: Receiver<String>,
    job: TempDir,
    deadline: Instant,
    said: String,
}

/// How a command ended.
#[derive(Debug)]
pub(super) struct Ended {
    name: String,
    /// Its exit status, or why there is none.
    pub(super) how: How,
    /// What it printed.
    pub(super) output: String,
}

/// The ways to end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum How {
    /// The command ended with this status.
    Exited(i32),
    /// The time was over.
    TimedOut,
    /// The machine ended before the command did.
    Died,
}

impl Guest {
    /// Boots and starts `command`, a bash script. The guest does not outlive `limit`. Its `name`
    /// stands before its lines and in the names of its logs: several may run at once.
    pub(super) fn start(
        name: &str,
        setup: &Setup,
        command: &str,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let cache = Cache::ready()?;
        let job = workspace::scratch()?;
        prepare(job.path(), command, &setup.programs)?;
        let log = workspace::kept("logs")?.join(format!("guest-{name}-qemu.log"));
        let step = emulator(&cache).args(arguments(&cache, setup, job.path())?);
        let mut running = step.quiet().serve(&log, true)?;
        let pipe = running.stdout().ok_or_else(|| Failure::new("no pipe"))?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut reader = BufReader::new(pipe);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
                let text = String::from_utf8_lossy(&line);
                let _ = sender.send(text.trim_end_matches(['\r', '\n']).to_owned());
                line.clear();
            }
        });
        let (name, deadline, said) = (name.to_owned(), Instant::now() + limit, String::new());
        Ok(Self { name, running, lines, job, deadline, said })
    }

    /// Waits for a line that begins with `word` and hands back what follows it. All lines are
    /// shown.
    pub(super) fn wait_for(&mut self, word: &str) -> Result<String, Failure> {
        loop {
            match self.next_line() {
                Next::Line(line) => {
                    println!("  {}: {line}", self.name);
                    if let Some(rest) = line.strip_prefix(word) {
                        return Ok(rest.trim().to_owned());
                    }
                }
                Next::End | Next::TimeOver => {
                    let ended = self.ended();
                    let what = format!("{:?} without having said `{word}`", ended.how);
                    return Err(ended.failure(&what));
                }
            }
        }
    }

    /// What the command printed so far.
    pub(super) fn said(&self) -> &str {
        &self.said
    }

    /// Tells the command something: it sees the file /job/NAME.
    pub(super) fn tell(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.job.path().join(name);
        let unseen = self.job.path().join(format!("{name}.part"));
        fs::write(&unseen, text).map_err(Failure::io("writing", &unseen))?;
        fs::rename(&unseen, &path).map_err(Failure::io("renaming", &unseen))
    }

    /// Waits for the end of the command. All lines are shown.
    pub(super) fn finish(self) -> Ended {
        let name = self.name.clone();
        self.finish_by(|line| println!("  {name}: {line}"))
    }

    /// Waits for the end of the command, handing each line it prints to `show`.
    pub(super) fn finish_by(mut self, mut show: impl FnMut(&str)) -> Ended {
        while let Next::Line(line) = self.next_line() {
            show(&line);
        }
        self.ended()
    }

    /// The next line, which is shown unless it begins with `quiet`.
    pub(super) fn hear(&mut self, quiet: &str) -> Result<String, Failure> {
        match self.next_line() {
            Next::Line(line) => {
                if !line.starts_with(quiet) {
                    println!("  {}: {line}", self.name);
                }
                Ok(line)
            }
            Next::End | Next::TimeOver => {
                let ended = self.ended();
                Err(ended.failure(&format!("{:?} when more was to come", ended.how)))
            }
        }
    }

    /// Ends the machine in the middle of whatever it does, and hands back all that it said.
    pub(super) fn cut_power(mut self) -> String {
        self.running.kill();
        while let Next::Line(_) = self.next_line() {}
        std::mem::take(&mut self.said)
    }

    fn next_line(&mut self) -> Next {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => {
                self.said.push_str(&line);
                self.said.push('\n');
                Next::Line(line)
            }
            Err(RecvTimeoutError::Disconnected) => Next::End,
            Err(RecvTimeoutError::Timeout) => Next::TimeOver,
        }
    }

    fn ended(&mut self) -> Ended {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let in_time = self.running.wait(left).is_ok();
        self.keep_logs();
        let status = fs::read_to_string(self.job.path().join("status")).unwrap_or_default();
        let how = match status.trim().parse() {
            Ok(status) => How::Exited(status),
            Err(_) if in_time => How::Died,
            Err(_) => How::TimedOut,
        };
        let output = std::mem::take(&mut self.said);
        Ended { name: self.name.clone(), how, output }
    }

    /// The job directory goes with this value; its logs stay.
    fn keep_logs(&self) {
        let Ok(logs) = workspace::kept("logs") else { return };
        for name in ["console.log", "kernel.log"] {
            let kept = logs.join(format!("guest-{}-{name}", self.name));
            let _ = fs::copy(self.job.path().join(name), kept);
        }
    }
}

impl Ended {
    /// Success of the command, or a failure that says `what` and where to read on.
    pub(super) fn succeeded(&self, what: &str) -> Result<(), Failure> {
        match self.how {
            How::Exited(0) => Ok(()),
            _ => Err(self.failure(&format!("{what}: {:?}{}", self.how, tail(&self.output)))),
        }
    }

    fn failure(&self, what: &str) -> Failure {
        let log = format!("xtask/logs/guest-{}-console.log", self.name);
        let log = workspace::target().join(log);
        Failure::new(format!("the guest: {what}")).remedy(format!("read {}", log.display()))
    }
}

/// What came out of the guest.
enum Next {
    Line(String),
    End,
    TimeOver,
}

fn prepare(job: &Path, command: &str, extra: &[PathBuf]) -> Result<(), Failure> {
    let script = job.join("command");
    fs::write(&script, command).map_err(Failure::io("writing", &script))?;
    let programs = job.join("bin");
    fs::create_dir(&programs).map_err(Failure::io("creating", &programs))?;
    let binary = workspace::landfast()?;
    // Not links: the guest sees nothing outside the job directory.
    fs::copy(&binary, programs.join("landfast")).map_err(Failure::io("copying", &binary))?;
    for program in extra {
        let name = program.file_name().unwrap_or_default();
        fs::copy(program, programs.join(name)).map_err(Failure::io("copying", program))?;
    }
    Ok(())
}

/// QEMU from the cache.
pub(super) fn emulator(cache: &Cache) -> Step {
    let tools = cache.tools();
    program_of(&tools, "usr/bin/qemu-system-x86_64")
        .arg("-L")
        .arg(tools.join("usr/share/seabios"))
        .arg("-L")
        .arg(tools.join("usr/share/qemu"))
}

fn arguments(cache: &Cache, setup: &Setup, job: &Path) -> Result<Vec<String>, Failure> {
    let memory = setup.memory_mib.unwrap_or(MEMORY_MIB);
    let mut args: Vec<String> = PLAIN.iter().map(|word| (*word).to_owned()).collect();
    let mut push = |name: &str, value: String| args.extend([name.to_owned(), value]);
    push("-kernel", cache.image().display().to_string());
    push("-initrd", cache.initramfs().display().to_string());
    let host = if setup.share.is_some() { " landfast.host" } else { "" };
    push("-append", format!("{KERNEL_ARGUMENTS}{host}"));
    let disk = cache.disk();
    push(
        "-drive",
        format!("file={},format=raw,if=none,id=disk,snapshot=on,cache=unsafe", disk.display()),
    );
    push("-device", "virtio-blk-pci,drive=disk".into());
    if let Some(second) = &setup.second_disk {
        let file = second.display();
        push("-drive", format!("file={file},format=raw,if=none,id=second,readonly=on"));
        push("-device", "virtio-blk-pci,drive=second".into());
    }
    push("-serial", format!("file:{}", job.join("console.log").display()));
    let tests = workspace::root().join("tests/guest");
    push("-virtfs", shared(job, "job", ""));
    push("-virtfs", shared(&tests, "tests", ",readonly=on"));
    if let Some(share) = &setup.share {
        push("-virtfs", shared(share, "host", ""));
    }
    let forwards = setup.forwarded.iter().fold(String::new(), |text, port| {
        text + &format!(",hostfwd=tcp:127.0.0.1:{port}-10.0.2.15:{port}")
    });
    push("-netdev", format!("user,id=net,ipv6=off{forwards}"));
    push("-device", "virtio-net-pci,netdev=net,romfile=".into());
    if let Some(capture) = &setup.capture {
        push("-object", format!("filter-dump,id=dump,netdev=net,file={}", capture.display()));
    }
    match &setup.persistent_memory {
        None => {
            push("-machine", "q35".into());
            push("-m", memory.to_string());
        }
        Some(file) => {
            let bytes = fs::metadata(file).map_err(Failure::io("reading", file))?.len();
            let most = u64::from(memory) + (bytes >> 20) + 1024;
            push("-machine", "q35,nvdimm=on".into());
            push("-m", format!("{memory},slots=2,maxmem={most}M"));
            let path = file.display();
            let object = format!("memory-backend-file,id=pm,share=on,mem-path={path},size={bytes}");
            push("-object", object);
            push("-device", "nvdimm,id=nv,memdev=pm".into());
        }
    }
    Ok(args)
}

fn shared(directory: &Path, tag: &str, extra: &str) -> String {
    let path = directory.display();
    format!("local,path={path},mount_tag={tag},security_model=none,multidevs=remap{extra}")
}

/// Enough for cifs.ko with its buffers and a client that measures.
const MEMORY_MIB: u32 = 640;
/// One processor: the machine is shared, and TCG gains little from a second. Output is a file, as
/// QEMU closes a terminal's port to the guest when our standard input ends.
const PLAIN: &[&str] = &[
    "-accel",
    "tcg",
    "-cpu",
    "max",
    "-smp",
    "1",
    "-no-reboot",
    "-nodefaults",
    "-display",
    "none",
    "-no-user-config",
    "-device",
    "virtio-rng-pci",
    "-device",
    "virtio-serial-pci",
    "-chardev",
    "file,id=output,path=/dev/stdout",
    "-device",
    "virtserialport,chardev=output,name=output",
];
/// Nothing that slows an emulated processor down for the sake of a real one.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet loglevel=4 mitigations=off nokaslr no_timer_check \
    tsc=reliable audit=0 random.trust_cpu=on panic=-1 net.ifnames=0 nowatchdog";
