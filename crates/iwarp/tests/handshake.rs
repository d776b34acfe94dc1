//! Two start-up machines and a virtual wire, and peers that break the rules of the start-up.

#![cfg(test)]

mod support;

use std::time::{Duration, Instant};

use iwarp::mpa::{
    Attempt, EnhancedRepr, Initiator, MpaError, ReadyKind, ReadySet, Responder, Revision,
    StartConfig, StartFlags, StartKind, StartRepr,
};
use iwarp::rdmap::TerminateCode;
use iwarp::{Agreement, Indication, Role, Stream};
use support::{profile, take};

const ATTEMPTS: [Attempt; 3] = [Attempt::CLIENT_SERVER, Attempt::PEER_TO_PEER, Attempt::UNENHANCED];

fn dial(config: StartConfig, attempt: Attempt) -> (Initiator, Vec<u8>) {
    let mut initiator = Initiator::new(config, attempt, b"dialled", Instant::now()).unwrap();
    let request = initiator.poll_transmit().unwrap();
    assert_eq!(initiator.poll_transmit(), None, "the Request goes out once");
    (initiator, request)
}

fn asked(config: StartConfig, request: &[u8]) -> Responder {
    let mut responder = Responder::new(config, Instant::now()).unwrap();
    assert_eq!(responder.handle_bytes(request), request.len());
    responder
}

fn agree(ours: StartConfig, theirs: StartConfig, attempt: Attempt) -> [Agreement; 2] {
    let (mut initiator, request) = dial(ours, attempt);
    let mut responder = asked(theirs, &request);
    assert_eq!(responder.request().unwrap().private_data, b"dialled");
    let accepted = responder.accept(b"listened").unwrap();
    let reply = responder.poll_transmit().unwrap();
    assert_eq!(initiator.handle_bytes(&reply), reply.len());
    assert_eq!(initiator.private_data(), b"listened");
    assert_eq!((initiator.poll_timeout(), responder.poll_timeout()), (None, None));
    [initiator.outcome().unwrap().unwrap(), accepted]
}

fn reply(flags: StartFlags, revision: Revision, private_data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    StartRepr { kind: StartKind::Reply, flags, revision, private_data }.emit(&mut out).unwrap();
    out
}

fn answered(attempt: Attempt, reply: &[u8]) -> Initiator {
    let (mut initiator, _) = dial(StartConfig::default(), attempt);
    assert_eq!(initiator.handle_bytes(reply), reply.len());
    initiator
}

#[test]
fn every_form_leads_to_the_same_stream_at_both_ends() {
    for attempt in ATTEMPTS {
        let [ours, theirs] = agree(StartConfig::default(), StartConfig::default(), attempt);
        assert_eq!((ours.role, theirs.role), (Role::Initiator, Role::Responder));
        assert_eq!(ours, Agreement { role: Role::Initiator, ..theirs });
        let ready = (attempt == Attempt::PEER_TO_PEER).then_some(ReadyKind::Write);
        assert_eq!((ours.ready, ours.ird, ours.ord, ours.crc), (ready, 32, 32, true));
    }
}

#[test]
fn crc_is_off_only_if_both_ends_ask_for_it() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let config = |crc| StartConfig { crc, ..StartConfig::default() };
        let [initiator, responder] = agree(config(ours), config(theirs), Attempt::CLIENT_SERVER);
        assert_eq!((initiator.crc, responder.crc), (ours || theirs, ours || theirs));
    }
}

#[test]
fn agreed_depths_follow_the_smaller_end() {
    let config = |ird, ord| StartConfig { ird, ord, ..StartConfig::default() };
    let [ours, theirs] = agree(config(4, 40), config(16, 2), Attempt::CLIENT_SERVER);
    assert_eq!((ours.ord, theirs.ird), (16, 16));
    assert_eq!((theirs.ord, ours.ird), (2, 4));
}

