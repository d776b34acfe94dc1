//! Links over several connections.

use std::sync::mpsc;
use std::thread;

use log::Lsn;

use super::ends::{LONG, listen, member};
use super::proxy::Proxy;
use crate::message::Message;
use crate::names::{Epoch, MemberId};
use crate::wire::dial::dial_one_of;
use crate::wire::greeting::OfSeveral;
use crate::wire::{
    Closer, Denial, Link, LinkError, LinkOptions, Listening, Receiver, Sender, dial,
};

const CONNECTIONS: usize = 3;

struct Pair {
    proxy: Proxy,
    listening: Listening,
    /// Kept, as the listener gives links to it.
    _links: mpsc::Receiver<Link>,
    here: (Sender, Receiver),
    there: (Sender, Receiver),
    closer: Closer,
}

/// A link of several connections, all of them made, through a proxy.
fn several() -> Pair {
    let (listening, links) = listen(member(1));
    let proxy = Proxy::to(listening.local_addr());
    let options = LinkOptions { connections: CONNECTIONS, ..LinkOptions::default() };
    let address = proxy.address().to_string();
    let link = dial(&[address], &member(0), MemberId(1), &options).unwrap();
    let other = links.recv_timeout(LONG).unwrap();
    let (closer, far) = (link.closer(), other.closer());
    until(|| closer.connections() == CONNECTIONS && far.connections() == CONNECTIONS);
    Pair { proxy, listening, _links: links, here: link.split(), there: other.split(), closer }
}

fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}

fn records(number: u64, len: u64) -> Message {
    let (from, to) = (Lsn(number * 64), Lsn(number * 64 + len));
    Message::Records { epoch: Epoch::default(), from, to, committed: Lsn(0) }
}

const FRAMES: u64 = 600;

fn len_of(number: u64) -> u64 {
    // Some go at once, some by threads.
    64 * (1 + number * 7919 % 4096)
}

fn send_all(mut sender: Sender) -> Sender {
    for number in 0..FRAMES {
        let payload =
            vec![u8::try_from(number % 251).unwrap(); usize::try_from(len_of(number)).unwrap()];
        sender.send(&records(number, len_of(number)), &[&payload]).unwrap();
    }
    sender
}

fn receive_all(receiver: &mut Receiver, mut at: impl FnMut(u64)) {
    for number in 0..FRAMES {
        at(number);
        let (message, len) = receiver.receive().unwrap();
        assert_eq!(message, records(number, len_of(number)));
        let mut payload = vec![0; usize::try_from(len).unwrap()];
        receiver.payload(&mut payload).unwrap();
        assert!(payload.iter().all(|byte| u64::from(*byte) == number % 251));
    }
}

#[test]
fn frames_over_several_connections_are_taken_in_the_order_of_sending() {
    let Pair { here: (sender, receiver), there: (back, away), .. } = several();
    // More than may be on the way goes in each direction at once.
    thread::scope(|scope| {
        let sent = [sender, back].map(|sender| scope.spawn(move || send_all(sender)));
        let taken = [receiver, away].map(|mut receiver| {
            scope.spawn(move || {
                receive_all(&mut receiver, |_| {});
                receiver
            })
        });
        let _senders = sent.map(|it| it.join().unwrap());
        let _receivers = taken.map(|it| it.join().unwrap());
    });
}

#[test]
fn connections_that_are_cut_lose_nothing_as_long_as_one_is_left() {
    let pair = several();
    let Pair { proxy, here: (sender, _here), there: (_there, mut receiver), closer, .. } = pair;
    let sends = thread::spawn(move || send_all(sender));
    receive_all(&mut receiver, |number| {
        if number % 100 == 50 {
            // The others are made anew before the next is cut.
            until(|| closer.connections() == CONNECTIONS);
            proxy.cut(usize::try_from(number / 100).unwrap() % CONNECTIONS);
        }
    });
    let _kept = sends.join().unwrap();
    until(|| closer.connections() == CONNECTIONS);
}

#[test]
fn a_connection_that_goes_silent_is_left_for_the_others() {
    let pair = several();
    let Pair { proxy, here: (sender, _here), there: (_there, mut receiver), closer, .. } = pair;
    let sends = thread::spawn(move || send_all(sender));
    receive_all(&mut receiver, |number| {
        if number == 50 {
            proxy.hold(1);
        }
    });
    let _kept = sends.join().unwrap();
    until(|| closer.connections() == CONNECTIONS && proxy.count() == CONNECTIONS);
}

#[test]
fn a_link_whose_connections_all_end_is_over_at_both_ends() {
    let Pair { proxy, listening, here: (_sender, mut receiver), there: (_back, mut away), .. } =
        several();
    // None can be made anew.
    drop(listening);
    (0..CONNECTIONS).for_each(|_| proxy.cut(0));
    receiver.receive().unwrap_err();
    away.receive().unwrap_err();
}

#[test]
fn a_connection_joins_no_link_that_is_not_there_or_is_of_another_member() {
    let (listening, _links) = listen(member(1));
    let address = listening.local_addr().to_string();
    let claim = |of: u8, link, begins| {
        let (claimed, options) = (Some(OfSeveral { link, begins }), LinkOptions::default());
        dial_one_of(&[&address], &member(of), MemberId(1), &options, claimed)
    };
    let is_denied = |made: Result<_, LinkError>| match made {
        Err(LinkError::Dial { source, .. }) => {
            assert!(matches!(*source, LinkError::PeerDenies(Denial::NoLink)), "{source}");
        }
        other => panic!("{:?}", other.map(|_: (_, _)| ())),
    };
    is_denied(claim(0, 7, false));
    let first = claim(0, 7, true).unwrap();
    let second = claim(0, 7, false).unwrap();
    is_denied(claim(0, 7, true));
    is_denied(claim(2, 7, false));
    drop((first, second));
}

#[test]
fn a_link_of_several_that_is_closed_ends_whoever_waits() {
    let Pair { here: (mut sender, mut receiver), there: _there, closer, .. } = several();
    let waits = thread::spawn(move || receiver.receive());
    closer.close();
    assert!(matches!(waits.join().unwrap(), Err(LinkError::Closed)));
    assert!(matches!(sender.send(&Message::Alive, &[]), Err(LinkError::Closed)));
}

#[test]
fn a_link_with_a_low_cap_goes_over_one_of_its_connections() {
    let (listening, links) = listen(member(1));
    let proxy = Proxy::to(listening.local_addr());
    let bandwidth = crate::wire::Cap::from(std::num::NonZeroU64::new(4 << 20));
    let options = LinkOptions { connections: CONNECTIONS, bandwidth, ..LinkOptions::default() };
    let link = dial(&[proxy.address().to_string()], &member(0), MemberId(1), &options).unwrap();
    let other = links.recv_timeout(LONG).unwrap();
    let (closer, far) = (link.closer(), other.closer());
    until(|| closer.connections() == CONNECTIONS && far.connections() == CONNECTIONS);
    let ((mut sender, _here), (_there, mut receiver)) = (link.split(), other.split());
    // A quarter of a second.
    let len = 256 << 10;
    let bytes = vec![3; usize::try_from(len).unwrap()];
    for number in 0..4 {
        sender.send(&records(number * 4096, len), &[&bytes]).unwrap();
    }
    assert!(closer.busy() <= 1, "frames that share the cap are late together");
    for number in 0..4 {
        let (message, left) = receiver.receive().unwrap();
        assert_eq!((message, u64::from(left)), (records(number * 4096, len), len));
        let mut found = vec![0; bytes.len()];
        receiver.payload(&mut found).unwrap();
        assert!(found == bytes);
    }
}
