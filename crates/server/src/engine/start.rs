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
        let stop = Arc::new(AtomicBool::new(false));
        let direct = Direct::new(core, waker.clone(), engine.inline_max());
        let thread = Thread::new(engine, commands, Arc::clone(&stop), gate, direct);
        let join =
            std::thread::Builder::new().name("landfast-engine".into()).spawn(|| thread.run())?;
        Ok(EngineThread { stop, waker, join: Some(join) })
    }
}

/// A running engine thread. Stops when dropped.
pub(crate) struct EngineThread {
    stop: Arc<AtomicBool>,
    waker: Waker,
    join: Option<JoinHandle<()>>,
}

impl EngineThread {
    /// Ends every connection, then the thread, and waits for it. Blocks for a few seconds at
    /// most.
    pub(crate) fn stop(self) {
        drop(self);
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(join) = self.join.take()
            && join.join().is_err()
        {
            tracing::error!("the engine thread panicked");
        }
    }
}

impl fmt::Debug for EngineThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineThread").finish_non_exhaustive()
    }
}
