//! Attacks of a hostile peer on push mode, over real sockets: each attempt is answered as
//! docs/push-mode.md and the RFCs say, changes no byte, and ends only the connection it was made
//! on, while an honest client goes on.

#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "this file is all tests")]

mod connections;
mod controls;
mod dead_way;
mod deaf_way;
mod dropped;
mod durability;
#[path = "../support/fixture.rs"]
mod fixture;
mod peer;

use std::time::{Duration, Instant};

use fixture::{Fixture, bytes_at};
use peer::{Deed, Honest, LEN, Link, Opened, hello, showing};
use smb::NtStatus;
use smb::push::{PushProof, Rights};

const ALL: Rights = Rights::READ.union(Rights::WRITE).union(Rights::FLUSH);

/// Place of the attacker's region in its file.
const PAGE: u64 = 4096;

/// Maps the second page of a file with `rights`, does `deed`, and checks the Terminate code.
fn ends_with(expected: (u8, u8, u8), rights: Rights, deed: Deed) {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let mut honest = Honest::at_work(&fixture);
    let evil = Opened::new(&fixture, "evil", ALL);
    let link = evil.dial();
    let mapped = evil.map(link.id, rights, PAGE, PAGE).unwrap();
    assert_eq!(link.ended_by(deed, &mapped), expected, "{deed:?}");
    evil.has_not_noticed();
    untouched(&fixture, "evil");
    honest.still_works();
}

fn untouched(fixture: &Fixture, name: &str) {
    let len = usize::try_from(LEN).unwrap();
    assert_eq!(bytes_at(&fixture.share.path().join(name), 0, len), vec![0; len]);
}

#[test]
fn a_wrong_token_opens_no_push_connection() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let mut honest = Honest::at_work(&fixture);
    let address = fixture.running.rdma_address().unwrap();
    let wrong = showing(PushProof::new([0x5a; 32]));
    assert_eq!(Link::dial(address, &wrong).unwrap_err(), NtStatus::ACCESS_DENIED);
    let mut newer = wrong.clone();
    newer[4] = 2;
    assert_eq!(Link::dial(address, &newer).unwrap_err(), NtStatus::REVISION_MISMATCH);
    assert_eq!(Link::dial(address, &wrong[..47]).unwrap_err(), NtStatus::INVALID_PARAMETER);
    assert_eq!(fixture.running.status().push_connections, 1);
    honest.still_works();
}

#[test]
fn a_token_is_good_once() {
    let fixture = Fixture::start("/dev/shm", |_| {});
    let mut honest = Honest::at_work(&fixture);
    let evil = Opened::new(&fixture, "evil", ALL);
    let link = evil.dial();
    let again = Link::dial(evil.grant().addresses[0], &hello(evil.grant()));
    assert_eq!(again.unwrap_err(), NtStatus::ACCESS_DENIED);
    evil.map(link.id, ALL, 0, LEN).expect("the first connection is not the worse for it");
    honest.still_works();
}

#[test]
fn a_token_is_refused_after_its_lifetime() {
    let lifetime = Duration::from_secs(2);
    let fixture = Fixture::start("/dev/shm", |config| config.push.token_lifetime = lifetime);
    let mut honest = Honest::at_work(&fixture);
    let evil = Opened::new(&fixture, "evil", ALL);
    let received = Instant::now();
    while let left = lifetime.saturating_sub(received.elapsed())
        && !left.is_zero()
    {
        std::thread::park_timeout(left);
    }
    let late = Link::dial(evil.grant().addresses[0], &hello(evil.grant()));
    assert_eq!(late.unwrap_err(), NtStatus::ACCESS_DENIED);
    honest.still_works();
}

#[test]
fn a_tag_of_another_push_connection_is_refused() {
    for (expected, deed) in [
        // RFC 5041 §7.2 and RFC 5040 §4.8: the STag is not associated with the stream.
        ((1, 1, 2), Deed::Write(0)),
        ((0, 1, 3), Deed::Read(0)),
        ((0, 1, 3), Deed::Flush(0, 8)),
    ] {
        let fixture = Fixture::start("/dev/shm", |_| {});
        let mut honest = Honest::at_work(&fixture);
        let victim = Opened::new(&fixture, "victim", ALL);
        let victims = victim.dial();
        let mapped = victim.map(victims.id, ALL, PAGE, PAGE).unwrap();
        let evil = Opened::new(&fixture, "evil", ALL);
        assert_eq!(evil.dial().ended_by(deed, &mapped), expected, "{deed:?}");
        evil.has_not_noticed();
        untouched(&fixture, "victim");
        victim.commit(&mapped, &[]).expect("the victim's region is still there");
        honest.still_works();
    }
}

#[test]
fn no_operation_reaches_beyond_its_region_into_the_rest_of_the_file() {
    ends_with((1, 1, 1), ALL, Deed::Write(4096 - 8));
    ends_with((1, 1, 1), ALL, Deed::Write(-8));
    ends_with((1, 1, 1), ALL, Deed::Write(i64::MAX));
    ends_with((0, 1, 1), ALL, Deed::Read(4096 - 8));
    ends_with((0, 1, 1), ALL, Deed::Read(-8));
    ends_with((0, 1, 1), ALL, Deed::Flush(0, 4097));
    ends_with((0, 1, 1), ALL, Deed::Flush(8, u32::MAX));
}

#[test]
fn a_registration_allows_only_its_rights() {
    ends_with((1, 1, 0), Rights::READ | Rights::FLUSH, Deed::Write(0));
    ends_with((0, 1, 2), Rights::READ | Rights::FLUSH, Deed::AtomicWrite(0));
    ends_with((0, 1, 2), Rights::WRITE | Rights::FLUSH, Deed::Read(0));
    ends_with((0, 1, 2), Rights::READ | Rights::WRITE, Deed::Flush(0, 8));
}

#[test]
fn an_unmapped_region_is_refused() {
    for (expected, deed) in
        [((1, 1, 0), Deed::Write(0)), ((0, 1, 0), Deed::Read(0)), ((0, 1, 0), Deed::Flush(0, 8))]
    {
        let fixture = Fixture::start("/dev/shm", |_| {});
        let mut honest = Honest::at_work(&fixture);
        let evil = Opened::new(&fixture, "evil", ALL);
        let link = evil.dial();
        let mapped = evil.map(link.id, ALL, PAGE, PAGE).unwrap();
        evil.unmap(&mapped).unwrap();
        assert_eq!(evil.unmap(&mapped), Err(NtStatus::NOT_FOUND));
        assert_eq!(evil.commit(&mapped, &[]), Err(NtStatus::NOT_FOUND));
        assert_eq!(link.ended_by(deed, &mapped), expected, "{deed:?}");
        evil.has_not_noticed();
        untouched(&fixture, "evil");
        honest.still_works();
    }
}
