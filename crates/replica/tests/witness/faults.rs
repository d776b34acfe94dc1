//! A killed leader, no majority, requests that come late, answers that are lost, and members that race.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use replica::witness::{Seat, Witness, WitnessError};
use replica::{Epoch, MemberId, MemberSet};

use crate::proxy::{Mode, Proxy};
use crate::servers::Servers;
use crate::{alone, changed, open};

/// Asks until there is an answer, as a driver has to.
fn settled(witness: &impl Witness, wanted: &Seat) -> bool {
    let began = Instant::now();
    loop {
        match witness.propose(wanted) {
            Ok(is_taken) => return is_taken,
            Err(error) => assert!(began.elapsed() < Duration::from_secs(60), "{error}"),
        }
    }
}

fn race(servers: &Servers, rounds: u32) {
    let (one, other) = (open(0, servers.endpoints()), open(1, servers.endpoints()));
    assert!(one.propose(&alone(1, 0)).unwrap());
    let mut recorded = alone(1, 0);
    let mut won = [0, 0];
    for number in 2..2 + rounds {
        let source = recorded.source.0;
        let both = changed(recorded, 0b11);
        assert!([&one, &other][usize::from(source)].propose(&both).unwrap());
        let barrier = Barrier::new(2);
        let asks = |member: u8| {
            let witness = [&one, &other][usize::from(member)];
            barrier.wait();
            witness.propose(&alone(number, member)).unwrap()
        };
        let taken = std::thread::scope(|scope| {
            let other = scope.spawn(|| asks(1));
            [asks(0), other.join().unwrap()]
        });
        assert_ne!(taken[0], taken[1], "epoch {number} has {taken:?}");
        recorded = one.load().unwrap().unwrap();
        let winner = usize::from(recorded.source.0);
        assert!(taken[winner] && recorded == alone(number, recorded.source.0));
        won[winner] += 1;
    }
    println!("of {rounds} races member 0 won {}, member 1 {}", won[0], won[1]);
}

#[test]
fn of_two_members_that_race_exactly_one_has_the_epoch() {
    race(&Servers::start(1), 200);
}

#[test]
fn of_two_members_that_race_at_three_etcd_exactly_one_has_the_epoch() {
    race(&Servers::start(3), 60);
}

#[test]
fn the_record_outlives_each_killed_leader_of_three() {
    let mut servers = Servers::start(3);
    let witness = open(0, servers.endpoints());
    let mut seat = alone(1, 0);
    assert!(settled(&witness, &seat));
    for round in 0..3 {
        let leader = servers.leader();
        servers.kill(leader);
        for step in 0..5 {
            seat = changed(seat, if step % 2 == 0 { 0b11 } else { 0b01 });
            assert!(settled(&witness, &seat), "round {round}, {seat}");
        }
        assert_eq!(witness.load().unwrap(), Some(seat));
        servers.restart(leader);
    }
}

#[test]
fn a_hanging_leader_is_left_for_another() {
    let servers = Servers::start(3);
    let leader = servers.leader();
    // The one that hangs is the first that is asked.
    let mut endpoints = servers.endpoints();
    endpoints.rotate_left(leader);
    let witness = open(0, endpoints);
    let mut seat = alone(1, 0);
    assert!(settled(&witness, &seat));
    servers.stop(leader);
    for _ in 0..3 {
        seat = changed(seat, 0b11);
        assert!(settled(&witness, &seat));
    }
    servers.go_on(leader);
    assert_eq!(witness.load().unwrap(), Some(seat));
}

#[test]
fn without_a_majority_nothing_is_taken_and_the_error_names_all_endpoints() {
    let mut servers = Servers::start(3);
    let witness = open(0, servers.endpoints());
    let seat = alone(1, 0);
    assert!(settled(&witness, &seat));
    servers.kill(0);
    servers.kill(1);
    for asked in [witness.load().map(|_| ()), witness.propose(&changed(seat, 0b11)).map(|_| ())] {
        let error = asked.unwrap_err();
        let WitnessError::Unreachable { tried, .. } = &error else { panic!("{error}") };
        assert!(tried.len() >= 3);
        let said = error.to_string();
        for endpoint in servers.endpoints() {
            assert!(said.contains(&endpoint), "{said}");
        }
        assert!(said.contains("Check that most of its members run"), "{said}");
    }
    servers.restart(0);
    assert!(settled(&witness, &changed(seat, 0b11)));
}

