//! Volumes as disks of the guest's kernel by ublk: fio's writes verified, a file system made, exercised and checked, and
//! servers that are killed in the middle, whose disks the next servers take over.

use std::time::Duration;

use clap::Args;

use crate::failure::{Outcome, Tally};
use crate::guest::cache::Cache;
use crate::guest::machine::{Guest, Setup};
use crate::interop::report;

/// Options of `cargo xtask guest ublk`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Operations of fsx on the mounted file system
    #[arg(long, default_value_t = 2_000)]
    operations: u32,
    /// How often the server is killed while a file system on its disk is in use
    #[arg(long, default_value_t = 5)]
    kills: u32,
}

/// A volume of mode block in memory, and one of mode file on a disk, both in the guest.
pub(crate) fn run(options: &Options) -> Outcome {
    let mut tally = Tally::default();
    for mode in ["block", "file"] {
        let setup = Setup { programs: vec![Cache::ready()?.fsx()?], ..Setup::default() };
        let Options { operations, kills } = options;
        let script = format!("bash /tests/ublk.sh {mode} {operations} {kills}");
        let limit = LIMIT + OPERATION * *operations + KILL * *kills;
        let ended = Guest::start(&format!("ublk-{mode}"), &setup, &script, limit)?.finish();
        tally.add(report::read(&ended.output));
        let succeeded = ended.succeeded("ublk.sh").map_err(|failure| failure.to_string());
        tally.count(&format!("{mode}: the guest's script"), succeeded);
    }
    Ok(tally)
}

/// Boot, file systems, fio.
const LIMIT: Duration = Duration::from_secs(500);
/// On a machine that does other things too.
const OPERATION: Duration = Duration::from_millis(40);
const KILL: Duration = Duration::from_secs(30);
