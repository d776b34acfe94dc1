//! Exchanges recorded between MIT's client and server, with ours in the server's place: no KDC, and a clock
//! that stands where it stood.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use zeroize::Zeroizing;

use super::acceptor::{Clock, open_authenticator, open_ticket};
use super::encryption::{Key, Usage};
use super::gss::{self, Signer};
use super::message::{self, Fields};
use super::ticket::TicketPart;
use super::*;
use crate::FileTime;
use crate::auth::der::{APPLICATION_0, OBJECT_ID, SEQUENCE, application, context, expect, wrap};
use crate::auth::ntlm::{AcceptorConfig, Freshness};
use crate::auth::spnego::{Mechanism, NegState, NegTokenResp};
use crate::auth::{
    Accept, Accepted, Acceptor, Credentials, DenyReason, SpnegoAcceptor, TOKEN_MAX, UserList,
    UserStore,
};
use crate::crypto::{SessionKey, hex};

const RECORDED: &str = include_str!("../../../tests/fixtures/kerberos-mit.hex");
const ENCRYPTIONS: [&str; 4] = ["aes128-cts", "aes256-cts", "aes128-sha2", "aes256-sha2"];

fn line(name: &str) -> &'static str {
    let lines = RECORDED.lines().filter_map(|line| line.split_once(": "));
    let found: HashMap<_, _> = lines.collect();
    found[name]
}

fn recorded(name: &str) -> Vec<u8> {
    hex(line(name))
}

fn keytab() -> Arc<Keytab> {
    Arc::new(Keytab::parse(&recorded("keytab")).unwrap())
}

/// So many seconds after the recording.
fn fresh(seconds: i64) -> KerberosFreshness {
    let at = line("time").parse::<i64>().unwrap() + seconds;
    KerberosFreshness {
        now: FileTime::from_unix_ns(i128::from(at) * 1_000_000_000),
        confounder: [3; 16],
        subkey: Zeroizing::new([5; 32]),
        sequence: 0xffff_ffff,
    }
}

fn users() -> Arc<dyn UserStore> {
    let mut users = UserList::new();
    users.add_password("Alice", "secret");
    Arc::new(users)
}

fn acceptor(service: &Arc<KerberosService>, seconds: i64) -> KerberosAcceptor {
    KerberosAcceptor::new(Arc::clone(service), keytab(), users(), fresh(seconds))
}

fn accept(token: &[u8], seconds: i64) -> Result<Accepted, DenyReason> {
    finish(acceptor(&Arc::new(KerberosService::new()), seconds), token)
}

fn finish(mut acceptor: impl Acceptor, token: &[u8]) -> Result<Accepted, DenyReason> {
    match acceptor.step(token) {
        Accept::Done(accepted) => Ok(accepted),
        Accept::Denied(reason) => Err(reason),
        Accept::Continue(token) => panic!("goes on with {token:x?}"),
    }
}

