//! The client's side: a [`Store`], and the [`Region`]s that it maps.
//!
//! ```text
//!   Store      open, create, list, free, map         (metadata, control messages)
//!   Region     read, write, atomics, notify          (region.rs)
//!   mapping    which copies a region is mapped at    (mapping.rs; after a loss, a new epoch)
//!   io         parts, completions                    (io.rs; asks nobody but daemons)
//! ```

mod control;
mod io;
mod joining;
mod link;
mod loss;
mod mapping;
mod membership;
mod notes;
mod notes_line;
mod rebuild;
mod region;
mod setup;
mod slab;
mod staging;
mod unconfirmed;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant, UNIX_EPOCH};

use basics::Environment;
use rdma::{EngineConfig, PollPolicy, ProviderChoice, Waker};

use self::control::CALL_PATIENCE;
pub use self::control::CallError;
use self::io::{Io, Kind, PieceMap};
use self::membership::Membership;
pub use self::rebuild::Rebuilt;
pub use self::region::{Completion, OUTSTANDING_MAX, Outcome, Region, Ticket};
pub use self::setup::Allocation;
use self::slab::Slab;
use crate::error::StoreError;
use crate::ids::{ClientId, RegionId};
use crate::layout::{Segment, wide};
use crate::meta::Meta;
use crate::meta::record::RegionRecord;
use crate::token::{Claims, Rights, StoreKey, Token};

/// How to open a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The metadata.
    pub meta: Arc<dyn Meta>,
    /// The store's key; without it regions are mapped by tokens, and none is made or removed.
    pub key: Option<StoreKey>,
    /// What does RDMA.
    pub provider: ProviderChoice,
    /// How the RDMA engine waits.
    pub polling: PollPolicy,
    /// After this time without a sign of life this client may be declared dead: what it owns is removed.
    pub lease: Duration,
    /// How long an operation may wait for servers that are lost before it fails.
    pub patience: Duration,
    /// Clock and random numbers.
    pub environment: Environment,
}

impl StoreOptions {
    /// The defaults.
    pub fn new(meta: Arc<dyn Meta>, key: Option<StoreKey>) -> Self {
        Self {
            meta,
            key,
            provider: ProviderChoice::Soft,
            polling: PollPolicy::Adaptive,
            lease: CLIENT_LEASE,
            patience: PATIENCE,
            environment: Environment::host(),
        }
    }
}

/// A store, and this process as a client of it. Clones are the same client.
///
/// All regions of a store share one RDMA engine, which whichever thread waits for an operation drives. Threads that are to
/// run apart open a store each.
#[derive(Clone, Debug)]
pub struct Store(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: StoreOptions,
    client: ClientId,
    inner: Mutex<Inner>,
    waker: Waker,
    /// Threads that wait for `inner`.
    contenders: AtomicUsize,
    membership: Membership,
    closed: AtomicBool,
    /// The regions that this client is filling.
    rebuilding: Mutex<BTreeSet<String>>,
    /// A ping has been answered since somebody looked.
    has_news: AtomicBool,
    /// This very value, for the threads that ping.
    own: Weak<Self>,
}

#[derive(Debug)]
struct Inner {
    io: Io,
    regions: Slab<Mapped>,
    /// The last number of a mapping.
    groups: u64,
}

/// A region of this client.
#[derive(Debug)]
struct Mapped {
    name: String,
    id: RegionId,
    record: RegionRecord,
    rights: Rights,
    /// By this number its pieces are given back, and no others of the same region.
    group: u64,
    /// What was given instead of a key.
    token: Option<Token>,
    pieces: Vec<PieceMap>,
    /// The links on which it is mapped.
    links: Vec<usize>,
    /// What all copies do beyond writes and reads.
    can_commit: bool,
    /// When it is to be mapped again because its token ends.
    renew_at: Option<Instant>,
    /// It is to be mapped again before the next operation.
    is_stale: bool,
    /// Submitted operations that are over and not taken.
    done: VecDeque<usize>,
    /// Submitted operations that are not taken.
    submitted: usize,
    /// The last ticket.
    tickets: u64,
    /// What was written and not made durable.
    unconfirmed: unconfirmed::Unconfirmed,
}

