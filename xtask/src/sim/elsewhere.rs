//! A seed does the same elsewhere: from another directory, on one core, with another environment, other limits, another
//! host name and a descriptor more.
//!
//! What cannot be changed here is another processor, another kernel and another C library: docs/simulator.md.

use std::fs;
use std::path::Path;

use super::{PROGRAMS, Simulator};
use crate::failure::Failure;
use crate::process::{Finished, Step, tail};
use crate::workspace;

/// Whether each of a few seeds has one digest, here and elsewhere.
pub(super) fn same(simulator: &Simulator) -> Result<Result<(), String>, Failure> {
    let scratch = workspace::scratch()?;
    let moved = simulator.copied(&scratch.path().join("a directory of another depth/bin"))?;
    let is_root = Step::new("unshare").args(["--uts", "true"]).quiet().finish()?.status.success();
    let (namespace, name) =
        if is_root { ("unshare --uts", "hostname elsewhere;") } else { ("", "") };
    let script = SCRIPT.replace("NAMESPACE", namespace).replace("NAME", name);
    for seed in SEEDS {
        let here = simulator.step("replay").arg(seed).quiet().finish()?;
        let step = Step::new("sh").args(["-c", &script, "sh"]).arg(&moved.own);
        let there =
            moved.told(step.arg("replay")).arg(seed).dir(Path::new("/")).quiet().finish()?;
        let [ours, theirs] = [&here, &there].map(digest);
        if ours.is_none() || ours != theirs {
            let output = tail(&format!("{}{}", there.stdout, there.stderr));
            return Ok(Err(format!("seed {seed}: {ours:?} here, {theirs:?} elsewhere{output}")));
        }
    }
    Ok(Ok(()))
}

fn digest(finished: &Finished) -> Option<String> {
    finished.stdout.lines().find(|line| line.starts_with("digest ")).map(str::to_owned)
}

impl Simulator {
    // Copies of all programs in another directory.
    fn copied(&self, directory: &Path) -> Result<Self, Failure> {
        let programs = directory.join("programs");
        fs::create_dir_all(&programs).map_err(Failure::io("creating", &programs))?;
        let copy = |from: &Path, to: &Path| {
            let name = from.file_name().unwrap_or_default();
            let to = to.join(name);
            fs::copy(from, &to).map_err(Failure::io("copying", from))?;
            Ok(to)
        };
        for name in PROGRAMS.iter().filter(|word| !word.starts_with('-')) {
            copy(&self.programs.join(name), &programs)?;
        }
        let (own, landfast) = (copy(&self.own, directory)?, copy(&self.landfast, directory)?);
        Ok(Self { own, landfast, programs, is_quiet: self.is_quiet })
    }
}

/// A run that is another one for everybody but the programs in it.
const SCRIPT: &str = "
    ulimit -s 16384; ulimit -n 2048; umask 077; exec 7</dev/null
    export TZ=Pacific/Auckland LANG=de_DE.UTF-8 MALLOC_ARENA_MAX=1 ELSEWHERE=yes HOME=/nowhere
    exec taskset --cpu-list 0 NAMESPACE sh -c 'NAME exec \"$@\"' sh \"$@\"
";
/// One of each kind of work: of the model, of a stream, of rivals, of all.
const SEEDS: [&str; 4] = ["4", "9", "11", "10"];
