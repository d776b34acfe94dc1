//! Fills copies that are missing, while clients go on.
//!
//! ```text
//!   claim -> make the piece -> record: syncing, epoch + 1 -> mappings of the epoch before end at all copies
//!         -> every client writes to the new copy too, after the copies in sync
//!         -> copy each chunk until the source reads as it was written -> record: in sync
//! ```
//!
//! A rebuild holds a claim, and its last step names the claim and the epoch that it made: one that was paused for so long that
//! another took its place ends nothing.
//!
//! Why nothing is lost: a client's write is at the source before it is at the new copy. Let the rebuild write bytes that
//! it read before that write came to the source, over the client's bytes at the new copy. Then the write was at the source
//! before the rebuild's write, so the rebuild's second read of the source finds it, and the chunk is copied again. Atomic
//! operations wait meanwhile: an addition that is made at both could be copied as well.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::control::CallError;
use super::io::Kind;
use super::region::Region;
use super::setup::servers_of;
use super::staging::PART_MAX;
use super::{Store, StoreError};
use crate::ids::ClientId;
use crate::layout::wide;
use crate::meta::Change;
use crate::meta::record::{
    ClientRecord, CopyRecord, CopyState, RegionRecord, RegionState, ServerState,
};
use crate::place::{Candidate, place};
use crate::token::{Rights, Token};
use crate::wire::{Request, Status};

/// What a rebuild has done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rebuilt {
    /// Copies that are in sync now and were not.
    pub copies: u32,
    /// Bytes that were copied, those included that were copied again.
    pub bytes: u64,
    /// Copies that are still missing: too few servers, too little room, or [`Rebuilt::silent`].
    pub missing: u32,
    /// Of these, copies at servers that do not answer, though the metadata do not call them dead yet.
    pub silent: u32,
}

impl Store {
    /// Fills the copies of a region that are missing, on servers that are alive: one whose copy is stale first, else one
    /// with room. Clients go on meanwhile; their atomic operations on a piece wait while it is copied.
    ///
    /// # Errors
    /// This client has no key; another one is rebuilding the region; a server was lost: try again.
    pub fn rebuild(&self, name: &str) -> Result<Rebuilt, StoreError> {
        self.0.key("a rebuild")?;
        self.join()?;
        if !lock(&self.0.rebuilding).insert(name.to_owned()) {
            return Err(StoreError::Rebuilding(name.to_owned()));
        }
        let done = self.claim(name).and_then(|claim| {
            let done = self.rebuild_claimed(name, &claim);
            let gone = Change { key: &claim.0, value: None, durable: false };
            // Where the metadata are away the claim stays: this client's next rebuild takes it over.
            if let Err(error) = self.0.options.meta.swap(gone, &[(&claim.0, Some(claim.1))]) {
                tracing::warn!(region = name, %error, "the claim of a rebuild that has ended stays for now");
            }
            done
        });
        lock(&self.0.rebuilding).remove(name);
        done
    }

    /// Takes the region for this client: the key of the claim and its version.
    fn claim(&self, name: &str) -> Result<(String, u64), StoreError> {
        let meta = &self.0.options.meta;
        let key = format!("rebuilds/{name}");
        let found = meta.get(&key)?;
        if let Some(entry) = &found {
            let by = std::str::from_utf8(&entry.value).unwrap_or_default();
            let client = meta.get(&format!("clients/{by}"))?;
            let record = client.and_then(|entry| ClientRecord::parse(&entry.value).ok());
            // A claim of this client is left over: none of its rebuilds goes on, as the set of these says.
            let is_own = by == self.0.client.to_string();
            if !is_own && record.is_some_and(|record| !record.dead) {
                return Err(StoreError::Rebuilding(name.to_owned()));
            }
        }
        let value = self.0.client.to_string();
        let put = Change { key: &key, value: Some(value.as_bytes()), durable: false };
        let version = meta.swap(put, &[(&key, found.map(|entry| entry.version))])?;
        let version = version.ok_or_else(|| StoreError::Rebuilding(name.to_owned()))?;
        Ok((key, version))
    }

    fn rebuild_claimed(&self, name: &str, claim: &(String, u64)) -> Result<Rebuilt, StoreError> {
        self.note_dead_servers(name)?;
        let mut done = Rebuilt::default();
        let pieces = self.0.record(name)?.0.pieces.len();
        for piece in 0..pieces {
            loop {
                let (record, version) = self.0.record(name)?;
                if record.state != RegionState::Ready {
                    return Err(StoreError::NotReady(name.to_owned()));
                }
                let in_sync = count(&record, piece, CopyState::InSync);
                if in_sync == 0 || in_sync >= record.copies {
                    break;
                }
                let Some(server) = self.choose(&record, piece)? else {
                    done.missing += record.copies - in_sync;
                    break;
                };
                done.bytes += self.fill((name, claim), (record, version), piece, &server)?;
                done.copies += 1;
            }
            self.forget_stale(name, piece)?;
        }
        done.silent = self.silent(name)?;
        done.missing += done.silent;
        Ok(done)
    }

