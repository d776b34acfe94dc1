//! Remote direct memory access: the vocabulary of verbs, and providers of it.
//!
//! - [`Provider`] and [`Engine`] are the seam; everything named at this level is its vocabulary.
//! - [`SoftProvider`] is RDMA without hardware: iWARP over TCP, in user space.
//! - [`Tracer`], [`Faults`] and [`Pcap`] wrap a provider and are one.
//! - [`WakeReceiver`] is for whoever writes another provider.
#![forbid(unsafe_code)]

mod common;
mod soft;
mod verbs;
mod wrap;

pub use common::PollWindow;
pub use soft::SoftProvider;
pub use verbs::{
    Access, ConnectFailure, ConnectionId, Deregistration, DisconnectReason, Engine, EngineConfig,
    EngineError, EngineStats, Event, HANDSHAKE_BYTES_MAX, HASH_CRC32C, Handover, IRD_ORD_MAX, Lkey,
    LocalSlice, MemoryRegion, Operation, PRIVATE_DATA_MAX, Payload, Placement, PollPolicy,
    PostError, Provider, QUEUE_DEPTH_MAX, QpCapabilities, QpConfig, QpId, RegisterError, Rkey,
    TerminateCode, WakeReceiver, Waker, WcOpcode, WcStatus, WireHook, WireVerdict, WorkCompletion,
    WorkRequest,
};
pub use wrap::{FaultPlan, Faults, Pcap, PcapError, Tracer};
