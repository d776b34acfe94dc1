//! Who gets in: guesses are made to wait, shares have users of their own.

use server::{ShareConfig, Users};
use smb::create::{AccessMask, CreateDisposition};
use smb::{Command, Name, NtStatus, TreeConnectRequest, TreeConnectResponse};

use crate::support::{Fixture, Wire};

/// The status a logon ends with.
fn log_on(wire: &mut Wire, password: &str) -> NtStatus {
    wire.session = 0;
    wire.try_log_on_as("user", password)
}

#[test]
fn of_one_connection_few_answers_are_held_back() {
    let fixture = Fixture::start();
    let mut wires: Vec<_> = (0..2).map(|_| fixture.dial()).collect();
    wires.iter_mut().for_each(|wire| drop(wire.negotiate(1)));
    for _ in 0..10 {
        assert_eq!(log_on(&mut wires[0], "wrong"), NtStatus::LOGON_FAILURE);
    }
    for wire in &mut wires {
        for _ in 0..4 {
            assert_eq!(wire.try_password("user", "wrong").1, None);
        }
    }
    // The last ones wait for ten seconds and more.
    let (_, status) = wires[1].try_password("user", "secret");
    assert_eq!(status, Some(NtStatus::INSUFFICIENT_RESOURCES));
}

#[test]
fn a_few_mistakes_are_forgiven() {
    let fixture = Fixture::start();
    let mut wire = fixture.dial();
    wire.negotiate(1);
    for _ in 0..9 {
        assert_eq!(log_on(&mut wire, "wrong"), NtStatus::LOGON_FAILURE);
    }
    assert_eq!(log_on(&mut wire, "secret"), NtStatus::SUCCESS);
}

#[test]
fn a_share_lets_in_its_users_and_its_readers_only_read_and_an_empty_list_is_nobody() {
    let fixture = Fixture::start_with(|config| {
        let path = config.shares[0].path.clone();
        let share = |name: &str, users: &[&str], readers: &[&str]| ShareConfig {
            users: Some(users.iter().map(|&user| user.to_owned()).collect()),
            readers: Some(readers.iter().map(|&user| user.to_owned()).collect()),
            ..ShareConfig::new(name, path.clone())
        };
        config.shares.push(share("mine", &["USER"], &[]));
        config.shares.push(share("read", &["other"], &["User"]));
        config.shares.push(share("theirs", &["other"], &[]));
        config.shares.push(share("nobodys", &[], &[]));
        config.shares.push(ShareConfig { readers: None, ..share("noones", &[], &[]) });
        config.users = Users::with_passwords([("user", "secret"), ("other", "secret")]);
    });
    let mut wire = fixture.client(1);
    for name in ["theirs", "nobodys", "noones"] {
        assert_eq!(wire.enter(name), NtStatus::ACCESS_DENIED, "{name}");
    }
    assert_eq!(wire.enter("mine"), NtStatus::SUCCESS);
    assert_eq!(wire.open("f", |_| {}).status, NtStatus::SUCCESS);
    let path = Name::new("\\\\127.0.0.1\\read").unwrap();
    let request = TreeConnectRequest { flags: 0, path };
    let (header, pdu) = wire.ask(Command::TREE_CONNECT, |out| request.emit(out));
    wire.tree = header.tree_id().unwrap().0;
    let access = TreeConnectResponse::parse(&pdu).unwrap().maximal_access;
    assert!(!access.intersects(AccessMask::WRITE_DATA | AccessMask::DELETE));
    assert_eq!(wire.open("f", |_| {}).status, NtStatus::ACCESS_DENIED);
    let reads = wire.open("f", |open| {
        open.desired_access = AccessMask::FILE_GENERIC_READ;
        open.disposition = CreateDisposition::OPEN;
    });
    assert_eq!(reads.status, NtStatus::SUCCESS);
    // What does not exist would have to be made.
    let makes = wire.open("new", |open| open.desired_access = AccessMask::FILE_GENERIC_READ);
    assert_eq!(makes.status, NtStatus::ACCESS_DENIED);
    let empties = wire.open("f", |open| {
        open.desired_access = AccessMask::FILE_GENERIC_READ;
        open.disposition = CreateDisposition::OVERWRITE;
    });
    assert_eq!(empties.status, NtStatus::ACCESS_DENIED);
}
