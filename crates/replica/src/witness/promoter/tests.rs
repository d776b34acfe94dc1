//! Decisions one by one; then groups of promoters on virtual time, with everything that can go wrong between them.

use super::*;
use crate::testing::Chance;
use crate::witness::may_follow;

const SECOND: u64 = 1_000_000_000;
const PATIENCE: u64 = 2 * SECOND;
const TURN: u64 = 3 * SECOND;

fn epoch(number: u32) -> Epoch {
    Epoch { number, restart: 0, nonce: number.into() }
}

fn seat(number: u32, source: u8, in_sync: u8) -> Seat {
    Seat {
        epoch: epoch(number),
        source: MemberId(source),
        in_sync: MemberSet(in_sync),
        set_version: 2,
    }
}

fn alive(end: u64) -> Alive {
    let (is_in_sync, is_fit) = (true, true);
    Alive { epoch: epoch(3), end: Lsn(end), is_source: false, is_in_sync, is_fit }
}

fn sight(seat: Seat, members: &[(u8, Alive)]) -> Sight {
    let alive = members.iter().map(|(member, alive)| (MemberId(*member), *alive)).collect();
    Sight { seat: Some(seat), alive, is_maintenance: false }
}

fn destination(end: u64) -> Standing {
    Standing {
        epoch: epoch(3),
        end: Lsn(end),
        may_be_source: true,
        in_sync: MemberSet(0b1111),
        ..Standing::default()
    }
}

fn source() -> Standing {
    let connected = MemberSet(0b1110);
    Standing { is_source: true, is_ready: true, connected, ..destination(640) }
}

fn promoter(me: u8) -> Promoter {
    Promoter::new(PromoterConfig::new(MemberId(me)))
}

/// A destination that knows itself.
fn destined(me: u8, end: u64) -> Promoter {
    let mut promoter = promoter(me);
    assert_eq!(promoter.step(0, Sign::Stands(destination(end))), []);
    promoter
}

/// A source whose units run.
fn serving(config: PromoterConfig) -> Promoter {
    let mut promoter = Promoter::new(config);
    assert_eq!(promoter.step(0, Sign::Stands(source())), [Decision::StartUnits]);
    assert_eq!(promoter.step(0, Sign::UnitsStarted(true)), []);
    let own = Alive { is_source: true, ..alive(640) };
    let all = [(0, own), (1, alive(640)), (2, alive(640))];
    assert_eq!(promoter.step(0, Sign::Seen(sight(seat(3, 0, 0b111), &all))), []);
    promoter
}

fn config() -> PromoterConfig {
    PromoterConfig::new(MemberId(0))
}

const PROMOTE: [Decision; 1] = [Decision::Promote { above: 3 }];

/// When a promoter promotes itself, of ticks every tenth of a second.
fn promotes_at(promoter: &mut Promoter, from: u64, until: u64) -> Option<u64> {
    (from..until).step_by(100_000_000).find(|now| promoter.step(*now, Sign::Tick) == PROMOTE)
}

#[test]
fn the_first_candidate_promotes_itself_once_the_source_is_gone_for_long() {
    let mut promoter = destined(1, 640);
    let gone = Sign::Seen(sight(seat(3, 0, 0b011), &[(1, alive(640))]));
    assert_eq!(promoter.step(SECOND, gone), []);
    assert_eq!(promotes_at(&mut promoter, SECOND, 60 * SECOND), Some(SECOND + PATIENCE));
    // What it asked for may have been denied: it asks again, as patiently.
    let again = promotes_at(&mut promoter, SECOND + PATIENCE, 60 * SECOND);
    assert_eq!(again, Some(SECOND + 2 * PATIENCE));
}

