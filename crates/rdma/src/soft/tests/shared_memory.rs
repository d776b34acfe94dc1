//! Engines whose peers on this host write arbitrary values into the shared memory of a connection.

use std::time::Duration;

use super::super::engine::SoftEngine;
use super::super::socket::{ByteStream as _, Listener, Network, Socket, Transfer};
use super::support::{End, Pair, address, bytes_of, established, memory, request, write};
use crate::{
    ConnectFailure, DisconnectReason, Engine as _, EngineConfig, Event, Operation, Payload,
    PollPolicy, QpConfig, ShmProvider, TerminateCode,
};

fn blocking() -> EngineConfig {
    EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() }
}

#[test]
fn a_peer_with_an_impossible_position_loses_only_its_own_connection() {
    let qp = QpConfig::default();
    let mut pair = Pair::of(&ShmProvider, &ShmProvider, qp, qp);
    let mut liar = SoftEngine::open(Network::Shm, blocking()).unwrap();
    let mut said = Vec::new();
    let liar_qp = liar.connect(pair.addr, qp, &[]).unwrap();
    let served = pair.until(|_, server| {
        liar.poll(&mut said);
        let id = request(server)?;
        Some(server.engine.accept(id, qp, &[]).unwrap())
    });
    pair.until(|_, server| {
        liar.poll(&mut said);
        established(server, served)
    });
    let is_up = |event: &Event| matches!(event, Event::Established { qp, .. } if *qp == liar_qp);
    assert!(said.iter().any(is_up));
    let link = liar.qps.at(liar_qp.index).and_then(|(_, qp)| qp.link()).unwrap();
    let Socket::Shm(socket) = &link.socket else { panic!("{:?}", link.socket) };
    socket.lie(1 << 40);
    let reason = pair.until(|_, server| server.disconnected(served));
    let code = TerminateCode { layer: 2, etype: 0, code: 1 };
    assert_eq!(reason, DisconnectReason::PeerViolation(code));
    let medium = memory(4096);
    let region = pair.target(&medium);
    pair.post(1, write(b"still here", region, 0));
    pair.until(|_, _| (bytes_of(&*medium, 0, 10) == b"still here").then_some(()));
}

#[test]
fn a_dialler_that_says_nothing_is_sent_no_memory() {
    let mut server = SoftEngine::open(Network::Shm, blocking()).unwrap();
    let addr = server.listen(address()).unwrap();
    let mut silent = Network::Shm.dial(addr, None).unwrap();
    let mut said = Vec::new();
    while server.connections.incoming.len() == 0 {
        server.poll(&mut said);
    }
    server.poll(&mut said);
    assert_eq!(silent.receive(&mut [0; 64]), Transfer::Blocked);
    let Socket::Shm(socket) = &silent else { panic!("{silent:?}") };
    assert!(!socket.is_mapped());
}

#[test]
fn a_refused_request_is_told_so_without_memory() {
    let mut server = SoftEngine::open(Network::Shm, blocking()).unwrap();
    let mut client = SoftEngine::open(Network::Shm, blocking()).unwrap();
    let addr = server.listen(address()).unwrap();
    let qp = client.connect(addr, QpConfig::default(), b"please").unwrap();
    let (mut asked, mut told) = (Vec::new(), Vec::new());
    while told.is_empty() {
        server.poll(&mut asked);
        client.poll(&mut told);
        if let Some(Event::ConnectRequest { id, .. }) = asked.pop() {
            server.reject(id, b"no");
        }
    }
    let reason = ConnectFailure::PeerRejected;
    assert_eq!(told, [Event::ConnectFailed { qp, reason, private_data: b"no".to_vec() }]);
}

#[test]
fn strangers_that_are_refused_are_taken_off_sixteen_in_a_round() {
    let mut server = SoftEngine::open(Network::Unix, blocking()).unwrap();
    let addr = server.listen(address()).unwrap();
    let Some(Listener::Unix(listener)) = server.connections.listeners.first_mut() else {
        panic!("{:?}", server.connections.listeners)
    };
    listener.refuse_everybody();
    let mut strangers: Vec<_> = (0..16).map(|_| Network::Unix.dial(addr, None).unwrap()).collect();
    server.accept_connections(0);
    for stranger in &mut strangers {
        assert_eq!(stranger.receive(&mut [0; 8]), Transfer::Closed);
    }
}

#[test]
fn a_peer_that_takes_nothing_for_the_longest_silence_loses_its_connection() {
    let silence_max = Some(Duration::from_millis(10));
    let impatient = EngineConfig { silence_max, ..blocking() };
    let qp = QpConfig::default();
    let ends = (End::open(&ShmProvider, impatient), End::open(&ShmProvider, blocking()));
    let mut pair = Pair::between(ends.0, ends.1, qp, qp);
    let medium = memory(1 << 20);
    let region = pair.target(&medium);
    let source = memory(1 << 20);
    let source = pair.local(&source);
    // More than the ring and the queue before it hold.
    let payload = Payload::Registered(source.slice(0, 1 << 20));
    let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
    pair.post(1, Operation::Write { payload, rkey, remote_addr });
    let client_qp = pair.client_qp;
    let client = &mut pair.client;
    let reason = loop {
        client.engine.wait(None);
        client.engine.poll(&mut client.events);
        if let Some(reason) = client.disconnected(client_qp) {
            break reason;
        }
    };
    let errno = rustix::io::Errno::TIMEDOUT.raw_os_error();
    assert_eq!(reason, DisconnectReason::HostIo { errno });
}

#[test]
fn a_peer_whose_request_is_garbled_is_dropped_unheard() {
    let mut server = SoftEngine::open(Network::Shm, blocking()).unwrap();
    let addr = server.listen(address()).unwrap();
    let mut liar = Network::Shm.dial(addr, None).unwrap();
    assert!(matches!(liar.send(&[0xff; 64], false), Transfer::Bytes(64)));
    let mut said = Vec::new();
    while liar.receive(&mut [0; 64]) == Transfer::Blocked {
        server.poll(&mut said);
    }
    assert_eq!(said, []);
}
