//! Handles of streams that clients only cache: what is done with their file asks for them first.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use smb::create::{
    AccessMask, CreateDisposition, CreateOptions, CreateRequest, CreateRequestContext, Lease,
    LeaseKey, LeaseState, LeaseVersion, OplockLevel, ShareAccess,
};
use smb::{BreakNotification, Command, FileId, LeaseBreakAck, NtStatus};
use support::{Fixture, Wire};

const ALL: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE).union(ShareAccess::DELETE);
const NO_DELETE: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE);
const KEPT: LeaseState = LeaseState::READ.union(LeaseState::WRITE);

/// To cache all there is to cache under the lease `key`.
fn leased(request: &mut CreateRequest<'_>, key: u8) {
    request.oplock_level = OplockLevel::LEASE;
    request.contexts.push(CreateRequestContext::Lease(Lease {
        key: LeaseKey([key; 16]),
        state: KEPT | LeaseState::HANDLE,
        break_in_progress: false,
        version: LeaseVersion::V2 { parent: None, epoch: 0 },
    }));
}

/// Opens `name`, sharing `shares`, and caches the handle under the lease `key`.
fn caches(wire: &mut Wire, name: &str, key: u8, shares: ShareAccess) -> FileId {
    let opened = wire.open(name, |request| {
        request.share_access = shares;
        leased(request, key);
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
    opened.id
}

/// Opens what is there as an application does, with nothing cached.
fn opens(wire: &mut Wire, name: &str) -> FileId {
    let opened = wire.open(name, |open| open.disposition = CreateDisposition::OPEN);
    assert_eq!(opened.status, NtStatus::SUCCESS);
    opened.id
}

fn makes(wire: &mut Wire, names: &[&str]) {
    for name in names {
        let id = wire.open(name, |_| {}).id;
        assert_eq!(wire.close(id), NtStatus::SUCCESS);
    }
}

/// The next break is of a lease, and of cached handles alone: its key.
fn is_asked(wire: &mut Wire) -> LeaseKey {
    let (_, pdu) = wire.notification();
    let BreakNotification::Lease(broken) = BreakNotification::parse(&pdu).unwrap() else {
        panic!("a lease is broken as a lease")
    };
    assert_eq!(broken.new, KEPT);
    broken.lease_key
}

/// The application still uses the handle: only that closed ones are kept ends.
fn keeps_it_open(wire: &mut Wire, lease_key: LeaseKey) {
    let ack = LeaseBreakAck { lease_key, state: KEPT };
    let (header, _) = wire.ask(Command::OPLOCK_BREAK, |out| ack.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
}

fn has(fixture: &Fixture, name: &str) -> bool {
    fixture.dir.path().join(name).exists()
}

#[test]
fn an_overwrite_waits_for_cached_handles_of_streams() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    makes(&mut one, &["f", "f:s"]);
    let cached = [("f:s", 1), ("f:t", 2)].map(|(name, key)| caches(&mut one, name, key, ALL));
    let waits = two.start_open("f", |open| open.disposition = CreateDisposition::OVERWRITE);
    for _ in cached {
        is_asked(&mut one);
    }
    for id in cached {
        assert_eq!(one.close(id), NtStatus::SUCCESS);
    }
    assert_eq!(two.finish_open(waits).status, NtStatus::SUCCESS);
    let gone = one.open("f:s", |open| open.disposition = CreateDisposition::OPEN);
    assert_eq!(gone.status, NtStatus::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn an_open_with_delete_waits_for_cached_handles_that_share_none() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    let cached = caches(&mut one, "f:s", 1, NO_DELETE);
    let in_use = caches(&mut one, "f:t", 2, NO_DELETE);
    let waits = two.start_open("f", |_| {});
    let keys = [is_asked(&mut one), is_asked(&mut one)];
    assert_eq!(one.close(cached), NtStatus::SUCCESS);
    let key = LeaseKey([2; 16]);
    assert!(keys.contains(&key));
    keeps_it_open(&mut one, key);
    assert_eq!(two.finish_open(waits).status, NtStatus::SHARING_VIOLATION);
    assert_eq!(one.close(in_use), NtStatus::SUCCESS);

    let cached = caches(&mut one, "f:s", 3, NO_DELETE);
    let waits = two.start_open("f", |_| {});
    is_asked(&mut one);
    assert_eq!(one.close(cached), NtStatus::SUCCESS);
    assert_eq!(two.finish_open(waits).status, NtStatus::SUCCESS);
}

#[test]
fn an_open_leaves_cached_handles_of_streams_that_are_not_in_its_way() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    caches(&mut one, "f:s", 1, ALL);
    let deletes = opens(&mut two, "f");
    assert_eq!(two.close(deletes), NtStatus::SUCCESS);
    caches(&mut one, "f:t", 2, NO_DELETE);
    let reads = two.open("f", |open| open.desired_access = AccessMask::FILE_GENERIC_READ);
    assert_eq!(reads.status, NtStatus::SUCCESS);
    // What it was asked came before this is answered.
    makes(&mut one, &["g"]);
    assert!(one.unsolicited.is_empty());
}

#[test]
fn a_stream_without_delete_sharing_waits_for_cached_handles_of_its_file() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    let exclusive = |open: &mut CreateRequest<'_>| open.share_access = NO_DELETE;
    // The first of them makes the stream, the second finds it.
    for key in [1, 2] {
        let cached = caches(&mut one, "f", key, ALL);
        let waits = two.start_open("f:s", exclusive);
        is_asked(&mut one);
        assert_eq!(one.close(cached), NtStatus::SUCCESS);
        let opened = two.finish_open(waits);
        assert_eq!(opened.status, NtStatus::SUCCESS);
        assert_eq!(two.close(opened.id), NtStatus::SUCCESS);
    }
    caches(&mut one, "f", 3, ALL);
    let waits = two.start_open("f:s", exclusive);
    let key = is_asked(&mut one);
    keeps_it_open(&mut one, key);
    assert_eq!(two.finish_open(waits).status, NtStatus::SHARING_VIOLATION);
}

#[test]
fn an_open_that_deletes_on_close_waits_for_cached_handles_of_streams() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 2].map(|number| fixture.client(number));
    let cached = caches(&mut one, "f:s", 1, ALL);
    let waits = two.start_open("f", |open| open.options = CreateOptions::DELETE_ON_CLOSE);
    is_asked(&mut one);
    assert_eq!(one.close(cached), NtStatus::SUCCESS);
    let opened = two.finish_open(waits);
    assert_eq!(opened.status, NtStatus::SUCCESS);
    assert_eq!(two.close(opened.id), NtStatus::SUCCESS);
    assert!(!has(&fixture, "f"));
}
