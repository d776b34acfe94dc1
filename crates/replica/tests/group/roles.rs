//! Who is the source, and how that changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use block::Survives;
use replica::core::{Denial, News, Wish};
use replica::{MemberId, MemberSet};

use crate::group::{Group, Plan};

#[test]
fn a_promoted_member_has_every_write_that_was_answered_and_the_old_source_follows_it() {
    let mut group = Group::new(Plan::default());
    let (stops, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let devices = group.devices(0);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0_u64.. {
                let bytes = round.to_le_bytes().repeat(512);
                let done = devices[0].write(round % 1000 * 4096, &bytes, Survives::Durable);
                if done.is_err() || stops.load(Ordering::SeqCst) {
                    break;
                }
                count.store(round + 1, Ordering::SeqCst);
            }
        });
        group.wait("some writes", || count.load(Ordering::SeqCst) > 300);
        group.stop(0);
        writer.join().unwrap();
    });
    drop(devices);
    let answered = count.load(Ordering::SeqCst);
    group.promote(1, false);
    let device = &group.devices(1)[0];
    for round in answered.saturating_sub(1000)..answered {
        let mut found = [0; 4096];
        device.read(round % 1000 * 4096, &mut found).unwrap();
        let has = u64::from_le_bytes(found[..8].try_into().unwrap());
        assert!(has == round || has >= answered, "write {round} of {answered} is lost: {has}");
    }
    group.start(0);
    group.write(1, 1, 0, 9, 4096);
    group.compare(1, 0);
    assert!(!group.status(0).is_source);
}

#[test]
fn a_reversal_loses_nothing_and_the_writers_of_the_old_source_fail() {
    let group = Group::new(Plan::default());
    group.write(0, 0, 0, 1, 4096);
    let nonce = group.member(0).nonce().unwrap();
    group.member(0).want(Wish::Reverse { to: MemberId(1), nonce });
    group.wait("member 1 is the source", || {
        let status = group.status(1);
        status.is_source && status.is_ready && !group.status(0).is_source
    });
    group.write(1, 0, 4096, 2, 4096);
    let refused = group.devices(0)[0].write(0, &[0; 4096], Survives::Placed);
    assert_eq!(refused.unwrap_err().errno(), 108);
    group.compare(1, 0);
    let nonce = group.member(1).nonce().unwrap();
    group.member(1).want(Wish::Reverse { to: MemberId(0), nonce });
    group.wait("and back", || group.status(0).is_ready);
    group.write(0, 0, 8192, 3, 4096);
    group.compare(0, 1);
}

#[test]
fn with_a_witness_a_reversal_is_not_overtaken_by_the_old_source() {
    let group = Group::new(Plan { members: 3, has_witness: true, ..Plan::default() });
    for round in 0..20 {
        let (source, to) = (round % 3, (round + 1) % 3);
        group.wait_in_sync(source);
        let nonce = group.member(source).nonce().unwrap();
        group.member(source).want(Wish::Reverse { to: MemberId(to), nonce });
        group.wait("the next member is the source", || group.status(to).is_ready);
        group.write(to, 0, u64::from(round) * 4096, round, 4096);
        let denied = group.has_told(source, |news| matches!(news, News::Denied(_)));
        assert!(!denied, "{:?}", group.member(source).events(0));
    }
}

#[test]
fn a_member_that_may_lack_writes_is_promoted_by_force_alone_and_what_the_other_had_more_is_cut() {
    let mut group = Group::new(Plan::default());
    group.write(0, 0, 0, 1, 4096);
    group.member(0).want(Wish::Suspend(MemberId(1)));
    group.wait("it is out of sync", || !group.status(0).in_sync.contains(MemberId(1)));
    group.write(0, 0, 0, 2, 4096);
    group.stop(0);
    group.wait("the source is gone from there", || group.status(1).follows.is_none());
    group.member(1).promote(false).unwrap();
    group.wait("it is denied", || {
        group.has_told(1, |news| matches!(news, News::Denied(Denial::NotInSync)))
    });
    group.promote(1, true);
    group.write(1, 0, 8192, 3, 4096);
    group.start(0);
    group.compare(1, 0);
}

