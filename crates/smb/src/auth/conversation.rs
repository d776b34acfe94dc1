//! Whole authentications in one process: our acceptor and our initiator, and each of them with that of `sspi`.

use std::sync::Arc;

use proptest::prelude::*;

use super::ntlm::{AcceptorConfig, Freshness, NtlmAcceptor, NtlmFlags};
use super::spnego::{Mechanism, NegState, NegTokenResp};
use super::*;
use crate::crypto::hex;
use crate::status::NtStatus;

fn users() -> Arc<UserList> {
    let mut users = UserList::new();
    users.add_password("alice", "correct horse");
    users.add_hash("bob", NtHash::of_password("battery staple"));
    Arc::new(users)
}

const FRESH: Freshness = Freshness {
    challenge: *b"\x01\x23\x45\x67\x89\xab\xcd\xef",
    now_filetime: 0x01dd_0000_0000_0000,
};

fn acceptor_with(change: impl FnOnce(&mut AcceptorConfig)) -> SpnegoAcceptor {
    let mut config = AcceptorConfig::new("landfast");
    change(&mut config);
    SpnegoAcceptor::new(Arc::new(config), users(), FRESH)
}

fn acceptor() -> SpnegoAcceptor {
    acceptor_with(|_| ())
}

fn fresh() -> ClientFreshness {
    ClientFreshness::new(&[0x5a; 24], FRESH.now_filetime)
}

fn client(user: &str, password: &str) -> NtlmInitiator {
    NtlmInitiator::with_password(user, "WORKGROUP", password, "localhost", fresh()).unwrap()
}

#[test]
fn a_client_takes_no_token_that_is_longer_than_any() {
    let longest = client("alice", "secret").step(Some(&[0; TOKEN_MAX]));
    assert!(!matches!(longest, Err(InitiateError::PeerTokenLength(_))), "{longest:?}");
    let longer = client("alice", "secret").step(Some(&[0; TOKEN_MAX + 1]));
    assert!(matches!(longer, Err(InitiateError::PeerTokenLength(_))), "{longer:?}");
}

/// Runs both to the end. The client sees the final token.
fn converse(
    client: &mut NtlmInitiator,
    server: &mut SpnegoAcceptor,
) -> Result<Accepted, DenyReason> {
    let mut from_server: Option<Vec<u8>> = None;
    loop {
        let Initiate::Send(token) = client.step(from_server.as_deref()).unwrap() else {
            panic!("the client ended first")
        };
        match server.step(&token) {
            Accept::Continue(token) => from_server = Some(token),
            Accept::Done(accepted) => {
                if accepted.session_key.is_some() {
                    assert_eq!(client.step(Some(&accepted.token)), Ok(Initiate::Done));
                }
                return Ok(accepted);
            }
            Accept::Denied(reason) => return Err(reason),
        }
    }
}

#[test]
fn a_user_with_the_right_password_gets_the_same_key_on_both_sides() {
    let (mut client, mut server) = (client("Alice", "correct horse"), acceptor());
    let accepted = converse(&mut client, &mut server).unwrap();
    assert_eq!(accepted.session_key, client.session_key());
    assert!(accepted.session_key.is_some());
    let Identity { user, domain, kind } = accepted.identity;
    assert_eq!((user.as_str(), domain.as_str(), kind), ("Alice", "WORKGROUP", IdentityKind::User));
}

#[test]
fn a_password_hash_serves_as_its_password_on_either_side() {
    let accepted = converse(&mut client("bob", "battery staple"), &mut acceptor());
    assert_eq!(accepted.unwrap().identity.kind, IdentityKind::User);
    let hash = NtHash::of_password("correct horse");
    let mut client = NtlmInitiator::with_hash("alice", "", hash, "localhost", fresh()).unwrap();
    let accepted = converse(&mut client, &mut acceptor()).unwrap();
    assert_eq!(accepted.session_key, client.session_key());
}

