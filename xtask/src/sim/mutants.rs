//! Faults planted in server, client and engine, each of which seeds of the simulator must find.

use std::fs;
use std::path::Path;
use std::time::Instant;

use clap::Args;

use super::{Simulator, simulator};
use crate::failure::{Failure, Outcome, Tally};
use crate::process::Step;
use crate::workspace;

/// Options of `cargo xtask mutants-sim`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Plant only the faults whose names contain this
    name: Option<String>,
    /// Seconds of seeds for each
    #[arg(long, default_value_t = 600)]
    seconds: u64,
}

/// A fault: a text of a file, and the wrong one in its place.
struct Mutant {
    name: &'static str,
    file: &'static str,
    right: &'static str,
    wrong: &'static str,
}

/// Plants each fault in a copy of the tree, and runs seeds until one fails.
pub(crate) fn run(options: &Options) -> Outcome {
    let simulator = simulator()?;
    let tree = workspace::kept("mutants-sim")?.join("tree");
    let mut tally = Tally::default();
    let chosen =
        |mutant: &&Mutant| options.name.as_ref().is_none_or(|name| mutant.name.contains(name));
    for mutant in MUTANTS.iter().filter(chosen) {
        let began = Instant::now();
        let found = find(mutant, &simulator, &tree, options.seconds)?;
        println!(
            "  {}: {}, {} s with its build",
            mutant.name,
            verdict(&found),
            began.elapsed().as_secs()
        );
        tally.count(mutant.name, found.map(drop));
    }
    Ok(tally)
}

fn verdict(found: &Result<String, String>) -> &str {
    match found {
        Ok(how) => how,
        Err(why) => why,
    }
}

// What the seed that found it said, or that none did.
fn find(
    mutant: &Mutant,
    simulator: &Simulator,
    tree: &Path,
    seconds: u64,
) -> Result<Result<String, String>, Failure> {
    bring_up_to_date(tree)?;
    let file = tree.join(mutant.file);
    let text = fs::read_to_string(&file).map_err(Failure::io("reading", &file))?;
    if text.matches(mutant.right).count() != 1 {
        return Ok(Err(format!("{} has no such place any more", mutant.file)));
    }
    let planted = text.replacen(mutant.right, mutant.wrong, 1);
    fs::write(&file, planted).map_err(Failure::io("writing", &file))?;
    let target = tree.with_file_name("target");
    let programs = ["--bin", "landfast", "--example", "model", "--example", "commit_stream"];
    let build = Step::new("cargo").args(["build", "--release", "--workspace"]).args(programs);
    let target_dir = target.to_string_lossy().into_owned();
    let built = build.dir(tree).env("CARGO_TARGET_DIR", target_dir).builds().finish();
    fs::write(&file, text).map_err(Failure::io("writing", &file))?;
    let built = built?;
    if !built.status.success() {
        return Ok(Err(format!("does not build: {}", crate::process::tail(&built.stderr))));
    }
    let more = ["--first", "--keep", "--limit", &seconds.to_string()];
    let finished =
        simulator.of_build(&target.join("release")).run(0, u64::from(u32::MAX), &more)?;
    let mut said = finished.stdout.lines().skip_while(|line| !line.starts_with("fault"));
    Ok(match (finished.status.code(), said.next(), said.next()) {
        (Some(1), Some(plan), Some(fault)) => Ok(format!("found: {} ({plan})", fault.trim())),
        _ => Err(format!("not found in {seconds} s")),
    })
}

// Cargo builds again what is newer: only files that differ are written.
fn bring_up_to_date(tree: &Path) -> Result<(), Failure> {
    for path in workspace::files()? {
        let (from, to) = (workspace::root().join(&path), tree.join(&path));
        let bytes = fs::read(&from).map_err(Failure::io("reading", &from))?;
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        let parent = to.parent().map_or_else(|| tree.to_owned(), Path::to_owned);
        fs::create_dir_all(&parent).map_err(Failure::io("creating", &parent))?;
        fs::write(&to, bytes).map_err(Failure::io("writing", &to))?;
    }
    Ok(())
}

impl Simulator {
    // The same simulator over programs of another build.
    fn of_build(&self, release: &Path) -> Self {
        Self { landfast: release.join("landfast"), examples: release.join("examples") }
    }
}

