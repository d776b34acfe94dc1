//! Records that are sealed with the group's secret.

use std::os::unix::fs::FileExt;

use block::{BlockDevice as _, Survives};
use replica::format::{Encoding, Geometry, Kind, Record, header_sum};
use replica::runtime::{StartError, Way};
use replica::view::Point;
use replica::wire::Policy;

use crate::group::{Group, Plan, SECRET, one_sided};

const FILL: u8 = 0xa7;

fn has_fill(group: &Group, member: u8, file: &str) -> bool {
    let path = group.room().join(member.to_string()).join(file);
    std::fs::read(path).unwrap().windows(64).any(|window| window == [FILL; 64])
}

fn applied(group: &Group, source: u8, member: u8) {
    group
        .wait("everything is applied", || group.status(member).applied >= group.status(source).end);
}

#[test]
fn no_ring_of_a_group_that_seals_holds_what_was_written_and_every_volume_does() {
    for (one_sided, compression) in
        [(None, Policy::None), (Some(one_sided()), Policy::None), (None, Policy::Lz4)]
    {
        let is_one_sided = one_sided.is_some();
        let plan = Plan { seals: true, one_sided, compression, ..Plan::default() };
        let mut group = Group::new(plan);
        if is_one_sided {
            group.wait("records go by one-sided operations", || {
                let ways = group.member(0).report().ways;
                !ways.is_empty() && ways.iter().all(|(_, way)| *way == Way::OneSided("soft"))
            });
        }
        group.write(0, 0, 0, FILL, 300_032);
        group.member(0).mark("a point").unwrap();
        group.devices(0)[1]
            .write_zeroes(0, 4096, block::Zeroing::MayFree, Survives::Durable)
            .unwrap();
        applied(&group, 0, 1);
        let (_, marks) = group.member(1).available().unwrap();
        assert!(marks.iter().any(|mark| mark.name == "a point"), "{marks:?}");
        for member in 0..2 {
            assert!(!has_fill(&group, member, "ring"), "member {member}");
            assert!(has_fill(&group, member, "volume-0"), "member {member}");
        }
        group.compare(0, 1);
        // Both read their rings when they start again.
        group.write(0, 0, 4096, FILL, 4096);
        group.stop(0);
        group.promote(1, false);
        group.write(1, 1, 8192, 5, 4096);
        group.start(0);
        group.compare(1, 0);
        group.stop(0);
        group.stop(1);
        group.start(1);
        group.start(0);
        group.compare(1, 0);
    }
}

#[test]
fn a_group_begins_to_seal_and_ends_that_with_the_next_start_of_its_source() {
    let mut group = Group::new(Plan::default());
    group.write(0, 0, 0, 1, 4096);
    for (fill, seals) in [(2, true), (3, false)] {
        group.stop(0);
        group.stop(1);
        group.seals(seals);
        group.start(0);
        group.start(1);
        group.wait_in_sync(0);
        group.write(0, 0, u64::from(fill) * 4096, fill, 4096);
        // Rings hold records of both kinds.
        let behind = group.status(1);
        assert!(behind.end >= group.status(0).committed);
        group.compare(0, 1);
    }
}

#[test]
fn a_member_does_not_start_with_another_secret_than_its_ring_is_sealed_with() {
    let mut group = Group::new(Plan { seals: true, ..Plan::default() });
    group.write(0, 0, 0, 1, 4096);
    group.stop(1);
    let other = group.try_start(1, group.config(1), b"another secret of all members");
    assert!(matches!(other, Err(StartError::OtherSecret)), "{other:?}");
    group.start_with(1, SECRET);
    group.compare(0, 1);
}

#[test]
fn a_group_gets_another_secret_once_its_logs_have_no_sealed_record() {
    const OTHER: &[u8] = b"another secret of all members";
    let mut group = Group::new(Plan { seals: true, ..Plan::default() });
    group.write(0, 0, 0, 1, 4096);
    group.stop(0);
    group.stop(1);
    group.seals(false);
    group.start(0);
    group.start(1);
    group.wait_in_sync(0);
    group.write(0, 0, 0, 2, 4096);
    // Labels name the oldest record still.
    group.stop(0);
    let other = group.try_start(0, group.config(0), OTHER);
    assert!(matches!(other, Err(StartError::OtherSecret)), "{other:?}");
    group.start(0);
    group.wait_in_sync(0);
    for fill in 3..11 {
        group.write(0, 0, 0, fill, 300_032);
    }
    applied(&group, 0, 1);
    group.stop(0);
    group.stop(1);
    group.seals(true);
    for member in 0..2 {
        group.start_with(member, OTHER);
    }
    group.wait_in_sync(0);
    group.write(0, 0, 4096, FILL, 4096);
    group.compare(0, 1);
    assert!(!has_fill(&group, 1, "ring"));
    for member in 0..2 {
        group.stop(member);
    }
    let first = group.try_start(1, group.config(1), SECRET);
    assert!(matches!(first, Err(StartError::OtherSecret)), "{first:?}");
}

