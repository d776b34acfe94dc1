//! A server of one file: a real engine on loopback, and a control side that fails on cue.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use basics::Environment;
use pmem::{DurabilityClass, Medium, OpenOptions};
use rdma::{
    Access, Engine, EngineConfig, Event, PeerOperations, PollPolicy, Provider, QpConfig, QpId,
    Rkey, ShmProvider, SoftProvider,
};

use thiserror::Error;

use super::{Cues, FallbackReason, Region};
use crate::region::{
    AsyncRegion, Control, Invitation, Listener, Mapping, Piece, Promise, Recall, RegionSettings,
    SharedEngine, Ways,
};

const FILE: u64 = 1 << 20;
/// The part of the file that is mapped by default.
const REGION: Range<u64> = 4096..4096 + 65536;

/// Writes in order: offset and bytes.
type Cached = Vec<(u64, Vec<u8>)>;

/// A request to the server's engine thread.
pub(super) enum Ask {
    Register(Sender<Piece>),
    Deregister(Sender<()>),
    CutConnections(Sender<()>),
    /// From now on the engine thread neither receives nor sends.
    FallSilent(Sender<()>),
    /// The next connections are of a peer without Flush, Verify and Atomic Write.
    AnnounceNothing(Sender<()>),
    Stop,
}

