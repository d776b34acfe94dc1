//! The engine for fio: built against the source of the installed fio, which Debian's archive has, and run against a server.
//!
//! fio is under GPL-2.0, and so is the engine (contrib/fio). Its headers are fetched here and never kept in the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::{c, install};
use crate::failure::{Failure, Outcome, Tally};
use crate::landfast::{Landfast, bench, number};
use crate::peer::{PASSWORD, SHARE, USER};
use crate::process::{Step, tail};
use crate::workspace;

/// Options of `cargo xtask fio-engine`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Compare the engine with `landfast bench`, in rounds of both by turns
    #[arg(long)]
    compare: bool,
    /// Rounds of the comparison
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds of each run
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Build against this source tree of fio, configured, instead of Debian's
    #[arg(long)]
    source: Option<PathBuf>,
}

/// Builds the engine, verifies what it writes, and compares where asked.
pub(crate) fn run(options: &Options) -> Outcome {
    let engine = build(options.source.as_deref())?;
    println!("  {}", engine.display());
    let files = workspace::scratch_on_tmpfs()?;
    let server = Landfast::start(files.path(), &["--emulate-persistence"])?;
    let mut tally = Tally::default();
    for (name, arguments) in VERIFIED {
        let ran = fio(&engine, &server, name, arguments).map(drop);
        tally.count(name, ran.map_err(|failure| failure.to_string()));
    }
    if options.compare {
        compare(options, &engine, &server)?;
    }
    tally.note = "fio verified what it wrote".into();
    Ok(tally)
}

/// The shared library.
fn build(source: Option<&Path>) -> Result<PathBuf, Failure> {
    let prefix = c::shared_prefix()?;
    let source = match source {
        Some(source) => source.to_owned(),
        None => fetched()?,
    };
    let flags = Step::new("pkg-config")
        .args(["--cflags", "--libs", "landfast"])
        .env("PKG_CONFIG_PATH", install::pkg_config(&prefix).display().to_string())
        .output()?;
    let directory = workspace::target().join("fio-engine");
    fs::create_dir_all(&directory).map_err(Failure::io("creating", &directory))?;
    let engine = directory.join("liblandfast_fio.so");
    Step::new("cc")
        .args(["-std=gnu11", "-Wall", "-O2", "-g", "-D_GNU_SOURCE", "-shared", "-fPIC", "-include"])
        .arg(source.join("config-host.h"))
        .arg(format!("-I{}", source.display()))
        .arg(workspace::root().join(ENGINE))
        .args(flags.split_whitespace())
        .arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()))
        .arg("-o")
        .arg(&engine)
        .run()?;
    Ok(engine)
}

/// The source of the installed fio, from Debian's archive by apt, with lists of its own.
fn fetched() -> Result<PathBuf, Failure> {
    let version = Step::new("dpkg-query").args(["-W", "-f", "${Version}", "fio"]).quiet().output();
    let version = version.map_err(|failure| failure.remedy("apt-get install fio"))?;
    let kept = workspace::kept("fio-source")?;
    let source = kept.join(version.trim().replace('/', "_"));
    if source.join("config-host.h").exists() {
        return Ok(source);
    }
    let parts = kept.join("parts");
    let lists = kept.join("lists");
    for directory in [&parts, &lists.join("partial")] {
        fs::create_dir_all(directory).map_err(Failure::io("creating", directory))?;
    }
    source_lists(&parts)?;
    let apt = |arguments: &[&str]| {
        Step::new("apt-get")
            .args([
                "--quiet",
                "-o",
                "Dir::Etc::sourcelist=/dev/null",
                "-o",
                "APT::Sandbox::User=root",
            ])
            .args(["-o", &format!("Dir::Etc::sourceparts={}", parts.display())])
            .args(["-o", &format!("Dir::State::lists={}", lists.display())])
            .args(arguments)
            .dir(&kept)
            .limit(Duration::from_secs(300))
            .run()
    };
    apt(&["update"])?;
    apt(&["--download-only", "source", &format!("fio={}", version.trim())])?;
    let part = kept.join("part");
    let _ = fs::remove_dir_all(&part);
    let description = found(&kept, "dsc")?;
    Step::new("dpkg-source").arg("--no-check").arg("-x").arg(description).arg(&part).run()?;
    Step::new("./configure").dir(&part).quiet().limit(Duration::from_secs(120)).output()?;
    let _ = fs::remove_dir_all(&source);
    fs::rename(&part, &source).map_err(Failure::io("renaming", &part))?;
    Ok(source)
}

/// The machine's own list of Debian's archive, asking for sources.
fn source_lists(parts: &Path) -> Result<(), Failure> {
    let list = Path::new("/etc/apt/sources.list.d/debian.sources");
    let text = fs::read_to_string(list).map_err(|error| {
        Failure::io("reading", list)(error)
            .remedy("give a configured source tree of fio: --source DIRECTORY")
    })?;
    let sources = text.replace("Types: deb\n", "Types: deb-src\n");
    let to = parts.join("debian.sources");
    fs::write(&to, sources).map_err(Failure::io("writing", &to))
}

