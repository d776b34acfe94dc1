//! The engine of a channel: its own, or one that many channels share.
//!
//! ```text
//!   channel A --poll--> engine.poll --> events of A: returned
//!                                  \--> events of B: into B's inbox, which B's next poll empties
//! ```
//!
//! Whichever channel polls or waits does so for all of them, so one thread that drives many regions waits once for the first
//! event of any.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use basics::Environment;
use pmem::Medium;
use rdma::{
    Access, Engine, EngineConfig, EngineError, Event, MemoryRegion, PollPolicy, PostError,
    Provider, ProviderChoice, QpCapabilities, QpConfig, QpId, RegisterError, Waker, WorkRequest,
};

use super::shared_thread::SharedThread;

/// An engine that regions of one process share: [`RegionSettings::shared`](super::RegionSettings::shared).
///
/// One thread drives the regions of a shared engine: the caller's, for each [`RemoteRegion`](super::RemoteRegion); a thread of the
/// engine, for each [`AsyncRegion`](super::AsyncRegion). Regions on several threads are correct and wait for each other.
/// While one region of a thread waits for its control side, the others of that thread wait too.
#[derive(Clone, Debug)]
pub struct SharedEngine(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    hub: Arc<Hub>,
    choice: ProviderChoice,
    provider: Arc<dyn Provider>,
    /// Drives the async regions; started with the first.
    thread: SharedThread,
}

impl SharedEngine {
    /// Opens an engine. Its regions dial by its provider only.
    ///
    /// # Errors
    /// The provider opens no engine.
    pub fn open(
        choice: ProviderChoice,
        polling: PollPolicy,
        environment: &Environment,
    ) -> Result<Self, EngineError> {
        let (provider, environment) = (choice.provider(), environment.clone());
        let config = EngineConfig { polling, environment, ..EngineConfig::default() };
        let engine = provider.open_engine(config)?;
        let hub = Arc::new(Hub::new(engine));
        let thread = SharedThread::of(&hub);
        Ok(Self(Arc::new(Parts { hub, choice, provider, thread })))
    }

    /// The provider.
    pub(super) fn choice(&self) -> ProviderChoice {
        self.0.choice
    }

    /// The provider itself.
    pub(super) fn provider(&self) -> &Arc<dyn Provider> {
        &self.0.provider
    }

    /// The thread that drives async regions.
    pub(super) fn thread(&self) -> &SharedThread {
        &self.0.thread
    }

    /// Waits until a region of this engine may have something to do, for `patience` at most; may return earlier. The owner
    /// of several regions then asks each of them.
    pub fn wait(&self, patience: Duration) {
        self.0.hub.wait(None, Some(patience));
    }

    /// A handle that ends [`SharedEngine::wait`] from another thread.
    pub fn waker(&self) -> Waker {
        self.0.hub.waker.clone()
    }
}

/// An engine and the events of those that did not poll.
#[derive(Debug)]
pub(super) struct Hub {
    state: Mutex<State>,
    pub(super) waker: Waker,
    inline_max: usize,
}

#[derive(Debug)]
struct State {
    engine: Box<dyn Engine>,
    events: Vec<Event>,
    inboxes: HashMap<QpId, Vec<Event>>,
    /// Events in all inboxes.
    kept: usize,
}

impl Hub {
    fn new(engine: Box<dyn Engine>) -> Self {
        let (waker, inline_max) = (engine.waker(), engine.inline_max());
        let (events, inboxes) = (Vec::with_capacity(EVENTS_RESERVED), HashMap::new());
        let state = Mutex::new(State { engine, events, inboxes, kept: 0 });
        Self { state, waker, inline_max }
    }

