//! Who may do what, against our server or smbd: the table of `crates/server/tests/access_matrix`, cell by cell.
//!
//! smbd shows errors of the table. Where it answers otherwise and the table is right, the difference stands with
//! its reason in `tests/interop/rights-smbd.txt`; a difference that is not there is a failure, and so is a line
//! there that nothing bears out.

use std::path::Path;
use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, Outcome, Tally};
use crate::peer::Against;
use crate::process::{Step, tail};
use crate::samba::Samba;
use crate::workspace;

/// Options of `cargo xtask rights`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Whose server.
    #[arg(long, default_value = "landfast")]
    against: Against,
}

/// Tries all cells and prints how many there were.
pub(crate) fn run(options: &Options) -> Outcome {
    let args = ["--test", "access_matrix", "--", "--nocapture"];
    let step = Step::new("cargo").args(["test", "--release"]).args(workspace::TESTED).args(args);
    let step = step.dir(&workspace::root());
    // smbd has no Landfast extensions, and ids of others are tried on ours alone.
    let finished = match options.against {
        Against::Landfast => step.tee()?,
        Against::Smbd => {
            // Share modes are kept by inode: one that comes again would find those of a process that is gone.
            let served = tempfile::tempdir_in(MEMORY)
                .map_err(Failure::io("making a directory in", Path::new(MEMORY)))?;
            let samba = Samba::start_for_rights(served.path())?;
            step.arg("everybody")
                .env("LANDFAST_RIGHTS_SERVER", samba.address.smb.to_string())
                .env("LANDFAST_RIGHTS_DIRECTORY", served.path().display().to_string())
                .env("LANDFAST_RIGHTS_DIFFERENCES", differences().display().to_string())
                .limit(LIMIT)
                .tee()?
        }
    };
    let mut tally = Tally::default();
    let outcome = if finished.status.success() {
        Ok(())
    } else {
        Err(format!("{}{}", finished.status, tail(&finished.stdout)))
    };
    tally.count("the table of rights", outcome);
    Ok(tally)
}

fn differences() -> std::path::PathBuf {
    workspace::root().join("tests/interop/rights-smbd.txt")
}

/// A file system whose inodes do not come again.
const MEMORY: &str = "/dev/shm";
const LIMIT: Duration = Duration::from_secs(580);