#[test]
fn a_source_that_is_back_in_time_or_connected_stays() {
    let mut promoter = destined(1, 640);
    let gone = sight(seat(3, 0, 0b011), &[(1, alive(640))]);
    let own = Alive { is_source: true, ..alive(640) };
    let back = sight(seat(3, 0, 0b011), &[(0, own), (1, alive(640))]);
    for round in 0..10 {
        let now = round * 2 * SECOND;
        assert_eq!(promoter.step(now, Sign::Seen(gone.clone())), []);
        assert_eq!(promoter.step(now + PATIENCE - 1, Sign::Seen(back.clone())), []);
    }
    // Etcd does not see it, but it is connected here.
    let follows = Standing { follows: Some(MemberId(0)), ..destination(640) };
    promoter.step(30 * SECOND, Sign::Stands(follows));
    promoter.step(30 * SECOND, Sign::Seen(gone));
    assert_eq!(promotes_at(&mut promoter, 30 * SECOND, 90 * SECOND), None);
    promoter.step(90 * SECOND, Sign::Stands(destination(640)));
    assert_eq!(promotes_at(&mut promoter, 90 * SECOND, 120 * SECOND), Some(90 * SECOND + PATIENCE));
}

#[test]
fn a_member_out_of_sync_or_unfit_or_blind_never_promotes_itself() {
    let all = [(1, alive(640)), (2, alive(640))];
    let mut outside = destined(1, 6400);
    outside.step(0, Sign::Seen(sight(seat(3, 0, 0b101), &all)));
    assert_eq!(promotes_at(&mut outside, 0, 60 * SECOND), None);
    let mut unfit = promoter(1);
    unfit.step(0, Sign::Stands(Standing { may_be_source: false, ..destination(640) }));
    unfit.step(0, Sign::Seen(sight(seat(3, 0, 0b011), &all)));
    assert_eq!(promotes_at(&mut unfit, 0, 60 * SECOND), None);
    let mut blind = destined(1, 640);
    blind.step(0, Sign::Seen(sight(seat(3, 0, 0b011), &all)));
    blind.step(SECOND, Sign::Blind);
    assert_eq!(promotes_at(&mut blind, 0, 60 * SECOND), None);
    let mut unrecorded = destined(1, 640);
    unrecorded.step(0, Sign::Seen(Sight { alive: Vec::new(), ..Sight::default() }));
    assert_eq!(promotes_at(&mut unrecorded, 0, 60 * SECOND), None);
}

#[test]
fn the_maintenance_switch_stops_promotion_and_its_end_allows_it() {
    let mut promoter = destined(1, 640);
    let gone = sight(seat(3, 0, 0b011), &[(1, alive(640))]);
    let maintained = Sight { is_maintenance: true, ..gone.clone() };
    promoter.step(0, Sign::Seen(maintained));
    assert_eq!(promotes_at(&mut promoter, 0, 60 * SECOND), None);
    assert_eq!(promoter.step(60 * SECOND, Sign::Seen(gone)), PROMOTE);
}

#[test]
fn candidates_take_turns_by_end_then_preference_then_number() {
    let seen = |ends: [u64; 3], preference: &[u8]| {
        let members = [(1, alive(ends[0])), (2, alive(ends[1])), (3, alive(ends[2]))];
        let sight = sight(seat(3, 0, 0b1111), &members);
        [1, 2, 3].map(|me| {
            let preference = preference.iter().copied().map(MemberId).collect();
            let mut promoter =
                Promoter::new(PromoterConfig { preference, ..PromoterConfig::new(MemberId(me)) });
            promoter.step(0, Sign::Stands(destination(ends[usize::from(me) - 1])));
            promoter.step(0, Sign::Seen(sight.clone()));
            promotes_at(&mut promoter, 0, 60 * SECOND).map(|at| (at - PATIENCE) / TURN)
        })
    };
    assert_eq!(seen([640, 640, 640], &[]), [Some(0), Some(1), Some(2)]);
    assert_eq!(seen([640, 640, 704], &[]), [Some(1), Some(2), Some(0)]);
    assert_eq!(seen([640, 640, 640], &[3, 2]), [Some(2), Some(1), Some(0)]);
    assert_eq!(seen([704, 640, 640], &[3, 2]), [Some(0), Some(2), Some(1)]);
}

#[test]
fn a_candidate_that_is_unfit_or_gone_has_no_turn() {
    let unfit = Alive { is_fit: false, ..alive(6400) };
    let mut promoter = destined(3, 640);
    promoter.step(0, Sign::Seen(sight(seat(3, 0, 0b1111), &[(2, unfit), (3, alive(640))])));
    assert_eq!(promotes_at(&mut promoter, 0, 60 * SECOND), Some(PATIENCE));
}