#[test]
fn a_source_that_lives_is_not_replaced_without_force() {
    let group = Group::new(Plan::default());
    group.member(1).promote(false).unwrap();
    group.wait("it is denied", || {
        group.has_told(1, |news| matches!(news, News::Denied(Denial::SourceLives)))
    });
    assert!(!group.status(1).is_source);
}

#[test]
fn a_source_that_is_demoted_answers_nothing_more() {
    let group = Group::new(Plan::default());
    group.write(0, 0, 0, 1, 4096);
    group.member(0).want(Wish::Demote);
    group.wait("nobody is the source", || !group.status(0).is_source);
    let refused = group.devices(0)[0].write(0, &[2; 4096], Survives::Placed);
    assert_eq!(refused.unwrap_err().errno(), 108);
    group.promote(1, false);
    group.compare(1, 0);
}

#[test]
fn a_source_that_went_on_alone_while_another_was_promoted_has_the_others_bytes_once_it_follows() {
    let group = Group::new(Plan::default());
    group.write(0, 0, 0, 1, 4096);
    group.member(0).want(Wish::Suspend(MemberId(1)));
    group.wait("it is out of sync", || !group.status(0).in_sync.contains(MemberId(1)));
    // Acknowledged by the source alone, and lost by what an operator does next.
    group.write(0, 0, 4096, 2, 4096);
    group.wait("the source is gone from there", || group.status(1).follows.is_none());
    group.promote(1, true);
    group.write(1, 0, 8192, 3, 4096);
    group.wait("the old source steps down", || !group.status(0).is_source);
    group.compare(1, 0);
}

#[test]
fn a_source_that_has_handed_over_lets_nobody_read_what_the_next_one_has_overwritten() {
    for _ in 0..5 {
        let group = Group::new(Plan::default());
        group.write(0, 0, 0, 1, 4096);
        let old = std::sync::Arc::clone(&group.devices(0)[0]);
        let is_answered = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut found = [0; 4096];
                    loop {
                        let is_late = is_answered.load(Ordering::SeqCst);
                        if old.read(0, &mut found).is_err() {
                            break;
                        }
                        assert!(!is_late, "the old source shows {}", found[0]);
                    }
                });
            }
            let nonce = group.member(0).nonce().unwrap();
            group.member(0).want(Wish::Reverse { to: MemberId(1), nonce });
            while group.member(1).tenure() == 0 {
                std::hint::spin_loop();
            }
            group.write(1, 0, 0, 2, 4096);
            is_answered.store(true, Ordering::SeqCst);
        });
        group.compare(1, 0);
    }
}

#[test]
fn a_read_waits_until_the_member_in_sync_has_promised_not_to_be_the_source() {
    let mut group = Group::new(Plan { least_in_sync: 2, ..Plan::default() });
    group.write(0, 0, 0, 5, 4096);
    let (device, has_read) = (group.devices(0).remove(0), AtomicBool::new(false));
    group.stop(1);
    group.wait("its promise is over", || {
        group.status(0).reads_wait_for == MemberSet::of(MemberId(1))
    });
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut found = [0; 512];
            device.read(0, &mut found).unwrap();
            has_read.store(true, Ordering::SeqCst);
            found[0]
        });
        for _ in 0..20 {
            assert_eq!(group.status(0).reads_wait_for, MemberSet::of(MemberId(1)));
            assert!(!has_read.load(Ordering::SeqCst), "it could be the source by now");
            thread::yield_now();
        }
        group.start(1);
        assert_eq!(reader.join().unwrap(), 5);
    });
    group.compare(0, 1);
}

#[test]
fn a_member_that_was_left_behind_and_starts_again_is_not_promoted_without_force() {
    let mut group = Group::new(Plan::default());
    group.stop(1);
    group.write(0, 0, 0, 7, 4096);
    group.stop(0);
    group.start(1);
    group.member(1).promote(false).unwrap();
    group.wait("it is denied", || {
        group.has_told(1, |news| matches!(news, News::Denied(Denial::MayBeLeft)))
    });
    assert!(!group.status(1).is_source);
    group.start(0);
    group.compare(0, 1);
}
