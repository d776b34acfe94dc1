//! A peer whose push messages are written by hand, and an honest client beside it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Client, ClientError, ConnectOptions, File, Path, Region, RegionSettings};
use rdma::{
    Access, ConnectFailure, DisconnectReason, Engine, EngineConfig, Event, Operation, Payload,
    Placement, PollPolicy, Provider, QpConfig, QpId, Rkey, SoftProvider, TerminateCode,
    WorkRequest,
};
use smb::push::{
    CommitRange, CommitRequest, MapRequest, MapResponse, PushAccept, PushAddress, PushConnect,
    PushConnectionId, PushGrant, PushProof, PushResponse, Rights, UnmapRequest,
};
use smb::{ControlCode, NtStatus};

use crate::fixture::{Fixture, bytes_at, pushing, pushing_with};

/// Length of every file here.
pub(crate) const LEN: u64 = 64 * 1024;

/// A client that does nothing wrong and must not be disturbed.
pub(crate) struct Honest {
    region: Region,
    path: PathBuf,
    rounds: u8,
}

impl Honest {
    pub(crate) fn at_work(fixture: &Fixture) -> Self {
        let path = fixture.file_named("honest", LEN);
        let client = fixture.client();
        let region = client.map("honest", &pushing(), 0..LEN, RegionSettings::default()).unwrap();
        let mut honest = Self { region, path, rounds: 0 };
        honest.still_works();
        honest
    }

    /// Writes, commits and reads by one-sided access, still on the first push connection or on an
    /// equal one.
    pub(crate) fn still_works(&mut self) {
        self.rounds += 1;
        let page = [self.rounds; 4096];
        self.region.write_commit(4096, &page).unwrap();
        assert_eq!(bytes_at(&self.path, 4096, 4096), page);
        let mut out = [0; 4096];
        self.region.read(4096, &mut out).unwrap();
        assert_eq!(out, page);
        assert!(matches!(self.region.path(), Path::Push { .. }), "{:?}", self.region.path());
    }
}

/// An open of its own session, which was granted push mode.
pub(crate) struct Opened<'a> {
    fixture: &'a Fixture,
    client: Client,
    file: File,
}

impl<'a> Opened<'a> {
    pub(crate) fn new(fixture: &'a Fixture, name: &str, rights: Rights) -> Self {
        fixture.file_named(name, LEN);
        Self::existing(fixture, name, rights)
    }

    pub(crate) fn existing(fixture: &'a Fixture, name: &str, rights: Rights) -> Self {
        let (client, file) = fixture.runtime.block_on(async {
            let client = Client::connect(&fixture.url(), &ConnectOptions::default()).await.unwrap();
            let file = client.open(name, &pushing_with(rights)).await.unwrap();
            (client, file)
        });
        Self { fixture, client, file }
    }

    pub(crate) fn grant(&self) -> &PushGrant {
        match self.file.push() {
            Some(PushResponse::Granted(grant)) => grant,
            other => panic!("not granted: {other:?}"),
        }
    }

    pub(crate) fn dial(&self) -> Link {
        Link::dial(self.grant().addresses[0], &hello(self.grant())).unwrap()
    }

    pub(crate) fn control(
        &self,
        code: ControlCode,
        input: &[u8],
        output_max: u32,
    ) -> Result<Vec<u8>, NtStatus> {
        let answer = self.fixture.runtime.block_on(self.file.ioctl(code, input, output_max));
        answer.map_err(|error| match error {
            ClientError::PeerStatus { status, .. } => status,
            other => panic!("the SMB connection is not to notice: {other}"),
        })
    }

    pub(crate) fn map(
        &self,
        connection: PushConnectionId,
        rights: Rights,
        file_offset: u64,
        length: u64,
    ) -> Result<MapResponse, NtStatus> {
        let request = MapRequest { rights, push_connection_id: connection, file_offset, length };
        let mut input = Vec::new();
        request.emit(&mut input);
        let output = self.control(ControlCode::MAP_REMOTE_REGION, &input, 64 * 1024)?;
        Ok(MapResponse::parse(&output).unwrap())
    }

    pub(crate) fn unmap(&self, mapped: &MapResponse) -> Result<(), NtStatus> {
        let (registration, generation) = (mapped.registration, mapped.generation);
        let mut input = Vec::new();
        UnmapRequest { registration, generation }.emit(&mut input);
        self.control(ControlCode::UNMAP_REMOTE_REGION, &input, 0).map(drop)
    }