/// A server of one file: an engine thread, and the control side's view of it.
#[derive(Debug)]
pub(super) struct Peer {
    file: Arc<dyn Medium>,
    range: Range<u64>,
    asks: Sender<Ask>,
    waker: rdma::Waker,
    /// The addresses that the server announces; at first only the address where it listens.
    pub(super) addresses: Mutex<Vec<SocketAddr>>,
    /// The name that an invitation gives to a client of the same host.
    pub(super) same_host: Mutex<Option<SocketAddr>>,
    recall: Mutex<Option<Arc<Recall>>>,
    pub(super) smb_writes: AtomicU64,
    pub(super) unmaps: AtomicU64,
    pub(super) closes: AtomicU64,
    pub(super) smb_fails: AtomicBool,
    pub(super) smb_writes_fail: AtomicBool,
    pub(super) flushes_fail: AtomicBool,
    /// From now on the client does not hold the lease.
    pub(super) lease_gone: AtomicBool,
    /// The lease ends after this many writes of a replay; 0 for never.
    pub(super) lease_goes_after: AtomicU64,
    /// SMB2 WRITEs stay here until an SMB2 FLUSH, as in a page cache that commits do not reach.
    pub(super) cache: Mutex<Option<Cached>>,
    /// The ranges of the file that were committed by messages.
    pub(super) commits: Mutex<Vec<Range<u64>>>,
    /// The SMB2 FLUSH of this number, counted from now on, fails once; 0 for none.
    pub(super) failing_flush: AtomicU64,
    /// What the server says of the file.
    pub(super) promise: Mutex<Promise>,
    /// What the server says that the control side comes back to while it unmaps.
    pub(super) promise_after_unmap: Mutex<Option<Promise>>,
    /// The caller asked for more than any promise.
    pub(super) asks_for_more: AtomicBool,
    /// The operations in the answer to MAP.
    pub(super) operations: Mutex<PeerOperations>,
    /// How many bytes of the region MAP leaves out.
    pub(super) length_missing: AtomicU64,
    /// The thread that asked for the latest mapping.
    pub(super) mapped_by: Mutex<Option<ThreadId>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Peer {
    /// A server of a file in memory that commits by a fence.
    pub(super) fn start() -> Arc<Self> {
        Self::with_region(REGION)
    }

    /// The same, with a region of another length.
    pub(super) fn with_region(range: Range<u64>) -> Arc<Self> {
        let options = OpenOptions { emulate_persistence: true };
        let len = FILE.max(range.end + 4096);
        let file = pmem::anonymous_with(len, options).unwrap();
        file.prepare(0, len).unwrap();
        Self::serving(file, range)
    }

    /// The same, reached through shared memory alone.
    pub(super) fn of_the_same_host() -> Arc<Self> {
        let file = pmem::anonymous_with(FILE, OpenOptions { emulate_persistence: true }).unwrap();
        file.prepare(0, FILE).unwrap();
        let peer = Self::serving_by(&ShmProvider, file, REGION);
        *peer.same_host.lock().unwrap() = peer.addresses.lock().unwrap().pop();
        peer
    }

    /// A server of `file`, of which `range` is mapped.
    pub(super) fn serving(file: Arc<dyn Medium>, range: Range<u64>) -> Arc<Self> {
        Self::serving_by(&SoftProvider, file, range)
    }

    fn serving_by(provider: &dyn Provider, file: Arc<dyn Medium>, range: Range<u64>) -> Arc<Self> {
        let config = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let mut engine = provider.open_engine(config).unwrap();
        let address = engine.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let (asks, inbox) = channel();
        let waker = engine.waker();
        let (served, mapped) = (Arc::clone(&file), range.clone());
        let thread = std::thread::spawn(move || {
            let accepts = QpConfig::default();
            Serving { engine, served, mapped, accepts, is_silent: false, qp: None, rkey: None }
                .run(&inbox);
        });
        Arc::new(Self {
            file,
            range,
            asks,
            waker,
            addresses: Mutex::new(vec![address]),
            same_host: Mutex::new(None),
            recall: Mutex::new(None),
            smb_writes: AtomicU64::new(0),
            unmaps: AtomicU64::new(0),
            closes: AtomicU64::new(0),
            smb_fails: AtomicBool::new(false),
            smb_writes_fail: AtomicBool::new(false),
            flushes_fail: AtomicBool::new(false),
            lease_gone: AtomicBool::new(false),
            lease_goes_after: AtomicU64::new(0),
            cache: Mutex::new(None),
            commits: Mutex::default(),
            failing_flush: AtomicU64::new(0),
            promise: Mutex::new(Promise { class: DurabilityClass::Volatile, is_emulated: true }),
            promise_after_unmap: Mutex::new(None),
            asks_for_more: AtomicBool::new(false),
            operations: Mutex::new(PeerOperations::all()),
            length_missing: AtomicU64::new(0),
            mapped_by: Mutex::new(None),
            thread: Mutex::new(Some(thread)),
        })
    }

    pub(super) fn ask<T>(&self, ask: impl FnOnce(Sender<T>) -> Ask) -> T {
        let (reply, answer) = channel();
        self.asks.send(ask(reply)).unwrap();
        self.waker.wake();
        answer.recv().unwrap()
    }

    pub(super) fn region(self: &Arc<Self>) -> Region {
        self.region_with(|_| {})
    }

    pub(super) fn region_with(
        self: &Arc<Self>,
        change: impl FnOnce(&mut RegionSettings),
    ) -> Region {
        let mut settings =
            RegionSettings { polling: PollPolicy::Block, ..RegionSettings::default() };
        change(&mut settings);
        self.region_in(&Environment::host(), settings)
    }

    /// A region whose clock is another than the kernel's.
    pub(super) fn region_in(
        self: &Arc<Self>,
        environment: &Environment,
        settings: RegionSettings,
    ) -> Region {
        let control = Box::new(Fake(Arc::clone(self)));
        Region::open(control, Ways::of(&settings), settings, environment, self.range.clone())
    }

    /// A region for async callers, on a shared engine.
    pub(super) async fn region_on(self: &Arc<Self>, shared: &SharedEngine) -> AsyncRegion<Cues> {
        let settings = RegionSettings { shared: Some(shared.clone()), ..RegionSettings::default() };
        let control = Box::new(Fake(Arc::clone(self)));
        let (ways, range) = (Ways::of(&settings), self.range.clone());
        AsyncRegion::open(control, ways, settings, &Environment::host(), range).await.unwrap()
    }

    pub(super) fn recall(&self) {
        self.recall.lock().unwrap().as_ref().unwrap().ask();
    }

    /// Returns the lease and the region in the client's name.
    pub(super) fn take_the_lease(&self) {
        self.recall();
        self.lease_gone.store(true, Ordering::SeqCst);
        self.ask(Ask::Deregister);
    }

    /// Writes as another client, and makes the bytes durable.
    pub(super) fn another_writes(&self, offset: u64, bytes: &[u8]) {
        let len = u64::try_from(bytes.len()).unwrap();
        self.file.place(self.range.start + offset, bytes).unwrap();
        self.file.persist(self.range.start + offset, len).unwrap();
    }

    pub(super) fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.file.read(self.range.start + offset, &mut bytes).unwrap();
        bytes
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.asks.send(Ask::Stop);
        self.waker.wake();
        self.thread.lock().unwrap().take().unwrap().join().unwrap();
    }
}

