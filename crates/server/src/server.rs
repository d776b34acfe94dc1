//! Starting, watching and stopping a server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use basics::{Environment, Random, RandomError};
use flash::Budget;
use pmem::DurabilityClass;
use rdma::{
    Engine, EngineConfig, EngineError, Pcap, PcapError, Provider, ProviderChoice, ShmProvider,
    SoftProvider, VerbsProvider,
};
use remote::host::{Host, HostOptions, OpenHost};
use serde::{Deserialize, Serialize};
use smb::Guid;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};
use tree::{CommonNames, MayWait, Share, ShareConfig, ShareOpenError};

use crate::address_space;
use crate::config::{ServerConfig, Users};
use crate::descriptors;
use crate::exports;
use crate::limits::DESCRIPTORS_MIN;
use crate::memory;
use crate::panics::keep_going;
use crate::push::{self, Push, PushGate};
use crate::reload::{self, ReloadError, Reloaded};
use crate::report::Observer;
use crate::service::{Core, CoreParts};
use crate::state::{Resource as Held, closing};
use crate::transport::direct::Direct;
use crate::transport::tcp;
use crate::upkeep;

/// The file server.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Starts a server on the calling tokio runtime. It serves until it is shut down or dropped.
    /// Raises the process's soft limit of open files to the hard one.
    ///
    /// # Errors
    /// A share cannot be exported, or the server cannot listen on an address.
    pub async fn start(config: ServerConfig) -> Result<Running, StartError> {
        Self::start_in(Environment::host(), config).await
    }

    /// [`Server::start`] with other clocks and random numbers than the kernel's.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start_in(
        environment: Environment,
        config: ServerConfig,
    ) -> Result<Running, StartError> {
        compiled_here(environment, config).await
    }

    async fn start_here(
        environment: Environment,
        mut config: ServerConfig,
    ) -> Result<Running, StartError> {
        if let Some(count) = descriptors::raise()
            && !descriptors::fit(&mut config, count)
        {
            return Err(StartError::HostDescriptors { count, wanted: DESCRIPTORS_MIN });
        }
        address_space::fit(&mut config);
        check_names(&config)?;
        let listen_failed =
            |address| move |error| StartError::ConfigListen { address, source: error };
        let listener = match &config.listener {
            Some(open) => open.try_clone().and_then(|open| {
                open.set_nonblocking(true)?;
                // The backlog that tokio sets on its own sockets.
                rustix::net::listen(&open, BACKLOG)?;
                TcpListener::from_std(open)
            }),
            None => TcpListener::bind(config.listen).await,
        };
        let listener = listener.map_err(listen_failed(config.listen))?;
        let tcp_address = listener.local_addr().map_err(listen_failed(config.listen))?;
        let wanted: Vec<_> = config.shares.iter().collect();
        let budget = config.flash_budget.map_or_else(Budget::of_machine, Budget::new);
        let names = CommonNames::default().with_budget(budget);
        let capture = config.rdma_capture.as_deref();
        // Before the capture is made: in a share every client would see it.
        let shares = exports::look(&wanted, &[], &names, &environment, &config.users, capture)?;
        let open = |listen| open_engine(listen, &config, &environment);
        let engine = config.rdma_listen.map(open).transpose()?;
        let mut guid = [0; 16];
        environment.random.fill(&mut guid).map_err(StartError::HostRandom)?;
        let first_serial = first_serial(&environment.random).map_err(StartError::HostRandom)?;
        // After every other step that may fail: a server that does not start takes no log from another.
        let shares = exports::take_over(shares)?;
        let core = Arc::new(Core::new(CoreParts {
            limits: config.limits,
            shares,
            names,
            users: config.users,
            signing: config.signing,
            encrypt_required: config.encrypt_required,
            guid: config.guid.unwrap_or(Guid(guid)),
            tcp_address: Some(tcp_address),
            announced: config.announced,
            push: Push::new(config.push, environment.clock.clone(), Handle::current()),
            environment,
            runtime: Handle::current(),
            first_serial,
        }));
        let restoring = Arc::clone(&core);
        let restore = move || {
            let restorer = restoring.restorer(MayWait::here());
            restoring.files.shares().iter().for_each(|share| restorer.restore(share));
        };
        // Before the first client: a file that a client wants may belong to a persistent open.
        let _ = tokio::task::spawn_blocking(restore).await;
        look_after(&core);
        let engine = engine.map(|engine| run_engine(engine, &core)).transpose()?;
        if engine.is_some() {
            let swept = Arc::downgrade(&core);
            keep_going((&core.runtime, &core.connections), "the sweep of regions", move || {
                upkeep::sweep(Weak::clone(&swept))
            });
        }
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(tcp::serve(Arc::clone(&core), listener, stopped));
        info!(address = %tcp_address, "serving SMB over TCP");
        let capture = config.rdma_capture;
        Ok(Running { core, tcp_address, stop, serving: Some(serving), engine, capture })
    }

    /// Checks whether the shares of a config could be served: their directories, devices and logs can be opened, none
    /// contains a file with secrets, and provider and capture can be had. Takes no address and no log, and changes
    /// nothing. May block.
    ///
    /// Returns the durability class of each share.
    ///
    /// # Errors
    /// A share cannot be exported, or RDMA not be served.
    pub fn check(config: &ServerConfig) -> Result<Vec<DurabilityClass>, StartError> {
        check_names(config)?;
        let wanted: Vec<_> = config.shares.iter().collect();
        let capture = config.rdma_capture.as_deref();
        let (names, environment) = (CommonNames::default(), Environment::host());
        look_at_engine(config)?;
        let shares = exports::look(&wanted, &[], &names, &environment, &config.users, capture)?;
        Share::look_at_logs(&shares)?;
        Ok(shares.iter().map(Share::class).collect())
    }
}

