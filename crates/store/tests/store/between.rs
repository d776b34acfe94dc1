//! What happens between two steps of others: a rebuild that is away, metadata that are away, a copy that is lost in an operation.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use store::meta::record::{Class, ClientRecord, CopyState, RegionRecord};
use store::meta::{Change, Entry, Meta, MetaError};
use store::{Allocation, Outcome, Rights, StoreError};

use crate::daemon::Cluster;

const BOTH: Rights = Rights::READ.union(Rights::WRITE);

fn copied() -> Allocation {
    Allocation { copies: 2, width: 1, ..Allocation::new(64 << 10, Class::Volatile) }
}

/// Metadata between a client and the store's.
#[derive(Debug)]
struct Between {
    meta: Arc<dyn Meta>,
    /// Removals of claims fail, as where the metadata are away.
    keeps_claims: AtomicBool,
    /// When this client has ended its mapping of a rebuild, another rebuild begins: 1 from now on, 2 it is mapped, 0 it has begun.
    overtaking: AtomicU8,
}

impl Between {
    fn of(cluster: &Cluster) -> Arc<Self> {
        let (keeps_claims, overtaking) = (AtomicBool::new(false), AtomicU8::new(0));
        Arc::new(Self { meta: cluster.meta(), keeps_claims, overtaking })
    }

    fn put(&self, key: &str, value: &[u8]) {
        let change = Change { key, value: Some(value), durable: false };
        self.meta.swap(change, &[]).unwrap().unwrap();
    }
}