#[test]
fn a_ready_read_gets_a_credit_of_its_own() {
    let config = StartConfig { ord: 0, ..StartConfig::default() };
    let attempt = Attempt { ready: ReadySet::READ, ..Attempt::PEER_TO_PEER };
    let [ours, theirs] = agree(config, StartConfig::default(), attempt);
    assert_eq!((theirs.ready, theirs.ird), (Some(ReadyKind::Read), 1));
    let (mut ours, mut theirs) = (Stream::new(&ours, 1460), Stream::new(&theirs, 1460));
    let mut out = [0; 128];
    assert!(ours.frame_kick(&mut out).is_err(), "the ready message goes first");
    let size = ours.frame_ready(&mut out).unwrap();
    assert!(matches!(take(&mut theirs, &out[..size]), Indication::ReadRequest(_)));
    let framed = theirs.frame_read_response(&mut out, support::copy(&[])).unwrap();
    assert_eq!(take(&mut ours, &out[..framed.size]), Indication::Ready);
    assert_eq!((ours.outstanding(), theirs.unanswered()), (0, 0));
}

#[test]
fn a_ready_send_takes_a_message_number_and_no_receive() {
    let attempt = Attempt { ready: ReadySet::SEND, ..Attempt::PEER_TO_PEER };
    let [ours, theirs] = agree(StartConfig::default(), StartConfig::default(), attempt);
    let (mut ours, mut theirs) = (Stream::new(&ours, 1460), Stream::new(&theirs, 1460));
    let mut out = [0; 128];
    let size = ours.frame_ready(&mut out).unwrap();
    assert_eq!(take(&mut theirs, &out[..size]), Indication::Ready);
    let size = ours.frame_immediate(&mut out, 7, false).unwrap();
    let next = Indication::Immediate { msn: 2, data: 7, solicited: false };
    assert_eq!(take(&mut theirs, &out[..size]), next);
}

#[test]
fn a_stream_is_extended_only_if_both_ends_announced_a_profile() {
    let with = StartConfig { profile: Some(profile(65536)), ..StartConfig::default() };
    let without = StartConfig::default();
    let extended = |ours, theirs| {
        agree(ours, theirs, Attempt::CLIENT_SERVER).map(|agreement| agreement.is_extended())
    };
    assert_eq!(extended(with, with), [true, true]);
    assert_eq!(extended(with, without), [false, false]);
    assert_eq!(extended(without, with), [false, false]);
    assert_eq!(extended(without, without), [false, false]);
}

#[test]
fn private_data_is_delivered_up_to_512_bytes_and_refused_beyond() {
    let now = Instant::now();
    let dial =
        |len| Initiator::new(StartConfig::default(), Attempt::UNENHANCED, &vec![7; len], now);
    let request = dial(512).unwrap().poll_transmit().unwrap();
    let responder = asked(StartConfig::default(), &request);
    assert_eq!(responder.request().unwrap().private_data, [7; 512]);
    let refused = MpaError::ConfigPrivateDataTooLong { got: 513, limit: 512 };
    assert_eq!(dial(513).unwrap_err(), refused);
    let attempt = Attempt::CLIENT_SERVER;
    let enhanced = Initiator::new(StartConfig::default(), attempt, &[7; 509], now).unwrap_err();
    assert_eq!(enhanced, MpaError::ConfigPrivateDataTooLong { got: 509, limit: 508 });
}

#[test]
fn a_rejection_carries_the_reason_of_the_ulp() {
    for attempt in ATTEMPTS {
        let (mut initiator, request) = dial(StartConfig::default(), attempt);
        let mut responder = asked(StartConfig::default(), &request);
        responder.reject(b"no token").unwrap();
        assert_eq!(responder.accept(b""), Err(MpaError::NotDue));
        initiator.handle_bytes(&responder.poll_transmit().unwrap());
        assert_eq!(initiator.outcome(), Some(Err(MpaError::PeerRejected)));
        assert_eq!(initiator.private_data(), b"no token");
    }
}

#[test]
fn a_rejection_in_the_form_of_siw_is_understood() {
    // Captured: siw refuses markers with flags 0x70 and a zeroed word.
    let reply = reply(StartFlags::from_bits_retain(0x70), Revision(2), &[0; 4]);
    let initiator = answered(Attempt::CLIENT_SERVER, &reply);
    assert_eq!(initiator.outcome(), Some(Err(MpaError::PeerRejected)));
    assert_eq!(initiator.peer_depths(), Some((0, 0)));
}

