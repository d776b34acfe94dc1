//! A region driven by a thread of its own, for async code.
//!
//! ```text
//!   any task                          the region's thread
//!   --------                          -------------------
//!   write_commit(..).await --queue--> submit, submit, ...   (all that are queued)
//!         ^                           wait: an answer, a new request, a recall
//!         '------- one-shot --------- finish the oldest
//! ```
//!
//! A request costs two hand-overs between threads (some 20 to 40 µs on a virtual machine): who
//! wants the lowest latency keeps the [`Region`] and drives it itself. Many requests at once share
//! the hand-overs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::{Path, Recall, Region, RegionError};

/// A region that async tasks share. Dropping the last clone ends its thread in good order.
#[derive(Clone, Debug)]
pub struct AsyncRegion {
    requests: mpsc::Sender<Request>,
    doorbell: Arc<Doorbell>,
}

impl AsyncRegion {
    pub(super) fn start(region: Region) -> Self {
        let (requests, inbox) = mpsc::channel(region.settings.outstanding_max);
        let doorbell = Arc::new(Doorbell { recall: Arc::clone(&region.recall) });
        let thread = std::thread::Builder::new().name("landfast-region".into());
        // A thread that cannot be had drops the inbox, and every request says so.
        let _: Result<JoinHandle<()>, _> = thread.spawn(move || Driver::new(region, inbox).run());
        Self { requests, doorbell }
    }

    /// See [`Region::write_commit`].
    ///
    /// # Durability
    ///
    /// As there: on `Ok` the bytes are durable in the class of [`AsyncRegion::path`].
    pub async fn write_commit(&self, offset: u64, bytes: Vec<u8>) -> Result<(), RegionError> {
        self.ask(|reply| Request::WriteCommit { offset, bytes, reply }).await
    }

    /// See [`Region::write`].
    pub async fn write(&self, offset: u64, bytes: Vec<u8>) -> Result<(), RegionError> {
        self.ask(|reply| Request::Write { offset, bytes, reply }).await
    }

    /// See [`Region::commit`].
    ///
    /// # Durability
    ///
    /// As there.
    pub async fn commit(&self, offset: u64, len: u64) -> Result<(), RegionError> {
        self.ask(|reply| Request::Commit { offset, len, reply }).await
    }

    /// Reads at most 1 MiB.
    pub async fn read(&self, offset: u64, len: u32) -> Result<Vec<u8>, RegionError> {
        self.ask(|reply| Request::Read { offset, len, reply }).await
    }

    /// See [`Region::atomic_write`].
    pub async fn atomic_write(&self, offset: u64, value: u64) -> Result<(), RegionError> {
        self.ask(|reply| Request::AtomicWrite { offset, value, reply }).await
    }

    /// See [`Region::path`].
    pub async fn path(&self) -> Result<Path, RegionError> {
        self.ask(|reply| Request::Path { reply }).await
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, RegionError>>) -> Request,
    ) -> Result<T, RegionError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(request(reply)).await.map_err(|_| RegionError::Broken)?;
        self.doorbell.ring();
        answer.await.map_err(|_| RegionError::Broken)?
    }
}

/// Ends the driver's wait, on each request and when the last handle goes.
#[derive(Debug)]
struct Doorbell {
    recall: Arc<Recall>,
}

impl Doorbell {
    fn ring(&self) {
        self.recall.wake_owner();
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.ring();
    }
}

type Reply<T> = oneshot::Sender<Result<T, RegionError>>;

#[derive(Debug)]
enum Request {
    WriteCommit { offset: u64, bytes: Vec<u8>, reply: Reply<()> },
    Write { offset: u64, bytes: Vec<u8>, reply: Reply<()> },
    Commit { offset: u64, len: u64, reply: Reply<()> },
    Read { offset: u64, len: u32, reply: Reply<Vec<u8>> },
    AtomicWrite { offset: u64, value: u64, reply: Reply<()> },
    Path { reply: Reply<Path> },
}

/// Who waits for a submitted operation.
#[derive(Debug)]
enum Waiter {
    Commit(Reply<()>),
    Read(Reply<Vec<u8>>, usize),
}

#[derive(Debug)]
struct Driver {
    region: Region,
    inbox: mpsc::Receiver<Request>,
    waiters: VecDeque<Waiter>,
}

impl Driver {
    fn new(region: Region, inbox: mpsc::Receiver<Request>) -> Self {
        Self { region, inbox, waiters: VecDeque::new() }
    }

    fn run(mut self) {
        loop {
            if self.waiters.is_empty() {
                // Nothing is owed to anybody: sleep until someone asks.
                let Some(request) = self.inbox.blocking_recv() else { return };
                self.take(request);
            }
            while self.region.outstanding() < self.region.settings.outstanding_max
                && let Ok(request) = self.inbox.try_recv()
            {
                self.take(request);
            }
            self.finish_all();
            if !self.waiters.is_empty() {
                self.region.wait(LOOK_UP);
            }
        }
    }

    fn take(&mut self, request: Request) {
        match request {
            Request::WriteCommit { offset, bytes, reply } => {
                match self.region.submit_write_commit(offset, &bytes) {
                    Ok(_) => self.waiters.push_back(Waiter::Commit(reply)),
                    Err(error) => answer(reply, Err(error)),
                }
            }
            Request::Commit { offset, len, reply } => {
                match self.region.submit_commit(offset, len) {
                    Ok(_) => self.waiters.push_back(Waiter::Commit(reply)),
                    Err(error) => answer(reply, Err(error)),
                }
            }
            Request::Read { offset, len, reply } => match self.region.submit_read(offset, len) {
                Ok(_) => {
                    let len = usize::try_from(len).expect("submit_read takes at most READ_MAX");
                    self.waiters.push_back(Waiter::Read(reply, len));
                }
                Err(error) => answer(reply, Err(error)),
            },
            Request::Write { offset, bytes, reply } => {
                answer(reply, self.region.write(offset, &bytes));
            }
            Request::AtomicWrite { offset, value, reply } => {
                answer(reply, self.region.atomic_write(offset, value));
            }
            Request::Path { reply } => answer(reply, Ok(self.region.path().clone())),
        }
    }

    /// Answers everybody whose operation is over, oldest first.
    fn finish_all(&mut self) {
        while let Some(waiter) = self.waiters.front() {
            let mut bytes = match waiter {
                Waiter::Read(_, len) => vec![0; *len],
                Waiter::Commit(_) => Vec::new(),
            };
            let outcome = match self.region.try_finish(&mut bytes) {
                Ok(None) => return,
                Ok(Some(_)) => Ok(()),
                Err(error) => Err(error),
            };
            match self.waiters.pop_front().expect("the front was just looked at") {
                Waiter::Commit(reply) => answer(reply, outcome),
                Waiter::Read(reply, _) => answer(reply, outcome.map(|()| bytes)),
            }
        }
    }
}

/// A task that no longer waits is no reason to stop.
fn answer<T>(reply: Reply<T>, outcome: Result<T, RegionError>) {
    let _ = reply.send(outcome);
}

// A bound on how late a silent server is noticed, not on any answer.
const LOOK_UP: Duration = Duration::from_millis(500);
