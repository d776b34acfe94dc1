//! Who is in sync: a set that changes one step at a time, recorded before it counts.

use super::event::Action;
use super::news::{Denial, News};
use super::other::{Link, Other};
use super::source::{Begins, Change, SetTold, Source, Stage, Step};
use super::{AfterLabel, Core};
use crate::core::Mode;
use crate::format::Position;
use crate::message::{Message, Peer};
use crate::names::{Epoch, EpochStart, MEMBERS_MAX, MemberId, MemberSet};

impl Core {
    pub(super) fn is_proposed(&mut self, number: u64, is_taken: bool) {
        let Some(source) = self.source() else { return };
        if source.stage == Stage::Proposing(number) {
            let begins = source.begins.take().filter(|_| is_taken);
            match begins {
                Some(begins) => self.epoch_is_taken(begins),
                None => {
                    self.tell(News::Denied(Denial::WitnessDisagrees));
                    self.step_down();
                }
            }
            return;
        }
        if source.change.as_ref().is_none_or(|change| change.number != number) {
            return;
        }
        if is_taken {
            self.change_is_taken(number);
            return;
        }
        source.change = None;
        // Whoever was told to take over has done so: nobody is denied anything.
        let hands_over = source.handing_over.is_some_and(|it| it.told.is_some());
        if !hands_over {
            self.tell(News::Denied(Denial::WitnessDisagrees));
        }
        self.step_down();
    }

    fn epoch_is_taken(&mut self, begins: Begins) {
        let Begins { epoch, is_forced, in_sync, is_promoted, .. } = begins;
        let Some(source) = self.source() else { return };
        source.stage = Stage::Storing;
        let (start, is_sealed) = (self.order.end(), self.config.seals);
        self.label.history.begin(EpochStart { epoch, start, is_forced, is_sealed });
        self.label.is_source = true;
        self.label.in_sync = in_sync;
        self.label.set_version = 1;
        if is_promoted {
            self.label.positions = [Position::Unknown; MEMBERS_MAX as usize];
        }
        self.store_label(AfterLabel::EpochBegun(epoch));
    }

    // Whoever believes that it is in sync may be promoted, and a source that starts again waits for those that its label names:
    // the label has those who come before they hear of it, and those who leave until they have stored that they did.
    fn change_is_taken(&mut self, number: u64) {
        let is_growth = self
            .source()
            .and_then(|source| source.change.as_mut())
            .is_some_and(|change| change.leaves().is_empty());
        match is_growth {
            true => self.store_set(),
            false => self.tell_set(),
        }
        self.has_asked_for(number);
    }

    fn store_set(&mut self) {
        let Some(change) = self.source().and_then(|source| source.change.as_mut()) else { return };
        change.step = Step::Storing;
        let (number, version, members) = (change.number, change.version, change.members);
        self.label.in_sync = members;
        self.label.set_version = version;
        self.store_label(AfterLabel::SetStored(number));
    }

    fn tell_set(&mut self) {
        let (now, epoch) = (self.now, self.epoch());
        let Some(source) = self.source() else { return };
        let Some(change) = &mut source.change else { return };
        let (before, members, version) = (change.before, change.members, change.version);
        let mut told = Vec::new();
        for other in &mut source.peers {
            let Link::Streaming(stream) = &mut other.link else {
                // It hears of this one as soon as it follows.
                if other.was_told() && change.leaves().contains(other.member) {
                    change.waits_for = change.waits_for.with(other.member);
                }
                continue;
            };
            told.push(stream.peer);
            if change.leaves().contains(other.member) {
                stream.unaware = Some(version);
            }
            if before.contains(other.member) || members.contains(other.member) {
                change.waits_for = change.waits_for.with(other.member);
            }
        }
        if change.step == Step::Asking {
            change.step = Step::Telling(now);
        }
        source.told = SetTold { version, members };
        for peer in told {
            self.send(peer, Message::InSync { epoch, version, members });
        }
    }

