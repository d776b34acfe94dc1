//! A client's connections to one daemon: the control connection, its pings, and the RDMA connection.
//!
//! A link is for one incarnation of the daemon. It is up until its RDMA or its control connection ends; then it is of
//! no more use, and a new one is made.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use basics::Clock;
use rdma::Waker;

use super::control::{CALL_PATIENCE, CallError, Control};
use crate::ids::RegionId;
use crate::token::Token;
use crate::wire::{Answer, Request};

/// What a link's owner and its pinging thread share.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) server: String,
    control: Mutex<Control>,
    /// The token of the latest mapping, which pings show.
    token: Mutex<Token>,
    /// Until when the daemon has promised that nobody declares it dead, in nanoseconds after `base`.
    lease_until: AtomicU64,
    base: Instant,
    clock: Clock,
    lost: AtomicBool,
    over: AtomicBool,
    /// Regions whose epoch has passed at this daemon.
    passed: Mutex<Vec<RegionId>>,
}

impl Line {
    pub(super) fn new(server: &str, control: Control, token: Token, clock: &Clock) -> Self {
        Self {
            server: server.to_owned(),
            control: Mutex::new(control),
            token: Mutex::new(token),
            lease_until: AtomicU64::new(0),
            base: clock.now(),
            clock: clock.clone(),
            lost: AtomicBool::new(false),
            over: AtomicBool::new(false),
            passed: Mutex::default(),
        }
    }

    /// One request. A failure that is no refusal loses the link.
    pub(super) fn call(&self, request: &Request, token: &Token) -> Result<Answer, CallError> {
        self.call_within(CALL_PATIENCE, request, token)
    }

    fn call_within(
        &self,
        patience: Duration,
        request: &Request,
        token: &Token,
    ) -> Result<Answer, CallError> {
        let answer = lock(&self.control).call(request, token, patience);
        if matches!(&answer, Err(error) if error.status().is_none()) {
            self.lost.store(true, Ordering::Release);
        }
        answer
    }

    /// From now on pings show this token.
    pub(super) fn show(&self, token: &Token) {
        *lock(&self.token) = token.clone();
    }

    /// Asks for the daemon's lease; whether it has one.
    pub(super) fn ping(&self) -> bool {
        let begun = self.clock.now();
        let token = lock(&self.token).clone();
        match self.call_within(PING_PATIENCE, &Request::Ping, &token) {
            Ok(Answer::Pong { lease_ms, passed }) => {
                if !passed.is_empty() {
                    lock(&self.passed).extend(passed.into_iter().map(|(region, _)| region));
                }
                let until = begun + Duration::from_millis(lease_ms.into());
                self.lease_until.store(self.count(until), Ordering::Release);
                lease_ms > 0
            }
            // A token that has just expired: its mappings are gone, not the daemon.
            Err(error) if error.status().is_some() => false,
            _ => {
                self.lost.store(true, Ordering::Release);
                false
            }
        }
    }

    /// Whether nobody can have declared the daemon dead until now.
    pub(super) fn is_leased(&self) -> bool {
        self.count(self.clock.now()) < self.lease_until.load(Ordering::Acquire)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// The link is of no more use: its thread ends.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(super) fn take_passed(&self) -> Vec<RegionId> {
        std::mem::take(&mut *lock(&self.passed))
    }

    fn count(&self, time: Instant) -> u64 {
        let since = time.saturating_duration_since(self.base);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Pings until the link is over; calls `look` when its region are to be mapped again.
pub(super) fn keep(line: &Arc<Line>, waker: &Waker, look: impl Fn()) {
    while !line.over.load(Ordering::Acquire) {
        line.ping();
        if line.is_lost() {
            waker.wake();
            return;
        }
        look();
        std::thread::park_timeout(PING_EVERY);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often a daemon is asked whether it lives.
pub(super) const PING_EVERY: Duration = Duration::from_millis(100);
/// How long a daemon may take for the answer to a ping before it counts as lost.
const PING_PATIENCE: Duration = Duration::from_secs(1);
