//! What a member has lost, and whom it has to wait for.

use std::fs;

use replica::MemberId;
use replica::core::News;
use replica::format::Extent;
use replica::ring::Ring;

use crate::group::{Group, Plan};

#[test]
fn an_asynchronous_member_that_lost_power_starts_again_and_follows() {
    let mut group = Group::asynchronous();
    let map = pmem::OpenOptions { emulate_persistence: true };
    // Where its first copies end late, its log is freed behind the records.
    // A label that was stored late names the records.
    let (ring, lost) = loop {
        for round in 0..40 {
            group.write(0, 0, round * 4096, 2, 4096);
        }
        group.wait("it has them", || group.status(1).durable >= group.status(0).end);
        group.stop(1);
        let ring = Ring::open(&group.room().join("1/ring"), map).unwrap();
        let label = ring.load_label().unwrap();
        let records = ring.scan(&label).unwrap().records;
        // Of two records that were not durable the disk kept the later one, which says that the earlier one was committed.
        let lost = records.iter().rev().nth(1).map(|it| it.record.lsn);
        let last = records.last().map(|it| it.record.committed);
        if let (Some(lost), Some(committed)) = (lost, last)
            && committed > lost
            && label.committed <= lost
        {
            break (ring, lost);
        }
        drop(ring);
        group.start(1);
    };
    ring.place_bytes(lost, &[0; 64]).unwrap();
    drop(ring);
    group.start(1);
    group.wait("it has them again", || group.status(1).durable >= group.status(0).end);
    group.write(0, 1, 0, 9, 4096);
    let all = Extent { volume: 0, offset: 0, len: 1 << 20 };
    group.member(0).verify(all).unwrap();
    group.wait("it is compared", || group.member(1).report().verified > 0);
    assert_eq!(group.member(1).report().differences, 0);
}

#[test]
fn a_member_that_was_the_source_waits_until_its_witness_can_be_asked() {
    let mut group = Group::new(Plan { has_witness: true, ..Plan::default() });
    group.write(0, 0, 0, 1, 4096);
    group.stop(0);
    let (witness, aside) = (group.room().join("witness"), group.room().join("aside"));
    fs::rename(&witness, &aside).unwrap();
    // A directory is no file that can be read.
    fs::create_dir(&witness).unwrap();
    group.start(0);
    group.wait("it says so", || group.has_told(0, |news| *news == News::WaitsForWitness));
    assert!(!group.status(0).is_source);
    fs::remove_dir(&witness).unwrap();
    fs::rename(&aside, &witness).unwrap();
    group.wait("it goes on", || group.status(0).is_ready);
    group.write(0, 0, 4096, 2, 4096);
    group.compare(0, 1);
}

#[test]
fn a_source_that_waits_for_its_witness_is_none_once_another_was_promoted() {
    let mut group = Group::new(Plan { has_witness: true, ..Plan::default() });
    group.write(0, 0, 0, 1, 4096);
    group.stop(0);
    let (witness, aside) = (group.room().join("witness"), group.room().join("aside"));
    fs::rename(&witness, &aside).unwrap();
    fs::create_dir(&witness).unwrap();
    group.start(0);
    group.wait("it says so", || group.has_told(0, |news| *news == News::WaitsForWitness));
    fs::remove_dir(&witness).unwrap();
    fs::rename(&aside, &witness).unwrap();
    // Both may be first; whoever is not follows.
    let _ = group.member(1).promote(false);
    group.wait("one is the source", || {
        [0, 1].iter().filter(|member| group.status(**member).is_ready).count() == 1
    });
    let source = u8::from(group.status(1).is_source);
    group.write(source, 0, 4096, 2, 4096);
    group.compare(source, 1 - source);
    assert!(group.status(source).in_sync.contains(MemberId(1 - source)));
}
