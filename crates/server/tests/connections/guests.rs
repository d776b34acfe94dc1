//! Guests: who proves nothing gets in where a share says so, and nowhere else.

use std::fs;

use tree::Admission;

use server::{ServerConfig, ShareConfig, SigningPolicy};
use smb::create::{
    AccessMask, CreateDisposition, CreateRequest, CreateRequestContext, CreateResponseContext,
    DurableRequestV2, Lease, LeaseKey, LeaseState, LeaseVersion, OplockLevel,
};
use smb::push::{Durability, PushRefusal, PushRequest, PushResponse, Refusal, Rights};
use smb::{Command, Empty, Guid, NtStatus, SessionFlags};

use crate::support::{Fixture, Wire};

/// Share "data" is for users alone; guests may read "shown", and write too in "drop".
fn started() -> Fixture {
    started_with(|_| {})
}

fn started_with(change: impl FnOnce(&mut ServerConfig)) -> Fixture {
    Fixture::start_with(|config| {
        let dir = config.shares[0].path.clone();
        for (name, guests) in [("shown", Admission::Reading), ("drop", Admission::Full)] {
            let path = dir.join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("f"), b"for everybody").unwrap();
            config.shares.push(ShareConfig { guests, ..ShareConfig::new(name, path) });
        }
        change(config);
    })
}

/// A connection of a client machine, and nobody logged on.
fn dial(fixture: &Fixture, number: u8) -> Wire {
    let mut wire = fixture.dial();
    wire.negotiate(number);
    wire
}

/// A guest who says a name that is no account's.
fn guest(fixture: &Fixture, number: u8) -> Wire {
    let mut wire = dial(fixture, number);
    wire.log_on_as("mallory", "whatever");
    assert_eq!(wire.flags, SessionFlags::GUEST);
    wire
}

fn only_reads(request: &mut CreateRequest<'_>) {
    request.desired_access = AccessMask::FILE_GENERIC_READ;
    request.disposition = CreateDisposition::OPEN;
}

fn has_what_guests_have(mut wire: Wire) {
    assert_eq!(wire.enter("data"), NtStatus::ACCESS_DENIED);
    assert_eq!(wire.enter("shown"), NtStatus::SUCCESS);
    let id = wire.open("f", only_reads).id;
    assert_eq!(wire.read(id, 100), (NtStatus::SUCCESS, b"for everybody".to_vec()));
    assert_eq!(wire.write(id, b"x"), NtStatus::ACCESS_DENIED);
    assert_eq!(wire.open("f", |_| {}).status, NtStatus::ACCESS_DENIED);
    assert_eq!(wire.open("new", |_| {}).status, NtStatus::ACCESS_DENIED);
    assert_eq!(wire.enter("drop"), NtStatus::SUCCESS);
    let id = wire.open("new", |_| {}).id;
    assert_eq!(wire.write(id, b"by a guest"), NtStatus::SUCCESS);
    assert_eq!(wire.read(id, 100).1, b"by a guest");
}

#[test]
fn a_name_of_no_account_is_a_guest_where_shares_take_guests() {
    has_what_guests_have(guest(&started(), 1));
}

#[test]
fn no_name_at_all_is_a_guest_too() {
    let fixture = started();
    let mut wire = dial(&fixture, 1);
    assert_eq!(wire.log_on_without_name(), NtStatus::SUCCESS);
    assert_eq!(wire.flags, SessionFlags::NULL);
    has_what_guests_have(wire);
}

#[test]
fn a_wrong_password_of_an_account_makes_no_guest() {
    let fixture = started();
    assert_eq!(dial(&fixture, 1).try_log_on_as("user", "wrong"), NtStatus::LOGON_FAILURE);
    let mut known = fixture.client(1);
    assert_eq!(known.flags, SessionFlags::empty());
    assert_eq!(known.open("f", |_| {}).status, NtStatus::SUCCESS);
}

#[test]
fn a_server_no_share_of_which_takes_guests_has_none() {
    let fixture = Fixture::start();
    assert_eq!(dial(&fixture, 1).try_log_on_as("mallory", "x"), NtStatus::LOGON_FAILURE);
    assert!(dial(&fixture, 1).log_on_without_name().is_error());
}

