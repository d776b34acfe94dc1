//! Volumes that grow while they are used.

use block::{BlockDevice as _, Survives};
use replica::MemberId;
use replica::core::{News, Wish};
use replica::runtime::ResizeError;
use replica::view::Point;

use crate::group::{Group, Plan, SIZE, one_sided};

const GROWN: u64 = SIZE + (1 << 20);

#[test]
fn a_volume_grows_at_all_members_while_it_is_written() {
    for one_sided in [None, Some(one_sided())] {
        let group = Group::new(Plan { members: 3, one_sided, ..Plan::default() });
        let device = &group.devices(0)[0];
        device.write(0, &[1; 4096], Survives::Durable).unwrap();
        device.write(SIZE, &[1; 4096], Survives::Durable).unwrap_err();
        assert_eq!(group.member(0).resize(0, GROWN), Ok(GROWN));
        assert_eq!(device.geometry().size, GROWN);
        device.write(SIZE, &[2; 8192], Survives::Durable).unwrap();
        let mut found = [1; 4096];
        device.read(GROWN - 4096, &mut found).unwrap();
        assert_eq!(found, [0; 4096]);
        group.compare(0, 1);
        group.compare(0, 2);
        assert_eq!(group.member(1).report().sizes, [GROWN, SIZE]);
    }
}

#[test]
fn a_size_that_cannot_be_is_refused_by_name() {
    let group = Group::new(Plan::default());
    let source = group.member(0);
    assert_eq!(source.resize(0, SIZE), Err(ResizeError::ConfigNotLonger(SIZE)));
    assert_eq!(source.resize(9, GROWN), Err(ResizeError::ConfigNoVolume(9)));
    assert!(matches!(source.resize(0, GROWN + 1), Err(ResizeError::ConfigSize { .. })));
    let elsewhere = group.member(1).resize(0, GROWN).unwrap_err();
    assert!(matches!(elsewhere, ResizeError::Block(_)), "{elsewhere}");
}

#[test]
fn a_member_that_was_away_has_the_grown_volume_from_the_log_or_from_copies() {
    for rounds in [10, 800] {
        let mut group = Group::new(Plan::default());
        group.write(0, 0, 0, 1, 4096);
        group.stop(1);
        group.member(0).resize(0, GROWN).unwrap();
        for round in 0..rounds {
            group.write(0, 0, round % 200 * 4096, 3, 4096);
        }
        group.write(0, 0, GROWN - 4096, 4, 4096);
        group.start(1);
        group.compare(0, 1);
        // It knows the size when it starts again, though the record is gone from its log.
        group.stop(1);
        group.start(1);
        group.compare(0, 1);
        group.stop(0);
        group.promote(1, false);
        let device = &group.devices(1)[0];
        assert_eq!(device.geometry().size, GROWN);
        let mut found = [0; 4096];
        device.read(GROWN - 4096, &mut found).unwrap();
        assert_eq!(found, [4; 4096]);
    }
}

#[test]
fn a_source_that_starts_again_offers_the_grown_volume() {
    let mut group = Group::new(Plan::default());
    group.member(0).resize(1, GROWN).unwrap();
    group.write(0, 1, GROWN - 4096, 4, 4096);
    group.stop(0);
    group.start(0);
    group.wait("it is the source again", || group.status(0).is_ready);
    assert_eq!(group.devices(0)[1].geometry().size, GROWN);
    let nonce = group.member(0).nonce().unwrap();
    group.wait_in_sync(0);
    group.member(0).want(Wish::Reverse { to: MemberId(1), nonce });
    group.wait("the next member is the source", || group.status(1).is_ready);
    assert_eq!(group.devices(1)[1].geometry().size, GROWN);
    group.compare(1, 0);
}

#[test]
fn what_had_grown_at_a_source_alone_is_gone_once_it_follows_and_grows_as_zeroes_again() {
    let mut group = Group::asynchronous();
    group.write(0, 0, 0, 1, 4096);
    // It was copied whole first, and can be the source once it holds one moment.
    group.wait("it has that", || {
        let status = group.status(1);
        status.durable >= group.status(0).end && status.is_consistent
    });
    group.stop(1);
    group.member(0).resize(0, GROWN).unwrap();
    group.write(0, 0, GROWN - 4096, 7, 4096);
    group.stop(0);
    group.start(1);
    group.promote(1, true);
    group.start(0);
    group.wait("what it had alone is cut", || group.has_told(0, |it| matches!(it, News::Cut(_))));
    group.wait("it follows", || group.status(0).follows.is_some());
    assert_eq!(group.member(0).report().sizes, [SIZE, SIZE]);
    group.member(1).resize(0, GROWN).unwrap();
    group.write(1, 0, 4096, 2, 4096);
    group.wait("it has that", || group.status(0).applied >= group.status(1).end);
    let mut found = [1; 4096];
    group.file(0, 0).read(GROWN - 4096, &mut found).unwrap();
    assert_eq!(found, [0; 4096]);
}

#[test]
fn a_size_that_a_member_in_sync_cannot_have_is_refused_before_it_is_in_the_order() {
    let group = Group::new(Plan { least_in_sync: 2, ..Plan::default() });
    group.is_full(1, true);
    let refused = group.member(0).resize(0, GROWN).unwrap_err();
    assert_eq!(refused, ResizeError::ConfigMember(MemberId(1), SIZE));
    // Everything goes on.
    group.write(0, 0, 0, 1, 4096);
    group.write(0, 1, 0, 2, 4096);
    assert_eq!(group.member(0).report().sizes, [SIZE, SIZE]);
    group.is_full(1, false);
    group.member(0).resize(0, GROWN).unwrap();
    group.write(0, 0, GROWN - 4096, 3, 4096);
    group.compare(0, 1);
}

#[test]
fn a_view_is_as_long_as_the_volume_at_its_point_whatever_its_device_has_behind() {
    let mut group = Group::new(Plan::default());
    group.write(0, 0, 0, 1, 4096);
    group.stop(1);
    let device = group.file(1, 0);
    device.resize(GROWN).unwrap();
    device.write(SIZE, &[9; 4096], Survives::Durable).unwrap();
    drop(device);
    group.start(1);
    group.wait_in_sync(0);
    let size_at = |group: &Group, point: &Point| {
        let view = group.member(1).view(point, 1 << 20).unwrap();
        view.volumes()[0].geometry().size
    };
    assert_eq!(size_at(&group, &Point::Latest), SIZE);
    group.member(0).resize(0, GROWN).unwrap();
    group.wait("it has grown", || group.status(1).applied >= group.status(0).end);
    assert_eq!(size_at(&group, &Point::Latest), GROWN);
    let view = group.member(1).view(&Point::Latest, 1 << 20).unwrap();
    let mut found = [1; 4096];
    view.volumes()[0].read(SIZE, &mut found).unwrap();
    assert_eq!(found, [0; 4096]);
}