struct Serving {
    engine: Box<dyn Engine>,
    served: Arc<dyn Medium>,
    mapped: Range<u64>,
    accepts: QpConfig,
    is_silent: bool,
    qp: Option<QpId>,
    rkey: Option<Rkey>,
}

impl Serving {
    fn run(mut self, inbox: &Receiver<Ask>) {
        let mut events = Vec::new();
        loop {
            while let Ok(ask) = inbox.try_recv() {
                if !self.answer(ask) {
                    return;
                }
            }
            if self.is_silent {
                if inbox.recv().is_ok_and(|ask| self.answer(ask)) {
                    continue;
                }
                return;
            }
            self.engine.poll(&mut events);
            for event in events.drain(..) {
                if let Event::ConnectRequest { id, .. } = event {
                    self.qp = self.engine.accept(id, self.accepts, &[7]).ok();
                    self.rkey = None;
                }
            }
            self.engine.wait(Some(Duration::from_millis(20)));
        }
    }

    fn answer(&mut self, ask: Ask) -> bool {
        match ask {
            Ask::Register(reply) => {
                let (qp, served) = (self.qp.unwrap(), Arc::clone(&self.served));
                let region =
                    self.engine.register(qp, served, self.mapped.clone(), Access::PUSH).unwrap();
                self.rkey = Some(region.rkey);
                let (rkey, remote_addr) = (region.rkey, region.remote_addr_base);
                reply.send(Piece { rkey, remote_addr, len: region.len }).unwrap();
            }
            Ask::Deregister(reply) => {
                if let (Some(qp), Some(rkey)) = (self.qp, self.rkey.take()) {
                    let _ = self.engine.deregister(qp, rkey);
                }
                reply.send(()).unwrap();
            }
            Ask::CutConnections(reply) => {
                if let Some(qp) = self.qp.take() {
                    self.engine.disconnect(qp);
                }
                reply.send(()).unwrap();
            }
            Ask::FallSilent(reply) => {
                self.is_silent = true;
                reply.send(()).unwrap();
            }
            Ask::AnnounceNothing(reply) => {
                self.accepts.announce = false;
                reply.send(()).unwrap();
            }
            Ask::Stop => return false,
        }
        true
    }
}

/// A message failed on cue.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("on cue")]
pub(crate) struct CueError;

#[derive(Debug)]
struct Fake(Arc<Peer>);

impl Fake {
    fn works(&self) -> Result<(), CueError> {
        fails(&self.0.smb_fails)
    }
}

fn fails(cue: &AtomicBool) -> Result<(), CueError> {
    if cue.load(Ordering::SeqCst) { Err(CueError) } else { Ok(()) }
}

impl Control<Cues> for Fake {
    fn invite(&mut self) -> Result<Invitation, FallbackReason> {
        self.works().map_err(|_| FallbackReason::ControlLost)?;
        let Promise { class, is_emulated } = *self.0.promise.lock().unwrap();
        let to = |address: &SocketAddr| Listener { address: *address, private_data: vec![1, 2, 3] };
        let listeners = self.0.addresses.lock().unwrap().iter().map(to).collect();
        let same_host = self.0.same_host.lock().unwrap().as_ref().map(to);
        Ok(Invitation { listeners, same_host, class, is_emulated })
    }

