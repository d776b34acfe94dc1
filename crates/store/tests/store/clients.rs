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

#[test]
fn a_client_is_a_writer_until_its_last_mapping_is_gone() {
    let cluster = Cluster::start(2);
    let store = cluster.store();
    let wanted = Allocation { copies: 2, ..Allocation::new(8192, Class::Volatile) };
    store.create("r", &wanted).unwrap();
    let meta = cluster.meta();
    let is_writer = || {
        let entry = meta.get(&format!("clients/{}", store.client())).unwrap().unwrap();
        store::meta::record::ClientRecord::parse(&entry.value).unwrap().writes.contains("r")
    };
    let first = store.map("r", BOTH).unwrap();
    let second = store.map("r", BOTH).unwrap();
    drop(first);
    second.write(0, &[1; 8]).unwrap();
    assert!(is_writer(), "whoever collects this client has to look at the copies of r");
    drop(second);
    assert!(!is_writer());
}

#[test]
fn what_a_client_writes_to_is_durable_in_the_metadata_before_it_writes() {
    let cluster = Cluster::start(2);
    let meta = std::sync::Arc::new(Watched { meta: cluster.meta(), weak: Default::default() });
    let store = cluster.store_with(|options| options.meta = meta.clone());
    let wanted = Allocation { copies: 2, ..Allocation::new(8192, Class::Volatile) };
    for name in ["one", "two"] {
        store.create(name, &wanted).unwrap();
    }
    let one = store.map("one", BOTH).unwrap();
    let two = store.map("two", BOTH).unwrap();
    drop((one, two));
    assert_eq!(*meta.weak.lock().unwrap(), Vec::<String>::new());
}

/// Metadata that remember which records of clients that write were not to be durable.
#[derive(Debug)]
struct Watched {
    meta: std::sync::Arc<dyn store::meta::Meta>,
    weak: std::sync::Mutex<Vec<String>>,
}

impl store::meta::Meta for Watched {
    fn get(&self, key: &str) -> Result<Option<store::meta::Entry>, store::meta::MetaError> {
        self.meta.get(key)
    }

    fn list(
        &self,
        prefix: &str,
    ) -> Result<Vec<(String, store::meta::Entry)>, store::meta::MetaError> {
        self.meta.list(prefix)
    }

    fn swap(
        &self,
        change: store::meta::Change<'_>,
        only_if: &[(&str, Option<u64>)],
    ) -> Result<Option<u64>, store::meta::MetaError> {
        let text = String::from_utf8_lossy(change.value.unwrap_or_default()).into_owned();
        let writes = change.key.starts_with("clients/") && !text.contains("\"writes\":[]");
        if writes && change.value.is_some() && !change.durable {
            self.weak.lock().unwrap().push(text);
        }
        self.meta.swap(change, only_if)
    }
}
