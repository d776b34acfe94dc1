//! The kernel's file systems on loop devices of `landfast volume serve --fuse --loop`: ext4 and XFS are made, filled with a
//! tree, checked, and read after SIGKILL of the server; fio verifies what it writes to the file itself; on request the file
//! system exerciser runs on each and fio writes to the loop device.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::failure::{Failure, Outcome, Tally};
use crate::guest;
use crate::landfast::announced;
use crate::nbd_server::Volume;
use crate::process::{Running, Step};
use crate::workspace;

/// Runs all of it against a volume of each kind.
pub(crate) fn run(operations: u32) -> Outcome {
    let mut tally = Tally::default();
    let has = |path: &str| Path::new(path).exists();
    if !workspace::is_root() || !has("/dev/fuse") || !has("/dev/loop-control") {
        let needed = "loop devices: root, /dev/fuse and /dev/loop-control are needed";
        tally.skipped.push(needed.to_owned());
        return Ok(tally);
    }
    let (memory, disk) = (workspace::scratch_on_tmpfs()?, workspace::scratch()?);
    for (name, sector, directory) in [
        ("block mode, sectors of 4096", "4096", memory.path()),
        ("block mode, sectors of 512", "512", memory.path()),
        ("file mode on a disk", "4096", disk.path()),
    ] {
        println!("  {name}");
        let path = directory.join(format!("volume-{sector}"));
        let volume = Volume::create(&path, SIZE, &["--sector", sector])?;
        let mut count = |what: &str, result: Result<(), Failure>| {
            let result = result.map_err(|failure| failure.to_string());
            tally.count(&format!("{name}: {what}"), result);
        };
        let site = Site::new(&path)?;
        count("fio verifies random writes to the file", site.verified());
        if operations > 0 {
            count("fio verifies random writes to the loop device", site.device_verified());
        }
        for system in [&EXT4, &XFS] {
            if operations > 0 {
                let what = format!("{}: fsx, {operations} operations", system.name);
                count(&what, site.exercised(system, operations));
            }
            count(&format!("{}: filled, compared, checked", system.name), site.filled(system));
            count(&format!("{}: SIGKILL loses nothing synced", system.name), site.killed(system));
        }
        count("a second server is refused", site.refused());
        tally.count(&format!("{name}: whole after all that"), volume.check());
    }
    Ok(tally)
}

/// A file system of the kernel.
struct System {
    name: &'static str,
    make: &'static [&'static str],
    check: &'static [&'static str],
}

const EXT4: System =
    System { name: "ext4", make: &["mkfs.ext4", "-q", "-F"], check: &["e2fsck", "-f", "-n"] };
const XFS: System =
    System { name: "XFS", make: &["mkfs.xfs", "-q", "-f"], check: &["xfs_repair", "-n"] };

/// A volume and where it and what is on it are mounted.
struct Site {
    volume: PathBuf,
    files: PathBuf,
    top: PathBuf,
}

impl Site {
    fn new(volume: &Path) -> Result<Self, Failure> {
        let (files, top) = (volume.with_extension("files"), volume.with_extension("top"));
        for directory in [&files, &top] {
            fs::create_dir_all(directory).map_err(Failure::io("creating", directory))?;
        }
        Ok(Self { volume: volume.to_owned(), files, top })
    }

    fn verified(&self) -> Result<(), Failure> {
        let mut served = Served::start(self)?;
        let file = format!("--filename={}", self.files.join("disk").display());
        let job = [
            "--name=verify",
            "--ioengine=psync",
            "--rw=randwrite",
            "--bsrange=512-64k",
            "--blockalign=512",
            "--size=24M",
            "--fsync=64",
            "--verify=crc32c",
            "--minimal",
        ];
        // fio leaves a file of its own where it runs.
        let home = self.volume.parent().unwrap_or_else(|| Path::new("."));
        Step::new("fio").args(job).arg(file).dir(home).quiet().output()?;
        served.stop()
    }

    fn device_verified(&self) -> Result<(), Failure> {
        let mut served = Served::start(self)?;
        let device = format!("--filename={}", served.device.display());
        let job = [
            "--name=verify",
            "--ioengine=psync",
            "--direct=1",
            "--rw=randwrite",
            "--bsrange=4k-128k",
            "--blockalign=4k",
            "--size=64M",
            "--fdatasync=64",
            "--verify=crc32c",
            "--minimal",
        ];
        let home = self.volume.parent().unwrap_or_else(|| Path::new("."));
        Step::new("fio").args(job).arg(device).dir(home).quiet().output()?;
        served.stop()
    }

    // What a file can be made to do, at random, by one who knows what must come of it.
    fn exercised(&self, system: &System, operations: u32) -> Result<(), Failure> {
        let program = guest::fsx()?;
        let mut served = Served::start(self)?;
        self.make(system, &served)?;
        let mounted = Mount::new(&served.device, &self.top)?;
        let settings = self.volume.with_extension("fsx.toml");
        let text = "[opsize]\nmax = 65536\n[weights]\nfsync = 0.2\ntruncate = 1\npunch_hole = 1\n\
                    read = 2\nwrite = 2\nmapread = 1\nmapwrite = 1\n";
        fs::write(&settings, text).map_err(Failure::io("writing", &settings))?;
        let step = Step::new(program).args(["-N", &operations.to_string(), "-S", "1", "-P"]);
        let step = step.arg(self.volume.parent().unwrap_or_else(|| Path::new(".")));
        step.arg("-f").arg(&settings).arg(self.top.join("exercised")).quiet().output()?;
        drop(mounted);
        Self::check(system, &served)?;
        served.stop()
    }

