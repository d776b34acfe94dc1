//! No key signs or seals two messages under one nonce, whoever asks over whichever connection.

use std::collections::HashSet;

use smb::create::{CreateRequestContext, Lease, LeaseKey, LeaseState, LeaseVersion, OplockLevel};
use smb::crypto::{Cipher, SigningAlgorithm};
use smb::{
    BreakNotification, Command, Empty, Header, HeaderFlags, NtStatus, Protocol, SessionId,
    SessionSetupRequest, TransformHeader, TreeConnectRequest,
};

use crate::support::logon::{first_token, session_setup};
use crate::support::{Fixture, Wire, sign_with};

const USER: (&str, &str) = ("user", "secret");
const ALL: [SigningAlgorithm; 2] = [SigningAlgorithm::AesGmac, SigningAlgorithm::AesCmac];

/// A connection of a client machine that signs so, and nobody logged on.
fn dial(fixture: &Fixture, client: u8, signing: SigningAlgorithm) -> Wire {
    let mut wire = fixture.dial();
    wire.signing = signing;
    wire.negotiate(client);
    wire
}

/// The same, logged on as the user.
fn logged_on(fixture: &Fixture, signing: SigningAlgorithm) -> Wire {
    let mut wire = dial(fixture, 1, signing);
    wire.log_on();
    wire
}

fn is_signed(pdu: &[u8]) -> bool {
    Header::parse(pdu).unwrap().flags.contains(HeaderFlags::SIGNED)
}

fn is_by(wire: &Wire, pdu: &[u8]) -> bool {
    wire.keys.as_ref().unwrap().signing.verify(&mut pdu.to_vec()).is_ok()
}

#[test]
fn a_session_s_key_signs_nothing_for_a_connection_without_it() {
    for signing in ALL {
        let fixture = Fixture::start();
        let mut victim = logged_on(&fixture, signing);
        let path = smb::Name::new("\\\\127.0.0.1\\data").unwrap();
        let mut request = victim.pdu(Command::TREE_CONNECT, |out| {
            TreeConnectRequest { flags: 0, path }.emit(out);
        });
        sign_with(victim.keys.as_ref().unwrap(), &mut request);
        victim.send_frame(&request);
        let (header, own) = victim.receive();
        assert_eq!(header.status, NtStatus::SUCCESS);
        assert!(is_by(&victim, &own));
        let mut stranger = dial(&fixture, 2, signing);
        stranger.send_frame(&request);
        let (header, answer) = stranger.receive();
        assert_eq!(header.status, NtStatus::USER_SESSION_DELETED);
        assert!(!is_by(&victim, &answer), "{signing:?}");
        assert_eq!(answer[48..64], request[48..64], "the question's own signature proves nothing");
    }
}

/// The first leg of a binding, signed with the session's key.
fn binding(wire: &mut Wire, first: &Wire) -> Vec<u8> {
    let token = first_token(USER.0, USER.1);
    wire.session = first.session;
    let request = SessionSetupRequest { binding: true, ..session_setup(&token) };
    let mut pdu = wire.pdu(Command::SESSION_SETUP, |out| request.emit(out));
    sign_with(first.keys.as_ref().unwrap(), &mut pdu);
    pdu
}

#[test]
fn a_bind_that_comes_again_is_answered_unsigned_under_gmac() {
    let fixture = Fixture::start();
    let victim = logged_on(&fixture, SigningAlgorithm::AesGmac);
    let mut genuine = dial(&fixture, 1, SigningAlgorithm::AesGmac);
    let request = binding(&mut genuine, &victim);
    genuine.send_frame(&request);
    let (header, answer) = genuine.receive();
    assert_eq!(header.status, NtStatus::MORE_PROCESSING_REQUIRED);
    assert!(is_by(&victim, &answer), "the first is signed as the specification says");
    for _ in 0..4 {
        let mut stranger = dial(&fixture, 1, SigningAlgorithm::AesGmac);
        stranger.send_frame(&request);
        let (header, answer) = stranger.receive();
        assert_eq!(header.status, NtStatus::MORE_PROCESSING_REQUIRED);
        assert!(!is_signed(&answer));
        assert_eq!(answer[48..64], [0; 16]);
    }
}

