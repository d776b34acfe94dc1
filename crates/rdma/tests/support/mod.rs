//! Two engines in one thread, joined by a real connection.
//!
//! That is provider `soft` over loopback, unless the test binary is named for another provider (`over_shm`) or
//! the environment says otherwise:
//! `LANDFAST_RDMA_PROVIDER=verbs LANDFAST_RDMA_ADDR=ADDRESS` is what `cargo xtask guest verbs` sets.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod cold;
pub(crate) mod network;
pub(crate) mod slow;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmem::{Medium, OpenOptions};
use rdma::{
    Access, DisconnectReason, Engine, EngineConfig, Event, MemoryRegion, Operation, Payload,
    Placement, PollPolicy, Provider, QpConfig, QpId, Rkey, ShmProvider, SoftProvider, UnixProvider,
    VerbsProvider, WorkCompletion, WorkRequest,
};

/// The provider under test.
pub(crate) fn provider() -> Box<dyn Provider> {
    match env!("CARGO_CRATE_NAME") {
        "over_shm" => return Box::new(ShmProvider),
        "over_unix" => return Box::new(UnixProvider),
        _ => {}
    }
    match std::env::var("LANDFAST_RDMA_PROVIDER").as_deref() {
        Err(_) | Ok("soft") => Box::new(SoftProvider),
        Ok("verbs") => Box::new(VerbsProvider),
        Ok(other) => panic!("LANDFAST_RDMA_PROVIDER is soft or verbs, not {other}"),
    }
}

/// The address where the provider can be dialled; the provider chooses the port.
pub(crate) fn address() -> SocketAddr {
    let ip = std::env::var("LANDFAST_RDMA_ADDR").unwrap_or_else(|_| "127.0.0.1".into());
    SocketAddr::new(ip.parse().unwrap(), 0)
}

/// One end: an engine and its events.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) events: Vec<Event>,
}

impl End {
    pub(crate) fn open(provider: &dyn Provider, config: EngineConfig) -> Self {
        Self { engine: provider.open_engine(config).unwrap(), events: Vec::new() }
    }

    /// Takes the first event for which `pick` returns a value.
    pub(crate) fn take<T>(&mut self, pick: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let index = self.events.iter().position(|event| pick(event).is_some())?;
        let event = self.events.remove(index);
        pick(&event)
    }

    pub(crate) fn completion(&mut self) -> Option<WorkCompletion> {
        self.take(|event| match event {
            Event::Completion(completion) => Some(*completion),
            _ => None,
        })
    }

    pub(crate) fn disconnected(&mut self, id: QpId) -> Option<DisconnectReason> {
        self.take(|event| match event {
            Event::Disconnected { qp, reason } if *qp == id => Some(*reason),
            _ => None,
        })
    }

    pub(crate) fn post(&mut self, qp: QpId, wr_id: u64, operation: Operation<'_>) {
        self.engine.post_send(qp, WorkRequest::signaled(wr_id, operation)).unwrap();
    }
}

