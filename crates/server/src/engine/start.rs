//! Opens engines and runs their threads until they are stopped.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rdma::{Engine, EngineConfig, EngineError, Provider, ShmProvider, Waker};
use tokio::sync::mpsc;

use super::command::{COMMANDS_MAX, Command};
use super::gate::Gate;
use super::handle::Handle;
use super::lanes::{Carrier, Lane, Lanes};
use super::thread::Thread;
use crate::service::Core;
use crate::transport::direct::Direct;

/// The options of the engine threads.
#[derive(Clone, Debug)]
pub(crate) struct EngineOptions {
    /// The address for peers; port 0 chooses one.
    pub(crate) listen: SocketAddr,
    /// The name under which processes of this host find one engine more, through shared memory.
    pub(crate) same_host: Option<SocketAddr>,
    /// The RDMA provider of this machine; may be wrapped (tracer, faults, pcap).
    pub(crate) provider: Arc<dyn Provider>,
    /// Polling, and the bounds of what peers can make each engine spend.
    pub(crate) engine: EngineConfig,
    /// How many threads, each with an engine; at least one.
    pub(crate) threads: usize,
}

/// Engines that listen and are not served yet: their [`Handle`] can be given to the future [`Gate`]
/// before the first request is handled.
#[derive(Debug)]
pub(crate) struct OpenEngine {
    engines: Vec<(Box<dyn Engine>, mpsc::Receiver<Command>)>,
    handle: Handle,
    same_host: Option<SocketAddr>,
    reaches_files: bool,
}

impl OpenEngine {
    /// Opens the engines; the first one listens for all.
    pub(crate) fn open(options: EngineOptions) -> Result<Self, EngineError> {
        let EngineOptions { listen, same_host, provider, engine: config, threads } = options;
        let reaches_files = !provider.is_device();
        let mut first = provider.open_engine(config.clone())?;
        let address = first.listen(listen)?;
        let mut engines = vec![(first, Carrier::Provider)];
        for _ in 1..threads {
            engines.push((provider.open_engine(config.clone())?, Carrier::Provider));
        }
        let same_host = match same_host {
            Some(name) => {
                let mut engine = ShmProvider.open_engine(config)?;
                let name = engine.listen(name)?;
                engines.push((engine, Carrier::SameHost));
                Some(name)
            }
            None => None,
        };
        let mut lanes = Vec::new();
        let mut served = Vec::new();
        for (engine, carrier) in engines {
            let (sender, commands) = mpsc::channel(COMMANDS_MAX);
            lanes.push(Lane::new(sender, engine.waker(), carrier));
            served.push((engine, commands));
        }
        let handle = Handle::new(Lanes::new(lanes), address);
        Ok(Self { engines: served, handle, same_host, reaches_files })
    }

    /// Whether media that are not memory can be registered.
    pub(crate) fn reaches_files(&self) -> bool {
        self.reaches_files
    }

    /// The handle of the control side.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The name under which processes of this host find an engine, with its real port.
    pub(crate) fn same_host(&self) -> Option<SocketAddr> {
        self.same_host
    }

    /// Starts the threads.
    pub(crate) fn run(self, core: &Arc<Core>, gate: &Arc<dyn Gate>) -> io::Result<EngineThreads> {
        let Self { engines, handle, .. } = self;
        let (stop, grace) =
            (Arc::new(AtomicBool::new(false)), core.connections.limits.shutdown_grace);
        let mut threads = EngineThreads { stop, threads: Vec::new() };
        for (index, (engine, commands)) in engines.into_iter().enumerate() {
            let waker = engine.waker();
            let direct = Direct::new(Arc::clone(core), waker.clone(), engine.inline_max());
            let place = (handle.lanes().clone(), index);
            let (stop, gate) = (Arc::clone(&threads.stop), Arc::clone(gate));
            let work = Thread::new((engine, commands), place, stop, gate, direct);
            let name = match index {
                0 => "landfast-engine".to_owned(),
                _ => format!("engine-{index}"),
            };
            let thread = std::thread::Builder::new().name(name);
            threads.threads.push((waker, thread.spawn(move || work.run(grace))?));
        }
        Ok(threads)
    }
}

/// Running engine threads. They stop when dropped.
pub(crate) struct EngineThreads {
    stop: Arc<AtomicBool>,
    threads: Vec<(Waker, JoinHandle<usize>)>,
}

impl EngineThreads {
    /// Ends every connection, then the threads, and waits for them within the shutdown limit.
    /// Returns how many connections have an operation inside a file that had not returned by then:
    /// no other operation of theirs begins, but that one may still take effect.
    pub(crate) fn stop(mut self) -> usize {
        self.end()
    }

    fn end(&mut self) -> usize {
        self.stop.store(true, Ordering::Release);
        self.threads.iter().for_each(|(waker, _)| waker.wake());
        let ended = self.threads.drain(..).map(|(_, thread)| {
            thread.join().unwrap_or_else(|_| {
                tracing::error!("an engine thread panicked");
                0
            })
        });
        ended.sum()
    }
}

impl Drop for EngineThreads {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for EngineThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineThreads").finish_non_exhaustive()
    }
}
