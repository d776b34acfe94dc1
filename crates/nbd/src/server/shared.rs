//! What the threads of a server share: what it offers, and who is connected.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::memory::Memory;
use super::wire::Wire;
use crate::Exports;

/// What a server offers, and how.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) exports: Arc<Exports>,
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
}

/// What all threads of a server share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) offer: Offer,
    pub(super) memory: Arc<Memory>,
    /// Readable once the server ends.
    pub(super) stop: OwnedFd,
    state: Mutex<State>,
    pub(super) ended: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) connections: HashMap<u64, Arc<Wire>>,
    next: u64,
    /// Threads that listen or serve a connection.
    pub(super) threads: usize,
    pub(super) is_stopping: bool,
}

impl Shared {
    pub(super) fn new(offer: Offer, stop: OwnedFd) -> Self {
        Self { offer, memory: Arc::default(), stop, state: Mutex::default(), ended: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a connection and its thread; `None` if there are too many, or the server ends. A connection whose client
    /// has not chosen an export gives way, the oldest first.
    pub(super) fn enter(&self, wire: &Arc<Wire>) -> Option<u64> {
        let mut state = self.lock();
        if state.is_stopping {
            return None;
        }
        if state.connections.len() >= CONNECTIONS_MAX {
            let strangers = state.connections.iter().filter(|(_, wire)| wire.is_of_stranger());
            let oldest = strangers.map(|(number, _)| *number).min()?;
            if let Some(wire) = state.connections.remove(&oldest) {
                wire.cut();
            }
        }
        let number = state.next;
        state.next += 1;
        state.threads += 1;
        state.connections.insert(number, Arc::clone(wire));
        Some(number)
    }

    pub(super) fn leave(&self, number: u64) {
        self.lock().connections.remove(&number);
        self.end_thread();
    }

    pub(super) fn end_thread(&self) {
        self.lock().threads -= 1;
        self.ended.notify_all();
    }
}

/// Connections of a server, each with a thread. A client with several connections uses 4 to 16.
const CONNECTIONS_MAX: usize = 256;
