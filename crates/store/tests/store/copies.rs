//! Regions of several copies, whose servers are killed, paused and started again.

use store::meta::record::{Class, CopyState};
use store::{Allocation, Rights, StoreError};

use crate::daemon::Cluster;

const BOTH: Rights = Rights::READ.union(Rights::WRITE);

fn copied(copies: u32) -> Allocation {
    Allocation { unit: 4096, copies, width: 1, ..Allocation::new(64 << 10, Class::Volatile) }
}

fn index_of(name: &str) -> usize {
    name[1..].parse().unwrap()
}

#[test]
fn a_killed_server_is_noted_before_a_write_goes_on_without_its_copy() {
    let mut cluster = Cluster::start(2);
    let store = cluster.store();
    let record = store.create("r", &copied(2)).unwrap();
    let region = store.map("r", BOTH).unwrap();
    region.write(0, &[1; 10_000]).unwrap();
    let lost = record.pieces[0].copies[0].server.clone();
    cluster.kill(index_of(&lost));
    region.write(0, &[2; 5000]).unwrap();
    let states = |record: store::meta::record::RegionRecord| {
        let copies = record.pieces[0].copies.iter();
        copies.map(|copy| (copy.server == lost, copy.state)).collect::<Vec<_>>()
    };
    let expected = [(true, CopyState::Stale), (false, CopyState::InSync)];
    assert_eq!(states(store.info("r").unwrap()), expected);
    let mut out = [0; 10_000];
    region.read(0, &mut out).unwrap();
    assert!(out[..5000] == [2; 5000] && out[5000..] == [1; 5000]);
    // It comes back with what it has, which nobody reads any more.
    cluster.restart(index_of(&lost));
    let other = cluster.store();
    let other = other.map("r", Rights::READ).unwrap();
    for _ in 0..20 {
        other.read(0, &mut out).unwrap();
        assert!(out[..5000] == [2; 5000] && out[5000..] == [1; 5000]);
    }
    assert_eq!(states(store.info("r").unwrap()), expected);
}

#[test]
fn a_server_that_comes_back_in_time_keeps_its_copy() {
    let mut cluster = Cluster::start(1);
    let store = cluster.store();
    store.create("r", &copied(1)).unwrap();
    let region = store.map("r", BOTH).unwrap();
    region.write(100, &[3; 100]).unwrap();
    cluster.kill(0);
    let restarting = std::thread::scope(|scope| {
        let written = scope.spawn(|| region.write(200, &[4; 100]));
        cluster.restart(0);
        written.join().unwrap()
    });
    restarting.unwrap();
    let mut out = [0; 200];
    region.read(100, &mut out).unwrap();
    assert!(out[..100] == [3; 100] && out[100..] == [4; 100]);
}

#[test]
fn a_paused_server_is_never_read_once_others_went_on_without_it() {
    let cluster = Cluster::start(2);
    let store = cluster.store();
    let record = store.create("r", &copied(2)).unwrap();
    let writer = store.map("r", BOTH).unwrap();
    let other = cluster.store();
    let reader = other.map("r", Rights::READ).unwrap();
    writer.write(0, &[1; 8]).unwrap();
    let paused = index_of(&record.pieces[0].copies[1].server);
    cluster.pause(paused, true);
    writer.write(0, &[2; 8]).unwrap();
    cluster.pause(paused, false);
    for _ in 0..50 {
        let mut out = [0; 8];
        reader.read(0, &mut out).unwrap();
        assert_eq!(out, [2; 8]);
    }
    // It was noted stale, and the daemons may have filled it again by now.
    assert_ne!(store.info("r").unwrap(), record);
}

#[test]
fn the_last_copy_is_never_given_up() {
    let mut cluster = Cluster::start(2);
    let store = cluster.store_with(|options| {
        options.patience = std::time::Duration::from_millis(800);
    });
    store.create("r", &copied(2)).unwrap();
    let region = store.map("r", BOTH).unwrap();
    region.write(0, &[1; 8]).unwrap();
    cluster.kill(0);
    region.write(0, &[2; 8]).unwrap();
    cluster.kill(1);
    let lost = region.write(0, &[3; 8]).unwrap_err();
    assert!(matches!(lost, StoreError::ServerLost { .. }), "{lost}");
    // The one with the older bytes alone is no help.
    cluster.restart(0);
    let lost = region.read(0, &mut [0; 8]).unwrap_err();
    assert!(matches!(lost, StoreError::ServerLost { .. }), "{lost}");
    cluster.restart(1);
    let mut out = [0; 8];
    region.read(0, &mut out).unwrap();
    assert!(out == [2; 8] || out == [3; 8], "the write that failed may have happened: {out:?}");
}

#[test]
fn a_rebuild_counts_no_copy_of_a_server_that_does_not_answer() {
    let mut cluster = Cluster::start(2);
    let store = cluster.store();
    store.create("r", &copied(2)).unwrap();
    let done = store.rebuild("r").unwrap();
    assert_eq!((done.copies, done.missing, done.silent), (0, 0, 0));
    cluster.kill(1);
    // The metadata call it alive still.
    let done = store.rebuild("r").unwrap();
    assert_eq!((done.copies, done.missing), (0, 1));
}
