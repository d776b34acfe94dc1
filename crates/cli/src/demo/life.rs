//! Where the processes of a demonstration work, how long they live, and how they die.

use std::path::Path;
use std::time::Duration;

use pmem::DurabilityClass;

use crate::failure::Failure;

/// How long a process lives.
pub(super) fn random_life() -> Result<Duration, Failure> {
    let random = getrandom::u64().map_err(|_| Failure::Child {
        process: "the system",
        what: "has no random numbers".into(),
    })?;
    Ok(Duration::from_micros(LIFE_MIN_US + random % LIFE_SPREAD_US))
}

/// Ends a process as a crash does.
pub(super) fn kill(pid: u32) -> Result<(), Failure> {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let pid =
        pid.ok_or_else(|| Failure::Child { process: "the server", what: "has no id".into() })?;
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)
        .map_err(|errno| Failure::system("cannot kill the server")(errno.into()))
}

/// What a directory's memory survives.
pub(super) fn class_of(directory: &Path) -> Result<DurabilityClass, Failure> {
    let failed = Failure::local("cannot write to", directory);
    let probe = tempfile::tempfile_in(directory).map_err(failed)?;
    pmem::classify(&probe)
        .map_err(|source| Failure::Child { process: "the file system", what: source.to_string() })
}

/// The default place is in memory, so that the demonstration runs anywhere and leaves no files.
pub(super) const MEMORY: &str = "/dev/shm";
// From just after the start to the middle of the stream.
const LIFE_MIN_US: u64 = 20_000;
const LIFE_SPREAD_US: u64 = 600_000;