#[test]
fn a_source_that_starts_again_as_a_destination_takes_its_seat_back() {
    let mut promoter = destined(0, 640);
    promoter.step(0, Sign::Seen(sight(seat(3, 0, 0b001), &[(0, alive(640))])));
    assert_eq!(promotes_at(&mut promoter, 0, 60 * SECOND), Some(PATIENCE));
    promoter.step(4 * SECOND, Sign::Stands(Standing { is_promoting: true, ..destination(640) }));
    assert_eq!(promotes_at(&mut promoter, 4 * SECOND, 60 * SECOND), None);
    assert_eq!(promoter.alive().map(|alive| alive.is_source), Some(true));
}

#[test]
fn units_start_at_a_source_that_is_ready_and_stop_when_it_is_none() {
    let mut promoter = destined(0, 640);
    let begins = Standing { is_ready: false, ..source() };
    assert_eq!(promoter.step(1, Sign::Stands(begins)), []);
    assert_eq!(promoter.step(2, Sign::Stands(source())), [Decision::StartUnits]);
    assert_eq!(promoter.step(3, Sign::Stands(destination(640))), [], "first they have started");
    assert_eq!(promoter.step(4, Sign::UnitsStarted(true)), [Decision::StopUnits]);
    assert_eq!(promoter.step(5, Sign::Stands(source())), [], "first they have stopped");
    assert_eq!(promoter.step(6, Sign::UnitsStopped(true)), [Decision::StartUnits]);
}

#[test]
fn a_source_that_has_lost_its_seat_demotes_at_once() {
    let mut promoter = serving(config());
    let lost = Sign::Seen(sight(seat(4, 1, 0b010), &[(0, alive(640))]));
    assert_eq!(promoter.step(1, lost.clone()), [Decision::Demote, Decision::StopUnits]);
    assert_eq!(promoter.step(2, lost), [], "once is enough");
    assert_eq!(promoter.step(3, Sign::Stands(destination(640))), []);
    assert_eq!(promoter.step(4, Sign::UnitsStopped(true)), []);
}

#[test]
fn a_source_whose_promotion_is_not_seen_yet_stays() {
    let mut promoter = serving(config());
    for before in [seat(2, 1, 0b011), seat(3, 1, 0b011)] {
        assert_eq!(promoter.step(1, Sign::Seen(sight(before, &[]))), []);
    }
    // Its own seat, newer than what its label says.
    assert_eq!(promoter.step(1, Sign::Seen(sight(seat(4, 0, 0b001), &[]))), []);
    assert_eq!(promotes_at(&mut promoter, 1, 60 * SECOND), None);
}

#[test]
fn a_source_that_sees_neither_witness_nor_members_gives_up() {
    let after = |standing: Standing, sign: Sign| {
        let mut promoter = serving(config());
        promoter.step(SECOND, Sign::Stands(standing));
        promoter.step(SECOND, sign);
        (SECOND..60 * SECOND)
            .step_by(100_000_000)
            .find(|now| promoter.step(*now, Sign::Tick).contains(&Decision::Demote))
    };
    let left = Standing { connected: MemberSet::NONE, ..source() };
    assert_eq!(after(left, Sign::Blind), Some(21 * SECOND));
    assert_eq!(after(source(), Sign::Blind), None, "its members are there");
    assert_eq!(after(left, Sign::Tick), None, "the witness is there");
    let outside = Standing { connected: MemberSet(0b1000), in_sync: MemberSet(0b011), ..left };
    assert_eq!(after(outside, Sign::Blind), Some(21 * SECOND), "who is there is not in sync");
    let alone = Standing { in_sync: MemberSet(0b001), ..left };
    assert_eq!(after(alone, Sign::Blind), None, "nobody else can be the source");
}

