//! Conversations of Linux's SMB client and server as TCP had them, through all of our layers at once: each test says
//! in whose place we stand.
//!
//! What single layers make of the same conversations is tested in their crates; here it is that the layers hand each
//! other the right thing: a token in an SMB2 READ is the STag of an RDMA Write, a password the key of a signature.

mod live;
mod wire;

use std::collections::HashMap;
use std::sync::Arc;

use iwarp::Stag;
use smb::auth::ntlm::{AcceptorConfig, Freshness};
use smb::auth::{Accept, Accepted, Acceptor as _, SpnegoAcceptor, UserList};
use smb::crypto::{KeySchedule, PreauthHash, Role, SessionKeys, SigningAlgorithm};
use smb::negotiate::{Dialect, NegotiateContext};
use smb::{
    Channel, Command, CreateRequest, Header, HeaderFlags, MessageId, NegotiateRequest,
    NegotiateResponse, NtStatus, ReadRequest, ReadResponse, SessionSetupRequest,
    SessionSetupResponse, TreeConnectRequest, WriteRequest, WriteResponse, compound,
};

use wire::{Dial, From, Seen, Started, Wire, segments, start};

const LINUX_6_12: &str = include_str!("fixtures/linux-6.12.hex");
const LINUX_7_2: &str = include_str!("fixtures/linux-7.2.hex");

/// How the two kernels begin. Beside the request cifs.ko says its depths once more, each kernel in an
/// order of its own.
const DIALS: [(&str, Dial); 2] = [
    (LINUX_6_12, Dial { private_data: [32, 0, 0, 0, 1, 0, 0, 0], ord: 0 }),
    (LINUX_7_2, Dial { private_data: [0, 0, 0, 32, 0, 0, 0, 1], ord: 1 }),
];

/// A whole fixture, carried from end to end.
fn replay(text: &str) -> (Started, Wire) {
    let segments = segments(text);
    let (_, dial) = DIALS.into_iter().find(|(fixture, _)| *fixture == text).unwrap();
    let started = start(&segments[0].bytes, &segments[1].bytes, dial);
    let mut wire = Wire::new(&started);
    for segment in &segments[2..] {
        wire.carry(segment);
    }
    assert!(wire.is_at_rest());
    (started, wire)
}

/// One PDU of the conversation.
#[derive(Clone, Debug)]
struct Pdu {
    from: From,
    header: Header,
    bytes: Vec<u8>,
}

fn pdus(wire: &Wire) -> Vec<Pdu> {
    let mut pdus = Vec::new();
    for seen in &wire.seen {
        let Seen::Message(from, message, _) = seen else { continue };
        for step in compound::walk(message) {
            let (range, header) = step.unwrap();
            assert_eq!(header.flags.contains(HeaderFlags::RESPONSE), *from == From::Server);
            pdus.push(Pdu { from: *from, header, bytes: message[range].to_vec() });
        }
    }
    pdus
}

fn requests(pdus: &[Pdu]) -> Vec<Command> {
    let requests = pdus.iter().filter(|pdu| pdu.from == From::Client);
    requests.map(|pdu| pdu.header.command).collect()
}

#[test]
fn mpa_ends_in_the_agreement_the_kernels_had() {
    let answers = [&[0, 0, 0, 1, 0, 0, 0, 8][..], &[]];
    for ((text, dial), answer) in DIALS.into_iter().zip(answers) {
        let (started, _) = replay(text);
        assert_eq!(started.private_data, [dial.private_data.to_vec(), answer.to_vec()]);
        let (client, server) = (started.client, started.server);
        assert_eq!((client.crc, client.markers, client.ready), (false, false, None));
        // ksmbd may have eight reads open with cifs.ko, which would take 32 and makes none itself.
        assert_eq!((client.ird, client.ord, server.ord), (32, dial.ord, 8));
        assert!(!client.is_extended() && !server.is_extended());
    }
}

