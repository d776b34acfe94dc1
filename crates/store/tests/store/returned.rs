//! Daemons that come back with less than they had, and daemons that are given what is another store's.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use store::ids::RegionId;
use store::meta::record::{Class, CopyState};
use store::{Allocation, HostError, Rights, ServerOptions, StoreServer};

use crate::daemon::Cluster;

const BOTH: Rights = Rights::READ.union(Rights::WRITE);

#[test]
fn a_server_whose_machine_lost_power_is_not_read_for_what_it_may_lack() {
    let mut cluster = Cluster::start(2);
    let store = cluster.store();
    let wanted = Allocation { copies: 2, ..Allocation::new(8192, Class::Volatile) };
    let record = store.create("r", &wanted).unwrap();
    store
        .create("alone", &Allocation { width: 1, ..Allocation::new(8192, Class::Volatile) })
        .unwrap();
    let alone = store.info("alone").unwrap().pieces[0].copies[0].server.clone();
    let region = store.map("r", BOTH).unwrap();
    region.write(0, &[1; 8]).unwrap();
    // Nobody is there who would miss a server.
    drop((region, store));
    let lost = Path::new("s0");
    cluster.kill(0);
    // What was written and not committed was in memory alone.
    let piece = piece(&cluster.directory_of(0), record.id);
    let file = std::fs::File::options().write(true).open(piece).unwrap();
    file.write_all_at(&[0; 8], 4096).unwrap();
    std::fs::write(cluster.directory_of(0).join(".boot"), "an earlier start of the machine")
        .unwrap();
    cluster.restart(0);
    let store = cluster.store();
    let region = store.map("r", Rights::READ).unwrap();
    for _ in 0..20 {
        let mut out = [0; 8];
        region.read(0, &mut out).unwrap();
        assert_eq!(out, [1; 8], "an acknowledged write");
    }
    let states = |record: store::meta::record::RegionRecord| {
        let copies = record.pieces[0].copies.iter();
        copies.map(|copy| (Path::new(&copy.server) == lost, copy.state)).collect::<Vec<_>>()
    };
    let expected = [(true, CopyState::Stale), (false, CopyState::InSync)];
    let mut found = states(store.info("r").unwrap());
    found.sort_by_key(|(is_lost, _)| !is_lost);
    assert_eq!(found, expected);
    // The only copy is given up by nobody.
    let of_alone = store.info("alone").unwrap().pieces[0].copies[0].clone();
    assert_eq!((of_alone.server, of_alone.state), (alone, CopyState::InSync));
    assert_eq!(store.rebuild("r").unwrap().copies, 1);
    // The other way round: now the one that was filled is the one that knows.
    drop((region, store));
    cluster.kill(1);
    std::fs::write(cluster.directory_of(1).join(".boot"), "an earlier start of the machine")
        .unwrap();
    cluster.restart(1);
    let store = cluster.store();
    let mut out = [0; 8];
    store.map("r", Rights::READ).unwrap().read(0, &mut out).unwrap();
    assert_eq!(out, [1; 8]);
}

#[test]
fn a_daemon_that_is_given_another_stores_metadata_does_not_start() {
    let mut cluster = Cluster::start(1);
    let store = cluster.store();
    let record = store.create("r", &Allocation::new(8192, Class::Volatile)).unwrap();
    store.map("r", BOTH).unwrap().write(0, &[1; 8]).unwrap();
    cluster.kill(0);
    let elsewhere = tempfile::tempdir().unwrap();
    let meta = store::meta::open(elsewhere.path().to_str().unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    // Its keeper would find no region for any piece, and remove them all.
    let options = ServerOptions::new("s0", cluster.directory_of(0), meta, cluster.key());
    let refused = StoreServer::start(options, runtime.handle()).unwrap_err();
    assert!(matches!(refused, HostError::ConfigStore { .. }), "{refused}");
    assert!(piece(&cluster.directory_of(0), record.id).exists());
    cluster.restart(0);
    let mut out = [0; 8];
    store.map("r", BOTH).unwrap().read(0, &mut out).unwrap();
    assert_eq!(out, [1; 8]);
}

#[test]
fn a_directory_has_one_daemon_at_a_time() {
    let cluster = Cluster::start(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = store::meta::open(elsewhere.path().to_str().unwrap()).unwrap();
    for meta in [cluster.meta(), other] {
        let options = ServerOptions::new("s0", cluster.directory_of(0), meta, cluster.key());
        let refused = StoreServer::start(options, runtime.handle()).unwrap_err();
        assert!(matches!(refused, HostError::ConfigInUse { .. }), "{refused}");
    }
}

fn piece(directory: &Path, region: RegionId) -> PathBuf {
    directory.join(format!("{region}.0000"))
}