#[test]
fn a_wrong_password_and_an_unknown_user_get_the_same_answer() {
    for (user, password) in [("alice", "wrong"), ("mallory", "correct horse"), ("alice", "")] {
        let reason = converse(&mut client(user, password), &mut acceptor()).unwrap_err();
        assert_eq!(reason, DenyReason::PeerCredentials);
        assert_eq!(reason.status(), NtStatus::LOGON_FAILURE);
    }
}

#[test]
fn guests_are_admitted_only_if_allowed_and_never_get_a_key() {
    let mut server = acceptor_with(|config| config.allow_guests = true);
    let accepted = converse(&mut client("mallory", "whatever"), &mut server).unwrap();
    assert_eq!(accepted.identity.kind, IdentityKind::Guest);
    assert!(accepted.session_key.is_none());
    // A known user with a wrong password is an attacker, not a guest.
    let mut server = acceptor_with(|config| config.allow_guests = true);
    assert_eq!(
        converse(&mut client("alice", "wrong"), &mut server).unwrap_err(),
        DenyReason::PeerCredentials
    );
}

// The hash that a server tries for an unknown user follows from its challenge, which the client knows.
#[test]
fn an_unknown_user_who_knows_the_decoy_hash_is_refused() {
    let mut decoy = [0xa5; 16];
    decoy[..8].copy_from_slice(&FRESH.challenge);
    for user in ["mallory", "alice"] {
        let hash = NtHash::new(decoy);
        let mut client = NtlmInitiator::with_hash(user, "", hash, "localhost", fresh()).unwrap();
        let reason = converse(&mut client, &mut acceptor()).unwrap_err();
        assert_eq!(reason, DenyReason::PeerCredentials, "{user}");
    }
}

/// An AUTHENTICATE with empty responses, as `smbclient -N` sends it inside of NTLMSSP.
fn anonymous() -> Vec<u8> {
    let mut message = b"NTLMSSP\0\x03\0\0\0".to_vec();
    message.resize(64, 0);
    message[60..64]
        .copy_from_slice(&(NtlmFlags::UNICODE | NtlmFlags::ANONYMOUS).bits().to_le_bytes());
    message
}

/// The same with a name, as `smbclient -N` and `rpcclient -N` begin.
fn without_response(user: &str) -> Vec<u8> {
    let mut message = anonymous();
    let name: Vec<u8> = user.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let len = u16::try_from(name.len()).unwrap().to_le_bytes();
    message[36..44].copy_from_slice(&[len[0], len[1], len[0], len[1], 64, 0, 0, 0]);
    message.extend(name);
    message
}

#[test]
fn a_name_without_a_response_is_denied_like_a_wrong_password() {
    for (user, allow_guests) in [("alice", false), ("alice", true), ("mallory", false)] {
        let mut server = acceptor_with(|config| config.allow_guests = allow_guests);
        server.step(&hex(NEGOTIATE));
        let denied = server.step(&without_response(user));
        assert!(matches!(denied, Accept::Denied(DenyReason::PeerCredentials)), "{user}");
    }
    let mut server = acceptor_with(|config| config.allow_guests = true);
    server.step(&hex(NEGOTIATE));
    let Accept::Done(accepted) = server.step(&without_response("mallory")) else { panic!() };
    assert_eq!(accepted.identity.kind, IdentityKind::Guest);
    assert!(accepted.session_key.is_none());
}

const NEGOTIATE: &str = "4e544c4d5353500001000000978208e2000000000000000000000000000000000603\
                         80250000000f";

#[test]
fn anonymous_users_are_admitted_only_if_allowed() {
    for allow_anonymous in [false, true] {
        let mut server = acceptor_with(|config| config.allow_anonymous = allow_anonymous);
        assert!(matches!(server.step(&hex(NEGOTIATE)), Accept::Continue(_)));
        match (server.step(&anonymous()), allow_anonymous) {
            (Accept::Denied(reason), false) => assert_eq!(reason, DenyReason::ConfigAnonymous),
            (Accept::Done(accepted), true) => {
                assert_eq!(accepted.identity.kind, IdentityKind::Anonymous);
                assert!(accepted.session_key.is_none());
            }
            (other, _) => panic!("{other:?}"),
        }
    }
}