#[test]
fn an_id_that_the_first_connection_may_use_signs_no_bind() {
    let fixture = Fixture::start();
    let victim = logged_on(&fixture, SigningAlgorithm::AesGmac);
    for id in 2..6 {
        let mut other = dial(&fixture, 1, SigningAlgorithm::AesGmac);
        other.next_id = id;
        let request = binding(&mut other, &victim);
        other.send_frame(&request);
        let (header, answer) = other.receive();
        assert_eq!(header.status, NtStatus::MORE_PROCESSING_REQUIRED);
        assert!(!is_signed(&answer), "id {id}");
    }
}

#[test]
fn under_cmac_every_bind_is_answered_signed() {
    let fixture = Fixture::start();
    let victim = logged_on(&fixture, SigningAlgorithm::AesCmac);
    for id in [1, 1, 5] {
        let mut other = dial(&fixture, 1, SigningAlgorithm::AesCmac);
        other.next_id = id;
        let request = binding(&mut other, &victim);
        other.send_frame(&request);
        assert!(is_by(&victim, &other.receive().1), "id {id}");
    }
}

#[test]
fn channels_join_a_gmac_session_as_often_as_before() {
    let fixture = Fixture::start();
    let mut first = logged_on(&fixture, SigningAlgorithm::AesGmac);
    assert_eq!(first.enter("data"), NtStatus::SUCCESS);
    let id = first.open("f", |_| {}).id;
    assert_eq!(first.write(id, b"by the first"), NtStatus::SUCCESS);
    let (mut seen, mut kept) = (HashSet::new(), Vec::new());
    for number in 0..4 {
        let mut wire = dial(&fixture, 1, SigningAlgorithm::AesGmac);
        assert_eq!(wire.join(&first, USER), NtStatus::SUCCESS, "channel {number}");
        for _ in 0..3 {
            let (header, answer) = wire.ask(Command::ECHO, |out| Empty.emit(out));
            assert_eq!(header.status, NtStatus::SUCCESS);
            assert!(is_by(&wire, &answer), "by the channel's own key");
            assert!(seen.insert((number, header.message_id.0)));
        }
        assert_eq!(wire.read(id, 100).1, b"by the first");
        kept.push(wire);
    }
}

#[test]
fn a_session_setup_of_another_connection_s_session_signs_no_id_twice() {
    let fixture = Fixture::start();
    let victim = logged_on(&fixture, SigningAlgorithm::AesGmac);
    let token = first_token(USER.0, USER.1);
    let mut signed = 0;
    for _ in 0..3 {
        let mut stranger = dial(&fixture, 2, SigningAlgorithm::AesGmac);
        stranger.session = victim.session;
        let mut pdu = stranger.pdu(Command::SESSION_SETUP, |out| session_setup(&token).emit(out));
        sign_with(victim.keys.as_ref().unwrap(), &mut pdu);
        stranger.send_frame(&pdu);
        let (header, answer) = stranger.receive();
        assert_eq!(header.status, NtStatus::USER_SESSION_DELETED);
        signed += usize::from(is_by(&victim, &answer));
    }
    assert!(signed <= 1, "{signed} times under one nonce");
}

/// A client that seals everything it says.
fn sealing(fixture: &Fixture, client: u8, cipher: Cipher) -> Wire {
    let mut wire = fixture.dial();
    wire.cipher = Some(cipher);
    wire.negotiate(client);
    wire.log_on();
    assert_eq!(wire.enter("data"), NtStatus::SUCCESS);
    wire
}

fn nonce(frame: &[u8]) -> [u8; 16] {
    assert_eq!(Protocol::of(frame), Ok(Protocol::Encrypted), "sealed");
    TransformHeader::parse(frame).unwrap().0.nonce
}