    /// Copies in sync whose servers do not answer: one that has died is alive by the metadata for as long as its lease, and
    /// whoever counts on its copy may stop the last server that has one.
    fn silent(&self, name: &str) -> Result<u32, StoreError> {
        let (record, _) = self.0.record(name)?;
        let token =
            self.0.issue(self.0.key("a rebuild")?, record.id, record.generation, Rights::ADMIN);
        let (region, epoch, generation) = (record.id, record.epoch, record.generation);
        let mut lines = BTreeMap::new();
        let mut silent = 0;
        for server in servers_of(&record, |state| state == CopyState::InSync) {
            // What it has been told already.
            let request = Request::Epoch { region, epoch, generation };
            if let Err(error) = self.0.order(&mut lines, &server, &request, &token) {
                tracing::warn!(region = name, server, %error, "a server with copies does not answer for them");
                let copies = record.pieces.iter().flat_map(|piece| &piece.copies);
                let of_it =
                    copies.filter(|copy| copy.server == server && copy.state == CopyState::InSync);
                silent += u32::try_from(of_it.count()).expect("at most 1024 pieces");
            }
        }
        Ok(silent)
    }

    /// Copies at servers that are dead are stale, where there are others in sync.
    fn note_dead_servers(&self, name: &str) -> Result<(), StoreError> {
        let (record, _) = self.0.record(name)?;
        for server in servers_of(&record, |state| state != CopyState::Stale) {
            let key = format!("servers/{server}");
            let entry = self.0.options.meta.get(&key)?;
            let found = self.servers()?.remove(&server);
            let is_dead = found.is_none_or(|record| record.state == ServerState::Dead);
            if is_dead {
                let (record, version) = self.0.record(name)?;
                let dead = entry.map(|entry| entry.version);
                self.0.note_stale(name, (&record, version), &server, dead)?;
            }
        }
        Ok(())
    }

    /// The server for a new copy of a piece.
    fn choose(&self, record: &RegionRecord, piece: usize) -> Result<Option<String>, StoreError> {
        let copies = &record.pieces[piece].copies;
        let servers = self.servers()?;
        let is_able = |name: &str| {
            let found = servers.get(name);
            found.is_some_and(|one| one.state == ServerState::Alive && one.class == record.class)
        };
        // What an earlier rebuild began and did not end, too.
        let unfit = copies.iter().filter(|copy| copy.state != CopyState::InSync);
        if let Some(copy) = unfit.into_iter().find(|copy| is_able(&copy.server)) {
            return Ok(Some(copy.server.clone()));
        }
        let is_used = |name: &String| copies.iter().any(|copy| copy.server == *name);
        let free = servers.iter().filter(|(name, _)| is_able(name) && !is_used(name));
        let candidates: Vec<_> =
            free.map(|(name, one)| Candidate { name: name.clone(), free: one.free }).collect();
        let number = u32::try_from(piece).expect("at most 1024 pieces");
        let placed = place(&candidates, &[record.striping().piece_len(number)], 1);
        Ok(placed.ok().and_then(|mut placed| placed.pop()?.pop()))
    }

