//! What a ring does while nothing fails, and what it refuses.

use std::sync::Arc;

use log::Lsn;
use pmem::Medium;

use super::order::{ABSENT, GEOMETRY, GROUP, Made, Next, epochs, label};
use crate::dirty::DirtyMap;
use crate::format::{Extent, Geometry, Indexed, Kind, Label, PAYLOAD_MAX};
use crate::names::{GroupId, MemberId};
use crate::ring::{Ring, RingError, Scanned};

/// Memory that keeps nothing durable but says so.
fn memory(len: u64) -> Arc<dyn Medium> {
    pmem::anonymous_with(len, pmem::OpenOptions { emulate_persistence: true }).unwrap()
}

fn ring_of(geometry: Geometry) -> Ring {
    Ring::create_on(memory(geometry.total()), &label(), geometry).unwrap()
}

fn ring() -> Ring {
    ring_of(GEOMETRY)
}

/// Places the first record of the epoch, and writes of these lengths.
fn fill(ring: &Ring, next: &mut Next, lens: &[usize]) -> Vec<Made> {
    let mut made = vec![next.begin(7)];
    made.extend(lens.iter().map(|len| next.write(0, &vec![0x5a; *len])));
    made.iter().for_each(|made| made.place(ring).unwrap());
    made
}

fn indexed(made: &[Made]) -> Vec<Indexed> {
    made.iter().map(|made| Indexed { record: made.record, sum: made.sum() }).collect()
}

fn scan(ring: &Ring) -> Scanned {
    ring.scan(&ring.load_label().unwrap()).unwrap()
}

#[test]
fn a_scan_finds_the_records_that_were_placed() {
    let (ring, mut next) = (ring(), Next::first());
    let made = fill(&ring, &mut next, &[1, 64, 700]);
    let found = scan(&ring);
    assert_eq!(found.records, indexed(&made));
    assert_eq!((found.end, found.end_chain), (next.lsn, next.chain));
    assert_eq!(found.claimed, Lsn(0));
    let mut payload = [0; 704];
    ring.read(made[3].record.lsn.plus(64), &mut payload).unwrap();
    assert_eq!(payload[..700], made[3].payload);
    assert_eq!(payload[700..], [0; 4], "zeros follow");
}

#[test]
fn a_record_of_any_length_has_the_same_bytes_as_its_parts() {
    let geometry = Geometry { capacity: 4 << 20, ..GEOMETRY };
    for len in [1, 63, 64, 65, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, PAYLOAD_MAX as usize] {
        let (ring, mut next) = (ring_of(geometry), Next::first());
        // Old bytes must not show behind a payload.
        ring.place_bytes(Lsn(0), &vec![0xff; 2 << 20]).unwrap();
        let payload: Vec<u8> = (0..len).map(|at| (at % 251).try_into().unwrap()).collect();
        next.begin(7).place(&ring).unwrap();
        let made = next.write(0, &payload);
        made.place(&ring).unwrap();
        let mut bytes = vec![0; usize::try_from(made.record.span()).unwrap()];
        ring.read(made.record.lsn, &mut bytes).unwrap();
        let mut expected = made.header.to_vec();
        expected.extend_from_slice(&payload);
        expected.resize(expected.len().next_multiple_of(64), 0);
        assert_eq!(bytes, expected, "{len} bytes");
        assert_eq!(scan(&ring).end, made.record.end(), "{len} bytes");
    }
}

