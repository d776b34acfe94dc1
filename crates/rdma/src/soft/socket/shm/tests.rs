//! Two ends in one process, one of which may lie.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

use super::super::Arrival;
use super::super::unix::UnixListener;
use super::*;

/// A dialling and an accepting end, whose owner has not answered.
fn ends() -> (ShmSocket, ShmSocket) {
    let listener = UnixListener::bind("test", (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let dialler = UnixSocket::dial("test", listener.local_addr()).unwrap();
    let Arrival::Socket(acceptor) = listener.accept().unwrap() else { panic!("nobody came") };
    (ShmSocket::dialled(dialler), ShmSocket::accepted(acceptor))
}

/// The same, with both at work.
fn joined() -> (ShmSocket, ShmSocket) {
    let (mut dialler, mut acceptor) = ends();
    acceptor.admit();
    for end in [&mut dialler, &mut acceptor] {
        assert_eq!(end.receive(&mut [0; 8]), Transfer::Blocked);
        assert!(end.rings().is_some());
    }
    (dialler, acceptor)
}

/// Puts a lie into the memory that the other end reads.
fn lie(liar: &ShmSocket, word: Word, value: u64) {
    liar.rings().unwrap().segment.store(word, value);
}

/// How many bells wait in the socket.
fn bells_of(end: &mut ShmSocket) -> usize {
    match end.socket.receive(&mut [0; BELLS_HEARD_MAX]) {
        Transfer::Bytes(count) => count,
        Transfer::Blocked => 0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_goes_before_the_memory_and_its_answer_through_it() {
    let (mut dialler, mut acceptor) = ends();
    let mut room = [0; 16];
    assert_eq!(dialler.send(b"request", true), Transfer::Bytes(7));
    assert_eq!(dialler.send(b"more", true), Transfer::Blocked);
    assert_eq!(acceptor.receive(&mut room), Transfer::Bytes(7));
    acceptor.admit();
    assert_eq!(acceptor.send(b"answer", true), Transfer::Blocked, "the dialler has not mapped it");
    assert!(!acceptor.takes_again());
    assert_eq!(dialler.receive(&mut room), Transfer::Blocked);
    assert_eq!(acceptor.receive(&mut room), Transfer::Blocked);
    assert!(acceptor.takes_again());
    assert_eq!(acceptor.send(b"answer", true), Transfer::Bytes(6));
    assert_eq!(dialler.receive(&mut room), Transfer::Bytes(6));
    assert_eq!(&room[..6], b"answer");
    assert_eq!(dialler.send(b"more", true), Transfer::Bytes(4));
    assert_eq!(acceptor.receive(&mut room), Transfer::Bytes(4));
    assert!(dialler.rings().is_some() && acceptor.rings().is_some());
}

#[test]
fn an_acceptor_makes_no_memory_before_its_owner_has_answered() {
    let (mut dialler, mut acceptor) = ends();
    assert_eq!(acceptor.receive(&mut [0; 8]), Transfer::Blocked);
    assert_eq!(dialler.receive(&mut [0; 8]), Transfer::Blocked);
    assert!(matches!(acceptor.way, Way::Request));
}

/// Two ends whose bytes go through the socket.
fn assert_plain(mut dialler: ShmSocket, mut acceptor: ShmSocket) {
    let mut room = vec![0; 64];
    assert_eq!(acceptor.send(b"answer", true), Transfer::Bytes(6));
    assert_eq!(dialler.receive(&mut room), Transfer::Bytes(6));
    assert_eq!(&room[..6], b"answer");
    assert_eq!(dialler.send(b"more", true), Transfer::Bytes(4));
    assert_eq!(acceptor.receive(&mut room), Transfer::Bytes(4));
    assert!(dialler.rings().is_none() && acceptor.rings().is_none());
    let blocks = Interest { read: true, write: true };
    assert_eq!(acceptor.watched_for(blocks), blocks, "the poller tells of room");
    while matches!(dialler.send(&[1; 64], false), Transfer::Bytes(_)) {}
    assert!(dialler.rest(blocks), "nothing is there, and no room");
    while acceptor.receive(&mut room) != Transfer::Blocked {}
    assert!(!dialler.takes_again() && dialler.rest(blocks), "nobody asks the host in each round");
    drop(dialler);
    assert_eq!(acceptor.receive(&mut room), Transfer::Closed);
}

#[test]
fn a_refusal_needs_no_memory() {
    let (dialler, acceptor) = ends();
    assert_plain(dialler, acceptor);
}

#[test]
fn a_host_that_gives_an_acceptor_no_memory_loses_no_connection() {
    let (dialler, mut acceptor) = ends();
    acceptor.offer(Err(Errno::NFILE));
    assert_plain(dialler, acceptor);
}

#[test]
fn a_dialler_that_cannot_map_the_memory_loses_no_connection() {
    let (dialler, mut acceptor) = ends();
    acceptor.admit();
    let Greeting::Memory(_) = greeting::receive(dialler.socket.fd()) else { panic!("no memory") };
    greeting::answer(dialler.socket.fd(), false).unwrap();
    assert_eq!(acceptor.receive(&mut [0; 8]), Transfer::Blocked);
    let dialler = ShmSocket { way: Way::Socket, ..dialler };
    assert_plain(dialler, acceptor);
}

#[test]
fn a_dialler_that_says_it_has_sealed_the_memory_and_has_not_loses_its_connection() {
    let (dialler, mut acceptor) = ends();
    acceptor.admit();
    greeting::answer(dialler.socket.fd(), true).unwrap();
    assert_eq!(acceptor.receive(&mut [0; 8]), Transfer::Lost(Errno::PERM));
    assert!(acceptor.rings().is_none());
}

#[test]
fn an_answer_of_other_words_is_garbled() {
    let (mut dialler, mut acceptor) = ends();
    assert_eq!(
        dialler.send(b"request and more than the acceptor reads", true),
        Transfer::Bytes(40)
    );
    assert_eq!(acceptor.receive(&mut [0; 7]), Transfer::Bytes(7));
    acceptor.admit();
    assert_eq!(acceptor.receive(&mut [0; 8]), Transfer::Garbled);
}

#[test]
fn ends_that_look_by_themselves_ring_no_bell() {
    let (mut dialler, mut acceptor) = joined();
    dialler.rise();
    acceptor.rise();
    let mut room = [0; 64];
    for _ in 0..1000 {
        assert_eq!(dialler.send(&[1; 64], false), Transfer::Bytes(64));
        assert_eq!(acceptor.receive(&mut room), Transfer::Bytes(64));
    }
    assert_eq!((bells_of(&mut dialler), bells_of(&mut acceptor)), (0, 0));
}

#[test]
fn an_end_that_rests_is_rung_for_bytes() {
    let (mut dialler, mut acceptor) = joined();
    acceptor.rise();
    assert!(acceptor.rest(Interest::READ));
    assert_eq!(dialler.send(b"wake", false), Transfer::Bytes(4));
    assert_eq!(bells_of(&mut acceptor), 1);
    assert!(!acceptor.rest(Interest::READ), "there are bytes");
    assert!(acceptor.rest(Interest::NONE), "which a parked connection does not take");
}

#[test]
fn an_end_that_rests_on_a_full_ring_is_rung_for_room() {
    let (mut dialler, mut acceptor) = joined();
    dialler.rise();
    assert_eq!(dialler.send(&vec![7; RING_LEN], false), Transfer::Bytes(RING_LEN));
    assert_eq!(dialler.send(b"more", false), Transfer::Blocked);
    assert!(!dialler.takes_again());
    assert!(dialler.rest(Interest { read: true, write: true }));
    assert_eq!(acceptor.receive(&mut vec![0; ROOM_MIN]), Transfer::Bytes(ROOM_MIN));
    assert_eq!(bells_of(&mut dialler), 1);
    assert!(dialler.takes_again());
    assert!(!dialler.rest(Interest { read: true, write: true }), "there is room");
}

#[test]
fn an_end_that_nobody_asks_again_is_rung_for_room() {
    let (mut dialler, mut acceptor) = joined();
    assert_eq!(dialler.send(&vec![7; RING_LEN], false), Transfer::Bytes(RING_LEN));
    assert_eq!(dialler.send(b"more", false), Transfer::Blocked);
    assert_eq!(acceptor.receive(&mut [0; 4]), Transfer::Bytes(4));
    assert_eq!(bells_of(&mut dialler), 1);
    assert_eq!(dialler.send(b"more", false), Transfer::Bytes(4));
}

#[test]
fn what_a_peer_said_before_it_went_is_heard_before_its_end() {
    for goodbye in [true, false] {
        let (mut dialler, mut acceptor) = joined();
        acceptor.rise();
        assert_eq!(dialler.send(b"last words", false), Transfer::Bytes(10));
        if goodbye {
            dialler.finish();
        } else {
            drop(dialler);
        }
        acceptor.reported();
        acceptor.reported();
        let mut room = [0; 16];
        assert_eq!(acceptor.receive(&mut room), Transfer::Bytes(10));
        assert_eq!(&room[..10], b"last words");
        assert_eq!(acceptor.receive(&mut room), Transfer::Closed);
    }
}

#[test]
fn a_peer_that_closes_keeps_no_end_asleep() {
    let (mut dialler, mut acceptor) = joined();
    dialler.finish();
    acceptor.reported();
    assert!(!acceptor.rest(Interest::READ));
    assert_eq!(acceptor.receive(&mut [0; 8]), Transfer::Closed);
}

#[test]
fn an_impossible_position_is_the_peers_fault() {
    let beyond = u64::try_from(RING_LEN).unwrap() + 1;
    for (head, tail) in [(1, beyond), (1 << 40, 1 << 40), (1 << 63, u64::MAX)] {
        let (mut dialler, mut acceptor) = joined();
        lie(&dialler, Word::Head(Ring::ToDialler), head);
        assert_eq!(acceptor.send(b"answer", false), Transfer::Garbled);
        assert!(acceptor.takes_again(), "a send has to find out");
        lie(&acceptor, Word::Tail(Ring::ToDialler), tail);
        assert_eq!(dialler.receive(&mut [0; 8]), Transfer::Garbled);
        assert!(!dialler.rest(Interest::READ), "a receive has to find out");
    }
}

#[test]
fn any_word_for_a_bell_is_taken_and_costs_one_call_for_a_transfer() {
    let (mut dialler, mut acceptor) = joined();
    acceptor.rise();
    lie(&dialler, Word::Bell(Side::Dialler), u64::MAX);
    // Far more than the socket holds.
    for _ in 0..2000 {
        assert_eq!(acceptor.send(b"x", false), Transfer::Bytes(1));
    }
    let mut room = [0; 4096];
    lie(&dialler, Word::Bell(Side::Dialler), 0);
    while bells_of(&mut dialler) > 0 {}
    assert_eq!(dialler.receive(&mut room), Transfer::Bytes(2000));
}

#[test]
fn a_peer_that_rings_more_often_than_it_has_moved_bytes_is_gone() {
    let (mut dialler, mut acceptor) = joined();
    acceptor.want(FOR_BYTES);
    for _ in 0..200 {
        assert_eq!(dialler.send(b"x", false), Transfer::Bytes(1));
    }
    for _ in 0..2 {
        assert!(!acceptor.reported(), "each byte is a cause");
    }
    assert_eq!(acceptor.receive(&mut [0; 512]), Transfer::Bytes(200));
    assert_eq!(dialler.socket.send(&[BELL], false), Transfer::Bytes(1));
    assert!(acceptor.reported(), "nothing more is to be reported of it");
    assert_eq!(acceptor.watched_for(Interest::READ), Interest::NONE);
    assert_eq!(acceptor.receive(&mut [0; 512]), Transfer::Closed);
}

#[test]
fn a_peer_that_has_closed_its_side_is_not_reported_for_ever() {
    let (mut dialler, mut acceptor) = joined();
    dialler.finish();
    assert!(acceptor.reported());
    // As a parked connection with an answer that found no room.
    assert_eq!(acceptor.watched_for(Interest { read: false, write: true }), Interest::NONE);
}

#[test]
fn only_memory_is_looked_at_in_each_round() {
    let (dialler, mut acceptor) = ends();
    assert!(!dialler.is_looked_at() && !acceptor.is_looked_at());
    acceptor.admit();
    assert!(!acceptor.is_looked_at(), "the dialler has not answered");
    let (dialler, acceptor) = joined();
    assert!(dialler.is_looked_at() && acceptor.is_looked_at());
}

/// A dialler whose acceptor says what the test wants, and the acceptor's socket.
fn dialler_of(say: impl FnOnce(&OwnedFd)) -> (ShmSocket, OwnedFd) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    say(&theirs);
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut dialler = ShmSocket::dialled(UnixSocket::of(ours, anywhere, anywhere));
    assert_eq!(dialler.send(b"request", false), Transfer::Bytes(7));
    (dialler, theirs)
}

#[test]
fn a_greeting_without_memory_or_with_other_words_is_garbled() {
    use rustix::net::{SendFlags, send};
    let words = |words: &'static [u8]| {
        move |theirs: &OwnedFd| assert_eq!(send(theirs, words, SendFlags::empty()), Ok(words.len()))
    };
    for wrong in [&b"LFSHM\0\x01\x02"[..], b"LFSHM\0\0\x01", b"L", b"GET / HTTP/1.1"] {
        let (mut dialler, _theirs) = dialler_of(words(wrong));
        assert_eq!(dialler.receive(&mut [0; 8]), Transfer::Garbled, "{wrong:?}");
    }
}

#[test]
fn memory_that_could_be_cut_short_is_answered_with_the_socket() {
    use std::os::fd::AsFd as _;
    let file = OwnedFd::from(tempfile::tempfile().unwrap());
    rustix::fs::ftruncate(&file, 1 << 20).unwrap();
    let offers = |theirs: &OwnedFd| greeting::offer(theirs.as_fd(), &file).unwrap();
    let (mut dialler, theirs) = dialler_of(offers);
    assert_eq!(dialler.receive(&mut [0; 8]), Transfer::Blocked);
    assert!(matches!(dialler.way, Way::Socket));
    let mut said = [0; 16];
    let len = recv(&theirs, &mut said, RecvFlags::empty()).unwrap().0;
    assert_eq!(&said[..len], b"request\0");
}
