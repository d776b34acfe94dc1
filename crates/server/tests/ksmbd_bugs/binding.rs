//! State confusion on bind: who may become a channel of which session, and in what state.

use std::net::Shutdown;

use smb::negotiate::{
    Capabilities, Dialect, HashId, NegotiateContext, NegotiateRequest, SecurityMode, SigningId,
};
use smb::{Command, Guid, NtStatus, SessionSetupRequest};

use crate::peer::{USER, joined, left_nothing, start, until};
use crate::support::compound::{compound, headers, related};
use crate::support::logon::{first_token, session_setup};
use crate::support::{Fixture, Wire, write};

/// A connection with a negotiation of its own.
fn negotiated(fixture: &Fixture, dialect: Dialect, signing: SigningId) -> Wire {
    let mut wire = fixture.dial();
    let hashes = vec![HashId::SHA_512];
    let contexts = match dialect {
        Dialect::SMB_3_1_1 => vec![
            NegotiateContext::PreauthIntegrity { hashes, salt: &[7; 32] },
            NegotiateContext::Signing(vec![signing]),
        ],
        _ => Vec::new(),
    };
    let request = NegotiateRequest {
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::LEASING | Capabilities::LARGE_MTU,
        client_guid: Guid([1; 16]),
        dialects: vec![dialect],
        contexts,
    };
    let (header, _) = wire.ask(Command::NEGOTIATE, |out| request.emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
    wire
}

/// The first leg of a SESSION_SETUP for the session that `wire` names.
fn first_leg(wire: &mut Wire, binding: bool) -> NtStatus {
    let (user, password) = USER;
    let token = first_token(user, password);
    let request = SessionSetupRequest { binding, ..session_setup(&token) };
    let (header, _) = wire.ask(Command::SESSION_SETUP, |out| request.emit(out));
    wire.session = header.session_id.0;
    header.status
}

fn still_works(wire: &mut Wire) {
    let id = wire.open("f", |_| {}).id;
    let (header, _) = wire.ask(Command::WRITE, |out| write(id, 0, b"still here").emit(out));
    assert_eq!(header.status, NtStatus::SUCCESS);
}

/// CVE-2025-22040 and its kin: the session speaks another dialect or signs in another way.
#[test]
fn a_bind_from_another_dialect_or_signing_algorithm_is_refused() {
    let fixture = start();
    let mut first = fixture.client(1);
    let mut older = negotiated(&fixture, Dialect::SMB_3_0_2, SigningId::AES_CMAC);
    assert_eq!(older.join(&first, USER), NtStatus::INVALID_PARAMETER);
    let mut oldest = negotiated(&fixture, Dialect::SMB_2_1, SigningId::AES_CMAC);
    let refused = oldest.join(&first, USER);
    // An HMAC is no CMAC: nobody has proved anything yet.
    assert!(refused == NtStatus::REQUEST_NOT_ACCEPTED || refused == NtStatus::ACCESS_DENIED);
    let mut other = negotiated(&fixture, Dialect::SMB_3_1_1, SigningId::AES_GMAC);
    assert_eq!(other.join(&first, USER), NtStatus::NOT_SUPPORTED);
    still_works(&mut first);
    assert_eq!(fixture.running.status().sessions, 1);
}

/// CVE-2023-32249: a connection takes over a session by its number.
#[test]
fn a_bind_without_a_signature_or_from_another_machine_is_refused() {
    let fixture = start();
    let mut first = fixture.client(1);
    let mut unsigned = fixture.dial();
    unsigned.negotiate(1);
    unsigned.session = first.session;
    assert_eq!(first_leg(&mut unsigned, true), NtStatus::INVALID_PARAMETER);
    // Leases are kept by machine: one session is of one.
    let mut elsewhere = fixture.dial();
    elsewhere.negotiate(2);
    assert_eq!(elsewhere.join(&first, USER), NtStatus::USER_SESSION_DELETED);
    // Nor does it go on with the session's number and no binding flag.
    let mut plain = fixture.dial();
    plain.negotiate(1);
    plain.session = first.session;
    assert_eq!(first_leg(&mut plain, false), NtStatus::USER_SESSION_DELETED);
    still_works(&mut first);
    assert_eq!(fixture.running.status().sessions, 1);
}

/// CVE-2023-32250, CVE-2024-50286: a session that is only half set up is found and used.
#[test]
fn a_session_that_is_half_set_up_is_nobody_s() {
    let fixture = start();
    let other = fixture.client(1);
    let mut half = fixture.dial();
    half.negotiate(1);
    assert_eq!(first_leg(&mut half, false), NtStatus::MORE_PROCESSING_REQUIRED);
    // Not on its own connection, and not from another one with a key that is good elsewhere.
    assert_eq!(half.enter("data"), NtStatus::USER_SESSION_DELETED);
    let mut named = fixture.dial();
    (named.session, named.keys) = (half.session, other.keys);
    let mut second = fixture.dial();
    second.negotiate(1);
    assert_eq!(second.join(&named, USER), NtStatus::USER_SESSION_DELETED);
    assert_eq!(fixture.running.status().sessions, 1, "the one that is whole");
    // It ends with its connection, before anybody has logged on.
    half.stream.shutdown(Shutdown::Both).unwrap();
    until(&fixture, |status| status.unauthenticated == 2);
}

/// CVE-2026-31476: a bind that fails ends the session it was for.
#[test]
fn a_bind_that_fails_harms_no_session_and_can_be_tried_again() {
    let fixture = start();
    let mut first = fixture.client(1);
    let mut second = fixture.dial();
    second.negotiate(1);
    for _ in 0..3 {
        assert_eq!(second.join(&first, ("user", "wrong")), NtStatus::LOGON_FAILURE);
        still_works(&mut first);
    }
    assert_eq!(second.join(&first, ("other", "hidden")), NtStatus::ACCESS_DENIED);
    assert_eq!(second.join(&first, USER), NtStatus::SUCCESS);
    still_works(&mut second);
    drop((first, second));
    left_nothing(&fixture);
}

/// CVE-2023-52442, CVE-2023-3866: a compound names the session or the tree of somebody else.
#[test]
fn a_compound_cannot_change_to_another_session_or_start_in_none() {
    let fixture = start();
    let mut wire = fixture.client(1);
    let id = wire.open("f", |_| {}).id;
    let mut own = (wire.session, wire.tree);
    // A second session of the same connection, with keys of its own.
    let keys = wire.keys.take();
    wire.session = 0;
    let owner = Wire::over(wire.stream.try_clone().unwrap());
    drop(owner);
    let status = wire.try_log_on_as("other", "hidden");
    // Its preauthentication began at the same NEGOTIATE.
    assert_eq!(status, NtStatus::SUCCESS);
    std::mem::swap(&mut own.0, &mut wire.session);
    let theirs = std::mem::replace(&mut wire.keys, keys);
    let first = wire.pdu(Command::ECHO, |out| smb::Empty.emit(out));
    wire.session = own.0;
    wire.tree = own.1;
    let second = wire.pdu(Command::WRITE, |out| write(id, 0, b"theirs").emit(out));
    // All of it is signed with the first session's key.
    let frame = compound(&wire, vec![first, second]);
    wire.send_frame(&frame);
    let answers = headers(&crate::peer::receive(&mut wire).unwrap());
    assert_eq!(answers[0].status, NtStatus::SUCCESS);
    assert_eq!(answers[1].status, NtStatus::ACCESS_DENIED, "signed by somebody else");
    // With its own key the other session still has no such open.
    wire.keys = theirs;
    let (header, _) = wire.ask(Command::WRITE, |out| write(id, 0, b"theirs").emit(out));
    assert_eq!(header.status, NtStatus::NETWORK_NAME_DELETED, "nor such a tree");
    assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
    let (header, _) = wire.ask(Command::WRITE, |out| write(id, 0, b"theirs").emit(out));
    assert_eq!(header.status, NtStatus::FILE_CLOSED);
    // Related to nothing.
    let lone = related(&mut wire, Command::WRITE, |out| write(id, 0, b"x").emit(out));
    let echo = wire.pdu(Command::ECHO, |out| smb::Empty.emit(out));
    let frame = compound(&wire, vec![lone, echo]);
    wire.send_frame(&frame);
    let answers = headers(&crate::peer::receive(&mut wire).unwrap());
    assert_eq!(answers[0].status, NtStatus::INVALID_PARAMETER);
    assert_eq!(std::fs::read(fixture.dir.path().join("f")).unwrap(), b"");
}

/// CVE-2026-23226: channels come and go while the session's others are at work.
#[test]
fn channels_come_and_go_while_others_work() {
    let fixture = start();
    let mut first = fixture.client(1);
    let mut steady = joined(&fixture, &first);
    let id = first.open("f", |_| {}).id;
    let keys = first.keys.take();
    let mut named = fixture.dial();
    (named.session, named.tree, named.keys) = (first.session, first.tree, keys);
    std::thread::scope(|scope| {
        let (fixture, named) = (&fixture, &named);
        for _ in 0..2 {
            scope.spawn(move || (0..20).for_each(|_| drop(joined(fixture, named))));
        }
        for round in 0..200 {
            let (header, _) = steady.ask(Command::WRITE, |out| write(id, round, b"x").emit(out));
            assert_eq!(header.status, NtStatus::SUCCESS);
        }
    });
    drop((first, steady, named));
    left_nothing(&fixture);
}
