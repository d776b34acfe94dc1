//! Commits of files that are in memory, by each way that a commit can go.

use client::{Path, RegionError, blocking};
use pmem::DurabilityClass;
use smb::push::Durability;

use super::fixture::{Fixture, bytes_at, pushing, settings};

fn regions_of(client: &blocking::Client, least: Durability, accept: bool) -> client::Region {
    let mut options = pushing();
    let push = options.push.as_mut().unwrap();
    (push.durability, push.accept_emulated) = (least, accept);
    client.map("region", &options, 0..8192, settings()).unwrap()
}

fn is_refused(region: &mut client::Region) {
    let committed = region.write_commit(0, b"durable?");
    let class = DurabilityClass::Volatile;
    let refused =
        matches!(&committed, Err(RegionError::CommitRefused { class: it }) if *it == class);
    assert!(refused, "{}: {committed:?}", region.path());
    let text = committed.unwrap_err().to_string();
    assert!(text.contains("--emulate-persistence"), "{text}");
}

#[test]
fn a_commit_that_is_refused_as_volatile_fails_by_whatever_way_it_goes() {
    let fixture = Fixture::start("/dev/shm", |config| config.shares[0].emulate_persistence = false);
    let path = fixture.file(8192);
    let client = fixture.client();
    let mut pushed = regions_of(&client, Durability::ANY, true);
    assert!(matches!(pushed.path(), Path::Push { .. }), "{}", pushed.path());
    is_refused(&mut pushed);
    drop(pushed);
    let mut asks_for_more = regions_of(&client, Durability::STORAGE, true);
    assert!(matches!(asks_for_more.path(), Path::Messages { .. }), "{}", asks_for_more.path());
    // Plain writes and reads are what they are on any server.
    asks_for_more.write(0, b"visible!").unwrap();
    assert_eq!(bytes_at(&path, 0, 8), b"visible!");
    is_refused(&mut asks_for_more);
    drop(asks_for_more);
    // The push connection is lost before the commit.
    let mut lost = regions_of(&client, Durability::ANY, true);
    fixture.runtime.block_on(fixture.running.shutdown());
    is_refused(&mut lost);
}

#[test]
fn a_commit_is_refused_without_a_listener_as_with_one() {
    let fixture = Fixture::start("/dev/shm", |config| {
        config.rdma_listen = None;
        config.shares[0].emulate_persistence = false;
    });
    fixture.file(8192);
    is_refused(&mut regions_of(&fixture.client(), Durability::ANY, true));
}

#[test]
fn emulated_persistence_is_a_commit_for_those_alone_who_accept_it() {
    let fixture = Fixture::start("/dev/shm", |config| config.rdma_listen = None);
    fixture.file(8192);
    let client = fixture.client();
    is_refused(&mut regions_of(&client, Durability::STORAGE, false));
    let mut accepting = regions_of(&client, Durability::STORAGE, true);
    accepting.write_commit(0, b"emulated").unwrap();
    assert!(accepting.path().to_string().ends_with("persistence EMULATED"), "{}", accepting.path());
    regions_of(&client, Durability::ANY, false).write_commit(0, b"emulated").unwrap();
}