fn fault(result: Result<Accepted, DenyReason>) -> TicketFault {
    match result {
        Err(DenyReason::PeerTicket(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

/// The inside of a recorded ticket, which the client knows too.
fn ticket(encryption: &str) -> (Key, TicketPart) {
    let token = recorded(&format!("{encryption} request"));
    let request = gss::ap_req(&token).unwrap();
    let opened = open_ticket(&keytab(), None, &request.ticket).unwrap();
    let part = TicketPart::parse(&opened).unwrap();
    (part.key.1.clone().unwrap(), part)
}

/// What an AP-REP says to who has the ticket's key: its subkey.
fn subkey_of(reply: &[u8], key: &Key) -> (Key, u32) {
    let frame = expect(reply, APPLICATION_0).unwrap();
    let rest = expect(frame.content, OBJECT_ID).unwrap().rest;
    assert_eq!(rest[..2], [2, 0]);
    let mut fields = Fields::of_message(&rest[2..], application(15)).unwrap();
    assert_eq!((fields.integer(0), fields.integer(1)), (Ok(5), Ok(15)));
    let mut sealed = Fields::of_sequence(fields.needed(2).unwrap()).unwrap();
    assert_eq!(sealed.integer(0), Ok(i64::from(key.encryption().0)));
    let opened = key.open(Usage::AP_REP, message::octets(sealed.needed(2).unwrap()).unwrap());
    let opened = opened.expect("sealed with the ticket's key");
    let mut part = Fields::of_message(&opened, application(27)).unwrap();
    assert!(message::time(part.needed(0).unwrap()).is_ok() && part.integer(1).is_ok());
    let (_, subkey) = message::key(part.needed(2).unwrap()).unwrap();
    let sequence = part.integer(3).and_then(message::uint32).unwrap();
    part.end().unwrap();
    (subkey.unwrap(), sequence)
}

#[test]
fn a_ticket_of_each_encryption_lets_its_owner_in_with_a_key_of_the_servers() {
    for encryption in ENCRYPTIONS {
        let accepted = accept(&recorded(&format!("{encryption} request")), 0).unwrap();
        assert_eq!(accepted.identity.user, "alice", "{encryption}");
        assert_eq!(accepted.identity.domain, "LANDFAST.TEST");
        let (key, part) = ticket(encryption);
        let end = FileTime::from_unix_ns(i128::from(part.end) * 1_000_000_000);
        assert_eq!(accepted.expires, Some(end));
        let (subkey, sequence) = subkey_of(&accepted.token, &key);
        assert_eq!(sequence, 0x7fff_ffff);
        assert_eq!(subkey.as_bytes(), &[5; 32][..subkey.as_bytes().len()]);
        assert_eq!(accepted.session_key, Some(SessionKey::new(subkey.as_bytes())));
    }
}

#[test]
fn answers_and_signatures_of_mit_mean_the_same_to_us() {
    for encryption in ENCRYPTIONS {
        let (key, _) = ticket(encryption);
        let reply = recorded(&format!("{encryption} reply"));
        let (subkey, sequence) = subkey_of(&reply, &key);
        assert_eq!(subkey.as_bytes(), recorded(&format!("{encryption} key")));
        let signer = Signer { initiator: key, acceptor: Some(subkey), sequence };
        let ours = recorded(&format!("{encryption} acceptor-mic"));
        assert_eq!(signer.sign(b"mechanisms"), ours, "{encryption}");
        let theirs = recorded(&format!("{encryption} initiator-mic"));
        assert!(signer.is_signed(b"mechanisms", &theirs), "{encryption}");
        assert!(!signer.is_signed(b"mechanism", &theirs));
        assert!(!signer.is_signed(b"mechanisms", &ours), "ours comes back");
        for at in 0..theirs.len() {
            let mut changed = theirs.clone();
            changed[at] ^= 1;
            assert!(!signer.is_signed(b"mechanisms", &changed), "byte {at}");
        }
    }
}

#[test]
fn a_client_without_mutual_authentication_gets_no_answer_and_its_own_key() {
    let mut token = recorded("aes256-cts request");
    // mutual-required, the only one of the options that is set: nothing protects them.
    let options = [0xa2, 7, 3, 5, 0, 0x20, 0, 0, 0];
    let at = token.windows(9).position(|window| window == options).unwrap();
    token[at + 5] = 0;
    let accepted = accept(&token, 0).unwrap();
    assert!(accepted.token.is_empty());
    assert!(accepted.session_key.is_some());
    assert_ne!(accepted.session_key, Some(SessionKey::new(&[5; 32])));
}

#[test]
fn clocks_may_differ_by_five_minutes() {
    let token = recorded("aes256-cts request");
    for seconds in [-295, 295] {
        accept(&token, seconds).unwrap();
    }
    for seconds in [-310, 310] {
        assert!(matches!(fault(accept(&token, seconds)), TicketFault::PeerClock(300..320)));
    }
}

#[test]
fn a_ticket_is_good_from_its_start_to_its_end_by_either_clock() {
    let (_, part) = ticket("aes256-cts");
    let at = |seconds: i64| {
        let now = FileTime::from_unix_ns(i128::from(seconds) * 1_000_000_000);
        Clock::new(now, KerberosService::SKEW)
    };
    let check = |now: i64, part: &TicketPart| at(now).check(part, (now, 0));
    assert_eq!(check(part.start - 300, &part), Ok(()));
    assert_eq!(check(part.start - 301, &part), Err(TicketFault::PeerNotYet));
    assert_eq!(check(part.end + 300, &part), Ok(()));
    assert_eq!(check(part.end + 301, &part), Err(TicketFault::PeerExpired(301)));
    let seconds = |time: FileTime| i64::try_from(time.to_unix_ns() / 1_000_000_000).unwrap();
    assert_eq!(seconds(at(part.start).expiry(&part)), part.end);
    assert_eq!(seconds(at(part.end).expiry(&part)), part.end + 300);
    assert_eq!(seconds(at(part.end + 1).expiry(&part)), part.end + 300);
    let apart = |seconds: i64| at(part.start).check(&part, (part.start - seconds, 0));
    assert_eq!(apart(300), Ok(()));
    assert_eq!(apart(301), Err(TicketFault::PeerClock(301)));
    let part = TicketPart { flags: TicketPart::INVALID, ..part };
    assert_eq!(check(part.start, &part), Err(TicketFault::PeerNotYet));
}

#[test]
fn an_authenticator_is_good_for_one_logon() {
    let service = Arc::new(KerberosService::new());
    let token = recorded("aes256-cts request");
    finish(acceptor(&service, 0), &token).unwrap();
    assert_eq!(fault(finish(acceptor(&service, 1), &token)), TicketFault::PeerReplay);
    // A refused one has been seen too, another one of the same owner has not.
    finish(acceptor(&service, 1), &recorded("aes256-cts second")).unwrap();
}

#[test]
fn an_authenticator_is_remembered_as_long_as_any_clock_takes_it() {
    let service = Arc::new(KerberosService::new());
    let token = recorded("aes256-cts request");
    finish(acceptor(&service, -295), &token).unwrap();
    assert_eq!(fault(finish(acceptor(&service, 295), &token)), TicketFault::PeerReplay);
}

#[test]
fn an_authenticator_is_forgotten_when_no_clock_takes_it_any_more() {
    let service = Arc::new(KerberosService::new());
    finish(acceptor(&service, -295), &recorded("aes256-cts request")).unwrap();
    let last = line("time").parse::<i64>().unwrap() - 295 + 600;
    service.replays.admit("bob", b"in time", last, last).unwrap();
    assert_eq!(service.replays.remembered(), 2);
    service.replays.admit("bob", b"too late", last + 1, last + 1).unwrap();
    assert_eq!(service.replays.remembered(), 1);
}

#[test]
fn a_token_longer_than_any_is_refused_for_its_length() {
    let length = |accept: Accept| matches!(accept, Accept::Denied(DenyReason::PeerTokenLength(len)) if len == TOKEN_MAX + 1);
    let service = Arc::new(KerberosService::new());
    for len in [TOKEN_MAX, TOKEN_MAX + 1] {
        let token = vec![0; len];
        assert_eq!(length(acceptor(&service, 0).step(&token)), len > TOKEN_MAX);
        assert_eq!(length(spnego().step(&token)), len > TOKEN_MAX);
        assert!(matches!(acceptor(&service, 0).step(&token), Accept::Denied(_)));
    }
    let at_most = acceptor(&service, 0).step(&vec![0; TOKEN_MAX]);
    assert!(!matches!(at_most, Accept::Denied(DenyReason::PeerTokenLength(_))));
    let at_most = spnego().step(&vec![0; TOKEN_MAX]);
    assert!(!matches!(at_most, Accept::Denied(DenyReason::PeerTokenLength(_))));
}

#[test]
fn an_authenticator_of_another_client_than_the_tickets_is_refused() {
    for encryption in ENCRYPTIONS {
        let token = recorded(&format!("{encryption} request"));
        let request = gss::ap_req(&token).unwrap();
        let (key, mut ticket) = ticket(encryption);
        assert!(open_authenticator(&request, &key, &ticket).is_ok(), "{encryption}");
        let owner = ticket.client.clone();
        ticket.client.components = vec!["bob".to_owned()];
        let refused = open_authenticator(&request, &key, &ticket).unwrap_err();
        assert_eq!(refused, TicketFault::PeerAuthenticator, "{encryption}: another name");
        ticket.client = owner;
        ticket.client.realm = "ELSEWHERE.TEST".to_owned();
        let refused = open_authenticator(&request, &key, &ticket).unwrap_err();
        assert_eq!(refused, TicketFault::PeerAuthenticator, "{encryption}: another realm");
    }
}

#[test]
fn a_ticket_needs_the_key_it_was_made_with() {
    let token = recorded("aes256-cts request");
    let with = |change: fn(&mut KeytabEntry)| {
        let mut keytab = Keytab::clone(&keytab());
        keytab.entries.iter_mut().for_each(change);
        let service = Arc::new(KerberosService::new());
        let acceptor = KerberosAcceptor::new(service, Arc::new(keytab), users(), fresh(0));
        finish(acceptor, &token)
    };
    with(|entry| entry.principal.components[1].make_ascii_uppercase()).unwrap();
    let wrong = |entry: &mut KeytabEntry| entry.key = Key::new(entry.encryption, &[1; 32]);
    assert_eq!(fault(with(wrong)), TicketFault::PeerSeal);
    let elsewhere = |entry: &mut KeytabEntry| entry.principal.components[0] = "http".to_owned();
    assert_eq!(fault(with(elsewhere)), TicketFault::PeerService);
    let encryption = EncryptionType::AES256_SHA1;
    let missing = TicketFault::ConfigKey { version: 1, encryption };
    assert_eq!(fault(with(|entry| entry.version = 2)), missing);
    assert_eq!(fault(with(|entry| entry.encryption = EncryptionType::AES128_SHA1)), missing);
}

#[test]
fn the_low_bits_of_a_version_count_where_no_others_were_written() {
    let entry = |version, is_version_short| {
        let entry = keytab().entries[0].clone();
        KeytabEntry { version, is_version_short, ..entry }
    };
    assert!(entry(2, true).has_version(Some(258)) && entry(2, true).has_version(None));
    assert!(!entry(2, false).has_version(Some(258)) && entry(258, false).has_version(Some(258)));
}

#[test]
fn one_service_of_a_keytab_may_be_the_only_one() {
    let token = recorded("aes256-cts request");
    let only = |text| {
        let principal = Some(Principal::parse(text).unwrap());
        Arc::new(KerberosService { principal, ..KerberosService::new() })
    };
    finish(acceptor(&only("cifs/aes256-cts.test@LANDFAST.TEST"), 0), &token).unwrap();
    let other = only("cifs/aes128-cts.test@LANDFAST.TEST");
    assert_eq!(fault(finish(acceptor(&other, 0), &token)), TicketFault::PeerService);
}

#[test]
fn a_cipher_that_is_not_spoken_is_named() {
    let mut token = recorded("aes256-cts request");
    // The first a0 { 02 01 12 }: the ticket's encryption.
    let at = token.windows(5).position(|window| window == [0xa0, 3, 2, 1, 18]).unwrap();
    token[at + 4] = 23;
    let encryption = EncryptionType::RC4;
    assert_eq!(fault(accept(&token, 0)), TicketFault::PeerEncryption(encryption));
}

#[test]
fn an_owner_who_is_no_user_stays_outside_unless_listed() {
    let token = recorded("aes256-cts request");
    let with = |users: &[&str]| {
        let users = users.iter().map(|&user| user.to_owned()).collect();
        let service = Arc::new(KerberosService { users, ..KerberosService::new() });
        let nobody = Arc::new(UserList::new());
        finish(KerberosAcceptor::new(service, keytab(), nobody, fresh(0)), &token)
    };
    assert_eq!(fault(with(&[])), TicketFault::PeerUser);
    assert_eq!(fault(with(&["bob"])), TicketFault::PeerUser);
    with(&["alice"]).unwrap();
    with(&["*"]).unwrap();
}

#[test]
fn an_owner_that_is_refused_takes_no_room_of_the_replay_cache() {
    let token = recorded("aes256-cts request");
    let service = Arc::new(KerberosService::new());
    let nobody = Arc::new(UserList::new());
    let refused = KerberosAcceptor::new(Arc::clone(&service), keytab(), nobody, fresh(0));
    assert_eq!(fault(finish(refused, &token)), TicketFault::PeerUser);
    finish(acceptor(&service, 0), &token).unwrap();
    assert_eq!(fault(finish(acceptor(&service, 0), &token)), TicketFault::PeerReplay);
}

#[test]
fn the_users_are_asked_for_every_genuine_ticket_and_for_no_other() {
    #[derive(Debug, Default)]
    struct Asked(std::sync::Mutex<Vec<String>>);
    impl UserStore for Asked {
        fn lookup(&self, user: &str, domain: &str) -> Option<Credentials> {
            self.0.lock().unwrap().push(format!("{user}@{domain}"));
            None
        }
    }
    let asked = Arc::new(Asked::default());
    let users = ["*".to_owned()].into();
    let service = Arc::new(KerberosService { users, ..KerberosService::new() });
    let mut forged = recorded("aes256-cts request");
    let last = forged.len() - 1;
    forged[last] ^= 1;
    for token in [forged, recorded("aes256-cts request")] {
        let users = Arc::clone(&asked) as Arc<dyn UserStore>;
        let _ =
            finish(KerberosAcceptor::new(Arc::clone(&service), keytab(), users, fresh(0)), &token);
    }
    assert_eq!(*asked.0.lock().unwrap(), ["alice@LANDFAST.TEST"]);
}

#[test]
fn every_changed_byte_of_sealed_parts_is_detected() {
    let token = recorded("aes256-cts request");
    let request = gss::ap_req(&token).unwrap();
    let place = |part: &[u8]| token.windows(part.len()).position(|window| window == part).unwrap();
    let [ticket, proof] = [request.ticket.part.cipher, request.authenticator.cipher];
    for (start, len) in [(place(ticket), ticket.len()), (place(proof), proof.len())] {
        for at in start..start + len {
            let mut changed = token.clone();
            changed[at] ^= 0x20;
            let fault = fault(accept(&changed, 0));
            assert!(
                matches!(fault, TicketFault::PeerSeal | TicketFault::PeerAuthenticator),
                "byte {at}: {fault}"
            );
        }
    }
}

#[test]
fn an_owner_of_another_realm_and_a_service_are_no_users() {
    let service = Principal::parse("cifs/files@R").unwrap();
    let owner = |text| {
        let client = Principal::parse(text).unwrap();
        acceptor::owner(&client, &service).map(str::to_owned)
    };
    assert_eq!(owner("alice@R"), Ok("alice".to_owned()));
    assert_eq!(owner("alice@r"), Err(TicketFault::PeerRealm));
    assert_eq!(owner("alice/admin@R"), Err(TicketFault::PeerUser));
    assert_eq!(owner(r"alice\@EXAMPLE@R"), Err(TicketFault::PeerUser));
}

fn spnego() -> SpnegoAcceptor {
    let config = Arc::new(AcceptorConfig::new("landfast"));
    let ntlm = Freshness { challenge: [1; 8], now_filetime: 0x01dd_0000_0000_0000 };
    let kerberos = acceptor(&Arc::new(KerberosService::new()), 0);
    SpnegoAcceptor::new(config, users(), ntlm).with_kerberos(kerberos)
}

#[test]
fn a_first_token_with_a_ticket_is_answered_by_the_last_one() {
    let accepted = finish(spnego(), &recorded("aes256-cts spnego")).unwrap();
    let answer = NegTokenResp::parse(&accepted.token).unwrap();
    assert_eq!(answer.state, Some(NegState::COMPLETED));
    assert_eq!(answer.choice, Some(Mechanism::Kerberos));
    assert_eq!(answer.mech_list_mic, None);
    subkey_of(&answer.token.unwrap(), &ticket("aes256-cts").0);
    // And without SPNEGO around it.
    let accepted = finish(spnego(), &recorded("aes256-cts request")).unwrap();
    subkey_of(&accepted.token, &ticket("aes256-cts").0);
}

#[test]
fn kerberos_further_down_the_list_comes_with_proof_of_the_list_from_both_sides() {
    // 1.2.3 before Kerberos, and a token for it.
    let mechanisms = [wrap(OBJECT_ID, &[0x2a, 3]), wrap(OBJECT_ID, KERBEROS_OID)].concat();
    let mech_list = wrap(SEQUENCE, &mechanisms);
    let fields = [wrap(context(0), &mech_list), wrap(context(2), &wrap(4, b"for another"))];
    let init = wrap(context(0), &wrap(SEQUENCE, &fields.concat()));
    let first = wrap(APPLICATION_0, &[wrap(OBJECT_ID, &[0x2b, 6, 1, 5, 5, 2]), init].concat());
    let request = Some(recorded("aes256-cts request"));
    let second = NegTokenResp { token: request, ..NegTokenResp::default() }.emit();
    for is_right in [true, false] {
        let mut server = spnego();
        let Accept::Continue(answer) = server.step(&first) else { panic!() };
        let answer = NegTokenResp::parse(&answer).unwrap();
        assert_eq!(answer.state, Some(NegState::REQUEST_MIC));
        assert_eq!(answer.choice, Some(Mechanism::Kerberos));
        let Accept::Continue(answer) = server.step(&second) else { panic!() };
        let answer = NegTokenResp::parse(&answer).unwrap();
        assert_eq!(answer.state, Some(NegState::INCOMPLETE));
        let (subkey, _) = subkey_of(&answer.token.unwrap(), &ticket("aes256-cts").0);
        // RFC 4121 §4.2.6.1, with the acceptor's subkey and from either side.
        let signed = |flags: u8, usage, text: &[u8]| {
            let mut head = [0xff; 16];
            head[..3].copy_from_slice(&[4, 4, flags]);
            head[8..].copy_from_slice(&0x7fff_ffff_u64.to_be_bytes());
            [&head[..], &subkey.checksum(usage, &[text, &head])].concat()
        };
        let ours = signed(5, Usage::ACCEPTOR_SIGN, &mech_list);
        assert_eq!(answer.mech_list_mic, Some(ours));
        let list = if is_right { &mech_list } else { &first };
        let theirs = Some(signed(4, Usage::INITIATOR_SIGN, list));
        let last = NegTokenResp { mech_list_mic: theirs, ..NegTokenResp::default() }.emit();
        match finish(server, &last) {
            Ok(accepted) => {
                assert!(is_right);
                let answer = NegTokenResp::parse(&accepted.token).unwrap();
                assert_eq!(answer.state, Some(NegState::COMPLETED));
            }
            Err(reason) => {
                assert_eq!((is_right, reason), (false, DenyReason::PeerMessageAltered));
            }
        }
    }
}

#[test]
fn a_token_after_the_end_is_out_of_sequence() {
    let mut server = acceptor(&Arc::new(KerberosService::new()), 0);
    let token = recorded("aes256-cts request");
    assert!(matches!(server.step(&token), Accept::Done(_)));
    assert!(matches!(server.step(&token), Accept::Denied(DenyReason::PeerOutOfSequence)));
}

#[test]
fn a_keytab_holds_what_mit_has_written_and_no_cut_one_is_taken() {
    let bytes = recorded("keytab");
    let keytab = Keytab::parse(&bytes).unwrap();
    let names: Vec<_> = keytab.entries.iter().map(|entry| entry.principal.to_string()).collect();
    assert_eq!(names[1], "cifs/aes256-cts.test@LANDFAST.TEST");
    let kinds: Vec<_> = keytab.entries.iter().map(|entry| entry.encryption.0).collect();
    assert_eq!(kinds, [17, 18, 19, 20]);
    assert!(keytab.is_usable() && keytab.entries.iter().all(|entry| entry.version == 1));
    let whole = (0..bytes.len()).filter(|len| Keytab::parse(&bytes[..*len]).is_ok()).count();
    assert_eq!(whole, 4, "only at the end of an entry, and at the beginning");
    assert!(matches!(Keytab::parse(&[5, 1, 0]), Err(KeytabError::ConfigOld)));
    assert!(matches!(Keytab::parse(b"text"), Err(KeytabError::ConfigMagic)));
    // A hole is passed over.
    let hole = [&bytes[..2], &[0xff, 0xff, 0xff, 0xfe, 1, 1], &bytes[2..]].concat();
    assert_eq!(Keytab::parse(&hole).unwrap().entries.len(), 4);
}

proptest! {
    #[test]
    fn hostile_tokens_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        truncate in any::<bool>(),
        wrapped in any::<bool>(),
    ) {
        let name = if wrapped { "aes256-cts spnego" } else { "aes256-cts request" };
        let mut token = recorded(name);
        for (at, value) in &changes {
            let at = at.index(token.len());
            token[at] = *value;
        }
        if truncate {
            token.truncate(cut.index(token.len()));
        }
        let _ = spnego().step(&token);
    }

    #[test]
    fn hostile_insides_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let token = recorded("aes256-cts request");
        let request = gss::ap_req(&token).unwrap();
        let mut opened = open_ticket(&keytab(), None, &request.ticket).unwrap().to_vec();
        for (at, value) in &changes {
            let at = at.index(opened.len());
            opened[at] = *value;
        }
        look_inside(&opened);
    }
}

#[test]
fn the_longest_skew_is_a_day() {
    let clock = Clock::new(FileTime(u64::MAX), Duration::MAX);
    assert!(clock.skew == 86_400 && clock.now > 0);
}
