//! How a source begins: by an epoch that the witness agrees to, and by what its ring held.

use super::{Begins, SetTold, Source, Stage};
use crate::core::event::Action;
use crate::core::lease::Doubt;
use crate::core::news::News;
use crate::core::other::{Link, Other};
use crate::core::{Core, Mode, Role, fit};
use crate::names::{Epoch, MemberId, MemberSet};
use log::Lsn;

impl Core {
    /// The member was the source when it stopped, and goes on as such. `nonce` is random.
    /// `above` is the newest epoch that the witness knows.
    pub fn resume_as_source(&mut self, now: u64, nonce: u64, above: Epoch) -> Vec<Action> {
        self.clock_goes_on(now);
        let me = MemberSet::of(self.config.me);
        // A witness has the set; alone is what every witness agrees to. Without one, those who were in sync may
        // have gone on under another source.
        let in_sync = match self.config.has_witness {
            true => me,
            // Who is no member any more, because an operator has taken it out of the group, is not waited for.
            false => {
                let handed = self.label.handed_to.map_or(MemberSet::NONE, MemberSet::of);
                let others = MemberSet(self.label.in_sync.0 | handed.0);
                MemberSet(others.0 & self.config.members().0 | me.0)
            }
        };
        let unseen = in_sync.without(self.config.me);
        let Epoch { number, restart, .. } = self.label.history.current();
        let known = if above.number == number { above.restart } else { 0 };
        let epoch = Epoch { number, restart: restart.max(known) + 1, nonce };
        let (is_forced, by_force, is_promoted) = (false, false, false);
        let begins = Begins { epoch, is_forced, by_force, in_sync, is_promoted };
        self.become_source(begins, unseen);
        self.go_on();
        std::mem::take(&mut self.actions)
    }

    /// Whether a member that was the source when it stopped can still be resumed, now: it follows nobody, is not being promoted,
    /// and nothing is under way.
    pub fn may_resume(&self) -> bool {
        let Role::Destination(destination) = &self.role else { return false };
        let is_free = destination.connection().is_none() && !destination.is_promoting();
        self.was_source() && is_free && self.is_quiet() && !self.has_failed
    }

    /// Asks the witness for an epoch. Nothing is under way: no record comes, none is applied.
    pub(in crate::core) fn become_source(&mut self, begins: Begins, unseen: MemberSet) {
        let Begins { epoch, in_sync, .. } = begins;
        let dirty = match &mut self.role {
            Role::Destination(destination) => std::mem::take(&mut destination.dirty),
            Role::Source(_) => Vec::new(),
        };
        let (clean, maps_ordered) = (self.clean_map(), self.maps_ordered);
        // Who is no member any more may have left its number to another one.
        self.label.suspended = MemberSet(self.label.suspended.0 & self.config.members().0);
        let suspended = self.label.suspended;
        let volumes = self.config.volumes.clone();
        let other = |(member, mode): &(MemberId, Mode)| {
            let dirty = dirty
                .iter()
                .find(|(of, _)| of == member)
                .map_or_else(|| clean.clone(), |(_, map)| map.clone());
            let mut dirty = dirty;
            fit(&mut dirty, &volumes);
            Other {
                member: *member,
                mode: *mode,
                link: Link::Down,
                lacks_since_ns: (!dirty.is_clean()).then_some(0),
                dirty,
                dirty_ordered: maps_ordered,
                compares: false,
                known: Lsn(0),
                is_suspended: suspended.contains(*member),
                leaves: false,
            }
        };
        let peers = self.config.others.iter().map(other).collect();
        self.knows_set = true;
        self.proposals += 1;
        let number = self.proposals;
        self.role = Role::Source(Box::new(Source {
            peers,
            confirmed: in_sync,
            change: None,
            told: SetTold { version: 1, members: in_sync },
            stage: Stage::Proposing(number),
            unseen,
            handing_over: None,
            doubt: Doubt::default(),
            is_stopping: false,
            is_demoted: false,
            told_too_few: false,
            told_waits: MemberSet::NONE,
            said_alive: 0,
            begins: Some(begins),
        }));
        let source = self.config.me;
        self.act(Action::Propose { number, epoch, source, in_sync, set_version: 1 });
    }

    /// Whether the epoch of a proposal is to begin by force, past what the witness would allow; `None` where nobody waits for
    /// the answer any more.
    pub fn is_by_force(&self, proposal: u64) -> Option<bool> {
        let Role::Source(source) = &self.role else { return None };
        if source.stage == Stage::Proposing(proposal) {
            return Some(source.begins.is_some_and(|begins| begins.by_force));
        }
        source.change.as_ref().filter(|change| change.number == proposal).map(|_| false)
    }

    // What the ring held when the source began comes into the volumes from there: its writers are gone. Nobody reads
    // before those who were in sync have been heard: one of them may be the source by now, and have newer bytes.
    pub(super) fn recover(&mut self) {
        let (committed, applied, applying) = (self.committed, self.applied, self.applying);
        let Some(source) = self.source() else { return };
        let Stage::Recovering(to) = source.stage else { return };
        if applied >= to && source.unseen.is_empty() {
            source.stage = Stage::Ready;
            self.act(Action::StartWriters);
            self.act(Action::Room);
            return;
        }
        if !applying && committed.min(to) > applied {
            self.applying = true;
            self.act(Action::Apply(applied, committed.min(to)));
        }
    }

    // An operator who waits for this source, or has promoted it, learns what it waits for.
    pub(super) fn tell_for_whom_it_waits(&mut self) {
        let applied = self.applied;
        let Some(source) = self.source() else { return };
        let waits = match source.stage {
            Stage::Recovering(to) if applied < to => return,
            Stage::Recovering(_) | Stage::Ready if !source.is_stopping => source.waits_for(),
            _ => MemberSet::NONE,
        };
        let before = std::mem::replace(&mut source.told_waits, waits);
        for member in waits.iter().filter(|member| !before.contains(*member)) {
            self.tell(News::WaitsFor(member));
        }
    }
}
