//! Provider `verbs` over the software RDMA devices of a real kernel: the tests that every provider
//! passes.
//!
//! This machine needs no RDMA device and no library of rdma-core: the guest has both.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::failure::{Failure, Outcome, Tally};
use crate::guest::machine::{Guest, Setup};
use crate::interop::report;
use crate::process::Step;
use crate::workspace;

/// Options of `cargo xtask guest verbs`.
#[derive(Args, Clone, Debug)]
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
    let tests = provider_tests()?;
    let copied = share.path().join(TESTS);
    std::fs::copy(&tests, &copied).map_err(Failure::io("copying", &tests))?;
    let devices = match options.device {
        Some(device) => vec![device],
        None => vec![Device::Rxe, Device::Siw],
    };
    let mut tally = Tally::default();
    for device in &devices {
        let script = format!("bash /tests/verbs.sh {} {TESTS}", device.name());
        let setup = Setup { share: Some(share.path().to_owned()), ..Setup::default() };
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

/// Builds the tests that every provider passes, and says where they are.
fn provider_tests() -> Result<PathBuf, Failure> {
    let build = ["test", "--package", "landfast-rdma", "--test", TESTS, "--no-run"];
    let step = Step::new("cargo").args(build).args(["--message-format", "json-render-diagnostics"]);
    let said = step.dir(&workspace::root()).quiet().output()?;
    let found = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = found.filter_map(|message| {
        let is_it = message["target"]["name"] == TESTS;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    });
    programs.next().ok_or_else(|| Failure::new(format!("cargo built no test {TESTS}")))
}

/// The test program of crates/rdma.
const TESTS: &str = "every_provider";
/// Fewer checks than this mean that something was left out.
const TESTS_MIN: u32 = 20;
const LIMIT: Duration = Duration::from_secs(400);
