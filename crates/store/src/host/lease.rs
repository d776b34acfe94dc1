//! The daemon's sign of life in the metadata, and what it may promise by it.
//!
//! ```text
//!   registered ---beat, beat, ...---> (each within lease_ms of the one before)
//!        |  the record was changed by another: declared dead
//!        v
//!   all mappings end  --->  registered again, incarnation + 1
//! ```
//!
//! Whoever declares a daemon dead has seen no new beat for `lease_ms`, and changes its record in the same step. So
//! until `lease_ms` after the beginning of the last beat that succeeded nobody has: that much the daemon promises to
//! clients that read one of several copies.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use basics::Clock;

use super::error::HostError;
use super::pieces::Pieces;
use crate::meta::record::{FORMAT, ServerRecord, ServerState};
use crate::meta::{Change, Meta};

/// See the module.
#[derive(Debug)]
pub(super) struct Lease {
    meta: Arc<dyn Meta>,
    pieces: Arc<Pieces>,
    clock: Clock,
    key: String,
    length: Duration,
    held: Mutex<Held>,
    stop: AtomicBool,
    /// Ends the pause between beats.
    bell: (Mutex<()>, Condvar),
}

#[derive(Debug)]
struct Held {
    record: ServerRecord,
    version: u64,
    until: Option<Instant>,
}

/// What a beat found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Beat {
    /// The daemon lives on.
    Renewed,
    /// The daemon was declared dead.
    DeclaredDead,
    /// The metadata did not answer.
    Unanswered,
}

impl Lease {
    /// The lease of a daemon that has not said yet that it lives.
    pub(super) fn new(
        meta: &Arc<dyn Meta>,
        pieces: &Arc<Pieces>,
        clock: &Clock,
        name: &str,
        (control, emulated): (SocketAddr, bool),
        length: Duration,
    ) -> Self {
        let key = format!("servers/{name}");
        let record = ServerRecord {
            format: FORMAT,
            control,
            class: pieces.class().into(),
            emulated,
            capacity: pieces.capacity(),
            free: pieces.free(),
            incarnation: 1,
            beat: 1,
            lease_ms: u64::try_from(length.as_millis()).expect("a lease is short"),
            state: ServerState::Alive,
        };
        let held = Mutex::new(Held { record, version: 0, until: None });
        Self {
            meta: Arc::clone(meta),
            pieces: Arc::clone(pieces),
            clock: clock.clone(),
            key,
            length,
            held,
            stop: AtomicBool::new(false),
            bell: (Mutex::new(()), Condvar::new()),
        }
    }

    /// A daemon of the same name may be running: then its beats go on, and this one does not start. Waits for the lease of one
    /// that did not stop in good order.
    pub(super) fn await_the_end_of_another(&self, name: &str) -> Result<(), HostError> {
        let Some(before) = self.meta.get(&self.key)? else { return Ok(()) };
        let Ok(record) = ServerRecord::parse(&before.value) else { return Ok(()) };
        if record.state == ServerState::Dead {
            return Ok(());
        }
        let patience = Duration::from_millis(record.lease_ms);
        let begun = self.clock.now();
        while self.clock.now().saturating_duration_since(begun) < patience {
            self.pause(patience / 8);
            let now = self.meta.get(&self.key)?.map(|entry| entry.version);
            if now.is_some_and(|now| now != before.version) {
                return Err(HostError::ConfigTwice { name: name.to_owned() });
            }
        }
        Ok(())
    }

    /// Makes the record anew, with the next incarnation.
    pub(super) fn enter(&self) -> Result<(), HostError> {
        loop {
            let begun = self.clock.now();
            let before = self.meta.get(&self.key)?;
            let earlier = before.as_ref().and_then(|entry| ServerRecord::parse(&entry.value).ok());
            let incarnation = earlier.map_or(1, |record| record.incarnation + 1);
            let record = ServerRecord {
                incarnation,
                free: self.pieces.free(),
                state: ServerState::Alive,
                ..self.record()
            };
            let value = record.emit();
            let change = Change { key: &self.key, value: Some(&value), durable: true };
            let version = before.map(|entry| entry.version);
            if let Some(version) = self.meta.swap(change, &[(&self.key, version)])? {
                let until = Some(begun + self.length);
                *self.lock() = Held { record, version, until };
                return Ok(());
            }
        }
    }

    /// Says that the daemon lives.
    pub(super) fn beat(&self) -> Beat {
        let begun = self.clock.now();
        let (mut record, version) = {
            let held = self.lock();
            (held.record.clone(), held.version)
        };
        record.beat += 1;
        record.free = self.pieces.free();
        let value = record.emit();
        let change = Change { key: &self.key, value: Some(&value), durable: false };
        match self.meta.swap(change, &[(&self.key, Some(version))]) {
            Ok(Some(version)) => {
                *self.lock() = Held { record, version, until: Some(begun + self.length) };
                Beat::Renewed
            }
            Ok(None) => {
                // Perhaps the answer to an earlier beat was lost, and the record is this daemon's own.
                if let Ok(Some(entry)) = self.meta.get(&self.key)
                    && let Ok(found) = ServerRecord::parse(&entry.value)
                    && found.state == ServerState::Alive
                    && found.incarnation == record.incarnation
                    && found.control == record.control
                {
                    self.lock().version = entry.version;
                    self.lock().record.beat = found.beat;
                    return Beat::Unanswered;
                }
                self.lock().until = None;
                Beat::DeclaredDead
            }
            Err(error) => {
                tracing::warn!(%error, "the metadata did not take the daemon's sign of life");
                Beat::Unanswered
            }
        }
    }

    /// The daemon stops: nobody needs to wait for its lease.
    pub(super) fn leave(&self) {
        let (mut record, version) = {
            let mut held = self.lock();
            held.until = None;
            (held.record.clone(), held.version)
        };
        record.state = ServerState::Dead;
        let value = record.emit();
        let change = Change { key: &self.key, value: Some(&value), durable: true };
        if let Err(error) = self.meta.swap(change, &[(&self.key, Some(version))]) {
            tracing::warn!(%error, "the metadata did not take that the daemon stops");
        }
    }

    /// How much of the lease is left.
    pub(super) fn left(&self) -> Duration {
        let until = self.lock().until;
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(self.clock.now()))
    }

    /// Whether somebody declared the daemon dead, and it has not begun anew.
    pub(super) fn is_lost(&self) -> bool {
        self.lock().until.is_none()
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.lock().record.incarnation
    }

    pub(super) fn length(&self) -> Duration {
        self.length
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.bell.1.notify_all();
    }

    /// Waits, and returns early when the daemon stops.
    pub(super) fn pause(&self, time: Duration) {
        let guard = self.bell.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_stopped() {
            let _ = self.bell.1.wait_timeout(guard, time);
        }
    }

    fn record(&self) -> ServerRecord {
        self.lock().record.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