#[test]
fn records_go_on_at_the_beginning_once_a_label_frees_it() {
    let (ring, mut next) = (ring(), Next::first());
    let made = fill(&ring, &mut next, &[1000, 1000, 1000]);
    let pad = next.pad(4096 - next.lsn.0);
    pad.place(&ring).unwrap();
    let second = next.write(0, &[9; 500]);
    assert!(matches!(second.place(&ring), Err(RingError::NoRoom { .. })));
    let start = made[2].record;
    let label = Label {
        sequence: 2,
        start: start.lsn,
        start_chain: start.chain,
        ..ring.load_label().unwrap()
    };
    ring.store_label(&label).unwrap();
    second.place(&ring).unwrap();
    let below = Lsn(made[1].record.lsn.0);
    assert!(matches!(ring.place_bytes(below, &[0; 64]), Err(RingError::NoRoom { .. })));
    let kept = [made[2].clone(), made[3].clone(), pad, second];
    let found = scan(&ring);
    assert_eq!(found.records, indexed(&kept));
    assert_eq!(found.end, next.lsn);
}

#[test]
fn bytes_of_another_ring_go_over_the_end_and_come_back() {
    let ring = ring();
    let label = Label { sequence: 2, start: Lsn(4032), ..label() };
    ring.store_label(&label).unwrap();
    let bytes: Vec<u8> = (0..192).collect();
    ring.place_bytes(Lsn(4032), &bytes).unwrap();
    ring.persist(Lsn(4032), Lsn(4224)).unwrap();
    let mut out = [0; 192];
    ring.read(Lsn(4032), &mut out).unwrap();
    assert_eq!(out, bytes[..]);
    assert!(matches!(ring.place_bytes(Lsn(4032), &[0; 4097]), Err(RingError::NoRoom { .. })));
    assert!(matches!(ring.persist(Lsn(0), Lsn(4097)), Err(RingError::NoRoom { .. })));
}

#[test]
fn a_record_that_would_cross_the_end_is_refused() {
    let ring = ring();
    let mut next = Next { lsn: Lsn(4032), ..Next::first() };
    let made = next.write(0, &[1]);
    let label = Label { sequence: 2, start: Lsn(64), ..label() };
    ring.store_label(&label).unwrap();
    assert!(matches!(made.place(&ring), Err(RingError::Crosses { .. })));
}

#[test]
fn threads_place_records_at_once() {
    let geometry = Geometry { capacity: 1 << 20, ..GEOMETRY };
    let (ring, mut next) = (ring_of(geometry), Next::first());
    let mut made = vec![next.begin(7)];
    made.extend(
        (0..200).map(|at| next.write(at, &vec![1; 37 * usize::try_from(at).unwrap() % 4000 + 1])),
    );
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (made, ring) = (&made, &ring);
            scope.spawn(move || {
                for made in made.iter().skip(part).step_by(4) {
                    made.place(ring).unwrap();
                    ring.persist(made.record.lsn, made.record.end()).unwrap();
                }
            });
        }
    });
    assert_eq!(scan(&ring).records, indexed(&made));
}

#[test]
fn a_scan_ends_before_a_torn_record() {
    let (ring, mut next) = (ring(), Next::first());
    let made = fill(&ring, &mut next, &[100, 100, 100]);
    let torn = made[2].record.lsn;
    let mut byte = [0];
    ring.read(torn.plus(64 + 99), &mut byte).unwrap();
    ring.place_bytes(torn.plus(64 + 99), &[byte[0] ^ 1]).unwrap();
    let found = scan(&ring);
    assert_eq!(found.records, indexed(&made[..2]));
    assert_eq!(found.claimed, Lsn(0), "nobody was told of the record");
}

#[test]
fn damage_to_a_committed_record_is_told_by_the_label() {
    let (ring, mut next) = (ring(), Next::first());
    let made = fill(&ring, &mut next, &[100, 100]);
    ring.store_label(&Label { sequence: 2, committed: next.lsn, ..label() }).unwrap();
    ring.place_bytes(made[1].record.lsn, &[0; 64]).unwrap();
    let found = scan(&ring);
    assert_eq!((found.end, found.claimed), (made[1].record.lsn, next.lsn));
}

