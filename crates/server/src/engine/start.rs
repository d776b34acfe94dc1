//! Opening an engine and running its thread until it is told to stop.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rdma::{Engine, EngineConfig, EngineError, Provider, Waker};
use tokio::sync::mpsc;

use super::command::{COMMANDS_MAX, Command};
use super::gate::Gate;
use super::handle::Handle;
use super::thread::Thread;
use crate::service::Core;
use crate::transport::direct::Direct;

/// What an engine thread is started with.
#[derive(Clone, Debug)]
pub(crate) struct EngineOptions {
    /// Where peers dial; port 0 chooses one.
    pub(crate) listen: SocketAddr,
    /// Who does RDMA on this machine; may be wrapped (tracer, faults, pcap).
    pub(crate) provider: Arc<dyn Provider>,
    /// Polling, and the bounds on what peers can make the engine spend.
    pub(crate) engine: EngineConfig,
}

/// An engine that listens and is not served yet: its [`Handle`] can be given to whoever will be
/// its [`Gate`] before the first request is looked at.
#[derive(Debug)]
pub(crate) struct OpenEngine {
    engine: Box<dyn Engine>,
    commands: mpsc::Receiver<Command>,
    handle: Handle,
}

impl OpenEngine {
    /// Opens an engine and listens.
    pub(crate) fn open(options: EngineOptions) -> Result<Self, EngineError> {
        let mut engine = options.provider.open_engine(options.engine)?;
        let address = engine.listen(options.listen)?;
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let handle = Handle::new(sender, engine.waker(), address);
        Ok(Self { engine, commands, handle })
    }

    /// The control side's end.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Starts the thread.
    pub(crate) fn run(self, core: Arc<Core>, gate: Arc<dyn Gate>) -> io::Result<EngineThread> {
        let Self { engine, commands, handle: _ } = self;
        let waker = engine.waker();
        let (stop, grace) = (Arc::new(AtomicBool::new(false)), core.limits.shutdown_grace);
        let direct = Direct::new(core, waker.clone(), engine.inline_max());
        let thread = Thread::new(engine, commands, Arc::clone(&stop), gate, direct);
        let join = std::thread::Builder::new()
            .name("landfast-engine".into())
            .spawn(move || thread.run(grace))?;
        Ok(EngineThread { stop, waker, join: Some(join) })
    }
}

/// A running engine thread. Stops when dropped.
pub(crate) struct EngineThread {
    stop: Arc<AtomicBool>,
    waker: Waker,
    join: Option<JoinHandle<usize>>,
}

impl EngineThread {
    /// Ends every connection, then the thread, and waits for it, for as long as the limit of a
    /// shutdown says. Returns how many connections have an operation inside a file that had not
    /// come back by then: nothing else of theirs begins, but that one may still take effect.
    pub(crate) fn stop(mut self) -> usize {
        self.end()
    }

    fn end(&mut self) -> usize {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        let Some(join) = self.join.take() else { return 0 };
        join.join().unwrap_or_else(|_| {
            tracing::error!("the engine thread panicked");
            0
        })
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for EngineThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineThread").finish_non_exhaustive()
    }
}
