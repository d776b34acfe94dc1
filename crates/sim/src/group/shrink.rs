//! A plan that fails is made smaller as long as the same fault stays: fewer members, less that goes wrong, fewer writes.
//!
//! Whatever is taken out, the rest happens at other times, as all of it takes draws of one kind. So each smaller plan is tried with a
//! few draws. What goes wrong has draws of its own: those that are left are the same, to the last byte of a disk that dies.

use crate::plan::Plan;
use crate::sums::Sums;
use crate::text::Part;
use crate::world::{Tells, World};
use crate::wrongs::Kind;

/// A plan, and how it fails.
#[derive(Clone, Debug)]
pub(crate) struct Failing {
    pub(crate) plan: Plan,
    pub(crate) fault: String,
    pub(crate) sums: Sums,
    /// Runs that it took to find.
    pub(crate) runs: u64,
}

impl Failing {
    /// The plan as it is, if it fails.
    pub(crate) fn of(plan: Plan) -> Option<Self> {
        let ran = std::panic::catch_unwind(|| World::run(&plan, Tells::Nothing));
        let (fault, sums) = match ran {
            Ok((Ok(()), _)) => return None,
            Ok((Err(fault), sums)) => (fault, sums),
            Err(_) => ("a panic".to_owned(), Sums::default()),
        };
        Some(Self { plan, fault, sums, runs: 1 })
    }

    /// The smallest plan that was found to fail in the same way.
    pub(crate) fn shrunk(mut self) -> Self {
        self.ends_early();
        loop {
            let before = self.plan.clone();
            for (name, to) in SIMPLER {
                self.take(|plan| set(plan, name, *to), DRAWS);
            }
            for kind in Kind::all() {
                self.take(|plan| plan.left_out.add(kind, 0, u64::MAX), DRAWS);
            }
            self.leave_out_some();
            self.write_less();
            self.ends_early();
            if self.plan == before || self.runs >= RUNS_MAX {
                return self;
            }
        }
    }

    // Takes the smaller plan if it fails in the same way, with one of some draws.
    fn take(&mut self, change: impl Fn(&mut Plan), draws: u64) -> bool {
        let mut smaller = self.plan.clone();
        change(&mut smaller);
        if smaller == self.plan {
            return false;
        }
        for more in 0..draws {
            if self.runs >= RUNS_MAX {
                return false;
            }
            self.runs += 1;
            let plan = Plan { draws: self.plan.draws + more, ..smaller.clone() };
            let same = Self::of(plan).filter(|found| kind(&found.fault) == kind(&self.fault));
            if let Some(found) = same {
                *self = Self { runs: self.runs, ..found };
                return true;
            }
        }
        false
    }

    // The faults end where it fails, if it does before.
    fn ends_early(&mut self) {
        let at = self.fault.strip_prefix("at ").and_then(|rest| rest.split_once(" us: "));
        if let Some(at) = at.and_then(|(at, _)| at.parse::<u64>().ok()) {
            self.take(|plan| plan.faults_for = plan.faults_for.min((at + 1) * 1000), 1);
        }
        self.take(|plan| plan.faults_for = plan.faults_for / 2 + 1, DRAWS);
    }

    // Halves, quarters, ... of what goes wrong, down to one by one.
    fn leave_out_some(&mut self) {
        for kind in Kind::all() {
            let mut part = kind.count(&self.sums.wrongs).next_power_of_two();
            while part > 0 {
                let mut from = 0;
                while from < kind.count(&self.sums.wrongs) {
                    let to = from + part;
                    if !self.plan.left_out.has_all(kind, from, to) {
                        self.take(|plan| plan.left_out.add(kind, from, to), FEW_DRAWS);
                    }
                    from = to;
                }
                part /= 2;
            }
            // What would come later does not come.
            let count = kind.count(&self.sums.wrongs);
            self.take(|plan| plan.left_out.add(kind, count, u64::MAX), 1);
        }
    }

    fn write_less(&mut self) {
        let written = self.sums.written;
        self.take(|plan| plan.writes_max = plan.writes_max.min(written), 1);
        for (parts, of) in [(1, 2), (3, 4), (7, 8)] {
            while self.plan.writes_max > of
                && self.take(|plan| plan.writes_max = plan.writes_max / of * parts, DRAWS)
            {
            }
        }
    }
}

fn set(plan: &mut Plan, name: &str, value: u64) {
    if let Some(part) = Part::named(name)
        && value < (part.is)(plan)
    {
        (part.set)(plan, value);
    }
}

/// A fault without its numbers, and what comes behind its first sentence: two that are equal are the same fault.
pub(crate) fn kind(fault: &str) -> String {
    let first = fault.find([';', '[', '{']).map_or(fault, |at| &fault[..at]);
    let mut words = String::new();
    for sign in first.chars() {
        match sign.is_ascii_hexdigit() && (sign.is_ascii_digit() || words.ends_with("0x")) {
            true if words.ends_with('#') => {}
            true if words.ends_with("0x") => words.push('#'),
            true => words.push('#'),
            false => words.push(sign),
        }
    }
    words
}

/// What is tried first: parts of a plan with less in them.
const SIMPLER: &[(&str, u64)] = &[
    ("members", 2),
    ("ways", 1),
    ("rots", 0),
    ("late", 0),
    ("retention", 0),
    ("slow", 1),
    ("one-sided", 0),
    ("writers", 1),
    ("writers", 2),
    ("writers", 3),
];
/// Draws that each smaller plan is tried with, where much changes and where little does.
const DRAWS: u64 = 8;
const FEW_DRAWS: u64 = 3;
/// Runs of one plan that is made smaller.
const RUNS_MAX: u64 = 3000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_that_differ_in_numbers_alone_are_the_same() {
        let one = "at 12 us: member 0 begins as source: cell 47 holds write 0; acknowledged is 162";
        let two = "at 7 us: member 2 begins as source: cell 3 holds write 91; acknowledged is 1";
        assert_eq!(kind(one), kind(two));
        assert_ne!(kind(one), kind("at rest member 1 differs from the source in cell Some(4)"));
    }
}
