//! Which crate may use which: the table of ARCHITECTURE.md, enforced.
//!
//! ```text
//! 0  basics
//! 1  pmem   flash  (pmem)   iwarp   smbdirect
//! 2  rdma  (basics, pmem, iwarp)
//! 3  remote  (basics, pmem, rdma)   smb   (smbdirect)   tree  (basics, pmem, flash)
//! 4  server   client  (basics, pmem, rdma, remote, smb, smbdirect; server: tree)
//! 5  block  (pmem)   volume   nbd   fuse   ublk  (block; volume: pmem)
//! 5  log   (basics, pmem, remote, block)   store   (basics, pmem, rdma, remote)
//! 6  cli   (all)
//!    model   siw_peer  (programs for tests: libraries)
//!    sim   (basics; it runs the programs of the others)
//! ```

use std::collections::BTreeSet;

use serde_json::Value;

use crate::failure::Failure;
use crate::process::Step;
use crate::workspace;

/// What cargo knows about the workspace's packages and those below them, on this machine.
pub(super) fn metadata() -> Result<Value, Failure> {
    let question = ["metadata", "--format-version", "1", "--filter-platform", "host-tuple"];
    let output = Step::new("cargo").args(question).dir(&workspace::root()).quiet().output()?;
    serde_json::from_str(&output)
        .map_err(|error| Failure::new(format!("cargo metadata is not JSON: {error}")))
}

/// Dependencies of the workspace's crates that the table does not allow, and packages that do I/O below a crate that
/// does none, however many packages lie between. Dependencies of tests are free: the tests of one crate may well need
/// another as a peer.
pub(super) fn violations(metadata: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for package in list(metadata, "packages") {
        // A package of a registry.
        if package.get("source").is_some_and(Value::is_string) {
            continue;
        }
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
        if SANS_IO.contains(&name) {
            let below = reached(metadata, text(package, "id"));
            found.extend(below.into_iter().filter(|(used, _)| MEETS_OTHERS.contains(used)).map(
                |(used, by)| {
                    format!("{name} does no I/O and so has no use for {used}, through {by}")
                },
            ));
        }
    }
    found
}

