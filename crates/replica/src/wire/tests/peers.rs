//! Peers that do not keep to the protocol, and peers whose record layer is not ours: rustls' own.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use rustls::{ClientConnection, Connection, ServerConnection};

use super::ends::{GROUP, LONG, listen, member, reach};
use crate::message::Message;
use crate::names::{GroupId, MemberId};
use crate::wire::codec::{self, HEAD_LEN, Head};
use crate::wire::greeting::{Answer, Claim};
use crate::wire::identity::Identity;
use crate::wire::verify::server_name;
use crate::wire::{Denial, Link, LinkError, LinkOptions, Listening, STRANGERS_MAX, dial};

/// An end of rustls' own.
struct Other {
    tls: Connection,
    socket: TcpStream,
}

impl Other {
    /// One that dials, after the handshake.
    fn dial(listening: &Listening, identity: &Identity) -> Self {
        let name = server_name(identity.group);
        let tls = ClientConnection::new(Arc::clone(&identity.client), name).unwrap();
        let socket = TcpStream::connect(listening.local_addr()).unwrap();
        Self::shake_hands(tls.into(), socket)
    }

    fn shake_hands(tls: Connection, socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(LONG)).unwrap();
        let mut other = Self { tls, socket };
        while other.tls.is_handshaking() {
            other.tls.complete_io(&mut other.socket).unwrap();
        }
        other
    }

    fn send(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).unwrap();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket).unwrap();
        }
    }

    fn receive(&mut self, len: usize) -> Vec<u8> {
        let (mut bytes, mut at) = (vec![0; len], 0);
        while at < len {
            match self.tls.reader().read(&mut bytes[at..]) {
                Ok(0) => panic!("the end after {at} bytes"),
                Ok(count) => at += count,
                Err(_) => self.read_records(),
            }
        }
        bytes
    }

    fn read_records(&mut self) {
        assert!(self.tls.read_tls(&mut self.socket).unwrap() > 0, "the end");
        self.tls.process_new_packets().unwrap();
    }

    /// Member 0 at member 1, taken in.
    fn taken_in(listening: &Listening) -> Self {
        let mut other = Self::dial(listening, &member(0));
        let claim = Claim { group: GROUP, me: MemberId(0), to: MemberId(1), of: None };
        other.send(&claim.encode().unwrap());
        let answer = other.answer();
        assert_eq!(answer, Answer { denial: None, group: GROUP, me: MemberId(1) });
        other
    }

    fn answer(&mut self) -> Answer {
        let head: [u8; HEAD_LEN] = self.receive(HEAD_LEN).try_into().unwrap();
        let head = Head::decode(&head).unwrap();
        Answer::decode(head, &self.receive(head.body_len())).unwrap()
    }
}

fn frame(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    codec::encode(message, 0, &mut out).unwrap();
    out
}

/// Member 1 with a peer that is taken in as member 0.
fn with_peer() -> (Listening, Other, Link) {
    let (listening, links) = listen(member(1));
    let other = Other::taken_in(&listening);
    let link = links.recv_timeout(LONG).unwrap();
    (listening, other, link)
}

#[test]
fn an_end_with_another_record_layer_is_understood_and_understands() {
    let (_listening, mut other, link) = with_peer();
    let (mut sender, mut receiver) = link.split();
    for round in 0..100 {
        let message = Message::Copied { count: round };
        other.send(&frame(&message));
        assert_eq!(receiver.receive().unwrap(), (message.clone(), 0));
        sender.send(&message, &[]).unwrap();
        assert_eq!(other.receive(frame(&message).len()), frame(&message));
        // New keys, of its own and of this end.
        if round % 3 == 0 {
            other.tls.refresh_traffic_keys().unwrap();
        }
    }
}

#[test]
fn frames_in_records_of_one_byte_are_read() {
    let (_listening, mut other, link) = with_peer();
    let (_sender, mut receiver) = link.split();
    for message in [Message::Alive, Message::Copied { count: 7 }, Message::Following] {
        for byte in frame(&message) {
            other.send(&[byte]);
            other.send(&[]);
        }
        assert_eq!(receiver.receive().unwrap(), (message, 0));
    }
}

#[test]
fn a_peer_that_ends_within_a_frame_is_told_from_one_that_says_goodbye() {
    for len in 1..frame(&Message::Copied { count: 7 }).len() {
        let (_listening, mut other, link) = with_peer();
        let (_sender, mut receiver) = link.split();
        other.send(&frame(&Message::Copied { count: 7 })[..len]);
        // Even if it says goodbye.
        if len % 2 == 0 {
            other.tls.send_close_notify();
            other.send(&[]);
        }
        other.socket.shutdown(Shutdown::Both).unwrap();
        let ended = receiver.receive().unwrap_err();
        assert!(matches!(ended, LinkError::PeerCut), "{len} bytes: {ended}");
    }
    let (_listening, mut other, link) = with_peer();
    other.tls.send_close_notify();
    other.send(&[]);
    assert!(matches!(link.split().1.receive(), Err(LinkError::PeerClosed)));
}

