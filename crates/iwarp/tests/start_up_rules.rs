//! The terms of a start-up: what the flags of a revision mean, what a Reply says back, when it is over.

#![cfg(test)]

mod support;

use std::time::Instant;

use iwarp::mpa::{
    Attempt, DEPTH_MAX, EnhancedRepr, HashId, Initiator, MpaError, ReadyKind, ReadySet, Responder,
    Revision, StartConfig, StartFlags, StartKind, StartRepr,
};
use iwarp::{Agreement, Role};

fn initiator(attempt: Attempt) -> Initiator {
    let mut initiator =
        Initiator::new(StartConfig::default(), attempt, b"", Instant::now()).unwrap();
    initiator.poll_transmit().unwrap();
    initiator
}

fn responder(config: StartConfig, request: &[u8]) -> Responder {
    let mut responder = Responder::new(config, Instant::now()).unwrap();
    responder.handle_bytes(request);
    responder
}

fn frame(kind: StartKind, flags: StartFlags, revision: Revision, private_data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    StartRepr { kind, flags, revision, private_data }.emit(&mut out).unwrap();
    out
}

fn depths(ready: Option<ReadySet>, ird: u16, ord: u16) -> Vec<u8> {
    EnhancedRepr { ready, ird, ord }.emit().to_vec()
}

#[test]
fn the_depths_of_a_reply_are_told_as_they_were_sent() {
    let mut dialling = initiator(Attempt::CLIENT_SERVER);
    assert_eq!(dialling.peer_depths(), None, "before the Reply");
    let word = depths(None, 7, 9);
    let reply = frame(StartKind::Reply, StartFlags::ENHANCED, Revision::RFC_6581, &word);
    dialling.handle_bytes(&reply);
    assert_eq!(dialling.peer_depths(), Some((7, 9)));
}

#[test]
fn a_ready_read_needs_a_peer_that_takes_reads() {
    for (ird, kind) in [(0, None), (1, Some(ReadyKind::Read))] {
        let mut dialling = initiator(Attempt { ready: ReadySet::READ, ..Attempt::PEER_TO_PEER });
        let word = depths(Some(ReadySet::READ), ird, 1);
        let reply = frame(StartKind::Reply, StartFlags::ENHANCED, Revision::RFC_6581, &word);
        dialling.handle_bytes(&reply);
        let outcome = dialling.outcome().unwrap();
        assert_eq!(outcome.ok().and_then(|agreement| agreement.ready), kind, "IRD {ird}");
    }
}

#[test]
fn the_bit_of_depths_means_nothing_in_revision_1() {
    let (bit, first) = (StartFlags::ENHANCED, Revision::RFC_5044);
    let mut dialling = initiator(Attempt::UNENHANCED);
    dialling.handle_bytes(&frame(StartKind::Reply, bit, first, b"whole data"));
    assert_eq!(dialling.private_data(), b"whole data");
    assert_eq!(dialling.peer_depths(), None);

    let request = frame(StartKind::Request, bit, first, b"whole data");
    let mut asked = responder(StartConfig::default(), &request);
    assert_eq!(asked.request().unwrap().private_data, b"whole data");
    asked.accept(&[]).unwrap();
    assert_eq!(asked.poll_transmit().unwrap().len(), 20, "no depths come back");
}

#[test]
fn revision_2_has_depths_only_with_their_bit() {
    let (none, second) = (StartFlags::empty(), Revision::RFC_6581);
    let mut dialling = initiator(Attempt::CLIENT_SERVER);
    let rejected = StartFlags::REJECTED;
    dialling.handle_bytes(&frame(StartKind::Reply, rejected, second, b"whole data"));
    assert_eq!(dialling.private_data(), b"whole data");

    let asked =
        responder(StartConfig::default(), &frame(StartKind::Request, none, second, b"whole data"));
    assert_eq!(asked.request().unwrap().private_data, b"whole data");
}

#[test]
fn a_reply_demands_crcs_if_either_end_does() {
    for (ours, theirs) in [(false, false), (false, true), (true, false)] {
        let mut flags = StartFlags::empty();
        flags.set(StartFlags::CRC, theirs);
        let request = frame(StartKind::Request, flags, Revision::RFC_5044, &[]);
        let mut asked = responder(StartConfig { crc: ours, ..StartConfig::default() }, &request);
        asked.accept(&[]).unwrap();
        let reply = asked.poll_transmit().unwrap();
        let reply = StartRepr::parse(StartKind::Reply, &reply).unwrap();
        assert_eq!(reply.flags.contains(StartFlags::CRC), ours || theirs);
    }
}

#[test]
fn a_responder_waits_until_its_deadline_or_the_end_of_the_connection() {
    let now = Instant::now();
    let config = StartConfig::default();
    let request = frame(StartKind::Request, StartFlags::empty(), Revision::RFC_5044, &[]);
    for bytes in [&request[..0], &request[..]] {
        let mut waiting = Responder::new(config, now).unwrap();
        waiting.handle_bytes(bytes);
        assert_eq!(waiting.poll_timeout(), Some(now + config.timeout));
        waiting.handle_close();
        assert_eq!(waiting.outcome(), Some(Err(MpaError::PeerClosed)));
        assert_eq!(waiting.poll_timeout(), None);
    }
    let mut accepted = responder(config, &request);
    let agreement = accepted.accept(&[]).unwrap();
    accepted.handle_close();
    assert_eq!(accepted.outcome(), Some(Ok(agreement)), "the start-up was over");
}

#[test]
fn the_largest_depth_may_be_configured() {
    let config = StartConfig { ird: DEPTH_MAX, ord: DEPTH_MAX, ..StartConfig::default() };
    Responder::new(config, Instant::now()).unwrap();
}

#[test]
fn bytes_that_are_no_start_up_frame_are_neither_a_request_nor_a_reply() {
    let mut dialling = initiator(Attempt::UNENHANCED);
    dialling.handle_bytes(b"HTTP/1.1 400 Bad Request");
    assert_eq!(dialling.outcome(), Some(Err(MpaError::PeerKey)));
}

#[test]
fn a_revision_and_a_hash_are_named_by_their_numbers() {
    assert_eq!(Revision(3).to_string(), "MPA revision 3");
    assert_eq!(HashId(9).to_string(), "hash 0x09");
    let agreement = Agreement::plain(Role::Responder, 1, 1);
    assert_eq!(agreement.revision, Revision::RFC_5044);
}
