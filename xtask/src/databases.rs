//! Databases on the tail of a log: several processes and kills, with a check of their history; and what a commit costs.
//!
//! The work is done by `tests/databases`, in the system's Python, whose SQLite takes extensions.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::process::{Step, tail};
use crate::workspace;

/// Options of `cargo xtask databases`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Seconds of each storm of conflicting transactions; the long form is 600
    #[arg(long, default_value_t = 20)]
    pub(crate) seconds: u32,
    /// Measure as well, and write docs/databases.svg
    #[arg(long)]
    pub(crate) bench: bool,
    /// Rounds of the measurement
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: u32,
}

/// Runs the storms, and the measurement where asked.
pub(crate) fn run(options: &Options) -> Outcome {
    let server = workspace::landfast()?;
    let extension = extension()?;
    let scratch = workspace::scratch()?;
    let mut tally = Tally::default();
    let demo = Step::new(&server)
        .args(["demo", "log", "-d", "1", "--kills", "2", "--directory"])
        .arg(scratch.path())
        .limit(Duration::from_secs(60))
        .tee()?;
    tally.count("landfast demo log", judged(&demo));
    for (place, kills_server) in STORMS {
        let mut storm = Step::new(PYTHON)
            .arg(script("sqlite_check.py"))
            .arg(&extension)
            .args(["storm", "--place", place, "--seconds", &options.seconds.to_string()])
            .arg("--directory")
            .arg(scratch.path())
            .arg("--server")
            .arg(&server)
            .limit(Duration::from_secs(120) + Duration::from_secs(2) * options.seconds);
        if kills_server {
            storm = storm.arg("--kill-server");
        }
        tally.count(place, judged(&storm.tee()?));
    }
    if options.bench {
        tally.count("bench", bench(options, &server, &extension, scratch.path())?);
    }
    Ok(tally)
}

fn bench(
    options: &Options,
    server: &Path,
    extension: &Path,
    disk: &Path,
) -> Result<Result<(), String>, Failure> {
    workspace::build_of(["--example", "redb_updates"]).run()?;
    let measured = Step::new(PYTHON)
        .arg(script("updates.py"))
        .arg("--so")
        .arg(extension)
        .arg("--server")
        .arg(server)
        .arg("--redb")
        .arg(workspace::target().join("release/examples/redb_updates"))
        .arg("--directory")
        .arg(disk)
        .args(["--rounds", &options.rounds.to_string(), "--out"])
        .arg(workspace::root().join("docs"))
        .limit(Duration::from_secs(120) + Duration::from_secs(40) * options.rounds)
        .tee()?;
    Ok(judged(&measured))
}

/// PostgreSQL with `pg_wal` on a file system of ours: at `mount`, or on a volume that is made for it (as root).
pub(crate) fn postgres(mount: Option<&Path>) -> Outcome {
    let scratch = workspace::scratch()?;
    let mut tally = Tally::default();
    let finished = match mount {
        Some(mount) => check_postgres(mount, scratch.path())?,
        None => {
            let server = workspace::landfast()?;
            let finished = Step::new("sh")
                .arg(script("on_loop.sh"))
                .arg(&server)
                .arg(scratch.path())
                .arg(PYTHON)
                .arg(script("postgres_check.py"))
                .limit(POSTGRES_LIMIT)
                .tee()?;
            if finished.status.code() == Some(SKIP) {
                tally.skipped.push("PostgreSQL: no loop devices or no right to mount here".into());
                return Ok(tally);
            }
            finished
        }
    };
    tally.count("PostgreSQL with pg_wal here", judged(&finished));
    Ok(tally)
}

fn check_postgres(mount: &Path, disk: &Path) -> Result<crate::process::Finished, Failure> {
    Step::new(PYTHON)
        .arg(script("postgres_check.py"))
        .arg(mount)
        .arg("--directory")
        .arg(disk)
        .limit(POSTGRES_LIMIT)
        .tee()
}

fn judged(finished: &crate::process::Finished) -> Result<(), String> {
    match finished.status.success() {
        true => Ok(()),
        false => Err(format!("{}{}", finished.status, tail(&finished.stdout))),
    }
}

fn script(name: &str) -> PathBuf {
    workspace::root().join("tests/databases").join(name)
}

/// The extension, built as it is shipped.
fn extension() -> Result<PathBuf, Failure> {
    Ok(workspace::shipped()?.join("liblandfast_sqlite.so"))
}

/// Where the database is, and whether the server is killed too.
const STORMS: [(&str, bool); 3] = [("local", false), ("share", true), ("share-wal", true)];
/// The system's: others are often built without extensions of SQLite.
const PYTHON: &str = "/usr/bin/python3";
const POSTGRES_LIMIT: Duration = Duration::from_secs(300);
/// What on_loop.sh ends with where it cannot work.
const SKIP: i32 = 77;
