//! Product and tests share one build: no package below both is compiled twice, with other features each time.
//!
//! docs/testing.md, "One build for product and tests", says how to mend what is found here.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::failure::Failure;
use crate::process::Step;
use crate::workspace;

/// A target of a package, in the way in which a command builds it: its name, its kind and how it is optimised.
type Unit = (String, String, String);

/// Packages that the product and the tests build with different features.
pub(super) fn faults() -> Result<Vec<String>, Failure> {
    let product = ["build", "--release"].into_iter().map(str::to_owned);
    let product = units(product.chain(workspace::shipped_packages()))?;
    let tests = ["test", "--release", "--no-run"].into_iter().chain(workspace::TESTED);
    let tests = units(tests.map(str::to_owned))?;
    let mut faults = Vec::new();
    for (unit, features) in &product {
        let Some(of_tests) = tests.get(unit) else { continue };
        if features.iter().any(|one| !of_tests.contains(one)) {
            let (package, kind, _) = unit;
            faults.push(format!(
                "{package} ({kind}): features {features:?} for the product, {of_tests:?} for tests"
            ));
        }
    }
    Ok(faults)
}

/// What a command would compile, each with the sets of features in which it would.
fn units(
    command: impl Iterator<Item = String>,
) -> Result<BTreeMap<Unit, Vec<Vec<String>>>, Failure> {
    // Cargo says so under a flag for nightly alone; this variable has a stable one answer as well.
    let step = Step::new("cargo").args(command).args(["-Z", "unstable-options", "--unit-graph"]);
    let output = step.env("RUSTC_BOOTSTRAP", "1").dir(&workspace::root()).quiet().output()?;
    let graph: Value = serde_json::from_str(&output)
        .map_err(|error| Failure::new(format!("cargo's graph of units is not JSON: {error}")))?;
    let mut units: BTreeMap<Unit, Vec<Vec<String>>> = BTreeMap::new();
    for unit in graph["units"].as_array().into_iter().flatten() {
        if unit["mode"] != "build" {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = text(&unit["target"]["kind"][0]);
        let key = (text(&unit["pkg_id"]), kind, text(&unit["profile"]["opt_level"]));
        let features = unit["features"].as_array().into_iter().flatten().map(text).collect();
        units.entry(key).or_default().push(features);
    }
    Ok(units)
}