    pub(super) fn epoch_has_begun(&mut self, begun: Epoch) {
        let (end, epoch) = (self.order.end(), self.epoch());
        let Some(source) = self.source() else { return };
        if source.stage == Stage::Storing && begun == epoch {
            source.stage = Stage::Recovering(end);
            self.tell(News::IsSource(epoch));
        }
    }

    pub(super) fn set_is_stored(&mut self, number: u64) {
        let now = self.now;
        let Some(source) = self.source() else { return };
        let Some(change) = source.change.as_mut().filter(|it| it.number == number) else { return };
        change.step = Step::Stored(now);
        if source.told.version != change.version {
            self.tell_set();
        }
    }

    // Who is in sync changes one step at a time, and is recorded before it counts.
    pub(super) fn change_set(&mut self) {
        self.finish_change();
        let (me, epoch, has_witness) = (self.config.me, self.epoch(), self.config.has_witness);
        let number = self.proposals + 1;
        let version = self.label.set_version + 1;
        let Some(source) = self.source() else { return };
        if source.change.is_some() || source.is_stopping || !source.has_begun() {
            return;
        }
        let members = self.wanted_set();
        let Some(source) = self.source() else { return };
        // The same set is asked for where somebody has come back who may have become the source at the witness.
        let asks = has_witness && source.asks_for_doubted(number);
        let before = source.confirmed;
        if members == before && !asks {
            return;
        }
        let (step, waits_for) = (Step::Asking, MemberSet::NONE);
        source.change = Some(Change { before, members, version, number, step, waits_for });
        self.proposals = number;
        self.act(Action::Propose {
            number,
            epoch,
            source: me,
            in_sync: members,
            set_version: version,
        });
    }

    // Who is to be in sync, by one step from those who are.
    fn wanted_set(&mut self) -> MemberSet {
        let (me, committed, end) = (self.config.me, self.committed, self.order.end());
        let (least, has_witness) = (self.config.least_in_sync, self.config.has_witness);
        let Some(source) = self.source() else { return MemberSet::NONE };
        // A witness that has removed the member that takes over would not let it.
        let takes_over = source.handing_over.filter(|it| it.told.is_some()).map(|it| it.to);
        let mut members = source.confirmed;
        let mut is_missed = false;
        for other in &mut source.peers {
            let is_confirmed = source.confirmed.contains(other.member);
            let follows = match &mut other.link {
                Link::Streaming(stream) if stream.copying.is_none() => {
                    let is_near = end.since(stream.durable) <= JOIN_WITHIN;
                    stream.joins = other.mode != Mode::Async
                        && !other.is_suspended
                        && (stream.joins || is_confirmed || is_near);
                    // A member that has lost what it had said to be durable is in sync no more.
                    stream.joins && stream.allows(other.mode) >= committed
                }
                _ => false,
            };
            let is_unseen = takes_over == Some(other.member)
                || (source.unseen.contains(other.member) && !has_witness)
                || source.doubt.of.contains(other.member);
            if follows {
                members = members.with(other.member);
            } else if is_confirmed && !is_unseen && other.is_over(committed) {
                members = members.without(other.member);
                is_missed |= !other.is_kept_while_suspended();
            }
        }
        debug_assert!(members.contains(me), "a source has what it has acknowledged");
        let mut tells = false;
        if members.len() < source.confirmed.len() && members.len() < least {
            members = MemberSet(members.0 | source.confirmed.0);
            tells = is_missed && !std::mem::replace(&mut source.told_too_few, true);
        } else if members == source.confirmed {
            source.told_too_few = false;
        }
        members = source.one_way(members, least);
        // Whoever may be the source elsewhere acknowledges without those who join here: nobody is to be promoted who lacks that.
        if !has_witness && source.may_be_elsewhere().is_some() {
            members = MemberSet(members.0 & source.confirmed.0);
        }
        if tells {
            self.tell(News::TooFewInSync);
        }
        members
    }

