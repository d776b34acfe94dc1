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
    /// What kind of volume the disk is; both unless one is named
    #[arg(long, value_parser = MODES)]
    mode: Option<String>,
}

/// A volume of mode block in memory, and one of mode file on a disk, both in the guest.
pub(crate) fn run(options: &Options) -> Outcome {
    let mut tally = Tally::default();
    let is_meant = |mode: &&str| options.mode.as_deref().is_none_or(|named| named == *mode);
    for mode in MODES.into_iter().filter(is_meant) {
        let setup = Setup { programs: vec![Cache::ready()?.fsx()?], ..Setup::default() };
        let Options { operations, kills, .. } = options;
        let script = format!("bash /tests/ublk.sh {mode} {operations} {kills}");
        let limit = LIMIT + OPERATION * *operations + KILL * *kills;
        let ended = Guest::start(&format!("ublk-{mode}"), &setup, &script, limit)?.finish();
        tally.add(report::read(&ended.output));
        let succeeded = ended.succeeded("ublk.sh").map_err(|failure| failure.to_string());
        tally.count(&format!("{mode}: the guest's script"), succeeded);
    }
    Ok(tally)
}

/// The guest's script knows these.
const MODES: [&str; 2] = ["block", "file"];
/// Boot, file systems, fio: on a machine that does much else too, some 800 s were not enough for all of a run.
const LIMIT: Duration = Duration::from_secs(1200);
/// On a machine that does other things too.
const OPERATION: Duration = Duration::from_millis(40);
const KILL: Duration = Duration::from_secs(30);