    /// Makes a copy at a server and fills it; returns the bytes that were copied.
    fn fill(
        &self,
        (name, claim): (&str, &(String, u64)),
        (mut record, version): (RegionRecord, u64),
        piece: usize,
        server: &str,
    ) -> Result<u64, StoreError> {
        let shared = &self.0;
        let key = shared.key("a rebuild")?;
        let token = shared.issue(key, record.id, record.generation, Rights::ADMIN);
        let number = u32::try_from(piece).expect("at most 1024 pieces");
        let len = record.striping().piece_len(number);
        let copies = &mut record.pieces[piece].copies;
        copies.retain(|copy| copy.server != server);
        copies.push(CopyRecord { server: server.to_owned(), state: CopyState::Syncing });
        let (generation, region) = (record.generation, record.id);
        let make = |epoch| {
            let request =
                Request::Create { region, piece: number, replace: true, len, epoch, generation };
            shared.order(&mut BTreeMap::new(), server, &request, &token)
        };
        record.epoch += 1;
        if let Err(error) = make(record.epoch) {
            // A rebuild that ended in the middle left a piece of this epoch: unless the record says more by now, the next
            // epoch is above it. Else another client fills the copy, or has filled it.
            let there = epoch_there(&error).filter(|there| *there >= record.epoch);
            let there = there.and_then(|there| there.checked_add(1)).ok_or(error)?;
            if shared.record(name)?.1 != version {
                return Err(StoreError::Rebuilding(name.to_owned()));
            }
            record.epoch = there;
            make(record.epoch)?;
        }
        shared.put_region(name, &record, version)?;
        self.end_earlier_epochs(name, &record, &token)?;
        let mapped = self.map(name, Rights::READ | Rights::WRITE)?;
        let bytes = mapped.copy_piece(number, len)?;
        drop(mapped);
        // The record may have changed meanwhile. This copy is full if it is still the one of this rebuild: of the epoch that it
        // made, and under its claim. Else this client was away for so long that another one has begun to fill it anew.
        let epoch = record.epoch;
        loop {
            let (mut record, version) = shared.record(name)?;
            let is_claimed = shared.options.meta.get(&claim.0)?.map(|entry| entry.version);
            if record.epoch != epoch || is_claimed != Some(claim.1) {
                return Err(StoreError::Rebuilding(name.to_owned()));
            }
            let copies = record.pieces.get_mut(piece).into_iter().flat_map(|one| &mut one.copies);
            let mut of_server = copies.filter(|copy| copy.server == server);
            match of_server.next() {
                Some(copy) if copy.state == CopyState::Syncing => copy.state = CopyState::InSync,
                _ => return Err(StoreError::NotReady(name.to_owned())),
            }
            let value = record.emit();
            let key = format!("regions/{name}");
            let put = Change { key: &key, value: Some(&value), durable: true };
            let only_if = [(key.as_str(), Some(version)), (claim.0.as_str(), Some(claim.1))];
            if shared.options.meta.swap(put, &only_if)?.is_some() {
                return Ok(bytes);
            }
        }
    }

    /// No client goes by an earlier record any more. A server that does not answer is lost.
    fn end_earlier_epochs(
        &self,
        name: &str,
        record: &RegionRecord,
        token: &Token,
    ) -> Result<(), StoreError> {
        let Err(error) = self.0.raise_epoch(record, token) else { return Ok(()) };
        if let StoreError::Server { server, .. } | StoreError::Unreachable { server, .. } = &error
            && let super::loss::Verdict::Dead(dead) = self.0.declare_lost(server)?
        {
            let (record, version) = self.0.record(name)?;
            self.0.note_stale(name, (&record, version), server, dead)?;
        }
        Err(error)
    }

    /// Stale copies of a piece that has all its copies leave the record; their servers remove them.
    fn forget_stale(&self, name: &str, piece: usize) -> Result<(), StoreError> {
        let (mut record, version) = self.0.record(name)?;
        if count(&record, piece, CopyState::InSync) >= record.copies {
            let before = record.pieces[piece].copies.len();
            record.pieces[piece].copies.retain(|copy| copy.state != CopyState::Stale);
            if record.pieces[piece].copies.len() != before {
                self.0.put_region(name, &record, version)?;
            }
        }
        Ok(())
    }

    /// Declares a server dead unless it gives a sign of life.
    pub(crate) fn declare_lost(&self, server: &str) -> Result<(), StoreError> {
        self.0.declare_lost(server).map(drop)
    }

    /// Leaves one copy in sync of each piece of a region that a dead client wrote to, for the others may lack some of
    /// what it wrote last; then the others are filled.
    ///
    /// # Errors
    /// As [`Store::rebuild`].
    pub(crate) fn resync(&self, name: &str) -> Result<(), StoreError> {
        let (mut record, version) = match self.0.record(name) {
            Err(StoreError::NoRegion(_)) => return Ok(()),
            other => other?,
        };
        let before = record.clone();
        for piece in &mut record.pieces {
            let in_sync = piece.copies.iter_mut().filter(|copy| copy.state == CopyState::InSync);
            in_sync.skip(1).for_each(|copy| copy.state = CopyState::Stale);
        }
        if record == before {
            return Ok(());
        }
        record.epoch += 1;
        let key = self.0.key("a rebuild")?;
        let token = self.0.issue(key, record.id, record.generation, Rights::ADMIN);
        self.0.put_region(name, &record, version)?;
        // Also where a copy has just become stale: clients that read it there map again.
        self.0.raise_epoch(&RegionRecord { pieces: before.pieces, ..record }, &token)
    }

