//! Logons by ticket over real sockets, without a KDC: what opens a session, what does not, and how it ends.

mod kdc;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use kdc::{Wish, subkey, write_keytab};
use server::{KerberosConfig, KeytabFileError, ShareConfig, Users};
use smb::auth::spnego::{Mechanism, NegTokenInit};
use smb::crypto::{KeySchedule, Role, SessionKey, SigningAlgorithm};
use smb::negotiate::NegotiateResponse;
use smb::{
    CloseRequest, Command, Empty, FileId, HeaderFlags, NtStatus, ReadFlags, ReadRequest,
    SessionSetupResponse,
};

use crate::support::logon::session_setup;
use crate::support::{Fixture, Wire};

/// A server with the users alice and bob, and carol who has no password; shares for all, for alice, and
/// for bob to read.
fn start(keytab: &Path) -> Fixture {
    write_keytab(keytab, 1, &kdc::SERVICE_KEY);
    let mut kerberos = KerberosConfig::new(keytab);
    kerberos.users = vec!["Carol".to_owned()];
    Fixture::start_with(|config| {
        let path = config.shares[0].path.clone();
        for (name, users, readers) in
            [("hers", vec!["alice"], vec![]), ("his", vec![], vec!["bob"])]
        {
            let strings = |names: Vec<&str>| Some(names.into_iter().map(str::to_owned).collect());
            let mut share = ShareConfig::new(name, &path);
            (share.users, share.readers) = (strings(users), strings(readers));
            config.shares.push(share);
        }
        let users = Users::with_passwords([("alice", "secret"), ("bob", "hidden")]);
        config.users = users.with_kerberos(&kerberos).unwrap();
    })
}

/// Shows a token; if it opens a session, `wire` has its keys.
fn show(wire: &mut Wire, token: &[u8]) -> NtStatus {
    let is_again = wire.keys.is_some();
    let mut pdu = wire.pdu(Command::SESSION_SETUP, |out| session_setup(token).emit(out));
    wire.sign(&mut pdu);
    let mut hash = wire.preauth;
    hash.update(&pdu);
    wire.send_frame(&pdu);
    let (header, answer) = wire.receive();
    if header.status != NtStatus::SUCCESS || is_again {
        return header.status;
    }
    wire.session = header.session_id.0;
    let response = SessionSetupResponse::parse(&answer).unwrap();
    let signing = SigningAlgorithm::AesCmac;
    let schedule = KeySchedule::Smb311 { preauth: hash, signing, cipher: None };
    let key = SessionKey::new(&subkey(response.token));
    let keys = schedule.derive(&key, Role::Client);
    // Only who opened the ticket can have signed this.
    keys.signing.verify(&mut answer.clone()).unwrap();
    wire.keys = Some(std::sync::Arc::new(keys));
    NtStatus::SUCCESS
}

fn log_on(fixture: &Fixture, wish: &Wish) -> (Wire, NtStatus) {
    let mut wire = fixture.dial();
    wire.negotiate(1);
    let status = show(&mut wire, &wish.token());
    (wire, status)
}

fn read(wire: &mut Wire, file_id: FileId) -> NtStatus {
    let request = ReadRequest {
        flags: ReadFlags::empty(),
        length: 1,
        offset: 0,
        file_id,
        minimum_count: 0,
        channel: smb::Channel::NONE,
        remaining_bytes: 0,
        channel_info: &[],
    };
    let (header, mut pdu) = wire.ask(Command::READ, |out| request.emit(out));
    assert!(header.flags.contains(HeaderFlags::SIGNED), "whatever it says");
    wire.keys.as_ref().unwrap().signing.verify(&mut pdu).unwrap();
    header.status
}

#[test]
fn a_ticket_opens_a_session_for_its_owner_with_the_owner_s_shares() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = start(&dir.path().join("keytab"));
    let enter = |owner, share| {
        let (mut wire, status) = log_on(&fixture, &Wish::of(owner));
        assert_eq!(status, NtStatus::SUCCESS, "{owner}");
        wire.enter(share)
    };
    for owner in ["alice", "Alice", "bob", "carol"] {
        assert_eq!(enter(owner, "data"), NtStatus::SUCCESS, "{owner}");
    }
    assert_eq!(enter("alice", "hers"), NtStatus::SUCCESS);
    assert_eq!(enter("bob", "hers"), NtStatus::ACCESS_DENIED);
    assert_eq!(enter("carol", "hers"), NtStatus::ACCESS_DENIED);
    let (mut wire, _) = log_on(&fixture, &Wish::of("bob"));
    assert_eq!(wire.enter("his"), NtStatus::SUCCESS);
    assert_eq!(wire.open("new", |_| {}).status, NtStatus::ACCESS_DENIED, "he only reads");
    // Who has no ticket still has a password.
    let mut wire = fixture.dial();
    wire.negotiate(1);
    assert_eq!(wire.try_log_on_as("alice", "secret"), NtStatus::SUCCESS);
    let mut wire = fixture.dial();
    wire.negotiate(1);
    assert_eq!(wire.try_log_on_as("carol", ""), NtStatus::LOGON_FAILURE);
}

