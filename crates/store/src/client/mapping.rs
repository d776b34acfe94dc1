//! Maps a region at the copies that its record names, and maps it again after a loss or a new epoch.
//!
//! ```text
//!   drain what is in flight -> give back -> read record -> links to all servers of copies -> record unchanged? -> map
//! ```
//!
//! The record is read again once the links are there: a link is to one incarnation of a server, and a copy becomes stale
//! only while its server is dead. So a copy that is in sync by a record read after the link was made is in sync for as
//! long as the link's incarnation lives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rdma::{Event, Rkey};

use super::control::{CallError, Control};
use super::io::{Kind, PieceMap, Target};
use super::link::{self, Line};
use super::loss::Verdict;
use super::{Inner, Mapped, Shared, StoreError, TOKEN_LIFETIME, issue};
use crate::ids::RegionId;
use crate::meta::Change;
use crate::meta::record::{CopyState, RegionRecord, RegionState, ServerRecord, ServerState};
use crate::token::{Rights, Token};
use crate::wire::{Answer, Request, Status};

/// Why an attempt to map failed.
enum Miss {
    /// Something has changed or is about to: the next attempt may succeed.
    Again { server: String, piece: u32, why: String },
    /// Nothing was changed by waiting.
    Fatal(StoreError),
}

impl From<StoreError> for Miss {
    fn from(error: StoreError) -> Self {
        Self::Fatal(error)
    }
}

impl Shared {
    /// The record of a region and its version.
    pub(super) fn record(&self, name: &str) -> Result<(RegionRecord, u64), StoreError> {
        let key = format!("regions/{name}");
        let entry = self.options.meta.get(&key)?;
        let entry = entry.ok_or_else(|| StoreError::NoRegion(name.to_owned()))?;
        let record = RegionRecord::parse(&entry.value);
        let record = record.map_err(|source| StoreError::Record { key, source })?;
        Ok((record, entry.version))
    }

    /// Maps again the regions of operations that failed, and issues these again; or ends them with the reason.
    pub(super) fn repair(&self, inner: &mut Inner) {
        // Those that fail once more wait for the next turn, so that nobody spins here.
        let failed = std::mem::take(&mut inner.io.failed);
        let now = self.now();
        let mut regions: Vec<usize> = failed.iter().map(|id| inner.io.ops[*id].region).collect();
        regions.sort_unstable();
        regions.dedup();
        for index in regions {
            let outcome = self.map_again(inner, index);
            let of_region = failed.iter().filter(|id| inner.io.ops[**id].region == index);
            let of_region: Vec<usize> = of_region.copied().collect();
            let (name, patience) = (inner.regions[index].name.clone(), self.options.patience);
            match outcome {
                Ok(()) => {
                    for id in of_region {
                        let since = *inner.io.ops[id].failed_since.get_or_insert(now);
                        if now.saturating_duration_since(since) > patience * TURNS_MAX {
                            self.end(inner, id, Some(StoreError::Rebuilding(name.clone())));
                        } else {
                            self.issue_again(inner, id);
                        }
                    }
                }
                Err(error) => {
                    // The first operation gets the error itself, the others its words.
                    let why = error.to_string();
                    let mut first = Some(error);
                    for id in of_region {
                        let error = first.take().unwrap_or_else(|| StoreError::NotMapped {
                            name: name.clone(),
                            why: why.clone(),
                        });
                        self.end(inner, id, Some(error));
                    }
                }
            }
        }
    }

    /// Ends an operation.
    fn end(&self, inner: &mut Inner, id: usize, error: Option<StoreError>) {
        let op = &mut inner.io.ops[id];
        op.error = error;
        op.is_over = true;
        if op.is_queued {
            let region = op.region;
            inner.regions[region].done.push_back(id);
        }
    }

