//! One control connection: greeting, then requests, each proven by a token, one after the other.
//!
//! Every right is decided in [`Session::admit`]: the proof, the token's time, the fence, and what the token allows. What
//! follows may rely on it.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rdma::Access;
use remote::host::PushConnection;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::maps::Mapping;
use super::parts::{Parts, Stranger, now_ms, push_class};
use super::pieces::{HEADER_LEN, Header};
use crate::ids::RegionId;
use crate::token::{Claims, Rights, Token};
use crate::wire::{
    Answer, GRACE, NONCE_LEN, Nonces, REPLY_LEN, REQUEST_MAX, Request, SILENCE_MAX, Sealed, Status,
    WAIT_MAX, greet, parse_reply,
};

/// See the module.
pub(super) struct Session {
    parts: Arc<Parts>,
    id: u64,
    nonces: Nonces,
    sequence: u64,
    incarnation: u64,
    local: SocketAddr,
    /// RDMA connections on which this session has mapped.
    connections: HashSet<PushConnection>,
    /// Until the first request that is proven.
    stranger: Option<Stranger>,
}

impl Session {
    /// Serves a connection until it ends.
    pub(super) async fn serve(
        parts: Arc<Parts>,
        id: u64,
        mut stream: TcpStream,
        stranger: Stranger,
    ) {
        let Ok(mut session) = Self::begin(&parts, id, &mut stream).await else { return };
        session.stranger = Some(stranger);
        while let Ok(Some(frame)) = read_frame(&mut stream).await {
            let Some((answer, goes_on)) = session.answer(&frame).await else { break };
            // One who takes no answers holds nothing here for longer than one who says nothing.
            let written = timeout(SILENCE_MAX, stream.write_all(&answer)).await;
            if !matches!(written, Ok(Ok(()))) || !goes_on {
                break;
            }
        }
        parts.maps.end(|mapping| mapping.session == id).await;
        parts.gate.void(|bearer| *bearer == id);
        for connection in session.connections {
            let _ = parts.handle.disconnect(connection).await;
        }
    }

    async fn begin(parts: &Arc<Parts>, id: u64, stream: &mut TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let mut daemon = [0; NONCE_LEN];
        parts.environment.random.fill(&mut daemon).map_err(io::Error::other)?;
        let incarnation = parts.lease.incarnation();
        let mut reply = [0; REPLY_LEN];
        let greeted = async {
            stream.write_all(&greet(&daemon, incarnation)).await?;
            stream.read_exact(&mut reply).await
        };
        timeout(GREETING_PATIENCE, greeted).await.map_err(io::Error::from)??;
        let client = parse_reply(&reply).ok_or(io::ErrorKind::InvalidData)?;
        let nonces = Nonces { daemon, client };
        let (parts, local) = (Arc::clone(parts), stream.local_addr()?);
        let connections = HashSet::new();
        let stranger = None;
        Ok(Self { parts, id, nonces, sequence: 0, incarnation, local, connections, stranger })
    }

    /// The answer as a frame, and whether the connection goes on after it; `None` ends it at once.
    async fn answer(&mut self, frame: &[u8]) -> Option<(Vec<u8>, bool)> {
        let sealed = Sealed::parse(frame)?;
        // A request of this connection that somebody sends once more has a sequence that is past.
        if sealed.sequence != self.sequence {
            return None;
        }
        self.sequence += 1;
        let token = self.parts.key.issue(sealed.claims);
        let refusal = |status, detail| Answer::Refused { status, detail };
        let Some(request) = sealed.open(&token, &self.nonces) else {
            // Nothing is known of this peer: it gets one answer, and its place is free for others.
            let denied = refusal(Status::DENIED, 0).seal(sealed.sequence, None, &self.nonces);
            return Some((denied, false));
        };
        self.stranger = None;
        let answer = match self.admit(&request, &sealed.claims) {
            Ok(()) => self.carry_out(request, &token).await,
            Err(status) => Err((status, 0)),
        };
        let answer = answer.unwrap_or_else(|(status, detail)| refusal(status, detail));
        Some((answer.seal(sealed.sequence, Some(&token), &self.nonces), true))
    }

    /// Whether the claims, which are proven, allow the request now.
    fn admit(&self, request: &Request, claims: &Claims) -> Result<(), Status> {
        if claims.expires_ms <= self.now_ms() {
            return Err(Status::EXPIRED);
        }
        if self.parts.is_fenced(claims.client) {
            return Err(Status::FENCED);
        }
        let is_of = |region: RegionId| claims.region == region || claims.region == RegionId(0);
        let uses = Rights::READ | Rights::WRITE;
        let is_allowed = match *request {
            Request::Invite | Request::Ping => true,
            Request::Map { region, rights, .. } => {
                is_of(region) && !rights.is_empty() && (claims.rights & uses).contains(rights)
            }
            Request::Wait { region, .. } | Request::Unmap { region, .. } => {
                is_of(region) && claims.rights.intersects(uses)
            }
            Request::Notify { region, .. } => {
                is_of(region) && claims.rights.contains(Rights::WRITE)
            }
            Request::Create { region, .. }
            | Request::Remove { region }
            | Request::Epoch { region, .. } => {
                is_of(region) && claims.rights.contains(Rights::ADMIN)
            }
            Request::Fence { .. } => is_of(RegionId(0)) && claims.rights.contains(Rights::ADMIN),
        };
        if is_allowed { Ok(()) } else { Err(Status::DENIED) }
    }

