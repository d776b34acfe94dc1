use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use block::{BlockDevice, Survives, Zeroing};
use log::Lsn;

use super::{Point, Records, RecordsError, Room, VIEWS_MAX, View, ViewError, Views};
use crate::format::{Contents, Encoding, Extent, Kind, Record};
use crate::testing::{self, Chance, bytes, file};

/// Records in memory, in a row.
#[derive(Debug, Default)]
struct Order {
    first: usize,
    all: Vec<(Record, Vec<u8>)>,
    end: Lsn,
}

impl Order {
    fn push(&mut self, kind: Kind, volume: u8, offset: u64, len: u64, payload: &[u8]) -> Lsn {
        let record = Record {
            lsn: self.end,
            epoch: 1,
            chain: 0,
            kind,
            encoding: Encoding::Plain,
            volume,
            stored: u32::try_from(payload.len()).unwrap(),
            offset,
            len,
            time_ns: 1000 + 10 * self.all.len() as u64,
            committed: Lsn(0),
        };
        self.end = record.end();
        self.all.push((record, payload.to_vec()));
        self.end
    }
}

#[derive(Debug, Default)]
struct Ring(RwLock<Order>);

impl Records for Ring {
    fn kept(&self) -> Range<Lsn> {
        let order = self.0.read().unwrap();
        order.all.get(order.first).map_or(order.end, |(record, _)| record.lsn)..order.end
    }
    fn record(&self, at: Lsn, payload: Option<&mut Vec<u8>>) -> Result<Record, RecordsError> {
        let order = self.0.read().unwrap();
        let oldest = order.all[order.first].0.lsn;
        if at < oldest {
            return Err(RecordsError::Gone { at, oldest });
        }
        let found = order.all.binary_search_by_key(&at, |(record, _)| record.lsn);
        let (record, bytes) = &order.all[found.map_err(|_| RecordsError::MediaDamaged { at })?];
        if let Some(payload) = payload {
            payload.clone_from(bytes);
        }
        Ok(*record)
    }
}

const SIZE: u64 = 128 << 10;

fn volumes() -> Vec<Arc<dyn BlockDevice>> {
    (0..2).map(|_| -> Arc<dyn BlockDevice> { file(SIZE) }).collect()
}

/// An LSN, and what the volumes are there.
type Moment = (Lsn, [Vec<u8>; 2]);

/// A random order over two volumes, and what the volumes are at the end of each record.
fn order(seed: u64, count: usize) -> (Ring, Vec<Moment>) {
    let (mut order, mut chance) = (Order::default(), Chance(seed));
    let mut model = [vec![0; testing::len(SIZE)], vec![0; testing::len(SIZE)]];
    let mut points = vec![(Lsn(0), model.clone())];
    for number in 0..count {
        let volume = chance.byte() % 2;
        let now = &mut model[usize::from(volume)];
        let size = now.len() as u64;
        let offset = chance.below(size / 512) * 512;
        let len = (1 + chance.below(20).min(size / 512 - offset / 512 - 1)) * 512;
        let range = testing::len(offset)..testing::len(offset + len);
        match chance.below(10) {
            0 => {
                now[range].fill(0);
                order.push(Kind::Trim, volume, offset, len, &[]);
            }
            1 => {
                now[range].fill(0);
                order.push(Kind::Zero, volume, offset, len, &[]);
            }
            2 if size < 2 * SIZE => {
                now.resize(testing::len(size) + 1536, 0);
                order.push(Kind::Resize, volume, size, 1536, &[]);
            }
            3 => {
                order.push(Kind::Mark, 0, 0, 0, format!("m{number}").as_bytes());
            }
            _ => {
                let bytes: Vec<u8> = range.clone().map(|_| chance.byte()).collect();
                now[range].copy_from_slice(&bytes);
                order.push(Kind::Write, volume, offset, len, &bytes);
            }
        }
        points.push((order.end, model.clone()));
    }
    (Ring(RwLock::new(order)), points)
}

/// Applies the record at `at`, as a destination does; the LSN of the next one.
fn apply(
    views: &Views,
    volumes: &[Arc<dyn BlockDevice>],
    ring: &Ring,
    at: Lsn,
    is_done: bool,
) -> Lsn {
    let mut payload = Vec::new();
    let record = ring.record(at, Some(&mut payload)).unwrap();
    let applying = views.apply(record.end());
    if let Some(extent) = record.changes() {
        applying.changes(extent);
    }
    let volume = &volumes[usize::from(record.volume)];
    let (offset, len) = (record.offset, record.len);
    match record.kind {
        Kind::Write => volume.write(offset, &payload, Survives::Placed).unwrap(),
        Kind::Trim => volume.trim(offset, len, Survives::Placed).unwrap(),
        Kind::Zero => {
            volume.write_zeroes(offset, len, Zeroing::KeepSpace, Survives::Placed).unwrap();
        }
        Kind::Resize => drop(volume.resize(offset + len).unwrap()),
        _ => {}
    }
    if is_done {
        applying.done();
    }
    record.end()
}

