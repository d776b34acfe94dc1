//! `landfast sweep`: removes streams whose file is gone.

use server::ShareConfig;
use tree::Share;

use crate::args::Sweep;
use crate::failure::Failure;
use crate::output;

/// Sweeps a directory that is, was or could be a share.
pub(crate) fn run(options: &Sweep) -> Result<(), Failure> {
    let share = Share::open(&ShareConfig::new("swept", &options.directory))?;
    let swept = share.sweep_streams(options.dry_run)?;
    let done = if options.dry_run { "would be removed" } else { "removed" };
    output::say(&format!(
        "{} files have streams; streams of {} that are gone {done}, {} bytes\n",
        swept.bound, swept.orphans, swept.bytes
    ))
}
