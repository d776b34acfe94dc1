//! Logs whose members are regions of Landfast's servers, over real sockets.

#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

use client::{ConnectOptions, Instance, OpenOptions, Region, RegionSettings, SmbUrl, blocking};
use log::{CreateOptions, LogError, Lsn, MemberSet, RemoteStore, Store, TailLog};
use rdma::PollPolicy;
use server::{Running, Server, ServerConfig, ShareConfig, Users};
use smb::Guid;
use smb::push::{Durability, PushRequest, Rights};

const LEN: u64 = 8192 + 131_072;

/// A server with a share in memory that says it is persistent.
struct Host {
    running: Running,
    runtime: tokio::runtime::Runtime,
    share: tempfile::TempDir,
}

impl Host {
    fn start() -> Self {
        let share = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = std::fs::File::create(share.path().join("tail")).unwrap();
        file.set_len(LEN).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        config.rdma_listen = Some("127.0.0.1:0".parse().unwrap());
        let mut exported = ShareConfig::new("share", share.path());
        exported.emulate_persistence = true;
        config.shares.push(exported);
        config.users = Users::with_passwords([("user", "secret")]);
        let running = runtime.block_on(Server::start(config)).unwrap();
        Self { running, runtime, share }
    }

    fn client(&self) -> blocking::Client {
        let port = self.running.tcp_address().port();
        let url: SmbUrl = format!("smb://user:secret@127.0.0.1:{port}/share").parse().unwrap();
        blocking::Client::connect(&url, &ConnectOptions::default()).unwrap()
    }

    fn stop(self) -> tempfile::TempDir {
        self.runtime.block_on(self.running.shutdown());
        self.share
    }
}

fn region(client: &blocking::Client) -> Region {
    map(client, OpenOptions::read_write()).unwrap()
}

fn map(client: &blocking::Client, options: OpenOptions) -> Result<Region, client::ClientError> {
    let options = options.with_push(PushRequest {
        rights: Rights::READ | Rights::WRITE | Rights::FLUSH | Rights::ATOMIC_WRITE,
        durability: Durability::ANY,
        accept_emulated: true,
        regions_max: 1,
    });
    let settings = RegionSettings { polling: PollPolicy::Block, ..RegionSettings::default() };
    client.map("tail", &options, 0..LEN, settings)
}

/// The log's application, come up for the `version`th time.
fn as_instance(client: &blocking::Client, version: u64) -> Result<Region, client::ClientError> {
    let instance = Instance { id: Guid([7; 16]), version };
    let create_guid = Guid([u8::try_from(version).unwrap(); 16]);
    map(client, OpenOptions::read_write().with_instance(instance, create_guid))
}

fn store(client: &blocking::Client) -> Box<dyn Store> {
    Box::new(RemoteStore::new(region(client)).unwrap())
}

fn records(log: &TailLog) -> Vec<(Lsn, Vec<u8>)> {
    log.replay(log.start_lsn()).unwrap().map(Result::unwrap).collect()
}

#[test]
fn records_committed_at_a_server_are_read_by_the_next_owner() {
    let host = Host::start();
    let client = host.client();
    let log = TailLog::create(vec![store(&client)], &CreateOptions::default()).unwrap();
    let lsns: Vec<Lsn> =
        (0..100_u8).map(|byte| log.append_commit(&vec![byte; 700]).unwrap()).collect();
    log.trim(lsns[50]).unwrap();
    assert!(log.status().worths[0].1.is_remote);
    drop((log, client));
    let client = host.client();
    let log = TailLog::open(vec![store(&client)], &log::OpenOptions::default()).unwrap();
    let found = records(&log);
    assert_eq!(found.len(), 50);
    assert_eq!(found[49], (lsns[99], vec![99; 700]));
}

#[test]
fn a_log_that_was_dropped_is_opened_again_at_once() {
    let host = Host::start();
    let client = host.client();
    drop(TailLog::create(vec![store(&client)], &CreateOptions::default()).unwrap());
    for turn in 0..30 {
        assert_eq!(host.running.status().opens, 0, "{turn}");
        let log = TailLog::open(vec![store(&client)], &log::OpenOptions::default()).unwrap();
        assert_eq!(records(&log).len(), turn);
        log.append_commit(b"one more").unwrap();
    }
    // In a runtime nobody waits.
    let log = TailLog::open(vec![store(&client)], &log::OpenOptions::default()).unwrap();
    host.runtime.block_on(async { drop(log) });
}