    async fn carry_out(
        &mut self,
        request: Request,
        token: &Token,
    ) -> Result<Answer, (Status, u64)> {
        let parts = Arc::clone(&self.parts);
        let plain = |status| (status, 0);
        match request {
            Request::Invite => self.invite(),
            Request::Ping => Ok(self.pong()),
            Request::Map { .. } => self.map(request, token.claims()).await,
            Request::Create { region, piece, replace, len, epoch, generation } => {
                let header = Header { region, piece, len, epoch, generation };
                let holder = Arc::clone(&parts);
                let made = blocking(move || holder.pieces.create(header, replace)).await;
                made.map_err(|status| {
                    let there = parts.pieces.get(region, piece).map(|one| one.header().epoch);
                    (status, there.filter(|_| status == Status::EPOCH).unwrap_or(0))
                })?;
                // Of a piece that was replaced; its bytes are no copy any more.
                let is_old =
                    |one: &Mapping| (one.region, one.piece) == (region, piece) && one.epoch < epoch;
                parts.maps.end(is_old).await;
                Ok(Answer::Done)
            }
            Request::Remove { region } => {
                parts.maps.end(|mapping| mapping.region == region).await;
                parts.notes.forget(region);
                let keys: Vec<_> = parts
                    .pieces
                    .of(region)
                    .iter()
                    .map(|one| (region, one.header().piece))
                    .collect();
                let holder = Arc::clone(&parts);
                blocking(move || {
                    holder.pieces.remove(&keys);
                    Ok(())
                })
                .await
                .map_err(plain)?;
                // Those that found the piece while it was still there.
                parts.maps.end(|mapping| mapping.region == region).await;
                Ok(Answer::Done)
            }
            Request::Epoch { region, epoch, generation } => {
                raise(&parts, region, epoch, generation).await.map_err(plain)?;
                Ok(Answer::Done)
            }
            Request::Notify { region, channel, add } => {
                self.check_region(region)?;
                let count = parts.notes.add(region, channel, add).map_err(plain)?;
                Ok(Answer::Count { count })
            }
            Request::Wait { region, channel, patience_ms, seen } => {
                self.check_region(region)?;
                let patience = Duration::from_millis(patience_ms.into()).min(WAIT_MAX);
                let count = parts.notes.above(region, channel, seen, patience).await;
                count.map(|count| Answer::Count { count }).map_err(plain)
            }
            Request::Unmap { region, group } => {
                let session = self.id;
                let is_meant = |one: &Mapping| {
                    (one.session, one.region, one.group) == (session, region, group)
                };
                parts.maps.end(is_meant).await;
                Ok(Answer::Done)
            }
            Request::Fence { client } => {
                parts.fence(client);
                parts.maps.end(|mapping| mapping.client == client).await;
                Ok(Answer::Done)
            }
        }
    }

    fn check_region(&self, region: RegionId) -> Result<(), (Status, u64)> {
        let is_here = !self.parts.pieces.of(region).is_empty();
        if is_here { Ok(()) } else { Err((Status::NO_PIECE, 0)) }
    }

    fn invite(&self) -> Result<Answer, (Status, u64)> {
        let token = self.parts.gate.issue(self.id).map_err(|_| (Status::LIMIT, 0))?;
        let mut address = self.parts.handle.address();
        if address.ip().is_unspecified() {
            address.set_ip(self.local.ip());
        }
        Ok(Answer::Invited { token: *token.expose(), address })
    }

    fn pong(&self) -> Answer {
        // A client that came to an earlier incarnation learns nothing from the lease of this one.
        let is_same = self.parts.lease.incarnation() == self.incarnation;
        let left = if is_same { self.parts.lease.left() } else { Duration::ZERO };
        let lease_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        let passed = self.parts.maps.passed(self.id, |mapping| {
            let header = self.parts.pieces.get(mapping.region, mapping.piece)?.header();
            (header.epoch > mapping.epoch).then_some(header.epoch)
        });
        Answer::Pong { lease_ms, passed }
    }

