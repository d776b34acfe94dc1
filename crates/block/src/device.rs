//! The trait of the crate: a disk of fixed blocks, used by many threads at once.
//!
//! ```text
//!             write, answered          flush, or a write that says Durable
//!   (nothing) ----------------> placed ----------------------------------> durable
//! ```
//!
//! Spec: ours. The meaning of flush and of a durable write (FUA) is that of the Linux block layer
//! (Documentation/block/writeback_cache_control.rst) and of the NBD protocol, "Ordering of messages and writes".

use std::fmt;

use pmem::DurabilityClass;

use crate::BlockError;

/// A disk. Any method may be called from any thread at any time.
///
/// Offsets and lengths are in bytes and are multiples of [`Geometry::block`]; a request of another offset or length is
/// refused ([`crate::AnyAlignment`] accepts it). A request of no bytes succeeds and does nothing.
///
/// Two requests that touch the same block at the same time take effect in some order, block by block. Nothing orders
/// the blocks of one request.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// What the device is: its size, its blocks and what it can promise.
    fn geometry(&self) -> Geometry;

    /// Copies the bytes at `offset` into `out`.
    ///
    /// # Errors
    ///
    /// After any error the contents of `out` mean nothing.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError>;

    /// Writes `bytes` at `offset`. Reads that begin after the return see the bytes.
    ///
    /// # Durability
    ///
    /// *Before* the call returns, and after an error, a crash leaves each block of the range old or new, independently
    /// of the others; whether a block can also be torn is [`Geometry::is_atomic`]. *After* `Ok` with
    /// [`Survives::Durable`] each block of the range survives a crash as written, or as a later write made it; with
    /// [`Survives::Placed`] it does so after the next [`BlockDevice::flush`] that succeeds.
    fn write(&self, offset: u64, bytes: &[u8], survives: Survives) -> Result<(), BlockError>;

    /// Makes everything durable that calls of this device wrote, trimmed or zeroed before.
    ///
    /// # Durability
    ///
    /// *After* `Ok`, every change whose call had returned `Ok` before this call began survives a crash. After an error
    /// the device promises nothing for changes since the last flush that succeeded, and says so for good:
    /// a failed flush is never retried into success.
    fn flush(&self) -> Result<(), BlockError>;

    /// Gives the range up: it reads as zeroes afterwards, and the device may free its space.
    ///
    /// # Durability
    ///
    /// As [`BlockDevice::write`] of zeroes.
    fn trim(&self, offset: u64, len: u64, survives: Survives) -> Result<(), BlockError> {
        self.write_zeroes(offset, len, Zeroing::MayFree, survives)
    }

    /// Makes the range read as zeroes.
    ///
    /// # Durability
    ///
    /// As [`BlockDevice::write`] of zeroes.
    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        zeroing: Zeroing,
        survives: Survives,
    ) -> Result<(), BlockError>;

    /// The state of the first blocks of the range: of at least one block, and of `len` bytes at most.
    ///
    /// # Errors
    ///
    /// The range lies outside of the device or is empty. A device that cannot tell answers [`State::Data`].
    fn status(&self, offset: u64, len: u64) -> Result<Extent, BlockError>;

    /// Grows the device to at least `size` bytes and returns its new size. A device never shrinks.
    ///
    /// # Durability
    ///
    /// *After* `Ok` the new size survives a crash. A crash before leaves the old size or the new one.
    ///
    /// # Errors
    ///
    /// [`BlockError::ConfigFixedSize`] where the device cannot grow.
    fn resize(&self, size: u64) -> Result<u64, BlockError>;
}

/// What a device is. Only the size ever changes, and it only grows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Geometry {
    /// Size in bytes, a multiple of `block`.
    pub size: u64,
    /// Bytes of a block: the unit of requests. A power of two from 1 to 65,536.
    pub block: u32,
    /// Whether a crash leaves each block whole, old or new, because the device itself sees to that. Where this is
    /// false a block is as whole as the disk below leaves it.
    pub is_atomic: bool,
    /// Whether every change is refused.
    pub is_read_only: bool,
    /// What a change that is durable survives.
    pub class: DurabilityClass,
    /// Whether a request may wait for a disk. A front-end gives requests that may wait to threads that may.
    pub may_wait: bool,
}

/// What a change has to survive when its call returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Survives {
    /// The end of the caller: later reads see the change.
    Placed,
    /// A loss of power as well, as far as the device's class goes. The block layer calls this FUA.
    Durable,
}

/// Whether zeroes have to keep their space.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Zeroing {
    /// The device may free the space; a later write to it may find the disk full.
    MayFree,
    /// The space stays: a later write needs none.
    KeepSpace,
}

/// Blocks in a row that are in one state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Extent {
    /// Length in bytes, at least one block.
    pub len: u64,
    /// Their state.
    pub state: State,
}

/// What a reader of a block would find, as far as the device can tell without reading.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// Bytes that may be anything.
    Data,
    /// Zeroes that have their space.
    Zero,
    /// Zeroes without space.
    Hole,
}
