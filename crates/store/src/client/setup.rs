//! Making, listing, mapping and removing regions.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::control::{CALL_PATIENCE, Control};
use super::notes_line::NotesLine;
use super::region::Region;
use super::unconfirmed::Unconfirmed;
use super::{Mapped, Shared, Store, StoreError, random};
use crate::ids::{RegionId, is_name};
use crate::layout::Striping;
use crate::meta::Change;
use crate::meta::record::{
    COPIES_MAX, Class, CopyRecord, CopyState, FORMAT, PIECES_MAX, PieceRecord, RECORD_MAX,
    RegionRecord, RegionState, SIZE_MAX, ServerRecord, ServerState, UNIT_MIN,
};
use crate::place::{Candidate, place};
use crate::token::{Claims, Rights, Token};
use crate::wire::{GRACE, Request, Status};

/// What a region is to be like.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Allocation {
    /// Length in bytes.
    pub size: u64,
    /// Bytes that lie together on one server, a multiple of 8.
    pub unit: u64,
    /// Pieces; 0: as many as there are servers of the class, and no more than units.
    pub width: u32,
    /// Copies of each piece, 1 to 3.
    pub copies: u32,
    /// The class of the servers.
    pub class: Class,
    /// The region goes with this client.
    pub ephemeral: bool,
}

impl Allocation {
    /// A region of one copy in units of 1 MiB, over all servers of the class.
    pub fn new(size: u64, class: Class) -> Self {
        Self { size, unit: 1 << 20, width: 0, copies: 1, class, ephemeral: false }
    }

    fn check(&self) -> Result<(), StoreError> {
        let bad = |what, found, expected| StoreError::ConfigRegion { what, found, expected };
        if !(1..=SIZE_MAX).contains(&self.size) {
            return Err(bad("the size", self.size, "1 byte to 1 PiB"));
        }
        if !(UNIT_MIN..=SIZE_MAX).contains(&self.unit) || !self.unit.is_multiple_of(8) {
            return Err(bad(
                "the unit of striping",
                self.unit,
                "4096 bytes or more, a multiple of 8",
            ));
        }
        if !(1..=COPIES_MAX).contains(&self.copies) {
            return Err(bad("the number of copies", self.copies.into(), "1 to 3"));
        }
        if usize::try_from(self.width).unwrap_or(usize::MAX) > PIECES_MAX {
            return Err(bad("the width", self.width.into(), "at most 1024 pieces"));
        }
        Ok(())
    }
}

impl Store {
    /// Makes a region of zeros.
    ///
    /// # Errors
    /// A region of the name exists; too few servers or too little room; a server fails: then nothing is left.
    pub fn create(&self, name: &str, wanted: &Allocation) -> Result<RegionRecord, StoreError> {
        let shared = &self.0;
        let key = shared.key("making a region")?;
        if !is_name(name) {
            return Err(StoreError::ConfigName(name.to_owned()));
        }
        wanted.check()?;
        self.join()?;
        let mut record = self.plan(wanted)?;
        let record_key = format!("regions/{name}");
        let value = record.emit();
        if value.len() > RECORD_MAX {
            let (found, expected) =
                (u64::from(wanted.width), "fewer pieces: their names fill a record");
            return Err(StoreError::ConfigRegion { what: "the width", found, expected });
        }
        let put = Change { key: &record_key, value: Some(&value), durable: true };
        let version = match shared.options.meta.swap(put, &[(&record_key, None)])? {
            Some(version) => version,
            // Or the record is this call's own: of several endpoints of etcd one made it, and its answer was lost.
            None => match shared.record(name) {
                Ok((found, version)) if found.id == record.id => version,
                _ => return Err(StoreError::Exists(name.to_owned())),
            },
        };
        let token = shared.issue(key, record.id, 0, Rights::ADMIN);
        let made = shared.create_pieces(&record, &token);
        record.state = RegionState::Ready;
        if !wanted.ephemeral {
            record.owner = None;
        }
        let value = record.emit();
        let put = Change { key: &record_key, value: Some(&value), durable: true };
        let is_ready = made.and_then(|()| {
            let swapped = shared.options.meta.swap(put, &[(&record_key, Some(version))])?;
            swapped.map(drop).ok_or_else(|| StoreError::NotReady(name.to_owned()))
        });
        if let Err(error) = is_ready {
            shared.remove_pieces(&record, &token);
            let gone = Change { key: &record_key, value: None, durable: true };
            let _ = shared.options.meta.swap(gone, &[(&record_key, Some(version))]);
            return Err(error);
        }
        Ok(record)
    }