/// What goes on beside all requests, as long as the server lives.
fn look_after(core: &Arc<Core>) {
    let orphans = Arc::clone(&core.files.orphans);
    let (scavenged, clock) = (Arc::downgrade(core), core.environment.clock.clone());
    keep_going((&core.runtime, &core.connections), "the end of durable opens", move || {
        upkeep::scavenge(Weak::clone(&scavenged), Arc::clone(&orphans), clock.clone())
    });
    let tidied = Arc::downgrade(core);
    keep_going((&core.runtime, &core.connections), "giving memory back", move || {
        memory::tidy(Weak::clone(&tidied))
    });
    let watched = Arc::downgrade(core);
    keep_going((&core.runtime, &core.connections), "the watch over users", move || {
        reload::watch_users(Weak::clone(&watched))
    });
}

// The body of an `async fn` is compiled by each program that awaits it, with all that it starts: the whole server. A box
// made here is compiled once.
#[inline(never)]
fn compiled_here(environment: Environment, config: ServerConfig) -> Starting {
    Box::pin(Server::start_here(environment, config))
}

type Starting = Pin<Box<dyn Future<Output = Result<Running, StartError>> + Send>>;

fn check_names(config: &ServerConfig) -> Result<(), StartError> {
    match exports::duplicate(&config.shares) {
        Some(name) => Err(StartError::ConfigDuplicateShare(name.to_owned())),
        None => Ok(()),
    }
}

// The upper half is random: a client that reconnects to a restarted server must not find the file
// of another client under its own number.
fn first_serial(random: &Random) -> Result<u64, RandomError> {
    Ok(u64::from(random.u32()? >> 1) << 32 | 1)
}

fn open_engine(
    listen: SocketAddr,
    config: &ServerConfig,
    environment: &Environment,
) -> Result<OpenHost, StartError> {
    let failed = |source| StartError::ConfigRdmaListen { address: listen, source };
    let provider: Arc<dyn Provider> = match (&config.rdma_capture, config.rdma_provider) {
        (Some(path), ProviderChoice::Soft) => captured(SoftProvider, path)?,
        (Some(path), ProviderChoice::Shm) => captured(ShmProvider, path)?,
        (Some(_), ProviderChoice::Verbs) => return Err(failed(EngineError::ConfigWireHook)),
        (None, choice) => choice.provider(),
    };
    let silence_max = config.limits.silence_max;
    let engine = EngineConfig {
        polling: config.rdma_polling,
        silence_max,
        environment: environment.clone(),
        ..EngineConfig::default()
    };
    // A capture shows streams whole, so they stay with the engine that accepted them.
    let threads = if config.rdma_capture.is_some() { 1 } else { config.rdma_threads };
    let same_host = match offers_same_host(config) {
        true => Some(same_host_name(&environment.random)?),
        false => None,
    };
    let options = HostOptions {
        listen,
        same_host,
        provider,
        engine,
        threads,
        runtime: Handle::current(),
        stop_grace: config.limits.shutdown_grace,
    };
    OpenHost::open(options).map_err(failed)
}