    fn issue_again(&self, inner: &mut Inner, id: usize) {
        let op = &inner.io.ops[id];
        if op.kind.is_atomic()
            && let Some(server) = op.doubt.clone()
        {
            // A server that is lost is out of the record. One that is back may have carried the operation out.
            let is_back = inner.regions[op.region].links.iter().any(|link| {
                inner.io.links.get(*link).is_some_and(|link| link.line.server == server)
            });
            if is_back {
                return self.end(inner, id, Some(StoreError::InDoubt(server)));
            }
        }
        let op = &mut inner.io.ops[id];
        let lost = op.doubt.take();
        op.phase = 0;
        if op.kind == Kind::Commit {
            let region = op.region;
            if let Some(server) = inner.regions[region].unconfirmed.take_lost() {
                let name = inner.regions[region].name.clone();
                return self.end(inner, id, Some(StoreError::Lost { name, server }));
            }
        }
        let op = &inner.io.ops[id];
        if op.kind.is_atomic() && !op.changed.is_empty() && !super::has_more(inner, id) {
            // It was done at all copies that are left, and the one whose answer counts is lost: the others may have seen the
            // operations of several clients in another order than it has, so their numbers are other clients' too.
            let server = lost.or_else(|| op.changed.last().cloned()).unwrap_or_default();
            return self.end(inner, id, Some(StoreError::InDoubt(server)));
        }
        issue(inner, id);
    }

    /// Maps a region at the copies of its record as it is now.
    pub(super) fn map_again(&self, inner: &mut Inner, index: usize) -> Result<(), StoreError> {
        self.membership.check()?;
        if !inner.regions[index].pieces.is_empty() && self.membership.is_writer() {
            // This client may have been paused for so long that others count it as dead, and made the copies one again
            // without waiting for it. Daemons that started anew since do not know.
            self.membership.say()?;
        }
        let deadline = self.now() + self.options.patience;
        self.give_back(inner, index);
        loop {
            match self.try_map(inner, index) {
                Ok(()) => return Ok(()),
                Err(Miss::Fatal(error)) => return Err(error),
                Err(Miss::Again { server, piece, why }) => {
                    tracing::debug!(server, piece, why, "a region was not mapped yet");
                    if self.now() >= deadline {
                        let name = inner.regions[index].name.clone();
                        return Err(StoreError::ServerLost { server, name, piece, why });
                    }
                    std::thread::sleep(AGAIN_PAUSE);
                    inner.io.poll();
                }
            }
        }
    }

    /// Waits for what is in flight on a region, and gives its mappings back.
    pub(super) fn give_back(&self, inner: &mut Inner, index: usize) {
        loop {
            inner.io.poll();
            self.advance(inner);
            if !inner.io.in_flight_of(index) {
                break;
            }
            inner.io.wait(DRAIN_LOOK);
        }
        let links = std::mem::take(&mut inner.regions[index].links);
        inner.regions[index].pieces.clear();
        let (region, token) = (inner.regions[index].id, self.token_of(&inner.regions[index]));
        let group = inner.regions[index].group;
        for index in links {
            let Some(link) = inner.io.links.get_mut(index) else { continue };
            if link.is_up && !link.line.is_lost() {
                // A refusal or a lost link: the daemon ends the mappings itself.
                let _ = link.line.call(&Request::Unmap { region, group }, &token);
            }
            link.users -= 1;
            inner.io.forget_unused(index);
        }
    }

    pub(super) fn token_of(&self, mapped: &Mapped) -> Token {
        match (&mapped.token, &self.options.key) {
            (Some(token), _) => token.clone(),
            (None, Some(key)) => {
                self.issue(key, mapped.id, mapped.record.generation, mapped.rights)
            }
            (None, None) => unreachable!("a region is mapped by a token or by the key"),
        }
    }