#[test]
fn frames_that_are_none_end_a_link() {
    let alive = frame(&Message::Alive);
    let claim =
        Claim { group: GROUP, me: MemberId(0), to: MemberId(1), of: None }.encode().unwrap();
    let mut long = frame(&Message::Copied { count: 0 });
    long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    for bytes in
        [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0; 100], &[&alive[1..], &alive].concat(), &claim, &long]
    {
        let (_listening, mut other, link) = with_peer();
        let (mut sender, mut receiver) = link.split();
        other.send(bytes);
        let ended = receiver.receive().unwrap_err();
        assert!(matches!(ended, LinkError::Frame(_)), "{bytes:?}: {ended}");
        assert!(matches!(sender.send(&Message::Alive, &[]), Err(LinkError::Closed)));
    }
}

#[test]
fn bytes_that_nobody_sealed_end_a_link() {
    let forged = [&[23, 3, 3, 0, 40][..], &[7; 40]].concat();
    let long = [&[23, 3, 3, 0xff, 0xff][..], &[7; 40]].concat();
    let plain_alert = [21, 3, 3, 0, 2, 1, 0];
    for bytes in [&forged[..], &long, &plain_alert, b"GET / HTTP/1.0\r\n\r\n", &[0; 100]] {
        let (_listening, mut other, link) = with_peer();
        let (_sender, mut receiver) = link.split();
        other.send(&frame(&Message::Alive));
        other.socket.write_all(bytes).unwrap();
        assert_eq!(receiver.receive().unwrap(), (Message::Alive, 0));
        let ended = receiver.receive().unwrap_err();
        assert!(matches!(ended, LinkError::PeerRecord(_)), "{bytes:?}: {ended}");
    }
}

/// Whether an honest member gets through, and no other link came.
fn honest_member_gets_through(listening: &Listening, links: &std::sync::mpsc::Receiver<Link>) {
    let link = reach(listening, &member(2), 1).unwrap();
    let (mut sender, _receiver) = link.split();
    sender.send(&Message::Alive, &[]).unwrap();
    let link = links.recv_timeout(LONG).unwrap();
    assert_eq!(link.member(), MemberId(2));
    assert_eq!(link.split().1.receive().unwrap(), (Message::Alive, 0));
}

#[test]
fn strangers_that_say_nothing_keep_nobody_out() {
    let (listening, links) = listen(member(1));
    let connect = |_| TcpStream::connect(listening.local_addr()).unwrap();
    let mut strangers: Vec<TcpStream> = (0..STRANGERS_MAX + 10).map(connect).collect();
    honest_member_gets_through(&listening, &links);
    // The oldest had to go: the end of their connections is the proof.
    for stranger in &mut strangers[..10] {
        stranger.set_read_timeout(Some(LONG)).unwrap();
        assert_eq!(stranger.read(&mut [0; 1]).unwrap(), 0);
    }
    // Those that have shown their key and not said who they are count as strangers too.
    let _keys: Vec<Other> = (0..3).map(|_| Other::dial(&listening, &member(0))).collect();
    honest_member_gets_through(&listening, &links);
    // The end of the listener ends them all.
    drop(listening);
    for stranger in &mut strangers[10..] {
        stranger.set_read_timeout(Some(LONG)).unwrap();
        assert_eq!(stranger.read(&mut [0; 1]).unwrap(), 0);
    }
    assert!(links.recv_timeout(LONG).is_err(), "no other link came");
}

#[test]
fn strangers_that_say_anything_are_shown_out() {
    let (listening, links) = listen(member(1));
    let hello = [&[22, 3, 1, 0x40, 0][..], &[1, 0, 0x3f, 0xfc], &[3; 100_000]].concat();
    let garbage: [&[u8]; 5] =
        [b"GET / HTTP/1.0\r\n\r\n", &[0; 100], &[0xff; 70_000], &hello, &[22, 3, 1, 0, 0]];
    for bytes in garbage {
        let mut stranger = TcpStream::connect(listening.local_addr()).unwrap();
        stranger.set_read_timeout(Some(LONG)).unwrap();
        // It may be shown out before it has said all.
        let _ = stranger.write_all(bytes);
        let _ = stranger.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stranger.read_to_end(&mut answer);
        assert!(answer.len() < 100, "an alert at most: {answer:?}");
    }
    honest_member_gets_through(&listening, &links);
    drop(listening);
    assert!(links.recv_timeout(LONG).is_err(), "no other link came");
}

