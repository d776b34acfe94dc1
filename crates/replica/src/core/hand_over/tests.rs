//! Cores joined by connections that deliver at once, with a witness or without one.
#![cfg(test)]

use std::collections::{BTreeMap, VecDeque};

use crate::core::{Action, Config, Congestion, Core, Denial, Event, Found, Mode, News, Wish};
use crate::dirty::DirtyMap;
use crate::format::Label;
use crate::message::{Message, Peer};
use crate::names::{Epoch, GroupId, MemberId, MemberSet};
use crate::witness::{Seat, may_follow};

const MS: u64 = 1_000_000;
const SILENCE: u64 = 2000 * MS;

fn config(me: u8, members: u8, has_witness: bool) -> Config {
    Config {
        group: GroupId([3; 16]),
        me: MemberId(me),
        my_mode: Mode::Sync,
        others: (0..members).filter(|it| *it != me).map(|it| (MemberId(it), Mode::Sync)).collect(),
        volumes: vec![1 << 20],
        capacity: 1 << 16,
        least_in_sync: 1,
        has_witness,
        congestion: Congestion::DirtyMap,
        window: 1 << 20,
        silence_ns: SILENCE,
        read_lease_ns: 0,
        retention_ns: 0,
        copy_window: 1 << 20,
        seals: false,
        key_check: 0,
    }
}

struct Group {
    has_witness: bool,
    cores: Vec<Option<Core>>,
    labels: Vec<Label>,
    news: Vec<Vec<News>>,
    seat: Option<Seat>,
    /// The source's end first.
    connections: BTreeMap<u64, (u8, u8)>,
    next: u64,
    now: u64,
    /// It ends as soon as the witness has recorded what it asks for.
    dies_at_witness: Option<u8>,
    /// It ends instead of doing what it is told.
    dies_when_told: Option<u8>,
    /// The first hears nothing of the second.
    is_deaf: Option<(u8, u8)>,
    /// What was sent.
    sent: Vec<(u8, Message)>,
}

impl Group {
    /// Member 0 is the source, and the others are in sync.
    fn new(members: u8, has_witness: bool) -> Self {
        let mut group = Self {
            has_witness,
            cores: Vec::new(),
            labels: Vec::new(),
            news: vec![Vec::new(); usize::from(members)],
            seat: None,
            connections: BTreeMap::new(),
            next: 1,
            now: MS,
            dies_at_witness: None,
            dies_when_told: None,
            is_deaf: None,
            sent: Vec::new(),
        };
        for me in 0..members {
            group.labels.push(Core::first_label(&config(me, members, has_witness)));
            group.cores.push(Some(group.core(me)));
        }
        group.promote(0, true);
        (1..members).for_each(|member| group.join(0, member));
        group.ticks(3);
        assert_eq!(group.status(0).in_sync, MemberSet((1 << members) - 1));
        group
    }

    fn core(&self, me: u8) -> Core {
        let members = u8::try_from(self.news.len()).unwrap();
        let config = config(me, members, self.has_witness);
        let label = self.labels[usize::from(me)].clone();
        let clean = DirtyMap::clean(&config.volumes);
        let dirty = config.others.iter().map(|(member, _)| (*member, clean.clone())).collect();
        Core::new(config, Found { claimed: label.committed, label, entries: Vec::new(), dirty })
    }

    fn at(&mut self, member: u8) -> &mut Core {
        self.cores[usize::from(member)].as_mut().unwrap()
    }

    fn status(&self, member: u8) -> crate::core::Status {
        self.cores[usize::from(member)].as_ref().unwrap().status()
    }

    fn wants(&mut self, member: u8, wish: Wish) {
        self.step(member, Event::Wanted(wish));
    }

    fn promote(&mut self, member: u8, by_force: bool) {
        let above = self.seat.map_or(0, |seat| seat.epoch.number);
        let nonce = self.now + u64::from(member);
        self.wants(member, Wish::Promote { nonce, above, was_in_sync: false, by_force });
    }

    fn reverse(&mut self, from: u8, to: u8) {
        self.wants(from, Wish::Reverse { to: MemberId(to), nonce: self.now });
    }

    fn join(&mut self, source: u8, member: u8) {
        let connection = self.next;
        self.next += 1;
        self.connections.insert(connection, (source, member));
        self.step(member, Event::Accepted(Peer { member: MemberId(source), connection }));
        self.step(source, Event::Dialed(Peer { member: MemberId(member), connection }));
    }

    fn crashes(&mut self, member: u8) {
        self.cores[usize::from(member)] = None;
        let of_it =
            self.connections.extract_if(.., |_, (one, other)| *one == member || *other == member);
        let of_it: Vec<_> = of_it.collect();
        for (connection, (one, other)) in of_it {
            let there = if one == member { other } else { one };
            self.step(there, Event::Lost(Peer { member: MemberId(member), connection }));
        }
    }

