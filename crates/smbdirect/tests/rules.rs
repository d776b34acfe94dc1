//! A connection whose peer breaks a rule ends with the right reason and sends nothing more.

#![cfg(test)]

mod support;

use std::time::Instant;

use smbdirect::{Blame, CloseReason, Config, Connection, KEEPALIVE_TIMEOUT, SendError};
use support::{Endpoint, Sent, Wire};

/// The acceptor's connection after the negotiation; its initiator sends nothing more.
fn established() -> (Connection, Instant) {
    let mut wire = Wire::establish([Config::default(), Config::default()]);
    wire.settle();
    let [_, acceptor] = wire.ends;
    (acceptor.connection, wire.now)
}

/// Requested, granted, flags, remaining, offset, length, then as many bytes.
fn message(fields: (u16, u16, u16, u32, u32, u32), payload: usize) -> Vec<u8> {
    let (requested, granted, flags, remaining, offset, length) = fields;
    let mut bytes = Vec::new();
    for field in [requested, granted, flags, 0] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    for field in [remaining, offset, length] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    if payload > 0 {
        bytes.resize(24 + payload, 0x5a);
    }
    bytes
}

fn dropped_for(messages: &[Vec<u8>]) -> CloseReason {
    let (mut connection, now) = established();
    let (last, before) = messages.split_last().unwrap();
    for message in before {
        assert_eq!(connection.handle_receive(now, message), Ok(None));
    }
    let reason = connection.handle_receive(now, last).unwrap_err();
    assert_eq!(reason.blame(), Blame::Peer);
    assert_eq!(connection.closed(), Some(reason));
    let good = message((1, 1, 0, 0, 24, 8), 8);
    assert_eq!(connection.handle_receive(now, &good), Err(reason), "it stays closed");
    assert_eq!(connection.handle_timeout(now), Err(reason));
    assert_eq!(connection.poll_transmit(&mut [0; 8192]), None, "nothing is sent any more");
    assert_eq!(connection.poll_timeout(), None);
    let unsent = connection.send(vec![1], None).unwrap_err();
    assert_eq!((unsent.reason, unsent.message), (SendError::Closed(reason), vec![1]));
    reason
}

#[test]
fn each_broken_rule_of_a_data_transfer_has_its_reason() {
    let one = |fields, payload| dropped_for(&[message(fields, payload)]);
    assert_eq!(dropped_for(&[vec![1; 19]]), CloseReason::PeerTruncated { need: 20, got: 19 });
    assert_eq!(dropped_for(&[vec![1; 8193]]), CloseReason::PeerOversized { got: 8193, max: 8192 });
    assert_eq!(one((0, 0, 0, 0, 0, 0), 0), CloseReason::PeerRequestsNoCredits);
    assert_eq!(one((1, 0, 0, 0, 20, 0), 0), CloseReason::PeerMisaligned(20));
    assert_eq!(one((1, 0, 0, 0, 8, 4), 8), CloseReason::PeerPayloadInHeader(8));
    assert_eq!(
        one((1, 0, 0, 0, 24, u32::MAX), 8),
        CloseReason::PeerPayloadBeyondEnd { end: 24 + u64::from(u32::MAX), got: 32 }
    );
    assert_eq!(one((1, 0, 0, 5, 0, 0), 0), CloseReason::PeerEmptyFragment(5));
    assert_eq!(
        one((1, 0, 0, u32::MAX, 24, 8), 8),
        CloseReason::PeerFragmentedTooLong { total: 8 + u64::from(u32::MAX), max: 1_044_480 }
    );
}

#[test]
fn a_fragment_that_does_not_follow_the_one_before_is_dropped() {
    let first = message((1, 0, 0, 100, 24, 8), 8);
    let other = message((1, 0, 0, 100, 24, 8), 8);
    let mismatch = CloseReason::PeerFragmentMismatch { expected: 100, claimed: 108 };
    assert_eq!(dropped_for(&[first, other]), mismatch);
}

#[test]
fn a_peer_that_sends_more_than_it_was_granted_is_dropped() {
    // 255 buffers, one of them in reserve, one used by the initiator's first grant.
    let messages = vec![message((255, 0, 0, 0, 0, 0), 0); 254];
    assert_eq!(dropped_for(&messages), CloseReason::PeerWithoutCredit);
}

/// Lets the peer use every credit that it has, without posting a buffer again.
fn drain(end: &mut Endpoint, now: Instant) {
    while end.connection.receive_credits() > 0 {
        let empty = Sent { bytes: message((255, 0, 0, 0, 0, 0), 0), invalidate: None };
        end.deliver(now, &empty).unwrap();
    }
}

#[test]
fn the_last_credit_is_not_spent_on_a_message_that_grants_nothing() {
    let mut wire = Wire::establish([Config::default(), Config::default()]);
    wire.settle();
    let acceptor = &mut wire.ends[1];
    let mut out = vec![0; 8192];
    for _ in 0..600 {
        acceptor.connection.send(vec![7], None).unwrap();
    }
    // Two buffers are left, and a peer without credits gets both, one after the other.
    for _ in 0..2 {
        drain(acceptor, wire.now);
        assert!(acceptor.connection.poll_transmit(&mut out).is_some());
        assert_eq!(out[2], 1);
    }
    drain(acceptor, wire.now);
    while acceptor.connection.poll_transmit(&mut out).is_some() {
        assert_eq!(out[2], 0, "nothing is left to grant");
    }
    assert_eq!(acceptor.connection.send_credits(), 1, "the last one is kept");
    acceptor.repost(1);
    assert!(acceptor.connection.poll_transmit(&mut out).is_some());
    assert_eq!((out[2], acceptor.connection.send_credits()), (1, 0));
}

#[test]
fn a_requested_answer_is_sent_once_and_requests_none() {
    let (mut connection, now) = established();
    let asks = message((255, 0, 1, 0, 0, 0), 0);
    assert_eq!(connection.handle_receive(now, &asks), Ok(None));
    let mut out = vec![0; 8192];
    assert_eq!(connection.poll_transmit(&mut out).unwrap().len, 20);
    assert_eq!(out[4], 0);
    assert_eq!(connection.poll_transmit(&mut out), None);
}

#[test]
fn the_silence_of_a_peer_without_credits_is_a_local_fault() {
    let mut wire = Wire::establish([Config::default(), Config::default()]);
    wire.settle();
    let acceptor = &mut wire.ends[1];
    drain(acceptor, wire.now);
    let asked = acceptor.connection.poll_timeout().unwrap();
    acceptor.connection.handle_timeout(asked).unwrap();
    let reason = acceptor.connection.handle_timeout(asked + KEEPALIVE_TIMEOUT).unwrap_err();
    assert_eq!((reason, reason.blame()), (CloseReason::LocalReceivesWithheld, Blame::Local));
}

#[test]
fn a_connection_closed_by_the_caller_has_that_reason() {
    let (mut connection, now) = established();
    connection.close();
    assert_eq!(connection.closed(), Some(CloseReason::LocalClosed));
    let good = message((1, 1, 0, 0, 24, 8), 8);
    assert_eq!(connection.handle_receive(now, &good), Err(CloseReason::LocalClosed));
}