#[test]
fn what_is_wrong_with_a_ticket_keeps_its_owner_outside() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = start(&dir.path().join("keytab"));
    let good = Wish::of("alice");
    for (what, wish, expected) in [
        ("forged", Wish { service_key: [1; 32], ..good }, NtStatus::LOGON_FAILURE),
        ("another key", Wish { version: 2, ..good }, NtStatus::LOGON_FAILURE),
        ("ended", Wish { end: -400, start: -900, ..good }, NtStatus::LOGON_FAILURE),
        ("not begun", Wish { start: 400, ..good }, NtStatus::TIME_DIFFERENCE_AT_DC),
        ("slow clock", Wish { now: -400, ..good }, NtStatus::TIME_DIFFERENCE_AT_DC),
        ("fast clock", Wish { now: 400, ..good }, NtStatus::TIME_DIFFERENCE_AT_DC),
        ("no user", Wish::of("mallory"), NtStatus::LOGON_FAILURE),
        ("another realm", Wish { realm: "OTHER", ..good }, NtStatus::LOGON_FAILURE),
    ] {
        assert_eq!(log_on(&fixture, &wish).1, expected, "{what}");
    }
    let token = good.token();
    let show_again = || {
        let mut wire = fixture.dial();
        wire.negotiate(1);
        show(&mut wire, &token)
    };
    assert_eq!(show_again(), NtStatus::SUCCESS);
    assert_eq!(show_again(), NtStatus::LOGON_FAILURE, "the same authenticator again");
    assert_eq!(fixture.running.status().logons_failed, 9);
}

#[test]
fn who_is_kept_out_for_guessing_is_kept_out_with_a_ticket_too() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = start(&dir.path().join("keytab"));
    // Tickets that are refused are no guesses at a password.
    for microseconds in 0..20 {
        let forged = Wish { microseconds, service_key: [1; 32], ..Wish::of("alice") };
        assert_eq!(log_on(&fixture, &forged).1, NtStatus::LOGON_FAILURE);
    }
    assert_eq!(log_on(&fixture, &Wish::of("alice")).1, NtStatus::SUCCESS);
    // Until so many answers are held back that the next one is refused.
    let mut guesses = Vec::new();
    while !guesses.last().is_some_and(|(_, status)| *status == Some(NtStatus::ACCOUNT_LOCKED_OUT)) {
        let mut wire = fixture.dial();
        wire.negotiate(1);
        let (_, status) = wire.try_password("alice", "wrong");
        guesses.push((wire, status));
    }
    let again = Wish { microseconds: 2, ..Wish::of("alice") };
    assert_eq!(log_on(&fixture, &again).1, NtStatus::ACCOUNT_LOCKED_OUT);
    assert_eq!(log_on(&fixture, &Wish::of("bob")).1, NtStatus::SUCCESS);
}