fn shows(view: &View, model: &[Vec<u8>; 2]) -> bool {
    view.volumes().iter().zip(model).all(|(volume, model)| bytes(&**volume) == *model)
}

fn room() -> Room<'static> {
    Room { directory: std::path::Path::new("/tmp"), bytes_max: 1 << 30 }
}

fn open(views: &Views, ring: &Ring, point: &Point) -> Result<View, ViewError> {
    let directory = tempfile::tempdir().unwrap();
    views.open(ring, point, Room { directory: directory.path(), ..room() })
}

#[test]
fn a_view_at_any_point_has_all_volumes_exactly_there_while_the_destination_goes_on() {
    for seed in 0..4 {
        let (ring, points) = order(seed, 120);
        let volumes = volumes();
        let views = Views::new(volumes.clone(), Lsn(0), Lsn(0), Contents::Consistent);
        let mut chance = Chance(seed + 50);
        let (mut at, mut open_views) = (Lsn(0), Vec::new());
        let end = ring.kept().end;
        while at < end {
            for _ in 0..chance.below(4) {
                if at < end {
                    at = apply(&views, &volumes, &ring, at, true);
                }
            }
            let ahead: Vec<_> = points.iter().filter(|(lsn, _)| *lsn >= at).collect();
            let (lsn, model) = ahead[chance.index(ahead.len())];
            let view = open(&views, &ring, &Point::Lsn(*lsn)).unwrap();
            assert_eq!(view.at(), *lsn);
            assert!(shows(&view, model), "seed {seed}, {lsn} with {at} applied");
            if open_views.len() == VIEWS_MAX - 1 {
                let gone: (View, _) = open_views.remove(chance.index(8));
                drop(gone);
            }
            open_views.push((view, model));
            let all = open_views.iter().all(|(view, model)| shows(view, model));
            assert!(all, "seed {seed}, {at} applied");
        }
    }
}

#[test]
fn views_are_made_while_another_thread_applies() {
    let (ring, points) = order(9, 400);
    let volumes = volumes();
    let views = Views::new(volumes.clone(), Lsn(0), Lsn(0), Contents::Consistent);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            let (mut made, mut chance) = (0, Chance(4));
            while !done.load(Ordering::Relaxed) {
                let (lsn, model) = &points[chance.index(points.len())];
                match open(&views, &ring, &Point::Lsn(*lsn)) {
                    Ok(view) => assert!(shows(&view, model), "{lsn}"),
                    Err(ViewError::ConfigOutOfRange { available, .. }) => {
                        assert!(available.from > *lsn);
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                }
                made += 1;
            }
            made
        });
        let (mut at, end) = (Lsn(0), ring.kept().end);
        while at < end {
            at = apply(&views, &volumes, &ring, at, true);
            std::thread::yield_now();
        }
        // At least the last point can still be had.
        assert!(shows(&open(&views, &ring, &Point::Latest).unwrap(), &points.last().unwrap().1));
        done.store(true, Ordering::Relaxed);
        made.join().unwrap();
    });
}

#[test]
fn a_change_that_did_not_end_hides_the_points_below_its_end() {
    let (ring, points) = order(2, 30);
    let volumes = volumes();
    let views = Views::new(volumes.clone(), Lsn(0), Lsn(0), Contents::Consistent);
    let (half, model) = &points[1];
    let held = open(&views, &ring, &Point::Lsn(Lsn(0))).unwrap();
    apply(&views, &volumes, &ring, Lsn(0), false);
    assert_eq!(views.applied(), Lsn(0));
    let refused = open(&views, &ring, &Point::Lsn(Lsn(0))).unwrap_err();
    assert!(
        matches!(&refused, ViewError::ConfigOutOfRange { available, .. } if available.from == *half)
    );
    assert!(shows(&open(&views, &ring, &Point::Lsn(*half)).unwrap(), model));
    assert!(shows(&held, &points[0].1), "what was open stays");
    // The same after a restart, which knows how far it may have come.
    let views = Views::new(volumes, Lsn(0), points[3].0, Contents::Consistent);
    open(&views, &ring, &Point::Lsn(points[2].0)).unwrap_err();
    let view = open(&views, &ring, &Point::Lsn(points[3].0)).unwrap();
    assert!(shows(&view, &points[3].1));
}

