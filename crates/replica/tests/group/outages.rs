//! Members that are away, and come back.

use replica::MemberId;
use replica::core::{Mode, News, Wish};
use replica::runtime::Rpo;

use crate::group::{Group, Plan};

#[test]
fn a_member_that_was_away_for_less_than_the_ring_gets_the_records_and_no_copies() {
    let mut group = Group::new(Plan::default());
    group.write(0, 0, 0, 1, 4096);
    group.stop(1);
    for round in 0..40 {
        group.write(0, 0, round * 4096, 2, 4096);
    }
    let before = group.member(0).events(0).len();
    group.start(1);
    group.compare(0, 1);
    let later = group.member(0).events(0).split_off(before);
    assert!(
        later.iter().any(|noted| matches!(noted.news, News::Replays(MemberId(1)))),
        "{later:?}"
    );
    assert!(!later.iter().any(|noted| matches!(noted.news, News::CopyBegins(..))), "{later:?}");
}

#[test]
fn a_member_that_was_away_for_longer_gets_what_it_lacks_as_copies_and_not_more() {
    let mut group = Group::new(Plan::default());
    group.write(0, 1, 1 << 20, 1, 4096);
    group.wait("it is applied", || group.status(1).applied >= group.status(0).end);
    group.stop(1);
    // Three times the ring, all to the same quarter of a volume.
    for round in 0..800 {
        group.write(0, 0, round % 256 * 4096, 3, 4096);
    }
    group.start(1);
    group.compare(0, 1);
    let bytes = group.member(0).events(0).iter().rev().find_map(|noted| match noted.news {
        News::CopyBegins(MemberId(1), bytes) => Some(bytes),
        _ => None,
    });
    let bytes = bytes.expect("copies are necessary");
    assert!((1 << 19..=2 << 20).contains(&bytes), "{bytes} bytes are copied");
}

#[test]
fn a_source_that_ends_and_starts_again_goes_on_once_it_has_heard_the_others() {
    let mut group = Group::new(Plan::default());
    for round in 0..50 {
        group.write(0, 0, round * 4096, 4, 4096);
    }
    group.stop(0);
    group.start(0);
    group.wait("it is the source again", || group.status(0).is_ready);
    let device = &group.devices(0)[0];
    let mut found = [0; 4096];
    device.read(49 * 4096, &mut found).unwrap();
    assert_eq!(found, [4; 4096]);
    group.write(0, 0, 0, 5, 4096);
    group.compare(0, 1);
}

#[test]
fn a_source_whose_members_in_sync_stay_away_waits_until_an_operator_says_otherwise() {
    let mut group = Group::new(Plan::default());
    group.write(0, 0, 0, 4, 4096);
    group.stop(0);
    group.stop(1);
    group.start(0);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!group.status(0).is_ready, "the other one may be the source by now");
    group.member(0).want(Wish::GoOnWithout(MemberId(1)));
    group.wait("it goes on", || group.status(0).is_ready);
    group.write(0, 0, 4096, 5, 4096);
    group.start(1);
    group.compare(0, 1);
}

#[test]
fn a_suspended_member_gets_nothing_until_it_is_resumed_and_applications_go_on() {
    let group = Group::new(Plan::default());
    group.member(0).want(Wish::Suspend(MemberId(1)));
    group.wait("it is suspended", || {
        let other = group.status(0).others[0].1;
        other.is_suspended && !other.is_connected
    });
    for round in 0..20 {
        group.write(0, 0, round * 4096, 6, 4096);
    }
    let had = group.status(1).end;
    assert!(had < group.status(0).end);
    group.member(0).want(Wish::Resume(MemberId(1)));
    group.compare(0, 1);
}

#[test]
fn a_member_that_lost_everything_is_copied_whole() {
    let mut group = Group::new(Plan::default());
    for round in 0..30 {
        group.write(0, 1, round * 65536, 8, 4096);
    }
    group.stop(1);
    group.make(1);
    group.start(1);
    group.compare(0, 1);
}

#[test]
fn every_member_may_end_at_any_time_while_writers_write() {
    let mut group = Group::new(Plan { members: 3, ..Plan::default() });
    for round in 0..6_u8 {
        let away = 1 + round % 2;
        let devices = group.devices(0);
        let writer = std::thread::spawn(move || {
            for at in 0..150_u64 {
                let bytes = [round ^ u8::try_from(at).unwrap(); 4096];
                devices[0].write(at * 8192, &bytes, block::Survives::Placed).unwrap();
            }
        });
        group.stop(away);
        group.start(away);
        writer.join().unwrap();
    }
    group.compare(0, 1);
    group.compare(0, 2);
}

#[test]
fn an_asynchronous_member_that_lacks_old_writes_is_reported_until_it_has_them() {
    let rpo = Some(Rpo { age_ns: 100_000_000, throttles: false });
    let mut group = Group::stopped(Plan { mode: Mode::Async, rpo, ..Plan::default() });
    group.start(0);
    group.start(1);
    group.promote(0, true);
    group.wait("it follows", || group.status(0).others[0].1.is_connected);
    group.stop(1);
    group.write(0, 0, 0, 1, 4096);
    group.wait("it is reported", || {
        group.has_told(0, |news| matches!(news, News::RpoExceeded(MemberId(1), ms) if *ms >= 100))
    });
    // Writers go on all the same.
    group.write(0, 0, 4096, 2, 4096);
    group.start(1);
    group.wait("it has them", || group.has_told(0, |news| matches!(news, News::RpoMet(_))));
}
