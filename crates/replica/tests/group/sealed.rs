//! Records that are sealed with the group's secret.

use replica::runtime::{StartError, Way};
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
            .write_zeroes(0, 4096, block::Zeroing::MayFree, block::Survives::Durable)
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
