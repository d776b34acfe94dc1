//! This client in the metadata: there as long as it owns regions or writes to copies, so that others notice its death.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::StoreError;
use crate::ids::ClientId;
use crate::meta::record::{CLIENT_WRITES_MAX, ClientRecord, FORMAT};
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
    /// The regions with copies that are mapped to write, and how often each.
    writes: BTreeMap<String, usize>,
}

impl Membership {
    pub(super) fn new(client: ClientId, meta: &Arc<dyn Meta>, lease: Duration) -> Self {
        Self {
            key: format!("clients/{client}"),
            meta: Arc::clone(meta),
            lease,
            state: Mutex::default(),
            is_fenced: AtomicBool::new(false),
        }
    }

    /// Whether somebody declared this client dead.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.is_fenced.load(Ordering::Acquire) { Err(StoreError::Fenced) } else { Ok(()) }
    }

    /// Says that this client lives.
    pub(super) fn say(&self) -> Result<(), StoreError> {
        self.check()?;
        self.put(&mut self.lock())
    }

    /// Says that this client writes to a region of several copies, before it does.
    pub(super) fn add_write(&self, name: &str) -> Result<(), StoreError> {
        self.check()?;
        let mut state = self.lock();
        if !state.writes.contains_key(name) && state.writes.len() >= CLIENT_WRITES_MAX {
            return Err(StoreError::WritesFull(CLIENT_WRITES_MAX));
        }
        *state.writes.entry(name.to_owned()).or_default() += 1;
        let said = self.put(&mut state);
        if said.is_err() {
            forget(&mut state, name);
        }
        said
    }

    /// One mapping less by which this client writes to a region. Who gets no answer is taken for a writer, which costs a copy.
    pub(super) fn end_write(&self, name: &str) {
        let mut state = self.lock();
        if forget(&mut state, name) && self.check().is_ok() {
            let _ = self.put(&mut state);
        }
    }

    fn put(&self, state: &mut State) -> Result<(), StoreError> {
        loop {
            state.beat += 1;
            let record = ClientRecord {
                format: FORMAT,
                beat: state.beat,
                lease_ms: u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX),
                dead: false,
                writes: state.writes.keys().cloned().collect(),
            };
            let value = record.emit();
            // Also each later sign of life of one who writes: a loss of power that took the record would leave copies that
            // differ, and nobody who knows.
            let durable = state.version.is_none() || !state.writes.is_empty();
            let put = Change { key: &self.key, value: Some(&value), durable };
            if let Some(version) = self.meta.swap(put, &[(&self.key, state.version)])? {
                state.version = Some(version);
                return Ok(());
            }
            // Where the record is this client's own, what changed is not in it yet: once more.
            self.recover(state)?;
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

    /// Whether it writes to regions of several copies.
    pub(super) fn is_writer(&self) -> bool {
        !self.lock().writes.is_empty()
    }

    /// Whether the metadata know nothing of this client yet.
    pub(super) fn is_new(&self) -> bool {
        self.lock().version.is_none()
    }

    /// The lease of this client.
    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether that was the last mapping.
fn forget(state: &mut State, name: &str) -> bool {
    let Some(count) = state.writes.get_mut(name) else { return false };
    *count -= 1;
    let is_last = *count == 0;
    if is_last {
        state.writes.remove(name);
    }
    is_last
}
