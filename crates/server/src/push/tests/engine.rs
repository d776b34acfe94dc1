//! The engine threads with real sockets: a client engine in the test, and a gate whose answers the
//! test chooses.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use basics::{Clock, Environment};
use pmem::{AtomicOp, DurabilityClass, Medium, MediumError, StoreGranularity};
use rdma::{
    Access, ConnectFailure, Engine, EngineConfig, Event, Operation, Payload, Placement, PollPolicy,
    Provider, QpConfig, QpId, ShmProvider, SoftProvider, WorkRequest,
};
use remote::host::{
    Gate, Host, HostError, HostHandle, HostOptions, OpenHost, PushConnection, Request, Verdict,
};
use smb::push::{PushAccept, PushConnect, PushConnectionId, PushProof};
use smb::{Guid, NtStatus};
use tree::CommonNames;

use crate::config::{PushPolicy, SigningPolicy, Users};
use crate::limits::Limits;
use crate::push::{Push, Wanted, refusal, wanted};
use crate::service::{Core, CoreParts};
use crate::transport::direct::Direct;

const TOKEN: [u8; 32] = [7; 32];
/// The token at which the gate panics.
const CURSED: [u8; 32] = [13; 32];

/// A gate that knows one token and records its calls.
#[derive(Debug, Default)]
struct TestGate {
    admitted: Mutex<Vec<PushConnection>>,
    gone: Mutex<Vec<PushConnection>>,
}

fn answer(status: NtStatus, id: u64) -> Vec<u8> {
    let mut out = Vec::new();
    PushAccept { status, push_connection_id: PushConnectionId(id) }.emit(&mut out);
    out
}

impl Gate for TestGate {
    fn admit(&self, request: &Request, connection: PushConnection) -> Verdict {
        match wanted(&request.private_data, request.is_same_host) {
            Wanted::SmbDirect => return Verdict::NotPush,
            Wanted::Refuse(status) => return Verdict::Refuse(refusal(status)),
            Wanted::Push => {}
        }
        let request = PushConnect::parse(&request.private_data).unwrap();
        assert_ne!(request.proof, PushProof::new(CURSED), "a bug of the gate's");
        if request.proof != PushProof::new(TOKEN) {
            return Verdict::Refuse(answer(NtStatus::ACCESS_DENIED, 0));
        }
        self.admitted.lock().unwrap().push(connection);
        Verdict::Admit(answer(NtStatus::SUCCESS, connection.0))
    }

    fn gone(&self, connection: PushConnection) {
        self.gone.lock().unwrap().push(connection);
    }
}

fn core(runtime: &tokio::runtime::Runtime, limits: Limits) -> Arc<Core> {
    Arc::new(Core::new(CoreParts {
        environment: Environment::host(),
        limits,
        shares: Vec::new(),
        names: CommonNames::default(),
        users: Users::with_passwords([("user", "secret")]),
        signing: SigningPolicy::Required,
        encrypt_required: false,
        guid: Guid([1; 16]),
        tcp_address: None,
        announced: Vec::new(),
        push: Push::new(PushPolicy::default(), Clock::host(), runtime.handle().clone()),
        runtime: runtime.handle().clone(),
        first_serial: 1,
    }))
}

struct Fixture {
    core: Arc<Core>,
    runtime: tokio::runtime::Runtime,
    gate: Arc<TestGate>,
    handle: HostHandle,
    same_host: Option<SocketAddr>,
    thread: Option<Host>,
    client: Box<dyn Engine>,
    events: Vec<Event>,
}

impl Fixture {
    fn start() -> Self {
        Self::start_with(Limits::default(), 1)
    }

    fn start_with(limits: Limits, threads: usize) -> Self {
        Self::start_at(limits, threads, None)
    }

