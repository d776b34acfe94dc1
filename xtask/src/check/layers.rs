//! Which crate may use which: the table of ARCHITECTURE.md, enforced.
//!
//! ```text
//! 0  basics
//! 1  pmem   iwarp   smbdirect
//! 2  rdma  (basics, pmem, iwarp)
//! 3  smb   (smbdirect)   tree  (basics, pmem)
//! 4  server   client  (basics, pmem, rdma, smb, smbdirect; server: tree)
//! 6  cli   (all)
//! ```

use serde_json::Value;

use crate::failure::Failure;
use crate::process::Step;
use crate::workspace;

/// What cargo knows about the workspace's own packages.
pub(super) fn metadata() -> Result<Value, Failure> {
    let question = ["metadata", "--no-deps", "--format-version", "1"];
    let output = Step::new("cargo").args(question).dir(&workspace::root()).quiet().output()?;
    serde_json::from_str(&output)
        .map_err(|error| Failure::new(format!("cargo metadata is not JSON: {error}")))
}

/// Dependencies of the workspace's crates that the table does not allow. Dependencies of tests
/// are free: the tests of one crate may well need another as a peer.
pub(super) fn violations(metadata: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for package in list(metadata, "packages") {
        let name = text(package, "name");
        let Some(allowed) = ALLOWED.iter().find(|(of, _)| *of == name).map(|(_, uses)| *uses)
        else {
            found.push(format!("{name} has no place in the table of {}", file!()));
            continue;
        };
        for dependency in list(package, "dependencies") {
            if text(dependency, "kind") == "dev" {
                continue;
            }
            let used = text(dependency, "name");
            let ours = ALLOWED.iter().any(|(of, _)| *of == used);
            if ours && !allowed.contains(&used) {
                found.push(format!("{name} must not depend on {used}"));
            }
            if SANS_IO.contains(&name) && DOES_IO.contains(&used) {
                found.push(format!("{name} does no I/O and so has no use for {used}"));
            }
        }
    }
    found
}

fn list<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Each package with those of ours it may use, lowest layer first.
const ALLOWED: [(&str, &[&str]); 12] = [
    ("landfast-basics", &[]),
    ("landfast-pmem", &[]),
    ("landfast-iwarp", &[]),
    ("landfast-smbdirect", &[]),
    ("landfast-rdma", &["landfast-basics", "landfast-pmem", "landfast-iwarp"]),
    ("landfast-smb", &["landfast-smbdirect"]),
    ("landfast-tree", &["landfast-basics", "landfast-pmem"]),
    (
        "landfast-server",
        &[
            "landfast-basics",
            "landfast-pmem",
            "landfast-rdma",
            "landfast-smb",
            "landfast-smbdirect",
            "landfast-tree",
        ],
    ),
    (
        "landfast-client",
        &[
            "landfast-basics",
            "landfast-pmem",
            "landfast-rdma",
            "landfast-smb",
            "landfast-smbdirect",
        ],
    ),
    ("landfast", LIBRARIES),
    ("landfast-fuzz-bodies", LIBRARIES),
    ("xtask", &[]),
];
const LIBRARIES: &[&str] = &[
    "landfast-basics",
    "landfast-pmem",
    "landfast-iwarp",
    "landfast-smbdirect",
    "landfast-rdma",
    "landfast-smb",
    "landfast-tree",
    "landfast-server",
    "landfast-client",
];
/// Crates that take bytes and time and give bytes and deadlines.
const SANS_IO: [&str; 3] = ["landfast-iwarp", "landfast-smbdirect", "landfast-smb"];
/// Crates that reach sockets, files, clocks or threads.
const DOES_IO: [&str; 5] = ["tokio", "rustix", "libc", "mio", "socket2"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dependency_against_the_layers_is_found_and_one_of_a_test_is_not() {
        let uses = |name: &str, kind: Value| json!({ "name": name, "kind": kind });
        let metadata = json!({ "packages": [
            { "name": "landfast-rdma", "dependencies": [uses("landfast-pmem", Value::Null)] },
            { "name": "landfast-pmem", "dependencies": [uses("landfast-rdma", json!("dev"))] },
            { "name": "landfast-iwarp", "dependencies": [uses("landfast-pmem", Value::Null)] },
            { "name": "landfast-smb", "dependencies": [uses("tokio", Value::Null)] },
        ] });
        let found = violations(&metadata);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("landfast-iwarp") && found[1].contains("tokio"), "{found:?}");
    }
}
