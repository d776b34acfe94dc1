//! Inputs and outputs of control codes that every 3.x peer knows. Our own are in [`crate::push`].
//!
//! Spec: MS-SMB2 §2.2.31, §2.2.32; MS-FSCC §2.3.

mod copy_chunk;
mod duplicate_extents;
mod network_interface;
mod ranges;
mod reparse;
mod validate_negotiate;

pub use copy_chunk::{COPY_CHUNKS_MAX, CopyChunk, CopyChunkRequest, CopyChunkResponse, ResumeKey};
pub use duplicate_extents::DuplicateExtents;
pub use network_interface::{INTERFACES_MAX, InterfaceCapability, NetworkInterface};
pub use ranges::{FILE_RANGES_MAX, FileLevelTrim, FileRange, SetSparse, ZeroData};
pub use reparse::{ReparsePoint, SYMLINK_TAG, SymlinkReparse};
pub use validate_negotiate::{ValidateNegotiateRequest, ValidateNegotiateResponse};