#[test]
fn a_guest_gets_in_nowhere_where_everything_is_to_be_encrypted() {
    let fixture = started_with(|config| config.shares[1].encrypt_required = true);
    let mut wire = guest(&fixture, 1);
    assert_eq!(wire.enter("shown"), NtStatus::ACCESS_DENIED);
    assert_eq!(wire.enter("drop"), NtStatus::SUCCESS);
    let fixture = started_with(|config| config.encrypt_required = true);
    assert_eq!(dial(&fixture, 1).try_log_on_as("mallory", "x"), NtStatus::ACCESS_DENIED);
}

#[test]
fn nothing_of_a_guest_is_kept_for_later_or_pushed() {
    let fixture = started_with(|config| config.rdma_listen = Some("127.0.0.1:0".parse().unwrap()));
    let mut wire = guest(&fixture, 1);
    wire.enter("drop");
    let opened = wire.open("f", |request| {
        request.oplock_level = OplockLevel::LEASE;
        let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
        let version = LeaseVersion::V2 { parent: None, epoch: 0 };
        let key = LeaseKey([3; 16]);
        let durable =
            DurableRequestV2 { timeout_ms: 0, persistent: false, create_guid: Guid([7; 16]) };
        request.contexts.extend([
            CreateRequestContext::Lease(Lease { key, state, break_in_progress: false, version }),
            CreateRequestContext::DurableV2(durable),
            CreateRequestContext::Push(PushRequest {
                rights: Rights::READ,
                durability: Durability::ANY,
                accept_emulated: true,
                regions_max: 1,
            }),
        ]);
    });
    let contexts = opened.response().contexts;
    let is_leased = |context: &_| matches!(context, CreateResponseContext::Lease(_));
    assert!(contexts.iter().any(is_leased), "caching is for everybody");
    let is_durable = |context: &_| matches!(context, CreateResponseContext::DurableV2 { .. });
    assert!(!contexts.iter().any(is_durable));
    let push = contexts.iter().find_map(|context| match context {
        CreateResponseContext::Push(push) => Some(push),
        _ => None,
    });
    assert!(matches!(
        push,
        Some(PushResponse::Refused(PushRefusal { reason: Refusal::GUEST, .. }))
    ));
}

#[test]
fn a_guest_ends_the_lost_session_of_its_own_machine_and_no_other() {
    let fixture = started();
    let mut lost = guest(&fixture, 1);
    let mut user = fixture.client(1);
    for (number, previous) in [(2, lost.session), (1, user.session)] {
        let mut wire = dial(&fixture, number);
        wire.previous = previous;
        wire.log_on_as("mallory", "whatever");
    }
    assert_eq!(lost.enter("shown"), NtStatus::SUCCESS);
    assert_eq!(user.open("f", |_| {}).status, NtStatus::SUCCESS);
    let mut back = dial(&fixture, 1);
    back.previous = lost.session;
    back.log_on_as("mallory", "whatever");
    assert_eq!(lost.enter("shown"), NtStatus::USER_SESSION_DELETED);
}

#[test]
fn a_session_is_a_guests_from_its_beginning_to_its_end_or_never() {
    let fixture = started_with(|config| config.signing = SigningPolicy::WhenAsked);
    // Once more as a guest: nothing changes.
    let mut wire = guest(&fixture, 1);
    assert_eq!(wire.try_log_on_as("somebody else", "x"), NtStatus::SUCCESS);
    assert_eq!(wire.enter("shown"), NtStatus::SUCCESS);
    // With an account: its session would be the guest's, without keys.
    assert_eq!(wire.try_log_on_as("user", "secret"), NtStatus::ACCESS_DENIED);
    assert_eq!(wire.enter("shown"), NtStatus::USER_SESSION_DELETED);
    // A user who says another name is out, guest or not.
    let mut user = fixture.client(1);
    assert_eq!(user.try_log_on_as("mallory", "x"), NtStatus::LOGON_FAILURE);
    user.keys = None;
    assert_eq!(user.enter("shown"), NtStatus::USER_SESSION_DELETED);
}

#[test]
fn guests_join_no_session() {
    let fixture = started();
    let user = fixture.client(1);
    assert_eq!(dial(&fixture, 1).join(&user, ("mallory", "x")), NtStatus::LOGON_FAILURE);
}

