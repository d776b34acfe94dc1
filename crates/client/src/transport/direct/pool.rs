//! Registered memory that READ and WRITE lend to the server.
//!
//! ```text
//!   one region: | slot | slot | slot | ...            each SLOT_LEN bytes
//!   a request:    takes as many as its data needs, names each by a descriptor
//! ```
//!
//! The region is registered once, so that no request waits for a registration. The server can reach
//! all of it while the connection lasts: the region holds only data that goes to or comes from that
//! server.
//!
//! Slots are free again when [`Slots`] are dropped. Until the request that borrowed them is answered it is unknown
//! when the server stops using them, so whoever gives the request up keeps them until then.
//!
//! Spec: MS-SMB2 §3.2.4.6 (channel), MS-SMBD §2.2.3.1.

use std::sync::{Arc, Mutex, PoisonError};

use pmem::Medium;
use rdma::MemoryRegion;
use smbdirect::{BufferDescriptor, Token};
use tokio::sync::Semaphore;

use crate::error::ConnectionError;

/// The registered memory of one connection.
#[derive(Debug)]
pub struct Pool {
    medium: Arc<dyn Medium>,
    region: MemoryRegion,
    free: Semaphore,
    slots: Mutex<Vec<u32>>,
    io_size_max: u32,
}

impl Pool {
    /// A pool of all of `region`, which covers all of `medium`. `io_size_max`: the most that the
    /// server moves per request.
    pub(super) fn new(medium: Arc<dyn Medium>, region: MemoryRegion, io_size_max: u32) -> Self {
        let count = u32::try_from(region.len / u64::from(SLOT_LEN)).unwrap_or(u32::MAX);
        let free = Semaphore::new(usize::try_from(count).expect("u32 fits usize"));
        // A quarter at most, so that one large request does not keep out all others.
        let io_size_max = io_size_max.min((count / 4).max(1).saturating_mul(SLOT_LEN));
        Self { medium, region, free, slots: Mutex::new((0..count).collect()), io_size_max }
    }

    /// Most bytes of one request.
    pub fn io_size_max(&self) -> u32 {
        self.io_size_max
    }

    /// Whether the server moves enough per request to be lent memory. A server that moves nothing
    /// (0) gets its data in messages.
    pub fn is_of_use(&self) -> bool {
        self.io_size_max >= RDMA_LEN_MIN
    }

    /// Waits for room for `len` bytes, at most [`Pool::io_size_max`].
    ///
    /// # Errors
    /// The connection is gone.
    pub async fn take(self: &Arc<Self>, len: u32) -> Result<Slots, ConnectionError> {
        let count = self.count(len);
        let permits = self.free.acquire_many(count).await;
        permits.map_err(|_| ConnectionError::Closed)?.forget();
        Ok(self.hand_out(count, len))
    }

    /// Room for `len` bytes if it is free at once. A caller that holds slots must not wait for
    /// more: others may wait for those.
    pub fn try_take(self: &Arc<Self>, len: u32) -> Option<Slots> {
        let count = self.count(len);
        self.free.try_acquire_many(count).ok()?.forget();
        Some(self.hand_out(count, len))
    }

    fn count(&self, len: u32) -> u32 {
        len.min(self.io_size_max).div_ceil(SLOT_LEN).max(1)
    }

    fn hand_out(self: &Arc<Self>, count: u32, len: u32) -> Slots {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let keep = slots.len() - usize::try_from(count).expect("u32 fits usize");
        let taken = slots.split_off(keep);
        drop(slots);
        Slots { pool: Arc::clone(self), taken, len }
    }

    pub(super) fn close(&self) {
        self.free.close();
    }
}

/// Room lent to one request. Drop it only when the request was answered, or was never sent.
#[derive(Debug)]
#[must_use = "dropped slots are free, while the server may still use them"]
pub struct Slots {
    pool: Arc<Pool>,
    taken: Vec<u32>,
    len: u32,
}

impl Slots {
    /// The descriptors that name this room to the server.
    pub fn channel_info(&self) -> Vec<u8> {
        let region = &self.pool.region;
        let mut info = Vec::with_capacity(self.taken.len() * BufferDescriptor::LEN);
        for (slot, length) in self.pieces() {
            let mut bytes = [0; BufferDescriptor::LEN];
            let offset = region.remote_addr_base + slot;
            BufferDescriptor { offset, token: Token(region.rkey.0), length }.emit(&mut bytes);
            info.extend(bytes);
        }
        info
    }

    /// Copies `data` in, for the server to read.
    ///
    /// # Errors
    /// Never for anonymous memory that is in range.
    pub fn fill(&self, data: &[u8]) -> Result<(), pmem::MediumError> {
        let mut rest = data;
        for (slot, length) in self.pieces() {
            let (piece, tail) = rest.split_at(rest.len().min(as_usize(length)));
            self.pool.medium.place(slot, piece)?;
            rest = tail;
        }
        Ok(())
    }

    /// Copies out what the server has written.
    ///
    /// # Errors
    /// Never for anonymous memory that is in range.
    pub fn copy_to(&self, out: &mut [u8]) -> Result<(), pmem::MediumError> {
        let mut rest = out;
        for (slot, length) in self.pieces() {
            let (piece, tail) = rest.split_at_mut(rest.len().min(as_usize(length)));
            self.pool.medium.read(slot, piece)?;
            rest = tail;
        }
        Ok(())
    }

    /// Where each piece lies in the region, and how long it is.
    fn pieces(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let mut left = self.len;
        self.taken.iter().map(move |slot| {
            let length = left.min(SLOT_LEN);
            left -= length;
            (u64::from(*slot) * u64::from(SLOT_LEN), length)
        })
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        let count = taken.len();
        self.pool.slots.lock().unwrap_or_else(PoisonError::into_inner).extend(taken);
        self.pool.free.add_permits(count);
    }
}

fn as_usize(len: u32) -> usize {
    usize::try_from(len).expect("u32 fits usize")
}

/// One credit's worth.
const SLOT_LEN: u32 = 64 * 1024;
/// Below this a copy in the message is cheaper than a second round trip; cifs.ko draws the same
/// line.
pub(crate) const RDMA_LEN_MIN: u32 = 4096;

#[cfg(test)]
mod tests {
    use rdma::{Lkey, Rkey};

    use super::*;

    fn pool(io_size_max: u32) -> Pool {
        let medium = pmem::anonymous(4 << 20).unwrap();
        let len = medium.len();
        let region = MemoryRegion {
            rkey: Rkey(1),
            lkey: Lkey(1),
            remote_addr_base: 0,
            len,
            offers: rdma::PeerOperations::all(),
            unseen: false,
        };
        Pool::new(medium, region, io_size_max)
    }

    #[test]
    fn a_server_that_moves_little_per_request_is_lent_no_memory() {
        assert!(!pool(0).is_of_use());
        assert!(!pool(RDMA_LEN_MIN - 1).is_of_use());
        assert!(pool(RDMA_LEN_MIN).is_of_use());
        assert_eq!(pool(u32::MAX).io_size_max(), 1 << 20, "a quarter of the memory");
    }
}