    fn start_at(limits: Limits, threads: usize, same_host: Option<SocketAddr>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let config = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let options = HostOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            same_host,
            provider: Arc::new(SoftProvider),
            engine: config.clone(),
            threads,
            runtime: runtime.handle().clone(),
            stop_grace: limits.shutdown_grace,
        };
        let open = OpenHost::open(options).unwrap();
        let (handle, same_host) = (open.handle().clone(), open.handle().same_host());
        let gate = Arc::new(TestGate::default());
        let asked = Arc::clone(&gate) as Arc<dyn Gate>;
        let core = core(&runtime, limits);
        let direct = |engine: &dyn Engine| {
            Direct::new(Arc::clone(&core), engine.waker(), engine.inline_max())
        };
        let thread = open.run(asked, direct).unwrap();
        let client = SoftProvider.open_engine(config).unwrap();
        let (thread, events) = (Some(thread), Vec::new());
        Self { core, runtime, gate, handle, same_host, thread, client, events }
    }

    /// Runs the client until an event for which `pick` returns a value.
    fn until<T>(&mut self, pick: impl Fn(&Event) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.events.iter().position(|event| pick(event).is_some());
            if let Some(index) = found {
                return pick(&self.events.remove(index)).unwrap();
            }
            assert!(Instant::now() < end, "nothing but {:?}", self.events);
            self.client.wait(Some(Duration::from_millis(100)));
            self.client.poll(&mut self.events);
        }
    }

    fn dial(&mut self, private_data: &[u8]) -> QpId {
        self.client.connect(self.handle.address(), QpConfig::default(), private_data).unwrap()
    }

    /// Dials with a token, and waits for the answer.
    fn connect(&mut self) -> (QpId, PushConnection) {
        let qp = self.dial(&request(TOKEN));
        let answer = self.until(|event| match event {
            Event::Established { private_data, .. } => Some(private_data.clone()),
            _ => None,
        });
        let accept = PushAccept::parse(&answer).unwrap();
        assert_eq!(accept.status, NtStatus::SUCCESS);
        (qp, PushConnection(accept.push_connection_id.0))
    }

    fn refused(&mut self, private_data: &[u8]) -> NtStatus {
        self.dial(private_data);
        let (reason, said) = self.until(|event| match event {
            Event::ConnectFailed { reason, private_data, .. } => {
                Some((*reason, private_data.clone()))
            }
            _ => None,
        });
        assert_eq!(reason, ConnectFailure::PeerRejected);
        PushAccept::parse(&said).unwrap().status
    }
}

fn request(token: [u8; 32]) -> Vec<u8> {
    let mut out = Vec::new();
    PushConnect { proof: PushProof::new(token) }.emit(&mut out);
    out
}

fn memory() -> Arc<dyn Medium> {
    pmem::anonymous(8192).unwrap()
}

#[test]
fn a_process_of_the_host_that_shows_no_token_gets_no_memory() {
    let name = "[fd00::1]:0".parse().unwrap();
    let mut fixture = Fixture::start_at(Limits::default(), 1, Some(name));
    let name = fixture.same_host.unwrap();
    let config = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
    fixture.client = ShmProvider.open_engine(config).unwrap();
    let mut failure = |private_data: &[u8]| {
        fixture.client.connect(name, QpConfig::default(), private_data).unwrap();
        fixture.until(|event| match event {
            Event::ConnectFailed { reason, .. } => Some(Some(*reason)),
            Event::Established { .. } => Some(None),
            _ => None,
        })
    };
    // As kernels ask for SMB Direct.
    assert_eq!(failure(&[0, 0, 0, 0x20, 0, 0, 0, 1]), Some(ConnectFailure::PeerRejected));
    assert_eq!(failure(b""), Some(ConnectFailure::PeerRejected));
    assert_eq!(failure(&request([0; 32])), Some(ConnectFailure::PeerRejected));
    assert_eq!(failure(&request(TOKEN)), None, "who shows one gets it");
}

