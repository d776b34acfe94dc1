//! The server of the control side that is not SMB: one medium, a host for it, threads for messages.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use basics::Environment;
use pmem::Medium;
use rdma::{Access, EngineConfig, PollPolicy, SoftProvider};
use remote::host::{
    Host, HostHandle, HostOptions, OpenHost, PushConnection, PushOnly, Registration, Token,
    TokenGate,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::control;

/// Why the server wants a region back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Wanted;

type Hosted = Arc<Registration<Wanted>>;

#[derive(Debug)]
pub(crate) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    host: Option<Host>,
    runtime: Runtime,
}

#[derive(Debug)]
struct Shared {
    medium: Arc<dyn Medium>,
    handle: HostHandle,
    /// A token belongs to the control connection that asked for it.
    gate: Arc<TokenGate<u64>>,
    runtime: tokio::runtime::Handle,
    clients: AtomicU64,
    region: Mutex<Option<Hosted>>,
    /// Whether the client of the mapping was promised the region all the time since.
    is_whole: AtomicBool,
    recalls: Mutex<Option<TcpStream>>,
    writes: AtomicU64,
}

impl Server {
    pub(crate) fn start(medium: Arc<dyn Medium>) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let engine = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let options = HostOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            same_host: None,
            provider: Arc::new(SoftProvider),
            engine,
            threads: 1,
            runtime: runtime.handle().clone(),
            stop_grace: Duration::from_secs(20),
        };
        let open = OpenHost::open(options).unwrap();
        let gate = Arc::new(TokenGate::new(&Environment::host(), TOKEN_LIFETIME, CLIENTS_MAX));
        let shared = Arc::new(Shared {
            medium,
            handle: open.handle().clone(),
            gate: Arc::clone(&gate),
            runtime: runtime.handle().clone(),
            clients: AtomicU64::new(0),
            region: Mutex::new(None),
            is_whole: AtomicBool::new(false),
            recalls: Mutex::new(None),
            writes: AtomicU64::new(0),
        });
        let host = open.run(gate, |_| PushOnly).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let weak = Arc::downgrade(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Some(shared) = weak.upgrade() else { return };
                std::thread::spawn(move || shared.serve(stream.unwrap()));
            }
        });
        Self { shared, address, host: Some(host), runtime }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where peers with a token dial.
    pub(crate) fn push_address(&self) -> SocketAddr {
        self.shared.handle.address()
    }

    /// A token that nobody has asked for.
    pub(crate) fn token(&self) -> Token {
        self.shared.gate.issue(0).unwrap()
    }

    /// How many messages have written.
    pub(crate) fn writes(&self) -> u64 {
        self.shared.writes.load(Ordering::SeqCst)
    }

    /// The region that is mapped.
    pub(crate) fn region(&self) -> Hosted {
        self.shared.region.lock().unwrap().clone().unwrap()
    }

    /// Asks the client for the region, and revokes it after the grace; `true` from the task: it was given back.
    pub(crate) fn recall(&self, grace: Duration) -> JoinHandle<bool> {
        let region = self.region();
        let deadline = region.recall(Wanted, Instant::now(), grace);
        self.shared.recalls.lock().unwrap().as_mut().unwrap().write_all(&[1]).unwrap();
        let runtime = self.runtime.handle().clone();
        self.runtime.spawn(async move {
            let is_given_back = region.is_given_back_by(deadline).await;
            region.end(&runtime, async {}).await;
            is_given_back
        })
    }

    /// Waits for what the server does.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Waits for a task of the server.
    pub(crate) fn wait<T>(&self, task: JoinHandle<T>) -> T {
        self.runtime.block_on(task).unwrap()
    }

    /// Ends the push connection.
    pub(crate) fn cut(&self) {
        let connection = self.region().connection();
        self.runtime.block_on(self.shared.handle.disconnect(connection)).unwrap();
    }

    /// Takes the region away, for another writer. From the return on the client places nothing.
    pub(crate) fn take_away(&self) {
        self.shared.is_whole.store(false, Ordering::SeqCst);
        let task = self.revoke(|| {});
        self.wait(task);
    }

    /// Revokes the region; the task ends when no operation of the client is under way.
    pub(crate) fn revoke(&self, then: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        let (region, runtime) = (self.region(), self.runtime.handle().clone());
        self.runtime.spawn(async move {
            region.end(&runtime, async {}).await;
            then();
        })
    }

    /// Lets the engine thread answer a command.
    pub(crate) fn turn(&self) {
        let nobody = PushConnection::from_bytes([0xff; 8]);
        self.runtime.block_on(self.shared.handle.disconnect(nobody)).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        assert_eq!(self.host.take().unwrap().stop(), 0, "no operation is left inside the medium");
        // The thread that accepts looks whether the server is still there.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        let mut kind = [0];
        match stream.read_exact(&mut kind) {
            Ok(()) if kind == [control::RECALLS] => {
                // Answered under the lock: who has the answer finds the stream.
                let mut recalls = self.recalls.lock().unwrap();
                stream.write_all(&[0]).unwrap();
                *recalls = Some(stream);
            }
            Ok(()) => {
                stream.set_nodelay(true).unwrap();
                let client = self.clients.fetch_add(1, Ordering::SeqCst) + 1;
                while self.answer(client, &mut stream).is_ok() {}
            }
            Err(_) => {}
        }
    }

    fn answer(&self, client: u64, stream: &mut TcpStream) -> io::Result<()> {
        let (mut what, mut numbers) = ([0], [[0; 8]; 2]);
        stream.read_exact(&mut what)?;
        stream.read_exact(numbers.as_flattened_mut())?;
        let [offset, len] = numbers.map(u64::from_le_bytes);
        let carried = match what[0] {
            control::MAP => 8,
            control::WRITE | control::WRITE_AGAIN => usize::try_from(len).unwrap(),
            _ => 0,
        };
        let mut bytes = vec![0; carried];
        stream.read_exact(&mut bytes)?;
        let answer = self.carry_out(client, what[0], offset..offset + len, &bytes);
        let body = answer.as_deref().unwrap_or_default();
        let length = u64::try_from(body.len()).unwrap().to_le_bytes();
        stream.write_all(&[&[u8::from(answer.is_some())][..], &length, body].concat())
    }

    /// The bytes of the answer; `None` refuses.
    fn carry_out(&self, client: u64, what: u8, range: Range<u64>, bytes: &[u8]) -> Option<Vec<u8>> {
        let nothing = Some(Vec::new());
        match what {
            control::INVITE => {
                let token = self.gate.issue(client).ok()?;
                let address = self.handle.address().to_string();
                Some([&token.expose()[..], address.as_bytes()].concat())
            }
            control::MAP => self.map(client, range, bytes.try_into().unwrap()),
            control::UNMAP => {
                let region = self.region.lock().unwrap().clone();
                if let Some(region) = region {
                    self.runtime.block_on(region.end(&self.runtime, async {}));
                }
                nothing
            }
            control::IS_WHOLE => self.is_whole.load(Ordering::SeqCst).then(Vec::new),
            control::WRITE_AGAIN if !self.is_whole.load(Ordering::SeqCst) => None,
            control::WRITE | control::WRITE_AGAIN => {
                self.writes.fetch_add(1, Ordering::SeqCst);
                self.medium.place(range.start, bytes).ok().and(nothing)
            }
            control::READ => {
                let mut out = vec![0; usize::try_from(range.end - range.start).unwrap()];
                self.medium.read(range.start, &mut out).ok().map(|()| out)
            }
            control::COMMIT => {
                self.medium.persist(range.start, range.end - range.start).ok().and(nothing)
            }
            _ => None,
        }
    }

    fn map(&self, client: u64, range: Range<u64>, connection: [u8; 8]) -> Option<Vec<u8>> {
        let connection = PushConnection::from_bytes(connection);
        // Nobody maps on the connection of another.
        self.gate.bearer(connection).filter(|bearer| *bearer == client)?;
        let registrar = Arc::new(self.handle.clone());
        let medium = Arc::clone(&self.medium);
        let region = Arc::new(Registration::new(registrar, connection, medium, range));
        let memory =
            self.runtime.block_on(region.register(Access::PUSH, self.medium.class())).ok()?;
        *self.region.lock().unwrap() = Some(region);
        self.is_whole.store(true, Ordering::SeqCst);
        let (rkey, address) = (memory.rkey.0, memory.remote_addr_base);
        let offers = [memory.offers.bits()];
        Some([&offers[..], &rkey.to_le_bytes(), &address.to_le_bytes()].concat())
    }
}

const TOKEN_LIFETIME: Duration = Duration::from_secs(60);
const CLIENTS_MAX: usize = 8;