#[test]
fn a_member_that_claims_in_another_way_gets_no_link() {
    let (listening, links) = listen(member(1));
    let answered = |claim: Claim| {
        let mut other = Other::dial(&listening, &member(0));
        other.send(&claim.encode().unwrap());
        other.answer().denial
    };
    let (me, to) = (MemberId(0), MemberId(1));
    let other_group = Claim { group: GroupId([1; 16]), me, to, of: None };
    assert_eq!(answered(other_group), Some(Denial::OtherGroup));
    let claims = |me, to| Claim { group: GROUP, me: MemberId(me), to: MemberId(to), of: None };
    assert_eq!(answered(claims(1, 1)), Some(Denial::IsMe));
    assert_eq!(answered(claims(3, 1)), Some(Denial::Unknown));
    assert_eq!(answered(claims(8, 1)), Some(Denial::Unknown));
    assert_eq!(answered(claims(255, 255)), Some(Denial::Unknown));
    assert_eq!(answered(claims(0, 2)), Some(Denial::NotWanted));
    // A message in the place of the claim.
    let mut other = Other::dial(&listening, &member(0));
    other.send(&frame(&Message::Alive));
    let read = other.tls.complete_io(&mut other.socket);
    assert!(read.is_ok_and(|(read, _)| read == 0) || other.tls.process_new_packets().is_ok());
    drop(listening);
    assert!(links.recv_timeout(LONG).is_err(), "no link came");
}

/// What member 0 says of a listener that has member 1's key and answers with `bytes`.
fn dialed(bytes: Vec<u8>) -> LinkError {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answers = thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let (config, _) = member(1).for_one();
        let tls = ServerConnection::new(Arc::new(config)).unwrap();
        let mut other = Other::shake_hands(tls.into(), socket);
        other.send(&bytes);
        let claim = other.receive(HEAD_LEN + 18);
        let head = Head::decode(claim[..HEAD_LEN].try_into().unwrap()).unwrap();
        let expected = Claim { group: GROUP, me: MemberId(0), to: MemberId(1), of: None };
        assert_eq!(Claim::decode(head, &claim[HEAD_LEN..]).unwrap(), expected);
        // It goes when the dialer does.
        let _ = other.tls.complete_io(&mut other.socket);
    });
    let dialed = dial(&[address], &member(0), MemberId(1), &LinkOptions::default());
    let error = dialed.unwrap_err();
    answers.join().unwrap();
    let LinkError::Dial { source, .. } = error else { panic!("{error}") };
    *source
}

#[test]
fn a_listener_that_answers_in_another_way_is_left() {
    let answer =
        |denial, group, me| dialed(Answer { denial, group, me: MemberId(me) }.encode().unwrap());
    let other = GroupId([1; 16]);
    assert!(matches!(answer(None, other, 1), LinkError::PeerGroup(found) if found == other));
    assert!(matches!(answer(None, GROUP, 0), LinkError::PeerIsMe(MemberId(0))));
    let wanted = MemberId(1);
    let found = answer(None, GROUP, 2);
    assert!(matches!(found, LinkError::PeerOther { wanted: w, found: MemberId(2) } if w == wanted));
    let denied = answer(Some(Denial::Unknown), GROUP, 1);
    assert!(matches!(denied, LinkError::PeerDenies(Denial::Unknown)));
    assert!(matches!(dialed(frame(&Message::Alive)), LinkError::Frame(_)));
    assert!(matches!(dialed(vec![0; 100]), LinkError::Frame(_)));
}

#[test]
fn a_listener_that_is_no_member_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answers = thread::spawn(move || {
        for bytes in [&b"SSH-2.0-OpenSSH_9.9\r\n"[..], &[0; 100], &[22, 3, 3]] {
            let (mut socket, _) = listener.accept().unwrap();
            socket.write_all(bytes).unwrap();
            let _ = socket.shutdown(Shutdown::Write);
            let _ = socket.read_to_end(&mut Vec::new());
        }
    });
    for _ in 0..3 {
        let dialed = dial(&[&address], &member(0), MemberId(1), &LinkOptions::default());
        let Err(LinkError::Dial { source, .. }) = dialed else { panic!("{dialed:?}") };
        assert!(matches!(*source, LinkError::PeerTls(_) | LinkError::PeerCut), "{source}");
    }
    answers.join().unwrap();
}