impl Meta for Between {
    fn get(&self, key: &str) -> Result<Option<Entry>, MetaError> {
        self.meta.get(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Entry)>, MetaError> {
        self.meta.list(prefix)
    }

    fn swap(
        &self,
        change: Change<'_>,
        only_if: &[(&str, Option<u64>)],
    ) -> Result<Option<u64>, MetaError> {
        let is_claim = change.key.starts_with("rebuilds/");
        if is_claim && change.value.is_none() && self.keeps_claims.load(Ordering::Acquire) {
            return Err(MetaError::MediaGarbled("away".into()));
        }
        let record = change.key.starts_with("clients/").then_some(change.value).flatten();
        let writes = record.map(|value| !ClientRecord::parse(value).unwrap().writes.is_empty());
        if writes == Some(true) && self.overtaking.load(Ordering::Acquire) == 1 {
            self.overtaking.store(2, Ordering::Release);
        }
        if writes == Some(false) && self.overtaking.load(Ordering::Acquire) == 2 {
            self.overtaking.store(0, Ordering::Release);
            let entry = self.meta.get("regions/r")?.unwrap();
            let mut record = RegionRecord::parse(&entry.value).unwrap();
            record.epoch += 1;
            self.put("regions/r", &record.emit());
            self.put("rebuilds/r", b"00000000000000ff");
        }
        self.meta.swap(change, only_if)
    }
}

/// The place of the server in a cluster whose copy of piece 0 is in sync and of this rank.
fn server(record: &RegionRecord, rank: usize) -> usize {
    record.pieces[0].copies[rank].server[1..].parse().unwrap()
}

#[test]
fn a_paused_rebuild_does_not_end_the_rebuild_of_another() {
    let mut cluster = Cluster::start(2);
    let between = Between::of(&cluster);
    let store = cluster.store_with(|options| options.meta = Arc::clone(&between) as _);
    store.create("r", &copied()).unwrap();
    let region = store.map("r", BOTH).unwrap();
    cluster.kill(0);
    region.write(0, &[1; 8]).unwrap();
    drop(region);
    cluster.restart(0);
    between.overtaking.store(1, Ordering::Release);
    let refused = store.rebuild("r").unwrap_err();
    assert!(matches!(refused, StoreError::Rebuilding(_)), "{refused}");
    assert_eq!(between.overtaking.load(Ordering::Acquire), 0, "the other has begun");
    let copies = &store.info("r").unwrap().pieces[0].copies;
    assert!(copies.iter().any(|copy| copy.state == CopyState::Syncing), "{copies:?}");
}

#[test]
fn a_rebuild_that_lost_the_metadata_is_begun_again() {
    let mut cluster = Cluster::start(2);
    let between = Between::of(&cluster);
    let store = cluster.store_with(|options| options.meta = Arc::clone(&between) as _);
    store.create("r", &copied()).unwrap();
    let region = store.map("r", BOTH).unwrap();
    for round in 0..2 {
        cluster.kill(round);
        region.write(0, &[1; 8]).unwrap();
        cluster.restart(round);
        between.keeps_claims.store(true, Ordering::Release);
        // The second time its own claim of the first time is there still.
        assert_eq!(store.rebuild("r").unwrap().missing, 0);
        let other = cluster.store();
        let refused = other.rebuild("r").unwrap_err();
        assert!(matches!(refused, StoreError::Rebuilding(_)), "{refused}");
    }
    between.keeps_claims.store(false, Ordering::Release);
    store.rebuild("r").unwrap();
    cluster.store().rebuild("r").unwrap();
}

#[test]
fn a_client_of_the_only_copy_left_takes_no_answer_without_a_lease() {
    let mut cluster = Cluster::start(2);
    let store = cluster.store();
    let record = store.create("r", &copied()).unwrap();
    let region = store.map("r", BOTH).unwrap();
    cluster.kill(server(&record, 1));
    region.write(0, &[1; 8]).unwrap();
    drop((region, store));
    let reader = cluster.store_with(|options| options.patience = Duration::from_millis(300));
    let region = reader.map("r", Rights::READ).unwrap();
    region.read(0, &mut [0; 8]).unwrap();
    // The daemon cannot say any more that it lives: somebody may go on without it, once there is another copy.
    let lock = std::fs::File::options().write(true).open(cluster.directory().join("meta/lock"));
    let lock = lock.unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let error = loop {
        if let Err(error) = region.read(0, &mut [0; 8]) {
            break error;
        }
    };
    assert!(matches!(error, StoreError::ServerLost { .. }), "{error}");
    flock(&lock, FlockOperation::Unlock).unwrap();
    let mut out = [0; 8];
    while region.read(0, &mut out).is_err() {}
    assert_eq!(out, [1; 8]);
}

#[test]
fn an_addition_whose_counting_copy_is_lost_has_no_number() {
    let mut cluster = Cluster::start(2);
    let store = cluster.store();
    let record = store.create("r", &copied()).unwrap();
    let region = store.map("r", BOTH).unwrap();
    assert_eq!(region.fetch_add(0, 1).unwrap(), 0);
    let (first, other) = (server(&record, 0), server(&record, 1));
    cluster.pause(first, true);
    region.submit_fetch_add(0, 1).unwrap();
    let piece = cluster.directory_of(other).join(format!("{}.0000", record.id));
    let piece = std::fs::File::open(piece).unwrap();
    let mut word = [0; 8];
    while word != [2, 0, 0, 0, 0, 0, 0, 0] {
        let _ = region.next_completion(Duration::ZERO);
        piece.read_exact_at(&mut word, 4096).unwrap();
    }
    cluster.kill(first);
    let done = region.next_completion(Duration::from_secs(60)).unwrap();
    assert!(matches!(done.outcome, Err(StoreError::InDoubt(_))), "{:?}", done.outcome);
    // It was made, and the next one has a number that nobody had.
    assert_eq!(region.fetch_add(0, 1).unwrap(), 2);
    region.submit_fetch_add(0, 1).unwrap();
    let done = region.next_completion(Duration::from_secs(60)).unwrap();
    assert_eq!(done.outcome.unwrap(), Outcome::Word(3));
}

#[test]
fn a_commit_fails_after_its_server_lost_what_was_written() {
    let mut cluster = Cluster::start(1);
    let store = cluster.store();
    let record = store.create("r", &Allocation::new(8192, Class::Volatile)).unwrap();
    let region = store.map("r", BOTH).unwrap();
    region.write(0, &[1; 8]).unwrap();
    region.commit(0, 8).unwrap();
    let lose_power = |cluster: &mut Cluster| {
        cluster.kill(0);
        let piece = cluster.directory_of(0).join(format!("{}.0000", record.id));
        let piece = std::fs::File::options().write(true).open(piece).unwrap();
        piece.write_all_at(&[1; 8], 4096).unwrap();
        let boot = cluster.directory_of(0).join(".boot");
        std::fs::write(boot, "an earlier start of the machine").unwrap();
        cluster.restart(0);
    };
    // Nothing was written since the commit.
    lose_power(&mut cluster);
    region.commit(0, 8).unwrap();
    region.write(0, &[2; 8]).unwrap();
    lose_power(&mut cluster);
    let lost = region.commit(0, 8).unwrap_err();
    assert!(matches!(lost, StoreError::Lost { .. }), "{lost}");
    let mut out = [0; 8];
    region.read(0, &mut out).unwrap();
    assert_eq!(out, [1; 8]);
    // Told once: what is written from now on is made durable.
    region.write(0, &[3; 8]).unwrap();
    region.commit(0, 8192).unwrap();
    // A daemon that is killed has everything.
    region.write(0, &[4; 8]).unwrap();
    cluster.kill(0);
    cluster.restart(0);
    region.commit(0, 8192).unwrap();
    region.read(0, &mut out).unwrap();
    assert_eq!(out, [4; 8]);
}