#[test]
fn an_echoed_reserved_bit_is_ignored_and_flag_m_asks_for_markers() {
    // Captured: siw echoes the request's 0x08 in its reply, 0x48 became 0x58.
    let echoed = reply(StartFlags::from_bits_retain(0x58), Revision(2), &[0, 1, 0, 1]);
    let agreement = answered(Attempt::CLIENT_SERVER, &echoed).outcome().unwrap().unwrap();
    assert!(!agreement.markers && agreement.crc);
    let marked = reply(StartFlags::from_bits_retain(0x90), Revision(2), &[0, 1, 0, 1]);
    let agreement = answered(Attempt::CLIENT_SERVER, &marked).outcome().unwrap().unwrap();
    assert!(agreement.markers);
}

#[test]
fn a_reply_in_another_form_is_refused() {
    let plain = StartFlags::empty();
    let cases = [
        (
            Attempt::CLIENT_SERVER,
            reply(plain, Revision(1), &[]),
            MpaError::PeerRevision(Revision(1)),
        ),
        (Attempt::UNENHANCED, reply(plain, Revision(2), &[]), MpaError::PeerRevision(Revision(2))),
        (
            Attempt::CLIENT_SERVER,
            reply(plain, Revision(2), &[0, 1, 0, 1]),
            MpaError::PeerForm { enhanced: false },
        ),
        (
            Attempt::CLIENT_SERVER,
            reply(StartFlags::ENHANCED, Revision(2), &[0, 1, 0]),
            MpaError::PeerEnhancedTruncated { got: 3 },
        ),
    ];
    for (attempt, reply, error) in cases {
        assert_eq!(answered(attempt, &reply).outcome(), Some(Err(error)));
    }
}

