//! `landfast sweep`: removes streams whose file is gone.

use server::ShareConfig;
use tree::{Share, SweepOptions};

use crate::args::Sweep;
use crate::failure::Failure;
use crate::output;

/// Sweeps a directory that is, was or could be a share.
pub(crate) fn run(options: &Sweep) -> Result<(), Failure> {
    let share = Share::open(&ShareConfig::new("swept", &options.directory))?;
    let how = SweepOptions { dry: options.dry_run, all: options.all };
    let swept = share.sweep_streams(how)?;
    let done = if options.dry_run { "would be removed" } else { "removed" };
    output::say(&format!(
        "{} files have streams; streams of {} that are gone {done}, {} bytes\n",
        swept.bound, swept.orphans, swept.bytes
    ))?;
    match swept.kept {
        0 => Ok(()),
        kept => output::say(&format!(
            "streams of {kept} more stay: no file has them, but what their file lies on is not mounted here, or was not noted \
             by an earlier version, or a file that was restored from a backup names them. --all takes them too\n"
        )),
    }
}
