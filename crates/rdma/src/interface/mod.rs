//! The vocabulary of verbs, common to every provider: names, requests, completions, the seam.

mod config;
mod doorbell;
mod error;
mod event;
mod ids;
mod provider;
mod region;
mod stats;
mod wake_fd;
mod waker;
mod wire_hook;
mod work;

pub use config::{
    EngineConfig, HANDSHAKE_BYTES_MAX, IRD_ORD_MAX, PRIVATE_DATA_MAX, PollPolicy, QUEUE_DEPTH_MAX,
    QpCapabilities, QpConfig, SILENCE_MAX,
};
pub use error::{Deregistration, EngineError, PostError, RegisterError};
pub use event::{AdapterFault, ConnectFailure, DisconnectReason, Event, TerminateCode};
pub use ids::{ConnectionId, Lkey, QpId, Rkey};
pub use provider::{Engine, Handover, Provider};
pub use region::{Access, LocalSlice, MemoryRegion, PeerOperations};
pub use stats::EngineStats;
pub use waker::{WakeReceiver, Waker};
pub use wire_hook::{WireHook, WireVerdict};
pub use work::{
    HASH_CRC32C, Operation, Payload, Placement, WcOpcode, WcStatus, WorkCompletion, WorkRequest,
};