    fn try_map(&self, inner: &mut Inner, index: usize) -> Result<(), Miss> {
        let (name, id) = (inner.regions[index].name.clone(), inner.regions[index].id);
        let (record, version) = self.record(&name)?;
        if record.id != id {
            return Err(StoreError::NoRegion(name).into());
        }
        if record.state != RegionState::Ready {
            return Err(StoreError::NotReady(name).into());
        }
        inner.regions[index].record = record.clone();
        let token = self.token_of(&inner.regions[index]);
        let links = self.link_all(inner, &name, (&record, version), &token)?;
        let again = |why: &str| Miss::Again { server: String::new(), piece: 0, why: why.into() };
        if self.record(&name)?.1 != version {
            return Err(again("its record has changed"));
        }
        let (rights, group) = (inner.regions[index].rights, inner.regions[index].group);
        let way = (&token, rights, group);
        let mapped = self.map_pieces(inner, (&name, &record, version), &links, way);
        // Noted even where mapping failed: what was mapped is given back then.
        let mut used: Vec<usize> = links.iter().flatten().copied().collect();
        used.sort_unstable();
        used.dedup();
        used.iter().for_each(|link| inner.io.links[*link].users += 1);
        inner.regions[index].links = used;
        match mapped {
            Ok((pieces, can_commit, losses)) => {
                let region = &mut inner.regions[index];
                region.unconfirmed.mapped(losses);
                region.pieces = pieces;
                region.can_commit = can_commit;
                region.is_stale = false;
                let renews = region.token.is_none();
                region.renew_at = renews.then(|| self.now() + TOKEN_LIFETIME / 2);
                Ok(())
            }
            Err(miss) => {
                self.give_back(inner, index);
                Err(miss)
            }
        }
    }

    /// The links to the servers of all copies that are used, by piece and copy.
    fn link_all(
        &self,
        inner: &mut Inner,
        name: &str,
        (record, version): (&RegionRecord, u64),
        token: &Token,
    ) -> Result<Vec<Vec<usize>>, Miss> {
        let mut links = Vec::with_capacity(record.pieces.len());
        for (number, piece) in (0_u32..).zip(&record.pieces) {
            let mut of_piece = Vec::with_capacity(piece.copies.len());
            for copy in piece.copies.iter().filter(|copy| copy.state != CopyState::Stale) {
                let error = match self.link(inner, &copy.server, token) {
                    Ok(link) => {
                        of_piece.push(link);
                        continue;
                    }
                    Err(error) => error,
                };
                if let StoreError::Server { source, .. } = &error
                    && source.status().is_some_and(is_for_good)
                {
                    return Err(error.into());
                }
                let others = piece
                    .copies
                    .iter()
                    .any(|other| other.server != copy.server && other.state == CopyState::InSync);
                let server = copy.server.clone();
                if others && let Verdict::Dead(dead) = self.declare_lost(&server)? {
                    self.note_stale(name, (record, version), &server, dead)?;
                }
                return Err(Miss::Again { server, piece: number, why: error.to_string() });
            }
            links.push(of_piece);
        }
        Ok(links)
    }

    fn map_pieces(
        &self,
        inner: &Inner,
        (name, record, version): (&str, &RegionRecord, u64),
        links: &[Vec<usize>],
        (token, rights, group): (&Token, Rights, u64),
    ) -> Result<(Vec<PieceMap>, bool, Losses), Miss> {
        let mut pieces = Vec::with_capacity(record.pieces.len());
        let mut all_losses = Losses::with_capacity(record.pieces.len());
        let mut can_commit = true;
        for ((number, piece), links) in (0_u32..).zip(&record.pieces).zip(links) {
            // Of a region with copies, whichever of them are in sync at present: another may be filled at any time, and go on
            // without this one.
            let mut mapped = PieceMap { has_others: record.copies > 1, ..PieceMap::default() };
            let mut of_piece = Vec::new();
            let used = piece.copies.iter().filter(|copy| copy.state != CopyState::Stale);
            for (copy, link) in used.zip(links) {
                let line = &inner.io.links[*link].line;
                line.show(token);
                let request = Request::Map {
                    connection: inner.io.links[*link].connection,
                    region: record.id,
                    piece: number,
                    rights,
                    epoch: record.epoch,
                    group,
                };
                let again =
                    |why: String| Miss::Again { server: copy.server.clone(), piece: number, why };
                match line.call(&request, token) {
                    Ok(Answer::Mapped { rkey, class, base, len, emulated, losses, .. }) => {
                        let fits = base.checked_add(len).is_some();
                        if !fits || len != record.striping().piece_len(number) {
                            return Err(again(format!("the piece has {len} bytes there")));
                        }
                        can_commit &= class > 1 || emulated == 1;
                        let target = Target { link: *link, rkey: Rkey(rkey), base };
                        match copy.state {
                            CopyState::InSync => {
                                mapped.in_sync.push(target);
                                of_piece.push((copy.server.clone(), losses));
                            }
                            _ => mapped.syncing.push(target),
                        }
                    }
                    Ok(_) => return Err(again("it answers nonsense".into())),
                    Err(CallError::Refused { status: Status::NO_PIECE, .. }) => {
                        let others = piece.copies.iter().any(|other| {
                            other.server != copy.server && other.state == CopyState::InSync
                        });
                        if others {
                            self.note_missing(name, (record, version), number, &copy.server)?;
                        }
                        return Err(again(Status::NO_PIECE.to_string()));
                    }
                    Err(error) => return Err(miss_of(error, &copy.server, number)),
                }
            }
            pieces.push(mapped);
            all_losses.push(of_piece);
        }
        Ok((pieces, can_commit, all_losses))
    }

