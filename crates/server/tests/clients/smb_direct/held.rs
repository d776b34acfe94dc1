//! What connections of SMB Direct hold of the server together.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use basics::ManualClock;
use smb::{Channel, Command, Empty, NtStatus};

use super::Fixture;
use super::client::{Client, read};
use super::peer::{PATIENCE, list};

const LEN: usize = 1_000_000;

fn ask(client: &mut Client, count: usize) {
    for _ in 0..count {
        client.send(Command::ECHO, |out| {
            Empty.emit(out);
            out.resize(LEN, 0);
        });
    }
}

fn take_answers(client: &mut Client, count: usize) {
    for _ in 0..count {
        assert_eq!(client.next().header.status, NtStatus::SUCCESS);
    }
}

#[test]
fn waiting_requests_of_all_connections_of_a_user_are_bounded_together() {
    const EACH: usize = 30;
    let fixture = Fixture::start();
    // Together they have 150 MB in flight: more than the 128 MiB of one user, and none has more than 32 MiB.
    let mut clients: Vec<_> = (0..5).map(|_| Client::log_on(fixture.address())).collect();
    for client in &mut clients {
        // So many credits.
        ask(client, 20);
        take_answers(client, 20);
    }
    let mut small = Client::log_on(fixture.address());
    let held = fixture.take_workers();
    ask(&mut small, 1);
    small.peer.until(|peer| (peer.queued() == 0).then_some(()));
    for client in &mut clients {
        ask(client, EACH);
        client.peer.until(|peer| (peer.queued() == 0 || peer.ended.is_some()).then_some(()));
    }
    let end = Instant::now() + PATIENCE;
    while clients.iter().all(|client| client.peer.ended.is_none()) {
        assert!(Instant::now() < end, "150 MB are held");
        clients.iter_mut().for_each(|client| client.peer.work());
    }
    drop(held);
    take_answers(&mut small, 1);
    let (gone, mut left): (Vec<_>, Vec<_>) =
        clients.into_iter().partition(|client| client.peer.ended.is_some());
    assert_eq!(gone.len(), 1, "one of them made room for the others");
    left.iter_mut().for_each(|client| take_answers(client, EACH));
}

#[test]
fn a_long_request_is_counted_before_a_task_has_it() {
    let fixture = Fixture::start();
    let mut clients: Vec<_> = (0..8).map(|_| Client::log_on(fixture.address())).collect();
    let held = fixture.take_workers();
    for client in &mut clients {
        ask(client, 1);
    }
    let counted = || fixture.running.as_ref().unwrap().status().request_bytes;
    let end = Instant::now() + PATIENCE;
    while counted() < clients.len() * LEN {
        assert!(Instant::now() < end, "{} bytes are counted", counted());
        clients.iter_mut().for_each(|client| client.peer.work());
    }
    drop(held);
    clients.iter_mut().for_each(|client| take_answers(client, 1));
}

#[test]
fn receive_buffers_of_a_user_are_bounded_and_a_connection_without_room_works_with_few() {
    let fixture = Fixture::start();
    let echo = |client: &mut Client| {
        let answer = client.call(Command::ECHO, |out| Empty.emit(out));
        assert_eq!(answer.header.status, NtStatus::SUCCESS);
        client.peer.send_credits()
    };
    // Of 256 MiB each takes 255 buffers of 8 KiB.
    let mut clients: Vec<_> = (0..128).map(|_| Client::log_on(fixture.address())).collect();
    let mut few = Client::log_on(fixture.address());
    assert!(clients.iter_mut().all(|client| echo(client) > STRANGERS));
    assert!(echo(&mut few) <= STRANGERS);
    drop(clients.pop());
    let end = Instant::now() + PATIENCE;
    while echo(&mut few) <= STRANGERS {
        assert!(Instant::now() < end, "a connection has ended, and its room is not taken");
    }
}

/// The receive buffers of a connection without a session.
const STRANGERS: u16 = 16;

#[test]
fn a_peer_that_takes_no_answers_by_rdma_does_not_keep_their_room_from_others() {
    const LONG: u32 = 8 << 20;
    let clock = Arc::new(ManualClock::at(SystemTime::now()));
    let fixture = Fixture::start_at(&clock);
    std::fs::write(fixture.dir.path().join("long.bin"), vec![7; 8 << 20]).unwrap();
    let mut other = Client::log_on(fixture.address());
    let mut reader = Client::log_on(fixture.address());
    let file = reader.open("long.bin");
    let target = list(&[reader.peer.expose(0, 1 << 20)]);
    let mut turn = |times: usize| {
        for _ in 0..times {
            let answer = other.call(Command::ECHO, |out| Empty.emit(out));
            assert_eq!(answer.header.status, NtStatus::SUCCESS);
        }
    };
    // Together they ask for 576 MiB, and sockets take a part, as long as requests are sent: what a user may hold of
    // answers, 128 MiB, is used up. Their engines are not turned any more.
    let _slow: Vec<_> = (0..6)
        .map(|_| {
            let mut client = Client::log_on(fixture.address());
            let file = client.open("long.bin");
            for _ in 0..2 {
                client.call(Command::ECHO, |out| Empty.emit(out));
            }
            let target = list(&[client.peer.expose(0, LONG)]);
            let request = Client::read_request(file, 0, LONG, (Channel::RDMA_V1, &target));
            client.charge = 128;
            for _ in 0..12 {
                client.send(Command::READ, |out| request.emit(out));
            }
            // The server may be slow to grant what they need to leave.
            client.peer.until(|peer| (peer.queued() == 0).then_some(()));
            client
        })
        .collect();
    // Until one of its READs has to wait.
    let request = Client::read_request(file, 0, 1 << 20, (Channel::RDMA_V1, &target));
    let waits = (0..100).any(|_| {
        reader.send(Command::READ, |out| request.emit(out));
        let is_answered = (0..20).any(|_| {
            turn(5);
            reader.peer.work();
            !reader.peer.inbox.is_empty()
        });
        if is_answered {
            assert_eq!(read(&reader.next()).1, 1 << 20);
        }
        !is_answered
    });
    assert!(waits, "the others hold all there is");
    // After a minute a peer is dropped whether anybody waits or not.
    let is_answered = (1..9).any(|_| {
        clock.advance(Duration::from_secs(6));
        turn(1);
        reader.peer.work();
        !reader.peer.inbox.is_empty()
    });
    assert!(is_answered, "others who take nothing keep the room");
    assert_eq!(read(&reader.next()).1, 1 << 20);
}
