//! Points in time, and comparisons at exact points.

use std::sync::atomic::{AtomicBool, Ordering};

use block::{BlockDevice as _, Survives};
use replica::MemberId;
use replica::core::News;
use replica::format::Extent;
use replica::view::{Point, ViewError};

use crate::group::{Group, Plan, SIZE};

#[test]
fn a_view_at_a_mark_shows_all_volumes_as_they_were_then_while_writes_go_on() {
    let group =
        Group::new(Plan { retention_ns: 3_600_000_000_000, capacity: 8 << 20, ..Plan::default() });
    group.write(0, 0, 0, 1, 4096);
    group.write(0, 1, 0, 1, 4096);
    let mark = group.member(0).mark("before").unwrap();
    group.write(0, 0, 0, 2, 4096);
    group.write(0, 1, 0, 2, 4096);
    group.wait("all is there", || group.status(1).committed >= group.status(0).end);
    let view = group.member(1).view(&Point::Mark("before".to_owned()), 1 << 20).unwrap();
    assert_eq!(view.at(), mark);
    let latest = group.member(1).view(&Point::Latest, 1 << 20).unwrap();
    for volume in 0..2 {
        let mut found = [0; 4096];
        view.volumes()[volume].read(0, &mut found).unwrap();
        assert_eq!(found, [1; 4096], "volume {volume} at the mark");
        latest.volumes()[volume].read(0, &mut found).unwrap();
        assert_eq!(found, [2; 4096], "volume {volume} at the end");
    }
    // A view may be written to, and the group goes on.
    view.volumes()[0].write(0, &[7; 4096], Survives::Placed).unwrap();
    group.write(0, 0, 0, 3, 4096);
    let mut found = [0; 4096];
    view.volumes()[0].read(0, &mut found).unwrap();
    assert_eq!(found, [7; 4096]);
    let (available, marks) = group.member(1).available().unwrap();
    assert_eq!(marks.len(), 1, "{available}");
    assert_eq!(group.member(1).report().views, 2);
}

#[test]
fn a_source_shows_its_volumes_as_they_are_while_writers_write_and_no_other_point() {
    let group = Group::new(Plan::default());
    let mark = group.member(0).mark("before").unwrap();
    for point in [Point::Mark("before".to_owned()), Point::Lsn(mark)] {
        let refused = group.member(0).view(&point, 1 << 20).unwrap_err();
        assert!(matches!(refused, ViewError::ConfigSource), "{refused}");
    }
    let devices = group.devices(0);
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Each writer writes its number to the first volume and then to the second: no moment has more in the second.
        for writer in 0..4_u64 {
            let (devices, stops) = (&devices, &stops);
            scope.spawn(move || {
                for round in (1..=255_u8).cycle().take_while(|_| !stops.load(Ordering::SeqCst)) {
                    for device in devices {
                        device.write(writer * 4096, &[round; 4096], Survives::Durable).unwrap();
                    }
                }
            });
        }
        for _ in 0..12 {
            let view = group.member(0).view(&Point::Latest, 8 << 20).unwrap();
            for writer in 0..4 {
                let mut found = [[0; 4096]; 2];
                for (volume, found) in view.volumes().iter().zip(&mut found) {
                    volume.read(writer * 4096, found).unwrap();
                }
                let ahead = found[0][0].wrapping_sub(found[1][0]);
                assert!(ahead <= 2 && found[0].iter().all(|it| *it == found[0][0]), "{ahead}");
                assert!(found[1].iter().all(|it| *it == found[1][0]));
            }
            view.volumes()[0].write(0, &[7; 4096], Survives::Placed).unwrap();
        }
        stops.store(true, Ordering::SeqCst);
    });
    group.compare(0, 1);
}

#[test]
fn a_block_that_changed_behind_the_member_is_found_by_verify_and_healed() {
    let group = Group::new(Plan::default());
    for round in 0..32 {
        group.write(0, 0, round * 65536, 5, 4096);
    }
    group.compare(0, 1);
    group.file(1, 0).write(3 * 65536, &[0xee; 512], Survives::Durable).unwrap();
    let (volume, offset, len) = (0, 0, SIZE);
    let lsn = group.member(0).verify(Extent { volume, offset, len }).unwrap();
    group.wait("it is compared", || group.status(1).applied >= lsn);
    group.wait("the difference is told", || {
        group.has_told(0, |news| matches!(news, News::Differs(MemberId(1), ..)))
    });
    assert_eq!(group.member(1).report().differences, 1);
    group.wait("it is healed", || {
        let mut found = [0; 512];
        group.file(1, 0).read(3 * 65536, &mut found).unwrap();
        found == [5; 512]
    });
    group.compare(0, 1);
}

#[test]
fn verify_raises_no_false_alarm_while_writers_write() {
    let group = Group::new(Plan::default());
    let devices = group.devices(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..400_u64 {
                let fill = u8::try_from(round % 251).unwrap();
                devices[0].write(round % 64 * 4096, &[fill; 4096], Survives::Placed).unwrap();
            }
        });
        for _ in 0..20 {
            let extent = Extent { volume: 0, offset: 0, len: 1 << 20 };
            group.member(0).verify(extent).unwrap();
        }
    });
    group.compare(0, 1);
    let report = group.member(1).report();
    assert_eq!((report.verified, report.differences), (20, 0));
}