    /// An up link to a server; a new one where there is none.
    pub(super) fn link(
        &self,
        inner: &mut Inner,
        server: &str,
        token: &Token,
    ) -> Result<usize, StoreError> {
        let found = inner.io.links.keys().find(|index| {
            let link = &inner.io.links[*index];
            link.is_up && !link.line.is_lost() && link.line.server == server
        });
        if let Some(found) = found {
            return Ok(found);
        }
        let unreachable = |why: String| StoreError::Unreachable { server: server.to_owned(), why };
        let address = self.control_address(server)?;
        let failed = |source| StoreError::Server { server: server.to_owned(), source };
        let control = Control::connect(address, &self.options.environment, DIAL_PATIENCE);
        let control = control.map_err(failed)?;
        let clock = &self.options.environment.clock;
        let line = Arc::new(Line::new(server, control, token.clone(), clock));
        let answer = line.call(&Request::Invite, token).map_err(failed)?;
        let Answer::Invited { token: invitation, address } = answer else {
            return Err(unreachable("it answers nonsense".into()));
        };
        let qp = inner.io.dial(address, &invitation).map_err(unreachable)?;
        let deadline = self.now() + DIAL_PATIENCE;
        let connection = loop {
            inner.io.poll();
            if let Some(connection) = outcome(&mut inner.io.news, qp).map_err(unreachable)? {
                break connection;
            }
            if self.now() >= deadline {
                inner.io.engine.disconnect(qp);
                return Err(unreachable("no answer".into()));
            }
            inner.io.wait(DRAIN_LOOK);
        };
        let index = inner.io.adopt(Arc::clone(&line), qp, connection).map_err(unreachable)?;
        line.ping();
        self.keep(line)?;
        Ok(index)
    }

    /// Starts the thread that pings.
    fn keep(&self, line: Arc<Line>) -> Result<(), StoreError> {
        let (waker, shared) = (self.waker.clone(), self.own.clone());
        let look = move || {
            let Some(shared) = shared.upgrade() else { return };
            // Who holds the lock looks as well, before its next operation.
            shared.has_news.store(true, Ordering::Release);
            if let Ok(mut inner) = shared.inner.try_lock() {
                shared.attend(&mut inner);
            }
        };
        let thread = std::thread::Builder::new().name("store-ping".into());
        let started = thread.spawn(move || link::keep(&line, &waker, look));
        started
            .map(drop)
            .map_err(|error| StoreError::Host { what: "thread", why: error.to_string() })
    }

