//! This client in the metadata: there as long as it owns regions or writes to copies, so that others notice its death.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::{Shared, Store, StoreOptions};
use crate::error::StoreError;
use crate::ids::ClientId;
use crate::meta::record::{ClientRecord, FORMAT};
use crate::meta::{Change, Meta};

/// See the module.
#[derive(Debug)]
pub(super) struct Membership {
    key: String,
    meta: Arc<dyn Meta>,
    lease: Duration,
    state: Mutex<State>,
    is_fenced: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// The version of the record; `None`: there is none yet.
    version: Option<u64>,
    beat: u64,
    writes: BTreeSet<String>,
}

impl Membership {
    pub(super) fn new(client: ClientId, options: &StoreOptions) -> Self {
        Self {
            key: format!("clients/{client}"),
            meta: Arc::clone(&options.meta),
            lease: options.lease,
            state: Mutex::default(),
            is_fenced: AtomicBool::new(false),
        }
    }

    /// Whether somebody declared this client dead.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.is_fenced.load(Ordering::Acquire) { Err(StoreError::Fenced) } else { Ok(()) }
    }

    /// Says that this client lives and writes to these regions too.
    fn say(&self, change: impl FnOnce(&mut BTreeSet<String>)) -> Result<(), StoreError> {
        self.check()?;
        let mut state = self.lock();
        change(&mut state.writes);
        state.beat += 1;
        let record = ClientRecord {
            format: FORMAT,
            beat: state.beat,
            lease_ms: u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX),
            dead: false,
            writes: state.writes.clone(),
        };
        let value = record.emit();
        let is_first = state.version.is_none();
        let put = Change { key: &self.key, value: Some(&value), durable: is_first };
        match self.meta.swap(put, &[(&self.key, state.version)])? {
            Some(version) => {
                state.version = Some(version);
                Ok(())
            }
            None => self.recover(&mut state),
        }
    }

    /// The record is another than expected: the answer to an earlier change was lost, or this client was declared dead.
    fn recover(&self, state: &mut State) -> Result<(), StoreError> {
        let found = self.meta.get(&self.key)?;
        let record = found.as_ref().and_then(|entry| ClientRecord::parse(&entry.value).ok());
        match (found, record) {
            (Some(entry), Some(record)) if !record.dead => {
                state.version = Some(entry.version);
                Ok(())
            }
            _ => {
                self.is_fenced.store(true, Ordering::Release);
                Err(StoreError::Fenced)
            }
        }
    }

    /// This client ends in good order.
    pub(super) fn leave(&self) {
        let state = self.lock();
        if let Some(version) = state.version {
            let gone = Change { key: &self.key, value: None, durable: true };
            let _ = self.meta.swap(gone, &[(&self.key, Some(version))]);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// From now on the metadata says that this client lives.
    pub(super) fn join(&self) -> Result<(), StoreError> {
        let membership = &self.0.membership;
        let is_new = membership.lock().version.is_none();
        membership.say(|_| {})?;
        if is_new {
            let shared = Arc::downgrade(&self.0);
            let pause = membership.lease / BEATS_PER_LEASE;
            let thread = std::thread::Builder::new().name("store-client".into());
            let started = thread.spawn(move || live(&shared, pause));
            started.map_err(|error| StoreError::Host { what: "thread", why: error.to_string() })?;
        }
        Ok(())
    }

    /// Notes that this client writes to a region of several copies.
    pub(super) fn note_writer(&self, name: &str) -> Result<(), StoreError> {
        self.join()?;
        self.0.membership.say(|writes| {
            writes.insert(name.to_owned());
        })
    }
}

impl Shared {
    /// The client writes to the region no more, and nothing of its writes is unanswered.
    pub(super) fn forget_writer(&self, name: &str) {
        let _ = self.membership.say(|writes| {
            writes.remove(name);
        });
    }
}

fn live(shared: &Weak<Shared>, pause: Duration) {
    loop {
        // Not one long sleep: the client may end meanwhile.
        for _ in 0..LOOKS_PER_BEAT {
            std::thread::sleep(pause / LOOKS_PER_BEAT);
            let is_over = shared.upgrade().is_none_or(|one| one.closed.load(Ordering::Acquire));
            if is_over {
                return;
            }
        }
        let Some(shared) = shared.upgrade() else { return };
        if let Err(error) = shared.membership.say(|_| {}) {
            tracing::warn!(%error, "the metadata did not take this client's sign of life");
        }
    }
}

const BEATS_PER_LEASE: u32 = 4;
const LOOKS_PER_BEAT: u32 = 8;