impl Store {
    /// Opens a store. Nothing is asked of the metadata yet.
    ///
    /// # Errors
    /// This machine gives no RDMA engine, thread, memory or random numbers.
    pub fn open(options: StoreOptions) -> Result<Self, StoreError> {
        let host = |what| move |why: String| StoreError::Host { what, why };
        let environment = options.environment.clone();
        let config = EngineConfig {
            polling: options.polling,
            environment: environment.clone(),
            ..EngineConfig::default()
        };
        let engine = options.provider.provider().open_engine(config);
        let engine = engine.map_err(|error| host("RDMA engine")(error.to_string()))?;
        let waker = engine.waker();
        let client = ClientId(random(&environment)?);
        let inner = Inner { io: Io::new(engine)?, regions: Slab::default(), groups: 0 };
        let membership = Membership::new(client, &options.meta, options.lease);
        Ok(Self(Arc::new_cyclic(|own| Shared {
            options,
            client,
            inner: Mutex::new(inner),
            waker,
            contenders: AtomicUsize::new(0),
            membership,
            closed: AtomicBool::new(false),
            rebuilding: Mutex::default(),
            has_news: AtomicBool::new(false),
            own: own.clone(),
        })))
    }

    /// This client.
    pub fn client(&self) -> ClientId {
        self.0.client
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        match self.inner.try_lock() {
            Ok(inner) => return inner,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
        self.contenders.fetch_add(1, Ordering::AcqRel);
        // The holder may be waiting for events.
        self.waker.wake();
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.contenders.fetch_sub(1, Ordering::AcqRel);
        inner
    }

    fn now(&self) -> Instant {
        self.options.environment.clock.now()
    }

    fn now_ms(&self) -> u64 {
        let now = self.options.environment.clock.time_of_day();
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn key(&self, what: &'static str) -> Result<&StoreKey, StoreError> {
        self.options.key.as_ref().ok_or(StoreError::NeedsKey(what))
    }

    /// A token of this client, by the store's key.
    fn issue(&self, key: &StoreKey, region: RegionId, generation: u64, rights: Rights) -> Token {
        let lifetime = u64::try_from(TOKEN_LIFETIME.as_millis()).unwrap_or(u64::MAX);
        let expires_ms = self.now_ms().saturating_add(lifetime);
        key.issue(Claims { region, client: self.client, expires_ms, generation, rights })
    }

    /// One round of work.
    fn drive(&self, inner: &mut Inner) {
        inner.io.poll();
        self.advance(inner);
        if !inner.io.failed.is_empty() {
            self.repair(inner);
        }
    }

    /// Takes operations whose phase is over to the next one, or to their end.
    fn advance(&self, inner: &mut Inner) {
        while let Some(id) = inner.io.over.pop_front() {
            if has_more(inner, id) {
                issue(inner, id);
                continue;
            }
            let op = &mut inner.io.ops[id];
            op.is_over = true;
            if op.is_queued {
                let region = op.region;
                inner.regions[region].done.push_back(id);
            }
        }
    }

    /// Drives until `is_done`, in turns with other threads.
    fn await_done(&self, mut is_done: impl FnMut(&mut Inner) -> bool) {
        loop {
            let mut inner = self.lock();
            self.drive(&mut inner);
            if is_done(&mut inner) {
                return;
            }
            inner.io.wait(LOOK_EVERY);
            drop(inner);
            while self.contenders.load(Ordering::Acquire) > 0 {
                std::thread::yield_now();
            }
        }
    }
}

/// Issues the phase of an operation at the copies at which its region is mapped.
fn issue(inner: &mut Inner, id: usize) {
    let Inner { io, regions, .. } = inner;
    let (region, kind, offset, len) = {
        let op = &io.ops[id];
        (op.region, op.kind, op.offset, op.len)
    };
    match kind {
        Kind::Write { durable: false } => regions[region].unconfirmed.add(offset, wide(len)),
        kind if kind.is_atomic() => regions[region].unconfirmed.add(offset, 8),
        _ => {}
    }
    let mapped = &regions[region];
    let striping = mapped.record.striping();
    match kind {
        Kind::ReadFirst { piece } | Kind::Fill { piece, .. } => {
            let segment = Segment { piece, offset, at: 0, len };
            io.issue(id, &mapped.pieces, std::iter::once(segment));
        }
        Kind::Commit => {
            // One flush for all that lies in a piece, bytes between the units of the range included.
            let mut spans: BTreeMap<u32, Range<u64>> = BTreeMap::new();
            for segment in striping.segments(offset, len, usize::MAX) {
                let end = segment.offset + wide(segment.len);
                let span = spans.entry(segment.piece).or_insert(segment.offset..end);
                *span = span.start.min(segment.offset)..span.end.max(end);
            }
            let flushes = spans.into_iter().flat_map(|(piece, span)| {
                let starts = (span.start..span.end).step_by(FLUSH_MAX);
                starts.map(move |offset| {
                    let left = usize::try_from(span.end - offset).unwrap_or(FLUSH_MAX);
                    Segment { piece, offset, at: 0, len: left.min(FLUSH_MAX) }
                })
            });
            io.issue(id, &mapped.pieces, flushes);
        }
        Kind::FetchAdd { .. } | Kind::CompareSwap { .. } => {
            io.issue(id, &mapped.pieces, striping.segments(offset, 8, 8));
        }
        Kind::Read | Kind::Write { .. } => {
            io.issue(id, &mapped.pieces, striping.segments(offset, len, staging::PART_MAX));
        }
    }
}

/// Whether an operation whose phase is over has another one.
fn has_more(inner: &Inner, id: usize) -> bool {
    let Inner { io, regions, .. } = inner;
    let op = &io.ops[id];
    let mapped = &regions[op.region];
    let touched = |len| {
        let segments = mapped.record.striping().segments(op.offset, len, usize::MAX);
        segments.filter_map(|segment| mapped.pieces.get(usize::try_from(segment.piece).ok()?))
    };
    match op.kind {
        Kind::Read | Kind::ReadFirst { .. } | Kind::Fill { .. } => false,
        Kind::Write { .. } | Kind::Commit => {
            op.phase == 1 && touched(op.len).any(|piece| !piece.syncing.is_empty())
        }
        Kind::FetchAdd { .. } | Kind::CompareSwap { .. } => {
            touched(8).any(|piece| io.next_change(id, piece).is_some())
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        inner.io.links.values().for_each(|link| link.line.end());
        self.membership.leave();
    }
}

fn random(environment: &Environment) -> Result<u64, StoreError> {
    let mut bytes = [0; 8];
    let drawn = environment.random.fill(&mut bytes);
    drawn.map_err(|error| StoreError::Host { what: "random numbers", why: error.to_string() })?;
    // 0 has a meaning of its own.
    Ok(u64::from_le_bytes(bytes).max(1))
}

/// Bytes of one flush: its length has 32 bits.
const FLUSH_MAX: usize = 1 << 30;
/// The lease of a client, unless its program wants another.
pub const CLIENT_LEASE: Duration = Duration::from_secs(5);
/// How long an operation waits for servers that are lost, unless its program wants it otherwise.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long the tokens are good that a client with the key makes for itself; it makes new ones in time.
const TOKEN_LIFETIME: Duration = Duration::from_secs(3600);
/// How often a waiting thread looks whether a link is lost.
const LOOK_EVERY: Duration = Duration::from_millis(20);
