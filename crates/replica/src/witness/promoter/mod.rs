//! Decides when this member becomes the source by itself, when it is to be none, and when what runs on its volumes
//! starts and stops.
//!
//! Events and the time go in, decisions come out; there is no clock, thread or socket here. Every member runs one. They
//! need not agree: of two that promote themselves, the witness takes one, and only a member in sync.
//!
//! ```text
//!   destination    the recorded source is gone, for patience + turn x (candidates before this one)  ->  Promote
//!   source         another has the seat                                ->  Demote, StopUnits
//!                  neither witness nor members for long                ->  Demote, StopUnits
//!                  another is preferred, or units do not start here    ->  StopUnits, then HandOver
//!   source, ready                                                      ->  StartUnits
//! ```
//!
//! Candidates are those in sync at the witness that say that they are fit: the one whose order ends furthest first, then the preferred
//! one, then the one with the lowest number. A source is gone when its key is, and no connection from it is here: with
//! one, the group works, whatever etcd can see.

use log::Lsn;

use super::alive::{Alive, Sight};
use super::seat::Seat;
use crate::core::Status;
use crate::names::{Epoch, MemberId, MemberSet};

/// What an operator decides about promotion that nobody asks for. Times are nanoseconds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PromoterConfig {
    /// This member.
    pub me: MemberId,
    /// The source has to be gone for so long.
    pub patience_ns: u64,
    /// Each candidate before this one has so much more time.
    pub turn_ns: u64,
    /// Who is to be the source of those that are as good, the most wanted first.
    pub preference: Vec<MemberId>,
    /// A source hands over to a member that is preferred to it once that one has been in sync for so long.
    pub fails_back_ns: Option<u64>,
    /// A source that sees neither the witness nor any other member in sync for so long is to be none: another may have its
    /// part, and what it lets be read may be old.
    pub gives_up_ns: Option<u64>,
}

impl PromoterConfig {
    /// For a lease of 5 s: another member is the source some 8 s after a machine has died.
    pub fn new(me: MemberId) -> Self {
        let (second, preference) = (1_000_000_000, Vec::new());
        let (patience_ns, turn_ns) = (2 * second, 3 * second);
        let gives_up_ns = Some(20 * second);
        Self { me, patience_ns, turn_ns, preference, fails_back_ns: None, gives_up_ns }
    }

    // The most wanted is 0.
    fn place(&self, member: MemberId) -> usize {
        self.preference.iter().position(|it| *it == member).unwrap_or(self.preference.len())
    }
}

/// What this member is, as its core says.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Standing {
    /// The newest epoch that it knows.
    pub epoch: Epoch,
    /// Where its next record goes.
    pub end: Lsn,
    /// Whether it is the source, or begins to be.
    pub is_source: bool,
    /// Whether writers may come.
    pub is_ready: bool,
    /// Whether it is on the way to be the source.
    pub is_promoting: bool,
    /// Whether it can be the source.
    pub may_be_source: bool,
    /// The source whose connection is here.
    pub follows: Option<MemberId>,
    /// Who is in sync, as far as it knows.
    pub in_sync: MemberSet,
    /// At a source: who follows, or has said what it has, and waits for the witness to be asked.
    pub connected: MemberSet,
}

impl Standing {
    /// What the core says.
    pub fn of(status: &Status) -> Self {
        let connected = status.others.iter().filter(|(_, state)| state.is_here);
        Self {
            epoch: status.epoch,
            end: status.end,
            is_source: status.is_source,
            is_ready: status.is_ready,
            is_promoting: status.is_promoting,
            may_be_source: status.may_be_source,
            follows: status.follows,
            in_sync: status.in_sync,
            connected: connected.fold(MemberSet::NONE, |set, (member, _)| set.with(*member)),
        }
    }
}