    fn filled(&self, system: &System) -> Result<(), Failure> {
        let mut served = Served::start(self)?;
        self.make(system, &served)?;
        let mounted = Mount::new(&served.device, &self.top)?;
        let sources = workspace::root().join("crates");
        let copy = Step::new("cp").arg("-a").arg(&sources).arg(&self.top);
        copy.quiet().output()?;
        Step::new("rm").arg("-r").arg(self.top.join("crates/smb")).output()?;
        drop(mounted);
        Self::check(system, &served)?;
        served.stop()?;
        // From the medium: another server, another mount.
        let mut served = Served::start(self)?;
        let mounted = Mount::new(&served.device, &self.top)?;
        let compared = Step::new("diff").args(["-r", "--exclude=smb"]).arg(&sources);
        compared.arg(self.top.join("crates")).quiet().output()?;
        drop(mounted);
        served.stop()
    }

    // A file that fsync has acknowledged is there after the server was killed, in the middle of other writes.
    fn killed(&self, system: &System) -> Result<(), Failure> {
        let mut served = Served::start(self)?;
        self.make(system, &served)?;
        let mounted = Mount::new(&served.device, &self.top)?;
        let script = "i=0; while :; do i=$((i+1)); printf '%s\n' $i | \
                      dd of=\"$1/f$i\" conv=fsync status=none 2>/dev/null || exit 0; echo $i; done";
        let log = self.volume.with_extension("acknowledged");
        let mut writer =
            Step::new("sh").args(["-c", script, "sh"]).arg(&self.top).serve(&log, false)?;
        thread::sleep(Duration::from_millis(1_500));
        served.running.kill();
        thread::sleep(Duration::from_millis(300));
        writer.kill();
        mounted.abandon()?;
        let acknowledged = fs::read_to_string(&log).map_err(Failure::io("reading", &log))?;
        let acknowledged: Vec<&str> =
            acknowledged.lines().filter(|line| !line.is_empty()).collect();
        if acknowledged.is_empty() {
            return Err(Failure::new("nothing was acknowledged before the server was killed"));
        }
        let mut served = Served::start(self)?;
        // The journal is played back by the mount.
        let mounted = Mount::new(&served.device, &self.top)?;
        for name in &acknowledged {
            let path = self.top.join(format!("f{name}"));
            let found = fs::read_to_string(&path).map_err(Failure::io("reading", &path))?;
            if found.trim() != *name {
                return Err(Failure::new(format!("{} holds {found:?}", path.display())));
            }
        }
        drop(mounted);
        println!("    {} files synced before SIGKILL, all there", acknowledged.len());
        Self::check(system, &served)?;
        served.stop()
    }

    fn refused(&self) -> Result<(), Failure> {
        let mut served = Served::start(self)?;
        let second = Step::new(workspace::landfast()?).args(["volume", "serve"]).arg(&self.volume);
        let second = second.arg("--fuse").arg(&self.top).arg("--emulate-persistence").finish()?;
        if second.status.success() || !second.stderr.contains("in use") {
            return Err(Failure::new(format!("the second said {:?}", second.stderr)));
        }
        served.stop()
    }

    fn make(&self, system: &System, served: &Served) -> Result<(), Failure> {
        let [program, args @ ..] = system.make else { return Ok(()) };
        Step::new(program).args(args).arg(&served.device).quiet().output().map(drop)
    }

    fn check(system: &System, served: &Served) -> Result<(), Failure> {
        let [program, args @ ..] = system.check else { return Ok(()) };
        Step::new(program).args(args).arg(&served.device).quiet().output().map(drop)
    }
}

/// A server with a loop device.
struct Served {
    running: Running,
    device: PathBuf,
}

impl Served {
    fn start(site: &Site) -> Result<Self, Failure> {
        let log = site.volume.with_extension("log");
        let step = Step::new(workspace::landfast()?).args(["volume", "serve"]);
        let step = step.arg(format!("disk={}", site.volume.display())).arg("--fuse");
        let step = step.arg(&site.files).args(["--loop", "--emulate-persistence"]);
        let mut running = step.serve(&log, true)?;
        let device = announced(&mut running, &log, |line| {
            let devices = line.strip_prefix("serving ")?.split(", ");
            devices.map(PathBuf::from).find(|path| path.starts_with("/dev"))
        })?;
        Ok(Self { running, device })
    }

    fn stop(&mut self) -> Result<(), Failure> {
        let status = self.running.stop(Duration::from_secs(20))?;
        if status.success() { Ok(()) } else { Err(Failure::new(format!("it ended with {status}"))) }
    }
}

/// A mounted file system, unmounted when this is dropped.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    fn new(device: &Path, at: &'a Path) -> Result<Self, Failure> {
        Step::new("mount").arg(device).arg(at).quiet().output()?;
        Ok(Self(at))
    }

    // Its device is gone.
    fn abandon(self) -> Result<(), Failure> {
        Step::new("umount").arg("-l").arg(self.0).quiet().output()?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Step::new("umount").arg(self.0).quiet().output();
    }
}

/// Bytes of a volume's file: XFS wants 300 MiB at least.
const SIZE: &str = "400M";