#[test]
fn an_admitted_peer_writes_only_into_registered_memory() {
    let mut fixture = Fixture::start();
    let (qp, connection) = fixture.connect();
    let medium = memory();
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let registered = fixture.handle.register(connection, Arc::clone(&medium), 4096..8192, access);
    let region = fixture.runtime.block_on(registered).unwrap();
    assert_eq!(region.len, 4096);
    let write = |bytes| Operation::Write {
        payload: Payload::Inline(bytes),
        rkey: region.rkey,
        remote_addr: region.remote_addr_base + 8,
    };
    fixture.client.post_send(qp, WorkRequest::signaled(1, write(b"first"))).unwrap();
    // A read is answered after the bytes before it were placed.
    let sink = memory();
    let local = fixture.client.register(qp, sink, 0..8192, Access::LOCAL_WRITE).unwrap();
    let read = Operation::Read {
        local: local.slice(0, 5),
        rkey: region.rkey,
        remote_addr: region.remote_addr_base + 8,
    };
    fixture.client.post_send(qp, WorkRequest::signaled(2, read)).unwrap();
    let is_read = fixture.until(|event| match event {
        Event::Completion(done) if done.wr_id == 2 => Some(done.is_success()),
        _ => None,
    });
    assert!(is_read);
    let mut placed = [0; 5];
    medium.try_read(4104, &mut placed).unwrap();
    assert_eq!(&placed, b"first");

    let ended = fixture.handle.deregister(connection, region.rkey);
    fixture.runtime.block_on(ended).unwrap();
    let again = fixture.handle.deregister(connection, region.rkey);
    fixture.runtime.block_on(again).unwrap();
    fixture.client.post_send(qp, WorkRequest::signaled(3, write(b"later"))).unwrap();
    fixture.until(|event| matches!(event, Event::Disconnected { .. }).then_some(()));
    medium.try_read(4104, &mut placed).unwrap();
    assert_eq!(&placed, b"first", "a write after deregistration ends its connection, no more");
    // Returns when the connection is gone: the gate knows by then.
    fixture.runtime.block_on(fixture.handle.disconnect(connection)).unwrap();
    assert_eq!(*fixture.gate.gone.lock().unwrap(), [connection]);
}

#[test]
fn wrong_tokens_and_other_versions_are_refused_with_the_reason() {
    let mut fixture = Fixture::start();
    assert_eq!(fixture.refused(&request([8; 32])), NtStatus::ACCESS_DENIED);
    let mut newer = request(TOKEN);
    newer[4] = 9;
    assert_eq!(fixture.refused(&newer), NtStatus::REVISION_MISMATCH);
    assert_eq!(fixture.refused(b"LFPC"), NtStatus::INVALID_PARAMETER);
    assert!(fixture.gate.admitted.lock().unwrap().is_empty());
    fixture.connect();
}

#[test]
fn disconnect_returns_when_the_connection_is_gone_for_good() {
    let mut fixture = Fixture::start();
    let (_, connection) = fixture.connect();
    let handle = fixture.handle.clone();
    fixture.runtime.block_on(handle.disconnect(connection)).unwrap();
    assert_eq!(*fixture.gate.gone.lock().unwrap(), [connection]);
    let late = handle.register(connection, memory(), 0..4096, Access::REMOTE_READ);
    assert_eq!(fixture.runtime.block_on(late).unwrap_err(), HostError::PeerGone);
    fixture.runtime.block_on(handle.disconnect(connection)).unwrap();
    fixture.until(|event| matches!(event, Event::Disconnected { .. }).then_some(()));
}