    pub(crate) fn commit(
        &self,
        mapped: &MapResponse,
        ranges: &[(u64, u64)],
    ) -> Result<(), NtStatus> {
        let range = |&(file_offset, length): &(u64, u64)| CommitRange { file_offset, length };
        let request = CommitRequest {
            registration: mapped.registration,
            generation: mapped.generation,
            ranges: ranges.iter().map(range).collect(),
        };
        let mut input = Vec::new();
        request.emit(&mut input);
        self.control(ControlCode::COMMIT_REMOTE_REGION, &input, 64).map(drop)
    }

    /// Checks that the end of the push connection did not affect the SMB connection.
    pub(crate) fn has_not_noticed(&self) {
        self.fixture.runtime.block_on(self.client.echo()).unwrap();
    }
}

/// The private data of a push connection request, by its grant.
pub(crate) fn hello(grant: &PushGrant) -> Vec<u8> {
    showing(grant.token.proof(PushAddress::Network(grant.addresses[0])))
}

/// The private data of a push connection request, with a proof.
pub(crate) fn showing(proof: PushProof) -> Vec<u8> {
    let mut private_data = Vec::new();
    PushConnect { proof }.emit(&mut private_data);
    private_data
}

/// A push connection with hand-written messages.
pub(crate) struct Link {
    engine: Box<dyn Engine>,
    qp: QpId,
    pub(crate) id: PushConnectionId,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Link").field(&self.id).finish()
    }
}

impl Link {
    /// Dials; returns the server's reason if it rejects.
    pub(crate) fn dial(address: SocketAddr, private_data: &[u8]) -> Result<Self, NtStatus> {
        let config = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let mut engine = SoftProvider.open_engine(config).unwrap();
        let qp = engine.connect(address, QpConfig::default(), private_data).unwrap();
        let outcome = until(&mut *engine, |event| match event {
            Event::Established { private_data, .. } => Some(Ok(private_data)),
            Event::ConnectFailed { reason, private_data, .. } => Some(Err((reason, private_data))),
            _ => None,
        });
        match outcome {
            Ok(private_data) => {
                let accept = PushAccept::parse(&private_data).unwrap();
                assert_eq!(accept.status, NtStatus::SUCCESS);
                Ok(Self { engine, qp, id: accept.push_connection_id })
            }
            Err((reason, private_data)) => {
                assert_eq!(reason, ConnectFailure::PeerRejected);
                Err(PushAccept::parse(&private_data).unwrap().status)
            }
        }
    }

    /// Does `deed` and returns the Terminate code with which the server ended the connection.
    pub(crate) fn ended_by(mut self, deed: Deed, mapped: &MapResponse) -> (u8, u8, u8) {
        let first = mapped.descriptors[0];
        let rkey = Rkey(first.token.0);
        let at = |offset: i64| first.offset.wrapping_add_signed(offset);
        let operation = match deed {
            Deed::Write(offset) => {
                Operation::Write { payload: Payload::Inline(EVIL), rkey, remote_addr: at(offset) }
            }
            Deed::Read(offset) => {
                let medium = pmem::anonymous(4096).unwrap();
                let access = Access::LOCAL_WRITE;
                let own = self.engine.register(self.qp, Arc::clone(&medium), 0..4096, access);
                let local = own.unwrap().slice(0, 16);
                Operation::Read { local, rkey, remote_addr: at(offset) }
            }
            Deed::Flush(offset, len) => {
                let kind = Placement::Persistence;
                Operation::Flush { rkey, remote_addr: at(offset), len, kind }
            }
            Deed::AtomicWrite(offset) => {
                Operation::AtomicWrite { rkey, remote_addr: at(offset), value: 1 }
            }
        };
        self.engine.post_send(self.qp, WorkRequest::signaled(1, operation)).unwrap();
        let reason = until(&mut *self.engine, |event| match event {
            Event::Disconnected { reason, .. } => Some(reason),
            _ => None,
        });
        match reason {
            DisconnectReason::PeerTerminated(TerminateCode { layer, etype, code }) => {
                (layer, etype, code)
            }
            other => panic!("{deed:?} ended as {other:?}"),
        }
    }
}

/// One operation, at an offset from the beginning of the region.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    Write(i64),
    Read(i64),
    Flush(i64, u32),
    AtomicWrite(i64),
}

/// Bytes that must not arrive.
pub(crate) const EVIL: &[u8] = b"evil evil evil !";

fn until<T>(engine: &mut dyn Engine, mut pick: impl FnMut(Event) -> Option<T>) -> T {
    let start = Instant::now();
    let mut events = Vec::new();
    loop {
        engine.poll(&mut events);
        if let Some(found) = events.drain(..).find_map(&mut pick) {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "nothing came of it");
        engine.wait(Some(Duration::from_millis(100)));
    }
}

/// How long a test waits for an expected event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
