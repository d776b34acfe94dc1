//! Clients that die, and what daemons do with what they leave.

use store::meta::record::{Class, CopyState};
use store::{Allocation, Rights, StoreError};

use crate::daemon::Cluster;

const BOTH: Rights = Rights::READ.union(Rights::WRITE);

#[test]
fn what_a_dead_client_owned_is_removed_and_what_it_wrote_to_is_made_one_again() {
    let cluster = Cluster::start_at(2, None, true);
    let store = cluster.store();
    let wanted = Allocation { copies: 2, ..Allocation::new(8192, Class::Volatile) };
    store.create("shared", &wanted).unwrap();
    let region = store.map("shared", BOTH).unwrap();
    let before = region.record();
    let client = cluster.client("shared");
    assert!(store.info("own").is_ok() && store.info("shared").unwrap() == before);
    // kill -9.
    drop(client);
    let meta = cluster.meta();
    while store.info("own").is_ok() || meta.list("clients/").unwrap().len() != 1 {
        std::thread::yield_now();
    }
    assert!(matches!(store.info("own").unwrap_err(), StoreError::NoRegion(_)));
    let after = store.info("shared").unwrap();
    assert!(after.epoch > before.epoch);
    let in_sync = |record: &store::meta::record::RegionRecord| {
        let copies = record.pieces[0].copies.iter();
        copies.filter(|copy| copy.state == CopyState::InSync).count()
    };
    assert_eq!(in_sync(&after), 1, "the other copy may lack what the client wrote last");
    // This client goes on, with the copy that is left and then with both.
    region.write(8, &[2; 8]).unwrap();
    assert_eq!(store.rebuild("shared").unwrap().copies, 1);
    assert_eq!(in_sync(&store.info("shared").unwrap()), 2);
    let mut out = [0; 16];
    for _ in 0..4 {
        region.read(0, &mut out).unwrap();
        assert_eq!(out, [[1; 8], [2; 8]].concat()[..]);
    }
}

#[test]
fn a_client_that_was_declared_dead_does_nothing_more() {
    let cluster = Cluster::start(1);
    let store = cluster.store();
    store.create("r", &Allocation::new(8192, Class::Volatile)).unwrap();
    let region = store.map("r", BOTH).unwrap();
    region.write(0, &[1; 8]).unwrap();
    let meta = cluster.meta();
    let key = format!("clients/{}", store.client());
    let entry = meta.get(&key).unwrap().unwrap();
    let mut record = store::meta::record::ClientRecord::parse(&entry.value).unwrap();
    record.dead = true;
    let value = record.emit();
    let change = store::meta::Change { key: &key, value: Some(&value), durable: false };
    meta.swap(change, &[(&key, Some(entry.version))]).unwrap().unwrap();
    let refused = store.create("other", &Allocation::new(8192, Class::Volatile)).unwrap_err();
    assert!(matches!(refused, StoreError::Fenced), "{refused}");
    assert!(matches!(region.write(0, &[2; 8]), Err(StoreError::Fenced)));
    let other = cluster.store();
    let mut out = [0; 8];
    other.map("r", BOTH).unwrap().read(0, &mut out).unwrap();
    assert_eq!(out, [1; 8]);
}
