//! A region driven by a thread of its own, or of its shared engine, for async callers.
//!
//! ```text
//!   any task                          the region's thread
//!   --------                          -------------------
//!   write_commit(..) ---queue-------> submit, submit, ...   (all that are queued)
//!         ^                           wait: an answer, a new request, a recall
//!         '------- one-shot --------- finish the oldest
//! ```
//!
//! A request costs two hand-overs between threads (some 20 to 40 µs on a virtual machine): a caller
//! that needs the lowest latency keeps the [`RemoteRegion`] and drives it itself. Many requests at once
//! share the hand-overs.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use basics::Environment;
use rdma::Waker;
use tokio::sync::{mpsc, oneshot};

use super::channel::READ_MAX;
use super::recall::Bell;
use super::shared_thread::{Seat, Turn};
use super::{
    Control, Messages, Outcome, Path, Recall, RegionError, RegionSettings, RemoteRegion,
    SharedEngine, Ticket, Ways, wide,
};

/// A region that async tasks share. Dropping the last clone ends it in good order, and a thread of its own with it.
///
/// Requests are carried out in the order in which the methods were called: a call hands over its request, and gives a future of
/// the answer. A read sees every write before it; as RDMA orders them, it may see some behind it, too. Dropping a future cancels
/// nothing.
#[derive(Clone, Debug)]
pub struct AsyncRegion<M: Messages> {
    len: u64,
    /// Without a bound: a request that waited for room would hold its bytes as well, and be overtaken.
    requests: mpsc::UnboundedSender<Request<M>>,
    doorbell: Arc<Doorbell>,
}

impl<M: Messages> AsyncRegion<M> {
    /// [`RemoteRegion::open`] on the thread of the region: the caller waits without blocking.
    ///
    /// # Errors
    ///
    /// [`RegionError::Broken`]: the host starts no thread.
    pub async fn open(
        control: Box<dyn Control<M>>,
        ways: Ways,
        settings: RegionSettings,
        environment: &Environment,
        file_range: Range<u64>,
    ) -> Outcome<Self, M> {
        let region = RemoteRegion::unmapped(control, ways, settings, environment, file_range);
        let opened = Self::start_with(region, RemoteRegion::try_map);
        // The answer comes after the first attempt to map.
        opened.path().await.map(|_| opened)
    }

    pub(super) fn start(region: RemoteRegion<M>) -> Self {
        Self::start_with(region, |_| {})
    }

    fn start_with(
        mut region: RemoteRegion<M>,
        begin: impl FnOnce(&mut RemoteRegion<M>) + Send + 'static,
    ) -> Self {
        let (requests, inbox) = mpsc::unbounded_channel();
        region.recall.ring_also(Box::new(Recalled(requests.downgrade())));
        let (len, shared) = (region.len, region.settings.shared.clone());
        let thread_of = shared.as_ref().map(SharedEngine::waker);
        let doorbell = Arc::new(Doorbell { recall: Arc::clone(&region.recall), thread_of });
        if let Some(shared) = shared {
            // As below, if the host starts no thread.
            shared.thread().start(Box::new(move || {
                begin(&mut region);
                Box::new(Driver::new(region, inbox))
            }));
            return Self { len, requests, doorbell };
        }
        let thread = std::thread::Builder::new().name("landfast-region".into());
        // If the host starts no thread the inbox is dropped, and every request fails.
        let _: Result<JoinHandle<()>, _> = thread.spawn(move || {
            begin(&mut region);
            Driver::new(region, inbox).run();
        });
        Self { len, requests, doorbell }
    }

    /// See [`RemoteRegion::len`].
    pub fn len(&self) -> u64 {
        self.len
    }

    /// See [`RemoteRegion::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// See [`RemoteRegion::write_commit`].
    ///
    /// # Durability
    ///
    /// As there: on `Ok` the bytes are durable in the class of [`AsyncRegion::path`].
    pub fn write_commit(
        &self,
        offset: u64,
        bytes: Vec<u8>,
    ) -> impl Future<Output = Outcome<(), M>> + use<M> {
        self.ask(move |reply| Request::WriteCommit { offset, bytes, reply })
    }

    /// See [`RemoteRegion::write`].
    pub fn write(
        &self,
        offset: u64,
        bytes: Vec<u8>,
    ) -> impl Future<Output = Outcome<(), M>> + use<M> {
        self.ask(move |reply| Request::Write { offset, bytes, reply })
    }

    /// See [`RemoteRegion::commit`].
    ///
    /// # Durability
    ///
    /// As there.
    pub fn commit(&self, offset: u64, len: u64) -> impl Future<Output = Outcome<(), M>> + use<M> {
        self.ask(move |reply| Request::Commit { offset, len, reply })
    }

