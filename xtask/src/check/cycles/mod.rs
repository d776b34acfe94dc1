//! Files of one crate that import from each other in a cycle: none of them can be understood, tested or moved
//! without the others.
//!
//! ```text
//! a.rs --> b.rs --> c.rs       an import, or a path in the code; through re-exports to the file of the definition
//!            ^        |
//!            +--------+        b.rs and c.rs are a cycle of two files
//! ```
//!
//! A module that only passes a name on (`pub use`) does not import it. Code below `#[cfg(test)]` is not looked at.
//! Methods are not seen: a file reaches what its imports reach.

mod listed;
mod modules;
mod source;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::check::texts::Texts;
use listed::{LISTED, Listed};
use modules::{Modules, Uses};

/// Cycles that are not listed, and those whose number of files is not the listed one.
pub(super) fn faults(texts: &Texts) -> Vec<String> {
    faults_but(texts, &LISTED)
}

fn faults_but(texts: &Texts, listed: &[Listed]) -> Vec<String> {
    let by_path: BTreeMap<&Path, &str> =
        texts.0.iter().map(|(path, text)| (path.as_path(), text.as_str())).collect();
    let is_top = |path: &Path| TOPS.iter().any(|top| path.ends_with(top));
    let mut found = Vec::new();
    let mut met = vec![false; listed.len()];
    for top in by_path.keys().filter(|path| is_top(path)) {
        let uses = Modules::read(top, |path| by_path.get(path).copied()).uses();
        for cycle in cycles(&uses) {
            let is_it = |one: &Listed| cycle.contains(Path::new(one.member));
            let place = listed.iter().position(is_it);
            let allowed = place.map_or(1, |place| listed[place].files);
            if let Some(place) = place {
                met[place] = true;
            }
            if cycle.len() > allowed {
                found.push(format!("{allowed} allowed: {}", shown(&cycle, &uses)));
            } else if cycle.len() < allowed {
                let first = cycle.first().expect("a cycle has files").display();
                let len = cycle.len();
                found.push(format!(
                    "{first}: {len} files are left in the cycle: list {len}, not {allowed}"
                ));
            }
        }
    }
    let gone = listed.iter().zip(met).filter(|(_, met)| !met);
    found.extend(gone.map(|(one, _)| format!("{}: in no cycle ({})", one.member, one.reason)));
    found
}

/// The sets of files each of which leads to all others of its set.
fn cycles(uses: &Uses) -> Vec<BTreeSet<&Path>> {
    let reach: BTreeMap<&Path, _> =
        uses.keys().map(|file| (file.as_path(), reached(file, uses))).collect();
    let mut found: Vec<BTreeSet<&Path>> = Vec::new();
    for (file, reached) in &reach {
        if !reached.contains(file) || found.iter().any(|cycle| cycle.contains(file)) {
            continue;
        }
        let leads_back =
            |other: &&&Path| reach.get(**other).is_some_and(|reached| reached.contains(file));
        found.push(reached.iter().filter(leads_back).copied().collect());
    }
    found
}

/// The files that a file leads to, itself only if it is in a cycle.
fn reached<'u>(from: &'u Path, uses: &'u Uses) -> BTreeSet<&'u Path> {
    let (mut met, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        let to = uses.get(file).into_iter().flat_map(BTreeMap::keys);
        next.extend(to.map(PathBuf::as_path).filter(|to| met.insert(*to)));
    }
    met
}

// The files of a cycle with what each takes from which other.
fn shown(cycle: &BTreeSet<&Path>, uses: &Uses) -> String {
    let mut text = format!("a cycle of {} files", cycle.len());
    for file in cycle {
        let inside =
            uses.get(*file).into_iter().flatten().filter(|(to, _)| cycle.contains(to.as_path()));
        for (to, names) in inside {
            let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            text += &format!("\n      {} -> {}: {names}", file.display(), to.display());
        }
    }
    text
}

/// The top modules of crates.
const TOPS: [&str; 2] = ["src/lib.rs", "src/main.rs"];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)], listed: &[Listed]) -> Vec<String> {
        let file = |(name, text): &(&str, &str)| {
            (Path::new("crates/c/src").join(name), (*text).to_owned())
        };
        faults_but(&Texts(files.iter().map(file).collect()), listed)
    }

    fn listed(files: usize) -> [Listed; 1] {
        [Listed { member: "crates/c/src/b.rs", files, reason: "they are one state" }]
    }

    const CYCLE: [(&str, &str); 4] = [
        ("lib.rs", "mod a; mod b; mod c; pub use a::A;"),
        ("a.rs", "use super::b::B; pub struct A;"),
        ("b.rs", "use crate::c; pub struct B; fn f(_: c::C) {}"),
        ("c.rs", "use super::A; pub struct C;"),
    ];

    #[test]
    fn a_cycle_is_found_through_a_name_that_is_passed_on() {
        let found = of(&CYCLE, &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        let expected = "1 allowed: a cycle of 3 files
      crates/c/src/a.rs -> crates/c/src/b.rs: B
      crates/c/src/b.rs -> crates/c/src/c.rs: C, c
      crates/c/src/c.rs -> crates/c/src/a.rs: A";
        assert_eq!(found[0], expected);
    }

    #[test]
    fn a_listed_cycle_may_have_its_size_and_no_other() {
        assert_eq!(of(&CYCLE, &listed(3)), [""; 0]);
        let larger = of(&CYCLE, &listed(2));
        assert!(
            larger.len() == 1 && larger[0].starts_with("2 allowed: a cycle of 3"),
            "{larger:?}"
        );
        let smaller = of(&CYCLE, &listed(4));
        assert!(smaller.len() == 1 && smaller[0].ends_with("list 3, not 4"), "{smaller:?}");
        let gone = of(&CYCLE[..3], &listed(3));
        assert_eq!(gone, ["crates/c/src/b.rs: in no cycle (they are one state)"]);
    }

    #[test]
    fn files_that_import_downwards_are_no_cycle() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::{A, f}; pub use b::deep::*;"),
            ("a.rs", "use super::b::{B, deep}; #[cfg(test)] mod tests { use crate::A; }"),
            ("b/mod.rs", "pub mod deep; pub struct B; fn g() { self::deep::h() }"),
            ("b/deep.rs", "pub fn h() {} pub struct D;"),
        ];
        assert_eq!(of(&files, &[]), [""; 0]);
    }

    #[test]
    fn a_path_in_the_code_is_an_import_too() {
        let files = [
            ("lib.rs", "mod a; mod b; pub struct L; fn f() { b::g() }"),
            ("a.rs", "fn g() -> crate::L { super::b::h() }"),
            ("b.rs", "mod inner { fn h(_: super::super::a::A) {} }"),
        ];
        let found = of(&files, &[]);
        assert!(found.len() == 1 && found[0].starts_with("1 allowed: a cycle of 3"), "{found:?}");
    }
}