#[test]
fn an_abandoned_registration_is_undone() {
    let mut fixture = Fixture::start();
    let (_, connection) = fixture.connect();
    let medium = memory();
    let handle = fixture.handle.clone();
    {
        let registering =
            handle.register(connection, Arc::clone(&medium), 0..4096, Access::REMOTE_READ);
        let mut registering = std::pin::pin!(registering);
        let mut context = Context::from_waker(Waker::noop());
        // The command is queued; whether it is answered before the future is dropped is a race, and
        // must not matter. (If the answer is that fast, the test ends the region.)
        if let Poll::Ready(region) = registering.as_mut().poll(&mut context) {
            let ended = handle.deregister(connection, region.unwrap().rkey);
            fixture.runtime.block_on(ended).unwrap();
        }
    }
    // Commands are carried out in order: after the second of these everything before is done.
    for _ in 0..2 {
        let registered = handle.register(connection, memory(), 0..4096, Access::REMOTE_READ);
        let region = fixture.runtime.block_on(registered).unwrap();
        fixture.runtime.block_on(handle.deregister(connection, region.rkey)).unwrap();
    }
    assert_eq!(Arc::strong_count(&medium), 1);
}

#[test]
fn stopping_ends_every_connection_and_answers_waiting_callers() {
    let mut fixture = Fixture::start();
    let (_, connection) = fixture.connect();
    let medium = memory();
    let registered =
        fixture.handle.register(connection, Arc::clone(&medium), 0..8192, Access::REMOTE_WRITE);
    fixture.runtime.block_on(registered).unwrap();
    assert_eq!(fixture.thread.take().unwrap().stop(), 0);
    assert_eq!(*fixture.gate.gone.lock().unwrap(), [connection]);
    assert_eq!(Arc::strong_count(&medium), 1, "nothing refers to the region any more");
    let late = fixture.handle.disconnect(connection);
    assert_eq!(fixture.runtime.block_on(late), Err(HostError::EngineStopped));
    fixture.until(|event| matches!(event, Event::Disconnected { .. }).then_some(()));
}

#[test]
fn connections_are_spread_over_the_threads_and_found_by_name() {
    let mut fixture = Fixture::start_with(Limits::default(), 3);
    let mut connections = Vec::new();
    for _ in 0..6 {
        connections.push(fixture.connect());
    }
    let shares = |connections: &[(QpId, PushConnection)]| {
        let mut shares = [0; 3];
        for (_, PushConnection(number)) in connections {
            shares[usize::try_from(number % 3).unwrap()] += 1;
        }
        shares
    };
    assert_eq!(shares(&connections), [2, 2, 2]);
    for (wr_id, (qp, connection)) in (0..).zip(connections.clone()) {
        let medium = memory();
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let registered = fixture.handle.register(connection, Arc::clone(&medium), 0..8192, access);
        let region = fixture.runtime.block_on(registered).unwrap();
        let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
        let write = Operation::Write { payload: Payload::Inline(b"mine"), rkey, remote_addr };
        fixture.client.post_send(qp, WorkRequest::signaled(wr_id, write)).unwrap();
        let local = fixture.client.register(qp, memory(), 0..8192, Access::LOCAL_WRITE).unwrap();
        let read = Operation::Read { local: local.slice(0, 4), rkey, remote_addr };
        fixture.client.post_send(qp, WorkRequest::signaled(100 + wr_id, read)).unwrap();
        let is_read = fixture.until(|event| match event {
            Event::Completion(done) if done.wr_id == 100 + wr_id => Some(done.is_success()),
            _ => None,
        });
        assert!(is_read);
        let mut placed = [0; 4];
        medium.try_read(0, &mut placed).unwrap();
        assert_eq!(&placed, b"mine");
    }
    // Two connections of one thread end: that thread gets the next ones.
    let ended: Vec<_> = connections.extract_if(.., |(_, name)| name.0 % 3 == 1).collect();
    for (_, connection) in ended {
        fixture.runtime.block_on(fixture.handle.disconnect(connection)).unwrap();
    }
    for _ in 0..2 {
        connections.push(fixture.connect());
    }
    assert_eq!(shares(&connections), [2, 2, 2]);
    assert_eq!(fixture.thread.take().unwrap().stop(), 0);
    assert_eq!(fixture.gate.gone.lock().unwrap().len(), 8);
}