fn offers_same_host(config: &ServerConfig) -> bool {
    match (config.rdma_same_host, &config.rdma_capture, config.rdma_provider) {
        (false, ..) => false,
        (true, None, ProviderChoice::Soft) => true,
        (true, ..) => {
            warn!("clients of this host get no shared memory beside a capture or another provider");
            false
        }
    }
}

// Nobody else can have taken a random name, and only this host has it: a client that finds it has found this server.
// The prefix is that of addresses which no network routes (RFC 4193 §3.1); the listener chooses the port.
fn same_host_name(random: &Random) -> Result<SocketAddr, StartError> {
    let mut name = [0; 16];
    random.fill(&mut name).map_err(StartError::HostRandom)?;
    name[0] = 0xfd;
    Ok(SocketAddr::from((name, 0)))
}

/// What of [`open_engine`] can be known without an address.
fn look_at_engine(config: &ServerConfig) -> Result<(), StartError> {
    let Some(address) = config.rdma_listen else { return Ok(()) };
    let failed = |source| StartError::ConfigRdmaListen { address, source };
    offers_same_host(config);
    match (&config.rdma_capture, config.rdma_provider) {
        (Some(_), ProviderChoice::Verbs) => Err(failed(EngineError::ConfigWireHook)),
        (None, ProviderChoice::Verbs) => VerbsProvider.check().map_err(failed),
        (Some(path), ProviderChoice::Soft | ProviderChoice::Shm) => {
            let failed = |source| StartError::ConfigCapture { path: path.clone(), source };
            Pcap::<SoftProvider>::look(path).map_err(failed)
        }
        (None, ProviderChoice::Soft | ProviderChoice::Shm) => Ok(()),
    }
}

fn captured(
    provider: impl Provider + 'static,
    path: &Path,
) -> Result<Arc<dyn Provider>, StartError> {
    let captured = Pcap::create(provider, path);
    let failed = |source| StartError::ConfigCapture { path: path.into(), source };
    Ok(Arc::new(captured.map_err(failed)?))
}

fn run_engine(engine: OpenHost, core: &Arc<Core>) -> Result<Host, StartError> {
    let handle = engine.handle();
    let (address, same_host) = (handle.address(), handle.same_host());
    core.push.attach(Arc::new(handle.clone()), address, same_host);
    let gate = Arc::new(PushGate::new(&core.push));
    // Connections that are no push connections are SMB Direct.
    let direct =
        |engine: &dyn Engine| Direct::new(Arc::clone(core), engine.waker(), engine.inline_max());
    let threads = engine.run(gate, direct).map_err(StartError::HostThread)?;
    info!(%address, "serving SMB Direct and push mode over RDMA");
    Ok(threads)
}

/// A running server.
#[derive(Debug)]
pub struct Running {
    core: Arc<Core>,
    tcp_address: SocketAddr,
    stop: watch::Sender<bool>,
    serving: Option<JoinHandle<()>>,
    engine: Option<Host>,
    /// The file that records RDMA connections.
    capture: Option<PathBuf>,
}

impl Running {
    #[cfg(test)]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The address for TCP clients.
    pub fn tcp_address(&self) -> SocketAddr {
        self.tcp_address
    }

    /// The address for RDMA clients.
    pub fn rdma_address(&self) -> Option<SocketAddr> {
        self.core.push.rdma_address()
    }

    /// Numbers of the server.
    pub fn status(&self) -> Status {
        status_of(&self.core)
    }

