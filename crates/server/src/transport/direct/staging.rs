//! Registered memory for RDMA Reads, and the bound on all of it.
//!
//! Each connection has its own, private region: the peer learns its key with every RDMA Read and
//! must not be able to reach another connection's bytes with it. It is taken when the connection
//! first needs it, and given up when it is idle while another one waits.

use std::collections::VecDeque;
use std::sync::Arc;

use pmem::Medium;
use rdma::{Access, Engine, LocalSlice, MemoryRegion, QpId};

use super::error::End;
use super::table::DirectId;

/// The staging memory of one connection.
#[derive(Debug)]
pub(super) struct Staging {
    qp: QpId,
    medium: Arc<dyn Medium>,
    region: MemoryRegion,
    free: Vec<u16>,
}

impl Staging {
    fn new(engine: &mut dyn Engine, qp: QpId) -> Result<Self, End> {
        let len = u64::from(STAGING_SLOTS) * u64::from(STAGING_SLOT_LEN);
        let medium = pmem::anonymous(len)?;
        let region = engine.register(qp, Arc::clone(&medium), 0..len, Access::LOCAL_WRITE)?;
        Ok(Self { qp, medium, region, free: (0..STAGING_SLOTS).rev().collect() })
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

    /// Copies out what an RDMA Read brought.
    pub(super) fn read(&self, slot: u16, out: &mut [u8]) -> Result<(), End> {
        Ok(self.medium.try_read(place(slot), out)?)
    }
}

fn place(slot: u16) -> u64 {
    u64::from(slot) * u64::from(STAGING_SLOT_LEN)
}

/// How many connections of the engine may have staging memory at once.
#[derive(Debug, Default)]
pub(super) struct Budget {
    in_use: usize,
    waiting: VecDeque<DirectId>,
    woken: Vec<DirectId>,
}

impl Budget {
    /// Staging memory for a connection, or `None`: it will be woken when there is some.
    pub(super) fn take(
        &mut self,
        engine: &mut dyn Engine,
        qp: QpId,
        id: DirectId,
    ) -> Result<Option<Staging>, End> {
        if self.in_use >= STAGINGS_MAX {
            if !self.waiting.contains(&id) {
                self.waiting.push_back(id);
            }
            return Ok(None);
        }
        let staging = Staging::new(engine, qp)?;
        self.in_use += 1;
        Ok(Some(staging))
    }

    /// Whether somebody waits for staging memory.
    pub(super) fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes staging memory back whose slots are all free, or whose connection has ended.
    pub(super) fn give_back(&mut self, engine: Option<&mut dyn Engine>, staging: Staging) {
        if let Some(engine) = engine {
            // All slots are free, so nothing is at work there.
            let _ = engine.deregister(staging.qp, staging.region.rkey);
        }
        self.in_use -= 1;
        self.woken.extend(self.waiting.pop_front());
    }

    /// A connection has ended and waits no more.
    pub(super) fn forget(&mut self, id: DirectId) {
        self.waiting.retain(|waiting| *waiting != id);
        if let Some(place) = self.woken.iter().position(|woken| *woken == id) {
            self.woken.swap_remove(place);
            self.woken.extend(self.waiting.pop_front());
        }
    }

    /// Those for whom there is memory now.
    pub(super) fn take_woken(&mut self) -> Option<DirectId> {
        self.woken.pop()
    }
}

/// Longest RDMA Read, in bytes.
pub(super) const STAGING_SLOT_LEN: u32 = 64 * 1024;
/// RDMA Reads one connection has outstanding at most: 1 MiB on its way hides a millisecond of
/// round trip at 1 GB/s.
pub(super) const STAGING_SLOTS: u16 = 16;
/// Connections with staging memory at once: 256 MiB per engine.
const STAGINGS_MAX: usize = 256;