/// Drives a raw `sspi` NTLM client against an acceptor and returns both of its messages.
fn raw_messages(server: &mut impl Acceptor, user: &str, password: &str) -> [Vec<u8>; 2] {
    use sspi::{
        BufferType, ClientRequestFlags, DataRepresentation, Ntlm, SecurityBuffer, Sspi, SspiImpl,
    };
    let mut ntlm = Ntlm::new();
    let mut credentials = Some(sspi::AuthIdentityBuffers::from_utf8(user, "", password));
    let mut input = vec![SecurityBuffer::new(Vec::new(), BufferType::Token)];
    let mut negotiate = Vec::new();
    for _ in 0..2 {
        let mut output = [SecurityBuffer::new(Vec::new(), BufferType::Token)];
        let mut builder = ntlm
            .initialize_security_context()
            .with_credentials_handle(&mut credentials)
            .with_context_requirements(ClientRequestFlags::CONFIDENTIALITY)
            .with_target_data_representation(DataRepresentation::Native)
            .with_target_name("cifs/localhost")
            .with_input(&mut input)
            .with_output(&mut output);
        ntlm.initialize_security_context_impl(&mut builder).unwrap().resolve_to_result().unwrap();
        let [token] = output;
        if token.buffer[8] == 3 {
            return [negotiate, token.buffer];
        }
        let Accept::Continue(challenge) = server.step(&token.buffer) else { panic!() };
        input[0].buffer = challenge;
        negotiate = token.buffer;
    }
    panic!("no AUTHENTICATE came")
}

/// Drives our NTLM client against the acceptor of `sspi`, whose user has `password`. The key of each, or why
/// `sspi` refused.
fn with_foreign_acceptor(password: &str) -> Result<[Vec<u8>; 2], sspi::ErrorKind> {
    use sspi::{
        AuthIdentity, BufferType, CredentialUse, DataRepresentation, Ntlm, SecurityBuffer,
        ServerRequestFlags, Sspi, SspiImpl, Username,
    };
    let hash = NtHash::of_password("correct horse");
    let client = ntlm::NtlmClient::new("alice", "WORKGROUP", hash, "localhost", fresh()).unwrap();
    let identity = AuthIdentity {
        username: Username::new("alice", Some("WORKGROUP")).unwrap(),
        password: password.to_owned().into(),
    };
    let mut server = Ntlm::new();
    let acquire = server.acquire_credentials_handle();
    let acquire = acquire.with_credential_use(CredentialUse::Inbound).with_auth_data(&identity);
    let mut credentials = acquire.execute(&mut server).unwrap().credentials_handle;
    let mut answer = |token: Vec<u8>| {
        let mut input = [SecurityBuffer::new(token, BufferType::Token)];
        let mut output = [SecurityBuffer::new(Vec::new(), BufferType::Token)];
        let accept = server
            .accept_security_context()
            .with_credentials_handle(&mut credentials)
            .with_context_requirements(ServerRequestFlags::empty())
            .with_target_data_representation(DataRepresentation::Native)
            .with_input(&mut input)
            .with_output(&mut output);
        server.accept_security_context_impl(accept)?.resolve_to_result()?;
        let [output] = output;
        Ok::<_, sspi::Error>(output.buffer)
    };
    let challenge = answer(ntlm::NtlmClient::negotiate()).unwrap();
    let (message, key) = client.authenticate(&challenge).unwrap();
    answer(message).map_err(|error| error.error_type)?;
    server.complete_auth_token(&mut []).map_err(|error| error.error_type)?;
    let theirs = server.query_context_session_key().unwrap().session_key;
    Ok([key.as_bytes().to_vec(), theirs.as_ref().to_vec()])
}

#[test]
fn a_foreign_acceptor_takes_our_client_and_comes_to_the_same_key() {
    let [ours, theirs] = with_foreign_acceptor("correct horse").unwrap();
    assert_eq!(ours, theirs);
    assert_eq!(with_foreign_acceptor("wrong").unwrap_err(), sspi::ErrorKind::LogonDenied);
}

