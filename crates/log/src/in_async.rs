//! A log for async code: futures that append, and that end when a commit has ended.
//!
//! ```text
//!   append().await   --> staged at once; waits, without a thread, while the log is full
//!   commit().await   --> tells the committer, and is woken when everything below is durable
//!   committer        --> one thread: commits all that is staged, again and again, while somebody waits
//! ```
//! No executor is assumed. A future that is dropped leaves its record in the log, and takes nothing back.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use crate::error::LogError;
use crate::gate::Gates;
use crate::lsn::Lsn;
use crate::tail_log::TailLog;

/// See the module.
#[derive(Debug)]
pub struct AsyncLog {
    shared: Arc<Shared>,
    committer: Option<JoinHandle<()>>,
    /// The number of the next future.
    next: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    log: Arc<TailLog>,
    /// Somebody waits for everything below.
    wanted: AtomicU64,
    is_ending: AtomicBool,
}

impl AsyncLog {
    /// The log with a thread that commits for those who wait.
    ///
    /// # Errors
    ///
    /// The operating system gives no thread.
    pub fn new(log: Arc<TailLog>) -> std::io::Result<Self> {
        let wanted = AtomicU64::new(0);
        let shared = Arc::new(Shared { log, wanted, is_ending: AtomicBool::new(false) });
        let of_thread = Arc::clone(&shared);
        let run = move || of_thread.run();
        let committer = std::thread::Builder::new().name("log-commit".to_owned()).spawn(run)?;
        Ok(Self { shared, committer: Some(committer), next: AtomicU64::new(0) })
    }

    /// The log itself, for what waits for nothing.
    pub fn log(&self) -> &Arc<TailLog> {
        &self.shared.log
    }

    /// Appends a record, once the log has room for it; [`AsyncLog::commit`] makes it durable.
    ///
    /// # Errors
    ///
    /// [`LogError::TooLong`], [`LogError::Broken`], [`LogError::Destaging`], [`LogError::ArchiveFull`].
    pub async fn append(&self, record: &[u8]) -> Result<Lsn, LogError> {
        if let Some(lsn) = self.shared.log.try_append(record)? {
            return Ok(lsn);
        }
        let future = self.future();
        let wanting = WantsRoom::new(self.shared.log.gates());
        let lsn = poll_fn(|context| self.poll_append(record, future.number, context)).await;
        drop(wanting);
        lsn
    }

    fn poll_append(
        &self,
        record: &[u8],
        future: u64,
        context: &Context<'_>,
    ) -> Poll<Result<Lsn, LogError>> {
        let log = &self.shared.log;
        // What is staged and not durable can be neither taken nor trimmed.
        self.shared.want(log.tail());
        self.unpark();
        let mut gate = log.gates().lock();
        if gate.is_broken {
            return Poll::Ready(Err(LogError::Broken));
        }
        match log.try_append(record).transpose() {
            Some(appended) => return Poll::Ready(appended),
            None => log.gates().wake_later(&mut gate, future, context.waker()),
        }
        // What others have staged since the look above: nobody else may commit it.
        self.shared.want(log.tail());
        self.unpark();
        match &gate.destaging_ended {
            Some(cause) => Poll::Ready(Err(cause.clone())),
            None => Poll::Pending,
        }
    }

    /// Makes the record at `lsn`, and all before it, durable.
    ///
    /// # Durability
    ///
    /// As [`TailLog::commit`]. A future that is dropped before it ended leaves open whether the record is durable.
    ///
    /// # Errors
    ///
    /// As [`TailLog::commit`].
    pub async fn commit(&self, lsn: Lsn) -> Result<(), LogError> {
        let (log, end) = (&self.shared.log, lsn.plus(1));
        if log.durable_lsn() >= end {
            return Ok(());
        }
        if end > log.tail() {
            return Err(LogError::NoRecord { lsn });
        }
        let future = self.future();
        poll_fn(|context| {
            let mut gate = log.gates().lock();
            if log.durable_lsn() >= end {
                return Poll::Ready(Ok(()));
            }
            if gate.is_broken {
                return Poll::Ready(Err(LogError::Broken));
            }
            log.gates().wake_later(&mut gate, future.number, context.waker());
            if log.durable_lsn() >= end {
                return Poll::Ready(Ok(()));
            }
            drop(gate);
            self.shared.want(end);
            self.unpark();
            Poll::Pending
        })
        .await
    }

    /// [`AsyncLog::append`] and [`AsyncLog::commit`].
    ///
    /// # Durability
    ///
    /// As [`AsyncLog::commit`].
    ///
    /// # Errors
    ///
    /// As both.
    pub async fn append_commit(&self, record: &[u8]) -> Result<Lsn, LogError> {
        let lsn = self.append(record).await?;
        self.commit(lsn).await?;
        Ok(lsn)
    }

    fn unpark(&self) {
        if let Some(committer) = &self.committer {
            committer.thread().unpark();
        }
    }

    fn future(&self) -> Waiting<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Waiting { gates: self.shared.log.gates(), number }
    }
}

impl Drop for AsyncLog {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Release);
        self.unpark();
        if let Some(committer) = self.committer.take() {
            // A panic of the thread was reported by the thread.
            let _ = committer.join();
        }
    }
}

impl Shared {
    fn want(&self, end: Lsn) {
        self.wanted.fetch_max(end.0, Ordering::AcqRel);
    }

    fn run(&self) {
        while !self.is_ending.load(Ordering::Acquire) {
            let wanted = Lsn(self.wanted.load(Ordering::Acquire));
            if wanted <= self.log.durable_lsn() || self.log.gates().lock().is_broken {
                // A want comes before its unpark, and an unpark before the park ends it at once.
                std::thread::park();
                continue;
            }
            // Those who wait see the failure at the gate.
            if let Err(error) = self.log.commit_below(wanted) {
                tracing::debug!(%error, "a commit for waiting tasks failed");
            }
        }
    }
}

/// A future that may be on the list of those to wake.
#[derive(Debug)]
struct Waiting<'l> {
    gates: &'l Gates,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.gates.forget(self.number);
    }
}

/// A task that waits for room; the destager makes some for it.
#[derive(Debug)]
struct WantsRoom<'l>(&'l Gates);

impl<'l> WantsRoom<'l> {
    fn new(gates: &'l Gates) -> Self {
        gates.lock().wanting_room += 1;
        gates.announce_work();
        Self(gates)
    }
}

impl Drop for WantsRoom<'_> {
    fn drop(&mut self) {
        self.0.lock().wanting_room -= 1;
    }
}
