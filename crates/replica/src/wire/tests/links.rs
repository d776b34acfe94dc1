//! What goes over a link comes out of it.

use std::num::NonZeroU64;
use std::thread;

use log::Lsn;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;

use super::ends::{LONG, listen, listen_with, member, pair, reach};
use crate::format::Extent;
use crate::message::Message;
use crate::names::{Epoch, MemberId};
use crate::wire::codec::tests::message;
use crate::wire::{Link, LinkError, LinkOptions, PAYLOAD_MAX, Receiver, Sender, WireError, dial};

/// Bytes that differ from place to place.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let word = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(word).collect();
    bytes.truncate(len);
    bytes
}

fn records(from: u64, len: u32) -> Message {
    let to = Lsn(from + u64::from(len));
    Message::Records { epoch: Epoch::default(), from: Lsn(from), to, committed: Lsn(0) }
}

fn payload(receiver: &mut Receiver, len: u32) -> Vec<u8> {
    let mut out = vec![0; usize::try_from(len).unwrap()];
    receiver.payload(&mut out).unwrap();
    out
}

#[test]
fn each_message_arrives_as_it_was_sent() {
    let (one, other) = pair();
    let ((mut sender, _other), (_one, mut receiver)) = (one.split(), other.split());
    let mut runner = TestRunner::deterministic();
    let sent: Vec<(Message, u32)> =
        (0..400).map(|_| message().new_tree(&mut runner).unwrap().current()).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            for (seed, (message, len)) in (0..).zip(&sent) {
                let payload = bytes(seed, usize::try_from(*len).unwrap());
                // In parts of any length.
                let (front, back) = payload.split_at(payload.len() / 3);
                let (middle, back) = back.split_at(back.len().min(100));
                sender.send(message, &[front, &[], middle, back]).unwrap();
            }
        });
        for (seed, (message, len)) in (0..).zip(&sent) {
            assert_eq!(&receiver.receive().unwrap(), &(message.clone(), *len));
            let mut expected = &bytes(seed, usize::try_from(*len).unwrap())[..];
            // In pieces of any length.
            while !expected.is_empty() {
                let (piece, rest) = expected.split_at(expected.len().min(50_001));
                assert!(payload(&mut receiver, u32::try_from(piece.len()).unwrap()) == piece);
                expected = rest;
            }
        }
    });
}

fn exchange(mut sender: Sender, mut receiver: Receiver, count: u64) -> (Sender, Receiver) {
    let sends = thread::scope(|scope| {
        let sends = scope.spawn(|| {
            for at in 0..count {
                let payload = bytes(at, usize::try_from(PAYLOAD_MAX).unwrap());
                sender.send(&records(at << 22, PAYLOAD_MAX), &[&payload]).unwrap();
            }
        });
        for at in 0..count {
            assert_eq!(receiver.receive().unwrap(), (records(at << 22, PAYLOAD_MAX), PAYLOAD_MAX));
            let expected = bytes(at, usize::try_from(PAYLOAD_MAX).unwrap());
            assert!(payload(&mut receiver, PAYLOAD_MAX) == expected, "payload {at}");
        }
        sends.join()
    });
    sends.unwrap();
    // The halves live until the other end has all.
    (sender, receiver)
}

#[test]
fn the_longest_payloads_go_both_ways_at_once() {
    let (one, other) = pair();
    let (one, other) = (one.split(), other.split());
    let other = thread::spawn(move || exchange(other.0, other.1, 20));
    let _one = exchange(one.0, one.1, 20);
    other.join().unwrap();
}

#[test]
fn messages_sent_at_once_arrive_in_order() {
    let (one, other) = pair();
    let ((mut sender, _other), (_one, mut receiver)) = (one.split(), other.split());
    let messages: Vec<_> = (0..1000).map(|count| Message::Copied { count }).collect();
    sender.send_all(&messages).unwrap();
    for message in messages {
        assert_eq!(receiver.receive().unwrap(), (message, 0));
    }
    sender.send_all(&[]).unwrap();
    sender.send(&Message::Alive, &[]).unwrap();
    assert_eq!(receiver.receive().unwrap(), (Message::Alive, 0));
}

