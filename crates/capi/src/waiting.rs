//! A region and what its program has submitted, oldest first.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use client::{Finished, Region, RegionError, Ticket};

use crate::border::Destination;

/// A region, and for each submitted operation where its bytes go and what its program calls it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) region: Region,
    sent: VecDeque<Sent>,
}

/// A submitted operation.
#[derive(Debug)]
struct Sent {
    ticket: u64,
    user_data: u64,
    /// Of a read.
    destination: Option<Destination>,
}

/// An operation that has ended, well or not.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) ticket: u64,
    pub(crate) user_data: u64,
    pub(crate) outcome: Result<u64, RegionError>,
}

impl Held {
    pub(crate) fn new(region: Region) -> Self {
        Self { region, sent: VecDeque::new() }
    }

    /// Submits an operation and gives its number.
    pub(crate) fn submit(
        &mut self,
        user_data: u64,
        destination: Option<Destination>,
        post: impl FnOnce(&mut Region) -> Result<Ticket, RegionError>,
    ) -> Result<u64, RegionError> {
        let ticket = post(&mut self.region)?.number();
        self.sent.push_back(Sent { ticket, user_data, destination });
        Ok(ticket)
    }

    /// The oldest operation, if it has ended or ends within `patience`.
    pub(crate) fn wait(
        &mut self,
        patience: Option<Duration>,
    ) -> Result<Option<Ended>, RegionError> {
        let deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
        loop {
            if let Some(ended) = self.poll()? {
                return Ok(Some(ended));
            }
            let left = match (patience, deadline) {
                (Some(_), Some(deadline)) => deadline.saturating_duration_since(Instant::now()),
                _ => Duration::MAX,
            };
            if left.is_zero() {
                return Ok(None);
            }
            self.region.wait(left);
        }
    }

    /// The oldest operation, if it has ended.
    fn poll(&mut self) -> Result<Option<Ended>, RegionError> {
        let Some(oldest) = self.sent.front_mut() else {
            return Err(RegionError::NothingOutstanding);
        };
        let outcome = match &mut oldest.destination {
            Some(destination) => self.region.try_finish(destination.bytes()),
            None => self.region.try_finish(&mut []),
        };
        let outcome = match outcome {
            Ok(None) => return Ok(None),
            Ok(Some(Finished { value, .. })) => Ok(value),
            Err(error) => Err(error),
        };
        let Some(Sent { ticket, user_data, .. }) = self.sent.pop_front() else {
            return Err(RegionError::NothingOutstanding);
        };
        Ok(Some(Ended { ticket, user_data, outcome }))
    }
}
