//! Provider `soft`: RDMA in user space, iWARP over TCP sockets of the host; and `unix` and `shm`, the same over
//! other byte streams.
//!
//! ```text
//!   engine          the owner's calls, and waiting
//!   round           one round of work
//!   connections     listening, dialling, answering: arrivals, newcomers, incoming, dial
//!   farewell        ending connections, also gracefully: linger
//!   qp              one queue pair: both halves and the connection
//!     link          byte stream, iWARP machine, byte queues
//!     receive       bytes -> frames -> operations
//!     requester     our work requests         work_frame   -> frames
//!     responder     the peer's operations     answer_frame -> frames
//!     receive_queue posted receives
//!     deferral      what may block, in order; batch, workers, lanes: where it blocks
//!     serial        which request a result belongs to
//!   regions, keys   memory by steering tag
//!   socket          the byte streams beneath, and the networks they come from
//!   token, byte_queue, and those of `common`: the tools
//! ```
//!
//! A 4 KiB write and its flush cost: one `recv` into the bounce buffer, CRC, one copy into the
//! medium, a fence, 24 bytes framed, one `send`. No lock, no allocation.

mod answer_frame;
mod arrivals;
mod batch;
mod byte_queue;
mod connections;
mod context;
mod deferral;
mod dial;
mod done;
mod engine;
mod farewell;
mod fault;
mod fetches;
mod incoming;
mod keys;
mod lanes;
mod linger;
mod link;
mod newcomers;
#[cfg(test)]
mod planted;
mod qp;
mod receive;
mod receive_queue;
mod regions;
mod requester;
mod responder;
mod round;
mod scope;
mod serial;
mod socket;
mod steps;
#[cfg(test)]
mod tests;
mod token;
mod work_frame;
mod workers;

#[cfg(feature = "fuzzing")]
pub use socket::AttackedShm;
use socket::Network;

use crate::interface::{Engine, EngineConfig, EngineError, Provider};

/// Software iWARP over TCP. Needs no special hardware, module or setting.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftProvider;

impl Provider for SoftProvider {
    fn name(&self) -> &'static str {
        "soft"
    }

    fn open_engine(&self, config: EngineConfig) -> Result<Box<dyn Engine>, EngineError> {
        Ok(Box::new(engine::SoftEngine::open(Network::Tcp, config)?))
    }
}

/// Software iWARP over unix sockets, for two processes of one host that have no network in common.
///
/// An address names a socket of the host and no port: ends of this provider find only each other, and only
/// if both run as the same user or the listening end runs as root.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnixProvider;

impl Provider for UnixProvider {
    fn name(&self) -> &'static str {
        "unix"
    }

    fn open_engine(&self, config: EngineConfig) -> Result<Box<dyn Engine>, EngineError> {
        Ok(Box::new(engine::SoftEngine::open(Network::Unix, config)?))
    }
}

/// Software iWARP through memory that two processes of one host share.
///
/// Addresses are as those of [`UnixProvider`]. No system call is made while both ends are awake, and no CRC
/// is computed. A connection takes half a megabyte of memory once it has been used.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShmProvider;

impl Provider for ShmProvider {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn open_engine(&self, config: EngineConfig) -> Result<Box<dyn Engine>, EngineError> {
        Ok(Box::new(engine::SoftEngine::open(Network::Shm, config)?))
    }
}

/// Longest inline payload: the room of a queue pair's staging queue.
const INLINE_MAX: usize = requester::STAGING_LEN;
