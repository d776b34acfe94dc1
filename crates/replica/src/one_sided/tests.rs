//! Two rings of one process, and an engine between them.

use std::collections::VecDeque;
use std::time::Duration;

use basics::Environment;
use log::Lsn;
use rdma::{ConnectFailure, PollPolicy, ProviderChoice};

use super::{Channel, Hosting, OneSidedError, OneSidedOptions};
use crate::format::{Geometry, Label};
use crate::message::{Peer, Ticket};
use crate::names::{GroupId, MemberId};
use crate::ring::{CreateOptions, Ring};

const CAPACITY: u64 = 1 << 20;
const PEER: Peer = Peer { member: MemberId(0), connection: 7 };

fn options() -> OneSidedOptions {
    OneSidedOptions {
        provider: ProviderChoice::Soft,
        listen: ([127, 0, 0, 1], 0).into(),
        addresses: Vec::new(),
        polling: PollPolicy::Block,
    }
}

struct Pair {
    source: Ring,
    target: Ring,
    hosting: Hosting,
    _directory: tempfile::TempDir,
}

fn pair() -> Pair {
    let directory = tempfile::tempdir().unwrap();
    let ring = |name| {
        let options = CreateOptions {
            geometry: Geometry::new(CAPACITY, 1),
            overwrite: false,
            fills: false,
            medium: pmem::OpenOptions { emulate_persistence: true },
        };
        let label = Label { group: GroupId([3; 16]), ..Label::default() };
        Ring::create(&directory.path().join(name), &label, options).unwrap()
    };
    let (source, target) = (ring("source"), ring("target"));
    let hosting = Hosting::open(&options(), &Environment::host()).unwrap();
    Pair { source, target, hosting, _directory: directory }
}

impl Pair {
    fn dial(&self, ticket: &Ticket) -> Result<(Channel, u64), OneSidedError> {
        let address = self.hosting.address();
        Channel::dial(&options(), &Environment::host(), &self.source, address, ticket)
    }

    fn connect(&self) -> Channel {
        let (mut channel, connection) = self.dial(&self.hosting.invite(PEER).unwrap()).unwrap();
        channel.attach(self.hosting.map(PEER, connection, &self.target).unwrap());
        channel
    }

    fn at(&self, lsn: u64) -> u8 {
        let mut byte = [0];
        self.target.read(Lsn(lsn), &mut byte).unwrap();
        byte[0]
    }
}

/// Waits for the end of everything that is on its way.
fn settle(channel: &mut Channel) -> Result<Vec<Lsn>, OneSidedError> {
    let mut ends = VecDeque::new();
    while channel.under_way() > 0 {
        channel.poll(&mut ends)?;
        channel.wait(Duration::from_millis(20));
    }
    Ok(ends.into())
}

#[test]
fn a_range_comes_to_the_same_place_of_the_other_ring_also_across_its_end() {
    let pair = pair();
    let mut channel = pair.connect();
    let bytes: Vec<u8> = (0..8192_u32).map(|at| u8::try_from(at % 251).unwrap() + 1).collect();
    let from = Lsn(CAPACITY - 4096);
    pair.source.place_bytes(Lsn(0), &[0xAB; 128]).unwrap();
    pair.source.place_bytes(from, &bytes[..4096]).unwrap();
    channel.write(from, from.plus(4096 + 128)).unwrap();
    channel.write(from, from.plus(64)).unwrap();
    assert_eq!(settle(&mut channel).unwrap(), [from.plus(4096 + 128), from.plus(64)]);
    let mut found = vec![0; 4096];
    pair.target.read(from, &mut found).unwrap();
    assert!(found == bytes[..4096]);
    assert_eq!((pair.at(CAPACITY), pair.at(CAPACITY + 127)), (0xAB, 0xAB));
    assert_eq!(pair.at(CAPACITY + 128), 0);
}

#[test]
fn what_a_source_writes_whose_rights_were_revoked_lands_nowhere() {
    let pair = pair();
    let mut channel = pair.connect();
    pair.source.place_bytes(Lsn(0), &[1; 64]).unwrap();
    channel.write(Lsn(0), Lsn(64)).unwrap();
    settle(&mut channel).unwrap();
    assert_eq!(pair.at(0), 1);
    // It was paused before this, and knows nothing of it.
    pair.hosting.revoke(PEER);
    assert!(!pair.hosting.is_mapped(PEER));
    pair.source.place_bytes(Lsn(0), &[2; 64]).unwrap();
    let written = channel.write(Lsn(0), Lsn(64)).and_then(|()| settle(&mut channel).map(drop));
    assert!(written.is_err());
    assert_eq!(pair.at(0), 1);
    // Another connection has to be invited anew.
    pair.source.place_bytes(Lsn(0), &[3; 64]).unwrap();
    let mut channel = pair.connect();
    channel.write(Lsn(0), Lsn(64)).unwrap();
    settle(&mut channel).unwrap();
    assert_eq!(pair.at(0), 3);
}

#[test]
fn a_connection_without_a_ticket_is_refused_and_one_of_another_peer_is_not_mapped() {
    let pair = pair();
    let refused = |ticket: Ticket| match pair.dial(&ticket) {
        Err(OneSidedError::Unreachable(ConnectFailure::PeerRejected)) => {}
        other => panic!("{other:?}"),
    };
    refused(Ticket([0; 32]));
    let void = pair.hosting.invite(PEER).unwrap();
    let ticket = pair.hosting.invite(PEER).unwrap();
    refused(void);
    let (mut channel, connection) = pair.dial(&ticket).unwrap();
    refused(ticket);
    let other = Peer { connection: 8, ..PEER };
    let not_mapped = pair.hosting.map(other, connection, &pair.target);
    assert!(matches!(not_mapped, Err(OneSidedError::OtherBearer)), "{not_mapped:?}");
    assert!(matches!(channel.write(Lsn(0), Lsn(64)), Err(OneSidedError::NotMapped)));
    channel.attach(pair.hosting.map(PEER, connection, &pair.target).unwrap());
    channel.write(Lsn(0), Lsn(64)).unwrap();
    settle(&mut channel).unwrap();
}

#[test]
fn a_member_has_so_many_connections_of_sources_and_no_more() {
    let pair = pair();
    let mut channels = Vec::new();
    for connection in 0.. {
        let Ok(ticket) = pair.hosting.invite(Peer { connection, ..PEER }) else { break };
        match pair.dial(&ticket) {
            Ok(dialed) => channels.push(dialed),
            Err(_) => break,
        }
    }
    assert_eq!(channels.len(), 32);
}
