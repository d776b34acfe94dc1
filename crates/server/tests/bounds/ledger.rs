//! The ledger of bounds says what the code says: `docs/limits.md` against `src/limits.rs`, the policy of push, and
//! the siege.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// One line of the ledger: its cells, without the first that names the resource.
struct Line {
    resource: String,
    constant: String,
    place: String,
    test: String,
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn lines() -> Vec<Line> {
    let text = fs::read_to_string(crates().parent().unwrap().join("docs/limits.md")).unwrap();
    let rows =
        text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| resource"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [resource, _whose, _bound, constant, place, test] = cells[..] else {
            panic!("six cells: {row}")
        };
        let [resource, constant, place, test] =
            [resource, constant, place, test].map(str::to_owned);
        Line { resource, constant: constant.replace('`', ""), place, test }
    })
    .collect()
}

/// Constants and fields of `limits.rs`, as the ledger names them.
fn known() -> BTreeSet<String> {
    let text = fs::read_to_string(crates().join("server/src/limits.rs")).unwrap();
    let constant = |line: &str| {
        let name = line.strip_prefix("pub(crate) const ")?;
        Some(name.split_once(':')?.0.to_owned())
    };
    let field = |line: &str| {
        let name = line.strip_prefix("    pub ")?;
        Some(format!("Limits::{}", name.split_once(':')?.0))
    };
    let known = text.lines().filter_map(|line| constant(line).or_else(|| field(line)));
    let config = fs::read_to_string(crates().join("server/src/config.rs")).unwrap();
    let push = config.split_once("pub struct PushPolicy").unwrap().1.split_once("\n}").unwrap().0;
    let push = push.lines().filter_map(|line| {
        let name = line.strip_prefix("    pub ")?.split_once(':')?.0;
        name.ends_with("_max").then(|| format!("PushPolicy::{name}"))
    });
    known.chain(push).collect()
}

#[test]
fn every_constant_stands_in_the_ledger_and_every_line_has_a_constant() {
    let in_ledger: BTreeSet<String> =
        lines().into_iter().map(|line| line.constant).filter(|name| !name.contains('/')).collect();
    assert_eq!(in_ledger, known());
}

#[test]
fn constants_of_other_places_are_where_the_ledger_says() {
    for Line { constant, .. } in lines() {
        let Some((file, name)) = constant.split_once(".rs:") else { continue };
        let text = fs::read_to_string(crates().join(format!("{file}.rs"))).unwrap();
        assert!(text.contains(&format!("const {name}:")), "{constant}");
    }
}

#[test]
fn bounds_are_enforced_in_files_that_there_are() {
    for Line { resource, place, .. } in lines() {
        for file in place.split(", ").map(|file| file.trim_matches('`')) {
            let is_there = crates().join("server/src").join(file).exists();
            assert!(is_there || crates().join(file).exists(), "{resource}: {file}");
        }
    }
}

#[test]
fn every_test_in_the_ledger_is_there() {
    let mut source = String::new();
    gather(&crates(), &mut source);
    for Line { resource, test, .. } in lines() {
        if test != "**pending**" {
            let name = test.trim_matches('`');
            assert!(source.contains(&format!("fn {name}()")), "{resource}: {name}");
        }
    }
}

fn gather(folder: &Path, source: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(&path, source);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            source.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn the_siege_ends_where_the_ledger_says() {
    let mut source = String::new();
    gather(&crates().join("server/examples/siege"), &mut source);
    let known: BTreeSet<String> = lines().into_iter().map(|line| line.constant).collect();
    let at = source.split("at: \"").skip(1).filter_map(|rest| rest.split('"').next());
    let named: Vec<&str> = at.collect();
    assert!(named.len() > 15, "{named:?}");
    for name in named {
        assert!(known.contains(name), "{name}");
    }
}
