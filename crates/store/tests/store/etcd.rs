//! The same with metadata in etcd.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use store::meta::record::{Class, CopyState};
use store::meta::{Change, Meta as _};
use store::{Allocation, Rights};

use crate::daemon::Cluster;
use crate::skipped;

const BOTH: Rights = Rights::READ.union(Rights::WRITE);

struct Etcd {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Etcd {
    /// etcd, if this machine has it.
    fn start() -> Option<Self> {
        // Another process may take a port before etcd does: then once more.
        for _ in 0..5 {
            let directory = tempfile::tempdir().unwrap();
            let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
            let [port, peers] = ports.map(|one| one.local_addr().unwrap().port());
            let [at, peer] = [port, peers].map(|port| format!("http://127.0.0.1:{port}"));
            let child = Command::new("etcd")
                .arg("--data-dir")
                .arg(directory.path())
                .args(["--listen-client-urls", &at, "--advertise-client-urls", &at])
                .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
                .args(["--initial-cluster", &format!("default={peer}")])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let Ok(child) = child else {
                skipped::skip("etcd is not installed");
                return None;
            };
            let mut etcd = Self { child, port, _directory: directory };
            let meta = store::meta::open(&etcd.place("probe")).unwrap();
            while etcd.child.try_wait().unwrap().is_none() {
                if meta.get("nothing").is_ok() {
                    return Some(etcd);
                }
                std::thread::yield_now();
            }
        }
        panic!("etcd does not start");
    }

    fn place(&self, name: &str) -> String {
        format!("etcd://127.0.0.1:1,127.0.0.1:{}/{name}", self.port)
    }
}

#[test]
fn a_store_with_its_metadata_in_etcd_goes_on_without_a_killed_server() {
    let Some(etcd) = Etcd::start() else { return };
    let meta = store::meta::EtcdMeta::new(vec![format!("http://127.0.0.1:{}", etcd.port)], "keys");
    let put = |value: &'static [u8]| Change { key: "a/b", value: Some(value), durable: true };
    let first = meta.swap(put(b"one"), &[("a/b", None)]).unwrap().unwrap();
    assert_eq!(meta.swap(put(b"two"), &[("a/b", None)]).unwrap(), None);
    let second = meta.swap(put(b"two"), &[("a/b", Some(first)), ("c", None)]).unwrap().unwrap();
    let listed = meta.list("a/").unwrap();
    assert!(second > first && listed.len() == 1 && listed[0].1.value == b"two");
    let gone = Change { key: "a/b", value: None, durable: true };
    assert_eq!(meta.swap(gone, &[("a/b", Some(second))]).unwrap(), Some(0));
    assert_eq!(meta.get("a/b").unwrap(), None);

    let mut cluster = Cluster::start_at(2, Some(etcd.place("one")), false);
    let store = cluster.store();
    let wanted = Allocation { copies: 2, ..Allocation::new(100_000, Class::Volatile) };
    store.create("r", &wanted).unwrap();
    let region = store.map("r", BOTH).unwrap();
    region.write(0, &[1; 50_000]).unwrap();
    cluster.kill(0);
    region.write(50_000, &[2; 50_000]).unwrap();
    let record = store.info("r").unwrap();
    assert!(record.pieces[0].copies.iter().any(|copy| copy.state == CopyState::Stale));
    cluster.restart(0);
    assert_eq!(store.rebuild("r").unwrap().copies, 1);
    cluster.kill(1);
    let mut out = vec![0; 100_000];
    region.read(0, &mut out).unwrap();
    assert!(out == [[1; 50_000], [2; 50_000]].concat());
}
