//! What a connection does with messages longer than a receive buffer: how they are cut, and how long their memory stays.

#![cfg(test)]

mod support;

use smbdirect::Config;
use support::Wire;

/// Bytes before the payload of a message that has any: MS-SMBD §2.2.3, aligned to 8.
const HEAD: usize = 24;

fn idle() -> Wire {
    let mut wire = Wire::establish([Config::default(), Config::default()]);
    wire.settle();
    wire
}

#[test]
fn a_long_message_leaves_in_sends_as_large_as_agreed() {
    let mut wire = idle();
    let agreed = 8192;
    wire.ends[0].connection.send(vec![7; 2 * (agreed - HEAD) + 1], None).unwrap();
    let mut lengths = Vec::new();
    while wire.transmit(0) {
        lengths.push(wire.towards[1].back().unwrap().bytes.len());
    }
    assert_eq!(lengths, [agreed, agreed, HEAD + 1]);
}

#[test]
fn a_message_counts_as_queued_until_its_last_fragment_has_left() {
    let mut wire = idle();
    assert_eq!(wire.ends[0].connection.queued(), 0);
    wire.ends[0].connection.send(vec![7; 8192], None).unwrap();
    wire.ends[0].connection.send(vec![8], None).unwrap();
    let mut queued = vec![wire.ends[0].connection.queued()];
    while wire.transmit(0) {
        queued.push(wire.ends[0].connection.queued());
    }
    assert_eq!(queued, [2, 2, 1, 0]);
}

#[test]
fn the_memory_of_fragments_is_freed_once_none_has_come_between_two_calls() {
    let mut wire = idle();
    assert_eq!(wire.ends[1].connection.reassembly_bytes(), 0);
    wire.ends[0].connection.send(vec![7; 20_000], None).unwrap();
    wire.settle();
    let receiver = &mut wire.ends[1].connection;
    assert_eq!(receiver.reassembly_bytes(), 20_000);
    receiver.release_idle();
    assert_eq!(receiver.reassembly_bytes(), 20_000, "a message has come since the start");
    receiver.release_idle();
    assert_eq!(receiver.reassembly_bytes(), 0);
}

#[test]
fn the_memory_of_a_message_half_received_is_never_freed() {
    let mut wire = idle();
    let message: Vec<u8> = (0..20_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    wire.ends[0].connection.send(message.clone(), None).unwrap();
    assert!(wire.transmit(0) && wire.deliver(1));
    for _ in 0..3 {
        wire.ends[1].connection.release_idle();
    }
    wire.settle();
    assert_eq!(wire.ends[1].received, [message]);
}
