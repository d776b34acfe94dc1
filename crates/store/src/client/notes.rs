//! Counters of a region by which clients wake each other, kept by the daemon of its first copy in sync.

use std::sync::PoisonError;
use std::time::Duration;

use super::control::{CallError, Control};
use super::region::Region;
use super::{CALL_PATIENCE, StoreError};
use crate::meta::record::CopyState;
use crate::token::Rights;
use crate::wire::{Answer, Request, SILENCE_MAX, Status, WAIT_MAX};

impl Region {
    /// Adds to a counter of the region, wakes the clients that wait for it, and returns its new value. A counter begins
    /// at 0 and lives as long as the daemon that keeps it: it is no part of the region's bytes.
    ///
    /// # Errors
    /// The daemon cannot be reached; [`StoreError::NotesLost`]; the region was mapped to read.
    pub fn notify(&self, channel: u32, add: u64) -> Result<u64, StoreError> {
        let region = {
            let inner = self.shared.lock();
            let mapped = &inner.regions[self.index];
            if !mapped.rights.contains(Rights::WRITE) {
                return Err(StoreError::ReadOnly(self.name.clone()));
            }
            mapped.id
        };
        self.ask_notes(&Request::Notify { region, channel, add }, CALL_PATIENCE)
    }

    /// Waits until a counter is above `seen`, and returns its value.
    ///
    /// # Errors
    /// As [`Region::notify`]; [`StoreError::Timeout`].
    pub fn wait_above(
        &self,
        channel: u32,
        seen: u64,
        patience: Duration,
    ) -> Result<u64, StoreError> {
        let region = self.shared.lock().regions[self.index].id;
        let begun = self.shared.now();
        loop {
            let left = patience.saturating_sub(self.shared.now().saturating_duration_since(begun));
            let turn = left.min(WAIT_MAX);
            let patience_ms = u32::try_from(turn.as_millis()).unwrap_or(u32::MAX);
            let request = Request::Wait { region, channel, patience_ms, seen };
            match self.ask_notes(&request, turn + CALL_PATIENCE) {
                Err(StoreError::Timeout) if !left.saturating_sub(turn).is_zero() => {}
                other => return other,
            }
        }
    }

    /// Waits until `participants` clients have come to the barrier of this channel; it can be used again and again, by
    /// the same number of participants each time.
    ///
    /// # Errors
    /// As [`Region::wait_above`]: then this client counts as one that came.
    pub fn barrier(
        &self,
        channel: u32,
        participants: u64,
        patience: Duration,
    ) -> Result<(), StoreError> {
        let participants = participants.max(1);
        let arrived = self.notify(channel, 1)?;
        let round = (arrived - 1) / participants + 1;
        self.wait_above(channel, round * participants - 1, patience).map(drop)
    }

    fn ask_notes(&self, request: &Request, patience: Duration) -> Result<u64, StoreError> {
        let (server, token) = {
            let inner = self.shared.lock();
            let mapped = &inner.regions[self.index];
            let copies = mapped.record.pieces.first().map_or(&[][..], |piece| &piece.copies);
            let first = copies.iter().find(|copy| copy.state == CopyState::InSync);
            let first = first.ok_or_else(|| StoreError::NotesLost(self.name.clone()))?;
            (first.server.clone(), self.shared.token_of(mapped))
        };
        let mut known = self.notes.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |source| StoreError::Server { server: server.clone(), source };
        if known.keeper.as_ref().is_some_and(|(keeper, _)| *keeper != server) {
            return Err(StoreError::NotesLost(self.name.clone()));
        }
        let now = self.shared.now();
        let is_idle = |used| now.saturating_duration_since(used) > SILENCE_MAX / 2;
        if known.used.replace(now).is_some_and(is_idle) {
            known.line = None;
        }
        if known.line.is_none() {
            let address = self.shared.control_address(&server)?;
            let environment = &self.shared.options.environment;
            let line = Control::connect(address, environment, CALL_PATIENCE).map_err(failed)?;
            let incarnation = line.incarnation();
            if known.keeper.get_or_insert_with(|| (server.clone(), incarnation)).1 != incarnation {
                return Err(StoreError::NotesLost(self.name.clone()));
            }
            known.line = Some(line);
        }
        let line = known.line.as_mut().expect("it was made");
        match line.call(request, &token, patience) {
            Ok(Answer::Count { count }) => Ok(count),
            Ok(_) => Err(failed(CallError::PeerGarbled)),
            Err(CallError::Refused { status: Status::TIMEOUT, .. }) => Err(StoreError::Timeout),
            Err(error) => {
                if error.status().is_none() {
                    known.line = None;
                }
                Err(failed(error))
            }
        }
    }
}