#[test]
fn a_message_that_is_none_is_not_sent_and_leaves_the_link() {
    let (one, other) = pair();
    let ((mut sender, _other), (_one, mut receiver)) = (one.split(), other.split());
    let refused = sender.send(&records(0, 128), &[&[0; 64]]).unwrap_err();
    let error = WireError::PayloadDiffers { len: 64, expected: 128 };
    assert!(matches!(refused, LinkError::Frame(found) if found == error), "{refused}");
    let refused = sender.send_all(&[Message::Alive, records(0, 64)]).unwrap_err();
    assert!(matches!(refused, LinkError::Frame(_)), "{refused}");
    sender.send(&Message::Following, &[]).unwrap();
    assert_eq!(receiver.receive().unwrap(), (Message::Following, 0));
}

#[test]
fn a_payload_that_is_not_read_ends_the_link() {
    let (one, other) = pair();
    let ((mut sender, _other), (_one, mut receiver)) = (one.split(), other.split());
    sender.send(&records(0, 128), &[&[7; 128]]).unwrap();
    assert_eq!(receiver.receive().unwrap().1, 128);
    assert_eq!(payload(&mut receiver, 100), [7; 100]);
    assert_eq!(receiver.payload_left(), 28);
    let refused = receiver.receive().unwrap_err();
    assert!(matches!(refused, LinkError::PayloadUnread(28)), "{refused}");
    assert!(matches!(receiver.receive(), Err(LinkError::PayloadUnread(_))));
}

#[test]
fn more_of_a_payload_than_there_is_ends_the_link() {
    let (one, other) = pair();
    let ((mut sender, _other), (_one, mut receiver)) = (one.split(), other.split());
    sender.send(&records(0, 64), &[&[7; 64]]).unwrap();
    receiver.receive().unwrap();
    let refused = receiver.payload(&mut [0; 65]).unwrap_err();
    let beyond = matches!(refused, LinkError::PayloadBeyond { wanted: 65, left: 64 });
    assert!(beyond, "{refused}");
}

/// What ends a sender to which nobody listens: at some time it waits.
fn send_until_ended(mut sender: Sender) -> LinkError {
    let payload = vec![7; usize::try_from(PAYLOAD_MAX).unwrap()];
    loop {
        if let Err(error) = sender.send(&records(0, PAYLOAD_MAX), &[&payload]) {
            return error;
        }
    }
}

fn receive_until_ended(receiver: &mut Receiver) -> LinkError {
    loop {
        let received = receiver.receive().and_then(|(_, len)| {
            let mut out = vec![0; usize::try_from(len).unwrap()];
            receiver.payload(&mut out)
        });
        if let Err(error) = received {
            return error;
        }
    }
}

#[test]
fn close_wakes_both_halves_of_both_ends() {
    // Early and late: before they wait, and while they do.
    for round in 0..8_u32 {
        let (one, other) = pair();
        let closer = one.closer();
        let (sender, mut receiver) = one.split();
        let (mut other_sender, mut other_receiver) = other.split();
        let sends = thread::spawn(move || send_until_ended(sender));
        let receives = thread::spawn(move || receiver.receive().unwrap_err());
        // Not by yielding: on a busy machine that takes longer than a link may be silent.
        for _ in 0..64 << (2 * round) {
            std::hint::spin_loop();
        }
        closer.close();
        assert!(matches!(sends.join().unwrap(), LinkError::Closed));
        assert!(matches!(receives.join().unwrap(), LinkError::Closed));
        // The other end finds out by itself.
        let ended = receive_until_ended(&mut other_receiver);
        assert!(matches!(ended, LinkError::PeerCut), "{ended}");
        assert!(matches!(other_sender.send(&Message::Alive, &[]), Err(LinkError::Closed)));
        closer.close();
    }
}

