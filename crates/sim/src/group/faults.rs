//! What goes wrong, and what operators and promoters do about it.

use replica::core::{Event, Mode, Wish};
use replica::{MemberId, MemberSet};

use crate::member::Member;
use crate::plan::{MS, SECOND};
use crate::world::{What, World};

impl World<'_> {
    pub(crate) fn crash(&mut self, member: u8) {
        let at = &mut self.members[usize::from(member)];
        let Some(process) = at.process.take() else { return };
        self.sums.crashes += 1;
        if process.core.is_source() {
            let (status, label) = (process.core.status(), process.core.label());
            at.last_in_sync = status.in_sync;
            let connected = status.others.iter().filter(|(_, state)| state.is_connected);
            let connected = connected.fold(MemberSet::NONE, |set, (member, _)| set.with(*member));
            let stays = MemberSet(label.in_sync.0 & at.proposed.0);
            at.last_counted = MemberSet(status.in_sync.0 & stays.0 & connected.0);
        }
        at.disk.crash(&self.chance);
        if self.plan.damage_every > 0 && self.chance.happens(1, 4) {
            at.disk.damage_maps(&self.chance);
        }
        at.stopped_until = 0;
        self.history(|| format!("member {member} crashes"));
        let of_it: Vec<u64> = self
            .connections
            .values()
            .filter(|it| it.ends.contains(&MemberId(member)))
            .map(|it| it.number)
            .collect();
        if self.plan.aims && !self.heals && self.chance.happens(1, 2) {
            self.dies_unheard(member, of_it);
        } else {
            of_it.into_iter().for_each(|number| self.cut(number));
        }
        let longest = if self.plan.aims || self.plan.turns { 2 * SECOND } else { 500 * MS };
        let delay = self.chance.skewed(MS, longest);
        self.later(delay, What::Start(member));
    }

    pub(crate) fn cut(&mut self, number: u64) {
        for side in 0..2 {
            let delay = self.chance.skewed(10_000, 50 * MS);
            self.later(delay, What::Lose(number, side));
        }
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.is_silent = true;
        }
    }

    pub(crate) fn silence(&mut self) {
        let (one, other) = (self.any_member(), self.any_member());
        if one == other {
            return;
        }
        self.history(|| format!("member {one} and member {other} do not hear each other"));
        self.blocked.push((one, other));
        for connection in self.connections.values_mut() {
            let ends = connection.ends.map(|end| end.0);
            if ends.contains(&one) && ends.contains(&other) {
                connection.is_silent = true;
            }
        }
        let delay = self.chance.skewed(10 * MS, 3 * SECOND);
        self.later(delay, What::Unsilence(one, other));
    }

    pub(crate) fn any_member(&self) -> u8 {
        u8::try_from(self.chance.below(self.plan.members.into())).unwrap_or(0)
    }

    pub(crate) fn is_blocked(&self, one: MemberId, other: MemberId) -> bool {
        let is = |pair: &(u8, u8)| *pair == (one.0, other.0) || *pair == (other.0, one.0);
        self.blocked.iter().any(is) || self.one_way.iter().any(is)
    }

    // What a promoter does: the source has been silent, and this member was in sync.
    pub(crate) fn promote_by_itself(&mut self, member: u8) {
        let (now, record, has_witness) = (self.now, self.witness, self.plan.has_witness);
        let patience = self.plan.patience + u64::from(member) * 20 * MS;
        let Some(process) = self.process(member) else { return };
        let is_silent = now.saturating_sub(process.followed_at) > patience;
        if has_witness
            && is_silent
            && !process.core.is_source()
            && record.in_sync.contains(MemberId(member))
        {
            process.followed_at = now;
            let (nonce, above) = (self.chance.below(u64::MAX), self.above());
            self.step(
                member,
                Event::Wanted(Wish::Promote { nonce, above, was_in_sync: false, by_force: false }),
            );
        }
    }

    // What an operator does: hands over, or has another go on for a source that is down.
    pub(crate) fn switch(&mut self) {
        let member = self.any_member();
        let (nonce, above) = (self.chance.below(u64::MAX), self.above());
        let source = (0..self.plan.members).find(|at| {
            self.members[usize::from(*at)].process.as_ref().is_some_and(|it| it.core.is_source())
        });
        if let Some(source) = source {
            if source != member {
                let to = MemberId(member);
                self.step(source, Event::Wanted(Wish::Reverse { to, nonce }));
            }
            return;
        }
        if self.plan.has_witness || self.is_in_doubt() {
            return;
        }
        // The one that was the source last, and lies there.
        let newest = self.members.iter().max_by_key(|it| it.disk.label.history.current().rank());
        let Some(dead) = newest.filter(|it| it.process.is_none() && it.disk.label.is_source) else {
            return;
        };
        let may = dead.last_in_sync.contains(MemberId(member));
        let asked = &self.members[usize::from(member)];
        let lives = asked.process.is_some();
        // By mistake a member is asked, too, that knows that it lacks what was acknowledged. It has to refuse.
        // And one that has started again since it was in sync, and cannot know.
        let label = &asked.disk.label;
        let cannot_know = asked.process.as_ref().is_some_and(|it| !it.has_followed)
            && !label.is_source
            && label.in_sync != MemberSet::of(MemberId(member));
        let knows = !label.in_sync.contains(MemberId(member)) || cannot_know;
        // Who followed the source, in sync and not about to be left, has that in its label.
        let claimed = dead.last_counted.contains(MemberId(member))
            && label.history.current() == dead.disk.label.history.current();
        if lives && (may || self.plan.forces || knows) {
            let (was_in_sync, by_force) = (may, !may && self.plan.forces);
            let wish = Wish::Promote { nonce, above, was_in_sync, by_force };
            self.asked = claimed.then_some(member);
            self.step(member, Event::Wanted(wish));
            self.asked = None;
        }
    }

    pub(crate) fn wish(&mut self) {
        let (at, member) = (self.any_member(), MemberId(self.any_member()));
        if MemberId(at) == member {
            return;
        }
        let wish = match self.chance.below(6) {
            0 => Wish::Suspend(member),
            1 | 2 => Wish::Resume(member),
            3 => Wish::Compare(member),
            _ => Wish::SetMode(member, [Mode::Sync, Mode::Async][self.chance.index(2)]),
        };
        self.step(at, Event::Wanted(wish));
    }

    pub(crate) fn heal(&mut self) {
        self.history(|| "all faults end".to_owned());
        self.heals = true;
        self.blocked.clear();
        self.all_goes_through();
        for process in self.members.iter_mut().filter_map(|it| it.process.as_mut()) {
            process.disk_fails = false;
        }
        for member in 0..self.plan.members {
            if self.members[usize::from(member)].process.is_none() {
                self.start(member);
            }
        }
    }

    // Whether a member may become the source though the operator tells it nothing: then he tells no other.
    fn is_in_doubt(&self) -> bool {
        let live = |member: MemberId| self.members[usize::from(member.0)].process.is_some();
        self.members.iter().filter_map(|member| member.process.as_ref()).any(|process| {
            let status = process.core.status();
            status.is_promoting || status.follows.is_some_and(|source| !live(source))
        })
    }

    // Nobody is the source, and all are there: the operator takes the one that has most.
    pub(crate) fn operator_chooses(&mut self) {
        // One whose disk failed is being started again.
        let is_there = |member: &Member| {
            member.process.as_ref().is_some_and(|process| !process.core.has_failed())
        };
        if self.is_in_doubt() || !self.members.iter().all(is_there) {
            return;
        }
        let (nonce, above) = (self.chance.below(u64::MAX), self.above());
        let best = (0..self.plan.members).max_by_key(|at| {
            let member = &self.members[usize::from(*at)];
            member.process.as_ref().map(|it| {
                let status = it.core.status();
                let in_sync = it.core.label().in_sync.contains(member.id);
                (status.is_consistent, in_sync, status.epoch.rank(), status.end)
            })
        });
        if let Some(best) = best {
            let is_in_sync = self.members[usize::from(best)]
                .process
                .as_ref()
                .is_some_and(|it| it.core.label().in_sync.contains(MemberId(best)));
            let (was_in_sync, by_force) = (true, !is_in_sync);
            let wish = Wish::Promote { nonce, above, was_in_sync, by_force };
            self.step(best, Event::Wanted(wish));
        }
    }
}
