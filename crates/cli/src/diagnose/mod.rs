//! `landfast diagnose`: what a path gives to those who store there: DAX or not and why, durability class, what a commit
//! costs.

mod cost;
mod place;

use std::fmt::Write as _;

use serde::Serialize;

use self::cost::Cost;
use self::place::Place;
use crate::args::Diagnose;
use crate::failure::Failure;
use crate::output;

/// Looks at a path, and measures beside it.
pub(crate) fn run(options: &Diagnose) -> Result<(), Failure> {
    let place =
        Place::of(&options.path).map_err(Failure::local("cannot look at", &options.path))?;
    let cost = Cost::measure(&place, options.seconds);
    let found = Diagnosis { place, cost };
    output::say(&match options.json {
        true => format!("{}\n", serde_json::to_string(&found).expect("plain fields")),
        false => found.text(),
    })
}

/// All that was found.
#[derive(Debug, Serialize)]
struct Diagnosis {
    #[serde(flatten)]
    place: Place,
    cost: Cost,
}

impl Diagnosis {
    fn text(&self) -> String {
        let Place { path, kind, file_system, mounted_on, dax, class, granularity, volume, .. } =
            &self.place;
        let mut out = format!("{}: {kind}\n", path.display());
        let _ = writeln!(out, "  file system   {file_system}, mounted on {}", mounted_on.display());
        let _ =
            writeln!(out, "  DAX           {}: {}", if dax.is_on { "yes" } else { "no" }, dax.why);
        match (class, granularity) {
            (Some(class), Some(bytes)) => {
                let _ = writeln!(out, "  class         {class}: {}", meaning(class));
                if *bytes > 1 {
                    let _ = writeln!(out, "  granularity   stores become durable by {bytes} bytes");
                }
            }
            _ => {
                let _ = writeln!(out, "  class         unknown: {}", self.place.unclassified());
            }
        }
        if let Some(mode) = volume {
            let _ = writeln!(out, "  volume        mode {mode}; landfast volume info shows more");
        }
        let _ = writeln!(out, "  commit        {}", self.cost.text());
        out
    }
}

fn meaning(class: &str) -> &'static str {
    match class {
        "pmem" => "a commit is a fence; push mode and volumes of mode block at their best",
        "storage" => "a commit is an fdatasync, shared by all who wait for one",
        _ => "nothing survives a loss of power; push mode only with --emulate-persistence",
    }
}
