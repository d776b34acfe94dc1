//! What a run does: decided by its seed, written as one line, and made smaller where it fails.

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::chance::Chance;
use crate::disk::Wear;
use crate::failure::Failure;
use crate::machine::Conditions;
use crate::net::Weather;

/// What a run does. All times are of the run's own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) work: Work,
    pub(crate) clients: u64,
    /// How long the clients work, in milliseconds.
    pub(crate) lasts: u64,
    pub(crate) switch_one_in: u64,
    pub(crate) cut_one_in: u64,
    pub(crate) silence_one_in: u64,
    pub(crate) error_one_in: u64,
    /// The slowest flush, in microseconds.
    pub(crate) slowest: u64,
    /// When the server is killed, in milliseconds after the clients have begun.
    pub(crate) kills: Vec<u64>,
    /// When the server gets no processor for a while, in milliseconds: from, and for how long.
    pub(crate) pauses: Vec<(u64, u64)>,
}

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// `model`: anything, over TCP and SMB Direct, held against a model.
    Smb,
    /// `commit_stream`: pushed commits, then a power failure.
    Push,
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let chance = Chance::new(seed, 10);
        let work = if chance.happens(1, 4) { Work::Push } else { Work::Smb };
        let (clients, lasts) = match work {
            Work::Smb => (1 + chance.below(4), chance.skewed(20, 160)),
            Work::Push => (1, 0),
        };
        // Some plans are kind: a fault of one kind is not hidden behind those of another.
        let one_in = |chance: &Chance, from, to| {
            if chance.happens(1, 2) { chance.skewed(from, to) } else { 0 }
        };
        let times =
            |count: u64| (0..count).map(|_| 1 + chance.below(lasts.max(40))).collect::<Vec<_>>();
        let mut kills = times(chance.below(3));
        kills.sort_unstable();
        let pauses =
            times(chance.below(3)).into_iter().map(|at| (at, chance.skewed(1, 8_000))).collect();
        Self {
            seed,
            work,
            clients,
            lasts,
            switch_one_in: chance.skewed(2, 64),
            cut_one_in: one_in(&chance, 64, 2_048),
            silence_one_in: one_in(&chance, 128, 4_096),
            error_one_in: if work == Work::Push { one_in(&chance, 16, 512) } else { 0 },
            slowest: chance.skewed(20, 50_000),
            kills,
            pauses,
        }
    }

    /// What the machine is told of the plan.
    pub(crate) fn conditions(&self) -> Conditions {
        let Self { seed, switch_one_in, cut_one_in, silence_one_in, error_one_in, slowest, .. } =
            *self;
        let weather = Weather { cut_one_in, silence_one_in };
        Conditions {
            seed,
            switch_one_in,
            weather,
            wear: Wear { error_one_in, slowest: slowest * 1_000 },
        }
    }

    /// Plans with less in them, the smallest first. A fault that one of them still shows is easier to read.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut smaller = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut plan = self.clone();
            change(&mut plan);
            if plan != *self {
                smaller.push(plan);
            }
        };
        with(&|plan| (plan.kills, plan.pauses) = (Vec::new(), Vec::new()));
        with(&|plan| (plan.cut_one_in, plan.silence_one_in, plan.error_one_in) = (0, 0, 0));
        with(&|plan| plan.clients = 1);
        with(&|plan| plan.lasts /= 2);
        with(&|plan| plan.clients = (plan.clients - 1).max(1));
        with(&|plan| plan.lasts = plan.lasts * 3 / 4);
        with(&|plan| plan.kills.truncate(plan.kills.len().saturating_sub(1)));
        with(&|plan| plan.pauses.truncate(plan.pauses.len().saturating_sub(1)));
        with(&|plan| plan.cut_one_in = 0);
        with(&|plan| plan.silence_one_in = 0);
        with(&|plan| plan.error_one_in = 0);
        with(&|plan| plan.slowest = 20);
        smaller
    }
}

impl Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = if self.work == Work::Smb { "smb" } else { "push" };
        write!(f, "seed={},work={work},clients={},lasts={}", self.seed, self.clients, self.lasts)?;
        write!(f, ",switch={},cut={}", self.switch_one_in, self.cut_one_in)?;
        write!(f, ",silence={},error={}", self.silence_one_in, self.error_one_in)?;
        write!(f, ",slowest={}", self.slowest)?;
        self.kills.iter().try_for_each(|at| write!(f, ",kill={at}"))?;
        self.pauses.iter().try_for_each(|(at, length)| write!(f, ",pause={at}+{length}"))
    }
}

impl FromStr for Plan {
    type Err = Failure;

    /// A number alone is a seed; otherwise what [`Display`] writes.
    fn from_str(text: &str) -> Result<Self, Failure> {
        if let Ok(seed) = text.parse() {
            return Ok(Self::of(seed));
        }
        let odd = |part: &str| Failure::Usage(format!("`{part}` is no part of a plan"));
        let number = |part: &str, text: &str| text.parse::<u64>().map_err(|_| odd(part));
        let mut plan = Self::of(0);
        (plan.kills, plan.pauses) = (Vec::new(), Vec::new());
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| odd(part))?;
            match (name, value) {
                ("work", "smb") => plan.work = Work::Smb,
                ("work", "push") => plan.work = Work::Push,
                ("kill", at) => plan.kills.push(number(part, at)?),
                ("pause", span) => {
                    let (at, length) = span.split_once('+').ok_or_else(|| odd(part))?;
                    plan.pauses.push((number(part, at)?, number(part, length)?));
                }
                _ => {
                    let place = match name {
                        "seed" => &mut plan.seed,
                        "clients" => &mut plan.clients,
                        "lasts" => &mut plan.lasts,
                        "switch" => &mut plan.switch_one_in,
                        "cut" => &mut plan.cut_one_in,
                        "silence" => &mut plan.silence_one_in,
                        "error" => &mut plan.error_one_in,
                        "slowest" => &mut plan.slowest,
                        _ => return Err(odd(part)),
                    };
                    *place = number(part, value)?;
                }
            }
        }
        if plan.switch_one_in == 0 || plan.clients == 0 {
            return Err(Failure::Usage("`switch` and `clients` are at least 1".into()));
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_is_written() {
        for seed in 0..1_000 {
            let plan = Plan::of(seed);
            assert_eq!(plan.to_string().parse::<Plan>().unwrap(), plan);
        }
    }

    #[test]
    fn a_plan_with_a_part_that_is_none_is_refused_by_that_part() {
        for (text, part) in [("seed=1,colour=3", "colour=3"), ("seed=x", "seed=x"), ("1,2", "1")] {
            let refused = text.parse::<Plan>().unwrap_err().to_string();
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn smaller_plans_come_to_an_end() {
        let mut plan = Plan::of(3);
        for _ in 0..100 {
            let Some(smaller) = plan.smaller().into_iter().next() else { return };
            plan = smaller;
        }
        panic!("{plan} is still not the smallest");
    }
}