    /// Continues with other users and shares. Sessions and opens that these do not allow any more
    /// end: the sessions of removed users, the sessions in a share that is gone or lets their user
    /// do less than before, and the durable opens of both. When this returns they are closed, if
    /// that takes no longer than [`crate::Limits::shutdown_grace`].
    ///
    /// A new password applies to the next logon. A share whose directory, devices or persistent
    /// opens differ keeps the old ones, and is named in the result.
    ///
    /// # Errors
    /// A share cannot be exported; then nothing has changed.
    pub async fn reload(
        &self,
        users: Users,
        shares: Vec<ShareConfig>,
    ) -> Result<Reloaded, ReloadError> {
        reload::reload(&self.core, users, shares, self.capture.clone()).await
    }

    /// A handle for reports, for other tasks and threads.
    pub fn observer(&self) -> Observer {
        Observer::new(&self.core)
    }

    /// Recalls all push regions and waits for them, for the recall's grace or for
    /// [`crate::Limits::shutdown_grace`], whichever is shorter. Then stops accepting connections,
    /// ends all connections and closes every file. Each of the two, and the end of operations on
    /// revoked regions, is waited for no longer than the shutdown grace.
    ///
    /// `false`: a push connection has an operation inside a file that does not return (a device
    /// that hangs). No other operation begins, but that one may still take effect: a caller that
    /// serves the same files again from this process must expect it. The end of the process waits
    /// for the operation, as for every system call.
    pub async fn shutdown(mut self) -> bool {
        info!("stopping");
        push::stop(&self.core.push, self.core.connections.limits.shutdown_grace).await;
        // There may be no receiver any more.
        let _ = self.stop.send(true);
        if let Some(serving) = self.serving.take() {
            let _ = serving.await;
        }
        let mut left = 0;
        if let Some(engine) = self.engine.take() {
            // Waits for the thread.
            left = tokio::task::spawn_blocking(|| engine.stop()).await.unwrap_or(0);
        }
        let core = Arc::clone(&self.core);
        let close = move || {
            closing::close_all(&core.files, core.files.orphans.drain(), MayWait::here());
        };
        let _ = tokio::task::spawn_blocking(close).await;
        if left > 0 {
            warn!(connections = left, "stopped, with operations inside files that do not end");
        } else {
            info!("stopped");
        }
        left == 0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
    }
}

pub(crate) fn status_of(core: &Core) -> Status {
    let counters = &core.connections.counters;
    let sessions = core.sessions.all();
    let (regions, push_connections) = core.push.counts();
    Status {
        connections: counters.connections.load(Ordering::Acquire),
        unauthenticated: core.connections.waiting.len(),
        connections_refused: counters.refused.load(Ordering::Relaxed),
        logons_failed: counters.logons_failed.load(Ordering::Relaxed),
        panics: counters.panics.load(Ordering::Relaxed),
        sessions: sessions.len(),
        opens: sessions.iter().map(|session| session.open_count()).sum(),
        orphans: core.files.orphans.len(),
        files: core.files.nodes.len(),
        leases: core.files.nodes.leases(),
        regions,
        push_connections,
        stagings: counters.stagings.load(Ordering::Relaxed),
        answer_bytes: core.connections.accounts.held(Held::Answers),
        request_bytes: core.connections.accounts.held(Held::Requests),
        waiting_bytes: core.connections.accounts.held(Held::Waiting),
        jobs: core.connections.accounts.held(Held::Jobs),
        locks: core.connections.accounts.held(Held::Locks),
        long_turns: core.connections.reactor.long_turns(),
        longest_turn_us: core.connections.reactor.longest_us(),
        directories_synced: core.files.shares().first().map_or(0, |one| one.directories_synced()),
    }
}

