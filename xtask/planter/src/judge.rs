//! What becomes of one mutant: the tests that reach it run with it, until one fails.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::build::Binary;
use crate::tests::{End, Test, run};

/// The tests that may find mutants.
#[derive(Debug)]
pub(crate) struct Judge<'a> {
    pub(crate) binaries: &'a [Binary],
    pub(crate) tests: &'a [Test],
    /// Packages whose tests may find mutants of others.
    pub(crate) also: &'a [String],
    pub(crate) reaching: HashMap<u32, Vec<usize>>,
    /// What a test gets at least.
    pub(crate) limit: Duration,
}

/// What became of a mutant.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// By this test.
    Caught(usize),
    /// By this test, which did not end.
    Timeout(usize),
    Missed,
    /// No test comes to the place.
    Unreached,
}

impl Judge<'_> {
    /// Judges a mutant of a package, in a file. `guess`: tests that found others nearby.
    pub(crate) fn judge(&self, id: u32, package: &str, file: &str, guess: &[usize]) -> Verdict {
        let Some(reaching) = self.reaching.get(&id) else { return Verdict::Unreached };
        let of = |index: usize| &self.binaries[self.tests[index].binary].package;
        let counts = |index: &usize| of(*index) == package || self.also.contains(of(*index));
        let mut own: Vec<usize> = reaching.iter().copied().filter(counts).collect();
        // Those of the package first, of these the ones of the file's own module: they fail where others wait for ever. Each part
        // the quickest first.
        let module = module_of(file);
        let is_beside = |index: &usize| self.tests[*index].name.starts_with(&module);
        own.sort_by_key(|index| (of(*index) != package, !is_beside(index)));
        if own.is_empty() {
            return Verdict::Unreached;
        }
        let mut order: Vec<usize> =
            guess.iter().filter(|index| own.contains(index)).copied().collect();
        order.extend(own.iter().filter(|index| !guess.contains(index)).take(ALONE));
        for index in &order {
            if let Some(verdict) = self.alone(id, *index) {
                return verdict;
            }
        }
        // The rest by program: starting a process for each would take longer than the tests.
        let mut by_binary: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for index in own.into_iter().filter(|index| !order.contains(index)) {
            by_binary.entry(self.tests[index].binary).or_default().push(index);
        }
        for (binary, indices) in by_binary {
            let names: Vec<&String> =
                indices.iter().map(|index| &self.tests[*index].name).collect();
            let took: Duration = indices.iter().map(|index| self.tests[*index].took()).sum();
            if self.run(id, binary, &names, took) == End::Passed {
                continue;
            }
            for index in indices {
                if let Some(verdict) = self.alone(id, index) {
                    return verdict;
                }
            }
        }
        Verdict::Missed
    }

    // A test finds a mutant if it fails with it twice in at most three runs: chance is not a test.
    fn alone(&self, id: u32, index: usize) -> Option<Verdict> {
        let test = &self.tests[index];
        let again = || self.run(id, test.binary, &[&test.name], test.took());
        let first = again();
        if first == End::Passed {
            return None;
        }
        // The limit leaves nothing to chance, and is long.
        if first == End::Failed && again() == End::Passed && again() == End::Passed {
            return None;
        }
        Some(if first == End::Stopped { Verdict::Timeout(index) } else { Verdict::Caught(index) })
    }

    fn run(&self, id: u32, binary: usize, names: &[&String], took: Duration) -> End {
        let limit = took * 3 + self.limit;
        run(&self.binaries[binary], names, Some(("LANDFAST_MUTANT", &id.to_string())), limit)
    }
}

/// How names of tests begin that are in the module of a file.
fn module_of(file: &str) -> String {
    let inside = file.split_once("/src/").map_or(file, |(_, inside)| inside);
    let path = inside.trim_end_matches(".rs").trim_end_matches("/mod");
    format!("{}::", path.replace('/', "::"))
}

/// How many tests run in a process of their own before the rest shares one.
const ALONE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tests_begin_with_the_module_of_their_file() {
        assert_eq!(module_of("crates/rdma/src/soft/deferral.rs"), "soft::deferral::");
        assert_eq!(module_of("crates/rdma/src/soft/batch/mod.rs"), "soft::batch::");
    }
}
