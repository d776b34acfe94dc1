//! Connections: how they are established, fail, and end.

use std::time::Duration;

use rdma::{
    Access, ConnectFailure, DisconnectReason, EngineConfig, Event, PostError, QpConfig, WcStatus,
};

use super::support::{
    Pair, address, bytes_of, established, memory, pattern, request, until, write,
};
use super::{barrier, end, failed, same, target};

#[test]
fn a_rejection_carries_its_reason() {
    let (mut client, mut server) = (end(EngineConfig::default()), end(EngineConfig::default()));
    let addr = server.engine.listen(address()).unwrap();
    client.engine.connect(addr, QpConfig::default(), b"let me in").unwrap();
    let id = until(&mut client, &mut server, |_, server| request(server));
    server.engine.reject(id, b"wrong token");
    let (reason, words) = until(&mut client, &mut server, |client, _| failed(client));
    assert_eq!((reason, &words[..]), (ConnectFailure::PeerRejected, &b"wrong token"[..]));
}

#[test]
fn the_longest_private_data_of_push_mode_arrives_whole() {
    let (mut client, mut server) = (end(EngineConfig::default()), end(EngineConfig::default()));
    let addr = server.engine.listen(address()).unwrap();
    // Zeros at the end of the private data belong to it.
    let mut token = pattern(9, 48);
    token[47] = 0;
    let qp = client.engine.connect(addr, QpConfig::default(), &token).unwrap();
    let (id, said, local) = until(&mut client, &mut server, |_, server| {
        server.take(|event| match event {
            Event::ConnectRequest { id, private_data, local, .. } => {
                Some((*id, private_data.clone(), *local))
            }
            _ => None,
        })
    });
    assert_eq!((said, local), (token, addr));
    server.engine.accept(id, QpConfig::default(), &[0; 24]).unwrap();
    let answer = until(&mut client, &mut server, |client, _| established(client, qp));
    assert_eq!(answer, [0; 24]);
}

#[test]
fn a_request_that_its_owner_does_not_answer_ends() {
    let short =
        EngineConfig { handshake_timeout: Duration::from_millis(300), ..EngineConfig::default() };
    let (mut client, mut server) = (end(EngineConfig::default()), end(short));
    let addr = server.engine.listen(address()).unwrap();
    client.engine.connect(addr, QpConfig::default(), &[]).unwrap();
    let id = until(&mut client, &mut server, |_, server| request(server));
    until(&mut client, &mut server, |_, server| {
        server.take(|event| (*event == Event::ConnectRequestGone { id }).then_some(()))
    });
    let late = server.engine.accept(id, QpConfig::default(), &[]);
    assert_eq!(late, Err(rdma::EngineError::UnknownConnection(id)));
    until(&mut client, &mut server, |client, _| failed(client));
}

#[test]
fn nobody_listening_is_told() {
    let mut client = end(EngineConfig::default());
    let mut addr = address();
    addr.set_port(1);
    if client.engine.connect(addr, QpConfig::default(), &[]).is_ok() {
        let reason = loop {
            client.engine.wait(Some(Duration::from_secs(5)));
            client.engine.poll(&mut client.events);
            if let Some((reason, _)) = failed(&mut client) {
                break reason;
            }
        };
        assert_ne!(reason, ConnectFailure::PeerSilent);
    }
}

#[test]
fn a_disconnect_ends_both_sides_and_flushes_posted_requests() {
    let mut pair = Pair::of_any();
    let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
    let inbox = memory(4096);
    let access = Access::LOCAL_WRITE;
    let buffer = pair.server.engine.register(server_qp, inbox, 0..4096, access).unwrap();
    pair.server.engine.post_recv(server_qp, 6, buffer.slice(0, 64)).unwrap();
    pair.client.engine.disconnect(client_qp);
    let reason = pair.until(|client, _| client.disconnected(client_qp));
    assert_eq!(reason, DisconnectReason::Local);
    let reason = pair.until(|_, server| server.disconnected(server_qp));
    assert_eq!(reason, DisconnectReason::PeerClosed);
    let flushed = pair.server.completion().unwrap();
    assert_eq!((flushed.wr_id, flushed.status), (6, WcStatus::Flushed));
    let gone = rdma::RegisterError::UnknownQp(server_qp);
    let engine = &mut pair.server.engine;
    assert_eq!(engine.deregister(server_qp, buffer.rkey), Err(gone));
    assert_eq!(
        engine.post_recv(server_qp, 1, buffer.slice(0, 1)),
        Err(PostError::UnknownQp(server_qp))
    );
    assert!(engine.capabilities(server_qp).is_none());
    // Ending a connection that is gone already is no error.
    engine.disconnect(server_qp);
}

#[test]
fn an_engine_that_is_dropped_ends_its_connections() {
    let pair = Pair::of_any();
    let (client_qp, server_qp) = (pair.client_qp, pair.server_qp);
    let Pair { client, mut server, .. } = pair;
    drop(client);
    let mut idle = end(EngineConfig::default());
    let reason = until(&mut idle, &mut server, |_, server| server.disconnected(server_qp));
    assert_ne!(reason, DisconnectReason::Local, "{client_qp}");
}

#[test]
fn a_request_can_be_served_by_another_engine() {
    let (mut client, mut first) = (end(EngineConfig::default()), end(EngineConfig::default()));
    let addr = first.engine.listen(address()).unwrap();
    let client_qp = client.engine.connect(addr, QpConfig::default(), b"who?").unwrap();
    let id = until(&mut client, &mut first, |_, first| request(first));
    let handover = first.engine.hand_over(id).unwrap();
    assert!(first.engine.hand_over(id).is_none(), "it is gone from there");
    let late = first.engine.accept(id, QpConfig::default(), &[]);
    assert_eq!(late, Err(rdma::EngineError::UnknownConnection(id)));
    let mut second = end(EngineConfig::default());
    let id = second.engine.take_over(handover).unwrap();
    let server_qp = second.engine.accept(id, QpConfig::default(), b"me").unwrap();
    let said = until(&mut client, &mut second, |client, _| established(client, client_qp));
    assert_eq!(said, b"me");
    let mut pair = Pair { client, server: second, client_qp, server_qp, addr };
    let medium = memory(4096);
    let region = target(&mut pair, &medium);
    pair.post(1, write(b"served", region, 0));
    barrier(&mut pair, region);
    same(&bytes_of(&*medium, 0, 6), b"served");
    assert!(!first.events.iter().any(|event| matches!(
        event,
        Event::ConnectRequestGone { .. } | Event::Disconnected { .. }
    )));
}