/// Something has happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Sign {
    /// The group as it is at the witness now.
    Seen(Sight),
    /// The witness cannot be asked.
    Blind,
    /// What this member is now.
    Stands(Standing),
    /// All units run, or those that had been started are stopped again: an answer to [`Decision::StartUnits`].
    UnitsStarted(bool),
    /// All units have stopped, or not all: an answer to [`Decision::StopUnits`].
    UnitsStopped(bool),
    /// An operator wants another source. Without a promoter [`crate::core::Wish::Reverse`] does it.
    HandOver(MemberId),
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// [`crate::core::Wish::Promote`] without force.
    Promote {
        /// The number of the epoch that is recorded.
        above: u32,
    },
    /// [`crate::core::Wish::Demote`].
    Demote,
    /// [`crate::core::Wish::Reverse`].
    HandOver {
        /// To whom.
        to: MemberId,
    },
    /// Start what runs on the volumes; [`Sign::UnitsStarted`] answers.
    StartUnits,
    /// Stop what runs on the volumes; [`Sign::UnitsStopped`] answers.
    StopUnits,
}

/// The state of one member's promoter.
#[derive(Debug)]
pub struct Promoter {
    config: PromoterConfig,
    now: u64,
    sight: Option<Sight>,
    standing: Option<Standing>,
    /// Since when the source of this epoch is gone.
    gone: Option<(Epoch, u64)>,
    /// Since when another has the seat of this source.
    lost: Option<u64>,
    /// Since when this source sees nobody.
    lonely: Option<u64>,
    /// Since when a member is in sync that is preferred to this source.
    preferred: Option<(MemberId, u64)>,
    leaving: Option<Leaving>,
    units: Units,
    /// How often units did not start in a row, and when that was last.
    failures: u32,
    failed_at: u64,
    is_demoting: bool,
    decisions: Vec<Decision>,
}

/// Units, as far as this source has ordered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Units {
    Stopped,
    Starting,
    Started,
    Stopping,
}

/// A hand-over, which begins when units have stopped.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    to: MemberId,
    /// When it was ordered, once it was.
    ordered: Option<u64>,
}

impl Promoter {
    /// A promoter of a member whose units are stopped.
    pub fn new(config: PromoterConfig) -> Self {
        Self {
            config,
            now: 0,
            sight: None,
            standing: None,
            gone: None,
            lost: None,
            lonely: None,
            preferred: None,
            leaving: None,
            units: Units::Stopped,
            failures: 0,
            failed_at: 0,
            is_demoting: false,
            decisions: Vec::new(),
        }
    }

    /// What has happened, and what is to be done.
    pub fn step(&mut self, now: u64, sign: Sign) -> Vec<Decision> {
        self.now = self.now.max(now);
        match sign {
            Sign::Seen(sight) => self.sight = Some(sight),
            Sign::Blind => self.sight = None,
            Sign::Stands(standing) => self.stands(standing),
            Sign::UnitsStarted(is_so) => self.units_started(is_so),
            Sign::UnitsStopped(is_so) => self.units_stopped(is_so),
            Sign::HandOver(to) => self.wants_to_hand_over(to),
            Sign::Tick => {}
        }
        self.decide();
        std::mem::take(&mut self.decisions)
    }

    /// What this member says of itself at the witness.
    pub fn alive(&self) -> Option<Alive> {
        let standing = self.standing?;
        Some(Alive {
            epoch: standing.epoch,
            end: standing.end,
            is_source: standing.is_source || standing.is_promoting,
            is_in_sync: standing.in_sync.contains(self.config.me),
            is_fit: standing.may_be_source && !self.units_fail(),
        })
    }

    fn stands(&mut self, standing: Standing) {
        if !standing.is_source {
            self.is_demoting = false;
            self.leaving = None;
        }
        self.standing = Some(standing);
    }

    fn units_started(&mut self, is_so: bool) {
        if self.units != Units::Starting {
            return;
        }
        self.units = if is_so { Units::Started } else { Units::Stopped };
        if is_so {
            self.failures = 0;
        } else {
            self.failures = self.failures.saturating_add(1);
            self.failed_at = self.now;
        }
    }