/// Numbers of a running server.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Status {
    /// Connections, authenticated or not.
    pub connections: usize,
    /// Connections that have not authenticated.
    pub unauthenticated: usize,
    /// Connections closed at once because there were too many.
    pub connections_refused: u64,
    /// Logons refused.
    pub logons_failed: u64,
    /// Bugs that panicked: each ended the connection or the request that met it.
    pub panics: u64,
    /// Authenticated sessions.
    pub sessions: usize,
    /// Open handles.
    pub opens: usize,
    /// Durable handles that wait for their client.
    pub orphans: usize,
    /// Files and directories that are open.
    pub files: usize,
    /// Leases and oplocks held.
    pub leases: usize,
    /// Regions mapped for push.
    pub regions: usize,
    /// Push connections.
    pub push_connections: usize,
    /// Connections over SMB Direct with memory for RDMA Reads.
    #[serde(default)]
    pub stagings: usize,
    /// Bytes of counted answers that have not left.
    #[serde(default)]
    pub answer_bytes: usize,
    /// Bytes of requests in progress, with the cost of each.
    #[serde(default)]
    pub request_bytes: usize,
    /// Bytes of requests that wait for other clients, with the cost of each.
    #[serde(default)]
    pub waiting_bytes: usize,
    /// Threads that requests occupy for blocking work.
    #[serde(default)]
    pub jobs: usize,
    /// Byte-range locks held.
    #[serde(default)]
    pub locks: usize,
    /// Requests that kept a reactor or an engine for more than a millisecond, since the start.
    #[serde(default)]
    pub long_turns: u64,
    /// Microseconds of the longest turn.
    #[serde(default)]
    pub longest_turn_us: u64,
    /// Directories synced since the start for changed names.
    pub directories_synced: u64,
}

/// Why a server did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A share cannot be exported.
    #[error(transparent)]
    ConfigShare(#[from] ShareOpenError),
    /// Two shares have the same name.
    #[error("there are two shares named {0:?}; names are compared ignoring case")]
    ConfigDuplicateShare(String),
    /// The server cannot listen on an address.
    #[error("cannot listen on {address}: {source}")]
    ConfigListen {
        /// The address.
        address: SocketAddr,
        /// The error.
        source: std::io::Error,
    },
    /// The RDMA engine cannot listen on its address.
    #[error("cannot listen for RDMA on {address}: {source}")]
    ConfigRdmaListen {
        /// The address.
        address: SocketAddr,
        /// The error.
        source: EngineError,
    },
    /// The capture file cannot be written.
    #[error("{}: {source}", path.display())]
    ConfigCapture {
        /// The path of the file.
        path: PathBuf,
        /// The error.
        source: PcapError,
    },
    /// The limit of open files of the process is too low to serve.
    #[error("{count} open files are allowed, and {wanted} is the least to serve with")]
    HostDescriptors {
        /// The limit.
        count: usize,
        /// The lowest limit that is enough.
        wanted: usize,
    },
    /// The host started no thread.
    #[error("no thread for the RDMA engine: {0}")]
    HostThread(std::io::Error),
    /// The system has no random numbers.
    #[error("no random numbers: {0}")]
    HostRandom(RandomError),
}

/// Connections that wait to be accepted, on a socket that was handed over.
const BACKLOG: i32 = 1_024;

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use basics::{Clock, ManualClock, SeededRandom, TimeSource};
    use smb::FileTime;

    use super::*;

    async fn started(seed: u64, time: &Arc<ManualClock>) -> Running {
        let environment = Environment {
            clock: Clock::given(Arc::clone(time) as Arc<dyn TimeSource>),
            random: Random::given(Arc::new(SeededRandom::new(seed))),
        };
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        Server::start_in(environment, config).await.unwrap()
    }

    #[tokio::test]
    async fn servers_of_one_seed_draw_the_same_numbers() {
        let time = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH));
        let (one, same) = (started(1, &time).await, started(1, &time).await);
        let other = started(2, &time).await;
        let [one, same, other] = [&one, &same, &other].map(|running| {
            let core = running.core();
            (
                core.identity.guid,
                core.files.next_serial(),
                core.sessions.reserve(&core.environment.random).unwrap().id(),
            )
        });
        assert_eq!(one, same);
        assert!(one.0 != other.0 && one.1 != other.1 && one.2 != other.2, "{one:?} {other:?}");
    }

    #[tokio::test]
    async fn a_server_uses_the_time_of_its_environment() {
        let time = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH));
        let running = started(1, &time).await;
        time.advance(Duration::from_secs(90));
        let host = running.core().host(None);
        assert_eq!(host.uptime, Duration::from_secs(90));
        assert_eq!(host.now, FileTime::from_unix_ns(90_000_000_000));
        time.set_time_of_day(SystemTime::UNIX_EPOCH + Duration::from_secs(1));
        let host = running.core().host(None);
        assert_eq!(host.uptime, Duration::from_secs(90));
        assert_eq!(host.now, FileTime::from_unix_ns(1_000_000_000));
    }
}
