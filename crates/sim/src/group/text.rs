//! A plan as text: its seed, and where it differs from the plan of that seed.

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::plan::{Plan, SECOND};

/// A number of a plan that may be another than its seed says.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) is: fn(&Plan) -> u64,
    pub(crate) set: fn(&mut Plan, u64),
    /// The least that a plan may have.
    pub(crate) least: u64,
}

impl Part {
    /// The part with a name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        PARTS.iter().find(|part| part.name == name)
    }
}

/// A text that is no plan, by the part that is wrong.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no part of a plan")]
pub(crate) struct Odd(String);

impl Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds = Self::of(self.seed);
        write!(f, "{}", self.seed)?;
        for Part { name, is, .. } in PARTS {
            let is = is(self);
            if is != (Part::named(name).map_or(0, |part| (part.is)(&seeds))) {
                write!(f, ",{name}={is}")?;
            }
        }
        write!(f, "{}", self.left_out)
    }
}

impl FromStr for Plan {
    type Err = Odd;

    fn from_str(text: &str) -> Result<Self, Odd> {
        let odd = |part: &str| Odd(part.to_owned());
        let (seed, parts) = text.split_once(',').unwrap_or((text, ""));
        let mut plan = Self::of(seed.parse().map_err(|_| odd(seed))?);
        for part in parts.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| odd(part))?;
            if name == "no" {
                plan.left_out.add_text(value).ok_or_else(|| odd(part))?;
                continue;
            }
            let of = Part::named(name).ok_or_else(|| odd(part))?;
            let value = value.parse().map_err(|_| odd(part))?;
            if value < of.least || (name == "members" && value > u64::from(plan.members)) {
                return Err(odd(part));
            }
            (of.set)(&mut plan, value);
        }
        Ok(plan)
    }
}

fn count(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

pub(crate) const PARTS: &[Part] = &[
    Part {
        name: "members",
        is: |plan| plan.members.into(),
        set: |plan, value| {
            plan.members = u8::try_from(value).unwrap_or(plan.members);
            plan.modes.truncate(count(value));
            plan.rates.truncate(count(value));
        },
        least: 2,
    },
    Part {
        name: "writers",
        is: |plan| plan.writers as u64,
        set: |plan, value| plan.writers = count(value),
        least: 1,
    },
    Part {
        name: "writes",
        is: |plan| plan.writes_max,
        set: |plan, value| plan.writes_max = value,
        least: 0,
    },
    Part {
        name: "lasts",
        is: |plan| plan.faults_for,
        set: |plan, value| plan.faults_for = value.min(LASTS_MAX),
        least: 1,
    },
    Part {
        name: "ways",
        is: |plan| plan.ways as u64,
        set: |plan, value| plan.ways = count(value),
        least: 1,
    },
    Part {
        name: "retention",
        is: |plan| plan.retention_ns,
        set: |plan, value| plan.retention_ns = value,
        least: 0,
    },
    Part {
        name: "slow",
        is: |plan| plan.slow_disk,
        set: |plan, value| plan.slow_disk = value,
        least: 1,
    },
    Part {
        name: "rots",
        is: |plan| plan.rots.into(),
        set: |plan, value| plan.rots = value > 0,
        least: 0,
    },
    Part {
        name: "late",
        is: |plan| plan.late_requests.into(),
        set: |plan, value| plan.late_requests = value > 0,
        least: 0,
    },
    Part {
        name: "one-sided",
        is: |plan| plan.one_sided.into(),
        set: |plan, value| plan.one_sided = value > 0,
        least: 0,
    },
    Part { name: "draws", is: |plan| plan.draws, set: |plan, value| plan.draws = value, least: 0 },
];

/// A plan lasts a day of its time at most.
const LASTS_MAX: u64 = 86_400 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrongs::Kind;

    #[test]
    fn a_plan_is_read_as_it_is_written() {
        for seed in 0..200 {
            let mut plan = Plan::of(seed);
            assert_eq!(plan.to_string(), seed.to_string());
            for part in PARTS {
                (part.set)(&mut plan, part.least + seed % 2);
            }
            (Part::named("members").unwrap().set)(&mut plan, 2);
            let crash = Kind::named("crash").unwrap();
            plan.left_out.add(crash, 3, 5);
            plan.left_out.add(crash, 9, u64::MAX);
            plan.left_out.add(Kind::named("cut").unwrap(), 0, u64::MAX);
            assert_eq!(plan.to_string().parse::<Plan>().unwrap(), plan);
        }
    }

    #[test]
    fn a_plan_with_a_part_that_is_none_is_refused_by_that_part() {
        for (text, part) in [
            ("x", "x"),
            ("1,colour=3", "colour=3"),
            ("1,members=9", "members=9"),
            ("1,writers=0", "writers=0"),
            ("1,no=rain", "no=rain"),
            ("1,no=crash:5", "no=crash:5"),
        ] {
            assert_eq!(text.parse::<Plan>(), Err(Odd(part.to_owned())), "{text}");
        }
    }
}
