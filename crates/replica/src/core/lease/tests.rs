//! Two cores joined by a connection that delivers at once, or not at all.
#![cfg(test)]

use std::collections::VecDeque;

use crate::core::{Action, Config, Congestion, Core, Denial, Event, Found, Mode, News, Wish};
use crate::dirty::DirtyMap;
use crate::format::Label;
use crate::message::{Message, Peer};
use crate::names::{GroupId, MemberId, MemberSet};

const MS: u64 = 1_000_000;
const LEASE: u64 = 400 * MS;

fn config(me: u8, has_witness: bool) -> Config {
    Config {
        group: GroupId([3; 16]),
        me: MemberId(me),
        my_mode: Mode::Sync,
        others: vec![(MemberId(1 - me), Mode::Sync)],
        volumes: vec![1 << 20],
        capacity: 1 << 16,
        least_in_sync: 1,
        has_witness,
        congestion: Congestion::DirtyMap,
        window: 1 << 20,
        silence_ns: 10_000 * MS,
        read_lease_ns: LEASE,
        retention_ns: 0,
        copy_window: 1 << 20,
        seals: false,
        key_check: 0,
    }
}

/// Members 0 and 1.
struct Pair {
    cores: [Core; 2],
    labels: [Label; 2],
    news: [Vec<News>; 2],
    has_witness: bool,
    now: u64,
    /// The number of the connection; what is sent is lost while there is none.
    connection: u64,
    is_joined: bool,
    /// Answers that have not come yet.
    held: Option<Vec<(usize, Event)>>,
}

impl Pair {
    /// Member 0 is the source, and member 1 in sync.
    fn new(has_witness: bool) -> Self {
        let label = |me| Core::first_label(&config(me, has_witness));
        let labels = [label(0), label(1)];
        let core = |me: u8| Self::core(me, has_witness, labels[usize::from(me)].clone());
        let mut pair = Self {
            cores: [core(0), core(1)],
            news: [Vec::new(), Vec::new()],
            labels,
            has_witness,
            now: MS,
            connection: 0,
            is_joined: false,
            held: None,
        };
        pair.promote(0, false, true);
        pair.join();
        pair.ticks(3);
        assert_eq!(pair.cores[0].status().in_sync, MemberSet(0b11));
        pair
    }

    fn core(me: u8, has_witness: bool, label: Label) -> Core {
        let config = config(me, has_witness);
        let dirty = vec![(MemberId(1 - me), DirtyMap::clean(&config.volumes))];
        Core::new(config, Found { claimed: label.committed, label, entries: Vec::new(), dirty })
    }

    fn promote(&mut self, at: usize, was_in_sync: bool, by_force: bool) {
        let wish = Wish::Promote { nonce: self.now, above: 0, was_in_sync, by_force };
        self.step(at, Event::Wanted(wish));
    }

    fn peer(&self, at: usize) -> Peer {
        Peer { member: MemberId(u8::try_from(1 - at).unwrap()), connection: self.connection }
    }

    fn join(&mut self) {
        self.connection += 1;
        self.is_joined = true;
        self.step(1, Event::Accepted(self.peer(1)));
        self.step(0, Event::Dialed(self.peer(0)));
    }

    /// Both ends find that the connection has ended.
    fn part(&mut self) {
        self.is_joined = false;
        let peers = [self.peer(0), self.peer(1)];
        self.step(0, Event::Lost(peers[0]));
        self.step(1, Event::Lost(peers[1]));
    }

    /// Time passes at all that run, 50 ms at once.
    fn ticks(&mut self, count: u64) {
        for _ in 0..count {
            self.now += 50 * MS;
            (0..2).for_each(|at| self.step(at, Event::Tick));
        }
    }

    fn step(&mut self, at: usize, event: Event) {
        let mut events = VecDeque::from([(at, event)]);
        while let Some((at, event)) = events.pop_front() {
            for action in self.cores[at].step(self.now, event) {
                let answer = match action {
                    Action::Persist(to) => Event::RingDurable(to),
                    Action::Apply(_, to) => Event::AppliedTo(to),
                    Action::FlushVolumes(to) => Event::VolumesDurable(to),
                    Action::StoreLabel(label) => {
                        self.labels[at] = Label::clone(&label);
                        Event::LabelStored(label.sequence)
                    }
                    Action::StoreDirty { member, number, .. } => Event::DirtyStored(member, number),
                    Action::TakeSnapshot { .. } => Event::SnapshotTaken,
                    Action::FlushCopies(count) => Event::CopiesDurable(count),
                    Action::PutCopy => Event::CopyPut,
                    Action::Copy { peer, extent, .. } => Event::CopiesSent(peer, extent, 0),
                    Action::Propose { number, .. } => Event::Proposed { number, is_taken: true },
                    Action::Revoke => Event::Revoked,
                    Action::StopWriters => Event::WritersStopped,
                    Action::Disconnect(peer) => Event::Lost(peer),
                    Action::Send(peer, message) => {
                        let is_open = self.is_joined && peer.connection == self.connection;
                        let there = (1 - at, Event::Said(self.peer(1 - at), message.clone()));
                        match (&mut self.held, message) {
                            (Some(held), Message::Leased { .. }) => held.push(there),
                            _ if is_open => events.push_back(there),
                            _ => {}
                        }
                        continue;
                    }
                    Action::Tell(news) => {
                        self.news[at].push(news);
                        continue;
                    }
                    _ => continue,
                };
                events.push_back((at, answer));
            }
        }
    }