#[test]
fn a_mirror_of_two_servers_outlives_either() {
    let hosts = [Host::start(), Host::start()];
    let clients = hosts.each_ref().map(Host::client);
    let stores = clients.iter().map(store).collect();
    let log = TailLog::create(stores, &CreateOptions::default()).unwrap();
    log.append_commit(b"at both").unwrap();
    let [first, second] = hosts;
    drop(first.stop());
    log.append_commit(b"at the second").unwrap();
    let status = log.status();
    assert_eq!(status.in_sync, MemberSet::of(&[1]));
    assert_eq!(status.failed.len(), 1);
    // A new member takes the place of the lost one.
    let third = Host::start();
    let newcomer = third.client();
    assert_eq!(log.add_member(store(&newcomer)).unwrap(), 0);
    drop(second.stop());
    log.append_commit(b"at the third").unwrap();
    drop((log, clients, newcomer));
    let client = third.client();
    let log = TailLog::open(vec![store(&client)], &log::OpenOptions::default()).unwrap();
    let bytes: Vec<_> = records(&log).into_iter().map(|(_, record)| record).collect();
    assert_eq!(bytes, [b"at both".to_vec(), b"at the second".to_vec(), b"at the third".to_vec()]);
}

#[test]
fn a_log_that_is_open_is_given_to_no_second_owner() {
    let host = Host::start();
    let old = host.client();
    let first = TailLog::create(vec![store(&old)], &CreateOptions::default()).unwrap();
    first.append_commit(b"of the first owner").unwrap();
    let new = host.client();
    let refused = RemoteStore::new(region(&new)).unwrap_err();
    assert!(refused.to_string().contains("not in push mode"), "{refused}");
    // The server asked for the region back: the first owner appends nothing more.
    let error = first.append_commit(b"too late").unwrap_err();
    assert!(matches!(error, LogError::Store { member: 0, .. }), "{error}");
    let file = std::fs::read(host.share.path().join("tail")).unwrap();
    assert!(!file.windows(8).any(|bytes| bytes == b"too late"), "it was written by messages");
    drop((first, old, new));
    // What they had open ends with their connections, a moment later.
    while host.running.status().opens > 0 {
        std::thread::yield_now();
    }
    let next = host.client();
    let second = TailLog::open(vec![store(&next)], &log::OpenOptions::default()).unwrap();
    assert_eq!(records(&second)[0].1, b"of the first owner");
}

#[test]
fn a_new_owner_takes_the_log_from_one_that_lives() {
    let host = Host::start();
    let old = host.client();
    let store = |client, version| -> Box<dyn Store> {
        Box::new(RemoteStore::new(as_instance(client, version).unwrap()).unwrap())
    };
    let first = TailLog::create(vec![store(&old, 1)], &CreateOptions::default()).unwrap();
    let one = first.append_commit(b"of the first owner").unwrap();
    // The first owner is not asked, and hears nothing before it appends again.
    let new = host.client();
    let second = TailLog::open(vec![store(&new, 2)], &log::OpenOptions::default()).unwrap();
    assert_eq!(records(&second), [(one, b"of the first owner".to_vec())]);
    let two = second.append_commit(b"of the second owner").unwrap();
    let error = first.append_commit(b"too late").unwrap_err();
    assert!(matches!(error, LogError::Store { member: 0, .. }), "{error}");
    assert!(matches!(first.append_commit(b"too late"), Err(LogError::Broken)));
    // It does not get the log back, unless it is the later one again.
    drop(first);
    as_instance(&old, 1).unwrap_err();
    as_instance(&old, 2).unwrap_err();
    let three = second.append_commit(b"undisturbed").unwrap();
    let file = std::fs::read(host.share.path().join("tail")).unwrap();
    assert!(!file.windows(8).any(|bytes| bytes == b"too late"));
    let third = TailLog::open(vec![store(&old, 3)], &log::OpenOptions::default()).unwrap();
    second.append_commit(b"too late").unwrap_err();
    let lsns: Vec<Lsn> = records(&third).into_iter().map(|(lsn, _)| lsn).collect();
    assert_eq!(lsns, [one, two, three]);
}
