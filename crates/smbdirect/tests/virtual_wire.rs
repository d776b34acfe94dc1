//! Whole conversations of two machines over a virtual wire with a virtual clock.

#![cfg(test)]

mod support;

use std::time::Duration;

use proptest::prelude::*;
use smbdirect::{Config, IDLE_TIMEOUT, KEEPALIVE_TIMEOUT, Token};
use support::Wire;

#[derive(Clone, Debug)]
enum Operation {
    Send { side: usize, len: usize, token: Option<u32> },
    Transmit { side: usize },
    Deliver { side: usize },
    Repost { side: usize, count: u16 },
    Advance { millis: u64 },
}

fn operation() -> impl Strategy<Value = Operation> {
    let side = 0..2_usize;
    prop_oneof![
        3 => (side.clone(), 1..3000_usize, any::<Option<u32>>())
            .prop_map(|(side, len, token)| Operation::Send { side, len, token }),
        8 => side.clone().prop_map(|side| Operation::Transmit { side }),
        8 => side.clone().prop_map(|side| Operation::Deliver { side }),
        6 => (side, 1..4_u16).prop_map(|(side, count)| Operation::Repost { side, count }),
        1 => (0..300_000_u64).prop_map(|millis| Operation::Advance { millis }),
    ]
}

/// Few, very large buffers; the agreement makes them small, because the peer's sends are small.
fn tiny_config() -> impl Strategy<Value = Config> {
    (1..8_u16, 3..9_u16, 128..500_u32).prop_map(|(target, buffers, size)| Config {
        send_credit_target: target,
        receive_credit_max: buffers,
        send_size_max: size,
        receive_size_max: 128 << 10,
        fragmented_receive_size_max: 131_072,
        ..Config::default()
    })
}

/// A message whose bytes name its sender and its number.
fn message(side: usize, number: usize, len: usize) -> Vec<u8> {
    let seed = side * 131 + number * 17;
    (0..len).map(|at| u8::try_from((seed + at * 7) % 251).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn messages_arrive_in_order_however_few_the_credits(
        configs in [tiny_config(), tiny_config()],
        operations in prop::collection::vec(operation(), 0..200),
    ) {
        let mut wire = Wire::establish(configs);
        let mut sent: [Vec<(Vec<u8>, Option<Token>)>; 2] = [Vec::new(), Vec::new()];
        for operation in operations {
            match operation {
                Operation::Send { side, len, token } => {
                    let message = message(side, sent[side].len(), len);
                    let token = token.map(Token);
                    wire.ends[side].connection.send(message.clone(), token).unwrap();
                    sent[side].push((message, token));
                }
                Operation::Transmit { side } => { wire.transmit(side); }
                Operation::Deliver { side } => { wire.deliver(side); }
                Operation::Repost { side, count } => wire.ends[side].repost(count),
                Operation::Advance { millis } => wire.advance(Duration::from_millis(millis)),
            }
        }
        wire.settle();
        for side in [0, 1] {
            let end = &wire.ends[1 - side];
            let got: Vec<_> = end.received.iter().cloned().zip(end.invalidated.clone()).collect();
            prop_assert_eq!(&got, &sent[side]);
            prop_assert_eq!(wire.ends[side].connection.queued(), 0);
        }
    }

    #[test]
    fn the_largest_message_passes_the_smallest_buffers_both_ways_at_once(
        configs in [tiny_config(), tiny_config()],
    ) {
        let mut wire = Wire::establish(configs);
        for side in [0, 1] {
            wire.ends[side].connection.send(message(side, 0, 131_072), None).unwrap();
        }
        wire.settle();
        for side in [0, 1] {
            prop_assert_eq!(&wire.ends[1 - side].received, &[message(side, 0, 131_072)]);
        }
        // Empty messages only grant credits: at most about one for each message with payload.
        let [empty, with_payload] = wire.transmitted;
        prop_assert!(empty <= with_payload + 8, "{} empty, {} with payload", empty, with_payload);
    }
}

#[test]
fn two_idle_sides_exchange_one_keepalive_in_two_minutes() {
    let mut wire = Wire::establish([Config::default(), Config::default()]);
    wire.settle();
    let before = wire.transmitted[0];
    wire.advance(IDLE_TIMEOUT * 30);
    let keepalives = wire.transmitted[0] - before;
    assert!((30..=120).contains(&keepalives), "{keepalives} messages in an idle hour");
}

#[test]
fn two_default_sides_at_rest_hold_the_credits_they_requested() {
    let mut wire = Wire::establish([Config::default(), Config::default()]);
    wire.settle();
    for end in &wire.ends {
        assert!(end.connection.send_credits() >= 253, "{}", end.connection.send_credits());
    }
    assert_eq!(wire.transmitted, [1, 0], "the first grant of the initiator");
}

#[test]
fn a_cut_wire_ends_the_connection_after_idle_and_answer_time() {
    let mut wire = Wire::establish([Config::default(), Config::default()]);
    wire.settle();
    let connection = &mut wire.ends[0].connection;
    let asked = connection.poll_timeout().unwrap();
    connection.handle_timeout(asked).unwrap();
    let mut out = vec![0; 8192];
    let keepalive = connection.poll_transmit(&mut out).unwrap();
    assert_eq!((keepalive.len, out[4]), (20, 1), "an empty message that asks for an answer");
    assert_eq!(connection.poll_transmit(&mut out), None, "it asks once");
    let end = asked + KEEPALIVE_TIMEOUT;
    assert_eq!(connection.poll_timeout(), Some(end));
    assert_eq!(connection.handle_timeout(end), Err(smbdirect::CloseReason::PeerSilent));
    assert_eq!(connection.poll_timeout(), None);
}