    // A member that is suspended is told first that it is in sync no more: nobody promotes it then for one that is. Where
    // too few would be left it stays in the set, and is sent to until another may take its place.
    pub(super) fn leave_suspended(&mut self) {
        let mut left = Vec::new();
        let Some(source) = self.source() else { return };
        let (confirmed, changes) = (source.confirmed, source.change.is_some());
        for other in &mut source.peers {
            let is_out = !confirmed.contains(other.member);
            if other.leaves && is_out && !changes {
                other.leaves = false;
                left.extend(other.connection().map(Action::Disconnect));
            }
        }
        left.into_iter().for_each(|action| self.act(action));
    }

    pub(super) fn finish_change(&mut self) {
        let has_witness = self.config.has_witness;
        let Some(source) = self.source() else { return };
        let Some(change) = &source.change else { return };
        let gone = |member: MemberId| {
            !source.peers.iter().any(|other| other.member == member && other.was_told())
        };
        let leaves = change.leaves();
        let (before, after) = (change.before, change.members);
        match change.step {
            Step::Telling(_)
                if change.waits_for.iter().all(|it| !leaves.contains(it) || gone(it)) =>
            {
                self.store_set();
                return;
            }
            Step::Stored(_) if change.waits_for.iter().all(gone) => {}
            Step::Asking | Step::Telling(_) | Step::Storing | Step::Stored(_) => return,
        }
        source.confirmed = after;
        source.change = None;
        // Who is in sync no more, as the witness has it, is the source no more by the word of this one, and was not yet.
        if has_witness {
            source.unseen = MemberSet(source.unseen.0 & after.0);
        }
        for member in after.iter().filter(|member| !before.contains(*member)) {
            self.tell(News::InSync(member));
        }
        for member in before.iter().filter(|member| !after.contains(*member)) {
            self.tell(News::OutOfSync(member));
            self.go_on_greeting(member);
        }
        self.act(Action::Room);
        self.commit();
    }

    // Who was told and does not say that it has stored it is waited for as long as somebody who is silent, where it leaves, or
    // somebody else is to leave: a change holds up all others. It comes back, and is told anew. Who is slow and holds up
    // nobody may take its time.
    pub(super) fn leave_silent(&mut self) {
        let (now, silence) = (self.now, self.config.silence_ns);
        let committed = self.committed;
        let Some(source) = self.source() else { return };
        let Some(change) = &source.change else { return };
        let counts = MemberSet(source.confirmed.0 | change.members.0);
        let is_due = source
            .peers
            .iter()
            .any(|other| counts.contains(other.member) && other.is_over(committed));
        let (since, silent) = match change.step {
            Step::Telling(since) => (since, MemberSet(change.leaves().0 & change.waits_for.0)),
            Step::Stored(since) if is_due => (since, change.waits_for),
            Step::Asking | Step::Storing | Step::Stored(_) => return,
        };
        if now.saturating_sub(since) <= silence {
            return;
        }
        let left: Vec<Peer> = source
            .peers
            .iter()
            .filter(|other| silent.contains(other.member))
            .filter_map(Other::connection)
            .collect();
        left.into_iter().for_each(|peer| self.act(Action::Disconnect(peer)));
    }

    pub(super) fn set_is_known(&mut self, peer: Peer, version: u64) {
        let change = self.source().and_then(|source| source.change.as_mut());
        if let Some(change) = change.filter(|change| version == change.version) {
            change.waits_for = change.waits_for.without(peer.member);
        }
        if let Some(stream) = self.source().and_then(|source| source.stream(peer)) {
            stream.unaware.take_if(|unaware| *unaware <= version);
        }
    }
}

impl Change {
    fn leaves(&self) -> MemberSet {
        MemberSet(self.before.0 & !self.members.0)
    }
}

impl Source {
    // Who leaves is told before the label is stored, and who comes after: a change does one of both. Those who are left are
    // waited for no longer than they have to be.
    pub(super) fn one_way(&self, members: MemberSet, least: u32) -> MemberSet {
        let stay = MemberSet(members.0 & self.confirmed.0);
        match (stay == self.confirmed, stay == members) {
            (false, false) if stay.len() < least => MemberSet(members.0 | self.confirmed.0),
            (false, false) => stay,
            _ => members,
        }
    }
}

/// A member joins those in sync when it lacks at most so many bytes.
const JOIN_WITHIN: u64 = 1 << 20;