#[test]
fn an_engine_thread_that_panics_ends_its_connections_and_is_counted() {
    let mut fixture = Fixture::start();
    let (served, connection) = fixture.connect();
    let medium = memory();
    let registered =
        fixture.handle.register(connection, Arc::clone(&medium), 0..8192, Access::REMOTE_WRITE);
    fixture.runtime.block_on(registered).unwrap();
    fixture.dial(&request(CURSED));
    fixture.until(|event| {
        matches!(event, Event::Disconnected { qp, .. } if *qp == served).then_some(())
    });
    let asked = fixture.handle.disconnect(connection);
    assert_eq!(fixture.runtime.block_on(asked), Err(HostError::EngineStopped));
    assert_eq!(fixture.thread.take().unwrap().stop(), 0);
    assert_eq!(*fixture.gate.gone.lock().unwrap(), [connection]);
    assert_eq!(Arc::strong_count(&medium), 1, "nothing refers to the region any more");
    assert_eq!(
        fixture.core.connections.counters.panics.load(std::sync::atomic::Ordering::Relaxed),
        1
    );
}

/// Memory whose flushes wait until the test drops its end of a channel.
#[derive(Debug)]
struct Hung {
    memory: Arc<dyn Medium>,
    begun: Sender<()>,
    gate: Mutex<Receiver<()>>,
}

impl Medium for Hung {
    fn class(&self) -> DurabilityClass {
        DurabilityClass::Storage
    }

    fn store_granularity(&self) -> StoreGranularity {
        StoreGranularity::Page
    }

    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.memory.try_place(offset, bytes)
    }

    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.memory.try_read(offset, out)
    }

    fn try_persist(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        Err(MediumError::WouldBlock)
    }

    fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.memory.try_atomic(offset, op)
    }

    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.memory.place(offset, bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError> {
        self.memory.read(offset, out)
    }

    fn persist(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        self.begun.send(()).unwrap();
        // The receive ends with an error when the test drops the other end.
        let _ = self.gate.lock().unwrap().recv();
        Ok(())
    }

    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError> {
        self.memory.atomic(offset, op)
    }

    fn prepare(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.memory.prepare(offset, len)
    }
}

#[test]
fn stopping_counts_connections_inside_a_file_that_hangs() {
    let limits = Limits { shutdown_grace: Duration::from_millis(20), ..Limits::default() };
    let mut fixture = Fixture::start_with(limits, 1);
    let (begun, begins) = channel();
    let (release, gate) = channel();
    let hung = Arc::new(Hung { memory: memory(), begun, gate: Mutex::new(gate) });
    let (qp, connection) = fixture.connect();
    fixture.connect();
    let access = Access::REMOTE_WRITE | Access::FLUSH_PERSISTENCE;
    let medium: Arc<dyn Medium> = hung.clone();
    let registered = fixture.handle.register(connection, medium, 0..8192, access);
    let region = fixture.runtime.block_on(registered).unwrap();
    let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
    let flush = Operation::Flush { rkey, remote_addr, len: 8, kind: Placement::Persistence };
    // The atomic write has to wait for the flush.
    let publish = Operation::AtomicWrite { rkey, remote_addr, value: u64::MAX };
    for (wr_id, operation) in [(1, flush), (2, publish)] {
        fixture.client.post_send(qp, WorkRequest::signaled(wr_id, operation)).unwrap();
    }
    while begins.try_recv().is_err() {
        fixture.client.poll(&mut fixture.events);
    }
    assert_eq!(fixture.thread.take().unwrap().stop(), 1, "the idle one has ended");
    drop(release);
    while Arc::strong_count(&hung) > 1 {
        std::thread::yield_now();
    }
    let mut word = [0; 8];
    hung.try_read(0, &mut word).unwrap();
    assert_eq!(word, [0; 8], "nothing began after the stop");
}

const PATIENCE: Duration = Duration::from_secs(20);
