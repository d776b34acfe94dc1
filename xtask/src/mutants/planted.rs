//! All mutants in one build: `xtask/planter` plants them, each behind a switch, and runs the tests of the crate that reach it.
//!
//! Not planted are changes of constants and of chains with `let`; those are for cargo-mutants itself.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::accepted::Accepted;
use super::decisive::Decisive;
use super::{Area, Found, Options, chosen_mutants, judged};
use crate::failure::{Failure, Outcome, Tally};
use crate::process::Step;
use crate::workspace;

/// Lists, plants, and judges by the verdicts of the planter.
pub(super) fn run(
    tool: &Path,
    areas: &[Area],
    options: &Options,
    diff: Option<&Path>,
    accepted: &Accepted,
) -> Outcome {
    let work = workspace::kept("planter")?;
    let (list, only) = (work.join("list.json"), work.join("only.txt"));
    let mutants = listed(tool, areas, options, diff)?;
    fs::write(&list, Value::from(mutants.as_slice()).to_string())
        .map_err(Failure::io("writing", &list))?;
    let names = chosen(&mutants, options)?;
    fs::write(&only, names.join("\n")).map_err(Failure::io("writing", &only))?;
    let packages: Vec<&str> = areas.iter().map(|area| area.name).collect();
    let planter = workspace::root().join("xtask/planter/Cargo.toml");
    let mut step =
        Step::new("cargo").args(["run", "--quiet", "--locked", "--manifest-path"]).arg(&planter);
    step = step.env("CARGO_TARGET_DIR", workspace::kept("planter-target")?.to_string_lossy());
    step = step.arg("--").arg("--root").arg(workspace::root()).arg("--work").arg(&work);
    step = step.arg("--target").arg(workspace::target());
    step = step.arg("--list").arg(&list).arg("--only").arg(&only);
    step = step.args(["--packages", &packages.join(","), "--every", &options.every.to_string()]);
    step = step.args(["--limit", &options.limit.to_string()]);
    for (name, values) in [("--also", &options.also), ("--programs", &options.programs)] {
        if !values.is_empty() {
            step = step.args([name, &values.join(",")]);
        }
    }
    if options.built {
        step = step.args(["--built"]);
    }
    step.builds().run()?;
    let verdicts = work.join("verdicts.tsv");
    let verdicts = fs::read_to_string(&verdicts).map_err(Failure::io("reading", &verdicts))?;
    let mut tally = Tally::default();
    for area in areas {
        let (found, placeless) = read(*area, &verdicts);
        println!(
            "  {}: {placeless} mutants of constants and of chains with `let` are not planted",
            area.name
        );
        tally.add(judged(*area, &found, accepted));
    }
    Ok(tally)
}

fn listed(
    tool: &Path,
    areas: &[Area],
    options: &Options,
    diff: Option<&Path>,
) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    for area in areas {
        let package = format!("landfast-{}", area.name);
        let step = Step::new(tool).args(["mutants", "--list", "--json", "--package", &package]);
        let text = chosen_mutants(step.dir(&workspace::root()), *area, options, diff).output()?;
        let unread = |error| Failure::new(format!("the list of cargo-mutants: {error}"));
        all.extend(serde_json::from_str::<Vec<Value>>(&text).map_err(unread)?);
    }
    Ok(all)
}

fn chosen(mutants: &[Value], options: &Options) -> Result<Vec<String>, Failure> {
    let decisive = Decisive::read()?;
    let only = options.only.as_deref();
    let only = only.map(|path| fs::read_to_string(path).map_err(Failure::io("reading", path)));
    let only = only.transpose()?;
    let mut names = Vec::new();
    for mutant in mutants {
        let (name, file) = (mutant["name"].as_str(), mutant["file"].as_str());
        let (Some(name), Some(file)) = (name, file) else {
            return Err(Failure::new(format!(
                "cargo-mutants lists what has no name or file: {mutant}"
            )));
        };
        let function = mutant["function"]["function_name"].as_str().unwrap_or_default();
        let is_out = options.decisive && !decisive.has(file, function);
        if !is_out && only.as_ref().is_none_or(|only| only.lines().any(|line| line == name)) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

// Each line: verdict, mutant, test, milliseconds. Also how many the planter could not plant.
fn read(area: Area, verdicts: &str) -> (Found, usize) {
    let begin = format!("crates/{}/", area.name);
    let (mut found, mut placeless) = (Found::default(), 0);
    for line in verdicts.lines() {
        let mut parts = line.split('\t');
        let (Some(verdict), Some(mutant)) = (parts.next(), parts.next()) else { continue };
        if !mutant.starts_with(&begin) {
            continue;
        }
        match verdict {
            "caught" => found.caught += 1,
            "timeout" => found.timeout += 1,
            "unviable" => found.unviable += 1,
            "placeless" => placeless += 1,
            "missed" | "unreached" => found.missed.push(mutant.to_owned()),
            _ => {}
        }
    }
    (found, placeless)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::AREAS;

    #[test]
    fn verdicts_are_counted_for_their_crate() {
        let verdicts = "caught\tcrates/pmem/src/a.rs:1:2: x\tt\t3\nmissed\tcrates/pmem/src/a.rs:2:2: y\t\t3\n\
                        unreached\tcrates/rdma/src/b.rs:1:1: z\t\t0\nplaceless\tcrates/pmem/src/c.rs:1:1: z\t\t0\n";
        let (found, placeless) = read(AREAS[0], verdicts);
        assert_eq!((found.caught, placeless), (1, 1));
        assert_eq!(found.missed, ["crates/pmem/src/a.rs:2:2: y"]);
    }
}
