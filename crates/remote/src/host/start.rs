//! Opens engines and runs their threads until they are stopped.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use basics::Clock;
use rdma::{Engine, EngineConfig, EngineError, Provider, ShmProvider, Waker};
use tokio::sync::mpsc;

use super::command::{COMMANDS_MAX, Command};
use super::gate::Gate;
use super::handle::{Facts, HostHandle};
use super::handler::Handler;
use super::lanes::{Carrier, Lane, Lanes};
use super::thread::Thread;

/// The options of the engine threads.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// The address for peers; port 0 chooses one.
    pub listen: SocketAddr,
    /// The name under which processes of this host find one engine more, through shared memory.
    pub same_host: Option<SocketAddr>,
    /// The RDMA provider of this machine; may be wrapped (tracer, faults, pcap).
    pub provider: Arc<dyn Provider>,
    /// Polling, and the bounds of what peers can make each engine spend.
    pub engine: EngineConfig,
    /// How many threads, each with an engine; at least one.
    pub threads: usize,
    /// The runtime in whose context gate and handlers are called.
    pub runtime: tokio::runtime::Handle,
    /// How long [`Host::stop`] waits for operations inside a file.
    pub stop_grace: Duration,
}

/// Engines that listen and are not served yet: their [`HostHandle`] can be given to the future [`Gate`]
/// before the first request is handled.
#[derive(Debug)]
pub struct OpenHost {
    engines: Vec<(Box<dyn Engine>, mpsc::Receiver<Command>)>,
    handle: HostHandle,
    clock: Clock,
    stop_grace: Duration,
}

impl OpenHost {
    /// Opens the engines; the first one listens for all.
    pub fn open(options: HostOptions) -> Result<Self, EngineError> {
        let HostOptions { listen, same_host, provider, engine: config, threads, .. } = options;
        let (runtime, stop_grace) = (options.runtime, options.stop_grace);
        let clock = config.environment.clock.clone();
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
        let facts = Facts { address, same_host, reaches_files, runtime };
        let handle = HostHandle::new(Lanes::new(lanes), facts);
        Ok(Self { engines: served, handle, clock, stop_grace })
    }

    /// The handle of the control side.
    pub fn handle(&self) -> &HostHandle {
        &self.handle
    }

    /// Starts the threads. `handler` makes the handler of each from its engine.
    pub fn run<H: Handler>(
        self,
        gate: Arc<dyn Gate>,
        mut handler: impl FnMut(&dyn Engine) -> H,
    ) -> io::Result<Host> {
        let Self { engines, handle, clock, stop_grace } = self;
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Host { stop, threads: Vec::new() };
        for (index, (engine, commands)) in engines.into_iter().enumerate() {
            let waker = engine.waker();
            let served = (handler(&*engine), clock.clone());
            let place = (handle.lanes().clone(), index);
            let (stop, gate) = (Arc::clone(&threads.stop), Arc::clone(&gate));
            let work = Thread::new((engine, commands), place, stop, gate, served);
            let name = match index {
                0 => "landfast-engine".to_owned(),
                _ => format!("engine-{index}"),
            };
            let (thread, runtime) =
                (std::thread::Builder::new().name(name), handle.runtime().clone());
            let run = move || work.run(stop_grace, &runtime);
            threads.threads.push((waker, thread.spawn(run)?));
        }
        Ok(threads)
    }
}

/// Running engine threads. They stop when dropped.
pub struct Host {
    stop: Arc<AtomicBool>,
    threads: Vec<(Waker, JoinHandle<usize>)>,
}

impl Host {
    /// Ends every connection, then the threads, and waits for them within the shutdown limit.
    /// Returns how many connections have an operation inside a file that had not returned by then:
    /// no other operation of theirs begins, but that one may still take effect.
    pub fn stop(mut self) -> usize {
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

impl Drop for Host {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}
