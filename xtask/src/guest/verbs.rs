//! Provider `verbs` over the software RDMA devices of a real kernel: the tests that every provider
//! passes, on devdax too; the stories of push mode; a server and its clients.
//!
//! This machine needs no RDMA device and no library of rdma-core: the guest has both.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::failure::{Failure, Outcome, Tally};
use crate::guest::machine::{Guest, Setup};
use crate::guest::programs;
use crate::interop::report;
use crate::workspace;

/// Options of `cargo xtask guest verbs`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Which device; both if none is named
    #[arg(long)]
    device: Option<Device>,
    /// As in `cargo xtask test`: fewer stories of push mode between the providers
    #[arg(long)]
    short: bool,
}

impl Options {
    /// What `cargo xtask test` runs, over one of them.
    pub(crate) fn short(device: Device) -> Self {
        Self { device: Some(device), short: true }
    }
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
    for (name, program) in programs::build()?.tests {
        fs::copy(&program, share.path().join(name)).map_err(Failure::io("copying", &program))?;
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
        let form = if options.short { "short" } else { "long" };
        let script = format!("bash /tests/verbs.sh {} {form}", device.name());
        let setup = setup(share.path(), &memory);
        let guest = Guest::start(&format!("verbs-{}", device.name()), &setup, &script, LIMIT)?;
        let ended = guest.finish();
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

/// Fewer checks than this mean that something was left out.
const TESTS_MIN: u32 = 40;
/// Room for one namespace; ndctl wants 16 MiB at least.
const MEMORY_BYTES: u64 = 256 << 20;
const LIMIT: Duration = Duration::from_secs(900);