#[test]
fn damage_to_a_committed_record_is_told_by_a_later_record() {
    let (ring, mut next) = (ring(), Next::first());
    let made = fill(&ring, &mut next, &[100, 100]);
    let committed = next.lsn;
    next.committed = committed;
    next.write(0, &[1]).place(&ring).unwrap();
    ring.place_bytes(made[1].record.lsn, &[0; 128]).unwrap();
    let found = scan(&ring);
    assert_eq!((found.end, found.claimed), (made[1].record.lsn, committed));
}

#[test]
fn a_label_that_rots_is_missed_by_the_records_it_kept() {
    let geometry = Geometry { capacity: 16 << 20, ..GEOMETRY };
    let (ring, mut next) = (ring_of(geometry), Next::first());
    let payload = vec![1; 1 << 20];
    let write = |next: &mut Next| {
        next.committed = next.lsn;
        let made = next.write(0, &payload);
        made.place(&ring).unwrap();
        made
    };
    let first_lap: Vec<Made> = (0..15).map(|_| write(&mut next)).collect();
    let start = first_lap[8].record;
    let label = Label { sequence: 2, start: start.lsn, start_chain: start.chain, ..label() };
    ring.store_label(&label).unwrap();
    next.pad((16 << 20) - next.lsn.0).place(&ring).unwrap();
    (0..7).for_each(|_| drop(write(&mut next)));
    assert_eq!(scan(&ring).end, next.lsn);
    // By the older label the order begins at 0, where the second lap is.
    ring.medium().place(4096 + 100, &[0xee]).unwrap();
    for _ in 0..2 {
        let again = Ring::open_on(Arc::clone(ring.medium())).unwrap();
        let found = scan(&again);
        assert_eq!((found.end, found.claimed), (Lsn(0), first_lap[14].record.lsn));
    }
}

#[test]
fn a_record_counts_only_in_its_epoch() {
    let (ring, mut next) = (ring(), Next::first());
    let made = fill(&ring, &mut next, &[100, 100]);
    // The second source began where the first write ends: the second one was never acknowledged.
    let cut = made[2].record.lsn;
    let history = epochs(&[(1, 7, 0), (2, 8, cut.0)]);
    ring.store_label(&Label { sequence: 2, history, ..label() }).unwrap();
    let found = scan(&ring);
    assert_eq!(found.records, indexed(&made[..2]));
    let mut next = Next { lsn: cut, chain: made[1].sum(), epoch: 8, committed: Lsn(0) };
    let begun = next.begin(8);
    begun.place(&ring).unwrap();
    assert_eq!(scan(&ring).end, begun.record.end());
}

#[test]
fn an_epoch_of_another_source_with_the_same_number_does_not_count() {
    let (ring, next) = (ring(), Next::first());
    let mut next = Next { epoch: 9, ..next };
    next.write(0, &[1]).place(&ring).unwrap();
    assert_eq!(scan(&ring).end, Lsn(0));
}

#[test]
fn a_record_does_not_count_that_lies_in_two_epochs() {
    let (ring, mut next) = (ring(), Next::first());
    let made = fill(&ring, &mut next, &[100]);
    let history = epochs(&[(1, 7, 0), (2, 8, made[1].record.lsn.0 + 64)]);
    ring.store_label(&Label { sequence: 2, history, ..label() }).unwrap();
    assert_eq!(scan(&ring).records, indexed(&made[..1]));
}

#[test]
fn a_record_that_does_not_name_the_one_before_it_does_not_count() {
    let (ring, mut next) = (ring(), Next::first());
    let made = fill(&ring, &mut next, &[100]);
    next.chain ^= 1;
    next.write(0, &[1]).place(&ring).unwrap();
    assert_eq!(scan(&ring).records, indexed(&made));
}

#[test]
fn records_of_another_group_do_not_count() {
    let ring = ring();
    let mut next = Next::first();
    next.begin(7).place(&ring).unwrap();
    let other = Label { group: GroupId([9; 16]), ..label() };
    let other = Ring::create_on(Arc::clone(ring.medium()), &other, GEOMETRY).unwrap();
    assert_eq!(scan(&other).end, Lsn(0));
}