    /// Waits unless events are kept: for `qp`, or for anybody.
    pub(super) fn wait(&self, qp: Option<QpId>, patience: Option<Duration>) {
        let mut state = self.lock();
        let is_kept = match qp {
            _ if state.kept == 0 => false,
            Some(qp) => state.inboxes.get(&qp).is_some_and(|inbox| !inbox.is_empty()),
            None => true,
        };
        if !is_kept {
            state.engine.wait(patience);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        if let Ok(state) = self.state.try_lock() {
            return state;
        }
        // The holder may be waiting for events.
        self.waker.wake();
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Moves the events of `qp` to `events`, those of others to their inboxes.
    fn poll(&mut self, qp: QpId, events: &mut Vec<Event>) {
        if self.kept > 0
            && let Some(inbox) = self.inboxes.get_mut(&qp)
        {
            self.kept -= inbox.len();
            events.append(inbox);
        }
        self.engine.poll(&mut self.events);
        for event in self.events.drain(..) {
            match qp_of(&event) {
                Some(of) if of == qp => events.push(event),
                Some(of) => {
                    if let Some(inbox) = self.inboxes.get_mut(&of) {
                        inbox.push(event);
                        self.kept += 1;
                    }
                }
                None => {}
            }
        }
    }
}

fn qp_of(event: &Event) -> Option<QpId> {
    match event {
        Event::Completion(completion) => Some(completion.qp),
        Event::Established { qp, .. }
        | Event::ConnectFailed { qp, .. }
        | Event::Deregistered { qp, .. }
        | Event::Disconnected { qp, .. } => Some(*qp),
        // This engine does not listen.
        Event::ConnectRequest { .. } | Event::ConnectRequestGone { .. } => None,
    }
}

/// One queue pair and the engine that carries it. The queue pair ends with the value.
#[derive(Debug)]
pub(super) struct Attachment {
    carrier: Carrier,
    qp: QpId,
}

#[derive(Debug)]
enum Carrier {
    Own(Box<dyn Engine>),
    Shared(Arc<Hub>),
}

impl Attachment {
    /// Dials by an engine of its own.
    pub(super) fn dial_own(
        mut engine: Box<dyn Engine>,
        address: SocketAddr,
        private_data: &[u8],
    ) -> Result<Self, EngineError> {
        let qp = engine.connect(address, QpConfig::default(), private_data)?;
        Ok(Self { carrier: Carrier::Own(engine), qp })
    }

    /// Dials by a shared engine.
    pub(super) fn dial_shared(
        shared: &SharedEngine,
        address: SocketAddr,
        private_data: &[u8],
    ) -> Result<Self, EngineError> {
        let hub = Arc::clone(&shared.0.hub);
        let mut state = hub.lock();
        let qp = state.engine.connect(address, QpConfig::default(), private_data)?;
        state.inboxes.insert(qp, Vec::new());
        drop(state);
        Ok(Self { carrier: Carrier::Shared(hub), qp })
    }

    /// See [`Engine::poll`]: the events of this queue pair.
    pub(super) fn poll(&mut self, events: &mut Vec<Event>) {
        match &mut self.carrier {
            Carrier::Own(engine) => {
                engine.poll(events);
            }
            Carrier::Shared(hub) => hub.lock().poll(self.qp, events),
        }
    }

    /// See [`Engine::wait`].
    pub(super) fn wait(&mut self, patience: Duration) {
        match &mut self.carrier {
            Carrier::Own(engine) => engine.wait(Some(patience)),
            Carrier::Shared(hub) => hub.wait(Some(self.qp), Some(patience)),
        }
    }

    /// See [`Engine::post_send`].
    pub(super) fn post_send(&mut self, request: WorkRequest<'_>) -> Result<(), PostError> {
        let qp = self.qp;
        self.with(|engine| engine.post_send(qp, request))
    }

    /// See [`Engine::register`].
    pub(super) fn register(
        &mut self,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        let qp = self.qp;
        self.with(|engine| engine.register(qp, medium, range, access))
    }

    /// See [`Engine::capabilities`].
    pub(super) fn capabilities(&mut self) -> Option<QpCapabilities> {
        let qp = self.qp;
        self.with(|engine| engine.capabilities(qp))
    }

    /// See [`Engine::waker`].
    pub(super) fn waker(&self) -> Waker {
        match &self.carrier {
            Carrier::Own(engine) => engine.waker(),
            Carrier::Shared(hub) => hub.waker.clone(),
        }
    }

    /// See [`Engine::inline_max`].
    pub(super) fn inline_max(&self) -> usize {
        match &self.carrier {
            Carrier::Own(engine) => engine.inline_max(),
            Carrier::Shared(hub) => hub.inline_max,
        }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut dyn Engine) -> T) -> T {
        match &mut self.carrier {
            Carrier::Own(engine) => act(&mut **engine),
            Carrier::Shared(hub) => act(&mut *hub.lock().engine),
        }
    }
}

impl Drop for Attachment {
    /// The server learns of the end at once.
    fn drop(&mut self) {
        let (qp, mut events) = (self.qp, Vec::new());
        self.with(|engine| engine.disconnect(qp));
        self.poll(&mut events);
        if let Carrier::Shared(hub) = &self.carrier {
            let mut state = hub.lock();
            let left = state.inboxes.remove(&qp).map_or(0, |inbox| inbox.len());
            state.kept -= left;
        }
    }
}

/// Room for events before the vector grows.
const EVENTS_RESERVED: usize = 512;
