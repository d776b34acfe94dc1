//! What leaves a connection of SMB Direct, and in which order.
#![cfg(test)]

use std::collections::VecDeque;
use std::time::Instant;

use rdma::{EngineConfig, Event, PollPolicy, Provider, QpConfig, SoftProvider};
use remote::host::{Handler, Request};
use smb::negotiate::{Capabilities, Dialect, NegotiateRequest, SecurityMode};
use smb::{Command, Guid, Header, MessageId, framing};

use super::inspect::Place;
use super::mailbox::Item;
use super::table::Direct;
use crate::push::tests::rig::Rig;

fn negotiate() -> Vec<u8> {
    let mut header = Header::request(Command::NEGOTIATE, MessageId(0));
    header.credits = 1;
    let mut pdu = Vec::new();
    header.emit(&mut pdu);
    let request = NegotiateRequest {
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::empty(),
        client_guid: Guid([1; 16]),
        dialects: vec![Dialect::SMB_2_1],
        contexts: Vec::new(),
    };
    request.emit(&mut pdu);
    pdu
}

/// What a break is to the connection: a frame that no request has asked for.
fn told() -> Vec<u8> {
    let mut frame = framing::prefix(4).unwrap().to_vec();
    frame.extend([1, 2, 3, 4]);
    frame
}

/// The frames of items, in their order; those of an SMB side that comes back are its answer.
fn frames(items: VecDeque<Item>) -> Vec<Vec<u8>> {
    let frame = |item| match item {
        Item::Frames(parcel) => parcel.frame,
        Item::Home(home) => home.out,
        other => panic!("{other:?}"),
    };
    items.into_iter().map(frame).collect()
}

#[tokio::test]
async fn no_answer_leaves_before_a_break_told_before_it_over_smb_direct() {
    for place in [Place::Here { answer: 512 }, Place::Away] {
        let rig = Rig::new();
        let config = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let mut engine = SoftProvider.open_engine(config.clone()).unwrap();
        let mut client = SoftProvider.open_engine(config).unwrap();
        let address = engine.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        client.connect(address, QpConfig::default(), &[]).unwrap();
        let mut direct = Direct::new(rig.core.clone(), engine.waker(), engine.inline_max());
        let mut events = Vec::new();
        let id = loop {
            client.poll(&mut events);
            events.clear();
            engine.poll(&mut events);
            let asked = events.drain(..).find_map(|event| match event {
                Event::ConnectRequest { id, peer, local, private_data } => {
                    Some(Request { id, peer, local, private_data, is_same_host: false })
                }
                _ => None,
            });
            if let Some(request) = asked {
                break direct.accept(&mut *engine, &request, Instant::now()).unwrap().1;
            }
        };
        direct.peer_mut(id).unwrap().link.deliver(told());
        direct.with(&mut *engine, id, Instant::now(), |peer, turn| {
            peer.handle(turn, &mut negotiate(), place, None)
        });
        let peer = direct.peer_mut(id).unwrap();
        let (mut items, mut spent) = (std::mem::take(&mut peer.items), Vec::new());
        while items.len() < 2 {
            tokio::task::yield_now().await;
            peer.mailbox.collect(&mut items, &mut spent);
        }
        let frames = frames(items);
        assert_eq!((frames.len(), &frames[0]), (2, &told()));
        direct.disconnect_all(&mut *engine);
        direct.abandon();
    }
}