    fn starts(&mut self, member: u8) {
        self.cores[usize::from(member)] = Some(self.core(member));
        let (now, nonce) = (self.now, self.now + 77);
        let above = self.seat.map_or_else(Epoch::default, |seat| seat.epoch);
        if self.at(member).was_source() {
            let actions = self.at(member).resume_as_source(now, nonce, above);
            self.act(member, actions);
        }
    }

    fn ticks(&mut self, count: u64) {
        for _ in 0..count {
            self.now += 50 * MS;
            let all = u8::try_from(self.cores.len()).unwrap();
            (0..all).for_each(|member| self.step(member, Event::Tick));
        }
    }

    fn step(&mut self, member: u8, event: Event) {
        let now = self.now;
        let Some(core) = &mut self.cores[usize::from(member)] else { return };
        let actions = core.step(now, event);
        self.act(member, actions);
    }

    fn act(&mut self, member: u8, actions: Vec<Action>) {
        let mut all: VecDeque<(u8, Action)> =
            actions.into_iter().map(|action| (member, action)).collect();
        while let Some((member, action)) = all.pop_front() {
            for (at, event) in self.answers(member, action) {
                let now = self.now;
                let Some(core) = &mut self.cores[usize::from(at)] else { continue };
                all.extend(core.step(now, event).into_iter().map(|action| (at, action)));
            }
        }
    }

    fn answers(&mut self, member: u8, action: Action) -> Vec<(u8, Event)> {
        if self.cores[usize::from(member)].is_none() {
            return Vec::new();
        }
        let me = MemberId(member);
        let event = match action {
            Action::Persist(to) => Event::RingDurable(to),
            Action::Apply(_, to) => Event::AppliedTo(to),
            Action::FlushVolumes(to) => Event::VolumesDurable(to),
            Action::StoreLabel(label) => {
                self.labels[usize::from(member)] = Label::clone(&label);
                Event::LabelStored(label.sequence)
            }
            Action::StoreDirty { member, number, .. } => Event::DirtyStored(member, number),
            Action::TakeSnapshot { .. } => Event::SnapshotTaken,
            Action::FlushCopies(count) => Event::CopiesDurable(count),
            Action::PutCopy => Event::CopyPut,
            Action::Copy { peer, extent, .. } => Event::CopiesSent(peer, extent, 0),
            Action::Propose { number, epoch, source, in_sync, set_version } => {
                let wanted = Seat { epoch, source, in_sync, set_version };
                let by_force = self.at(member).is_by_force(number) == Some(true);
                let is_taken =
                    !self.has_witness || by_force || may_follow(self.seat.as_ref(), &wanted);
                if is_taken && self.has_witness {
                    self.seat = Some(wanted);
                }
                if self.dies_at_witness == Some(member) {
                    self.dies_at_witness = None;
                    self.cores[usize::from(member)] = None;
                }
                Event::Proposed { number, is_taken }
            }
            Action::Revoke => Event::Revoked,
            Action::StopWriters => Event::WritersStopped,
            Action::Disconnect(peer) => {
                self.connections.remove(&peer.connection);
                let there = Peer { member: me, connection: peer.connection };
                let mut lost = vec![(member, Event::Lost(peer))];
                if self.is_deaf != Some((peer.member.0, member)) {
                    lost.push((peer.member.0, Event::Lost(there)));
                }
                return lost;
            }
            Action::Send(peer, message) => {
                self.sent.push((member, message.clone()));
                let to = peer.member.0;
                if matches!(message, Message::TakeOver { .. }) && self.dies_when_told == Some(to) {
                    self.cores[usize::from(to)] = None;
                    return Vec::new();
                }
                let is_open = self.connections.contains_key(&peer.connection)
                    && self.is_deaf != Some((to, member));
                let from = Peer { member: me, connection: peer.connection };
                let said = is_open.then_some((peer.member.0, Event::Said(from, message)));
                return said.into_iter().collect();
            }
            Action::Tell(news) => {
                self.news[usize::from(member)].push(news);
                return Vec::new();
            }
            _ => return Vec::new(),
        };
        vec![(member, event)]
    }

    fn is_denied(&self, member: u8, denial: Denial) -> bool {
        self.news[usize::from(member)].contains(&News::Denied(denial))
    }

    fn told_to_follow(&self, source: u8) -> bool {
        self.sent
            .iter()
            .any(|(of, message)| *of == source && matches!(message, Message::Follow { .. }))
    }
}

impl Group {
    /// The source hands over; the member is the source before the old one hears anything.
    fn takes_over_unheard(&mut self, member: u8) {
        self.is_deaf = Some((0, member));
        self.reverse(0, member);
        assert!(self.status(member).is_source);
        assert!(self.at(0).has_handed_over());
    }