fn found(directory: &Path, extension: &str) -> Result<PathBuf, Failure> {
    let entries = fs::read_dir(directory).map_err(Failure::io("listing", directory))?;
    let mut paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    paths
        .find(|path| path.extension().is_some_and(|found| found == extension))
        .ok_or_else(|| Failure::new(format!("apt-get brought no .{extension} file")))
}

/// One run of fio: its JSON.
fn fio(
    engine: &Path,
    server: &Landfast,
    name: &str,
    arguments: &[&str],
) -> Result<serde_json::Value, Failure> {
    let finished = Step::new("fio")
        .arg(format!("--name={name}"))
        .arg(format!("--ioengine=external:{}", engine.display()))
        .arg(format!("--url=smb://{USER}@{}/{SHARE}", server.address.smb))
        .args(["--emulated=1", "--output-format=json"])
        .args(arguments)
        .secret_env("LANDFAST_PASSWORD", PASSWORD)
        .limit(Duration::from_secs(120))
        .finish()?;
    let evidence = format!("{}{}", tail(&finished.stdout), tail(&finished.stderr));
    let json = finished.stdout.find('{').map(|start| &finished.stdout[start..]);
    let report = json.and_then(|text| serde_json::from_str(text).ok());
    match report.filter(|_| finished.status.success()) {
        Some(report) => Ok(report),
        None => Err(Failure::new(format!("fio {name}: {}{evidence}", finished.status))),
    }
}

fn compare(options: &Options, engine: &Path, server: &Landfast) -> Result<(), Failure> {
    let seconds = options.seconds.to_string();
    let url = format!("smb://{USER}:{PASSWORD}@{}/{SHARE}", server.address.smb);
    for (name, mode, write_percent, depth) in COMPARED {
        let mut ratios = Vec::new();
        for _ in 0..options.rounds {
            let depth = depth.to_string();
            let wanted = format!("--iodepth={depth}");
            let runtime = format!("--runtime={seconds}");
            let rw = format!("--rw={mode}");
            let report = fio(
                engine,
                server,
                name,
                &[
                    &rw,
                    "--bs=4k",
                    "--size=64m",
                    &wanted,
                    &runtime,
                    "--time_based=1",
                    "--sync=dsync",
                    "--network=1",
                ],
            )?;
            let kind = if mode == "randread" { "read" } else { "write" };
            let ours = fio_number(&report, kind)?;
            let arguments =
                ["--mode", "push", "-o", &depth, "-d", &seconds, "-r", "-w", write_percent];
            let theirs = number(&bench(&url, &arguments)?, &["modes", "push", "iops"])?;
            println!("  {name}: fio {ours:.0} operations/s, landfast bench {theirs:.0}");
            ratios.push(ours / theirs);
        }
        ratios.sort_by(f64::total_cmp);
        let (least, median, most) = (ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
        println!("  {name}: fio / bench {median:.3} ({least:.3} to {most:.3})");
    }
    Ok(())
}

fn fio_number(report: &serde_json::Value, kind: &str) -> Result<f64, Failure> {
    let job = report.get("jobs").and_then(|jobs| jobs.get(0));
    let iops = job.and_then(|job| job.get(kind)).and_then(|found| found.get("iops"));
    iops.and_then(serde_json::Value::as_f64)
        .ok_or_else(|| Failure::new(format!("fio's report has no iops of {kind}")))
}

const ENGINE: &str = "contrib/fio/landfast_fio.c";
/// What fio writes and reads back, with its own checksums.
const VERIFIED: [(&str, &[&str]); 4] = [
    (
        "posted-writes-a-commit-each-8",
        &[
            "--filename=a",
            "--rw=randwrite",
            "--bs=4k",
            "--size=4m",
            "--iodepth=16",
            "--fsync=8",
            "--verify=crc32c",
        ],
    ),
    (
        "writes-with-their-commits",
        &[
            "--rw=randwrite",
            "--bs=512",
            "--size=1m",
            "--iodepth=32",
            "--sync=dsync",
            "--verify=crc32c",
        ],
    ),
    (
        "large-blocks",
        &[
            "--filename=a",
            "--rw=write",
            "--bs=1m",
            "--size=16m",
            "--iodepth=4",
            "--end_fsync=1",
            "--verify=md5",
        ],
    ),
    (
        "two-jobs-with-a-file-each",
        &[
            "--rw=randrw",
            "--bs=4k",
            "--size=4m",
            "--iodepth=8",
            "--numjobs=2",
            "--sync=dsync",
            "--number_ios=500",
        ],
    ),
];
/// What is compared: the name, fio's mode, the bench's percentage of writes, the depth.
const COMPARED: [(&str, &str, &str, u32); 4] = [
    ("write-commit-1", "randwrite", "100", 1),
    ("write-commit-16", "randwrite", "100", 16),
    ("read-1", "randread", "0", 1),
    ("read-16", "randread", "0", 16),
];