#[test]
fn a_preferred_member_gets_the_part_back_after_a_while_and_units_stop_before() {
    let preference = vec![MemberId(2), MemberId(0)];
    let mut promoter =
        serving(PromoterConfig { preference, fails_back_ns: Some(10 * SECOND), ..config() });
    assert_eq!(promoter.step(9 * SECOND, Sign::Tick), []);
    assert_eq!(promoter.step(10 * SECOND, Sign::Tick), [Decision::StopUnits]);
    let told = promoter.step(11 * SECOND, Sign::UnitsStopped(true));
    assert_eq!(told, [Decision::HandOver { to: MemberId(2) }]);
    assert_eq!(promoter.step(12 * SECOND, Sign::Stands(destination(640))), []);
}

#[test]
fn a_member_that_is_not_preferred_or_not_in_sync_for_long_gets_nothing_back() {
    let preference = vec![MemberId(2), MemberId(0)];
    let fails_back = PromoterConfig { preference, fails_back_ns: Some(10 * SECOND), ..config() };
    let mut promoter = serving(fails_back.clone());
    let mut flaps = promoter.step(0, Sign::Tick);
    for second in (0..120).step_by(6) {
        let seen = if second % 12 == 0 { 0b011 } else { 0b111 };
        let all = [(1, alive(640)), (2, alive(640))];
        flaps.extend(promoter.step(second * SECOND, Sign::Seen(sight(seat(3, 0, seen), &all))));
    }
    assert_eq!(flaps, []);
    let mut without = serving(PromoterConfig { fails_back_ns: None, ..fails_back });
    assert_eq!(without.step(99 * SECOND, Sign::Tick), []);
    let all = serving(PromoterConfig { fails_back_ns: Some(0), ..config() });
    assert_eq!(all.leaving.map(|it| it.to), None, "nobody is preferred");
}

#[test]
fn a_hand_over_whose_units_do_not_stop_or_that_does_not_come_about_ends() {
    let mut promoter = serving(config());
    let stops = promoter.step(1, Sign::HandOver(MemberId(1)));
    assert_eq!(stops, [Decision::StopUnits]);
    assert_eq!(promoter.step(2, Sign::UnitsStopped(false)), [Decision::StartUnits]);
    promoter.step(3, Sign::UnitsStarted(true));
    promoter.step(4, Sign::HandOver(MemberId(1)));
    let told = promoter.step(SECOND, Sign::UnitsStopped(true));
    assert_eq!(told, [Decision::HandOver { to: MemberId(1) }]);
    assert_eq!(promoter.step(HAND_OVER_NS, Sign::Tick), []);
    assert_eq!(promoter.step(SECOND + HAND_OVER_NS, Sign::Tick), [Decision::StartUnits]);
}

#[test]
fn units_that_do_not_start_are_tried_again_and_then_another_member_is_the_source() {
    let mut promoter = promoter(0);
    let own = Alive { is_source: true, ..alive(640) };
    let seen = sight(seat(3, 0, 0b011), &[(0, own), (1, alive(640))]);
    promoter.step(0, Sign::Seen(seen));
    assert_eq!(promoter.step(0, Sign::Stands(source())), [Decision::StartUnits]);
    let mut now = 0;
    for _ in 1..STARTS_MAX {
        assert_eq!(promoter.step(now, Sign::UnitsStarted(false)), []);
        assert_eq!(promoter.step(now + START_AGAIN_NS - 1, Sign::Tick), []);
        now += START_AGAIN_NS;
        assert_eq!(promoter.step(now, Sign::Tick), [Decision::StartUnits]);
        assert_eq!(promoter.alive().map(|alive| alive.is_fit), Some(true));
    }
    let told = promoter.step(now, Sign::UnitsStarted(false));
    assert_eq!(told, [Decision::HandOver { to: MemberId(1) }]);
    assert_eq!(promoter.alive().map(|alive| alive.is_fit), Some(false));
    promoter.step(now, Sign::Stands(destination(640)));
    promoter.step(now + UNFIT_NS, Sign::Tick);
    assert_eq!(promoter.alive().map(|alive| alive.is_fit), Some(true));
}

/// A group: what each member is, what etcd holds, who is cut off from what.
struct World {
    chance: Chance,
    now: u64,
    seat: Seat,
    members: Vec<Option<Member>>,
    /// Who has been heard of at etcd, and when last.
    announced: Vec<Option<(u64, Alive)>>,
    cut: MemberSet,
    nonce: u64,
    promotions: u32,
    refused: u32,
}