    fn crashes_when_told(&mut self, member: u8) {
        self.takes_over_unheard(member);
        self.crashes(0);
        self.is_deaf = None;
    }

    /// The source hands over; the member dies as it is told, and does nothing.
    fn kill_when_told(&mut self, member: u8) {
        self.dies_when_told = Some(member);
        self.reverse(0, member);
        assert!(self.cores[usize::from(member)].is_none());
        self.crashes(member);
    }
}

#[test]
fn a_source_that_has_handed_over_and_starts_again_hands_over_to_nobody_else() {
    // Member 1 takes over, and member 0 does not hear of it and crashes.
    let mut group = Group::new(3, false);
    group.crashes_when_told(1);
    group.starts(0);
    group.join(0, 2);
    group.ticks(2);
    assert!(group.status(0).is_source && !group.status(0).is_ready);
    assert_eq!(group.labels[0].handed_to, Some(MemberId(1)));
    group.reverse(0, 2);
    assert!(group.is_denied(0, Denial::Unheard(MemberId(1))), "{:?}", group.news[0]);
    assert!(!group.status(2).is_source, "two sources of one epoch's number");
    // The other one says what it is.
    group.join(0, 1);
    group.ticks(1);
    assert!(!group.status(0).is_source && group.status(1).is_source);
    assert_eq!(group.labels[0].handed_to, None);
}

#[test]
fn a_source_whose_hand_over_was_not_answered_hands_over_to_nobody_else() {
    for has_witness in [false, true] {
        let mut group = Group::new(3, has_witness);
        group.takes_over_unheard(1);
        group.ticks(SILENCE / (50 * MS) + 2);
        group.reverse(0, 2);
        group.ticks(2);
        assert!(!group.status(2).is_source);
        assert!(group.status(1).is_source);
    }
}

#[test]
fn a_member_that_did_not_take_over_and_comes_back_makes_its_source_go_on() {
    for (has_witness, starts_again) in [(false, false), (false, true), (true, false), (true, true)]
    {
        let mut group = Group::new(2, has_witness);
        // It dies before it does what it was told.
        group.kill_when_told(1);
        assert_eq!(group.labels[0].handed_to, Some(MemberId(1)));
        if starts_again {
            group.crashes(0);
            group.starts(0);
        }
        assert!(starts_again && has_witness || group.at(0).has_handed_over());
        group.starts(1);
        group.join(0, 1);
        group.ticks(3);
        let status = group.status(0);
        assert!(status.is_source && status.is_ready, "{status:?}");
        assert!(!group.at(0).has_handed_over());
        assert_eq!(group.labels[0].handed_to, None);
        assert_eq!(status.in_sync, MemberSet(0b11));
    }
}

#[test]
fn an_operator_answers_for_a_member_that_took_over_and_died() {
    let mut group = Group::new(2, false);
    group.crashes_when_told(1);
    group.crashes(1);
    group.starts(0);
    group.ticks(100);
    assert!(!group.status(0).is_ready, "what the other one acknowledged is there");
    group.wants(0, Wish::GoOnWithout(MemberId(1)));
    group.ticks(2);
    assert!(group.status(0).is_ready);
    assert_eq!(group.labels[0].handed_to, None);
    group.crashes(0);
    group.starts(0);
    assert!(group.status(0).is_ready, "the operator's word is kept");
}

#[test]
fn a_member_that_is_the_source_at_the_witness_alone_gets_no_copies_from_the_one_that_handed_over() {
    let mut group = Group::new(2, true);
    // The witness records member 1, which dies before it hears that.
    group.dies_at_witness = Some(1);
    group.reverse(0, 1);
    assert_eq!(group.seat.unwrap().source, MemberId(1));
    group.ticks(2);
    group.starts(1);
    group.sent.clear();
    group.join(0, 1);
    group.ticks(3);
    assert!(!group.told_to_follow(0), "it would be a mixture, which nobody promotes");
    assert!(!group.status(0).is_source, "the witness has told it");
    group.promote(1, false);
    assert!(group.status(1).is_source && group.status(1).is_ready, "{:?}", group.news[1]);
    group.join(1, 0);
    group.ticks(3);
    assert_eq!(group.status(1).in_sync, MemberSet(0b11));
}

#[test]
fn a_source_that_handed_over_asks_its_witness_before_the_member_follows_again() {
    let mut group = Group::new(2, true);
    group.kill_when_told(1);
    group.starts(1);
    let before = group.seat.unwrap();
    group.join(0, 1);
    group.ticks(2);
    let after = group.seat.unwrap();
    assert_eq!((after.epoch, after.in_sync), (before.epoch, before.in_sync));
    assert!(after.set_version > before.set_version, "a late request of the other one fails");
    assert!(group.status(0).is_ready);
    assert_eq!(group.status(0).in_sync, MemberSet(0b11));
}