/// A server's answer to our client's last token, changed by `change`.
fn last_answer(change: impl FnOnce(&mut NegTokenResp)) -> Result<Initiate, InitiateError> {
    let (mut client, mut server) = (client("alice", "correct horse"), acceptor());
    let Ok(Initiate::Send(first)) = client.step(None) else { panic!() };
    let Accept::Continue(challenge) = server.step(&first) else { panic!() };
    let Ok(Initiate::Send(second)) = client.step(Some(&challenge)) else { panic!() };
    let Accept::Done(accepted) = server.step(&second) else { panic!() };
    let mut last = NegTokenResp::parse(&accepted.token).unwrap();
    change(&mut last);
    let step = client.step(Some(&last.emit()));
    assert_eq!(client.step(None), Err(InitiateError::OutOfSequence));
    step
}

#[test]
fn a_server_that_does_not_prove_the_list_of_mechanisms_is_not_believed() {
    assert_eq!(last_answer(|_| ()), Ok(Initiate::Done));
    let unproven = Err(InitiateError::PeerUnproven);
    assert_eq!(last_answer(|last| last.mech_list_mic = None), unproven);
    assert_eq!(last_answer(|last| last.state = Some(NegState::INCOMPLETE)), unproven);
    assert_eq!(last_answer(|last| last.mech_list_mic = Some(Vec::new())), unproven);
    for at in 0..16 {
        let flip = |last: &mut NegTokenResp| last.mech_list_mic.as_mut().unwrap()[at] ^= 1;
        assert_eq!(last_answer(flip), unproven, "byte {at}");
    }
}

/// What our client says to a server's first answer, changed by `change`.
fn answer_to(change: impl FnOnce(&mut NegTokenResp)) -> Result<Initiate, InitiateError> {
    let (mut client, mut server) = (client("alice", "correct horse"), acceptor());
    let Ok(Initiate::Send(first)) = client.step(None) else { panic!() };
    let Accept::Continue(challenge) = server.step(&first) else { panic!() };
    let mut answer = NegTokenResp::parse(&challenge).unwrap();
    change(&mut answer);
    client.step(Some(&answer.emit()))
}

#[test]
fn our_client_answers_no_refusal_no_other_mechanism_and_no_weak_challenge() {
    assert!(matches!(answer_to(|_| ()), Ok(Initiate::Send(_))));
    assert!(matches!(answer_to(|answer| answer.state = None), Ok(Initiate::Send(_))));
    let malformed = Err(InitiateError::PeerToken);
    assert_eq!(answer_to(|answer| answer.state = Some(NegState::REJECT)), malformed);
    assert_eq!(answer_to(|answer| answer.state = Some(NegState::COMPLETED)), malformed);
    assert_eq!(answer_to(|answer| answer.choice = Some(Mechanism::Kerberos)), malformed);
    assert_eq!(answer_to(|answer| answer.token = None), malformed);
    // Extended session security, bit 19 of the flags at 20, and Unicode, bit 0.
    for (at, bit) in [(22, 0x08), (20, 0x01)] {
        let weaken = |answer: &mut NegTokenResp| answer.token.as_mut().unwrap()[at] &= !bit;
        assert_eq!(answer_to(weaken), Err(InitiateError::PeerWeak));
    }
}

#[test]
fn without_an_exchange_of_keys_both_sides_take_the_one_of_the_proof() {
    let hash = NtHash::of_password("correct horse");
    let ours = ntlm::NtlmClient::new("alice", "", hash, "localhost", fresh()).unwrap();
    let config = Arc::new(AcceptorConfig::new("landfast"));
    let mut server = NtlmAcceptor::new(config, users(), FRESH);
    let mut negotiate = ntlm::NtlmClient::negotiate();
    // KEY_EXCH, bit 30 of the flags at 12.
    negotiate[15] &= !0x40;
    let Accept::Continue(challenge) = server.step(&negotiate) else { panic!() };
    let (mut message, key) = ours.authenticate(&challenge).unwrap();
    // The client has sent another first message than the server has seen, so that their codes over them differ.
    let mic = ntlm::AuthenticateRepr::MIC;
    message[mic.clone()].fill(0);
    let code = key.mic(&[&negotiate, &challenge, &message]);
    message[mic].copy_from_slice(&code);
    let Accept::Done(accepted) = server.step(&message) else { panic!() };
    assert_eq!(accepted.session_key, Some(crate::crypto::SessionKey::new(key.as_bytes())));
}

