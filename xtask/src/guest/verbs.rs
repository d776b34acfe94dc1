//! Provider `verbs` over the software RDMA devices of a real kernel: the tests that every provider
//! passes, on devdax too; the stories of push mode; a server and its clients.
//!
//! This machine needs no RDMA device and no library of rdma-core: the guest has both.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::failure::{Failure, Outcome, Tally};
use crate::guest::machine::{Guest, Setup};
use crate::interop::report;
use crate::process::Step;
use crate::workspace;

/// Options of `cargo xtask guest verbs`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Which device; both if none is named
    #[arg(long)]
    device: Option<Device>,
}

/// A software RDMA device of the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Device {
    /// RoCE: flushes and atomic writes are native
    Rxe,
    /// iWARP: commits go by message
    Siw,
}

impl Device {
    fn name(self) -> &'static str {
        match self {
            Self::Rxe => "rxe",
            Self::Siw => "siw",
        }
    }
}

/// One guest for each device.
pub(crate) fn run(options: &Options) -> Outcome {
    let share = workspace::scratch()?;
    let mut names = String::new();
    for (package, name) in TESTS {
        let program = test_program(package, name)?;
        fs::copy(&program, share.path().join(name)).map_err(Failure::io("copying", &program))?;
        names = names + " " + name;
    }
    let memory = share.path().join("memory");
    let file = File::create(&memory).map_err(Failure::io("creating", &memory))?;
    file.set_len(MEMORY_BYTES).map_err(Failure::io("sizing", &memory))?;
    let devices = match options.device {
        Some(device) => vec![device],
        None => vec![Device::Rxe, Device::Siw],
    };
    let mut tally = Tally::default();
    for device in &devices {
        let script = format!("bash /tests/verbs.sh {}{names}", device.name());
        let setup = setup(share.path(), &memory);
        let guest = Guest::start(&setup, &script, LIMIT)?;
        let ended = guest.finish(|line| println!("  guest: {line}"));
        let found = report::read(&ended.output);
        // A guest in which nothing was tested must not pass.
        let enough = match found.passed {
            few if few < TESTS_MIN && found.failed.is_empty() => {
                Err(format!("{few} checks passed, none failed: something was not tested"))
            }
            _ => ended.succeeded("verbs.sh").map_err(|failure| failure.to_string()),
        };
        tally.count(&format!("{}: the guest's script", device.name()), enough);
        tally.add(found);
    }
    let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
    tally.note = format!("provider verbs over {}", names.join(", "));
    Ok(tally)
}

fn setup(share: &Path, memory: &Path) -> Setup {
    let (share, memory) = (Some(share.to_owned()), Some(memory.to_owned()));
    Setup { share, persistent_memory: memory, ..Setup::default() }
}

/// Builds a program of tests, and says where it is.
fn test_program(package: &str, name: &str) -> Result<PathBuf, Failure> {
    let build = ["test", "--package", package, "--test", name, "--no-run"];
    let step = Step::new("cargo").args(build).args(["--message-format", "json-render-diagnostics"]);
    let said = step.dir(&workspace::root()).quiet().limit(BUILD_LIMIT).output()?;
    let found = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = found.filter_map(|message| {
        let is_it = message["target"]["name"] == name;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    });
    programs.next().ok_or_else(|| Failure::new(format!("cargo built no test {name}")))
}

/// What runs in the guest as it does here: provider tests, and stories of server and client.
const TESTS: [(&str, &str); 2] = [("landfast-rdma", "every_provider"), ("landfast-client", "push")];
/// Fewer checks than this mean that something was left out.
const TESTS_MIN: u32 = 40;
/// Room for one namespace; ndctl wants 16 MiB at least.
const MEMORY_BYTES: u64 = 256 << 20;
const BUILD_LIMIT: Duration = Duration::from_secs(1200);
const LIMIT: Duration = Duration::from_secs(400);
