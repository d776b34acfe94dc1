//! A siege: hostile clients hold as much of the server as they can get, an honest client works among them.
//!
//! `crates/server/examples/siege.rs` has both kinds of clients. It goes through the lines of the ledger
//! (docs/limits.md) that single clients can reach; what is judged is that the honest client is served in each of them,
//! and that the server's memory stays bounded. How long the honest client waits is shown, and not judged: that is
//! the machine's too.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::landfast::Landfast;
use crate::peer::{GUESTS, PASSWORD, SHARE, USER, for_guests};
use crate::process::{Step, tail};
use crate::workspace;

/// Options of `cargo xtask siege`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How long the honest client works in each line, in seconds.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) seconds: f64,
    /// A second for each line.
    #[arg(long)]
    pub(crate) short: bool,
    /// How much the server's resident memory may grow by, in MiB.
    #[arg(long, default_value_t = 768)]
    pub(crate) growth_max_mib: u64,
}

/// Lays siege to a server of its own.
pub(crate) fn run(options: &Options) -> Outcome {
    let program = program()?;
    let scratch = workspace::scratch()?;
    let share = scratch.path().join("share");
    fs::create_dir(&share).map_err(Failure::io("creating", &share))?;
    let guests = for_guests(&share);
    let extra: Vec<&str> =
        guests.iter().map(String::as_str).chain(["--signing", "when-asked"]).collect();
    let server = Landfast::start(&share, &extra)?;
    let seconds = if options.short { 1.0 } else { options.seconds };
    let finished = Step::new(program)
        .args([&server.address.smb.to_string(), SHARE, GUESTS, &format!("{USER}:{PASSWORD}")])
        .args([&server.running.id().to_string(), &seconds.to_string()])
        .limit(Duration::from_secs(300))
        .tee()?;
    let mut tally = Tally::default();
    let served = match finished.status.success() {
        true => Ok(()),
        false => Err(tail(&finished.stderr)),
    };
    tally.count("an honest client is served in each line", served);
    let mut before = 0;
    let mut slowest = 0;
    for line in finished.stdout.lines() {
        let Some(resident) = number(line, "rss_kib=") else { continue };
        if line.starts_with("begin ") {
            before = resident;
            continue;
        }
        let name = line.split_whitespace().nth(1).unwrap_or_default();
        let grown = resident.saturating_sub(before) / 1024;
        let bounded = match grown <= options.growth_max_mib {
            true => Ok(()),
            false => Err(format!("{name}: {grown} MiB, {} at most", options.growth_max_mib)),
        };
        tally.count("memory stays bounded", bounded);
        slowest = slowest.max(number(line, "honest_us=").unwrap_or(0));
    }
    tally.note = format!("the honest client's p99 was {slowest} µs at most");
    Ok(tally)
}

fn number(line: &str, name: &str) -> Option<u64> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name))?.parse().ok()
}

fn program() -> Result<PathBuf, Failure> {
    let build = ["build", "--release", "--package", "landfast-server", "--example", "siege"];
    Step::new("cargo").args(build).dir(&workspace::root()).builds().run()?;
    Ok(workspace::target().join("release/examples/siege"))
}