#[test]
fn every_request_is_answered_once_and_in_the_order_cifs_ko_numbered_them() {
    let (_, wire) = replay(LINUX_6_12);
    let pdus = pdus(&wire);
    let commands = requests(&pdus);
    let expected = [
        Command::NEGOTIATE,
        Command::SESSION_SETUP,
        Command::SESSION_SETUP,
        Command::TREE_CONNECT,
        Command::IOCTL,
        Command::TREE_CONNECT,
        Command::CREATE,
        Command::IOCTL,
        Command::QUERY_INFO,
    ];
    assert_eq!(commands[..expected.len()], expected);
    let mut open: HashMap<MessageId, Command> = HashMap::new();
    let mut next = 0;
    for pdu in &pdus {
        let (id, command) = (pdu.header.message_id, pdu.header.command);
        match pdu.from {
            From::Client => {
                assert_eq!(id, MessageId(next), "{command}");
                next += u64::from(pdu.header.credit_charge.max(1));
                assert!(open.insert(id, command).is_none());
            }
            From::Server => assert_eq!(open.remove(&id), Some(command)),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn what_was_negotiated_is_what_the_kernels_went_on_with() {
    for text in [LINUX_6_12, LINUX_7_2] {
        let (_, wire) = replay(text);
        let pdus = pdus(&wire);
        let request = NegotiateRequest::parse(&pdus[0].bytes).unwrap();
        assert_eq!(request.dialects, [Dialect::SMB_3_1_1]);
        let response = NegotiateResponse::parse(&pdus[1].bytes).unwrap();
        assert_eq!(response.dialect, Dialect::SMB_3_1_1);
        assert_eq!((response.read_size_max, response.write_size_max), (4 << 20, 4 << 20));
        let preauth = |context: &NegotiateContext<'_>| {
            matches!(context, NegotiateContext::PreauthIntegrity { .. })
        };
        assert!(request.contexts.iter().any(preauth) && response.contexts.iter().any(preauth));
    }
}

/// Our authentication in ksmbd's place: with the challenge that ksmbd drew it must let cifs.ko in.
fn log_on(pdus: &[Pdu], password: &str) -> Result<(Accepted, SessionKeys), String> {
    let setups: Vec<_> =
        pdus.iter().filter(|pdu| pdu.header.command == Command::SESSION_SETUP).collect();
    let [first, challenge, second, _] = setups[..] else { panic!("two rounds") };
    assert_eq!(challenge.header.status, NtStatus::MORE_PROCESSING_REQUIRED);
    let token = SessionSetupResponse::parse(&challenge.bytes).unwrap().token;
    let at = token.windows(12).position(|bytes| bytes == b"NTLMSSP\0\x02\0\0\0").unwrap();
    let fresh =
        Freshness { challenge: token[at + 24..at + 32].try_into().unwrap(), now_filetime: 0 };
    let mut users = UserList::new();
    users.add_password("tester", password);
    let config = Arc::new(AcceptorConfig::new("rig"));
    let mut acceptor = SpnegoAcceptor::new(config, Arc::new(users), fresh);
    let mut step = |pdu: &Pdu| acceptor.step(SessionSetupRequest::parse(&pdu.bytes).unwrap().token);
    assert!(matches!(step(first), Accept::Continue(_)));
    let accepted = match step(second) {
        Accept::Done(accepted) => accepted,
        other => return Err(format!("{other:?}")),
    };
    let negotiated = NegotiateResponse::parse(&pdus[1].bytes).unwrap();
    let signing = negotiated.contexts.iter().find_map(|context| match context {
        NegotiateContext::Signing(ids) => SigningAlgorithm::from_id(ids[0].0),
        _ => None,
    });
    let mut preauth = PreauthHash::new();
    for pdu in [&pdus[0], &pdus[1], first, challenge, second] {
        preauth.update(&pdu.bytes);
    }
    let schedule = KeySchedule::Smb311 {
        preauth,
        signing: signing.unwrap_or(SigningAlgorithm::AesCmac),
        cipher: None,
    };
    let keys = schedule.derive(accepted.session_key.as_ref().unwrap(), Role::Server);
    Ok((accepted, keys))
}

#[test]
fn the_password_leads_to_the_key_that_signed_what_followed() {
    for text in [LINUX_6_12, LINUX_7_2] {
        let (_, wire) = replay(text);
        let pdus = pdus(&wire);
        let (accepted, keys) = log_on(&pdus, "secret").unwrap();
        assert_eq!(accepted.identity.user, "tester");
        let signed: Vec<_> =
            pdus.iter().filter(|pdu| pdu.header.flags.contains(HeaderFlags::SIGNED)).collect();
        let commands: Vec<_> = signed.iter().map(|pdu| (pdu.from, pdu.header.command)).collect();
        // MS-SMB2 §3.3.5.5.3: the answer that ends an authentication of 3.1.1 is signed always;
        // §3.2.4.1.1: so is TREE_CONNECT.
        assert_eq!(commands[0], (From::Server, Command::SESSION_SETUP));
        assert!(commands.contains(&(From::Client, Command::TREE_CONNECT)));
        for pdu in signed {
            let mut bytes = pdu.bytes.clone();
            keys.signing.verify(&mut bytes).unwrap();
            bytes[70] ^= 1;
            keys.signing.verify(&mut bytes).unwrap_err();
        }
    }
}

#[test]
fn another_password_is_denied() {
    let (_, wire) = replay(LINUX_6_12);
    let denied = log_on(&pdus(&wire), "Secret").unwrap_err();
    assert!(denied.contains("PeerCredentials"), "{denied}");
}

#[test]
fn names_come_through_all_layers() {
    let (_, wire) = replay(LINUX_6_12);
    let (mut trees, mut files) = (Vec::new(), Vec::new());
    for pdu in pdus(&wire).iter().filter(|pdu| pdu.from == From::Client) {
        match pdu.header.command {
            Command::TREE_CONNECT => {
                trees.push(TreeConnectRequest::parse(&pdu.bytes).unwrap().path.into_string());
            }
            Command::CREATE => {
                files.push(CreateRequest::parse(&pdu.bytes).unwrap().name.into_string());
            }
            _ => {}
        }
    }
    assert_eq!(trees, [r"\\10.77.0.2\IPC$", r"\\10.77.0.2\dax"]);
    assert!(files.iter().any(|name| name == "rdma_plain.bin"), "{files:?}");
}

/// What the wire did between a request that names memory and its answer.
#[derive(Debug, Default)]
struct Moved {
    /// Bytes the server fetched, over all its requests.
    fetched: u64,
    /// Bytes the server put, and its writes.
    put: u64,
    writes: usize,
}

#[test]
fn payload_moves_through_exactly_the_memory_that_smb_named() {
    let (_, wire) = replay(LINUX_6_12);
    // The memory an SMB2 request names: STag, first byte, length.
    let mut named: Option<(Stag, u64, u64)> = None;
    let mut moved = Moved::default();
    let mut asked: u64 = 0;
    let (mut written, mut read) = (Vec::new(), Vec::new());
    for seen in &wire.seen {
        match seen {
            Seen::Asked(request) => {
                let (stag, offset, len) = named.unwrap();
                assert_eq!((request.source_stag, request.source_offset), (stag, offset));
                assert_eq!(u64::from(request.size), len);
                asked = len;
            }
            Seen::Answered(at, len, last) => {
                assert_eq!(u64::from(*at), moved.fetched);
                moved.fetched += u64::try_from(*len).unwrap();
                assert_eq!(*last, moved.fetched == asked);
            }
            Seen::Written(stag, at, len) => {
                let (named, offset, room) = named.unwrap();
                assert_eq!((*stag, *at), (named, offset + moved.put));
                moved.put += u64::try_from(*len).unwrap();
                moved.writes += 1;
                assert!(moved.put <= room);
            }
            Seen::Message(from, message, invalidated) => {
                let header = Header::parse(message).unwrap();
                match (from, header.command) {
                    (From::Client, Command::READ) => {
                        let read = ReadRequest::parse(message).unwrap();
                        assert_eq!(read.channel, Channel::RDMA_V1_INVALIDATE);
                        named = Some(only(read.descriptors().unwrap().unwrap()));
                    }
                    (From::Client, Command::WRITE) => {
                        let write = WriteRequest::parse(message).unwrap();
                        assert_eq!(write.channel, Channel::RDMA_V1_INVALIDATE);
                        assert!(write.data.is_empty());
                        assert_eq!(u64::from(write.remaining_bytes), 1 << 20);
                        named = Some(only(write.descriptors().unwrap().unwrap()));
                    }
                    (From::Server, Command::READ) => {
                        let response = ReadResponse::parse(message).unwrap();
                        assert!(response.data.is_empty(), "it went by RDMA");
                        assert_eq!(u64::from(response.data_remaining), moved.put);
                        assert_eq!(*invalidated, named.take().map(|(stag, ..)| stag));
                        read.push(std::mem::take(&mut moved));
                    }
                    (From::Server, Command::WRITE) => {
                        let response = WriteResponse::parse(message).unwrap();
                        assert_eq!(u64::from(response.count), moved.fetched);
                        assert_eq!(*invalidated, named.take().map(|(stag, ..)| stag));
                        written.push(std::mem::take(&mut moved).fetched);
                    }
                    _ => assert_eq!(*invalidated, None),
                }
            }
        }
    }
    assert_eq!(written, [1 << 20, 1 << 20]);
    let read: Vec<_> = read.iter().map(|moved| (moved.put, moved.writes)).collect();
    assert_eq!(read, [(32 << 10, 2)], "{read:?}");
}

/// STag, first byte and length of the one descriptor there is.
fn only(descriptors: smbdirect::Descriptors<'_>) -> (Stag, u64, u64) {
    assert_eq!(descriptors.len(), 1);
    let descriptor = descriptors.iter().next().unwrap();
    (Stag(descriptor.token.0), descriptor.offset, descriptors.total_length())
}