/// Where a fault is planted in a file with many functions, `right` has as much of the place as makes it the only one.
const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a commit is answered without a flush",
        file: "crates/pmem/src/commit_group.rs",
        right: "let outcome = self.target.sync(extent);",
        wrong: "let _ = extent;\n        let outcome: io::Result<()> = Ok(());",
    },
    Mutant {
        name: "a commit rides on a flush that began before it",
        file: "crates/pmem/src/commit_group.rs",
        right: "let ticket = state.started + 1;",
        wrong: "let ticket = state.started + u64::from(!state.is_running);",
    },
    Mutant {
        name: "an answer goes to the oldest request that is at work",
        file: "crates/rdma/src/soft/responder.rs",
        right: "let place = serial.since(self.pending.front()?.serial)?;\n        self.pending.get_mut(place)",
        wrong: "let _ = serial;\n        self.pending.iter_mut().find(|pending| pending.state == State::AtWork)",
    },
    Mutant {
        name: "an engine that was called goes to sleep",
        file: "crates/rdma/src/interface/waker.rs",
        right: "if self.shared.called.load(Ordering::Acquire) || has_work() {",
        wrong: "if has_work() {",
    },
    Mutant {
        name: "a queue of a file is served once only",
        file: "crates/server/src/state/turns.rs",
        right: "state.is_served = next.is_some();",
        wrong: "state.is_served = true;",
    },
    Mutant {
        name: "a LOCK that has succeeded is carried out again",
        file: "crates/server/src/state/lock_sequence.rs",
        right: "if self.done[bucket] == Some(number) {\n            return",
        wrong: "if self.done[bucket] == Some(number) && number > 15 {\n            return",
    },
    Mutant {
        name: "the copy of a LOCK does not wait for the one under way",
        file: "crates/server/src/state/lock_sequence.rs",
        right: "if self.under_way[bucket] == Some(number) {\n            return",
        wrong: "if self.under_way[bucket] == Some(number) && number > 15 {\n            return",
    },
    Mutant {
        name: "the locks of an open that is restored are lost",
        file: "crates/server/src/state/locks.rs",
        right: "if self.len < LOCKS_PER_FILE_MAX {\n            self.insert(owner, range, exclusive, None);",
        wrong: "if self.len > LOCKS_PER_FILE_MAX {\n            self.insert(owner, range, exclusive, None);",
    },
    Mutant {
        name: "a session outlives its last connection",
        file: "crates/server/src/state/session.rs",
        right: "links.ended |= links.alive.is_empty();",
        wrong: "links.ended |= false;",
    },
    Mutant {
        name: "an open is closed though its client may come back",
        file: "crates/server/src/state/durable.rs",
        right: "if !kept && !durable.persistent {",
        wrong: "if !kept || !durable.persistent {",
    },
    Mutant {
        name: "a copy of a change does not wait for the first",
        file: "crates/server/src/state/sequence.rs",
        right: "if claim.modifies && claim.replays && self.under_way_before > 0 {",
        wrong: "if claim.modifies && claim.replays && self.under_way_before > 1_000 {",
    },
    Mutant {
        name: "a change of an earlier channel sequence is carried out",
        file: "crates/server/src/state/sequence.rs",
        right: "return if claim.modifies { Err(Stale) } else { Ok(()) };",
        wrong: "return Ok(());",
    },
    Mutant {
        name: "a lease is not asked back",
        file: "crates/server/src/state/breaks.rs",
        right: "self.send(routed);\n        outcome\n",
        wrong: "drop(routed);\n        outcome\n",
    },
    Mutant {
        name: "the answer to a break is not awaited",
        file: "crates/server/src/state/breaks.rs",
        right: "let owed = state.owed_to(by, intent);",
        wrong: "let owed = state.owed_to(by, intent).filter(|_| false);",
    },
    Mutant {
        name: "a WRITE does not look at locks",
        file: "crates/server/src/state/locks.rs",
        right: "self.exclusive.of_others(owner, range).next().is_none()\n            && self.shared",
        wrong: "self.len > 0 || self.exclusive.of_others(owner, range).next().is_none()\n            && self.shared",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_one_place() {
        for mutant in MUTANTS {
            let path = workspace::root().join(mutant.file);
            let text = fs::read_to_string(&path).unwrap();
            assert_eq!(text.matches(mutant.right).count(), 1, "{}: {}", mutant.name, mutant.file);
        }
    }
}
