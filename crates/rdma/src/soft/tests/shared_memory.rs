//! Engines whose peers on this host write arbitrary values into the shared memory of a connection.

use super::super::engine::SoftEngine;
use super::super::socket::{ByteStream as _, Network, Socket, Transfer};
use super::support::{End, Pair, address, bytes_of, established, memory, request, write};
use crate::{
    DisconnectReason, Engine as _, EngineConfig, Event, PollPolicy, QpConfig, ShmProvider,
    TerminateCode,
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
fn a_peer_with_impossible_positions_before_its_request_is_dropped() {
    let mut server = End::open(&ShmProvider, blocking());
    let addr = server.engine.listen(address()).unwrap();
    let mut liar = Network::Shm.dial(addr, None).unwrap();
    let mut room = [0; 64];
    let mut lied = false;
    loop {
        server.engine.poll(&mut server.events);
        match liar.receive(&mut room) {
            Transfer::Blocked => {}
            Transfer::Closed | Transfer::Lost(_) => break,
            other => panic!("{other:?}"),
        }
        let Socket::Shm(socket) = &mut liar else { panic!("{liar:?}") };
        if !lied && socket.is_mapped() {
            socket.lie(1 << 40);
            socket.ring();
            lied = true;
        }
    }
    assert_eq!(server.events, []);
}
