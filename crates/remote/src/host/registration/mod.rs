//! The life of one registration: a range of a medium that the peer of one push connection may use.
//!
//! ```text
//!                    registered           recalled                 grace over
//!  +-------------+ -----------> +--------+ --------> +-----------+ ---------+
//!  | Registering |              | Active |           | Recalling |          |
//!  +-------------+              +--------+           +-----------+          v
//!        |                          | given back, lost   | given back   +--------+
//!        | recalled meanwhile       v                    v              | Ending |
//!        +----------------------> Ending <---------------+              +--------+
//!                                   | nothing touches it any more           |
//!                                   v                                       |
//!                               +-------+ <---------------------------------+
//!                               | Ended |
//!                               +-------+
//! ```
//!
//! To recall is to ask: the program tells its peer by its own messages, and [`Registration::is_given_back_by`] waits.
//! To end is to revoke what is still registered: no new operation of the peer begins, those under way end, and only then
//! [`Registration::end`] returns. A use of the region after that meets an invalid STag and ends the peer's connection.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pmem::{DurabilityClass, Medium, MediumError};
use rdma::{Access, MemoryRegion, Rkey};
use thiserror::Error;
use tokio::sync::Notify;

use super::handle::{HostError, PushConnection};
use super::registrar::Registrar;

/// See the module. `R` is the reason of a recall, in the program's terms.
pub struct Registration<R> {
    registrar: Arc<dyn Registrar>,
    connection: PushConnection,
    medium: Arc<dyn Medium>,
    range: Range<u64>,
    life: Mutex<Life<R>>,
    /// Notified when the registration, or the last commit on it, has ended.
    ended: Notify,
}

#[derive(Clone, Copy, Debug)]
struct Life<R> {
    stage: Stage,
    rkey: Option<Rkey>,
    is_unseen: bool,
    reason: Option<R>,
    is_reported: bool,
    deadline: Option<Instant>,
    /// Commits by control that have begun and not ended.
    commits: usize,
    commits_total: u64,
}

/// The stage of a registration; see the module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// The engine has not answered yet.
    Registering,
    /// The peer may use it.
    Active,
    /// The peer may use it, and is asked to give it back.
    Recalling,
    /// No new operation begins.
    Ending,
    /// No operation touches it any more.
    Ended,
}

/// The next step for a caller that ends a registration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ending {
    Deregister(Rkey),
    /// Another caller is ending it.
    Underway,
    Over,
}

