//! Handles of streams that clients only cache: what is done with their file asks for them first.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod support;

use smb::create::{
    CreateDisposition, CreateRequest, CreateRequestContext, Lease, LeaseKey, LeaseState,
    LeaseVersion, OplockLevel, ShareAccess,
};
use smb::{BreakNotification, FileId, NtStatus};
use support::{Fixture, Wire};

const ALL: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE).union(ShareAccess::DELETE);
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
