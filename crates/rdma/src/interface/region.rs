//! Registered memory: the permitted uses of a region, and its names.
//!
//! A region belongs to exactly one queue pair. It is a range of a [`pmem::Medium`]; registering it
//! costs the same for a page and for a terabyte.

use bitflags::bitflags;

use super::ids::{Lkey, Rkey};

bitflags! {
    /// The permitted operations on a region. An operation that is not listed is refused.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct Access: u16 {
        /// Our own receives may be placed here.
        const RECEIVE = 0x01;
        /// The answers to our own reads may be placed here. An iWARP adapter lets the peer write there, as
        /// the answers are writes of the peer (RFC 5040 §5.4).
        const READ_SINK = 0x40;
        /// Our own receives and the answers to our own reads may be placed here.
        const LOCAL_WRITE = Self::RECEIVE.bits() | Self::READ_SINK.bits();
        /// The peer may read, and may ask for a hash: [`Access::with_implied`].
        const REMOTE_READ = 0x02;
        /// The peer may write, and may write atomically: [`Access::with_implied`].
        const REMOTE_WRITE = 0x04;
        /// The peer may fetch-and-add and compare-and-swap.
        const REMOTE_ATOMIC = 0x08;
        /// The peer may ask for visibility.
        const FLUSH_VISIBILITY = 0x10;
        /// The peer may ask for durability.
        const FLUSH_PERSISTENCE = 0x20;
        /// The peer may ask for a hash (verify). Devices cannot allow that without reads, and do not offer it.
        const REMOTE_VERIFY = 0x80;
        /// The peer may write atomically. Devices cannot allow that without other writes, and do not offer it alone.
        const REMOTE_ATOMIC_WRITE = 0x100;
    }
}

bitflags! {
    /// The operations on a region that this end answers, beyond writes and reads.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct PeerOperations: u8 {
        /// Flushes for persistence.
        const FLUSH = 0x01;
        /// Atomic writes.
        const ATOMIC_WRITE = 0x02;
        /// Verifies.
        const VERIFY = 0x04;
        /// Fetch-and-add and compare-and-swap.
        const ATOMIC = 0x08;
    }
}

impl Access {
    /// The rights of a push-mode region that is open for writing.
    pub const PUSH: Self = Self::REMOTE_READ
        .union(Self::REMOTE_WRITE)
        .union(Self::FLUSH_VISIBILITY)
        .union(Self::FLUSH_PERSISTENCE);

    /// With the rights that reveal or change no more than those that are there: who may read may ask for a hash, and who
    /// may write may write atomically.
    pub(crate) fn with_implied(self) -> Self {
        let mut access = self;
        access.set(Self::REMOTE_VERIFY, self.intersects(Self::REMOTE_VERIFY | Self::REMOTE_READ));
        let writes = Self::REMOTE_ATOMIC_WRITE | Self::REMOTE_WRITE;
        access.set(Self::REMOTE_ATOMIC_WRITE, self.intersects(writes));
        access
    }
}

/// A registration as both sides need it: the peer gets `rkey`, `remote_addr_base` and `len`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MemoryRegion {
    /// The name of the region in the peer's requests.
    pub rkey: Rkey,
    /// The name of the region in local work requests.
    pub lkey: Lkey,
    /// Address of the region's first byte as the peer must give it. Opaque to the peer.
    pub remote_addr_base: u64,
    /// Length in bytes.
    pub len: u64,
    /// The operations that this end answers on the region, as far as `Access` allows them.
    pub offers: PeerOperations,
    /// A device places the peer's bytes by itself: no method of the medium is called when they
    /// arrive, and `Medium::persist_foreign` makes them durable.
    pub unseen: bool,
}

impl MemoryRegion {
    /// The slice `offset..offset + len` of this region, for a local work request. The bounds are
    /// checked when the request is posted.
    pub fn slice(&self, offset: u64, len: u32) -> LocalSlice {
        LocalSlice { lkey: self.lkey, offset, len }
    }
}

/// A piece of local registered memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LocalSlice {
    /// The region.
    pub lkey: Lkey,
    /// Where the slice begins, in bytes from the beginning of the region.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}