/// The code of the Terminate that the initiator sends before it gives up.
fn last_words(initiator: &mut Initiator) -> TerminateCode {
    let bytes = initiator.poll_transmit().unwrap();
    let mut peer = Stream::new(&Agreement::plain(Role::Responder, 1, 1), 1460);
    match take(&mut peer, &bytes) {
        Indication::Terminate(terminate) => terminate.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn depths_beyond_our_limits_are_answered_with_a_terminate() {
    let word = EnhancedRepr { ready: None, ird: 1, ord: 33 };
    let reply = reply(StartFlags::ENHANCED, Revision(2), &word.emit());
    let mut initiator = answered(Attempt::CLIENT_SERVER, &reply);
    assert_eq!(initiator.outcome(), Some(Err(MpaError::PeerOrd { ord: 33, ird: 32 })));
    assert_eq!(last_words(&mut initiator), TerminateCode::MPA_INSUFFICIENT_IRD);
}

#[test]
fn depths_left_to_the_ulp_leave_our_depths_unchanged() {
    let by_ulp = EnhancedRepr::BY_ULP;
    let word = EnhancedRepr { ready: None, ird: by_ulp, ord: by_ulp };
    let bytes = reply(StartFlags::ENHANCED, Revision(2), &word.emit());
    let agreement = answered(Attempt::CLIENT_SERVER, &bytes).outcome().unwrap().unwrap();
    assert_eq!((agreement.ird, agreement.ord), (32, 32));
    let mut request = Vec::new();
    let (kind, revision) = (StartKind::Request, Revision(2));
    let flags = StartFlags::ENHANCED;
    let private_data = &word.emit();
    StartRepr { kind, flags, revision, private_data }.emit(&mut request).unwrap();
    let mut responder = asked(StartConfig::default(), &request);
    responder.accept(&[]).unwrap();
    assert_eq!(responder.poll_transmit().unwrap()[20..], word.emit());
}

#[test]
fn no_ready_message_in_common_is_answered_with_a_terminate() {
    for ready in [None, Some(ReadySet::SEND), Some(ReadySet::empty())] {
        let word = EnhancedRepr { ready, ird: 1, ord: 1 };
        let reply = reply(StartFlags::ENHANCED, Revision(2), &word.emit());
        let mut initiator = answered(Attempt::PEER_TO_PEER, &reply);
        assert_eq!(initiator.outcome(), Some(Err(MpaError::PeerNoCommonReady)));
        assert_eq!(last_words(&mut initiator), TerminateCode::MPA_NO_COMMON_READY);
    }
}

#[test]
fn a_responder_without_a_common_ready_message_proposes_one_it_supports() {
    let config = StartConfig { ird: 0, ..StartConfig::default() };
    let attempt = Attempt { ready: ReadySet::READ, ..Attempt::PEER_TO_PEER };
    let (_, request) = dial(StartConfig::default(), attempt);
    let agreement = asked(config, &request).accept(&[]).unwrap();
    assert_eq!(agreement.ready, Some(ReadyKind::Write));
}

#[test]
fn silence_fails_at_the_deadline_and_not_before() {
    let now = Instant::now();
    let config = StartConfig::default();
    let deadline = now + config.timeout;
    let early = deadline - Duration::from_nanos(1);
    let mut initiator = Initiator::new(config, Attempt::CLIENT_SERVER, &[], now).unwrap();
    let request = initiator.poll_transmit().unwrap();
    assert_eq!(initiator.poll_timeout(), Some(deadline));
    initiator.handle_timeout(early);
    assert_eq!(initiator.outcome(), None);
    initiator.handle_timeout(deadline);
    assert_eq!(initiator.outcome(), Some(Err(MpaError::PeerTimeout)));

    let mut responder = Responder::new(config, now).unwrap();
    responder.handle_timeout(early);
    assert_eq!(responder.outcome(), None);
    responder.handle_bytes(&request);
    responder.handle_timeout(deadline);
    assert_eq!(responder.outcome(), Some(Err(MpaError::UlpTimeout)), "the ULP sat on it");
    let mut responder = Responder::new(config, now).unwrap();
    responder.handle_bytes(&request[..23]);
    responder.handle_timeout(deadline);
    assert_eq!(responder.outcome(), Some(Err(MpaError::PeerTimeout)));
}

#[test]
fn bytes_before_they_are_due_end_the_start_up() {
    let (_, mut request) = dial(StartConfig::default(), Attempt::CLIENT_SERVER);
    request.push(0);
    let mut responder = Responder::new(StartConfig::default(), Instant::now()).unwrap();
    assert_eq!(responder.handle_bytes(&request), request.len() - 1);
    let early = MpaError::PeerSpokeEarly { got: 1 };
    assert_eq!(responder.outcome(), Some(Err(early)));
}

#[test]
fn an_initiator_takes_the_reply_and_no_byte_behind_it() {
    let (mut initiator, _) = dial(StartConfig::default(), Attempt::UNENHANCED);
    let mut bytes = reply(StartFlags::empty(), Revision(1), b"hi");
    let len = bytes.len();
    bytes.extend_from_slice(&[0; 8]);
    assert_eq!(initiator.handle_bytes(&bytes), len);
    assert_eq!(initiator.handle_bytes(&bytes[len..]), 0);
}

#[test]
fn foreign_keys_foreign_revisions_and_a_closed_connection_give_different_errors() {
    let failed = |bytes: &[u8]| {
        let mut responder = Responder::new(StartConfig::default(), Instant::now()).unwrap();
        responder.handle_bytes(bytes);
        assert_eq!(responder.poll_transmit(), None, "nothing is answered");
        responder.outcome()
    };
    assert_eq!(failed(b"\x00\x00\x00\x45\xfeSMB"), Some(Err(MpaError::PeerKey)));
    assert_eq!(failed(b"MPA ID Rep Frame"), Some(Err(MpaError::PeerIsResponder)));
    for revision in [0, 3] {
        let mut request = b"MPA ID Req Frame\x00\x00\x00\x00".to_vec();
        request[17] = revision;
        let refused = MpaError::PeerRevision(Revision(revision));
        assert_eq!(failed(&request), Some(Err(refused)));
    }
    let (mut initiator, request) = dial(StartConfig::default(), Attempt::UNENHANCED);
    initiator.handle_bytes(&request);
    assert_eq!(initiator.outcome(), Some(Err(MpaError::PeerIsInitiator)));
    let (mut initiator, _) = dial(StartConfig::default(), Attempt::UNENHANCED);
    initiator.handle_close();
    assert_eq!(initiator.outcome(), Some(Err(MpaError::PeerClosed)));
}

#[test]
fn configured_depths_beyond_fourteen_bits_are_refused() {
    let config = StartConfig { ord: 0x3fff, ..StartConfig::default() };
    assert_eq!(Responder::new(config, Instant::now()).unwrap_err(), MpaError::ConfigDepth(0x3fff));
}
