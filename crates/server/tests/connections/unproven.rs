//! What nobody has proved to come from a session's client changes nothing of the session and is answered under
//! none of its keys.

use server::SigningPolicy;
use smb::create::{
    CreateRequestContext, CreateResponseContext, Lease, LeaseKey, LeaseState, LeaseVersion,
    OplockLevel,
};
use smb::crypto::{Cipher, SigningAlgorithm};
use smb::push::{Durability, PushRequest, PushResponse, Refusal, Rights};
use smb::{Command, Empty, Header, HeaderFlags, NtStatus, SessionSetupRequest};

use crate::support::logon::{first_token, session_setup};
use crate::support::{self, Fixture, Wire, sign_with};

const GMAC: SigningAlgorithm = SigningAlgorithm::AesGmac;
const CMAC: SigningAlgorithm = SigningAlgorithm::AesCmac;

fn when_asked() -> Fixture {
    Fixture::start_with(|config| config.signing = SigningPolicy::WhenAsked)
}

/// A connection of client machine 1 that signs with this algorithm, and has no session.
fn dial(fixture: &Fixture, signing: SigningAlgorithm) -> Wire {
    let mut wire = fixture.dial();
    wire.signing = signing;
    wire.negotiate(1);
    wire
}

fn is_signed(pdu: &[u8]) -> bool {
    Header::parse(pdu).unwrap().flags.contains(HeaderFlags::SIGNED)
}

fn is_by(wire: &Wire, pdu: &[u8]) -> bool {
    wire.keys.as_ref().unwrap().signing.verify(&mut pdu.to_vec()).is_ok()
}

/// The answer to the first leg of a SESSION_SETUP that binds to the session of `first`, changed at will.
fn bind(wire: &mut Wire, first: &Wire, change: impl FnOnce(&mut [u8])) -> (NtStatus, Vec<u8>) {
    let token = first_token("user", "secret");
    wire.session = first.session;
    let request = SessionSetupRequest { binding: true, ..session_setup(&token) };
    let mut pdu = wire.pdu(Command::SESSION_SETUP, |out| request.emit(out));
    change(&mut pdu);
    wire.send_frame(&pdu);
    let (header, answer) = wire.receive();
    (header.status, answer)
}

#[test]
fn a_refused_bind_is_answered_signed_only_if_it_was_signed() {
    for (of_session, of_connection) in [(CMAC, GMAC), (GMAC, CMAC), (CMAC, CMAC), (GMAC, GMAC)] {
        let fixture = Fixture::start();
        let mut owner = dial(&fixture, of_session);
        owner.log_on();
        let stranger = || dial(&fixture, of_connection);
        let case = format!("{of_session:?} {of_connection:?}");
        let (status, answer) = bind(&mut stranger(), &owner, |_| {});
        assert!(status.is_error() && !is_signed(&answer), "{case}: unsigned");
        let (status, answer) = bind(&mut stranger(), &owner, |pdu| {
            sign_with(owner.keys.as_ref().unwrap(), pdu);
            pdu[63] ^= 1;
        });
        assert!(status.is_error() && !is_signed(&answer), "{case}: signed wrongly");
    }
    let fixture = Fixture::start();
    let mut owner = dial(&fixture, CMAC);
    owner.log_on();
    let (status, answer) = bind(&mut dial(&fixture, GMAC), &owner, |pdu| {
        sign_with(owner.keys.as_ref().unwrap(), pdu);
    });
    assert_eq!(status, NtStatus::NOT_SUPPORTED);
    assert!(is_by(&owner, &answer), "the owner's client is refused in its key");
}

/// Begins to authenticate again, unsigned.
fn authenticate_again(wire: &mut Wire, token: &[u8]) -> (NtStatus, Vec<u8>) {
    let id = wire.next_id;
    let request = session_setup(token);
    let pdu = wire.pdu(Command::SESSION_SETUP, |out| request.emit(out));
    wire.send_frame(&pdu);
    let (header, answer) = wire.answer_to(id);
    (header.status, answer)
}

fn log_off(wire: &mut Wire) -> NtStatus {
    let id = wire.next_id;
    let pdu = wire.pdu(Command::LOGOFF, |out| Empty.emit(out));
    wire.send_frame(&pdu);
    wire.answer_to(id).0.status
}

#[test]
fn an_unsigned_logoff_ends_no_session_whose_client_signs() {
    let fixture = when_asked();
    let mut wire = fixture.client(1);
    let id = wire.open("f", |_| {}).id;
    assert_eq!(log_off(&mut wire), NtStatus::ACCESS_DENIED);
    assert_eq!(wire.write(id, b"still there"), NtStatus::SUCCESS);
    assert_eq!(wire.ask(Command::LOGOFF, |out| Empty.emit(out)).0.status, NtStatus::SUCCESS);
}

#[test]
fn an_unsigned_authentication_changes_no_session_that_has_to_sign() {
    let fixture = Fixture::start();
    let mut wire = fixture.client(1);
    let id = wire.open("f", |_| {}).id;
    let [first, _] = support::logon::without_name();
    let (status, answer) = authenticate_again(&mut wire, &first);
    assert_eq!((status, is_signed(&answer)), (NtStatus::ACCESS_DENIED, false));
    assert_eq!(wire.write(id, b"still there"), NtStatus::SUCCESS);
}

