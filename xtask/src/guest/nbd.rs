//! The kernel's NBD client on a volume of ours over TCP: ext4 made, filled, exercised and checked, fio's writes verified,
//! and a server that is killed in the middle.

use std::path::Path;
use std::time::Duration;

use clap::Args;

use crate::failure::{Outcome, Tally};
use crate::guest::cache::Cache;
use crate::guest::machine::{Guest, Setup};
use crate::interop::report;
use crate::nbd_server::{NbdServer, Volume};
use crate::workspace;

/// Options of `cargo xtask guest nbd`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Operations of fsx on the mounted file system
    #[arg(long, default_value_t = 10_000)]
    pub(crate) operations: u32,
}

/// A volume of mode block in memory, and one of mode file on a disk.
pub(crate) fn run(options: &Options) -> Outcome {
    let mut tally = Tally::default();
    let (memory, disk) = (workspace::scratch_on_tmpfs()?, workspace::scratch()?);
    for (mode, directory) in [("block", memory.path()), ("file", disk.path())] {
        tally.add(on(mode, directory, options)?);
    }
    Ok(tally)
}

fn on(mode: &str, directory: &Path, options: &Options) -> Outcome {
    let volume = Volume::create(&directory.join("volume"), "96M", &["--mode", mode])?;
    let server = NbdServer::start_tcp(&volume)?;
    let setup = Setup { programs: vec![Cache::ready()?.fsx()?], ..Setup::default() };
    let script = format!("bash /tests/nbd.sh {mode} {} {}", server.port, options.operations);
    let limit = LIMIT + OPERATION * options.operations;
    let mut guest = Guest::start(&format!("nbd-{mode}"), &setup, &script, limit)?;
    guest.wait_for("synced")?;
    // What fsync has answered is there for another server.
    drop(server);
    let server = NbdServer::start_tcp(&volume)?;
    guest.tell("served", &server.port.to_string())?;
    let ended = guest.finish();
    drop(server);
    let mut tally = report::read(&ended.output);
    let succeeded = ended.succeeded("nbd.sh").map_err(|failure| failure.to_string());
    tally.count(&format!("{mode}: the guest's script"), succeeded);
    tally.count(&format!("{mode}: whole after all that"), volume.check());
    Ok(tally)
}

/// Boot, file system, fio.
const LIMIT: Duration = Duration::from_secs(400);
/// On a machine that does other things too.
const OPERATION: Duration = Duration::from_millis(40);