    /// Ends a client that gives no sign of life: its mappings everywhere, the regions that go with it, and what it left
    /// half made. `false`: it lives.
    pub(crate) fn collect(&self, client: ClientId, version: u64) -> Result<bool, StoreError> {
        let shared = &self.0;
        let key = shared.key("removing what a dead client left")?;
        let record_key = format!("clients/{client}");
        let Some(entry) = shared.options.meta.get(&record_key)? else { return Ok(false) };
        if entry.version != version {
            return Ok(false);
        }
        let parsed = ClientRecord::parse(&entry.value);
        let mut record =
            parsed.map_err(|source| StoreError::Record { key: record_key.clone(), source })?;
        record.dead = true;
        let value = record.emit();
        let put = Change { key: &record_key, value: Some(&value), durable: true };
        let Some(version) = shared.options.meta.swap(put, &[(&record_key, Some(version))])? else {
            return Ok(false);
        };
        tracing::warn!(%client, "a client gave no sign of life: what it owns is removed");
        let token = shared.issue(key, crate::ids::RegionId(0), 0, Rights::ADMIN);
        let mut lines = BTreeMap::new();
        for (server, found) in self.servers()? {
            if found.state == ServerState::Alive {
                let fence = Request::Fence { client };
                // A server that does not answer has ended the client's connections, or will be declared dead.
                if let Err(error) = shared.order(&mut lines, &server, &fence, &token) {
                    tracing::warn!(%server, %error, "a server did not fence the client");
                }
            }
        }
        for (name, region) in self.regions()? {
            if region.owner == Some(client) {
                self.free(&name)?;
            }
        }
        for name in &record.writes {
            self.resync(name)?;
        }
        let gone = Change { key: &record_key, value: None, durable: true };
        shared.options.meta.swap(gone, &[(&record_key, Some(version))])?;
        Ok(true)
    }
}

/// The regions that this client is filling.
fn lock(rebuilding: &Mutex<BTreeSet<String>>) -> MutexGuard<'_, BTreeSet<String>> {
    rebuilding.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Region {
    /// Copies a piece from its first copy in sync to those that are being filled.
    fn copy_piece(&self, piece: u32, len: u64) -> Result<u64, StoreError> {
        let durable = self.shared.lock().regions[self.index].can_commit;
        let (mut copied, mut offset) = (0, 0);
        while offset < len {
            let chunk = usize::try_from(len - offset).unwrap_or(PART_MAX).min(PART_MAX);
            copied += self.copy_chunk(piece, offset, chunk, durable)?;
            offset += wide(chunk);
        }
        Ok(copied)
    }

    fn copy_chunk(
        &self,
        piece: u32,
        offset: u64,
        len: usize,
        durable: bool,
    ) -> Result<u64, StoreError> {
        let mut bytes = self.run(Kind::ReadFirst { piece }, offset, vec![0; len])?;
        for turn in 1..=COPY_TURNS {
            self.run(Kind::Fill { piece, durable }, offset, bytes.clone())?;
            let again = self.run(Kind::ReadFirst { piece }, offset, vec![0; len])?;
            if again == bytes {
                return Ok(wide(len) * turn);
            }
            bytes = again;
            if len > SMALL_CHUNK {
                // Written to all the time: smaller chunks have a quiet moment sooner.
                let mut copied = wide(len) * turn;
                for at in (0..len).step_by(SMALL_CHUNK) {
                    let part = SMALL_CHUNK.min(len - at);
                    copied += self.copy_chunk(piece, offset + wide(at), part, durable)?;
                }
                return Ok(copied);
            }
        }
        Err(StoreError::Busy { name: self.name.clone(), piece })
    }

    fn run(&self, kind: Kind, offset: u64, buffer: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        let id = {
            let mut inner = self.begin()?;
            self.start(&mut inner, kind, offset, buffer)
        };
        let mut out = Vec::new();
        self.finish(&[id], |_, bytes| out = bytes.to_vec())?;
        Ok(out)
    }
}

/// The epoch of the piece for which a server refuses another one.
fn epoch_there(error: &StoreError) -> Option<u64> {
    match error {
        StoreError::Server {
            source: CallError::Refused { status: Status::EPOCH, detail }, ..
        } => Some(*detail),
        _ => None,
    }
}

fn count(record: &RegionRecord, piece: usize, state: CopyState) -> u32 {
    let copies = record.pieces.get(piece).map_or(&[][..], |piece| &piece.copies);
    let count = copies.iter().filter(|copy| copy.state == state).count();
    u32::try_from(count).expect("at most 8 copies")
}

/// How often a chunk is copied before its writers count as too busy.
const COPY_TURNS: u64 = 1000;
const SMALL_CHUNK: usize = 4096;
