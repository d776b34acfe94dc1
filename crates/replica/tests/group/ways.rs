//! Records that go from ring to ring by one-sided operations.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use block::Survives;
use replica::MemberId;
use replica::core::{News, Wish};
use replica::runtime::Way;

use crate::group::{Group, Plan, one_sided};

fn plan() -> Plan {
    Plan { one_sided: Some(one_sided()), capacity: 2 << 20, ..Plan::default() }
}

fn wait_for_ways(group: &Group, source: u8) {
    group.wait_in_sync(source);
    group.wait("records go by one-sided operations", || {
        let ways = group.member(source).report().ways;
        !ways.is_empty() && ways.iter().all(|(_, way)| *way == Way::OneSided("soft"))
    });
}

/// Writes until the source is gone, or `end` says so: the number of the last answered write of each writer.
fn write_on(group: &mut Group, source: u8, end: impl FnOnce(&mut Group)) -> Vec<u64> {
    write_up_to(group, source, |group, allowed| {
        allowed.store(u64::MAX, Ordering::SeqCst);
        end(group);
    })
}

/// The same, of which each writer does no more writes than the number says that `end` raises.
fn write_up_to(
    group: &mut Group,
    source: u8,
    end: impl FnOnce(&mut Group, &AtomicU64),
) -> Vec<u64> {
    let (stops, counts) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; WRITERS]);
    let allowed = AtomicU64::new(200);
    let devices = group.devices(source);
    thread::scope(|scope| {
        for (writer, count) in (0_u64..).zip(&counts) {
            let (device, stops, allowed) = (&devices[0], &stops, &allowed);
            scope.spawn(move || {
                for (round, pages) in (1_u64..).zip([1, 2, 3].into_iter().cycle()) {
                    while round > allowed.load(Ordering::SeqCst) && !stops.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    let bytes = round.to_le_bytes().repeat(512 * pages);
                    let done = device.write(writer * AREA, &bytes, Survives::Durable);
                    if done.is_err() || stops.load(Ordering::SeqCst) {
                        return;
                    }
                    count.store(round, Ordering::SeqCst);
                }
            });
        }
        group.wait("some writes", || counts.iter().all(|it| it.load(Ordering::SeqCst) > 100));
        end(group, &allowed);
        stops.store(true, Ordering::SeqCst);
    });
    counts.map(AtomicU64::into_inner).to_vec()
}

fn has_them(group: &Group, source: u8, answered: &[u64]) {
    let device = &group.devices(source)[0];
    for (writer, answered) in (0_u64..).zip(answered) {
        let mut found = [0; 512];
        device.read(writer * AREA, &mut found).unwrap();
        let found = u64::from_le_bytes(*found.first_chunk().unwrap());
        assert!(found >= *answered, "writer {writer}: write {answered} is lost, {found} is there");
    }
}

#[test]
fn a_member_promoted_after_one_sided_writes_has_every_write_that_was_answered() {
    let mut group = Group::new(plan());
    wait_for_ways(&group, 0);
    assert!(group.has_told(0, |news| *news == News::OneSided(MemberId(1))));
    let answered = write_on(&mut group, 0, |group| group.stop(0));
    group.promote(1, false);
    has_them(&group, 1, &answered);
    // The old source comes back, follows, and gets the new one's records the same way.
    group.start(0);
    wait_for_ways(&group, 1);
    group.write(1, 1, 0, 9, 4096);
    group.compare(1, 0);
}

#[test]
fn a_member_that_starts_again_has_what_one_sided_writes_put_into_its_ring() {
    let mut group = Group::new(plan());
    wait_for_ways(&group, 0);
    let answered = write_on(&mut group, 0, |group| {
        group.stop(1);
        group.stop(0);
    });
    group.start(1);
    group.promote(1, true);
    // The source was alone at the end, for as long as it lived: what it answered then only it has.
    assert!(group.status(1).end.0 > 0);
    group.start(0);
    group.write(1, 0, 1 << 20, 3, 4096);
    group.compare(1, 0);
    drop(answered);
}

#[test]
fn a_reversal_hands_over_what_one_sided_writes_put_there_and_writes_go_on_in_the_other_direction() {
    let group = Group::new(plan());
    for round in 0..4 {
        let (source, to) = (round % 2, (round + 1) % 2);
        wait_for_ways(&group, source);
        group.write(source, 0, u64::from(round) * 4096, round, 4096);
        let nonce = group.member(source).nonce().unwrap();
        group.member(source).want(Wish::Reverse { to: MemberId(to), nonce });
        group.wait("the next member is the source", || group.status(to).is_ready);
        group.write(to, 0, u64::from(round) * 4096, round + 100, 4096);
    }
    group.compare(0, 1);
}

#[test]
fn without_an_engine_that_answers_records_go_by_messages_and_operators_are_told() {
    let mut options = one_sided();
    // Nobody listens there once this is dropped.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    options.addresses = vec![(MemberId(1), nobody)];
    let group = Group::new(Plan { one_sided: Some(options), ..Plan::default() });
    group.wait("it is known why", || {
        let ways = group.member(0).report().ways;
        matches!(&ways[..], [(MemberId(1), Way::Messages(Some(_)))])
    });
    assert!(group.has_told(0, |news| *news == News::NotOneSided(MemberId(1))));
    group.write(0, 0, 0, 7, 4096);
    group.compare(0, 1);
}

#[test]
fn copies_and_one_sided_records_make_one_order() {
    let mut group = Group::new(plan());
    wait_for_ways(&group, 0);
    group.stop(1);
    // More than the ring holds: the member gets copies, while writers go on.
    for round in 0..100 {
        group.write(0, 0, round % 40 * 65536, 1, 65536);
    }
    group.start(1);
    write_up_to(&mut group, 0, |group, allowed| {
        // Without a bound they fill a log of 2 MiB faster than a member takes it in that has no core, which so never comes in
        // sync. Each look at it lets them go on by less than a twentieth of the log.
        group.wait("the member is in sync", || {
            allowed.fetch_add(2, Ordering::SeqCst);
            group.is_in_sync(0)
        });
    });
    wait_for_ways(&group, 0);
    group.compare(0, 1);
}

const WRITERS: usize = 4;
const AREA: u64 = 64 << 10;
