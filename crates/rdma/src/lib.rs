//! Remote direct memory access: the vocabulary of verbs, and providers of it.
//!
//! - [`Provider`] and [`Engine`] are the seam; everything named at this level is its vocabulary.
//! - [`SoftProvider`] is RDMA without hardware: iWARP over TCP, in user space.
//! - [`UnixProvider`] is the same over unix sockets, [`ShmProvider`] through shared memory: both are for processes
//!   of one host.
//! - [`VerbsProvider`] is the RDMA adapters of the machine; its libraries are opened when needed.
//! - [`Tracer`], [`Faults`] and [`Pcap`] wrap a provider and are providers themselves.
//! - [`WakeReceiver`] is for authors of other providers.
//!
//! `unsafe` is confined to `verbs::sys` and `soft::socket::shm::segment`.

mod choice;
mod common;
#[doc(hidden)]
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod interface;
mod shared;
mod soft;
mod verbs;
mod wrap;

// The tests of a module use the support of the tests beside it, which names the crate.
#[cfg(test)]
extern crate self as rdma;

pub use choice::{ProviderChoice, UnknownProvider};
pub use common::{PollWindow, watch_peer};
pub use interface::{
    Access, AdapterFault, ConnectFailure, ConnectionId, Deregistration, DisconnectReason, Engine,
    EngineConfig, EngineError, EngineStats, Event, HANDSHAKE_BYTES_MAX, HASH_CRC32C, Handover,
    IRD_ORD_MAX, Lkey, LocalSlice, MemoryRegion, Operation, PRIVATE_DATA_MAX, Payload,
    PeerOperations, Placement, PollPolicy, PostError, Provider, QUEUE_DEPTH_MAX, QpCapabilities,
    QpConfig, QpId, RegisterError, Rkey, SILENCE_MAX, TerminateCode, WakeReceiver, Waker, WcOpcode,
    WcStatus, WireHook, WireVerdict, WorkCompletion, WorkRequest,
};
pub use soft::{ShmProvider, SoftProvider, UnixProvider};
pub use verbs::VerbsProvider;
pub use wrap::{FaultPlan, Faults, Pcap, PcapError, Tracer};