    fn units_fail(&self) -> bool {
        self.failures >= STARTS_MAX && self.now.saturating_sub(self.failed_at) < UNFIT_NS
    }

    // What did not stop keeps a source from handing over. A source that is none any more has no choice.
    fn units_stopped(&mut self, is_so: bool) {
        if self.units != Units::Stopping {
            return;
        }
        self.units = Units::Stopped;
        if !is_so && self.leaving.is_some_and(|leaving| leaving.ordered.is_none()) {
            self.leaving = None;
            self.preferred = None;
        }
    }

    fn wants_to_hand_over(&mut self, to: MemberId) {
        let is_source = self.standing.is_some_and(|it| it.is_source && it.is_ready);
        if is_source && to != self.config.me && self.leaving.is_none() {
            self.leaving = Some(Leaving { to, ordered: None });
        }
    }

    fn decide(&mut self) {
        let Some(standing) = self.standing else { return };
        if standing.is_source {
            self.gone = None;
            self.decide_as_source(&standing);
        } else {
            (self.lost, self.lonely, self.preferred) = (None, None, None);
            self.decide_as_destination(&standing);
        }
        self.move_units(&standing);
    }

    fn decide_as_destination(&mut self, standing: &Standing) {
        let Some((seat, rank)) = self.may_promote(standing) else {
            self.gone = None;
            return;
        };
        let since = match self.gone {
            Some((epoch, since)) if epoch == seat.epoch => since,
            _ => self.now,
        };
        self.gone = Some((seat.epoch, since));
        let is_maintenance = self.sight.as_ref().is_some_and(|sight| sight.is_maintenance);
        let turns = self.config.turn_ns.saturating_mul(u64::try_from(rank).unwrap_or(u64::MAX));
        let due = since.saturating_add(self.config.patience_ns).saturating_add(turns);
        if self.now >= due && !is_maintenance && self.units == Units::Stopped {
            // Whatever comes of it, the next attempt has to wait as long.
            self.gone = Some((seat.epoch, self.now));
            self.decisions.push(Decision::Promote { above: seat.epoch.number });
        }
    }

    /// The seat whose source is gone, and how many candidates come before this member.
    fn may_promote(&self, standing: &Standing) -> Option<(Seat, usize)> {
        let (sight, me) = (self.sight.as_ref()?, self.config.me);
        let seat = sight.seat?;
        let is_here = standing.follows == Some(seat.source);
        let lives = sight.of(seat.source).is_some_and(|it| it.is_source && it.is_fit);
        let source_lives = seat.source != me && (is_here || lives);
        if source_lives || standing.is_promoting || !self.alive()?.is_fit {
            return None;
        }
        let rank = self.candidates(sight, &seat).iter().position(|member| *member == me)?;
        Some((seat, rank))
    }

    /// Who may be the source, the best first. What is announced counts for this member as well, as the others see that.
    fn candidates(&self, sight: &Sight, seat: &Seat) -> Vec<MemberId> {
        let own = self.alive();
        let says = |member: MemberId| {
            let own = own.as_ref().filter(|_| member == self.config.me);
            sight.of(member).or(own).filter(|alive| alive.is_fit).copied()
        };
        let mut fit: Vec<(MemberId, Alive)> =
            seat.in_sync.iter().filter_map(|member| Some((member, says(member)?))).collect();
        fit.sort_by_key(|(member, alive)| {
            (std::cmp::Reverse(alive.end), self.config.place(*member), *member)
        });
        fit.into_iter().map(|(member, _)| member).collect()
    }