#[test]
fn a_full_ring_is_scanned_to_its_last_byte() {
    let (ring, mut next) = (ring(), Next::first());
    let mut made = fill(&ring, &mut next, &[1000, 1000, 1000]);
    let rest = usize::try_from(4096 - next.lsn.0 - 64).unwrap();
    made.push(next.write(0, &vec![1; rest]));
    made[4].place(&ring).unwrap();
    let found = scan(&ring);
    assert_eq!((found.records.len(), found.end), (5, Lsn(4096)));
}

#[test]
fn a_label_must_be_newer_and_of_the_group() {
    let ring = ring();
    assert!(matches!(ring.store_label(&label()), Err(RingError::Sequence { .. })));
    let other = Label { group: GroupId([9; 16]), sequence: 2, ..label() };
    assert!(matches!(ring.store_label(&other), Err(RingError::OtherGroup { .. })));
    // A number that is left out does not make the label in force be overwritten.
    let third = Label { sequence: 3, ..label() };
    ring.store_label(&third).unwrap();
    let zeros = [0; 4096];
    ring.medium().place(4096, &zeros).unwrap();
    assert_eq!(ring.load_label().unwrap(), label());
    ring.medium().place(0, &third.encode(&GEOMETRY)).unwrap();
    assert_eq!(ring.load_label().unwrap(), third);
}

#[test]
fn a_dirty_map_is_of_its_member_and_group() {
    let sizes = [10 << 16];
    let geometry = Geometry { maps: 2, ..GEOMETRY };
    let ring = ring_of(geometry);
    assert_eq!(ring.load_dirty(ABSENT, &sizes).unwrap().bytes(), 10 << 16, "none was stored");
    let mut map = DirtyMap::clean(&sizes);
    map.mark(Extent { volume: 0, offset: 3 << 16, len: 1 });
    assert!(map.take_changed());
    ring.store_dirty(ABSENT, &map).unwrap();
    let marked = Some(Extent { volume: 0, offset: 3 << 16, len: 1 << 16 });
    assert_eq!(ring.load_dirty(ABSENT, &sizes).unwrap().next(None, u64::MAX), marked);
    // The page of the one member where that of the other belongs.
    let mut page = [0; 4096];
    ring.medium().read(geometry.map(ABSENT).unwrap(), &mut page).unwrap();
    ring.medium().place(geometry.map(MemberId(1)).unwrap(), &page).unwrap();
    assert_eq!(ring.load_dirty(MemberId(1), &sizes).unwrap().bytes(), 10 << 16);
}

#[test]
fn pages_without_room_are_refused() {
    let ring = ring();
    // One page too many, and a volume too many.
    for (member, sizes) in [(MemberId(1), vec![1]), (ABSENT, vec![1 << 40]), (ABSENT, vec![1, 1])] {
        let mut map = DirtyMap::clean(&sizes);
        map.take_changed();
        let refused = ring.store_dirty(member, &map);
        assert!(matches!(refused, Err(RingError::NoMap { .. })), "{member}, {sizes:?}");
    }
    assert!(matches!(ring.load_dirty(MemberId(1), &[1]), Err(RingError::NoMap { .. })));
    assert!(matches!(ring.load_dirty(ABSENT, &[0, 1]), Err(RingError::NoMap { .. })));
}

#[test]
fn a_kind_without_payload_takes_its_header_alone() {
    let (ring, mut next) = (ring(), Next::first());
    let mut made = fill(&ring, &mut next, &[]);
    let trim = next.record(Kind::Mark, 0, b"a name");
    trim.place(&ring).unwrap();
    made.push(trim);
    assert_eq!(scan(&ring).records, indexed(&made));
    assert_eq!(ring.group(), GROUP);
}
