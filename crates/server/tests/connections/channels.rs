//! Multichannel: several connections of one session, and what becomes of it when some of them go.

use std::net::Shutdown;

use smb::create::{
    CreateRequestContext, CreateResponseContext, Lease, LeaseKey, LeaseState, LeaseVersion,
    OplockLevel,
};
use smb::{BreakNotification, Command, Empty, LeaseBreakAck, NtStatus};

use crate::support::{Fixture, Wire};

const USER: (&str, &str) = ("user", "secret");

/// A second connection of the session of `first`, which is client 1's.
fn joined(fixture: &Fixture, first: &Wire) -> Wire {
    let mut second = fixture.dial();
    second.negotiate(1);
    assert_eq!(second.join(first, USER), NtStatus::SUCCESS);
    second
}

/// Waits until the server has noticed that connections ended.
fn until(mut reached: impl FnMut() -> bool) {
    while !reached() {
        std::thread::yield_now();
    }
}

#[test]
fn what_one_channel_opened_another_one_uses() {
    let fixture = Fixture::start();
    let mut first = fixture.client(1);
    let mut second = joined(&fixture, &first);
    let id = first.open("f", |_| {}).id;
    assert_eq!(second.write(id, b"by the second"), NtStatus::SUCCESS);
    assert_eq!(first.read(id, 100).1, b"by the second");
    assert_eq!(fixture.running.status().sessions, 1);
}

#[test]
fn each_channel_signs_with_a_key_of_its_own() {
    let fixture = Fixture::start();
    let mut first = fixture.client(1);
    let mut second = joined(&fixture, &first);
    let id = first.open("f", |_| {}).id;
    std::mem::swap(&mut first.keys, &mut second.keys);
    assert_eq!(second.read(id, 100).0, NtStatus::ACCESS_DENIED);
    assert_eq!(first.read(id, 100).0, NtStatus::ACCESS_DENIED);
    std::mem::swap(&mut first.keys, &mut second.keys);
    assert_eq!(second.write(id, b"a refused request harms nobody"), NtStatus::SUCCESS);
}

#[test]
fn a_session_outlives_its_first_connection_and_ends_with_its_last() {
    let fixture = Fixture::start();
    let mut first = fixture.client(1);
    let mut second = joined(&fixture, &first);
    let id = first.open("f", |_| {}).id;
    assert_eq!(first.write(id, b"kept"), NtStatus::SUCCESS);
    first.stream.shutdown(Shutdown::Both).unwrap();
    until(|| fixture.running.status().connections == 1);
    assert_eq!(second.read(id, 100).1, b"kept");
    let mut third = joined(&fixture, &first);
    assert_eq!(third.read(id, 100).1, b"kept");
    drop((second, third));
    until(|| fixture.running.status().sessions == 0);
    assert_eq!(fixture.running.status().opens, 0);
}

