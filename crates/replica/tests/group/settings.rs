//! What operators change at members that run.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use block::Survives;
use replica::MemberId;
use replica::core::{Mode, Wish};
use replica::runtime::{Rpo, Settings};
use replica::wire::Policy;

use crate::group::{Group, Plan};

pub(crate) fn settings(group: &Group, member: u8) -> Settings {
    Settings {
        tuning: group.config(member).tuning(),
        compression: Policy::None,
        rpo: None,
        bandwidth: None,
    }
}

#[test]
fn writes_wait_for_as_many_members_as_are_wanted_from_now_on() {
    let mut group = Group::new(Plan { least_in_sync: 2, ..Plan::default() });
    group.write(0, 0, 0, 1, 4096);
    group.stop(1);
    let device = group.devices(0).remove(0);
    let is_written = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            device.write(4096, &[2; 4096], Survives::Placed).unwrap();
            is_written.store(true, Ordering::SeqCst);
        });
        let told = |news: &replica::core::News| matches!(news, replica::core::News::TooFewInSync);
        group.wait("the source has lost its member", || group.has_told(0, told));
        assert!(!is_written.load(Ordering::SeqCst));
        let mut wanted = settings(&group, 0);
        wanted.tuning.least_in_sync = 1;
        group.member(0).configure(&wanted);
        group.wait("the write goes on", || is_written.load(Ordering::SeqCst));
    });
    group.start(1);
    group.compare(0, 1);
}

#[test]
fn what_operators_want_is_kept_however_many_wait_for_that() {
    let group = Group::new(Plan { members: 3, ..Plan::default() });
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..40 {
                    let member = MemberId(1 + round % 2);
                    group.member(0).want(Wish::Suspend(member));
                    assert!(group.member(0).is_kept());
                    group.member(0).want(Wish::Resume(member));
                    assert!(group.member(0).is_kept());
                }
            });
        }
    });
    group.wait_in_sync(0);
}

#[test]
fn modes_compression_and_caps_change_while_writers_write() {
    let group = Group::new(Plan { capacity: 4 << 20, ..Plan::default() });
    let device = group.devices(0).remove(0);
    let stops = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let rounds = (1..=255_u8).cycle().zip(0_u64..);
            for (fill, round) in rounds.take_while(|_| !stops.load(Ordering::SeqCst)) {
                device.write(round % 16 * 65_536, &[fill; 65_536], Survives::Placed).unwrap();
            }
        });
        for (mode, compression, bandwidth) in [
            (Mode::Async, Policy::Lz4, None),
            (Mode::SemiSync, Policy::Zstd, NonZeroU64::new(64 << 20)),
            (Mode::Sync, Policy::None, None),
        ] {
            let rpo = (mode == Mode::Async).then_some(Rpo { age_ns: 1, throttles: true });
            for member in 0..2 {
                let mut wanted = settings(&group, member);
                wanted.tuning.modes = vec![(MemberId(0), mode), (MemberId(1), mode)];
                let wanted = Settings { compression, rpo, bandwidth, ..wanted };
                group.member(member).configure(&wanted);
            }
            let is_waited_for = mode != Mode::Async;
            group.wait("the set in sync is that of the mode", || {
                group.status(0).in_sync.contains(MemberId(1)) == is_waited_for
            });
            let before = group.status(0).committed;
            group.wait("writers go on", || group.status(0).committed > before);
        }
        stops.store(true, Ordering::SeqCst);
    });
    group.compare(0, 1);
}