#[test]
fn a_view_can_be_written_and_nobody_else_sees_it() {
    let (ring, points) = order(3, 40);
    let volumes = volumes();
    let views = Views::new(volumes.clone(), Lsn(0), Lsn(0), Contents::Consistent);
    let (one, other) = (
        open(&views, &ring, &Point::Latest).unwrap(),
        open(&views, &ring, &Point::Latest).unwrap(),
    );
    one.volumes()[0].write(0, &[0xcc; 512], Survives::Placed).unwrap();
    let mut at = Lsn(0);
    while at < ring.kept().end {
        at = apply(&views, &volumes, &ring, at, true);
    }
    let mut first = vec![0; 512];
    one.volumes()[0].read(0, &mut first).unwrap();
    assert_eq!(first, [0xcc; 512]);
    assert!(shows(&other, &points.last().unwrap().1));
    assert_eq!(bytes(&*volumes[0]), points.last().unwrap().1[0]);
    assert_eq!(views.open_views(), 2);
    drop((one, other));
    assert_eq!(views.open_views(), 0);
}

/// Four records: two writes, a mark, a write; made at 1000, 1010, 1020, 1030.
fn marked() -> (Ring, [Lsn; 4]) {
    let mut order = Order::default();
    let ends = [
        order.push(Kind::Write, 0, 0, 512, &[1; 512]),
        order.push(Kind::Write, 0, 0, 512, &[2; 512]),
        order.push(Kind::Mark, 0, 0, 0, "noon".as_bytes()),
        order.push(Kind::Write, 0, 0, 512, &[3; 512]),
    ];
    (Ring(RwLock::new(order)), ends)
}

#[test]
fn a_point_is_found_by_lsn_time_and_mark() {
    let (ring, [one, two, mark, last]) = marked();
    let views = Views::new(volumes(), Lsn(0), Lsn(0), Contents::Consistent);
    let at = |point| open(&views, &ring, &point).map(|view| (view.at(), view.volumes()[0].clone()));
    let table = [
        (Point::Latest, last, 3),
        (Point::Lsn(Lsn(0)), Lsn(0), 0),
        (Point::Lsn(one), one, 1),
        (Point::Lsn(Lsn(two.0 - 1)), one, 1),
        (Point::Time(1000), one, 1),
        (Point::Time(1019), two, 2),
        (Point::Time(u64::MAX), last, 3),
        (Point::Mark("noon".to_owned()), mark, 2),
    ];
    for (point, lsn, byte) in table {
        let (found, volume) = at(point.clone()).unwrap();
        assert_eq!(found, lsn, "{point}");
        assert_eq!(bytes(&*volume)[..512], [byte; 512], "{point}");
    }
    for point in [Point::Lsn(last.plus(1)), Point::Time(999)] {
        let refused = at(point).unwrap_err().to_string();
        let range = format!("from 0x0 to {last} (1970-01-01T00:00:00.000001000Z to");
        assert!(refused.contains(&range), "{refused}");
    }
    let unknown = at(Point::Mark("dusk".to_owned())).unwrap_err();
    assert!(matches!(unknown, ViewError::ConfigNoMark { .. }));
}

#[test]
fn what_the_volumes_are_beyond_cannot_be_had_and_the_error_says_so() {
    let (ring, [_, two, mark, last]) = marked();
    let volumes = volumes();
    let views = Views::new(volumes.clone(), Lsn(0), Lsn(0), Contents::Consistent);
    let mut at = Lsn(0);
    while at < two {
        at = apply(&views, &volumes, &ring, at, true);
    }
    open(&views, &ring, &Point::Lsn(Lsn(two.0 - 64))).unwrap_err();
    open(&views, &ring, &Point::Time(1005)).unwrap_err();
    assert_eq!(open(&views, &ring, &Point::Time(1015)).unwrap().at(), two);
    let found = views.marks(&ring).unwrap();
    assert_eq!((&*found[0].name, found[0].at, found[0].is_past), ("noon", mark, false));
    while at < last {
        at = apply(&views, &volumes, &ring, at, true);
    }
    assert!(views.marks(&ring).unwrap()[0].is_past);
    let past = open(&views, &ring, &Point::Mark("noon".to_owned())).unwrap_err();
    assert!(matches!(past, ViewError::ConfigNoMark { .. }));
    let available = views.available(&ring).unwrap();
    assert_eq!((available.from, available.to, available.last_ns), (last, last, None));
    // The ring has given up what it no longer needs.
    ring.0.write().unwrap().first = 3;
    assert_eq!(open(&views, &ring, &Point::Latest).unwrap().at(), last);
    let behind = Views::new(volumes, Lsn(0), Lsn(0), Contents::Consistent);
    let gone = open(&behind, &ring, &Point::Latest).unwrap_err();
    assert!(
        matches!(gone, ViewError::Records(RecordsError::Gone { oldest, .. }) if oldest == mark)
    );
}