struct Member {
    promoter: Promoter,
    standing: Standing,
    /// What the units really are, and what is under way.
    runs: bool,
    orders: Vec<(u64, Decision)>,
}

const LEASE_NS: u64 = 5 * SECOND;
const STEP: u64 = SECOND / 10;

impl World {
    fn new(seed: u64, members: u8) -> Self {
        let first = Seat::alone(epoch(1), MemberId(0));
        let mut world = Self {
            chance: Chance(seed),
            now: 0,
            seat: first,
            members: Vec::new(),
            announced: vec![None; usize::from(members)],
            cut: MemberSet::NONE,
            nonce: 100,
            promotions: 0,
            refused: 0,
        };
        world.members = (0..members).map(|me| Some(world.member(me))).collect();
        world
    }

    fn member(&self, me: u8) -> Member {
        let standing = Standing {
            epoch: self.seat.epoch,
            may_be_source: true,
            in_sync: self.seat.in_sync,
            ..Standing::default()
        };
        let promoter = Promoter::new(PromoterConfig::new(MemberId(me)));
        Member { promoter, standing, runs: false, orders: Vec::new() }
    }

    fn ids(&self) -> impl Iterator<Item = MemberId> + use<> {
        (0..u8::try_from(self.members.len()).unwrap()).map(MemberId)
    }

    fn lives(&self, member: MemberId) -> bool {
        self.members[usize::from(member.0)].is_some()
    }

    /// A tenth of a second of everybody's life.
    fn turn(&mut self) {
        self.now += STEP;
        for member in self.ids() {
            if self.lives(member) {
                self.turn_of(member);
            }
        }
    }

