//! What must hold before a change is looked at: formatting, lints, and the rules of the house.

mod checklist;
mod cycles;
mod environment;
mod layers;
mod leaves;
mod links;
mod locks;
mod one_build;
mod promises;
mod sizes;
mod texts;

use crate::failure::{Outcome, Tally};
use crate::process::Step;
use crate::{torture, workspace};
use texts::Texts;

/// Formatting, lints and [`tidy`].
pub(crate) fn run() -> Outcome {
    let mut tally = Tally::default();
    let root = workspace::root();
    let format = Step::new("cargo").args(["fmt", "--all", "--check"]).dir(&root).run();
    tally.count("cargo fmt", format.map_err(|_| "run `cargo fmt --all`".to_owned()));
    // The release profile, so that the compiled C of the dependencies is shared with the build.
    let lint = ["clippy", "--workspace", "--all-targets", "--release", "--", "--deny", "warnings"];
    let lint = Step::new("cargo").args(lint).dir(&root).builds().run();
    tally.count("cargo clippy", lint.map_err(|failure| failure.to_string()));
    tally.add(tidy()?);
    Ok(tally)
}

/// The rules of the house that no compiler knows.
pub(crate) fn tidy() -> Outcome {
    let texts = Texts::read()?;
    let rules: [(&str, Vec<String>); 11] = [
        ("file lengths", sizes::too_long(&texts)),
        ("leftover marks", sizes::leftovers(&texts)),
        ("links", links::broken(&texts)),
        ("rows of SPECIFICATION.md", promises::faults(&texts)),
        ("cases of docs/replica-checklist.md", checklist::faults(&texts)),
        ("paths outside the repository", links::strays(&texts)),
        ("reads beside the environment", environment::reads(&texts)),
        ("locks without a rank", locks::unranked(&texts)),
        ("leaves beside the decisions", leaves::forged(&texts)),
        ("leaves to wait", leaves::given_to_wait(&texts)),
        ("import cycles", cycles::faults(&texts)),
    ];
    let mut tally = Tally::default();
    for (name, faults) in rules {
        tally.count(name, if faults.is_empty() { Ok(()) } else { Err(listed(&faults)) });
    }
    let faults = torture::record::faults()?;
    let kept = if faults.is_empty() { Ok(()) } else { Err(listed(&faults)) };
    tally.count("what is kept of smbtorture", kept);
    let faults = layers::violations(&layers::metadata()?);
    tally.count("layers", if faults.is_empty() { Ok(()) } else { Err(listed(&faults)) });
    let faults = one_build::faults()?;
    tally.count("one build", if faults.is_empty() { Ok(()) } else { Err(listed(&faults)) });
    tally.note = format!("{} files", texts.0.len());
    Ok(tally)
}

fn listed(faults: &[String]) -> String {
    faults.iter().fold(String::new(), |text, fault| text + "\n    " + fault)
}
