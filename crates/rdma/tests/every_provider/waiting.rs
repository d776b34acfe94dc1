//! Engines that sleep, and the events that wake them.

use std::time::Duration;

use rdma::{Access, EngineConfig, Operation, Payload, PollPolicy, QpConfig};

use super::support::{End, Pair, bytes_of, memory, provider, write};
use super::{barrier, same, target};

#[test]
fn a_sleeping_engine_wakes_for_its_peer_and_for_a_waker() {
    let mut pair = Pair::of_any();
    let inbox = memory(4096);
    let qp = pair.server_qp;
    let access = Access::LOCAL_WRITE;
    let buffer = pair.server.engine.register(qp, inbox, 0..4096, access).unwrap();
    pair.server.engine.post_recv(qp, 1, buffer.slice(0, 64)).unwrap();
    let Pair { mut client, mut server, client_qp, .. } = pair;
    let waker = server.engine.waker();
    let (told, heard) = std::sync::mpsc::channel();
    let sleeper = std::thread::spawn(move || {
        loop {
            server.engine.wait(Some(Duration::from_secs(20)));
            server.engine.poll(&mut server.events);
            if let Some(done) = server.completion() {
                told.send(done.wr_id).unwrap();
                break;
            }
        }
        // PollPolicy::Block sleeps at once, and only the waker ends this wait.
        server.engine.wait(None);
        server.engine.stats()
    });
    let payload = Payload::Inline(b"wake up");
    client.post(client_qp, 9, Operation::Send { payload, invalidate: None, solicited: false });
    let mut rounds = 0;
    let wr_id = loop {
        client.engine.poll(&mut client.events);
        match heard.recv_timeout(Duration::from_millis(1)) {
            Ok(wr_id) => break wr_id,
            Err(_) => rounds += 1,
        }
        assert!(rounds < 20_000, "the message woke nobody");
    };
    assert_eq!(wr_id, 1);
    waker.wake();
    let stats = sleeper.join().unwrap();
    assert!(stats.polls > 0);
}

#[test]
fn an_engine_serves_under_every_polling_policy() {
    for polling in [PollPolicy::Adaptive, PollPolicy::Block, PollPolicy::Fixed(20)] {
        let config = EngineConfig { polling, ..EngineConfig::default() };
        let (plain, provider) = (QpConfig::default(), provider());
        let ends = (End::open(&*provider, config.clone()), End::open(&*provider, config));
        let mut pair = Pair::between(ends.0, ends.1, plain, plain);
        let medium = memory(4096);
        let region = target(&mut pair, &medium);
        pair.post(1, write(b"served", region, 0));
        barrier(&mut pair, region);
        same(&bytes_of(&*medium, 0, 6), b"served");
    }
}
