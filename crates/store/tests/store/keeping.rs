//! What daemons do by themselves: copies that are missing are made elsewhere, and pieces without a region go.

use store::meta::record::{Class, CopyState};
use store::{Allocation, Rights};

use crate::daemon::Cluster;

const BOTH: Rights = Rights::READ.union(Rights::WRITE);

#[test]
fn daemons_make_missing_copies_elsewhere_and_remove_what_came_back_too_late() {
    let mut cluster = Cluster::start_at(3, None, true);
    let store = cluster.store();
    let wanted = Allocation { copies: 2, width: 1, ..Allocation::new(64 << 10, Class::Volatile) };
    let record = store.create("r", &wanted).unwrap();
    let region = store.map("r", BOTH).unwrap();
    region.write(0, &[1; 10_000]).unwrap();
    let lost: usize = record.pieces[0].copies[0].server[1..].parse().unwrap();
    let piece = cluster.directory_of(lost).join(format!("{}.0000", record.id));
    // Nobody uses the region meanwhile: a daemon notices.
    cluster.kill(lost);
    let is_whole = || {
        let copies = &store.info("r").unwrap().pieces[0].copies;
        let names: Vec<_> = copies.iter().map(|copy| copy.server.as_str()).collect();
        let in_sync = copies.iter().all(|copy| copy.state == CopyState::InSync);
        copies.len() == 2 && in_sync && !names.contains(&Cluster::name(lost).as_str())
    };
    while !is_whole() {
        std::thread::yield_now();
    }
    region.write(10_000, &[2; 10_000]).unwrap();
    assert!(piece.exists());
    cluster.restart(lost);
    while piece.exists() {
        std::thread::yield_now();
    }
    let other = cluster.store();
    let other = other.map("r", Rights::READ).unwrap();
    for _ in 0..4 {
        let mut out = [0; 20_000];
        other.read(0, &mut out).unwrap();
        assert!(out[..10_000] == [1; 10_000] && out[10_000..] == [2; 10_000]);
    }
    // Copies of a region that is there stay.
    let copies = store.info("r").unwrap().pieces[0].copies.clone();
    for copy in copies {
        let index: usize = copy.server[1..].parse().unwrap();
        assert!(cluster.directory_of(index).join(format!("{}.0000", record.id)).exists());
    }
}