#[test]
fn a_member_that_applies_its_log_again_does_not_compare_what_it_has_beyond_it() {
    let mut group = Group::new(Plan::default());
    group.write(0, 0, 0, 1, 4096);
    let extent = Extent { volume: 0, offset: 0, len: 1 << 20 };
    group.member(0).verify(extent).unwrap();
    group.write(0, 0, 0, 2, 4096);
    group.compare(0, 1);
    let report = group.member(1).report();
    assert_eq!((report.verified, report.differences), (1, 0));
    group.stop(1);
    group.start(1);
    group.compare(0, 1);
    assert_eq!(group.member(1).report().differences, 0);
    group.member(0).verify(extent).unwrap();
    group.compare(0, 1);
    let report = group.member(1).report();
    assert_eq!((report.verified, report.differences), (1, 0));
}

#[test]
fn a_range_that_was_written_after_it_was_verified_is_no_difference_when_a_member_applies_it_again()
{
    let mut group = Group::new(Plan::default());
    group.write(0, 0, 0, 1, 4096);
    group.member(0).verify(Extent { volume: 0, offset: 0, len: 65536 }).unwrap();
    group.write(0, 0, 0, 2, 4096);
    for member in [1, 0] {
        let end = group.status(0).end;
        group.wait("it is applied", || group.status(member).applied >= end);
        group.stop(member);
        group.start(member);
        group.wait("it goes on", || group.status(0).is_ready);
        group.compare(0, 1);
        let report = group.member(member).report();
        assert_eq!(report.differences, 0, "{report:?}");
    }
}

#[test]
fn a_source_heals_from_a_member_that_retains_records_and_its_points_stay() {
    let group =
        Group::new(Plan { retention_ns: 3_600_000_000_000, capacity: 8 << 20, ..Plan::default() });
    group.write(0, 0, 0, 1, 16_384);
    let first = group.member(0).mark("first").unwrap();
    group.write(0, 0, 4096, 2, 4096);
    let second = group.member(0).mark("second").unwrap();
    group.write(0, 0, 8192, 3, 4096);
    group.wait("all is there", || group.status(1).committed >= group.status(0).end);
    assert_eq!(group.status(1).applied, replica::Lsn(0), "the member retains everything");
    // Blocks whose last bytes are in the member's log alone, below and between its points.
    for sector in [0, 9, 17, 25] {
        group.lose(0, sector);
    }
    let mut found = [0; 16_384];
    group.devices(0)[0].read(0, &mut found).unwrap();
    let wanted = |fills: [u8; 4]| fills.map(|fill| [fill; 4096]).concat();
    assert_eq!(found.as_slice(), wanted([1, 2, 3, 1]));
    assert!(group.is_whole(0));
    assert_eq!(group.status(1).applied, replica::Lsn(0), "healing applies nothing there");
    for (name, at, fills) in [("first", first, [1, 1, 1, 1]), ("second", second, [1, 2, 1, 1])] {
        let view = group.member(1).view(&Point::Mark(name.to_owned()), 1 << 20).unwrap();
        assert_eq!(view.at(), at);
        view.volumes()[0].read(0, &mut found).unwrap();
        assert_eq!(found.as_slice(), wanted(fills), "{name}");
    }
}

#[test]
fn a_member_that_retains_records_and_is_healed_says_which_points_end_and_keeps_its_views() {
    let group =
        Group::new(Plan { retention_ns: 3_600_000_000_000, capacity: 8 << 20, ..Plan::default() });
    group.write(0, 0, 0, 1, 4096);
    let mark = group.member(0).mark("before").unwrap();
    group.write(0, 0, 0, 2, 4096);
    group.wait("all is there", || group.status(1).committed >= group.status(0).end);
    let view = group.member(1).view(&Point::Mark("before".to_owned()), 1 << 20).unwrap();
    // A block that no record wrote is not what it was.
    group.file(1, 0).write(1 << 20, &[0xee; 512], Survives::Durable).unwrap();
    group.member(0).want(replica::core::Wish::Compare(MemberId(1)));
    group.wait("it is healed", || {
        let mut found = [0; 512];
        group.file(1, 0).read(1 << 20, &mut found).unwrap();
        found == [0; 512]
    });
    let end = group.member(1).events(0).into_iter().find_map(|noted| match noted.news {
        News::PointsEnd(at) => Some(at),
        _ => None,
    });
    assert!(end.unwrap() >= mark);
    group.wait("everything is applied", || group.status(1).applied >= end.unwrap());
    let refused = group.member(1).view(&Point::Mark("before".to_owned()), 1 << 20);
    refused.unwrap_err();
    let mut found = [0; 4096];
    view.volumes()[0].read(0, &mut found).unwrap();
    assert_eq!(found, [1; 4096], "a view that was open stays what it was");
    let latest = group.member(1).view(&Point::Latest, 1 << 20).unwrap();
    latest.volumes()[0].read(0, &mut found).unwrap();
    assert_eq!(found, [2; 4096]);
    group.compare(0, 1);
}