#[test]
fn a_session_ends_with_its_ticket_until_another_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = start(&dir.path().join("keytab"));
    // It shows a ticket that ended, but for the difference that clocks may have, of which some seconds are left:
    // more of them where the machine was too busy for few.
    let open = |(number, left): (u8, i64)| {
        let (mut wire, status) =
            log_on(&fixture, &Wish { microseconds: number, ..Wish::of("alice") });
        assert_eq!((status, wire.enter("data")), (NtStatus::SUCCESS, NtStatus::SUCCESS));
        let opened = ["kept", "closed"].map(|name| wire.open(name, |_| {}));
        let microseconds = number + 10;
        let late = Wish { end: left - 300, start: -900, microseconds, ..Wish::of("alice") };
        (show(&mut wire, &late.token()) == NtStatus::SUCCESS).then_some((wire, opened))
    };
    let shown = [(1, 2), (2, 10), (3, 60)].into_iter().find_map(open);
    let (mut wire, [kept, closed]) = shown.expect("a machine that takes less than a minute for it");
    assert_eq!((kept.status, closed.status), (NtStatus::SUCCESS, NtStatus::SUCCESS));
    while read(&mut wire, kept.id) == NtStatus::END_OF_FILE {}
    assert_eq!(read(&mut wire, kept.id), NtStatus::NETWORK_SESSION_EXPIRED);
    assert_eq!(wire.open("new", |_| {}).status, NtStatus::NETWORK_SESSION_EXPIRED);
    assert_eq!(wire.enter("data"), NtStatus::NETWORK_SESSION_EXPIRED);
    assert!(!fixture.dir.path().join("new").exists());
    // What it has it may give back, and it is there.
    let close = CloseRequest { query_attributes: false, file_id: closed.id };
    assert_eq!(wire.ask(Command::CLOSE, |out| close.emit(out)).0.status, NtStatus::SUCCESS);
    assert_eq!(wire.ask(Command::ECHO, |out| Empty.emit(out)).0.status, NtStatus::SUCCESS);
    // Nobody joins it.
    let mut other = fixture.dial();
    other.negotiate(1);
    let joined = other.join(&wire, ("alice", "secret"));
    assert_eq!(joined, NtStatus::NETWORK_SESSION_EXPIRED);
    // Another ticket of the same owner: the keys and what is open stay.
    let again = Wish { microseconds: 102, ..Wish::of("alice") };
    assert_eq!(show(&mut wire, &again.token()), NtStatus::SUCCESS);
    assert_eq!(read(&mut wire, kept.id), NtStatus::END_OF_FILE);
    assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
    // One of somebody else ends it.
    assert_eq!(show(&mut wire, &Wish::of("bob").token()), NtStatus::ACCESS_DENIED);
    assert_eq!(wire.enter("data"), NtStatus::USER_SESSION_DELETED);
}

#[test]
fn a_new_key_counts_as_soon_as_it_is_in_the_keytab() {
    let dir = tempfile::tempdir().unwrap();
    let keytab = dir.path().join("keytab");
    let fixture = start(&keytab);
    let renewed = Wish { version: 2, service_key: [9; 32], ..Wish::of("alice") };
    assert_eq!(log_on(&fixture, &renewed).1, NtStatus::LOGON_FAILURE);
    write_keytab(&keytab, 2, &[9; 32]);
    assert_eq!(log_on(&fixture, &renewed).1, NtStatus::SUCCESS);
    // What cannot be read changes nothing.
    std::fs::write(&keytab, "nonsense").unwrap();
    let again = Wish { microseconds: 2, ..renewed };
    assert_eq!(log_on(&fixture, &again).1, NtStatus::SUCCESS);
}

#[test]
fn a_keytab_that_cannot_be_used_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let keytab = dir.path().join("keytab");
    let open = |config: &KerberosConfig| Users::default().with_kerberos(config).unwrap_err();
    let config = KerberosConfig::new(&keytab);
    assert!(matches!(open(&config), KeytabFileError::ConfigRead { .. }));
    write_keytab(&keytab, 1, &kdc::SERVICE_KEY);
    let other = KerberosConfig { principal: Some("cifs/other@TEST".to_owned()), ..config.clone() };
    assert!(matches!(open(&other), KeytabFileError::ConfigNoService { .. }));
    let odd = KerberosConfig { principal: Some("cifs/files".to_owned()), ..config.clone() };
    assert!(matches!(open(&odd), KeytabFileError::ConfigPrincipal { .. }));
    std::fs::set_permissions(&keytab, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(open(&config), KeytabFileError::ConfigOpen(_)));
}

#[test]
fn kerberos_is_offered_where_there_is_a_keytab_and_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let offered = |fixture: &Fixture| {
        let (_, pdu) = fixture.dial().negotiate(1);
        let response = NegotiateResponse::parse(&pdu).unwrap();
        NegTokenInit::parse(response.token).unwrap().mechanisms
    };
    let all = [Mechanism::KerberosOfMicrosoft, Mechanism::Kerberos, Mechanism::Ntlm];
    assert_eq!(offered(&start(&dir.path().join("keytab"))), all);
    let without = Fixture::start();
    assert_eq!(offered(&without), [Mechanism::Ntlm]);
    assert!(log_on(&without, &Wish::of("user")).1.is_error());
}
