//! What comes over RDMA: staging memory of SMB Direct, connections and regions of push mode.

use smb::create::{
    CreateRequestContext, CreateResponse, CreateResponseContext, Lease, LeaseKey, LeaseState,
    LeaseVersion, OplockLevel,
};
use smb::push::{
    Durability, MapRequest, PushAccept, PushConnect, PushConnectionId, PushProof, PushRequest,
    PushResponse, Rights,
};
use smb::{Channel, Command, ControlCode, Empty, FileId, NtStatus};

use crate::client::{Client, From};
use crate::peer::{Peer, list};
use crate::support::{Wire, write};
use crate::{Attack, Siege};

/// Peers that announce memory, and serve no RDMA Read of it: a user alone gets half of the staging memory. Half a MiB each,
/// or what they have fetched would reach the bound of a user's requests first.
pub(crate) fn staging(siege: &Siege) -> Attack {
    let held: Vec<_> = (0..140)
        .map(|number| {
            let mut client = Client::log_on(siege.rdma_address);
            let file = client.open(&format!("staged{number}"));
            let source = list(&[client.peer.expose(0, 1 << 19)]);
            let from =
                From::Memory { channel: Channel::RDMA_V1, len: 1 << 19, descriptors: &source };
            let request = Client::write_request(file, 0, from);
            client.send(Command::WRITE, |out| request.emit(out));
            client
        })
        .collect();
    let reached = siege.watch("staging", |status| status.stagings >= STAGINGS / 2).stagings;
    let at = "server/src/transport/direct/staging.rs:STAGINGS_MAX";
    Attack { at, limit: STAGINGS / 2, reached, held: Box::new(held) }
}

/// Connections of one user, each with all receive buffers that it gets.
pub(crate) fn receives(siege: &Siege) -> Attack {
    let mut held: Vec<_> = (0..140).map(|_| Client::log_on(siege.rdma_address)).collect();
    let has_all = |client: &mut Client| {
        let answer = client.call(Command::ECHO, |out| Empty.emit(out));
        assert_eq!(answer.header.status, NtStatus::SUCCESS, "with few as well");
        client.peer.send_credits() > STRANGERS
    };
    let reached = held.iter_mut().filter_map(|client| has_all(client).then_some(BUFFERS)).sum();
    let limit = (256 << 20) / BUFFERS * BUFFERS;
    Attack { at: "RECEIVES_PER_USER_MAX", limit, reached, held: Box::new(held) }
}

/// Push connections of one user, who gets half of them.
pub(crate) fn connections(siege: &Siege) -> Attack {
    let mut wire = siege.user(1);
    let mut held = Vec::new();
    let refused = loop {
        let (id, proof) = open(&mut wire, "pushed", [1; 16]);
        wire.close(id);
        match dial(siege, proof) {
            Ok((peer, _)) => held.push(peer),
            Err(status) => break status,
        }
    };
    assert_eq!(refused, NtStatus::INSUFFICIENT_RESOURCES);
    let reached = siege.status().push_connections;
    Attack { at: "PushPolicy::connections_max", limit: 512, reached, held: Box::new((wire, held)) }
}

/// Regions of one user, who gets half of them, over some sessions: one has a bounded number of tokens.
pub(crate) fn regions(siege: &Siege) -> Attack {
    let mut held = Vec::new();
    let mut reached = 0;
    let mut number = 0_u16;
    let mut is_full = false;
    while !is_full {
        let mut wire = siege.user(1);
        let mut peer = None;
        for _ in 0..60 {
            let mut key = [0; 16];
            key[..2].copy_from_slice(&number.to_le_bytes());
            let (id, proof) = open(&mut wire, &format!("pushed{number}"), key);
            number += 1;
            let (_, connection) = peer.get_or_insert_with(|| dial(siege, proof).unwrap());
            let mapped = map_all(&mut wire, id, *connection);
            reached += mapped;
            is_full = mapped < PAGES;
            if is_full {
                break;
            }
        }
        held.push((wire, peer));
    }
    assert_eq!(siege.status().regions, reached);
    // Each file takes a descriptor, and each region of it another: of those a user may have.
    let limit = siege.user_opens_max().saturating_sub(usize::from(number)).min(8_192);
    Attack { at: "PushPolicy::regions_max", limit, reached, held: Box::new(held) }
}

// A region for each page of a file, as long as there are some.
fn map_all(wire: &mut Wire, id: FileId, push_connection_id: PushConnectionId) -> usize {
    for page in 0..PAGES {
        let request = MapRequest {
            rights: Rights::READ | Rights::WRITE,
            push_connection_id,
            file_offset: 4096 * page as u64,
            length: 4096,
        };
        let mut input = Vec::new();
        request.emit(&mut input);
        let status = wire.control(id, ControlCode::MAP_REMOTE_REGION, &input).0;
        if status != NtStatus::SUCCESS {
            assert_eq!(status, NtStatus::INSUFFICIENT_RESOURCES);
            return page;
        }
    }
    PAGES
}

// A file of 64 pages, for push.
fn open(wire: &mut Wire, name: &str, key: [u8; 16]) -> (FileId, PushProof) {
    let made = wire.open(name, |_| {}).id;
    let put = wire
        .ask(Command::WRITE, |out| write(made, PAGES as u64 * 4096 - 1, &[1]).emit(out))
        .0
        .status;
    assert_eq!(put, NtStatus::SUCCESS);
    wire.close(made);
    let state = LeaseState::READ | LeaseState::WRITE | LeaseState::HANDLE;
    let version = LeaseVersion::V2 { parent: None, epoch: 0 };
    let lease = Lease { key: LeaseKey(key), state, break_in_progress: false, version };
    let push = PushRequest {
        rights: Rights::READ | Rights::WRITE,
        durability: Durability::ANY,
        accept_emulated: true,
        regions_max: 64,
    };
    let opened = wire.open(name, |request| {
        request.oplock_level = OplockLevel::LEASE;
        request.contexts.push(CreateRequestContext::Lease(lease));
        request.contexts.push(CreateRequestContext::Push(push));
    });
    assert_eq!(opened.status, NtStatus::SUCCESS);
    let contexts = CreateResponse::parse(&opened.pdu).unwrap().contexts;
    let granted = contexts.into_iter().find_map(|context| match context {
        CreateResponseContext::Push(PushResponse::Granted(grant)) => {
            Some(grant.token.proof(grant.places()[0]))
        }
        _ => None,
    });
    (opened.id, granted.expect("push is granted"))
}

fn dial(siege: &Siege, proof: PushProof) -> Result<(Peer, PushConnectionId), NtStatus> {
    let mut request = Vec::new();
    PushConnect { proof }.emit(&mut request);
    let Some(peer) = Peer::try_dial(siege.rdma_address, &request) else {
        return Err(NtStatus::INSUFFICIENT_RESOURCES);
    };
    let accept = PushAccept::parse(&peer.welcome).unwrap();
    Ok((peer, accept.push_connection_id))
}

/// Receive buffers of a connection without a session, and the bytes of all that one may have.
const STRANGERS: u16 = 16;
const BUFFERS: usize = 255 * 8192;
const STAGINGS: usize = 256;
const PAGES: usize = 64;