#[test]
fn names_longer_than_any_are_refused_before_anything_is_sent() {
    let long = "n".repeat(600);
    for [user, domain, host] in [[&long[..], "", "h"], ["u", &long, "h"], ["u", "", &long]] {
        let refused = NtlmInitiator::with_password(user, domain, "p", host, fresh());
        assert_eq!(refused.unwrap_err(), InitiateError::ConfigCredentials);
    }
}

#[test]
fn raw_ntlmssp_works_without_spnego() {
    let mut server = acceptor();
    let [_, message] = raw_messages(&mut server, "alice", "correct horse");
    let Accept::Done(accepted) = server.step(&message) else { panic!() };
    assert!(accepted.token.is_empty());
    assert!(matches!(server.step(&message), Accept::Denied(DenyReason::PeerOutOfSequence)));
}

#[test]
fn an_authenticate_without_integrity_code_still_needs_the_right_proof() {
    // What sspi's own acceptor lets through: the flag that announces the MIC is the client's.
    let config = Arc::new(AcceptorConfig::new("landfast"));
    let mut server = NtlmAcceptor::new(config, users(), FRESH);
    let [_, mut message] = raw_messages(&mut server, "alice", "wrong");
    let flags = message.windows(8).position(|w| w == [6, 0, 4, 0, 2, 0, 0, 0]).unwrap();
    message[flags + 4] = 0;
    assert!(matches!(server.step(&message), Accept::Denied(DenyReason::PeerCredentials)));
}

#[test]
fn every_changed_byte_of_an_authenticate_is_noticed() {
    let [negotiate, message] = raw_messages(&mut acceptor(), "alice", "correct horse");
    let replay = |message: &[u8]| {
        let mut server = acceptor();
        assert!(matches!(server.step(&negotiate), Accept::Continue(_)));
        server.step(message)
    };
    assert!(matches!(replay(&message), Accept::Done(_)));
    for at in 0..message.len() {
        let mut changed = message.clone();
        changed[at] ^= 0x01;
        assert!(matches!(replay(&changed), Accept::Denied(_)), "byte {at}");
    }
}

#[test]
fn a_changed_mechanism_list_is_noticed() {
    let (mut client, mut server) = (client("alice", "correct horse"), acceptor());
    let Ok(Initiate::Send(first)) = client.step(None) else { panic!() };
    let Accept::Continue(challenge) = server.step(&first) else { panic!() };
    let Ok(Initiate::Send(second)) = client.step(Some(&challenge)) else { panic!() };
    let mut resp = NegTokenResp::parse(&second).unwrap();
    resp.mech_list_mic.as_mut().unwrap()[5] ^= 1;
    let reason = match server.step(&resp.emit()) {
        Accept::Denied(reason) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason, DenyReason::PeerMessageAltered);
}

#[test]
fn a_client_without_list_mic_is_accepted_if_ntlm_was_its_choice() {
    let (mut client, mut server) = (client("alice", "correct horse"), acceptor());
    let Ok(Initiate::Send(first)) = client.step(None) else { panic!() };
    let Accept::Continue(challenge) = server.step(&first) else { panic!() };
    let Ok(Initiate::Send(second)) = client.step(Some(&challenge)) else { panic!() };
    let mut resp = NegTokenResp::parse(&second).unwrap();
    resp.mech_list_mic = None;
    let Accept::Done(accepted) = server.step(&resp.emit()) else { panic!() };
    let last = NegTokenResp::parse(&accepted.token).unwrap();
    assert_eq!((last.state, last.mech_list_mic), (Some(NegState::COMPLETED), None));
}