    fn turn_of(&mut self, me: MemberId) {
        let at = usize::from(me.0);
        let is_cut = self.cut.contains(me);
        if !is_cut {
            self.keep_set(me);
        }
        let seat_now = self.seat;
        let now = self.now;
        let seen = match is_cut {
            true => Sign::Blind,
            false => Sign::Seen(self.sight()),
        };
        let is_slow = self.chance.below(4) == 0;
        let Some(member) = &mut self.members[at] else { return };
        if !is_cut && member.standing.is_source && seat_now.source != me {
            // It hears of the newer source, and is none any more.
            member.standing = Standing { is_source: false, is_ready: false, ..member.standing };
        }
        let mut decisions = member.promoter.step(now, Sign::Stands(member.standing));
        if !is_slow {
            decisions.extend(member.promoter.step(now, seen));
        }
        let takes = |decision: &Decision| match decision {
            Decision::StartUnits | Decision::StopUnits => SECOND,
            _ => STEP,
        };
        member.orders.extend(decisions.iter().map(|it| (now + takes(it), *it)));
        if !is_cut {
            self.announced[at] = member.promoter.alive().map(|alive| (now, alive));
        }
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut member.orders).into_iter().partition(|(at, _)| *at <= now);
        member.orders = later;
        for (_, decision) in due {
            self.carry_out(me, decision);
        }
    }

    fn sight(&self) -> Sight {
        let is_alive = |(said, _): &(u64, Alive)| self.now - said < LEASE_NS;
        let alive = self.ids().filter_map(|member| {
            let said = self.announced[usize::from(member.0)].filter(is_alive)?;
            Some((member, said.1))
        });
        Sight { seat: Some(self.seat), alive: alive.collect(), is_maintenance: false }
    }

    // What the core of a source does: those who live are in sync.
    fn keep_set(&mut self, me: MemberId) {
        let living = self.ids().filter(|member| self.lives(*member));
        let in_sync = living.fold(MemberSet::NONE, MemberSet::with);
        let Some(member) = &mut self.members[usize::from(me.0)] else { return };
        if self.seat.source != me || !member.standing.is_source {
            member.standing.in_sync = self.seat.in_sync;
            return;
        }
        member.standing.is_ready = true;
        member.standing.connected = in_sync.without(me);
        let wanted = Seat { in_sync, set_version: self.seat.set_version + 1, ..self.seat };
        if in_sync != self.seat.in_sync && may_follow(Some(&self.seat), &wanted) {
            self.seat = wanted;
        }
        member.standing.in_sync = self.seat.in_sync;
    }

    fn carry_out(&mut self, me: MemberId, decision: Decision) {
        let fails = self.chance.below(20) == 0;
        let is_cut = self.cut.contains(me);
        self.nonce += 1;
        let nonce = self.nonce;
        let now = self.now;
        let Some(member) = &mut self.members[usize::from(me.0)] else { return };
        let answers = match decision {
            Decision::Promote { above } => {
                assert!(!member.standing.is_source);
                let epoch = Epoch { number: above + 1, restart: 0, nonce };
                let wanted = Seat::alone(epoch, me);
                if !is_cut && may_follow(Some(&self.seat), &wanted) {
                    self.seat = wanted;
                    self.promotions += 1;
                    let (is_source, in_sync) = (true, wanted.in_sync);
                    member.standing = Standing { epoch, is_source, in_sync, ..member.standing };
                } else {
                    self.refused += 1;
                }
                None
            }
            Decision::Demote => {
                member.standing.is_source = false;
                member.standing.is_ready = false;
                None
            }
            Decision::HandOver { .. } => None,
            Decision::StartUnits => {
                assert!(!member.runs, "they run already");
                member.runs = !fails;
                Some(Sign::UnitsStarted(!fails))
            }
            Decision::StopUnits => {
                assert!(member.runs);
                member.runs = false;
                Some(Sign::UnitsStopped(true))
            }
        };
        if let Some(sign) = answers {
            let decisions = member.promoter.step(now, sign);
            member.orders.extend(decisions.into_iter().map(|it| (now + STEP, it)));
        }
    }

    fn fault(&mut self) {
        let count = self.members.len();
        let member = MemberId(u8::try_from(self.chance.index(count)).unwrap());
        let at = usize::from(member.0);
        match self.chance.below(4) {
            0 => self.members[at] = None,
            1 if !self.lives(member) => self.members[at] = Some(self.member(member.0)),
            2 => self.cut = self.cut.with(member),
            _ => self.cut = self.cut.without(member),
        }
    }

    fn serves(&self) -> Vec<MemberId> {
        self.ids()
            .filter(|it| self.members[usize::from(it.0)].as_ref().is_some_and(|it| it.runs))
            .collect()
    }
}

#[test]
fn groups_heal_to_one_source_whatever_fails() {
    let (mut promotions, mut refused) = (0, 0);
    for seed in 0..300 {
        let mut world = World::new(seed, 2 + u8::try_from(seed % 3).unwrap());
        for _ in 0..1200 {
            world.turn();
            if world.chance.below(30) == 0 {
                world.fault();
            }
        }
        world.cut = MemberSet::NONE;
        for member in world.ids() {
            if !world.lives(member) {
                world.members[usize::from(member.0)] = Some(world.member(member.0));
            }
        }
        let healed = (0..1200).find(|_| {
            world.turn();
            world.serves() == [world.seat.source]
        });
        assert!(
            healed.is_some(),
            "seed {seed}: {} serve, seat {}",
            world.serves().len(),
            world.seat
        );
        for _ in 0..600 {
            world.turn();
        }
        assert_eq!(world.serves(), [world.seat.source], "seed {seed}: it stays so");
        promotions += world.promotions;
        refused += world.refused;
    }
    println!("{promotions} promotions, {refused} refused");
    assert!(promotions > 1000, "{promotions}");
}

#[test]
fn of_four_members_that_see_the_source_die_one_asks_for_its_part() {
    for seed in 0..50 {
        let mut world = World::new(seed, 4);
        for _ in 0..200 {
            world.turn();
        }
        let (source, before) = (world.seat.source, world.promotions);
        world.members[usize::from(source.0)] = None;
        for _ in 0..300 {
            world.turn();
        }
        assert_eq!((world.promotions, world.refused), (before + 1, 0), "seed {seed}");
        assert_eq!(world.serves(), [world.seat.source]);
    }
}