#[test]
fn an_etcd_that_is_not_there_yet_is_asked_again() {
    let mut servers = Servers::start(1);
    servers.kill(0);
    let witness = open(0, servers.endpoints());
    let said = witness.load().unwrap_err().to_string();
    assert!(said.contains("refused") && said.contains(&servers.endpoint(0)), "{said}");
    servers.restart(0);
    assert!(settled(&witness, &alone(1, 0)));
}

#[test]
fn a_change_whose_answer_was_lost_is_taken_once() {
    let servers = Servers::start(1);
    let proxy = Proxy::new(servers.port(0));
    // Answers that are lost on the first way; the second way is open.
    let witness = open(0, vec![proxy.endpoint(), servers.endpoint(0)]);
    let direct = open(0, servers.endpoints());
    let mut seat = alone(1, 0);
    assert!(witness.propose(&seat).unwrap());
    for round in 0..3 {
        proxy.set(Mode::Open);
        // The way that was left for the other is the first one again with a new connection.
        let witness = open(0, vec![proxy.endpoint(), servers.endpoint(0)]);
        assert_eq!(witness.load().unwrap(), Some(seat));
        proxy.set(Mode::AnswersHeld);
        let wanted = changed(seat, 0b11);
        assert!(witness.propose(&wanted).unwrap(), "round {round}");
        assert_eq!(direct.load().unwrap(), Some(wanted));
        seat = wanted;
    }
    // Where there is no other way, the answer is an error; asked again it is that the change is there, or is made.
    proxy.set(Mode::Open);
    let cut = open(0, vec![proxy.endpoint()]);
    assert_eq!(cut.load().unwrap(), Some(seat));
    proxy.set(Mode::AnswersHeld);
    let wanted = changed(seat, 0b01);
    cut.propose(&wanted).unwrap_err();
    proxy.set(Mode::Open);
    assert!(settled(&cut, &wanted));
    assert!(settled(&cut, &wanted));
    assert_eq!(direct.load().unwrap(), Some(wanted));
}

#[test]
fn a_member_that_is_cut_off_changes_nothing_also_when_its_request_comes_late() {
    let servers = Servers::start(3);
    let proxy = Proxy::new(servers.port(0));
    let (old, other) = (open(0, vec![proxy.endpoint()]), open(1, servers.endpoints()));
    let both = changed(alone(1, 0), 0b11);
    assert!(settled(&old, &alone(1, 0)) && settled(&old, &both));
    proxy.set(Mode::Held);
    // The old source wants to go on alone, and its requests are on their way for long.
    let error = old.propose(&changed(both, 0b01)).unwrap_err();
    let WitnessError::Unreachable { .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains("no answer within 1000 ms"), "{error}");
    assert!(settled(&other, &alone(2, 1)));
    proxy.set(Mode::Open);
    assert!(!settled(&old, &changed(both, 0b01)), "another has the seat");
    assert_eq!(other.load().unwrap(), Some(alone(2, 1)));
    assert_eq!(old.load().unwrap(), Some(alone(2, 1)));
}

#[test]
fn a_source_that_starts_again_loses_or_keeps_its_seat_as_a_whole() {
    let servers = Servers::start(1);
    let (old, other) = (open(0, servers.endpoints()), open(1, servers.endpoints()));
    let mut seat = alone(1, 0);
    assert!(old.propose(&seat).unwrap());
    for number in 2..30 {
        let both = changed(seat, 0b11);
        assert!(old.propose(&both).unwrap());
        let Epoch { number: at, restart, .. } = seat.epoch;
        let again = Epoch { number: at, restart: restart + 1, nonce: u64::from(number) };
        let again = Seat { epoch: again, in_sync: MemberSet(0b01), set_version: 1, ..both };
        let barrier = Barrier::new(2);
        let (kept, lost) = std::thread::scope(|scope| {
            let promoted = scope.spawn(|| {
                barrier.wait();
                other.propose(&alone(number, 1)).unwrap()
            });
            barrier.wait();
            (old.propose(&again).unwrap(), promoted.join().unwrap())
        });
        assert_ne!(kept, lost);
        seat = old.load().unwrap().unwrap();
        assert_eq!(seat.source, MemberId(u8::from(lost)));
        if lost {
            // The other one hands the seat back.
            assert!(other.propose(&changed(seat, 0b11)).unwrap());
            seat = alone(number + 100, 0);
            assert!(old.propose(&seat).unwrap());
            return;
        }
    }
}