#[test]
fn a_client_that_never_signs_authenticates_again_and_logs_off() {
    let fixture = when_asked();
    let mut wire = fixture.client(1);
    // In 3.1.1 a TREE_CONNECT is signed whether its client signs or not.
    wire.signs = false;
    let id = wire.open("f", |_| {}).id;
    assert_eq!(wire.write(id, b"unsigned"), NtStatus::SUCCESS);
    let (status, _) = authenticate_again(&mut wire, &first_token("user", "secret"));
    assert_eq!(status, NtStatus::MORE_PROCESSING_REQUIRED);
    assert_eq!(log_off(&mut wire), NtStatus::SUCCESS);
}

#[test]
fn a_client_that_gives_its_name_up_unsigned_is_answered_unsigned() {
    let fixture = when_asked();
    let mut wire = fixture.client(1);
    wire.signs = false;
    for (leg, token) in support::logon::without_name().into_iter().enumerate() {
        let (status, answer) = authenticate_again(&mut wire, &token);
        assert_eq!(status.is_success(), leg == 1, "{status:?}");
        assert!(!is_signed(&answer), "whoever says no name has proved nothing");
    }
}

#[test]
fn a_frame_sealed_for_one_session_authenticates_no_other() {
    let fixture = Fixture::start();
    let mut wire = fixture.dial();
    wire.cipher = Some(Cipher::Aes128Gcm);
    wire.negotiate(1);
    wire.log_on();
    assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
    let id = wire.open("f", |_| {}).id;
    let (owner, tree) = (wire.session, wire.tree);
    let owners = wire.keys.take();
    // Somebody in between logs on over the same connection, to an account of their own.
    wire.session = 0;
    wire.log_on_as("other", "hidden");
    let (stranger, strangers) = (wire.session, wire.keys.take());
    for named in [owner, 0] {
        for token in support::logon::without_name() {
            wire.session = named;
            let pdu = wire.pdu(Command::SESSION_SETUP, |out| session_setup(&token).emit(out));
            (wire.session, wire.keys) = (stranger, strangers.clone());
            let frame = wire.sealed(pdu);
            wire.send_frame(&frame);
            assert_eq!(wire.receive().0.status, NtStatus::ACCESS_DENIED, "{named}");
        }
    }
    (wire.session, wire.keys, wire.tree) = (owner, owners, tree);
    assert_eq!(wire.write(id, b"still there"), NtStatus::SUCCESS);
    assert_eq!(wire.open("g", |_| {}).status, NtStatus::SUCCESS, "it has kept its name");
}

#[test]
fn a_frame_sealed_for_one_session_carries_no_request_of_another() {
    let fixture = Fixture::start();
    let mut wire = fixture.dial();
    wire.cipher = Some(Cipher::Aes128Gcm);
    wire.negotiate(1);
    wire.log_on();
    assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
    let id = wire.open("f", |_| {}).id;
    assert_eq!(wire.write(id, b"owned"), NtStatus::SUCCESS);
    let (owner, tree) = (wire.session, wire.tree);
    let owners = wire.keys.take();
    wire.session = 0;
    wire.log_on_as("other", "hidden");
    let (stranger, strangers) = (wire.session, wire.keys.take());
    (wire.session, wire.tree) = (owner, tree);
    let pdu = wire.pdu(Command::WRITE, |out| support::write(id, 0, b"taken").emit(out));
    (wire.session, wire.keys) = (stranger, strangers);
    let frame = wire.sealed(pdu);
    wire.send_frame(&frame);
    assert_eq!(wire.receive().0.status, NtStatus::ACCESS_DENIED);
    (wire.session, wire.keys) = (owner, owners);
    assert_eq!(wire.read(id, 100), (NtStatus::SUCCESS, b"owned".to_vec()));
}

#[test]
fn an_open_that_was_asked_for_unsigned_gets_no_push() {
    let fixture = Fixture::start_with(|config| {
        config.signing = SigningPolicy::WhenAsked;
        config.rdma_listen = Some("127.0.0.1:0".parse().unwrap());
    });
    let mut wire = fixture.client(1);
    for signs in [false, true] {
        wire.signs = signs;
        let opened = wire.open(if signs { "signed" } else { "unsigned" }, |request| {
            request.oplock_level = OplockLevel::LEASE;
            let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
            let version = LeaseVersion::V2 { parent: None, epoch: 0 };
            let key = LeaseKey([if signs { 1 } else { 2 }; 16]);
            let lease = Lease { key, state, break_in_progress: false, version };
            let push = PushRequest {
                rights: Rights::READ,
                durability: Durability::ANY,
                accept_emulated: true,
                regions_max: 1,
            };
            let contexts = [CreateRequestContext::Lease(lease), CreateRequestContext::Push(push)];
            request.contexts.extend(contexts);
        });
        let contexts = opened.response().contexts;
        let answer = contexts.iter().find_map(|context| match context {
            CreateResponseContext::Push(answer) => Some(answer),
            _ => None,
        });
        let is_right = match answer.unwrap() {
            PushResponse::Granted(_) => signs,
            PushResponse::Refused(why) => !signs && why.reason == Refusal::UNSIGNED_SESSION,
        };
        assert!(is_right, "signed: {signs}, {answer:?}");
    }
}

#[test]
fn a_session_whose_client_gave_its_name_up_enters_no_further_share() {
    let fixture = when_asked();
    let mut wire = fixture.client(1);
    for token in support::logon::without_name() {
        authenticate_again(&mut wire, &token);
    }
    assert_eq!(wire.enter("data"), NtStatus::ACCESS_DENIED);
}