    async fn map(&mut self, request: Request, claims: &Claims) -> Result<Answer, (Status, u64)> {
        let Request::Map { connection, region, piece, rights, epoch, group } = request else {
            return Err((Status::MALFORMED, 0));
        };
        let plain = |status| (status, 0);
        let parts = Arc::clone(&self.parts);
        let connection = PushConnection(connection);
        // Nobody maps on the connection of another.
        if parts.gate.bearer(connection) != Some(self.id) {
            return Err(plain(Status::DENIED));
        }
        self.connections.insert(connection);
        if parts.lease.left().is_zero() || parts.lease.incarnation() != self.incarnation {
            return Err(plain(Status::NO_LEASE));
        }
        let found = parts.pieces.get(region, piece).ok_or_else(|| plain(Status::NO_PIECE))?;
        let may = |claims: &Claims| {
            let header = found.header();
            if claims.region != RegionId(0) && claims.generation < header.generation {
                return Err((Status::REVOKED, 0));
            }
            if epoch < header.epoch { Err((Status::EPOCH, header.epoch)) } else { Ok(()) }
        };
        may(claims)?;
        let emulate = parts.emulate_persistence;
        let opened = Arc::clone(&found);
        let medium = blocking(move || opened.medium(emulate)).await.map_err(plain)?;
        let range = HEADER_LEN..HEADER_LEN + found.header().len;
        let registered =
            parts.handle.register(connection, Arc::clone(&medium), range, access(rights)).await;
        let memory = registered.map_err(|error| {
            tracing::warn!(%error, %region, piece, "a piece was not registered");
            plain(Status::HOST)
        })?;
        let mapping = Mapping {
            session: self.id,
            client: claims.client,
            region,
            piece,
            group,
            epoch,
            generation: if claims.region == RegionId(0) { u64::MAX } else { claims.generation },
            expires_ms: claims.expires_ms,
            connection,
            rkey: memory.rkey,
        };
        // The epoch, the fence, the incarnation or the piece itself may have gone meanwhile.
        let is_late = || {
            may(claims).is_err()
                || parts.lease.incarnation() != self.incarnation
                || parts.lease.is_lost()
                || parts.is_fenced(claims.client)
                || parts.pieces.get(region, piece).is_none_or(|now| !Arc::ptr_eq(&now, &found))
        };
        if !parts.maps.add(mapping, is_late) {
            let _ = parts.handle.deregister(connection, memory.rkey).await;
            may(claims)?;
            return Err(plain(Status::LIMIT));
        }
        Ok(Answer::Mapped {
            rkey: memory.rkey.0,
            class: push_class(medium.class()),
            base: memory.remote_addr_base,
            len: memory.len,
            offers: u32::from(memory.offers.bits()),
            emulated: u32::from(medium.is_emulated()),
            losses: parts.losses,
        })
    }

    fn now_ms(&self) -> u64 {
        now_ms(&self.parts)
    }
}

/// Raises epoch and generation of a region, and returns when no mapping of an earlier one is left.
async fn raise(
    parts: &Arc<Parts>,
    region: RegionId,
    epoch: u64,
    generation: u64,
) -> Result<(), Status> {
    let pieces = parts.pieces.of(region);
    if pieces.is_empty() {
        return Err(Status::NO_PIECE);
    }
    blocking(move || {
        let raised = pieces.iter().try_for_each(|piece| piece.raise(epoch, generation));
        raised.map_err(|error| {
            tracing::error!(%region, %error, "a header was not written");
            Status::HOST
        })
    })
    .await?;
    // What was revoked ends at once; who only has to map again is told, and has some time.
    parts.maps.end(|one| one.region == region && one.generation < generation).await;
    let is_old = |one: &Mapping| one.region == region && one.epoch < epoch;
    if timeout(GRACE, parts.maps.await_none(is_old)).await.is_err() {
        let ended = parts.maps.end(is_old).await;
        tracing::info!(%region, ended, "mappings of an earlier epoch were ended");
    }
    // Those that another task was ending are over too.
    parts.maps.await_none(is_old).await;
    Ok(())
}

/// What the engine lets the client do.
fn access(rights: Rights) -> Access {
    let mut access = Access::empty();
    if rights.contains(Rights::READ) {
        access |= Access::REMOTE_READ;
    }
    if rights.contains(Rights::WRITE) {
        access |= Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC
            | Access::FLUSH_VISIBILITY
            | Access::FLUSH_PERSISTENCE;
    }
    access
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Status::HOST))
}

/// The next frame without its length; `None`: the client has closed.
async fn read_frame(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let read = async {
        let mut len = [0; 4];
        match stream.read_exact(&mut len).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        };
        let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX);
        if len > REQUEST_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut frame = vec![0; len];
        stream.read_exact(&mut frame).await?;
        Ok(Some(frame))
    };
    timeout(SILENCE_MAX, read).await.map_err(io::Error::from)?
}

/// How long a client may take for the greeting.
pub const GREETING_PATIENCE: Duration = Duration::from_secs(5);