    fn decide_as_source(&mut self, standing: &Standing) {
        let now = self.now;
        let me = self.config.me;
        let seat = self.sight.as_ref().and_then(|sight| sight.seat);
        // A source that begins may not have stored its own epoch yet.
        let is_lost =
            seat.is_some_and(|it| it.source != me && it.epoch.rank() > standing.epoch.rank());
        self.lost = is_lost.then(|| self.lost.unwrap_or(now));
        let others = standing.in_sync.without(me);
        let sees_nobody = self.sight.is_none()
            && !others.is_empty()
            && MemberSet(others.0 & standing.connected.0).is_empty();
        self.lonely = sees_nobody.then(|| self.lonely.unwrap_or(now));
        let is_over = |since: Option<u64>, limit: u64| {
            since.is_some_and(|since| now.saturating_sub(since) >= limit)
        };
        let lost_for = if standing.is_ready { 0 } else { self.config.patience_ns };
        let gives_up = self.config.gives_up_ns.is_some_and(|limit| is_over(self.lonely, limit));
        if is_over(self.lost, lost_for) || gives_up {
            self.leaving = None;
            if !std::mem::replace(&mut self.is_demoting, true) {
                self.decisions.push(Decision::Demote);
            }
            return;
        }
        if standing.is_ready {
            self.look_for_a_better_one();
            self.go_on_leaving();
        }
    }

    fn look_for_a_better_one(&mut self) {
        let better = self.better_one().filter(|_| self.leaving.is_none());
        let Some((member, after)) = better else {
            self.preferred = None;
            return;
        };
        let since = match self.preferred {
            Some((of, since)) if of == member => since,
            _ => self.now,
        };
        self.preferred = Some((member, since));
        if self.now.saturating_sub(since) >= after {
            self.preferred = None;
            self.leaving = Some(Leaving { to: member, ordered: None });
        }
    }

    /// Who is to have the source's part, and after what time: somebody if units do not start here, else who is preferred.
    fn better_one(&self) -> Option<(MemberId, u64)> {
        let sight = self.sight.as_ref().filter(|sight| !sight.is_maintenance)?;
        let (seat, me) = (sight.seat?, self.config.me);
        let mut others = self.candidates(sight, &seat);
        others.retain(|member| *member != me && sight.of(*member).is_some());
        others.sort_by_key(|member| self.config.place(*member));
        let first = *others.first()?;
        if self.units_fail() {
            return Some((first, 0));
        }
        let is_wanted = self.config.place(first) < self.config.place(me);
        self.config.fails_back_ns.filter(|_| is_wanted).map(|after| (first, after))
    }

    fn go_on_leaving(&mut self) {
        let Some(leaving) = &mut self.leaving else { return };
        match leaving.ordered {
            None if self.units == Units::Stopped => {
                leaving.ordered = Some(self.now);
                self.decisions.push(Decision::HandOver { to: leaving.to });
            }
            // It did not come about: this source goes on.
            Some(at) if self.now.saturating_sub(at) >= HAND_OVER_NS => self.leaving = None,
            _ => {}
        }
    }

    fn move_units(&mut self, standing: &Standing) {
        let serves =
            standing.is_source && standing.is_ready && !self.is_demoting && self.leaving.is_none();
        let may_try =
            self.failures == 0 || self.now.saturating_sub(self.failed_at) >= START_AGAIN_NS;
        match self.units {
            Units::Stopped if serves && may_try => {
                self.units = Units::Starting;
                self.decisions.push(Decision::StartUnits);
            }
            Units::Started if !serves => {
                self.units = Units::Stopping;
                self.decisions.push(Decision::StopUnits);
            }
            _ => {}
        }
    }
}

/// Units that did not start so often in a row will not: another member is to be the source, if there is one.
const STARTS_MAX: u32 = 3;
/// Between attempts to start units.
const START_AGAIN_NS: u64 = 5_000_000_000;
/// After this time a member whose units did not start may be the source again.
const UNFIT_NS: u64 = 600_000_000_000;
/// A hand-over that has not come about after this time will not.
const HAND_OVER_NS: u64 = 30_000_000_000;

#[cfg(test)]
mod tests;