    fn promise(&self) -> Option<Promise> {
        Some(*self.0.promise.lock().unwrap())
    }

    fn takes(&self, promise: Promise) -> bool {
        promise.can_commit() && !self.0.asks_for_more.load(Ordering::SeqCst)
    }

    fn connection(&self, reply: &[u8]) -> Option<u64> {
        (reply == [7]).then_some(7)
    }

    fn map(&mut self, _: u64, recall: &Arc<Recall>) -> Result<Mapping, CueError> {
        self.0.lease_gone.store(false, Ordering::SeqCst);
        *self.0.recall.lock().unwrap() = Some(Arc::clone(recall));
        *self.0.mapped_by.lock().unwrap() = Some(std::thread::current().id());
        let mut piece = self.0.ask(Ask::Register);
        piece.len -= self.0.length_missing.load(Ordering::SeqCst);
        let operations = *self.0.operations.lock().unwrap();
        Ok(Mapping { operations, pieces: vec![piece] })
    }

    fn unmap(&mut self) -> Result<(), CueError> {
        self.works()?;
        self.0.unmaps.fetch_add(1, Ordering::SeqCst);
        self.0.ask(Ask::Deregister);
        if let Some(other) = self.0.promise_after_unmap.lock().unwrap().take() {
            *self.0.promise.lock().unwrap() = other;
        }
        Ok(())
    }

    fn read(&mut self, file_offset: u64, out: &mut [u8]) -> Result<(), CueError> {
        self.works()?;
        self.0.file.read(file_offset, out).unwrap();
        Ok(())
    }

    fn write(&mut self, file_offset: u64, bytes: &[u8]) -> Result<(), CueError> {
        self.works()?;
        fails(&self.0.smb_writes_fail)?;
        self.0.smb_writes.fetch_add(1, Ordering::SeqCst);
        match &mut *self.0.cache.lock().unwrap() {
            Some(cache) => cache.push((file_offset, bytes.to_vec())),
            None => self.0.file.place(file_offset, bytes).unwrap(),
        }
        Ok(())
    }

    fn may_replay(&mut self) -> bool {
        !self.0.lease_gone.load(Ordering::SeqCst)
    }

    fn write_again(&mut self, file_offset: u64, bytes: &[u8]) -> Result<bool, CueError> {
        let (load, store) = (Ordering::SeqCst, Ordering::SeqCst);
        let left = &self.0.lease_goes_after;
        let left = left.fetch_update(store, load, |left| left.checked_sub(1));
        if left == Ok(1) {
            return Ok(false);
        }
        self.write(file_offset, bytes).map(|()| true)
    }

    fn settle(&mut self) {}

    fn close(&mut self) -> Result<(), CueError> {
        self.0.closes.fetch_add(1, Ordering::SeqCst);
        self.works()
    }

    fn commit(&mut self, range: Range<u64>) -> Result<(), CueError> {
        self.0.commits.lock().unwrap().push(range);
        self.flush()
    }

    fn flush(&mut self) -> Result<(), CueError> {
        fails(&self.0.flushes_fail)?;
        let (load, store) = (Ordering::SeqCst, Ordering::SeqCst);
        let left = self.0.failing_flush.fetch_update(store, load, |left| left.checked_sub(1));
        if left == Ok(1) {
            return Err(CueError);
        }
        self.works()?;
        if let Some(cache) = &mut *self.0.cache.lock().unwrap() {
            for (offset, bytes) in cache.drain(..) {
                self.0.file.place(offset, &bytes).unwrap();
            }
            self.0.file.persist(0, self.0.file.len()).unwrap();
        }
        Ok(())
    }
}