#[test]
fn guests_in_between_do_not_help_who_guesses_passwords() {
    let fixture = started();
    for _ in 0..10 {
        assert_eq!(dial(&fixture, 1).try_log_on_as("user", "wrong"), NtStatus::LOGON_FAILURE);
        guest(&fixture, 1);
    }
    assert_eq!(dial(&fixture, 1).try_password("user", "wrong").1, None, "answered later");
}

#[test]
fn however_many_guests_come_they_are_in_the_way_of_guests_alone() {
    let fixture = started_with(|config| config.limits.guest_connections_max = 2);
    let mut user = fixture.client(1);
    let [mut first, mut second, mut third] = [2, 3, 4].map(|number| guest(&fixture, number));
    assert!(first.is_closed(), "the oldest makes room");
    // Who logs off again is a guest still, and whoever then logs on with an account is none.
    let (header, _) = second.ask(Command::LOGOFF, |out| Empty.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    second.session = 0;
    third.session = 0;
    third.log_on();
    let _two_more = [5, 6].map(|number| guest(&fixture, number));
    assert!(second.is_closed());
    assert_eq!(third.enter("data"), NtStatus::SUCCESS);
    assert_eq!(user.open("f", |_| {}).status, NtStatus::SUCCESS);
}

#[test]
fn guests_have_a_bounded_number_of_files_open_all_together() {
    let fixture = started_with(|config| config.limits.guest_opens_max = 2);
    let [mut first, mut second] = [1, 2].map(|number| guest(&fixture, number));
    first.enter("drop");
    second.enter("drop");
    let ids = ["a", "b"].map(|name| first.open(name, |_| {}).id);
    assert_eq!(second.open("c", |_| {}).status, NtStatus::INSUFFICIENT_RESOURCES);
    assert_eq!(fixture.client(3).open("c", |_| {}).status, NtStatus::SUCCESS);
    assert_eq!(first.close(ids[0]), NtStatus::SUCCESS);
    assert_eq!(second.open("c", |_| {}).status, NtStatus::SUCCESS);
    assert_eq!(second.open("d", |_| {}).status, NtStatus::INSUFFICIENT_RESOURCES);
}

#[test]
fn a_guest_enters_a_bounded_number_of_shares() {
    let fixture = started();
    let mut wire = guest(&fixture, 1);
    for _ in 0..64 {
        assert_eq!(wire.enter("shown"), NtStatus::SUCCESS);
    }
    assert_eq!(wire.enter("shown"), NtStatus::INSUFFICIENT_RESOURCES);
}

#[test]
fn guests_have_a_bounded_number_of_pipes_all_together() {
    let fixture = started();
    let mut guests: Vec<_> = (1..6).map(|number| guest(&fixture, number)).collect();
    let mut opened = Vec::new();
    for wire in &mut guests {
        assert_eq!(wire.enter("IPC$"), NtStatus::SUCCESS);
        let ids = (0..64).map(|_| wire.open("srvsvc", |_| {}));
        opened.push(ids.filter(|made| made.status == NtStatus::SUCCESS).count());
    }
    assert_eq!(opened, [64, 64, 64, 64, 0], "answers wait in each of them");
    let mut user = fixture.client(9);
    assert_eq!(user.enter("IPC$"), NtStatus::SUCCESS);
    assert_eq!(user.open("srvsvc", |_| {}).status, NtStatus::SUCCESS);
    // They are given back with their sessions.
    drop(guests.remove(0));
    let last = guests.last_mut().unwrap();
    while last.open("srvsvc", |_| {}).status != NtStatus::SUCCESS {}
}

#[test]
fn one_connection_has_few_sessions_of_guests() {
    let fixture = started();
    let mut wire = dial(&fixture, 1);
    let mut log_on = || {
        wire.session = 0;
        wire.try_log_on_as("mallory", "x")
    };
    for _ in 0..4 {
        assert_eq!(log_on(), NtStatus::SUCCESS);
    }
    assert_eq!(log_on(), NtStatus::INSUFFICIENT_RESOURCES);
    wire.session = 0;
    wire.log_on();
    assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
}
