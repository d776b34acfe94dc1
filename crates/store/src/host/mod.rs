//! The daemon's side: a process that holds pieces and lets clients map them.
//!
//! ```text
//!   control (tokio)                     engine thread (remote::host)          lease, keeper (threads)
//!   session of each client:             one-sided reads, writes, flushes,     beats; expired tokens;
//!   proofs, tokens, epochs, mapping --> atomics on what is registered         orphans, dead clients, rebuild
//! ```
//!
//! A piece is not a file of a share: push mode of SMB maps a file for one client, under a lease that excludes others,
//! and a region of a store is used by many at a time. So a store has control messages and an RDMA listener of its own,
//! in the same daemon; what is shared with push mode is `remote::host` and the media of `pmem`.
//!
//! Tokens are enforced here and nowhere else: a mapping is registered with the rights of the token and no others, for
//! one RDMA connection of the control connection that showed the token, and is deregistered when the token expires or is
//! revoked, the client is fenced or the control connection ends. Metadata holds nothing that would let anybody in.

mod directory;
mod error;
mod keeper;
mod lease;
mod maps;
mod notes;
mod parts;
pub mod pieces;
mod session;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use basics::Environment;
use pmem::DurabilityClass;
use rdma::{EngineConfig, PollPolicy, ProviderChoice};
use remote::host::{Host, HostOptions, OpenHost, PushOnly, TokenGate};
use tokio::net::TcpListener;

use self::directory::Directory;
use self::lease::{Beat, Lease};
use self::maps::Maps;
use self::notes::Notes;
use self::parts::{Parts, Stranger, now_ms};
use self::pieces::Pieces;
use self::session::Session;
use crate::ids::{StoreId, is_name};
use crate::meta::Meta;
use crate::token::StoreKey;

pub use self::directory::{look, record_of};
pub use self::error::HostError;
pub use self::maps::MAPPINGS_MAX;
pub use self::notes::{CHANNELS_MAX, REGION_CHANNELS_MAX};
pub use self::parts::{FENCED_MAX, STRANGERS_OF_ADDRESS_MAX};
pub use self::session::GREETING_PATIENCE;

/// The options of a daemon.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Its name, by which metadata knows it for good.
    pub name: String,
    /// Where its pieces are. A directory belongs to one name.
    pub directory: PathBuf,
    /// Bytes that it may give to pieces; `None`: what its file system has.
    pub capacity: Option<u64>,
    /// Address for control messages; port 0 chooses one.
    pub listen: SocketAddr,
    /// Address for RDMA; port 0 chooses one.
    pub rdma_listen: SocketAddr,
    /// Where clients reach the control messages, if `listen` does not say it.
    pub announce: Option<SocketAddr>,
    /// The metadata.
    pub meta: Arc<dyn Meta>,
    /// The store's key.
    pub key: StoreKey,
    /// Whether commits of volatile memory are answered as if they were durable.
    pub emulate_persistence: bool,
    /// How the RDMA engine waits.
    pub polling: PollPolicy,
    /// What does RDMA.
    pub provider: ProviderChoice,
    /// After this time without a sign of life the daemon may be declared dead, and clients go on with other copies.
    pub lease: Duration,
    /// Whether this daemon removes what dead clients leave, and fills copies that are missing.
    pub keeps: bool,
    /// How long a server is missed before it counts as dead where no client misses it, how long a region lacks copies before they are
    /// made elsewhere, and how long a piece has no region before it is removed.
    pub settle: Duration,
    /// Clock and random numbers.
    pub environment: Environment,
}

impl ServerOptions {
    /// A daemon on free ports of loopback.
    pub fn new(name: &str, directory: PathBuf, meta: Arc<dyn Meta>, key: StoreKey) -> Self {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            name: name.to_owned(),
            directory,
            capacity: None,
            listen: loopback,
            rdma_listen: loopback,
            announce: None,
            meta,
            key,
            emulate_persistence: false,
            polling: PollPolicy::Adaptive,
            provider: ProviderChoice::Soft,
            lease: LEASE,
            keeps: true,
            settle: SETTLE,
            environment: Environment::host(),
        }
    }
}

/// A running daemon. It stops when dropped.
#[derive(Debug)]
pub struct StoreServer {
    parts: Arc<Parts>,
    control: SocketAddr,
    threads: Vec<JoinHandle<()>>,
    accepting: tokio::task::JoinHandle<()>,
    host: Option<Host>,
    directory: Directory,
}

