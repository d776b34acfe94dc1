//! Programs that use files as programs do, on the kernel's mount of our server: a source tree is
//! unpacked, built and run; fsx does at random what a file can be made to do, and knows what must come of it;
//! a mount with the SMB3 POSIX extensions is asked for what other mounts cannot do.
//!
//! Each goes over TCP and over SMB Direct on siw, each wire with a guest and a server of its own.

use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::failure::{Failure, Outcome, Tally};
use crate::guest::cache::Cache;
use crate::guest::cifs::Wire;
use crate::guest::machine::{Guest, Setup};
use crate::interop::report;
use crate::landfast::Landfast;
use crate::peer::{PASSWORD, SHARE, USER};
use crate::process::{Step, tail};
use crate::workspace;

/// Options of `cargo xtask guest user`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Only this; may be given several times
    #[arg(long)]
    program: Vec<Program>,
    /// Only over this; may be given several times
    #[arg(long)]
    wire: Vec<Wire>,
    /// Operations of each run of fsx
    #[arg(long, default_value_t = 100_000)]
    operations: u32,
    /// What fsx draws its operations from
    #[arg(long, default_value_t = 1)]
    seed: u32,
}

/// What is run on the mount.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Program {
    /// The build of a source tree.
    Build,
    /// The file system exerciser, with mmap, through the client's cache.
    FsxMapped,
    /// The file system exerciser without mmap and cache: each operation on the wire.
    FsxPlain,
    /// Modes, owners, links and names, mounted with the POSIX extensions.
    Posix,
}

/// Each program over each wire.
pub(crate) fn run(options: &Options) -> Outcome {
    let mut tally = Tally::default();
    for program in chosen(&options.program) {
        for wire in chosen(&options.wire) {
            tally.add(match program {
                Program::Build => build(wire)?,
                Program::FsxMapped => fsx(wire, "mapped", options)?,
                Program::FsxPlain => fsx(wire, "plain", options)?,
                Program::Posix => posix(wire)?,
            });
        }
    }
    Ok(tally)
}

fn chosen<T: ValueEnum + Copy + Eq>(asked: &[T]) -> Vec<T> {
    let all = T::value_variants().iter().copied();
    all.filter(|one| asked.is_empty() || asked.contains(one)).collect()
}

fn build(wire: Wire) -> Outcome {
    let share = workspace::scratch()?;
    let second_disk = Some(Cache::ready()?.compiler()?);
    let setup = Setup { second_disk, ..Setup::default() };
    let mut tally = on_a_share(share.path(), wire, "build.sh", "", &setup, BUILD_LIMIT)?;
    tally.count("the files as they lie here", lies_here(share.path()));
    Ok(tally)
}

/// What the guest built on its own disk, sum by sum, is what lies in the share.
fn lies_here(share: &Path) -> Result<(), String> {
    let tree = share.join("build");
    let checked = Step::new("sha256sum").args(["--quiet", "--strict", "-c", "../build.sums"]);
    let checked = checked.dir(&tree).quiet().finish().map_err(|failure| failure.to_string())?;
    if !checked.status.success() {
        return Err(tail(&checked.stderr));
    }
    let listed = fs::read_to_string(share.join("build.sums")).map_err(|error| error.to_string())?;
    let found = Step::new("find").args([".", "-type", "f"]).dir(&tree).quiet().output();
    let found = found.map_err(|failure| failure.to_string())?;
    match (listed.lines().count(), found.lines().count()) {
        (listed, found) if listed == found && listed > FILES_MIN => Ok(()),
        (listed, found) => Err(format!("{found} files here, {listed} there")),
    }
}

fn fsx(wire: Wire, form: &str, options: &Options) -> Outcome {
    let (operations, seed) = (options.operations, options.seed);
    let share = workspace::scratch()?;
    let programs = vec![Cache::ready()?.fsx()?];
    let setup = Setup { programs, ..Setup::default() };
    let limit = FSX_LIMIT + FSX_OPERATION * operations;
    let words = format!("{form} {operations} {seed}");
    let tally = on_a_share(share.path(), wire, "fsx.sh", &words, &setup, limit)?;
    if let Ok(last) = fs::read_to_string(share.path().join("fsx.log")) {
        println!("{last}");
    }
    Ok(tally)
}

fn posix(wire: Wire) -> Outcome {
    let share = workspace::scratch()?;
    let volume = rustix::fs::statvfs(share.path())
        .map_err(|error| Failure::new(format!("the share's file system: {error}")))?;
    let said = share.path().join(".volume");
    fs::write(&said, format!("{} {}\n", volume.f_blocks, volume.f_frsize))
        .map_err(Failure::io("writing", &said))?;
    let server = if rustix::process::geteuid().is_root() { "root" } else { "other" };
    let setup = Setup::default();
    let mut tally = on_a_share(share.path(), wire, "posix.sh", server, &setup, POSIX_LIMIT)?;
    for name in ["a:b", "trailing.", "*", "Name", "name", "space "] {
        let there = fs::read_to_string(share.path().join("plain").join(name));
        let equal = there.is_ok_and(|text| text.trim_end_matches('\n') == name);
        let found = if equal { Ok(()) } else { Err("not there, or another's".to_owned()) };
        tally.count(&format!("{name:?} as it lies here"), found);
    }
    Ok(tally)
}

/// Runs a script of tests/guest that mounts `share` from a server of its own.
fn on_a_share(
    share: &Path,
    wire: Wire,
    script: &str,
    words: &str,
    setup: &Setup,
    limit: Duration,
) -> Outcome {
    let server = Landfast::start(share, &["--signing", "when-asked"])?;
    let port = match wire {
        Wire::Tcp => server.address.smb.port(),
        Wire::Rdma => server.address.rdma.map_or(0, |rdma| rdma.port()),
    };
    let wire = wire.word();
    let command = format!("bash /tests/{script} {wire} {port} {SHARE} {USER} {PASSWORD} {words}");
    let name = format!("user-{wire}");
    let guest = Guest::start(&name, setup, &command, limit)?;
    let ended = guest.finish();
    drop(server);
    let mut tally = report::read(&ended.output);
    tally.count(
        "the guest's script",
        ended.succeeded(script).map_err(|failure| failure.to_string()),
    );
    Ok(tally)
}

/// Fewer would not be the tree.
const FILES_MIN: usize = 90;
const BUILD_LIMIT: Duration = Duration::from_secs(1800);
const POSIX_LIMIT: Duration = Duration::from_secs(600);
/// Boot, mounts, and the file read back.
const FSX_LIMIT: Duration = Duration::from_secs(300);
/// On a machine that does other things too.
const FSX_OPERATION: Duration = Duration::from_millis(40);
