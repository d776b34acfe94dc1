//! Registered memory for RDMA Reads, and the bound on all of it.
//!
//! Each connection has a private region: the peer learns its key with every RDMA Read and must not
//! be able to reach another connection's bytes with it. The connection takes the region when it
//! first needs it, and returns the region when it is idle while another connection waits.
//!
//! Users have fair shares of the memory ([`FairShare`]): a user who holds it for ever, by never serving a
//! Read, excludes no other user.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pmem::Medium;
use rdma::{Access, Engine, LocalSlice, MemoryRegion, QpId};

use super::error::End;
use super::table::DirectId;
use crate::service::Core;
use crate::state::fair_share::FairShare;

/// The staging memory of one connection.
#[derive(Debug)]
pub(super) struct Staging {
    qp: QpId,
    medium: Arc<dyn Medium>,
    region: MemoryRegion,
    free: Vec<u16>,
    holder: Holder,
}

impl Staging {
    fn new(engine: &mut dyn Engine, qp: QpId, holder: Holder) -> Result<Self, End> {
        let len = u64::from(STAGING_SLOTS) * u64::from(STAGING_SLOT_LEN);
        let medium = pmem::anonymous(len)?;
        let region = engine.register(qp, Arc::clone(&medium), 0..len, Access::READ_SINK)?;
        Ok(Self { qp, medium, region, free: (0..STAGING_SLOTS).rev().collect(), holder })
    }

    /// A free slot; `None` when all are in use.
    pub(super) fn take(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// Gives a slot back.
    pub(super) fn give_back(&mut self, slot: u16) {
        self.free.push(slot);
    }

    /// The first `len` bytes of a slot, for a work request.
    pub(super) fn slice(&self, slot: u16, len: u32) -> LocalSlice {
        self.region.slice(place(slot), len)
    }

    /// Copies the bytes out that an RDMA Read fetched.
    pub(super) fn read(&self, slot: u16, out: &mut [u8]) -> Result<(), End> {
        Ok(self.medium.try_read(place(slot), out)?)
    }
}

fn place(slot: u16) -> u64 {
    u64::from(slot) * u64::from(STAGING_SLOT_LEN)
}

/// The owner of a connection: a user, or one of the guests.
pub(super) type Holder = Option<String>;

/// How many connections of the engine may have staging memory at once.
#[derive(Debug)]
pub(super) struct Budget {
    core: Arc<Core>,
    places: FairShare<Holder>,
    waiting: VecDeque<(DirectId, Holder)>,
    /// Owners whose connections have begun to wait since the idle ones were last asked.
    wanted: Vec<Holder>,
    woken: Vec<DirectId>,
}

impl Budget {
    /// A budget of which everything is free.
    pub(super) fn new(core: Arc<Core>) -> Self {
        let places = FairShare::new(STAGINGS_MAX);
        let (waiting, wanted) = (VecDeque::new(), Vec::new());
        Self { core, places, waiting, wanted, woken: Vec::new() }
    }

    /// Staging memory for a connection, or `None`: the connection will be woken when some is free.
    pub(super) fn take(
        &mut self,
        engine: &mut dyn Engine,
        qp: QpId,
        (id, holder): (DirectId, &Holder),
    ) -> Result<Option<Staging>, End> {
        if !self.places.may_take(holder) {
            if !self.waiting.iter().any(|(waiting, _)| *waiting == id) {
                self.waiting.push_back((id, holder.clone()));
                self.wanted.push(holder.clone());
            }
            return Ok(None);
        }
        let staging = Staging::new(engine, qp, holder.clone())?;
        self.places.take(holder);
        self.core.connections.counters.stagings.fetch_add(1, Ordering::Relaxed);
        Ok(Some(staging))
    }

    /// Wakes the first waiting connection that may have memory now.
    fn wake_one(&mut self) {
        let next = self.waiting.iter().position(|(_, holder)| self.places.may_take(holder));
        let next = next.and_then(|index| self.waiting.remove(index));
        self.woken.extend(next.map(|(id, _)| id));
    }

    /// Owners whose connections have begun to wait: idle connections are to be asked for their
    /// memory.
    pub(super) fn take_wanted(&mut self) -> Vec<Holder> {
        mem::take(&mut self.wanted)
    }

    /// Whether a connection waits for staging memory.
    pub(super) fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes back staging memory whose slots are all free, or whose connection has ended.
    pub(super) fn give_back(&mut self, engine: Option<&mut dyn Engine>, staging: Staging) {
        if let Some(engine) = engine {
            // All slots are free, so no Read is in progress there.
            let _ = engine.deregister(staging.qp, staging.region.rkey);
        }
        self.places.give_back(&staging.holder);
        self.core.connections.counters.stagings.fetch_sub(1, Ordering::Relaxed);
        self.wake_one();
    }

    /// Removes a connection that has ended from the waiting ones.
    pub(super) fn forget(&mut self, id: DirectId) {
        self.waiting.retain(|(waiting, _)| *waiting != id);
        if let Some(place) = self.woken.iter().position(|woken| *woken == id) {
            self.woken.swap_remove(place);
            self.wake_one();
        }
    }

    /// A woken connection, for which there is memory now.
    pub(super) fn take_woken(&mut self) -> Option<DirectId> {
        self.woken.pop()
    }
}

/// Longest RDMA Read, in bytes.
pub(super) const STAGING_SLOT_LEN: u32 = 64 * 1024;
/// The most RDMA Reads that one connection has outstanding: 1 MiB in flight hides a millisecond of
/// round trip at 1 GB/s.
pub(super) const STAGING_SLOTS: u16 = 16;
/// Connections with staging memory at once: 256 MiB per engine.
const STAGINGS_MAX: usize = 256;
