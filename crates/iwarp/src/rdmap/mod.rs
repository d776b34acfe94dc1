//! RDMA operations: the purpose of each message and its header behind the DDP header.
//!
//! Spec: RFC 5040 §4, RFC 7306 §4 to §6, draft-talpey-rdma-commit-01 §3.

mod atomic;
mod atomic_write;
mod error;
mod flush;
mod immediate;
mod opcode;
mod placement;
mod read_request;
mod terminate;
mod terminate_code;
mod verify;

pub use atomic::{AtomicOperation, AtomicRequestRepr, AtomicResponseRepr};
pub use atomic_write::AtomicWriteRequestRepr;
pub use error::RdmapError;
pub use flush::FlushRequestRepr;
pub use immediate::ImmediateRepr;
pub use opcode::{Opcode, OpcodeWidth};
pub use placement::PlacementFlags;
pub use read_request::ReadRequestRepr;
pub use terminate::{TerminateOrder, TerminateRepr, TerminatedSegment};
pub use terminate_code::TerminateCode;
pub use verify::{VERIFY_HASH_SIZE_MAX, VerifyRequestRepr};