#[test]
fn no_two_sealed_frames_of_a_session_share_a_nonce_over_any_channel() {
    for cipher in Cipher::PREFERENCE {
        let fixture = Fixture::start();
        let first = sealing(&fixture, 1, cipher);
        let mut second = fixture.dial();
        second.cipher = Some(cipher);
        second.negotiate(1);
        assert_eq!(second.join(&first, USER), NtStatus::SUCCESS);
        // The keys that seal are the session's, and so is the count of what they sealed.
        second.keys.clone_from(&first.keys);
        let (mut wires, mut seen) = ([first, second], HashSet::new());
        for turn in 0..20 {
            let wire = &mut wires[turn % 2];
            let mut pdu = wire.pdu(Command::ECHO, |out| Empty.emit(out));
            pdu = wire.sealed(pdu);
            wire.send_frame(&pdu);
            let frame = wire.receive_frame().unwrap();
            assert!(seen.insert(nonce(&frame)), "{cipher:?}, answer {turn}");
        }
    }
}

#[test]
fn breaks_for_opens_that_were_granted_sealed_leave_sealed() {
    for (is_lease, is_required) in [(true, true), (false, true), (true, false)] {
        let fixture = Fixture::start_with(|config| config.shares[0].encrypt_required = is_required);
        let mut holder = sealing(&fixture, 1, Cipher::Aes128Gcm);
        let key = LeaseKey(*b"a key of a lease");
        holder.open("f", |request| {
            request.oplock_level = OplockLevel::BATCH;
            if is_lease {
                request.oplock_level = OplockLevel::LEASE;
                let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
                let version = LeaseVersion::V2 { parent: None, epoch: 0 };
                let lease = Lease { key, state, break_in_progress: false, version };
                request.contexts.push(CreateRequestContext::Lease(lease));
            }
        });
        let mut other = sealing(&fixture, 2, Cipher::Aes128Gcm);
        other.start_open("f", |_| {});
        let frame = holder.receive_frame().unwrap();
        assert_eq!(Protocol::of(&frame), Ok(Protocol::Encrypted), "{is_lease} {is_required}");
        assert!(!frame.windows(16).any(|bytes| bytes == key.0));
        let session = TransformHeader::parse(&frame).unwrap().0.session_id;
        assert_eq!(session, SessionId(holder.session));
        BreakNotification::parse(&holder.opened(frame)).unwrap();
    }
}

#[test]
fn a_sealed_lease_is_asked_back_over_no_connection_that_cannot_seal_it() {
    let fixture = Fixture::start_with(|config| {
        let dir = config.shares[0].path.join("secret");
        std::fs::create_dir(&dir).unwrap();
        let mut share = server::ShareConfig::new("secret", dir);
        share.encrypt_required = true;
        config.shares.push(share);
    });
    // The client's first connection, in the clear; the lease is of its second.
    let mut first = fixture.client(1);
    let mut holder = sealing(&fixture, 1, Cipher::Aes128Gcm);
    assert_eq!(holder.enter("secret"), NtStatus::SUCCESS);
    holder.open("f", |request| {
        request.oplock_level = OplockLevel::LEASE;
        let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
        let version = LeaseVersion::V2 { parent: None, epoch: 0 };
        let lease = Lease { key: LeaseKey([3; 16]), state, break_in_progress: false, version };
        request.contexts.push(CreateRequestContext::Lease(lease));
    });
    let mut other = sealing(&fixture, 2, Cipher::Aes128Gcm);
    assert_eq!(other.enter("secret"), NtStatus::SUCCESS);
    other.start_open("f", |_| {});
    let frame = holder.receive_frame().unwrap();
    assert_eq!(Protocol::of(&frame), Ok(Protocol::Encrypted));
    let (header, _) = first.ask(Command::ECHO, |out| Empty.emit(out));
    assert_eq!((header.status, first.unsolicited.len()), (NtStatus::SUCCESS, 0));
}
