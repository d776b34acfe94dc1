//! Who is in sync: a set that changes one step at a time, recorded before it counts.

use super::event::Action;
use super::news::{Denial, News};
use super::other::Link;
use super::source::{Begins, Change, Stage};
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
            let Some(Begins { epoch, is_forced, in_sync, is_promoted, .. }) = begins else {
                self.tell(News::Denied(Denial::WitnessDisagrees));
                self.step_down();
                return;
            };
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
            return;
        }
        let Some(change) = source.change.as_mut().filter(|change| change.number == number) else {
            return;
        };
        if !is_taken {
            source.change = None;
            // Whoever was told to take over has done so: nobody is denied anything.
            let hands_over = source.handing_over.is_some_and(|it| it.told.is_some());
            if !hands_over {
                self.tell(News::Denied(Denial::WitnessDisagrees));
            }
            self.step_down();
            return;
        }
        change.is_taken = true;
        let (members, version) = (change.members, self.label.set_version + 1);
        self.has_asked_for(number);
        let before = std::mem::replace(&mut self.label.in_sync, members);
        self.label.set_version = version;
        let epoch = self.epoch();
        let Some(source) = self.source() else { return };
        let mut told = Vec::new();
        for other in &mut source.peers {
            let Link::Streaming(stream) = &mut other.link else { continue };
            told.push(stream.peer);
            if before.contains(other.member) && !members.contains(other.member) {
                stream.unaware = Some(version);
            }
        }
        if let Some(change) = &mut source.change {
            let waits_for = told.iter().fold(MemberSet::NONE, |set, peer| set.with(peer.member));
            change.waits_for = MemberSet(waits_for.0 & members.0);
        }
        for peer in told {
            self.send(peer, Message::InSync { epoch, version, members });
        }
        self.store_label(AfterLabel::SetStored);
    }

    pub(super) fn epoch_has_begun(&mut self, begun: Epoch) {
        let (end, epoch) = (self.order.end(), self.epoch());
        let Some(source) = self.source() else { return };
        if source.stage == Stage::Storing && begun == epoch {
            source.stage = Stage::Recovering(end);
            self.tell(News::IsSource(epoch));
        }
    }

    pub(super) fn set_is_stored(&mut self) {
        if let Some(change) = self.source().and_then(|source| source.change.as_mut()) {
            change.is_stored = true;
        }
    }

    // Who is in sync changes one step at a time, and is recorded before it counts.
    pub(super) fn change_set(&mut self) {
        self.finish_change();
        let (me, committed, end) = (self.config.me, self.committed, self.order.end());
        let (least, set_version) = (self.config.least_in_sync, self.label.set_version);
        let (epoch, has_witness) = (self.epoch(), self.config.has_witness);
        let proposals = self.proposals + 1;
        let Some(source) = self.source() else { return };
        if source.change.is_some() || source.is_stopping || !source.has_begun() {
            return;
        }
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
        if members.len() < source.confirmed.len() && members.len() < least {
            members = MemberSet(members.0 | source.confirmed.0);
            if is_missed && !std::mem::replace(&mut source.told_too_few, true) {
                self.tell(News::TooFewInSync);
            }
        } else if members == source.confirmed {
            source.told_too_few = false;
        }
        let Some(source) = self.source() else { return };
        // The same set is asked for where somebody has come back who may have become the source at the witness.
        let asks = has_witness && source.asks_for_doubted(proposals);
        if members == source.confirmed && !asks {
            return;
        }
        let number = proposals;
        source.change = Some(Change {
            members,
            number,
            is_taken: false,
            is_stored: false,
            waits_for: MemberSet::NONE,
        });
        self.proposals = number;
        self.act(Action::Propose {
            number,
            epoch,
            source: me,
            in_sync: members,
            set_version: set_version + 1,
        });
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
            !source
                .peers
                .iter()
                .any(|other| other.member == member && matches!(other.link, Link::Streaming(_)))
        };
        let is_done = change.is_taken && change.is_stored && change.waits_for.iter().all(gone);
        if !is_done {
            return;
        }
        let (before, after) = (source.confirmed, change.members);
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
        }
        self.act(Action::Room);
        self.commit();
    }

    pub(super) fn set_is_known(&mut self, peer: Peer, version: u64) {
        let newest = self.label.set_version;
        let change = self.source().and_then(|source| source.change.as_mut());
        if let Some(change) = change.filter(|_| version == newest) {
            change.waits_for = change.waits_for.without(peer.member);
        }
        if let Some(stream) = self.source().and_then(|source| source.stream(peer)) {
            stream.unaware.take_if(|unaware| *unaware <= version);
        }
    }
}

/// A member joins those in sync when it lacks at most so many bytes.
const JOIN_WITHIN: u64 = 1 << 20;