    pub(super) fn control_address(&self, server: &str) -> Result<std::net::SocketAddr, StoreError> {
        let unreachable =
            |why: &str| StoreError::Unreachable { server: server.to_owned(), why: why.to_owned() };
        let key = format!("servers/{server}");
        let entry = self.options.meta.get(&key)?.ok_or_else(|| unreachable("it has no record"))?;
        let record = ServerRecord::parse(&entry.value);
        let record = record.map_err(|source| StoreError::Record { key, source })?;
        match record.state {
            ServerState::Alive => Ok(record.control),
            ServerState::Dead => Err(unreachable("it was declared dead, or has stopped")),
        }
    }

    /// Notes in a region's record that a server has lost a copy, of which there are others in sync.
    fn note_missing(
        &self,
        name: &str,
        (record, version): (&RegionRecord, u64),
        piece: u32,
        server: &str,
    ) -> Result<(), StoreError> {
        let mut changed = record.clone();
        let piece = usize::try_from(piece).ok().and_then(|at| changed.pieces.get_mut(at));
        let copies = piece.into_iter().flat_map(|piece| &mut piece.copies);
        for copy in copies.filter(|copy| copy.server == server) {
            copy.state = CopyState::Stale;
        }
        let (key, value) = (format!("regions/{name}"), changed.emit());
        let change = Change { key: &key, value: Some(&value), durable: true };
        self.options.meta.swap(change, &[(&key, Some(version))])?;
        Ok(())
    }

    /// Maps regions again whose epoch has passed at a daemon or whose token ends, as far as nothing of theirs is in
    /// flight.
    pub(super) fn attend(&self, inner: &mut Inner) {
        let mut passed: Vec<RegionId> = Vec::new();
        for index in inner.io.links.keys().collect::<Vec<_>>() {
            passed.extend(inner.io.links[index].line.take_passed());
        }
        let now = self.now();
        for index in inner.regions.keys().collect::<Vec<_>>() {
            let region = &mut inner.regions[index];
            region.is_stale |= passed.contains(&region.id);
            region.is_stale |= region.renew_at.is_some_and(|when| when <= now);
            if region.is_stale
                && let Err(error) = self.map_again(inner, index)
            {
                // The next operation finds no copy, and reports why.
                tracing::warn!(region = inner.regions[index].name, %error, "a region was not mapped again");
            }
        }
    }
}

/// Whether a daemon that lives refuses this client, for the same reason however often it asks.
fn is_for_good(status: Status) -> bool {
    let transient = [Status::EPOCH, Status::NO_LEASE, Status::HOST, Status::LIMIT];
    !transient.contains(&status)
}

fn miss_of(error: CallError, server: &str, piece: u32) -> Miss {
    match error.status() {
        Some(Status::FENCED) => Miss::Fatal(StoreError::Fenced),
        Some(status) if is_for_good(status) => {
            Miss::Fatal(StoreError::Server { server: server.to_owned(), source: error })
        }
        _ => Miss::Again { server: server.to_owned(), piece, why: error.to_string() },
    }
}

/// What became of a dial, if anything yet: the daemon's number of the connection.
fn outcome(news: &mut Vec<Event>, qp: rdma::QpId) -> Result<Option<u64>, String> {
    for event in news.drain(..) {
        match event {
            Event::Established { qp: of, private_data } if of == qp => {
                let number = private_data.try_into().map(u64::from_le_bytes);
                return number.map(Some).map_err(|_| "it answers nonsense".to_owned());
            }
            Event::ConnectFailed { qp: of, reason, .. } if of == qp => {
                return Err(format!("{reason:?}"));
            }
            Event::Disconnected { qp: of, reason } if of == qp => return Err(reason.to_string()),
            _ => {}
        }
    }
    Ok(None)
}

/// By piece: the servers of its copies in sync, and how often each may have lost bytes.
type Losses = Vec<Vec<(String, u64)>>;

const DIAL_PATIENCE: Duration = Duration::from_millis(1000);
const AGAIN_PAUSE: Duration = Duration::from_millis(20);
const DRAIN_LOOK: Duration = Duration::from_millis(10);
/// Times the patience of a client that an operation may fail, be issued again and fail: an atomic one waits for a rebuild.
const TURNS_MAX: u32 = 3;