#[test]
fn an_end_that_goes_says_so_between_frames() {
    let (one, other) = pair();
    let (mut sender, receiver) = one.split();
    sender.send(&Message::Alive, &[]).unwrap();
    drop(sender);
    let (_sender, mut other) = other.split();
    assert_eq!(other.receive().unwrap(), (Message::Alive, 0));
    assert!(matches!(other.receive(), Err(LinkError::PeerClosed)));
    drop(receiver);
}

#[test]
fn several_addresses_are_tried_in_order() {
    let (listening, links) = listen(member(1));
    // Nobody listens there any more.
    let gone = listen(member(1)).0.local_addr().to_string();
    let wrong = listen(member(2));
    let addresses = [
        "no such name:1".to_owned(),
        gone.clone(),
        wrong.0.local_addr().to_string(),
        listening.local_addr().to_string(),
    ];
    let options = LinkOptions::default();
    let link = dial(&addresses, &member(0), MemberId(1), &options).unwrap();
    assert_eq!(link.address(), listening.local_addr());
    assert_eq!(links.recv_timeout(LONG).unwrap().member(), MemberId(0));
    let error = dial(&[&gone], &member(0), MemberId(1), &options).unwrap_err();
    assert!(error.to_string().contains(&gone), "{error}");
    let error = dial::<&str>(&[], &member(0), MemberId(1), &options).unwrap_err();
    assert!(matches!(error, LinkError::ConfigNoAddress(MemberId(1))), "{error}");
}

#[test]
fn a_link_is_made_from_the_address_that_is_asked_for() {
    let (listening, links) = listen(member(1));
    let address = listening.local_addr().to_string();
    let from = |local: &str| {
        let local = Some(local.parse().unwrap());
        dial(&[&address], &member(0), MemberId(1), &LinkOptions { local, ..LinkOptions::default() })
    };
    let _link = from("127.0.0.7").unwrap();
    let link = links.recv_timeout(LONG).unwrap();
    assert_eq!(link.address().ip().to_string(), "127.0.0.7");
    // Not an address of this machine, and one of another family.
    assert!(matches!(from("192.0.2.1"), Err(LinkError::Dial { .. })));
    assert!(matches!(from("::1"), Err(LinkError::ConfigNoAddress(_))));
}

/// What is sent goes piece by piece, for half a minute: only the end of the link ends that.
fn is_held(link: Link) {
    let closer = link.closer();
    let (mut sender, _receiver) = link.split();
    let (begins, begun) = std::sync::mpsc::channel();
    let sends = thread::spawn(move || {
        begins.send(()).unwrap();
        sender.send(&records(0, 1 << 15), &[&[7; 1 << 15]])
    });
    begun.recv().unwrap();
    closer.close();
    let sent = sends.join().unwrap();
    assert!(matches!(sent, Err(LinkError::Closed)), "{sent:?}");
}

#[test]
fn a_cap_on_bandwidth_holds_at_either_end() {
    let options = LinkOptions { bandwidth: NonZeroU64::new(1000).into(), ..LinkOptions::default() };
    let (listening, links) = listen_with(member(1), options.clone());
    let link = reach(&listening, &member(0), 1).unwrap();
    is_held(links.recv_timeout(LONG).unwrap());
    drop(link);
    let (listening, links) = listen(member(1));
    let address = listening.local_addr().to_string();
    is_held(dial(&[address], &member(0), MemberId(1), &options).unwrap());
    drop(links);
}

#[test]
fn zeros_are_copied_without_bytes() {
    let (one, other) = pair();
    let ((mut sender, _other), (_one, mut receiver)) = (one.split(), other.split());
    let extent = Extent { volume: 1, offset: 0, len: 1 << 30 };
    let copy = Message::Copy { epoch: Epoch::default(), at: Lsn(64), extent, is_zero: true };
    sender.send(&copy, &[]).unwrap();
    assert_eq!(receiver.receive().unwrap(), (copy, 0));
}