impl<R: Copy + Send + 'static> Registration<R> {
    /// A registration that the engine does not know yet: see [`Registration::register`].
    pub fn new(
        registrar: Arc<dyn Registrar>,
        connection: PushConnection,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
    ) -> Self {
        let life = Life {
            stage: Stage::Registering,
            rkey: None,
            is_unseen: false,
            reason: None,
            is_reported: false,
            deadline: None,
            commits: 0,
            commits_total: 0,
        };
        Self { registrar, connection, medium, range, life: Mutex::new(life), ended: Notify::new() }
    }

    /// Lets the peer use the range by the operations of `access`; its commits are worth at least `promised`. After an error
    /// the caller ends the registration by [`Registration::set_ended`].
    ///
    /// Dropping the future may leave the range registered until its connection ends: run it as a task of its own.
    ///
    /// # Errors
    /// The medium has a weaker class than was promised, the engine refused, the connection is gone, or the registration
    /// was recalled meanwhile.
    pub async fn register(
        &self,
        access: Access,
        promised: DurabilityClass,
    ) -> Result<MemoryRegion, NotRegistered> {
        let found = self.medium.class();
        if !found.keeps(promised) {
            return Err(NotRegistered::Class { promised, found });
        }
        let (medium, range) = (Arc::clone(&self.medium), self.range.clone());
        let memory = self.registrar.register(self.connection, medium, range, access).await?;
        if !self.set_registered(&memory) {
            self.registrar.deregister(self.connection, memory.rkey).await;
            return Err(NotRegistered::Recalled);
        }
        Ok(memory)
    }

    fn set_registered(&self, memory: &MemoryRegion) -> bool {
        let mut life = self.lock();
        life.rkey = Some(memory.rkey);
        life.is_unseen = memory.unseen;
        let is_wanted = life.stage == Stage::Registering;
        if is_wanted {
            life.stage = Stage::Active;
        }
        is_wanted
    }

    /// The connection whose peer may use the range.
    pub fn connection(&self) -> PushConnection {
        self.connection
    }

    /// The medium; its class is what a commit of the peer is worth.
    pub fn medium(&self) -> &Arc<dyn Medium> {
        &self.medium
    }

    /// The registered range of the medium.
    pub fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// The stage, and the reason of the recall if there was one.
    pub fn stage(&self) -> (Stage, Option<R>) {
        let life = self.lock();
        (life.stage, life.reason)
    }

    /// Notes that the program wants the range back at `now + grace`. Returns the time when it is to be revoked: after
    /// a second recall the earlier time counts. The reason of the first recall stays.
    pub fn recall(&self, reason: R, now: Instant, grace: Duration) -> Instant {
        let mut life = self.lock();
        let deadline = life.deadline.map_or(now + grace, |earlier| earlier.min(now + grace));
        life.deadline = Some(deadline);
        let next = match life.stage {
            Stage::Active => Some(Stage::Recalling),
            // The peer does not hold the region yet: it ends as soon as it is registered.
            Stage::Registering => Some(Stage::Ending),
            Stage::Recalling | Stage::Ending | Stage::Ended => None,
        };
        if let Some(next) = next {
            life.stage = next;
            life.reason = Some(reason);
        }
        deadline
    }

    /// Whether the range is recalled, or the registration has ended.
    pub fn is_recalled(&self) -> bool {
        !matches!(self.lock().stage, Stage::Registering | Stage::Active)
    }

    /// A recall that is not reported to the peer yet: reason and time left. Each recall is reported once.
    pub fn take_report(&self, now: Instant) -> Option<(R, Duration)> {
        let mut life = self.lock();
        let reason = life.reason.filter(|_| !life.is_reported)?;
        life.is_reported = true;
        let left = match life.stage {
            Stage::Recalling => life.deadline.map(|deadline| deadline.duration_since(now)),
            _ => None,
        };
        Some((reason, left.unwrap_or_default()))
    }

    /// Waits until the registration has ended, until `deadline` at most; `false`: it is time to revoke it.
    pub async fn is_given_back_by(&self, deadline: Instant) -> bool {
        tokio::time::timeout_at(deadline.into(), self.wait_ended()).await.is_ok()
    }

    /// Ends the registration. On return no operation of the peer touches the range any more, no commit of it is
    /// under way, and `last`, which the first caller gives, is done: what the program does before others may go on.
    ///
    /// The end is a task of its own, so that a caller who gives up waiting does not leave it half done.
    pub async fn end(
        self: &Arc<Self>,
        runtime: &tokio::runtime::Handle,
        last: impl Future<Output = ()> + Send + 'static,
    ) {
        match self.begin_end() {
            Ending::Over => {}
            Ending::Underway => self.wait_ended().await,
            Ending::Deregister(rkey) => {
                let registration = Arc::clone(self);
                let task = runtime.spawn(async move {
                    let Self { registrar, connection, .. } = &*registration;
                    registrar.deregister(*connection, rkey).await;
                    registration.wait_until(|life| life.commits == 0).await;
                    last.await;
                    registration.set_ended();
                });
                // The registration ends whatever the outcome of this wait.
                let _ = task.await;
            }
        }
    }

    fn begin_end(&self) -> Ending {
        let mut life = self.lock();
        match (life.stage, life.rkey) {
            (Stage::Ended, _) => Ending::Over,
            (Stage::Active | Stage::Recalling, Some(rkey)) => {
                life.stage = Stage::Ending;
                Ending::Deregister(rkey)
            }
            _ => {
                life.stage = Stage::Ending;
                Ending::Underway
            }
        }
    }

    /// Records that no operation touches the range any more: for a registration that failed.
    pub fn set_ended(&self) {
        self.lock().stage = Stage::Ended;
        self.ended.notify_waiters();
    }

    /// Returns once no operation touches the range any more.
    pub async fn wait_ended(&self) {
        self.wait_until(|life| life.stage == Stage::Ended).await;
    }

    /// Begins a commit by control, unless the range may not be used any more. The registration does not end before the
    /// commit has.
    pub fn begin_commit(self: &Arc<Self>) -> Option<Committing<R>> {
        let mut life = self.lock();
        if !matches!(life.stage, Stage::Active | Stage::Recalling) {
            return None;
        }
        life.commits += 1;
        life.commits_total += 1;
        Some(Committing(Arc::clone(self)))
    }

    /// Commits by control so far.
    pub fn commits(&self) -> u64 {
        self.lock().commits_total
    }

    /// Whether the peer's bytes may have been placed without a call of the medium.
    pub fn is_unseen(&self) -> bool {
        self.lock().is_unseen
    }

    /// Makes the placed bytes of a range of the medium durable. Blocks.
    ///
    /// # Errors
    /// As [`Medium::persist`].
    ///
    /// # Durability
    ///
    /// As [`Medium::persist`], whether the engine or a device has placed the bytes.
    pub fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        match self.is_unseen() {
            false => self.medium.persist(offset, len),
            true => self.medium.persist_foreign(offset, len),
        }
    }

    async fn wait_until(&self, is_so: impl Fn(&Life<R>) -> bool) {
        basics::until(&self.ended, || is_so(&self.lock())).await;
    }
}

impl<R> Registration<R> {
    fn lock(&self) -> MutexGuard<'_, Life<R>> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> fmt::Debug for Registration<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("connection", &self.connection)
            .field("range", &self.range)
            .field("stage", &self.lock().stage)
            .finish_non_exhaustive()
    }
}

/// A commit by control in progress.
#[derive(Debug)]
pub struct Committing<R>(Arc<Registration<R>>);

impl<R> Drop for Committing<R> {
    fn drop(&mut self) {
        self.0.lock().commits -= 1;
        self.0.ended.notify_waiters();
    }
}

/// Why a range was not registered.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum NotRegistered {
    /// The engine, or the connection.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A commit would be worth less than was promised.
    #[error("the medium has class {found}, and {promised} was promised")]
    Class {
        /// What the peer was told.
        promised: DurabilityClass,
        /// What the medium has.
        found: DurabilityClass,
    },
    /// The range was recalled before the peer could use it.
    #[error("the range was recalled while it was registered")]
    Recalled,
}

#[cfg(test)]
mod tests;
