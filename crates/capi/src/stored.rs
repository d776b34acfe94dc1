//! A client of a striped store and its mapped regions, as handles keep them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use store::{Outcome, Region, Store, StoreError, Ticket};

use crate::border::Destination;
use crate::fault::Fault;

/// A client of a store.
#[derive(Debug)]
pub(crate) struct StoreClient {
    pub(crate) store: Store,
}

/// A mapped region, and what its program has submitted.
#[derive(Debug)]
pub(crate) struct StoreMapped {
    pub(crate) region: Region,
    sent: Mutex<HashMap<Ticket, Sent>>,
}

/// A submitted operation.
#[derive(Debug)]
struct Sent {
    user_data: u64,
    /// Of a read.
    destination: Option<Destination>,
}

/// An operation that has ended, well or not.
#[derive(Debug)]
pub(crate) struct StoreEnded {
    pub(crate) ticket: u64,
    pub(crate) user_data: u64,
    pub(crate) outcome: Result<u64, StoreError>,
}

impl StoreMapped {
    pub(crate) fn new(region: Region) -> Self {
        Self { region, sent: Mutex::default() }
    }

    /// Does something with the region, and names it where that fails.
    pub(crate) fn run<T>(
        &self,
        doing: &'static str,
        act: impl FnOnce(&Region) -> Result<T, StoreError>,
    ) -> Result<T, Fault> {
        act(&self.region).map_err(Fault::store(doing, self.region.name()))
    }

    /// Submits an operation and gives its number.
    pub(crate) fn submit(
        &self,
        user_data: u64,
        destination: Option<Destination>,
        post: impl FnOnce(&Region) -> Result<Ticket, StoreError>,
    ) -> Result<u64, StoreError> {
        // Held meanwhile: a thread that waits may get the completion before this one has noted what it is of.
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = post(&self.region)?;
        sent.insert(ticket, Sent { user_data, destination });
        Ok(ticket.0)
    }

    /// The next operation that has ended, in the order of their ends.
    pub(crate) fn wait(&self, patience: Duration) -> Result<StoreEnded, StoreError> {
        let done = self.region.next_completion(patience)?;
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner).remove(&done.ticket);
        let (user_data, destination) = match sent {
            Some(sent) => (sent.user_data, sent.destination),
            None => (0, None),
        };
        let outcome = done.outcome.map(|outcome| match outcome {
            Outcome::Done => 0,
            Outcome::Word(word) => word,
            Outcome::Bytes(bytes) => {
                if let Some(mut destination) = destination {
                    destination.bytes().copy_from_slice(&bytes);
                }
                u64::try_from(bytes.len()).unwrap_or(u64::MAX)
            }
        });
        Ok(StoreEnded { ticket: done.ticket.0, user_data, outcome })
    }
}
