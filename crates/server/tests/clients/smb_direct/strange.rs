//! Peers that keep to the letter, or to no letter at all.

use std::time::{Duration, Instant};

use rdma::{Operation, WorkRequest};
use smb::info::{FileInfoClass, InfoType, SecurityInformation};
use smb::{
    Channel, Command, Empty, FileId, LockElement, LockFlags, LockRequest, NtStatus,
    QueryInfoRequest,
};
use smbdirect::{Config, NegotiateRequest, NegotiateResponse, Offer, SEND_QUEUE_MAX};

use super::Fixture;
use super::client::{Client, From, written};
use super::peer::{PATIENCE, Peer, list};

#[test]
fn a_peer_that_asks_for_one_credit_is_granted_one() {
    let fixture = Fixture::start();
    let mut peer = Peer::dial(fixture.address());
    let mut request = [0; NegotiateRequest::LEN];
    let offer = Offer {
        credits_requested: 1,
        preferred_send_size: 1364,
        receive_size_max: 1364,
        fragmented_size_max: 131_072,
    };
    NegotiateRequest { offer }.emit(&mut request);
    peer.post(&request);
    let answer = NegotiateResponse::parse(&peer.next_raw()).unwrap();
    let NegotiateResponse::Accepted { credits_granted, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(credits_granted, 1);
}

#[test]
fn a_client_that_asks_for_one_credit_is_served() {
    let fixture = Fixture::start();
    let config = Config { send_credit_target: 1, ..Config::default() };
    let mut client = Client::log_on_with(fixture.address(), config);
    let file = client.open("one.bin");
    let answer = client.write(file, 0, From::Message(&[7; 20_000]));
    assert_eq!(written(&answer), 20_000);
}

#[test]
fn an_immediate_message_ends_its_own_connection() {
    let fixture = Fixture::start();
    let mut other = Client::log_on(fixture.address());
    let mut client = Client::log_on(fixture.address());
    let operation = Operation::Immediate { data: 7, solicited: false };
    let (engine, qp) = (&mut client.peer.engine, client.peer.qp);
    engine.post_send(qp, WorkRequest::signaled(1 << 32, operation)).unwrap();
    client.peer.wait_for_end();
    assert_eq!(other.call(Command::ECHO, |out| Empty.emit(out)).header.status, NtStatus::SUCCESS);
}

#[test]
fn a_token_stays_valid_where_no_session_asks_for_its_end() {
    let fixture = Fixture::start();
    let mut client = Client::strange(fixture.address());
    client.negotiate();
    let target = client.peer.expose(0, 4096);
    let (channel, nowhere) = (Channel::RDMA_V1_INVALIDATE, FileId { persistent: 1, volatile: 1 });
    let descriptors = list(&[target]);
    let answer = client.read(nowhere, 0, 4096, (channel, &descriptors));
    assert_eq!(answer.header.status, NtStatus::USER_SESSION_DELETED);
    assert_eq!(answer.invalidated, None);
    let from = From::Memory { channel, len: 4096, descriptors: &descriptors };
    let answer = client.write(nowhere, 0, from);
    assert_eq!((answer.header.status, answer.invalidated), (NtStatus::USER_SESSION_DELETED, None));
    assert!(client.peer.is_registered(target.token));
}

#[test]
fn a_peer_that_serves_no_reads_is_dropped_though_it_is_there() {
    let fixture =
        Fixture::start_with(|limits| limits.rdma_read_patience = Duration::from_millis(200));
    let mut other = Client::log_on(fixture.address());
    let mut client = Client::log_on(fixture.address());
    let file = client.open("unserved.bin");
    for len in [4096, 1 << 20] {
        let source = list(&[client.peer.expose(0, len)]);
        let from = From::Memory { channel: Channel::RDMA_V1, len, descriptors: &source };
        let request = Client::write_request(file, 0, from);
        client.send(Command::WRITE, |out| request.emit(out));
    }
    // The client lives, and answers no Read: its engine is not turned.
    let end = Instant::now() + PATIENCE;
    while fixture.connections() > 1 {
        assert!(Instant::now() < end, "its staging stays taken");
        other.call(Command::ECHO, |out| Empty.emit(out));
    }
    client.peer.wait_for_end();
}

#[test]
fn what_one_request_asks_for_over_smb_direct_is_bounded() {
    let fixture = Fixture::start();
    let mut client = Client::log_on(fixture.address());
    let file_id = client.open("asked.bin");
    for (length, expected) in
        [(1 << 20, NtStatus::SUCCESS), ((1 << 20) + 1, NtStatus::INVALID_PARAMETER)]
    {
        let request = QueryInfoRequest {
            info_type: InfoType::FILE,
            class: FileInfoClass::STANDARD.0,
            output_length_max: length,
            additional: SecurityInformation::empty(),
            flags: 0,
            file_id,
            input: &[],
        };
        let answer = client.call(Command::QUERY_INFO, |out| request.emit(out));
        assert_eq!(answer.header.status, expected, "{length} bytes");
    }
}

#[test]
fn connections_that_are_idle_give_their_staging_memory_to_those_that_wait() {
    let fixture = Fixture::start();
    let mut clients = Vec::new();
    // Half of all staging memory is one user's at most: that of 128 connections.
    for number in 0..=128 {
        let mut client = Client::log_on(fixture.address());
        let file = client.open(&format!("idle{number}.bin"));
        let source = list(&[client.peer.expose(0, 4096)]);
        let from = From::Memory { channel: Channel::RDMA_V1, len: 4096, descriptors: &source };
        let answer = client.write(file, 0, from);
        assert_eq!(written(&answer), 4096, "connection {number}");
        clients.push(client);
    }
}

#[test]
fn a_peer_that_takes_no_answers_has_few_of_them_made() {
    const READS: usize = 30;
    let fixture = Fixture::start();
    let (mut client, mut other) =
        (Client::log_on(fixture.address()), Client::log_on(fixture.address()));
    let path = fixture.dir.path().join("long.bin");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let file = client.open("long.bin");
    for _ in 0..4 {
        client.call(Command::ECHO, |out| Empty.emit(out));
    }
    client.peer.grants = false;
    client.charge = 1;
    let request = Client::read_request(file, 0, 64 << 10, (Channel::NONE, &[]));
    for _ in 0..READS {
        client.send(Command::READ, |out| request.emit(out));
    }
    // What comes behind them is not carried out before their answers have left.
    let request = Client::write_request(file, 0, From::Message(&[8]));
    client.send(Command::WRITE, |out| request.emit(out));
    client.peer.until(|peer| (peer.queued() == 0).then_some(()));
    for _ in 0..20 {
        let answer = other.call(Command::ECHO, |out| Empty.emit(out));
        assert_eq!(answer.header.status, NtStatus::SUCCESS);
        client.peer.work();
    }
    assert_eq!(std::fs::read(&path).unwrap()[0], 7, "answers that no account counts wait");
    client.peer.resume();
    for _ in 0..READS {
        assert_eq!(client.next().header.status, NtStatus::SUCCESS);
    }
    assert_eq!(written(&client.next()), 1);
    assert_eq!(std::fs::read(&path).unwrap()[0], 8);
}

#[test]
fn a_peer_whose_requests_wait_is_dropped_when_they_are_32_mib() {
    const BACKLOG_MAX: usize = 32 << 20;
    const LEN: usize = 1_000_000;
    let fixture = Fixture::start();
    let mut client = Client::log_on(fixture.address());
    let ask = |client: &mut Client, count: usize| {
        for _ in 0..count {
            client.send(Command::ECHO, |out| {
                Empty.emit(out);
                out.resize(LEN, 0);
            });
        }
    };
    let held = fixture.take_workers();
    ask(&mut client, 20);
    client.peer.until(|peer| (peer.queued() == 0).then_some(()));
    drop(held);
    for _ in 0..20 {
        assert_eq!(client.next().header.status, NtStatus::SUCCESS);
    }
    let _held = fixture.take_workers();
    ask(&mut client, 60);
    client.peer.wait_for_end();
    let sent = (60 - client.peer.queued()) * LEN;
    assert!((BACKLOG_MAX..BACKLOG_MAX + (4 << 20)).contains(&sent), "{sent}");
}

#[test]
fn requests_that_waited_are_all_answered_though_128_are_handled_in_a_row() {
    let fixture = Fixture::start();
    let mut client = Client::log_on(fixture.address());
    let held = fixture.take_workers();
    // The first one goes to a task.
    let long = vec![0; 200_000];
    client.send(Command::ECHO, |out| {
        Empty.emit(out);
        out.extend_from_slice(&long);
    });
    let ids: Vec<_> = (0..500).map(|_| client.send(Command::ECHO, |out| Empty.emit(out))).collect();
    client.peer.until(|peer| (peer.queued() == 0).then_some(()));
    assert!(client.peer.inbox.is_empty());
    drop(held);
    assert_eq!(client.next().header.status, NtStatus::SUCCESS);
    for id in ids {
        assert_eq!(client.next().header.message_id, id);
    }
}

#[test]
fn a_peer_that_takes_its_answers_gets_all_of_them_though_more_come_at_once_than_its_queue_holds() {
    const WAITING: usize = SEND_QUEUE_MAX + 500;
    let fixture = Fixture::start();
    let (mut holder, mut client) =
        (Client::log_on(fixture.address()), Client::log_on(fixture.address()));
    let lock = |client: &mut Client, file_id, flags| {
        let locks = vec![LockElement { offset: 0, length: 10, flags }];
        client.send(Command::LOCK, |out| {
            LockRequest { lock_sequence: 0, file_id, locks }.emit(out);
        })
    };
    let (held, wanted) = (holder.open("all.bin"), client.open("all.bin"));
    lock(&mut holder, held, LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY);
    assert_eq!(holder.next().header.status, NtStatus::SUCCESS);
    for _ in 0..WAITING {
        let id = lock(&mut client, wanted, LockFlags::SHARED);
        let answer = client.next();
        assert_eq!((answer.header.message_id, answer.header.status), (id, NtStatus::PENDING));
    }
    lock(&mut holder, held, LockFlags::UNLOCK);
    for answered in 0..WAITING {
        assert_eq!(client.next().header.status, NtStatus::SUCCESS, "{answered}");
    }
}
