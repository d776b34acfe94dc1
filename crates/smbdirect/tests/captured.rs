//! Feeds captured conversations of the Linux kernel to the machines of this crate.
//!
//! The fixtures are conversations of cifs.ko and ksmbd; each test names the side that the crate takes.

#![cfg(test)]

mod support;

use std::time::Instant;

use smbdirect::{
    Acceptor, Agreement, Config, Connection, DataTransfer, Initiator, NegotiateRequest,
    NegotiateResponse, Token,
};
use support::{Captured, LINUX_6_12, LINUX_7_2, LINUX_7_2_SIGNED_WRITE, captured};

/// The limits both kernels use.
fn linux() -> Config {
    Config {
        send_size_max: 1364,
        receive_size_max: 1364,
        fragmented_receive_size_max: 173_910,
        ..Config::default()
    }
}

fn agree_as_acceptor(now: Instant, request: &[u8]) -> Agreement {
    let mut acceptor = Acceptor::new(linux(), now).unwrap();
    acceptor.receives_posted(255);
    acceptor.handle_receive(now, request).unwrap();
    assert!(matches!(acceptor.poll_transmit(), Some(NegotiateResponse::Accepted { .. })));
    acceptor.outcome().unwrap().unwrap()
}

fn agree_as_initiator(now: Instant, response: &[u8]) -> Agreement {
    let mut initiator = Initiator::new(linux()).unwrap();
    initiator.poll_transmit(now).unwrap();
    initiator.handle_receive(now, response).unwrap()
}

/// Feeds one side of a conversation to a connection; returns the SMB2 messages that it reassembled.
fn feed<'a>(
    agreement: Agreement,
    now: Instant,
    posted: u16,
    messages: impl Iterator<Item = &'a Captured>,
) -> Vec<Vec<u8>> {
    let mut connection = Connection::new(agreement, now);
    connection.receives_posted(posted);
    let mut out = vec![0; 1364];
    let mut whole = Vec::new();
    while connection.poll_transmit(&mut out).is_some() {}
    for message in messages {
        if let Some(message) = connection.handle_receive(now, &message.bytes).unwrap() {
            whole.push(message.to_vec());
        }
        connection.receives_posted(1);
        while connection.poll_transmit(&mut out).is_some() {}
    }
    whole
}

fn assert_smb2(messages: &[Vec<u8>]) {
    for message in messages {
        assert_eq!(message[..4], *b"\xfeSMB");
    }
}

#[test]
fn a_cifs_client_is_understood_from_negotiation_to_rdma_io() {
    for (fixture, commands) in [(LINUX_6_12, 26), (LINUX_7_2, 26)] {
        let (now, conversation) = (Instant::now(), captured(fixture));
        let mut client = conversation.iter().filter(|message| message.from_initiator);
        let agreement = agree_as_acceptor(now, &client.next().unwrap().bytes);
        assert_eq!((agreement.send_size_max, agreement.receive_size_max), (1364, 1364));
        assert_eq!(agreement.fragmented_send_size_max, 173_910);
        let messages = feed(agreement, now, 0, client);
        assert_smb2(&messages);
        assert_eq!(messages.len(), commands);
        assert_eq!(messages[0][12..14], [0, 0], "SMB2 NEGOTIATE comes first");
    }
}

#[test]
fn a_ksmbd_server_is_understood_from_negotiation_to_rdma_io() {
    for (fixture, answers) in [(LINUX_6_12, 25), (LINUX_7_2, 25)] {
        let (now, conversation) = (Instant::now(), captured(fixture));
        let mut server = conversation.iter().filter(|message| !message.from_initiator);
        let agreement = agree_as_initiator(now, &server.next().unwrap().bytes);
        assert_eq!(agreement.read_write_size_max, 8 << 20);
        let messages = feed(agreement, now, 255, server);
        assert_smb2(&messages);
        assert_eq!(messages.len(), answers);
    }
}

#[test]
fn a_signed_write_in_fragments_is_reassembled() {
    let now = Instant::now();
    let request = &captured(LINUX_7_2)[0].bytes;
    let agreement = agree_as_acceptor(now, request);
    let conversation = captured(LINUX_7_2_SIGNED_WRITE);
    let client = conversation.iter().filter(|message| message.from_initiator);
    let messages = feed(agreement, now, 0, client);
    assert_smb2(&messages);
    assert_eq!(messages.iter().map(Vec::len).collect::<Vec<_>>(), [16_496]);
}

#[test]
fn every_captured_message_is_emitted_as_it_was() {
    for fixture in [LINUX_6_12, LINUX_7_2, LINUX_7_2_SIGNED_WRITE] {
        for message in captured(fixture) {
            let bytes = &message.bytes;
            let emitted = match bytes.len() {
                20 if bytes[..2] == [0, 1] => {
                    let mut out = [0; 20];
                    NegotiateRequest::parse(bytes).unwrap().emit(&mut out);
                    out.to_vec()
                }
                32 if bytes[..2] == [0, 1] => {
                    let mut out = [0; 32];
                    NegotiateResponse::parse(bytes).unwrap().emit(&mut out);
                    out.to_vec()
                }
                _ => {
                    let (header, payload) = DataTransfer::parse(bytes).unwrap();
                    let mut out = [0; 24];
                    let len = header.emit(u32::try_from(payload.len()).unwrap(), &mut out);
                    [&out[..len], payload].concat()
                }
            };
            assert_eq!(emitted, *bytes);
        }
    }
}

#[test]
fn ksmbd_invalidates_the_token_of_the_request_it_answers() {
    let conversation = captured(LINUX_7_2);
    let mut offered: Option<Token> = None;
    let mut answered = 0;
    for message in &conversation {
        let (_, payload) = match DataTransfer::parse(&message.bytes) {
            Ok(parsed) if message.bytes[..2] != [0, 1] => parsed,
            _ => continue,
        };
        // SMB2 READ and WRITE carry their descriptors behind their body of 48 bytes.
        if message.from_initiator && payload.len() == 128 && [8, 9].contains(&payload[12]) {
            let descriptors = smbdirect::Descriptors::parse(&payload[112..]).unwrap();
            offered = Some(descriptors.first_token());
        } else if message.invalidate.is_some() {
            assert_eq!(message.invalidate, offered.take());
            answered += 1;
        }
    }
    assert_eq!(answered, 5);
}
