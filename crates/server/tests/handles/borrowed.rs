//! Leases under names that another user says too: ClientGuid and lease key are read on the wire by whoever listens.

use smb::create::{
    AccessMask, CreateDisposition, CreateRequest, CreateRequestContext, CreateResponseContext,
    Lease, LeaseKey, LeaseState, LeaseVersion, OplockLevel,
};
use smb::{BreakNotification, Command, LeaseBreakAck, NtStatus};

use crate::support::{Fixture, Wire};

const R: LeaseState = LeaseState::READ;
const RH: LeaseState = LeaseState::READ.union(LeaseState::HANDLE);
const RWH: LeaseState = RH.union(LeaseState::WRITE);
const KEY: LeaseKey = LeaseKey([5; 16]);

fn leased(request: &mut CreateRequest<'_>, state: LeaseState) {
    request.oplock_level = OplockLevel::LEASE;
    request.contexts.push(CreateRequestContext::Lease(Lease {
        key: KEY,
        state,
        break_in_progress: false,
        version: LeaseVersion::V2 { parent: None, epoch: 0 },
    }));
}

fn granted(opened: &crate::support::Opened) -> LeaseState {
    assert_eq!(opened.status, NtStatus::SUCCESS);
    let response = opened.response();
    let lease = response.contexts.iter().find_map(|context| match context {
        CreateResponseContext::Lease(lease) => Some(lease.state),
        _ => None,
    });
    lease.expect("a lease")
}

fn is_told(wire: &mut Wire) -> LeaseState {
    let (_, pdu) = wire.notification();
    match BreakNotification::parse(&pdu).unwrap() {
        BreakNotification::Lease(broken) if broken.lease_key == KEY => broken.new,
        other => panic!("{other:?}"),
    }
}

fn answer(wire: &mut Wire, state: LeaseState) -> NtStatus {
    let ack = LeaseBreakAck { lease_key: KEY, state };
    wire.ask(Command::OPLOCK_BREAK, |out| ack.emit(out)).0.status
}

/// Another user who says the ClientGuid of client 1.
fn borrower(fixture: &Fixture) -> Wire {
    let mut wire = fixture.dial();
    wire.negotiate(1);
    wire.log_on_as("other", "hidden");
    wire.enter("data");
    wire
}

#[test]
fn another_user_under_a_borrowed_lease_key_is_another_owner() {
    let fixture = Fixture::start();
    let mut holder = fixture.client(1);
    assert_eq!(granted(&holder.open("f", |open| leased(open, RWH))), RWH);
    let mut borrower = borrower(&fixture);
    let waits = borrower.start_open("f", |open| {
        open.disposition = CreateDisposition::OPEN;
        leased(open, R);
    });
    assert_eq!(is_told(&mut holder), RH, "it is a stranger's open that breaks the lease");
    assert!(answer(&mut borrower, RH).is_error(), "nobody else answers for the holder");
    assert_eq!(answer(&mut holder, RH), NtStatus::SUCCESS);
    let opened = borrower.finish_open(waits);
    assert_eq!(granted(&opened), R, "and not what the holder has");
    // What the borrower writes the holder does not go on caching.
    assert_eq!(borrower.write(opened.id, b"new"), NtStatus::SUCCESS);
    assert_eq!(is_told(&mut holder), LeaseState::empty());
}

#[test]
fn a_borrowed_key_keeps_no_key_of_another_user_from_its_file() {
    let fixture = Fixture::start();
    let mut borrower = borrower(&fixture);
    assert_eq!(granted(&borrower.open("taken", |open| leased(open, RWH))), RWH);
    let mut holder = fixture.client(1);
    assert_eq!(granted(&holder.open("f", |open| leased(open, RWH))), RWH);
}

#[test]
fn sessions_of_one_user_share_the_leases_of_their_client() {
    let fixture = Fixture::start();
    let [mut one, mut two] = [1, 1].map(|number| fixture.client(number));
    assert_eq!(granted(&one.open("f", |open| leased(open, RWH))), RWH);
    assert_eq!(granted(&two.open("f", |open| leased(open, R))), RWH, "nothing is broken");
    let mut opener = fixture.client(2);
    let waits = opener.start_open("f", |open| {
        open.disposition = CreateDisposition::OPEN;
        open.desired_access = AccessMask::FILE_GENERIC_READ;
    });
    assert_eq!(is_told(&mut one), RH);
    assert_eq!(answer(&mut two, RH), NtStatus::SUCCESS, "over any of its connections");
    assert_eq!(opener.finish_open(waits).status, NtStatus::SUCCESS);
}

#[test]
fn a_client_of_two_users_answers_for_one_in_the_session_of_the_other() {
    let fixture = Fixture::start();
    let mut client = fixture.client(1);
    assert_eq!(granted(&client.open("f", |open| leased(open, RWH))), RWH);
    // As a `multiuser` mount does: one connection, a session for each user.
    (client.session, client.keys) = (0, None);
    client.log_on_as("other", "hidden");
    client.enter("data");
    let mut opener = fixture.client(2);
    let waits = opener.start_open("f", |open| open.disposition = CreateDisposition::OPEN);
    assert_eq!(is_told(&mut client), RH);
    assert_eq!(answer(&mut client, RH), NtStatus::SUCCESS);
    assert_eq!(opener.finish_open(waits).status, NtStatus::SUCCESS);
}