/// A dialling and an accepting end and their connection.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) client: End,
    pub(crate) server: End,
    pub(crate) client_qp: QpId,
    pub(crate) server_qp: QpId,
    pub(crate) addr: SocketAddr,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with(QpConfig::default(), QpConfig::default())
    }

    pub(crate) fn with(client: QpConfig, server: QpConfig) -> Self {
        Self::of(&SoftProvider, &SoftProvider, client, server)
    }

    /// A pair of the provider under test.
    pub(crate) fn of_any() -> Self {
        let provider = provider();
        Self::of(&*provider, &*provider, QpConfig::default(), QpConfig::default())
    }

    pub(crate) fn of(
        client_provider: &dyn Provider,
        server_provider: &dyn Provider,
        client_config: QpConfig,
        server_config: QpConfig,
    ) -> Self {
        let config = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let client = End::open(client_provider, config.clone());
        let server = End::open(server_provider, config);
        Self::between(client, server, client_config, server_config)
    }

    /// A pair whose server is configured.
    pub(crate) fn served(config: EngineConfig) -> Self {
        let blocks = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let client = End::open(&SoftProvider, blocks);
        let server = End::open(&SoftProvider, config);
        Self::between(client, server, QpConfig::default(), QpConfig::default())
    }

    pub(crate) fn between(
        mut client: End,
        mut server: End,
        client_config: QpConfig,
        server_config: QpConfig,
    ) -> Self {
        let addr = server.engine.listen(address()).unwrap();
        let client_qp = client.engine.connect(addr, client_config, b"hello").unwrap();
        let request = until(&mut client, &mut server, |_, server| {
            server.take(|event| match event {
                Event::ConnectRequest { id, private_data, .. } => Some((*id, private_data.clone())),
                _ => None,
            })
        });
        assert_eq!(request.1, b"hello");
        let server_qp = server.engine.accept(request.0, server_config, b"welcome").unwrap();
        let welcome = until(&mut client, &mut server, |client, _| established(client, client_qp));
        assert_eq!(welcome, b"welcome");
        let mut pair = Self { client, server, client_qp, server_qp, addr };
        if client_config.announce && server_config.announce {
            pair.until(|_, server| established(server, server_qp));
        }
        pair
    }

    /// One more connection between the same engines: the client's and the server's end of it.
    pub(crate) fn another(&mut self) -> (QpId, QpId) {
        let client_qp = self.client.engine.connect(self.addr, QpConfig::default(), &[]).unwrap();
        let id = self.until(|_, server| request(server));
        let server_qp = self.server.engine.accept(id, QpConfig::default(), &[]).unwrap();
        self.until(|client, _| established(client, client_qp));
        self.until(|_, server| established(server, server_qp));
        (client_qp, server_qp)
    }

    /// Runs both ends until `done` returns a value.
    pub(crate) fn until<T>(&mut self, done: impl FnMut(&mut End, &mut End) -> Option<T>) -> T {
        until(&mut self.client, &mut self.server, done)
    }

    /// Runs both ends until the client has a completion.
    pub(crate) fn completion(&mut self) -> WorkCompletion {
        self.until(|client, _| client.completion())
    }

    /// A region of the server's that the client may use in every way.
    pub(crate) fn target(&mut self, medium: &Arc<dyn Medium>) -> MemoryRegion {
        let access = Access::all();
        let range = 0..medium.len();
        self.server.engine.register(self.server_qp, Arc::clone(medium), range, access).unwrap()
    }

    /// A region of the client's own.
    pub(crate) fn local(&mut self, medium: &Arc<dyn Medium>) -> MemoryRegion {
        let access = Access::LOCAL_WRITE;
        let range = 0..medium.len();
        self.client.engine.register(self.client_qp, Arc::clone(medium), range, access).unwrap()
    }

    pub(crate) fn post(&mut self, wr_id: u64, operation: Operation<'_>) {
        self.client.post(self.client_qp, wr_id, operation);
    }
}

/// Runs two engines until `done` returns a value; fails after some seconds.
pub(crate) fn until<T>(
    client: &mut End,
    server: &mut End,
    mut done: impl FnMut(&mut End, &mut End) -> Option<T>,
) -> T {
    let start = Instant::now();
    loop {
        client.engine.poll(&mut client.events);
        server.engine.poll(&mut server.events);
        if let Some(result) = done(client, server) {
            return result;
        }
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "nothing came of it\nclient {:?}\nserver {:?}",
            client.events,
            server.events
        );
    }
}

/// The next connection request.
pub(crate) fn request(end: &mut End) -> Option<rdma::ConnectionId> {
    end.take(|event| match event {
        Event::ConnectRequest { id, .. } => Some(*id),
        _ => None,
    })
}

pub(crate) fn established(end: &mut End, id: QpId) -> Option<Vec<u8>> {
    end.take(|event| match event {
        Event::Established { qp, private_data } if *qp == id => Some(private_data.clone()),
        _ => None,
    })
}

pub(crate) fn memory(len: u64) -> Arc<dyn Medium> {
    let options = OpenOptions { emulate_persistence: true };
    pmem::anonymous_with(len, options).unwrap()
}

pub(crate) fn bytes_of(medium: &dyn Medium, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    medium.read(offset, &mut bytes).unwrap();
    bytes
}

/// Bytes that differ from each other and from other seeds' bytes.
pub(crate) fn pattern(seed: u8, len: usize) -> Vec<u8> {
    let byte = |i: usize| u8::try_from((i.wrapping_mul(167) >> 3) & 0xff).unwrap();
    (0..len).map(|i| byte(i) ^ seed).collect()
}

pub(crate) fn write(bytes: &[u8], region: MemoryRegion, offset: u64) -> Operation<'_> {
    let remote_addr = region.remote_addr_base + offset;
    Operation::Write { payload: Payload::Inline(bytes), rkey: region.rkey, remote_addr }
}

pub(crate) fn flush(rkey: Rkey, remote_addr: u64, len: u32) -> Operation<'static> {
    Operation::Flush { rkey, remote_addr, len, kind: Placement::Persistence }
}