impl StoreServer {
    /// Starts a daemon on the runtime of the caller. Blocks: for the time of a lease where an earlier daemon of this name
    /// did not stop in good order.
    ///
    /// # Errors
    /// The directory, the addresses or the metadata refuse, or a daemon of this name runs.
    pub fn start(
        options: ServerOptions,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Self, HostError> {
        if !is_name(&options.name) {
            return Err(HostError::ConfigName { name: options.name });
        }
        let failed = |source| HostError::Directory { path: options.directory.clone(), source };
        let directory = take_directory(&options)?;
        let pieces = Pieces::open(&options.directory, options.capacity).map_err(failed)?;
        let pieces = Arc::new(pieces);
        let bound = std::net::TcpListener::bind(options.listen)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        let listen = options.listen;
        let refused = move |source| HostError::Listen { address: listen, source };
        let listener = bound.map_err(refused)?;
        let control = listener.local_addr().map_err(refused)?;
        let open = OpenHost::open(engine_options(&options, runtime))?;
        let settle = options.settle;
        let gate =
            Arc::new(TokenGate::new(&options.environment, INVITATION_LIFETIME, SESSIONS_MAX));
        let clock = options.environment.clock.clone();
        let reached = options.announce.unwrap_or(control);
        let facts = (reached, options.emulate_persistence);
        let lease = Lease::new(&options.meta, &pieces, &clock, &options.name, facts, options.lease);
        lease.await_the_end_of_another(&options.name)?;
        // Before the record says that the daemon lives, for then its copies are mapped.
        let may_lack = directory.may_lack();
        if may_lack {
            directory::give_up_copies(&*options.meta, &options.name)?;
        }
        let losses = directory.losses(may_lack).map_err(failed)?;
        directory.serve()?;
        lease.enter()?;
        let handle = open.handle().clone();
        let parts = Arc::new(Parts {
            name: options.name,
            key: options.key,
            meta: options.meta,
            environment: options.environment,
            emulate_persistence: options.emulate_persistence,
            losses,
            pieces,
            maps: Maps::new(handle.clone()),
            notes: Notes::default(),
            lease,
            gate: Arc::clone(&gate),
            handle,
            runtime: runtime.clone(),
            fenced: Mutex::default(),
            sessions: AtomicUsize::new(0),
            strangers: Mutex::default(),
            next_session: AtomicU64::new(0),
        });
        let host = open.run(gate, |_| PushOnly).map_err(HostError::Thread)?;
        let accepting = {
            let _inside = runtime.enter();
            let listener = TcpListener::from_std(listener).map_err(refused)?;
            runtime.spawn(accept(Arc::clone(&parts), listener))
        };
        let mut threads = vec![spawn("store-lease", &parts, live)?];
        if options.keeps {
            threads.push(spawn("store-keeper", &parts, move |parts| keeper::keep(parts, settle))?);
        }
        Ok(Self { parts, control, threads, accepting, host: Some(host), directory })
    }

    /// Where it takes control messages.
    pub fn control_address(&self) -> SocketAddr {
        self.control
    }

    /// Where it takes RDMA connections.
    pub fn rdma_address(&self) -> SocketAddr {
        self.parts.handle.address()
    }

    /// Its durability class.
    pub fn class(&self) -> DurabilityClass {
        self.parts.pieces.class()
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.parts.lease.stop();
        self.accepting.abort();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // The connections end before the record says that the daemon is gone.
        drop(self.host.take());
        let synced = self.parts.pieces.sync().and_then(|()| self.directory.is_clean());
        if let Err(error) = synced {
            tracing::warn!(%error, "not synced: if the machine is started anew, this server's copies are filled again");
        }
        self.parts.lease.leave();
    }
}

fn engine_options(options: &ServerOptions, runtime: &tokio::runtime::Handle) -> HostOptions {
    let environment = options.environment.clone();
    HostOptions {
        listen: options.rdma_listen,
        same_host: None,
        provider: options.provider.provider(),
        engine: EngineConfig { polling: options.polling, environment, ..EngineConfig::default() },
        threads: 1,
        runtime: runtime.clone(),
        stop_grace: STOP_GRACE,
    }
}

fn take_directory(options: &ServerOptions) -> Result<Directory, HostError> {
    let draw = || {
        let mut bytes = [0; 8];
        options.environment.random.fill(&mut bytes).map_err(|_| HostError::Random)?;
        Ok(StoreId(u64::from_le_bytes(bytes).max(1)))
    };
    let store = directory::store_of(&*options.meta, options.key.mark(), draw)?;
    Directory::take(&options.directory, &options.name, store)
}

async fn accept(parts: Arc<Parts>, listener: TcpListener) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Descriptors run short: a moment later there may be some.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Who says nothing keeps others of its own address out, and no more.
        let Some(stranger) = Stranger::of(&parts, peer.ip()) else { continue };
        if parts.sessions.fetch_add(1, Ordering::AcqRel) >= SESSIONS_MAX {
            parts.sessions.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let (parts, id) = (Arc::clone(&parts), parts.next_session.fetch_add(1, Ordering::AcqRel));
        tokio::spawn(async move {
            Session::serve(Arc::clone(&parts), id, stream, stranger).await;
            parts.sessions.fetch_sub(1, Ordering::AcqRel);
        });
    }
}

fn spawn(
    name: &str,
    parts: &Arc<Parts>,
    work: impl FnOnce(&Arc<Parts>) + Send + 'static,
) -> Result<JoinHandle<()>, HostError> {
    let parts = Arc::clone(parts);
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || work(&parts)).map_err(HostError::Thread)
}

/// Beats, and ends mappings whose token has expired.
fn live(parts: &Arc<Parts>) {
    while !parts.lease.is_stopped() {
        if parts.lease.beat() == Beat::DeclaredDead {
            tracing::warn!(
                server = parts.name,
                "declared dead: all mappings end, and it begins anew"
            );
            parts.runtime.block_on(parts.maps.end(|_| true));
            if let Err(error) = parts.lease.enter() {
                tracing::error!(%error, "the metadata does not take this daemon again yet");
            }
        }
        let now = now_ms(parts);
        parts.runtime.block_on(parts.maps.end(|mapping| mapping.expires_ms <= now));
        parts.lease.pause(parts.lease.length() / BEATS_PER_LEASE);
    }
}

/// The lease of a daemon, unless its operator wants another.
pub const LEASE: Duration = Duration::from_millis(500);
/// How long daemons wait before they make copies anew and remove pieces without a region: a server may just be starting.
pub const SETTLE: Duration = Duration::from_secs(10);
/// Control connections of a daemon at most; RDMA connections too.
pub const SESSIONS_MAX: usize = 4096;
const BEATS_PER_LEASE: u32 = 4;
const INVITATION_LIFETIME: Duration = Duration::from_secs(10);
const STOP_GRACE: Duration = Duration::from_secs(5);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