    /// See [`RemoteRegion::read`]. More than 1 MiB is read in pieces, which are handed over together.
    pub fn read(
        &self,
        offset: u64,
        len: usize,
    ) -> impl Future<Output = Outcome<Vec<u8>, M>> + use<M> {
        let asked = wide(len);
        let is_within = offset.checked_add(asked).is_some_and(|end| end <= self.len);
        let limit = self.len;
        let mut pieces = VecDeque::new();
        let mut at = 0;
        // An empty read is asked for, too: it says whether the region is broken.
        while is_within && (at < asked || pieces.is_empty()) {
            let len = u32::try_from(asked - at).unwrap_or(READ_MAX).min(READ_MAX);
            pieces.push_back(self.ask(move |reply| Request::Read {
                offset: offset + at,
                len,
                reply,
            }));
            at += u64::from(len);
        }
        async move {
            if !is_within {
                return Err(RegionError::OutOfRange { offset, len: asked, limit });
            }
            let mut bytes = Vec::with_capacity(len);
            while let Some(piece) = pieces.pop_front() {
                bytes.extend(piece.await?);
            }
            Ok(bytes)
        }
    }

    /// See [`RemoteRegion::verify`].
    pub fn verify(&self, offset: u64, len: u32) -> impl Future<Output = Outcome<u32, M>> + use<M> {
        self.ask(move |reply| Request::Verify { offset, len, reply })
    }

    /// See [`RemoteRegion::atomic_write`].
    pub fn atomic_write(
        &self,
        offset: u64,
        value: u64,
    ) -> impl Future<Output = Outcome<(), M>> + use<M> {
        self.ask(move |reply| Request::AtomicWrite { offset, value, reply })
    }

    /// See [`RemoteRegion::path`].
    pub fn path(&self) -> impl Future<Output = Outcome<Path<M>, M>> + use<M> {
        self.ask(move |reply| Request::Path { reply })
    }

    /// See [`RemoteRegion::lost`].
    pub fn lost(&self) -> impl Future<Output = Outcome<Vec<Range<u64>>, M>> + use<M> {
        self.ask(move |reply| Request::Lost { reply })
    }

    /// See [`RemoteRegion::close`]: behind all that was handed over before. What any clone asks for later fails with
    /// [`RegionError::Broken`].
    pub fn close(self) -> impl Future<Output = Outcome<(), M>> + use<M> {
        self.ask(move |reply| Request::Close { reply })
    }

    /// Hands a request over; the future is the answer's.
    fn ask<T, R>(&self, request: R) -> impl Future<Output = Outcome<T, M>> + use<T, R, M>
    where
        R: FnOnce(Reply<T, M>) -> Request<M>,
    {
        let (reply, answer) = oneshot::channel();
        // Where there is no thread any more, the answer says so.
        let _ = self.requests.send(request(reply));
        self.doorbell.ring();
        async move { answer.await.map_err(|_| RegionError::Broken)? }
    }
}

/// Ends the driver's wait, on each request and when the last handle is dropped.
#[derive(Debug)]
struct Doorbell {
    recall: Arc<Recall>,
    /// Wakes a thread that drives other regions too, and so never sleeps on the requests of one.
    thread_of: Option<Waker>,
}

impl Doorbell {
    fn ring(&self) {
        match &self.thread_of {
            Some(waker) => waker.wake(),
            None => self.recall.wake_owner(),
        }
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.ring();
    }
}

/// Tells the thread of a recall while it sleeps on its inbox.
#[derive(Debug)]
struct Recalled<M: Messages>(mpsc::WeakUnboundedSender<Request<M>>);

impl<M: Messages> Bell for Recalled<M> {
    fn ring(&self) {
        if let Some(requests) = self.0.upgrade() {
            let _ = requests.send(Request::GiveBack);
        }
    }
}

type Reply<T, M> = oneshot::Sender<Outcome<T, M>>;

#[derive(Debug)]
enum Request<M: Messages> {
    WriteCommit {
        offset: u64,
        bytes: Vec<u8>,
        reply: Reply<(), M>,
    },
    Write {
        offset: u64,
        bytes: Vec<u8>,
        reply: Reply<(), M>,
    },
    Commit {
        offset: u64,
        len: u64,
        reply: Reply<(), M>,
    },
    Read {
        offset: u64,
        len: u32,
        reply: Reply<Vec<u8>, M>,
    },
    Verify {
        offset: u64,
        len: u32,
        reply: Reply<u32, M>,
    },
    AtomicWrite {
        offset: u64,
        value: u64,
        reply: Reply<(), M>,
    },
    Path {
        reply: Reply<Path<M>, M>,
    },
    Lost {
        reply: Reply<Vec<Range<u64>>, M>,
    },
    Close {
        reply: Reply<(), M>,
    },
    /// The server wants the region back.
    GiveBack,
}

/// The caller that waits for a submitted operation.
#[derive(Debug)]
enum Waiter<M: Messages> {
    /// The operation was submitted before the thread started.
    Nobody,
    Commit(Reply<(), M>),
    Read(Reply<Vec<u8>, M>, usize),
    Verify(Reply<u32, M>),
}

#[derive(Debug)]
struct Driver<M: Messages> {
    region: RemoteRegion<M>,
    inbox: mpsc::UnboundedReceiver<Request<M>>,
    /// One entry for each outstanding operation, in the same order.
    waiters: VecDeque<Waiter<M>>,
}

