//! How far asynchronous members are behind: the age of the oldest write that they lack, as the records say.

use crate::core::{Core, Mode, News};
use crate::names::MemberSet;

/// How far asynchronous members may be behind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rpo {
    /// The oldest write that one lacks is at most so old, in nanoseconds.
    pub age_ns: u64,
    /// Writers wait while a member that is connected lacks older ones.
    pub throttles: bool,
}

/// Who is further behind than that.
#[derive(Debug)]
pub(super) struct Lag {
    rpo: Option<Rpo>,
    behind: MemberSet,
    /// New writes wait.
    pub(super) holds: bool,
}

impl Lag {
    pub(super) const fn new(rpo: Option<Rpo>) -> Self {
        Self { rpo, behind: MemberSet::NONE, holds: false }
    }

    /// Takes another bound; with none nobody is held up any more.
    pub(super) fn set(&mut self, rpo: Option<Rpo>) {
        self.rpo = rpo;
        self.holds &= rpo.is_some_and(|rpo| rpo.throttles);
        if rpo.is_none() {
            self.behind = MemberSet::NONE;
        }
    }

    /// What has changed since it was looked last, and whether writers that wait may go on.
    pub(super) fn look(&mut self, core: &Core, time_ns: u64) -> (Vec<News>, bool) {
        let Some(rpo) = self.rpo else { return (Vec::new(), false) };
        let (modes, mut news, mut holds) = (core.modes(), Vec::new(), false);
        let others = if core.is_source() { core.status().others } else { Vec::new() };
        for (member, state) in &others {
            if !modes.contains(&(*member, Mode::Async)) {
                continue;
            }
            let age_ns = state.lacks_since_ns.map_or(0, |since| time_ns.saturating_sub(since));
            let is_behind = age_ns > rpo.age_ns;
            holds |= is_behind && rpo.throttles && state.is_connected && !state.is_copying;
            if is_behind == self.behind.contains(*member) {
                continue;
            }
            if is_behind {
                self.behind = self.behind.with(*member);
                news.push(News::RpoExceeded(*member, age_ns / 1_000_000));
            } else {
                self.behind = self.behind.without(*member);
                news.push(News::RpoMet(*member));
            }
        }
        if others.is_empty() {
            self.behind = MemberSet::NONE;
        }
        let may_go_on = std::mem::replace(&mut self.holds, holds) && !holds;
        (news, may_go_on)
    }
}
