//! The directory of a run: no other run of the machine has it, and programs find the same in each.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::failure::Failure;

/// A directory in memory, taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Site {
    path: PathBuf,
    // The lock is the kernel's: it ends with this process.
    _lock: File,
}

impl Site {
    /// Takes a directory that no other run uses. All have names of one length, so that no address in a program depends on
    /// which it is.
    pub(crate) fn free() -> Result<Self, Failure> {
        let home = Path::new("/dev/shm/landfast-sim");
        fs::create_dir_all(home).map_err(|error| Failure::io("creating", home, error))?;
        for number in 0..SITES {
            let path = home.join(format!("{number:02}"));
            let name = path.with_extension("lock");
            let lock =
                File::create(&name).map_err(|error| Failure::io("creating", &name, error))?;
            if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(Failure::Usage(format!("{SITES} runs are under way already")))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// More than a machine has cores for; two digits.
const SITES: u32 = 100;
