//! The loss of a server: who may say so, and what the metadata says before anybody goes on without its copies.
//!
//! ```text
//!   link lost --> watch the server's record for its lease: no new beat --> record: dead (if unchanged since)
//!             --> region's record: its copies are stale (if the server's record is still that one)
//!             --> map again without them; only now is a write acknowledged that did not reach them
//! ```
//!
//! A server that was slow finds its record changed, ends all mappings and begins a new incarnation. A server that came
//! back in time has changed its record, so the second step fails and the client maps its copies again.

use std::time::Duration;

use super::{Shared, StoreError};
use crate::meta::Change;
use crate::meta::record::{CopyState, RegionRecord, ServerRecord, ServerState};

/// What became of a server that did not answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// Dead, by this version of its record; `None`: it has no record.
    Dead(Option<u64>),
    /// It gives signs of life.
    Alive,
}

impl Shared {
    /// Waits for the lease of a server and declares it dead, unless it gives a sign of life.
    pub(super) fn declare_lost(&self, server: &str) -> Result<Verdict, StoreError> {
        let key = format!("servers/{server}");
        let meta = &self.options.meta;
        let Some(before) = meta.get(&key)? else { return Ok(Verdict::Dead(None)) };
        let parsed = ServerRecord::parse(&before.value);
        let mut record =
            parsed.map_err(|source| StoreError::Record { key: key.clone(), source })?;
        if record.state == ServerState::Dead {
            return Ok(Verdict::Dead(Some(before.version)));
        }
        let lease = Duration::from_millis(record.lease_ms);
        // Clocks of two machines may differ in speed by a little.
        let patience = lease + lease / 20;
        let begun = self.now();
        while self.now().saturating_duration_since(begun) < patience {
            std::thread::sleep(lease / 16);
            if meta.get(&key)?.map(|entry| entry.version) != Some(before.version) {
                return Ok(Verdict::Alive);
            }
        }
        record.state = ServerState::Dead;
        let value = record.emit();
        let change = Change { key: &key, value: Some(&value), durable: true };
        match meta.swap(change, &[(&key, Some(before.version))])? {
            Some(version) => {
                tracing::warn!(server, "declared dead: no sign of life for its lease");
                Ok(Verdict::Dead(Some(version)))
            }
            None => Ok(Verdict::Alive),
        }
    }

    /// Notes in a region's record that the copies of a dead server are stale, as far as there are others in sync;
    /// `false`: something has changed, and nothing was noted.
    pub(super) fn note_stale(
        &self,
        name: &str,
        (record, version): (&RegionRecord, u64),
        server: &str,
        dead: Option<u64>,
    ) -> Result<bool, StoreError> {
        let mut changed = record.clone();
        for piece in &mut changed.pieces {
            let others = piece
                .copies
                .iter()
                .any(|copy| copy.server != server && copy.state == CopyState::InSync);
            let of_server = piece.copies.iter_mut().filter(|copy| copy.server == server);
            of_server.filter(|_| others).for_each(|copy| copy.state = CopyState::Stale);
        }
        if changed == *record {
            return Ok(false);
        }
        let (key, of_server) = (format!("regions/{name}"), format!("servers/{server}"));
        let value = changed.emit();
        let change = Change { key: &key, value: Some(&value), durable: true };
        let only_if = [(key.as_str(), Some(version)), (of_server.as_str(), dead)];
        let is_noted = self.options.meta.swap(change, &only_if)?.is_some();
        if is_noted {
            tracing::warn!(region = name, server, "goes on without the copies of this server");
        }
        Ok(is_noted)
    }
}