#[test]
fn a_log_of_a_group_that_seals_goes_round_with_pads_at_its_end() {
    for one_sided in [None, Some(one_sided())] {
        let mut group = Group::new(Plan { seals: true, one_sided, ..Plan::default() });
        for round in 0..16 {
            group.write(0, round % 2, 4096, FILL ^ 1, 300_032);
        }
        assert!(group.status(0).end.0 > 4 << 20);
        applied(&group, 0, 1);
        group.compare(0, 1);
        for member in [1, 0] {
            group.stop(member);
        }
        group.start(0);
        group.start(1);
        group.compare(0, 1);
    }
}

#[test]
fn a_view_of_a_group_that_seals_has_the_longest_write() {
    for compression in [Policy::None, Policy::Lz4] {
        let group = Group::new(Plan {
            seals: true,
            compression,
            retention_ns: 3_600_000_000_000,
            capacity: 8 << 20,
            ..Plan::default()
        });
        let mut bytes = vec![0; 1 << 20];
        let mut next = 1_u64;
        for byte in &mut bytes {
            next = next.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            *byte = next.to_be_bytes()[0];
        }
        group.devices(0)[0].write(4096, &bytes, Survives::Durable).unwrap();
        group.member(0).mark("behind").unwrap();
        group.write(0, 0, 4096, 2, 1 << 20);
        group.wait("all is there", || group.status(1).committed >= group.status(0).end);
        let (_, marks) = group.member(1).available().unwrap();
        assert_eq!(marks.len(), 1);
        let mut found = vec![0; 1 << 20];
        let view = group.member(1).view(&Point::Mark("behind".to_owned()), 4 << 20).unwrap();
        view.volumes()[0].read(4096, &mut found).unwrap();
        assert!(found == bytes, "at the mark");
        let view = group.member(1).view(&Point::Latest, 4 << 20).unwrap();
        view.volumes()[0].read(4096, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 2), "at the end");
    }
}

/// The pad that may take the place of a record, and whose header has its checksum: a CRC is linear in 32 bits of the time.
fn pad_instead_of(group: &Group, record: &Record, sum: u32) -> [u8; 64] {
    let id = group.config(0).group;
    let stored = u32::try_from(record.span()).unwrap() - 64;
    let make = |bits: u32| {
        let (kind, encoding, time_ns) = (Kind::Pad, Encoding::Plain, bits.into());
        Record { kind, encoding, stored, time_ns, ..*record }.encode(&id, 0)
    };
    let of = |bits| header_sum(&make(bits));
    let reduced =
        |basis: &[(u32, u32)], of| {
            basis.iter().fold(of, |(sum, bits): (u32, u32), (of, with)| {
                if sum ^ of < sum { (sum ^ of, bits ^ with) } else { (sum, bits) }
            })
        };
    let mut basis = Vec::new();
    for bit in 0..32 {
        let found = reduced(&basis, (of(1 << bit) ^ of(0), 1 << bit));
        basis.extend((found.0 != 0).then_some(found));
    }
    let pad = make(reduced(&basis, (sum ^ of(0), 0)).1);
    assert_eq!(header_sum(&pad), sum);
    pad
}

#[test]
fn a_member_does_not_start_with_a_pad_where_its_log_had_a_sealed_record() {
    let plan = Plan { retention_ns: 3_600_000_000_000, ..Plan::default() };
    for seals in [true, false] {
        let mut group = Group::new(Plan { seals, ..plan.clone() });
        for fill in 1..4 {
            group.write(0, 0, u64::from(fill) * 4096, fill, 4096);
        }
        group.wait("all is there", || group.status(1).committed >= group.status(0).end);
        group.stop(0);
        group.stop(1);
        let ring = group.room().join("1").join("ring");
        let file = std::fs::File::options().read(true).write(true).open(ring).unwrap();
        let begin = Geometry::new(plan.capacity, 2).ring();
        let (mut header, id) = ([0; 64], group.config(1).group);
        let (at, record) = (begin..begin + plan.capacity)
            .step_by(64)
            .find_map(|at| {
                file.read_exact_at(&mut header, at).unwrap();
                let (record, _) = Record::decode(&id, &header).ok()?;
                (record.kind == Kind::Write && record.offset == 8192).then_some((at, record))
            })
            .expect("the second write is in the log");
        let pad = pad_instead_of(&group, &record, header_sum(&header));
        file.write_all_at(&pad, at).unwrap();
        let started = group.try_start(1, group.config(1), SECRET);
        match seals {
            true => assert!(matches!(started, Err(StartError::Damaged { .. })), "{started:?}"),
            // So much is the checksum worth that joins records which are not sealed.
            false => drop(started.unwrap()),
        }
    }
}
