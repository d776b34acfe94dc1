//! Another Samba than the machine's: packages of it unpacked into a directory (`dpkg -x`).
//!
//! Its programs look for their modules where Debian installs them. So this command runs again in a mount
//! namespace of its own, in which those of the directory are there, over those of the machine's Samba;
//! programs and libraries are found by PATH and LD_LIBRARY_PATH. What the machine has installed stays as it is.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::failure::{Failure, Outcome};
use crate::workspace;

/// Whether this is the second run.
pub(super) fn is_entered() -> bool {
    env::var_os(MARK).is_some()
}

/// Becomes the second run. Returns only if that cannot be.
pub(super) fn enter(dir: &Path) -> Outcome {
    let programs = [dir.join("usr/bin"), dir.join("usr/sbin")];
    if !programs[0].join("smbtorture").exists() {
        return Err(Failure::new(format!("{} has no usr/bin/smbtorture", dir.display())).remedy(
            "apt-get download samba-testsuite samba and what they need, dpkg -x each into it",
        ));
    }
    if let Some(place) = PLACES.iter().find(|place| !Path::new(place).exists()) {
        return Err(Failure::new(format!("no {place} to mount that of another Samba over"))
            .remedy("cargo xtask deps"));
    }
    if !workspace::is_root() {
        return Err(
            Failure::new("another Samba takes a mount namespace").remedy("run this as root")
        );
    }
    let of_ours = env::current_exe().map_err(Failure::io("finding", Path::new("this program")))?;
    let paths = env::var_os("PATH").unwrap_or_default();
    let paths = env::join_paths(programs.into_iter().chain(env::split_paths(&paths)));
    let paths = paths.map_err(|_| Failure::new("a path of PATH or --samba has a colon in it"))?;
    let mounts = PLACES.map(|place| format!("mount --bind \"$1{place}\" {place}\n")).concat();
    let script = mounts + "shift\nexec \"$@\"";
    let error = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-ec", &script, "sh"])
        .arg(dir)
        .arg(of_ours)
        .args(env::args_os().skip(1))
        .env("PATH", paths)
        .env("LD_LIBRARY_PATH", dir.join(LIBRARIES))
        .env(MARK, "1")
        .exec();
    Err(Failure::new(format!("cannot run unshare: {error}")).remedy("apt-get install util-linux"))
}

const MARK: &str = "LANDFAST_OTHER_SAMBA";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// Where Debian's Samba looks for parts of itself.
const PLACES: [&str; 2] = ["/usr/lib/x86_64-linux-gnu/samba", "/usr/libexec/samba"];