/// The names of all packages below one, without those that only tests or builds need, each with a package that
/// needs it.
fn reached<'v>(metadata: &'v Value, id: &'v str) -> Vec<(&'v str, &'v str)> {
    let name = |id: &str| {
        let package = list(metadata, "packages").iter().find(|package| text(package, "id") == id);
        package.map_or("", |package| text(package, "name"))
    };
    let nodes = metadata.get("resolve").map_or(&[][..], |resolve| list(resolve, "nodes"));
    let (mut met, mut found, mut next) = (BTreeSet::from([id]), Vec::new(), vec![id]);
    while let Some(by) = next.pop() {
        let node = nodes.iter().find(|node| text(node, "id") == by);
        for dependency in node.map_or(&[][..], |node| list(node, "deps")) {
            let is_linked =
                list(dependency, "dep_kinds").iter().any(|kind| text(kind, "kind").is_empty());
            let used = text(dependency, "pkg");
            if is_linked && met.insert(used) {
                found.push((name(used), name(by)));
                next.push(used);
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
const ALLOWED: [(&str, &[&str]); 31] = [
    ("landfast-basics", &[]),
    ("landfast-pmem", &[]),
    ("landfast-flash", &["landfast-pmem"]),
    ("landfast-iwarp", &[]),
    ("landfast-smbdirect", &[]),
    ("landfast-rdma", &["landfast-basics", "landfast-pmem", "landfast-iwarp"]),
    ("landfast-remote", &["landfast-basics", "landfast-pmem", "landfast-rdma"]),
    ("landfast-smb", &["landfast-smbdirect"]),
    ("landfast-tree", &["landfast-basics", "landfast-pmem", "landfast-flash"]),
    (
        "landfast-server",
        &[
            "landfast-basics",
            "landfast-pmem",
            "landfast-flash",
            "landfast-rdma",
            "landfast-remote",
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
            "landfast-remote",
            "landfast-smb",
            "landfast-smbdirect",
        ],
    ),
    ("landfast-block", &["landfast-pmem"]),
    ("landfast-log", &["landfast-basics", "landfast-pmem", "landfast-remote", "landfast-block"]),
    ("landfast-volume", &["landfast-pmem", "landfast-block"]),
    ("landfast-nbd", &["landfast-block"]),
    ("landfast-fuse", &["landfast-block"]),
    ("landfast-ublk", &["landfast-block"]),
    ("landfast-logged", &["landfast-pmem", "landfast-smb", "landfast-client", "landfast-log"]),
    ("landfast-redb-backend", &["landfast-pmem", "landfast-logged"]),
    ("landfast-sqlite", &["landfast-smb", "landfast-client", "landfast-log", "landfast-logged"]),
    (
        "landfast-capi",
        &[
            "landfast-basics",
            "landfast-client",
            "landfast-pmem",
            "landfast-rdma",
            "landfast-smb",
            "landfast-store",
        ],
    ),
    ("landfast-python", &["landfast-client", "landfast-pmem", "landfast-smb", "landfast-store"]),
    (
        "landfast-replica",
        &[
            "landfast-basics",
            "landfast-pmem",
            "landfast-rdma",
            "landfast-remote",
            "landfast-block",
            "landfast-log",
        ],
    ),
    ("landfast-store", &["landfast-basics", "landfast-pmem", "landfast-rdma", "landfast-remote"]),
    ("landfast", LIBRARIES),
    ("landfast-fuzz-bodies", LIBRARIES),
    (
        "landfast-model",
        &[
            "landfast-basics",
            "landfast-client",
            "landfast-pmem",
            "landfast-rdma",
            "landfast-smb",
            "landfast-smbdirect",
        ],
    ),
    ("landfast-siw-peer", &["landfast-pmem", "landfast-rdma"]),
    // It compiles files of others once more, and depends on none.
    ("landfast-interleavings", &[]),
    // It runs programs as they are built, and knows nothing of what is in them; the decisions of replicated volumes it
    // runs itself.
    ("landfast-sim", &["landfast-basics", "landfast-replica"]),
    ("xtask", &[]),
];
const LIBRARIES: &[&str] = &[
    "landfast-basics",
    "landfast-pmem",
    "landfast-flash",
    "landfast-iwarp",
    "landfast-smbdirect",
    "landfast-rdma",
    "landfast-remote",
    "landfast-smb",
    "landfast-tree",
    "landfast-server",
    "landfast-client",
    "landfast-log",
    "landfast-block",
    "landfast-volume",
    "landfast-nbd",
    "landfast-fuse",
    "landfast-ublk",
    "landfast-logged",
    "landfast-redb-backend",
    "landfast-sqlite",
    "landfast-replica",
    "landfast-store",
];
/// Crates that take bytes and time and give bytes and deadlines.
const SANS_IO: [&str; 3] = ["landfast-iwarp", "landfast-smbdirect", "landfast-smb"];
/// Crates that reach sockets, files, clocks or threads.
const DOES_IO: [&str; 5] = ["tokio", "rustix", "libc", "mio", "socket2"];
/// Those of them that no package below a crate without I/O may be. The kernel's random numbers come through libc.
const MEETS_OTHERS: [&str; 4] = ["tokio", "rustix", "mio", "socket2"];

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

    #[test]
    fn a_package_that_does_io_is_found_below_a_crate_that_does_none() {
        let uses =
            |package: &str, kind: Value| json!({ "pkg": package, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [
                { "name": "landfast-smb", "id": "smb", "dependencies": [] },
                { "name": "between", "id": "between", "source": "registry" },
                { "name": "tokio", "id": "tokio", "source": "registry" },
                { "name": "rustix", "id": "rustix", "source": "registry" },
            ],
            "resolve": { "nodes": [
                { "id": "smb", "deps": [uses("between", Value::Null), uses("rustix", json!("dev"))] },
                { "id": "between", "deps": [uses("tokio", Value::Null)] },
            ] },
        });
        let found = violations(&metadata);
        assert!(found.len() == 1 && found[0].ends_with("tokio, through between"), "{found:?}");
    }
}