    fn plan(&self, wanted: &Allocation) -> Result<RegionRecord, StoreError> {
        let mut candidates = Vec::new();
        for (name, server) in self.servers()? {
            if server.state == ServerState::Alive && server.class == wanted.class {
                candidates.push(Candidate { name, free: server.free });
            }
        }
        let units = wanted.size.div_ceil(wanted.unit);
        let servers = u64::try_from(candidates.len()).expect("few servers").max(1);
        let width = match wanted.width {
            0 => units.min(servers).min(u64::try_from(PIECES_MAX).expect("1024")),
            width => units.min(width.into()),
        };
        let width = u32::try_from(width).expect("at most 1024");
        let striping = Striping { size: wanted.size, unit: wanted.unit, width };
        let lens: Vec<u64> = (0..width).map(|piece| striping.piece_len(piece)).collect();
        let copies = usize::try_from(wanted.copies).expect("at most 3");
        let copy = |server| CopyRecord { server, state: CopyState::InSync };
        let pieces = place(&candidates, &lens, copies)?.into_iter();
        let pieces = pieces
            .map(|names| PieceRecord { copies: names.into_iter().map(copy).collect() })
            .collect();
        Ok(RegionRecord {
            format: FORMAT,
            id: RegionId(random(&self.0.options.environment)?),
            size: wanted.size,
            unit: wanted.unit,
            copies: wanted.copies,
            class: wanted.class,
            epoch: 1,
            generation: 1,
            state: RegionState::Creating,
            owner: Some(self.0.client),
            pieces,
        })
    }

    /// The servers of the store, by name.
    ///
    /// # Errors
    /// The metadata cannot be reached, or holds nonsense.
    pub fn servers(&self) -> Result<BTreeMap<String, ServerRecord>, StoreError> {
        let mut servers = BTreeMap::new();
        for (key, entry) in self.0.options.meta.list("servers/")? {
            let record = ServerRecord::parse(&entry.value);
            let record =
                record.map_err(|source| StoreError::Record { key: key.clone(), source })?;
            servers.insert(key["servers/".len()..].to_owned(), record);
        }
        Ok(servers)
    }

    /// The regions of the store, by name.
    ///
    /// # Errors
    /// As [`Store::servers`].
    pub fn regions(&self) -> Result<BTreeMap<String, RegionRecord>, StoreError> {
        let mut regions = BTreeMap::new();
        for (key, entry) in self.0.options.meta.list("regions/")? {
            let record = RegionRecord::parse(&entry.value);
            let record =
                record.map_err(|source| StoreError::Record { key: key.clone(), source })?;
            regions.insert(key["regions/".len()..].to_owned(), record);
        }
        Ok(regions)
    }

    /// What the metadata says of a region.
    ///
    /// # Errors
    /// [`StoreError::NoRegion`]; as [`Store::servers`].
    pub fn info(&self, name: &str) -> Result<RegionRecord, StoreError> {
        Ok(self.0.record(name)?.0)
    }

    /// Maps a region by the store's key. After this no metadata is asked by reads and writes, until a server is lost or
    /// the region changes.
    ///
    /// # Errors
    /// The region is not there or not ready; a server of a copy that has no other in sync cannot be reached.
    pub fn map(&self, name: &str, rights: Rights) -> Result<Region, StoreError> {
        self.0.key("mapping without a token")?;
        self.map_as(name, rights, None)
    }

    /// Maps a region by a token, with the rights that it gives.
    ///
    /// # Errors
    /// As [`Store::map`]; the token is for another region, or daemons refuse it.
    pub fn map_by_token(&self, name: &str, token: Token) -> Result<Region, StoreError> {
        let rights = token.claims().rights & (Rights::READ | Rights::WRITE);
        self.map_as(name, rights, Some(token))
    }

    fn map_as(
        &self,
        name: &str,
        rights: Rights,
        token: Option<Token>,
    ) -> Result<Region, StoreError> {
        let (record, _) = self.0.record(name)?;
        let is_fit = token.as_ref().is_none_or(|one| one.claims().region == record.id);
        if !is_fit || rights.is_empty() {
            return Err(StoreError::TokenUnfit(name.to_owned()));
        }
        let is_noted = rights.contains(Rights::WRITE) && record.copies > 1;
        if is_noted {
            self.note_writer(name)?;
        }
        let (len, id) = (record.size, record.id);
        let mut inner = self.0.lock();
        inner.groups += 1;
        let group = inner.groups;
        let index = inner.regions.insert(Mapped {
            name: name.to_owned(),
            id,
            record,
            rights,
            group,
            token,
            pieces: Vec::new(),
            links: Vec::new(),
            can_commit: false,
            renew_at: None,
            is_stale: false,
            done: VecDeque::new(),
            submitted: 0,
            tickets: 0,
            unconfirmed: Unconfirmed::default(),
        });
        if let Err(error) = self.0.map_again(&mut inner, index) {
            inner.regions.remove(index);
            drop(inner);
            if is_noted {
                self.0.forget_writer(name);
            }
            return Err(error);
        }
        drop(inner);
        let (shared, name) = (self.0.clone(), name.to_owned());
        Ok(Region { shared, index, name, len, notes: NotesLine::default() })
    }

    /// A token for a region, to be given to a client that has no key. It is good for `lifetime` from now.
    ///
    /// # Errors
    /// This client has no key; the region is not there.
    pub fn token(
        &self,
        name: &str,
        rights: Rights,
        lifetime: Duration,
    ) -> Result<Token, StoreError> {
        let key = self.0.key("making a token")?;
        let (record, _) = self.0.record(name)?;
        let lifetime = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        Ok(key.issue(Claims {
            region: record.id,
            client: crate::ids::ClientId(random(&self.0.options.environment)?),
            expires_ms: self.0.now_ms().saturating_add(lifetime),
            generation: record.generation,
            rights: rights & (Rights::READ | Rights::WRITE),
        }))
    }