impl<M: Messages> Driver<M> {
    fn new(region: RemoteRegion<M>, inbox: mpsc::UnboundedReceiver<Request<M>>) -> Self {
        let waiters = (0..region.outstanding()).map(|_| Waiter::Nobody).collect();
        Self { region, inbox, waiters }
    }

    fn run(mut self) {
        loop {
            if self.waiters.is_empty() {
                self.give_back_if_recalled();
                // No operation is outstanding: sleep until a request comes.
                let Some(request) = self.inbox.blocking_recv() else { return };
                self.take(request);
            }
            self.take_all();
            self.finish_all();
            if !self.waiters.is_empty() {
                self.region.wait(Duration::MAX);
            }
        }
    }

    /// Takes the requests that are queued, as far as there is room; `false`: there was none.
    fn take_all(&mut self) -> bool {
        let mut has_taken = false;
        while self.region.outstanding() < self.region.settings.outstanding_max
            && let Ok(request) = self.inbox.try_recv()
        {
            self.take(request);
            has_taken = true;
        }
        has_taken
    }

    fn take(&mut self, request: Request<M>) {
        let region = &mut self.region;
        match request {
            Request::WriteCommit { offset, bytes, reply } => {
                let submitted = region.submit_write_commit(offset, &bytes);
                self.owe(submitted, reply, Waiter::Commit);
            }
            Request::Commit { offset, len, reply } => {
                let submitted = region.submit_commit(offset, len);
                self.owe(submitted, reply, Waiter::Commit);
            }
            Request::Read { offset, len, reply } => {
                let submitted = region.submit_read(offset, len);
                let room = usize::try_from(len).expect("a u32 fits");
                self.owe(submitted, reply, |reply| Waiter::Read(reply, room));
            }
            Request::Verify { offset, len, reply } => {
                let submitted = region.submit_verify(offset, len);
                self.owe(submitted, reply, Waiter::Verify);
            }
            Request::Write { offset, bytes, reply } => answer(reply, region.write(offset, &bytes)),
            Request::AtomicWrite { offset, value, reply } => {
                answer(reply, region.atomic_write(offset, value));
            }
            Request::Path { reply } => answer(reply, Ok(region.path().clone())),
            Request::Lost { reply } => answer(reply, Ok(region.lost().to_vec())),
            Request::Close { reply } => {
                self.finish_all();
                while !self.waiters.is_empty() {
                    self.region.wait(Duration::MAX);
                    self.finish_all();
                }
                answer(reply, self.region.end());
            }
            Request::GiveBack => self.give_back_if_recalled(),
        }
    }

    /// Gives a recalled region back at once: another client waits for the file.
    fn give_back_if_recalled(&mut self) {
        // A failure has broken the region, and the next operation reports it.
        let _ = self.region.progress();
    }

    /// Answers a request when its operation ends, or now if the region did not take it.
    fn owe<T>(
        &mut self,
        submitted: Outcome<Ticket, M>,
        reply: Reply<T, M>,
        waiter: impl FnOnce(Reply<T, M>) -> Waiter<M>,
    ) {
        match submitted {
            Ok(_) => self.waiters.push_back(waiter(reply)),
            Err(error) => answer(reply, Err(error)),
        }
    }

    /// Answers every request whose operation is over, oldest first.
    fn finish_all(&mut self) {
        while let Some(waiter) = self.waiters.front() {
            let room = match waiter {
                Waiter::Read(_, len) => *len,
                Waiter::Nobody => usize::try_from(READ_MAX).expect("1 MiB"),
                Waiter::Commit(_) | Waiter::Verify(_) => 0,
            };
            let mut bytes = vec![0; room];
            let value = match self.region.try_finish(&mut bytes) {
                Ok(None) => return,
                Ok(Some(finished)) => Ok(finished.value),
                Err(error) => Err(error),
            };
            match self.waiters.pop_front().expect("the front was just looked at") {
                Waiter::Nobody => {}
                Waiter::Commit(reply) => answer(reply, value.map(drop)),
                Waiter::Read(reply, _) => answer(reply, value.map(|_| bytes)),
                Waiter::Verify(reply) => answer(
                    reply,
                    value.map(|hash| u32::try_from(hash).expect("a CRC-32C has 32 bits")),
                ),
            }
        }
    }
}

impl<M: Messages> Seat for Driver<M> {
    fn turn(&mut self) -> Turn {
        if self.waiters.is_empty() {
            self.give_back_if_recalled();
        }
        let has_taken = self.take_all();
        let outstanding = self.waiters.len();
        self.finish_all();
        if has_taken || self.waiters.len() < outstanding {
            return Turn::Worked;
        }
        let is_over = self.waiters.is_empty() && self.inbox.is_closed() && self.inbox.is_empty();
        if is_over { Turn::Over } else { Turn::Idle }
    }

    fn patience(&self) -> Option<Duration> {
        if self.waiters.is_empty() { None } else { self.region.look_every() }
    }
}

/// A task that no longer waits is no error.
fn answer<O>(reply: oneshot::Sender<O>, outcome: O) {
    let _ = reply.send(outcome);
}