    fn reads(&self) -> bool {
        self.cores[0].reads_until() > self.now
    }

    /// Ends a member, and starts it with what it had stored.
    fn start_again(&mut self, at: usize) {
        let me = u8::try_from(at).unwrap();
        self.cores[at] = Self::core(me, self.has_witness, self.labels[at].clone());
    }
}

#[test]
fn a_source_lets_read_only_as_long_as_its_member_in_sync_has_promised() {
    let mut pair = Pair::new(true);
    assert!(pair.reads());
    pair.ticks(40);
    assert!(pair.reads(), "promises are had anew");
    // Nothing gets through, and nobody has noticed.
    pair.is_joined = false;
    pair.ticks(4);
    assert!(pair.reads(), "the last promise is not over");
    pair.ticks(5);
    assert!(!pair.reads());
    assert_eq!(pair.cores[0].reads_wait_for(), MemberSet(0b10));
    // The witness agrees that the member is in sync no more: it cannot be the source without force.
    pair.part();
    assert!(pair.reads());
}

#[test]
fn an_answer_that_comes_late_is_counted_from_its_question() {
    let mut pair = Pair::new(true);
    pair.held = Some(Vec::new());
    pair.ticks(9);
    assert!(!pair.reads());
    let held = pair.held.take().unwrap();
    let oldest = held.into_iter().next().unwrap();
    pair.ticks(2);
    let until = pair.cores[0].reads_until();
    pair.step(oldest.0, oldest.1);
    assert_eq!(pair.cores[0].reads_until(), until, "an old answer adds nothing");
}

#[test]
fn an_answer_to_what_was_not_asked_ends_the_connection() {
    let mut pair = Pair::new(true);
    let (asked, until) = (pair.now + 1, pair.cores[0].reads_until());
    pair.step(0, Event::Said(pair.peer(0), Message::Leased { asked, for_ns: u64::MAX }));
    assert!(!pair.cores[0].status().others[0].1.is_connected);
    assert!(until < u64::MAX);
}

#[test]
fn a_member_that_has_promised_becomes_the_source_only_when_that_has_passed() {
    for starts_again in [false, true] {
        let mut pair = Pair::new(true);
        pair.is_joined = false;
        let until = pair.cores[0].reads_until();
        pair.step(1, Event::Lost(pair.peer(1)));
        if starts_again {
            pair.start_again(1);
        }
        pair.promote(1, false, false);
        while pair.now + 50 * MS < until {
            pair.ticks(1);
            assert!(!pair.cores[1].is_source(), "the source may let read still");
        }
        // Clocks differ in their rates by less than an eighth.
        pair.ticks(1 + LEASE / 8 / (50 * MS) + 2);
        assert!(pair.cores[1].is_source() || starts_again);
        pair.ticks(10);
        assert!(pair.cores[1].is_source());
        assert!(!pair.reads(), "by then the old source lets nothing be read");
    }
}

#[test]
fn no_longer_promise_is_given_than_a_member_remembers_after_a_crash() {
    let mut pair = Pair::new(true);
    let epoch = pair.cores[0].epoch();
    let ask = Message::Lease { epoch, asked: 0, for_ns: u64::MAX };
    pair.step(1, Event::Said(pair.peer(1), ask));
    pair.part();
    pair.promote(1, false, false);
    pair.ticks(LEASE / (50 * MS) + 3);
    assert!(pair.cores[1].is_source());
}

#[test]
fn a_source_without_a_witness_that_was_stopped_waits_for_who_was_in_sync() {
    let mut pair = Pair::new(false);
    // It is stopped; when it goes on, its connection has ended, and another may be the source.
    pair.is_joined = false;
    pair.now += LEASE + MS;
    let peer = pair.peer(0);
    pair.step(0, Event::Lost(peer));
    pair.ticks(3);
    assert!(!pair.reads());
    assert_eq!(pair.cores[0].status().in_sync, MemberSet(0b11), "nobody is left behind");
    assert_eq!(pair.cores[0].reads_wait_for(), MemberSet(0b10));
    // The operator knows that the other is not the source.
    pair.step(0, Event::Wanted(Wish::GoOnWithout(MemberId(1))));
    pair.ticks(1);
    assert!(pair.reads());
    assert_eq!(pair.cores[0].status().in_sync, MemberSet(0b01));
}

#[test]
fn a_source_that_was_stopped_goes_on_once_its_member_answers() {
    let mut pair = Pair::new(false);
    pair.held = Some(Vec::new());
    pair.now += LEASE + MS;
    pair.step(0, Event::Tick);
    assert!(!pair.reads());
    for (at, event) in pair.held.take().unwrap() {
        pair.step(at, event);
    }
    assert!(pair.reads());
}

#[test]
fn a_member_that_was_left_behind_without_knowing_is_not_promoted_without_force() {
    let mut pair = Pair::new(false);
    pair.part();
    pair.start_again(1);
    pair.ticks(2);
    assert_eq!(pair.cores[0].status().in_sync, MemberSet(0b01), "the source goes on alone");
    pair.promote(1, false, false);
    pair.ticks(20);
    assert!(!pair.cores[1].is_source());
    assert!(pair.news[1].contains(&News::Denied(Denial::MayBeLeft)), "{:?}", pair.news[1]);
    // An operator may know better.
    pair.promote(1, true, false);
    pair.ticks(20);
    assert!(pair.cores[1].is_source());
}