/// A first token that lists Kerberos before NTLM, with a Kerberos token.
const KERBEROS_FIRST: &str = "603306062b0601050502a0293027a019301706092a864886f712010202060a2b\
                              06010401823702020aa20a04086b65726265726f73";
/// And one that lists nothing but Kerberos.
const KERBEROS_ONLY: &str = "601b06062b0601050502a011300fa00d300b06092a864886f712010202";

#[test]
fn ntlm_further_down_the_list_is_chosen_and_requires_a_mic() {
    let first = hex(KERBEROS_FIRST);
    let mut server = acceptor();
    let Accept::Continue(answer) = server.step(&first) else { panic!() };
    let answer = NegTokenResp::parse(&answer).unwrap();
    assert_eq!(answer.state, Some(NegState::REQUEST_MIC));
    assert!(answer.choice == Some(Mechanism::Ntlm) && answer.token.is_none());
    let wrap = |token| NegTokenResp { token: Some(token), ..NegTokenResp::default() }.emit();
    struct Wrapping<'a>(&'a mut SpnegoAcceptor);
    impl std::fmt::Debug for Wrapping<'_> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Wrapping")
        }
    }
    impl Acceptor for Wrapping<'_> {
        fn step(&mut self, token: &[u8]) -> Accept {
            let token = NegTokenResp { token: Some(token.to_vec()), ..NegTokenResp::default() };
            match self.0.step(&token.emit()) {
                Accept::Continue(answer) => {
                    let answer = NegTokenResp::parse(&answer).unwrap();
                    assert_eq!(answer.state, Some(NegState::INCOMPLETE));
                    Accept::Continue(answer.token.unwrap())
                }
                other => other,
            }
        }
    }
    let [_, last] = raw_messages(&mut Wrapping(&mut server), "alice", "correct horse");
    assert!(matches!(server.step(&wrap(last)), Accept::Denied(DenyReason::PeerMessageAltered)));
}

#[test]
fn invalid_first_tokens_are_denied_with_their_reason() {
    for (token, reason) in [
        (vec![0; TOKEN_MAX + 1], DenyReason::PeerTokenLength(TOKEN_MAX + 1)),
        (Vec::new(), DenyReason::PeerToken),
        (hex(KERBEROS_ONLY), DenyReason::PeerMechanisms),
        (b"NTLMSSP\0".to_vec(), DenyReason::PeerToken),
    ] {
        let mut server = acceptor();
        match server.step(&token) {
            Accept::Denied(got) => assert_eq!(got, reason),
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn hostile_tokens_never_panic_the_server(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        which in 0..3,
    ) {
        let (mut client, mut server) = (client("alice", "correct horse"), acceptor());
        let Ok(Initiate::Send(mut token)) = client.step(None) else { panic!() };
        if which > 0 {
            let Accept::Continue(answer) = server.step(&token) else { panic!() };
            let Ok(Initiate::Send(second)) = client.step(Some(&answer)) else { panic!() };
            token = second;
        }
        for (at, value) in &changes {
            let at = at.index(token.len());
            token[at] = *value;
        }
        if which == 2 {
            token.truncate(cut.index(token.len()));
        }
        server.step(&token);
    }

    #[test]
    fn hostile_tokens_never_panic_the_client(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        last in any::<bool>(),
        truncate in any::<bool>(),
    ) {
        let (mut client, mut server) = (client("alice", "correct horse"), acceptor());
        let Ok(Initiate::Send(first)) = client.step(None) else { panic!() };
        let Accept::Continue(mut token) = server.step(&first) else { panic!() };
        if last {
            let Ok(Initiate::Send(second)) = client.step(Some(&token)) else { panic!() };
            let Accept::Done(accepted) = server.step(&second) else { panic!() };
            token = accepted.token;
        }
        for (at, value) in &changes {
            let at = at.index(token.len());
            token[at] = *value;
        }
        if truncate {
            token.truncate(cut.index(token.len()));
        }
        let _ = client.step(Some(&token));
    }
}