#[test]
fn a_mixture_shows_no_view_and_no_more_views_than_may_be_are_open() {
    let (ring, _) = marked();
    let views = Views::new(volumes(), Lsn(0), Lsn(0), Contents::Consistent);
    let mut all: Vec<View> =
        (0..VIEWS_MAX).map(|_| open(&views, &ring, &Point::Latest).unwrap()).collect();
    let refused = open(&views, &ring, &Point::Latest).unwrap_err();
    assert!(matches!(refused, ViewError::ConfigTooMany { most: VIEWS_MAX }));
    all.pop();
    open(&views, &ring, &Point::Latest).unwrap();
    views.set_contents(Contents::Mixed);
    let refused = open(&views, &ring, &Point::Latest).unwrap_err();
    assert!(matches!(refused, ViewError::ConfigMixed));
    assert!(matches!(views.available(&ring), Err(ViewError::ConfigMixed)));
}

#[test]
fn copies_that_are_all_there_can_be_shown_from_their_moment_on() {
    let (ring, [one, two, ..]) = marked();
    let volumes = volumes();
    // A copy from the moment behind the second record.
    volumes[0].write(0, &[2; 512], Survives::Placed).unwrap();
    let views = Views::new(volumes.clone(), Lsn(0), Lsn(0), Contents::MixedUntil(two));
    open(&views, &ring, &Point::Lsn(one)).unwrap_err();
    let view = open(&views, &ring, &Point::Lsn(two)).unwrap();
    assert_eq!(bytes(&*view.volumes()[0])[..512], [2; 512]);
    assert_eq!(views.available(&ring).unwrap().from, two);
}

#[test]
fn a_view_without_room_ends_and_the_volumes_go_on() {
    let (ring, [_, _, _, last]) = marked();
    let volumes = volumes();
    volumes[1].write(0, &[5; 8192], Survives::Placed).unwrap();
    let views = Views::new(volumes.clone(), Lsn(0), Lsn(0), Contents::Consistent);
    let small = Room { bytes_max: 4096, ..room() };
    let view = views.open(&ring, &Point::Latest, small).unwrap();
    let applying = views.apply(last);
    applying.changes(Extent { volume: 1, offset: 0, len: 8192 });
    volumes[1].write(0, &[6; 8192], Survives::Placed).unwrap();
    applying.done();
    assert!(view.volumes()[1].ended().is_some());
    assert_eq!(views.applied(), last);
    let none = Room { bytes_max: 0, ..room() };
    let views = Views::new(volumes, Lsn(0), Lsn(0), Contents::Consistent);
    let refused = views.open(&ring, &Point::Latest, none).unwrap_err();
    assert!(matches!(refused, ViewError::Load { at: Lsn(0), volume: 0, .. }), "{refused}");
}

#[test]
fn records_that_cannot_be_are_refused() {
    let views = Views::new(volumes(), Lsn(0), Lsn(0), Contents::Consistent);
    let with = |kind, volume, offset, len, payload: &[u8]| {
        let mut order = Order::default();
        order.push(kind, volume, offset, len, payload);
        open(&views, &Ring(RwLock::new(order)), &Point::Latest).unwrap_err()
    };
    let other = with(Kind::Write, 2, 0, 512, &[0; 512]);
    assert!(matches!(other, ViewError::MediaVolume { volume: 2, .. }));
    let short = with(Kind::Write, 0, 0, 1024, &[0; 512]);
    assert!(matches!(short, ViewError::Records(RecordsError::MediaDamaged { .. })));
    let beyond = with(Kind::Write, 0, SIZE, 512, &[0; 512]);
    assert!(matches!(beyond, ViewError::Load { .. }));
    let beyond = with(Kind::Trim, 0, u64::MAX - 511, 512, &[]);
    assert!(matches!(beyond, ViewError::Load { .. }));
    let long = with(Kind::Resize, 0, 0, u64::MAX, &[]);
    assert!(matches!(long, ViewError::Load { .. }));
    let long = with(Kind::Resize, 9, 0, u64::MAX, &[]);
    assert!(matches!(long, ViewError::MediaVolume { .. }));
}
