//! A siege: hostile clients hold as much of the server as they can get, an honest client works among them.
//!
//! `crates/server/examples/siege` has both kinds of clients. It goes through the lines of the ledger
//! (docs/limits.md) that single clients can reach. Judged is that each limit is reached and none passed, that the honest
//! client is served in each line, that the server's memory stays bounded and that nothing is left of a line behind it.
//! How long the honest client waits is shown, and not judged: that is the machine's too.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::flood::raise_descriptor_limit;
use crate::landfast::Landfast;
use crate::process::{Step, tail};
use crate::workspace;

/// Options of `cargo xtask siege`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// How long the honest client works in each line, in seconds.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) seconds: f64,
    /// A quarter of a second for each line.
    #[arg(long)]
    pub(crate) short: bool,
    /// How much the server's resident memory may grow by, in MiB.
    #[arg(long, default_value_t = 512)]
    pub(crate) growth_max_mib: u64,
}

impl Options {
    /// The form for `cargo xtask test`.
    pub(crate) fn short() -> Self {
        Self { seconds: 0.25, short: true, growth_max_mib: 512 }
    }
}

/// Lays siege to a server of its own.
pub(crate) fn run(options: &Options) -> Outcome {
    let program = program()?;
    raise_descriptor_limit(DESCRIPTORS)?;
    let scratch = workspace::scratch()?;
    let share = scratch.path().join("share");
    fs::create_dir(&share).map_err(Failure::io("creating", &share))?;
    let [data, guests] = ["data", "guests"].map(|name| format!("{name}={}", share.display()));
    let control = scratch.path().join("control").display().to_string();
    let args = [
        ["--share", &data, "--share", &guests, "--guests", "guests=read"],
        ["--user", "user:secret", "--user", "other:hidden", "--control", &control],
    ];
    let args = [args.as_flattened(), &["--signing", "when-asked"]].concat();
    let server = Landfast::start_configured(&share, None, &args, |step| step)?;
    let rdma = server.address.rdma.ok_or_else(|| Failure::new("no RDMA port to besiege"))?;
    let seconds = if options.short { Options::short().seconds } else { options.seconds };
    let finished = Step::new(program)
        .args([&server.address.smb.to_string(), &rdma.to_string()])
        .args([&server.running.id().to_string(), &control, &seconds.to_string()])
        .limit(Duration::from_secs(600))
        .tee()?;
    let served = match finished.status.success() {
        true => Ok(()),
        false => Err(tail(&finished.stderr)),
    };
    let mut tally = Tally::default();
    tally.count(
        "every line of the ledger ends at its limit, and an honest client is served",
        served,
    );
    judge(&finished.stdout, options.growth_max_mib, &mut tally);
    Ok(tally)
}

/// What each line did to the server and to the honest client.
fn judge(output: &str, growth_max_mib: u64, tally: &mut Tally) {
    let (mut before, mut alone, mut slowest) = (0, 1, (0, "no line"));
    for line in output.lines() {
        let Some(resident) = number(line, "rss_kib=") else { continue };
        let p99 = number(line, "honest_us=").unwrap_or(0);
        if line.starts_with("begin ") {
            (before, alone) = (resident, p99.max(1));
            continue;
        }
        let name = line.split_whitespace().nth(1).unwrap_or_default();
        let grown = resident.saturating_sub(before) / 1024;
        let bounded = match grown <= growth_max_mib {
            true => Ok(()),
            false => Err(format!("{name}: {grown} MiB, {growth_max_mib} at most")),
        };
        tally.count("memory stays bounded", bounded);
        slowest = slowest.max((p99, name));
    }
    let (p99, name) = slowest;
    tally.note = format!(
        "the honest client's p99: {alone} µs alone, {} times that in the worst line, {name}",
        p99 / alone
    );
}

fn number(line: &str, name: &str) -> Option<u64> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name))?.parse().ok()
}

fn program() -> Result<PathBuf, Failure> {
    workspace::build_of(["--example", "siege"]).run()?;
    Ok(workspace::target().join("release/examples/siege"))
}

/// Descriptors of the clients, and of the server.
const DESCRIPTORS: usize = 16_384;