#[test]
fn a_break_that_went_with_its_connection_is_repeated_over_another() {
    let fixture = Fixture::start();
    let mut first = fixture.client(1);
    let mut second = joined(&fixture, &first);
    let key = LeaseKey([3; 16]);
    let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
    let opened = first.open("f", |request| {
        request.oplock_level = OplockLevel::LEASE;
        let version = LeaseVersion::V2 { parent: None, epoch: 0 };
        let lease = Lease { key, state, break_in_progress: false, version };
        request.contexts.push(CreateRequestContext::Lease(lease));
    });
    let granted = opened.response().contexts.iter().any(
        |context| matches!(context, CreateResponseContext::Lease(lease) if lease.state == state),
    );
    assert!(granted);
    let mut stranger = fixture.client(2);
    let waiting = stranger.start_open("f", |_| {});
    first.notification();
    drop(first);
    let (_, pdu) = second.notification();
    let BreakNotification::Lease(notification) = BreakNotification::parse(&pdu).unwrap() else {
        panic!("a lease is broken as a lease")
    };
    assert_eq!(notification.lease_key, key);
    let ack = LeaseBreakAck { lease_key: key, state: notification.new };
    let (header, _) = second.ask(Command::OPLOCK_BREAK, |out| ack.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    assert_eq!(stranger.finish_open(waiting).status, NtStatus::SUCCESS);
}

fn leased(wire: &mut Wire, name: &str, key: u8) {
    let opened = wire.open(name, |request| {
        request.oplock_level = OplockLevel::LEASE;
        let version = LeaseVersion::V2 { parent: None, epoch: 0 };
        let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
        let lease = Lease { key: LeaseKey([key; 16]), state, break_in_progress: false, version };
        request.contexts.push(CreateRequestContext::Lease(lease));
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
}

fn broken_key(wire: &mut Wire) -> (LeaseKey, LeaseState) {
    match BreakNotification::parse(&wire.notification().1).unwrap() {
        BreakNotification::Lease(notification) => (notification.lease_key, notification.new),
        BreakNotification::Oplock(_) => panic!("a lease is broken as a lease"),
    }
}

/// A file that its holder has to give back first.
struct Wanted {
    stranger: Wire,
    waiting: u64,
}

/// The holder has a lease on file "f", with key 3, and another client waits for it.
fn lease_somebody_wants(fixture: &Fixture, holder: &mut Wire) -> Wanted {
    leased(holder, "f", 3);
    let mut stranger = fixture.client(2);
    let waiting = stranger.start_open("f", |_| {});
    Wanted { stranger, waiting }
}

impl Wanted {
    /// The stranger's open, which waited, comes to its end.
    fn opens_now(mut self) {
        assert_eq!(self.stranger.finish_open(self.waiting).status, NtStatus::SUCCESS);
    }
}

/// Answers the break that comes.
fn give_back(wire: &mut Wire) {
    let (lease_key, state) = broken_key(wire);
    let ack = LeaseBreakAck { lease_key, state };
    let (header, _) = wire.ask(Command::OPLOCK_BREAK, |out| ack.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
}

#[test]
fn a_client_is_told_of_its_leases_over_its_first_connection_while_that_lasts() {
    let fixture = Fixture::start();
    // One client, two connections with a session each; the first has nothing open.
    let mut first = fixture.client(1);
    let mut second = fixture.client(1);
    let wanted = lease_somebody_wants(&fixture, &mut second);
    assert_eq!(broken_key(&mut first).0, LeaseKey([3; 16]));
    // It goes before it has answered: the next one is asked, and any of them may answer.
    drop(first);
    give_back(&mut second);
    wanted.opens_now();
}

#[test]
fn a_first_connection_that_is_silent_does_not_keep_the_holder_from_hearing_of_the_break() {
    let fixture = Fixture::start();
    let _silent = fixture.client(1);
    let mut second = fixture.client(1);
    let wanted = lease_somebody_wants(&fixture, &mut second);
    give_back(&mut second);
    wanted.opens_now();
}

#[test]
fn an_older_connection_without_a_session_does_not_keep_a_break_from_being_repeated() {
    let fixture = Fixture::start();
    let left = fixture.client(1);
    let mut first = fixture.again(1, &left);
    let mut second = joined(&fixture, &first);
    (second.session, second.tree) = (first.session, first.tree);
    let wanted = lease_somebody_wants(&fixture, &mut second);
    assert_eq!(broken_key(&mut first).0, LeaseKey([3; 16]));
    drop(first);
    give_back(&mut second);
    wanted.opens_now();
}

#[test]
fn a_holder_that_was_asked_over_a_connection_without_a_session_since_is_asked_over_another() {
    let fixture = Fixture::start();
    let mut left = fixture.client(1);
    let mut second = fixture.client(1);
    let wanted = lease_somebody_wants(&fixture, &mut second);
    assert_eq!(broken_key(&mut left).0, LeaseKey([3; 16]));
    let (header, _) = left.ask(Command::LOGOFF, |out| Empty.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    give_back(&mut second);
    wanted.opens_now();
}

#[test]
fn another_user_who_claims_to_be_the_same_client_hears_of_no_leases() {
    let fixture = Fixture::start();
    let mut thief = fixture.dial();
    thief.negotiate(1);
    thief.log_on_as("other", "hidden");
    let mut holder = fixture.client(1);
    leased(&mut holder, "f", 3);
    let mut stranger = fixture.client(2);
    let _waiting = stranger.start_open("f", |_| {});
    assert_eq!(broken_key(&mut holder).0, LeaseKey([3; 16]));
    // Its next frame is the answer to its own request, and nothing came before that.
    let (header, _) = thief.ask(Command::ECHO, |out| Empty.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    assert!(thief.unsolicited.is_empty());
}

#[test]
fn another_user_who_claims_to_be_the_same_client_returns_no_lease() {
    let fixture = Fixture::start();
    let mut thief = fixture.dial();
    thief.negotiate(1);
    thief.log_on_as("other", "hidden");
    assert_eq!(thief.enter("data"), NtStatus::SUCCESS);
    let mut holder = fixture.client(1);
    leased(&mut holder, "f", 3);
    let mut stranger = fixture.client(2);
    let waiting = stranger.start_open("f", |_| {});
    assert_eq!(broken_key(&mut holder).0, LeaseKey([3; 16]));
    let ack = LeaseBreakAck { lease_key: LeaseKey([3; 16]), state: LeaseState::empty() };
    for (wire, status) in
        [(&mut thief, NtStatus::OBJECT_NAME_NOT_FOUND), (&mut holder, NtStatus::SUCCESS)]
    {
        let (header, _) = wire.ask(Command::OPLOCK_BREAK, |out| ack.emit(out));
        assert_eq!(header.status, status);
    }
    assert_eq!(stranger.finish_open(waiting).status, NtStatus::SUCCESS);
}

#[test]
fn logging_off_ends_the_session_on_every_channel() {
    let fixture = Fixture::start();
    let mut first = fixture.client(1);
    let mut second = joined(&fixture, &first);
    let id = first.open("f", |_| {}).id;
    let (header, _) = second.ask(Command::LOGOFF, |out| Empty.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    assert_eq!(first.read(id, 100).0, NtStatus::USER_SESSION_DELETED);
    let mut third = fixture.dial();
    third.negotiate(1);
    assert_eq!(third.join(&first, USER), NtStatus::USER_SESSION_DELETED);
}

#[test]
fn who_does_not_know_the_sessions_key_or_is_another_user_does_not_join_and_harms_nobody() {
    let fixture = Fixture::start();
    let mut first = fixture.client(1);
    let id = first.open("f", |_| {}).id;
    let stranger = {
        let mut stranger = fixture.client(2);
        stranger.session = first.session;
        stranger
    };
    let dialled = || {
        let mut wire = fixture.dial();
        wire.negotiate(1);
        wire
    };
    assert_eq!(dialled().join(&stranger, USER), NtStatus::ACCESS_DENIED);
    assert_eq!(dialled().join(&first, ("other", "hidden")), NtStatus::ACCESS_DENIED);
    assert_eq!(dialled().join(&first, ("user", "wrong")), NtStatus::LOGON_FAILURE);
    assert_eq!(first.write(id, b"still here"), NtStatus::SUCCESS);
    assert_eq!(fixture.running.status().sessions, 2);
}

#[test]
fn a_connection_joins_a_session_once() {
    let fixture = Fixture::start();
    let first = fixture.client(1);
    let mut second = joined(&fixture, &first);
    // From there on its own key counts, and with that the answer is another one.
    assert_eq!(second.join(&first, USER), NtStatus::ACCESS_DENIED);
    let mut same = fixture.dial();
    (same.session, same.keys) = (second.session, second.keys.take());
    assert_eq!(second.join(&same, USER), NtStatus::REQUEST_NOT_ACCEPTED);
}

#[test]
fn channels_are_bounded() {
    let fixture = Fixture::start();
    let first = fixture.client(1);
    let others: Vec<_> = (1..32).map(|_| joined(&fixture, &first)).collect();
    let mut one_more = fixture.dial();
    one_more.negotiate(1);
    assert_eq!(one_more.join(&first, USER), NtStatus::INSUFFICIENT_RESOURCES);
    drop(others);
}