    /// Revokes all tokens of a region that were given out. Clients with the store's key map it again by themselves.
    ///
    /// # Errors
    /// This client has no key; the region is not there; a server does not answer: then its mappings may still be in
    /// force there.
    pub fn revoke(&self, name: &str) -> Result<(), StoreError> {
        let key = self.0.key("revoking tokens")?;
        let (mut record, version) = self.0.record(name)?;
        record.generation += 1;
        self.0.put_region(name, &record, version)?;
        let token = self.0.issue(key, record.id, record.generation, Rights::ADMIN);
        self.0.raise_epoch(&record, &token)
    }

    /// Removes a region. Mappings of it end.
    ///
    /// # Errors
    /// This client has no key; the region is not there; the metadata cannot be reached. A server that cannot be reached
    /// removes its pieces when it is back.
    pub fn free(&self, name: &str) -> Result<(), StoreError> {
        let key = self.0.key("removing a region")?;
        let (mut record, version) = self.0.record(name)?;
        record.state = RegionState::Freeing;
        let version = self.0.put_region(name, &record, version)?;
        let token = self.0.issue(key, record.id, 0, Rights::ADMIN);
        self.0.remove_pieces(&record, &token);
        let record_key = format!("regions/{name}");
        let gone = Change { key: &record_key, value: None, durable: true };
        self.0.options.meta.swap(gone, &[(&record_key, Some(version))])?;
        Ok(())
    }
}

impl Shared {
    /// Changes a region's record, if it is still of this version.
    pub(super) fn put_region(
        &self,
        name: &str,
        record: &RegionRecord,
        version: u64,
    ) -> Result<u64, StoreError> {
        let key = format!("regions/{name}");
        let value = record.emit();
        let put = Change { key: &key, value: Some(&value), durable: true };
        let swapped = self.options.meta.swap(put, &[(&key, Some(version))])?;
        swapped.ok_or_else(|| StoreError::NotReady(name.to_owned()))
    }

    fn create_pieces(&self, record: &RegionRecord, token: &Token) -> Result<(), StoreError> {
        let mut lines = BTreeMap::new();
        for (piece, of_piece) in (0_u32..).zip(&record.pieces) {
            let len = record.striping().piece_len(piece);
            for copy in &of_piece.copies {
                let (epoch, generation, region) = (record.epoch, record.generation, record.id);
                let request =
                    Request::Create { region, piece, replace: false, len, epoch, generation };
                self.order(&mut lines, &copy.server, &request, token)?;
            }
        }
        Ok(())
    }

    /// One order to a server, on a control connection that `lines` keeps.
    pub(super) fn order(
        &self,
        lines: &mut BTreeMap<String, Control>,
        server: &str,
        request: &Request,
        token: &Token,
    ) -> Result<(), StoreError> {
        let failed = |source| StoreError::Server { server: server.to_owned(), source };
        if !lines.contains_key(server) {
            let address = self.control_address(server)?;
            let line = Control::connect(address, &self.options.environment, CALL_PATIENCE);
            lines.insert(server.to_owned(), line.map_err(failed)?);
        }
        let line = lines.get_mut(server).expect("it was inserted");
        // A piece is filled with zeros, and mappings get some time.
        line.order(request, token, ORDER_PATIENCE).map_err(failed)
    }

    /// Removes the pieces of a region at all servers that can be reached.
    pub(super) fn remove_pieces(&self, record: &RegionRecord, token: &Token) {
        let mut lines = BTreeMap::new();
        for server in servers_of(record, |_| true) {
            let request = Request::Remove { region: record.id };
            if let Err(error) = self.order(&mut lines, &server, &request, token) {
                tracing::warn!(server, %error, "pieces stay until the server sees that their region is gone");
            }
        }
    }

    /// Ends the mappings of earlier epochs and generations at all servers whose copies are used.
    pub(super) fn raise_epoch(
        &self,
        record: &RegionRecord,
        token: &Token,
    ) -> Result<(), StoreError> {
        let mut lines = BTreeMap::new();
        for server in servers_of(record, |state| state != CopyState::Stale) {
            let (region, epoch, generation) = (record.id, record.epoch, record.generation);
            let request = Request::Epoch { region, epoch, generation };
            match self.order(&mut lines, &server, &request, token) {
                // It has lost its pieces, so nobody maps them there.
                Err(StoreError::Server { source, .. })
                    if source.status() == Some(Status::NO_PIECE) => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// The servers of a region's copies in such states, each once.
pub(super) fn servers_of(
    record: &RegionRecord,
    is_meant: impl Fn(CopyState) -> bool,
) -> Vec<String> {
    let copies = record.pieces.iter().flat_map(|piece| &piece.copies);
    let names = copies.filter(|copy| is_meant(copy.state)).map(|copy| copy.server.clone());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names.dedup();
    names
}

const ORDER_PATIENCE: Duration = Duration::from_secs(30).saturating_add(GRACE);
