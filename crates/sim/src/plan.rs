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
    /// Clients of the model.
    pub(crate) clients: u64,
    /// How long they work, in milliseconds.
    pub(crate) lasts: u64,
    /// How often the file that is pushed changes hands.
    pub(crate) rounds: u64,
    pub(crate) switch_one_in: u64,
    pub(crate) cut_one_in: u64,
    pub(crate) silence_one_in: u64,
    pub(crate) late_one_in: u64,
    pub(crate) half_one_in: u64,
    pub(crate) error_one_in: u64,
    pub(crate) full_one_in: u64,
    pub(crate) slow_one_in: u64,
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
    /// `rivals`: clients that push a file and take it from each other; power failures.
    Rivals,
    /// `model` and `rivals` side by side.
    All,
}

impl Work {
    const ALL: [(Self, &str); 4] =
        [(Self::Smb, "smb"), (Self::Push, "push"), (Self::Rivals, "rivals"), (Self::All, "all")];

    /// Whether clients of the model are among those who work.
    pub(crate) fn has_model(self) -> bool {
        matches!(self, Self::Smb | Self::All)
    }

    /// Whether a pushed file changes hands.
    pub(crate) fn has_rivals(self) -> bool {
        matches!(self, Self::Rivals | Self::All)
    }
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let chance = Chance::new(seed, 10);
        let work = match chance.below(8) {
            0..3 => Work::Smb,
            3 => Work::Push,
            4..7 => Work::Rivals,
            _ => Work::All,
        };
        let (clients, lasts) = match work {
            Work::Smb => (1 + chance.below(4), chance.skewed(20, 160)),
            Work::All => (1 + chance.below(2), chance.skewed(20, 80)),
            Work::Push | Work::Rivals => (1, 0),
        };
        let rounds = if work.has_rivals() { 1 + chance.below(3) } else { 0 };
        // Some plans are kind: a fault of one kind is not hidden behind those of another.
        let one_in = |chance: &Chance, from, to| {
            if chance.happens(1, 2) { chance.skewed(from, to) } else { 0 }
        };
        // A round has fewer parcels than the clients of the model send.
        let rare = |from: u64| if work == Work::Rivals { from / 4 } else { from };
        // A round of rivals lasts half a minute, most of which is waiting.
        let time = || match work {
            Work::Rivals => chance.skewed(1, 60_000),
            _ => 1 + chance.below(lasts.max(40)),
        };
        let times = |count: u64| (0..count).map(|_| time()).collect::<Vec<_>>();
        let mut kills = times(chance.below(3));
        kills.sort_unstable();
        let pauses =
            times(chance.below(3)).into_iter().map(|at| (at, chance.skewed(1, 8_000))).collect();
        Self {
            seed,
            work,
            clients,
            lasts,
            rounds,
            switch_one_in: chance.skewed(2, 64),
            cut_one_in: one_in(&chance, rare(64), 2_048),
            silence_one_in: one_in(&chance, rare(128), 4_096),
            late_one_in: one_in(&chance, 4, 256),
            half_one_in: one_in(&chance, rare(256), 4_096),
            error_one_in: if work.has_model() { 0 } else { one_in(&chance, 16, 512) },
            full_one_in: one_in(&chance, 4, 256),
            slow_one_in: one_in(&chance, 2, 256),
            slowest: chance.skewed(20, 50_000),
            kills,
            pauses,
        }
    }

    /// What the machine is told of the plan.
    pub(crate) fn conditions(&self) -> Conditions {
        let Self { seed, switch_one_in, cut_one_in, silence_one_in, late_one_in, .. } = *self;
        let Self { half_one_in, error_one_in, full_one_in, slow_one_in, slowest, .. } = *self;
        let weather = Weather { cut_one_in, silence_one_in, late_one_in, half_one_in };
        let wear = Wear { error_one_in, slowest: slowest * 1_000, full_one_in, slow_one_in };
        Conditions { seed, switch_one_in, weather, wear }
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
        with(&|plan| (plan.cut_one_in, plan.silence_one_in, plan.half_one_in) = (0, 0, 0));
        with(&|plan| (plan.error_one_in, plan.full_one_in, plan.late_one_in) = (0, 0, 0));
        with(&|plan| plan.clients = 1);
        with(&|plan| plan.lasts /= 2);
        with(&|plan| plan.clients = (plan.clients - 1).max(1));
        with(&|plan| plan.lasts = plan.lasts * 3 / 4);
        with(&|plan| plan.rounds = plan.rounds.min(1));
        with(&|plan| plan.rounds = (plan.rounds - plan.rounds.min(1)).max(plan.rounds.min(1)));
        with(&|plan| plan.kills.truncate(plan.kills.len().saturating_sub(1)));
        with(&|plan| plan.pauses.truncate(plan.pauses.len().saturating_sub(1)));
        with(&|plan| plan.cut_one_in = 0);
        with(&|plan| plan.silence_one_in = 0);
        with(&|plan| plan.late_one_in = 0);
        with(&|plan| plan.half_one_in = 0);
        with(&|plan| plan.error_one_in = 0);
        with(&|plan| plan.full_one_in = 0);
        with(&|plan| plan.slow_one_in = 0);
        with(&|plan| plan.slowest = 20);
        smaller
    }
}

impl Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work =
            Work::ALL.iter().find(|(work, _)| *work == self.work).map_or("", |(_, name)| name);
        write!(f, "seed={},work={work},clients={},lasts={}", self.seed, self.clients, self.lasts)?;
        write!(f, ",rounds={},switch={},cut={}", self.rounds, self.switch_one_in, self.cut_one_in)?;
        write!(f, ",silence={},late={}", self.silence_one_in, self.late_one_in)?;
        write!(f, ",half={},error={}", self.half_one_in, self.error_one_in)?;
        write!(f, ",full={},slow={}", self.full_one_in, self.slow_one_in)?;
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
                ("work", value) => {
                    let known = Work::ALL.iter().find(|(_, name)| *name == value);
                    plan.work = known.ok_or_else(|| odd(part))?.0;
                }
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
                        "rounds" => &mut plan.rounds,
                        "switch" => &mut plan.switch_one_in,
                        "cut" => &mut plan.cut_one_in,
                        "silence" => &mut plan.silence_one_in,
                        "late" => &mut plan.late_one_in,
                        "half" => &mut plan.half_one_in,
                        "error" => &mut plan.error_one_in,
                        "full" => &mut plan.full_one_in,
                        "slow" => &mut plan.slow_one_in,
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
