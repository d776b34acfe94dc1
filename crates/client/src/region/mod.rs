//! Regions whose control side is an SMB2 session.
//!
//! The region itself, and why nothing is lost, is crate `remote`; here is what it asks of SMB.

mod answers;
mod file_control;
pub(crate) mod listeners;
mod smb2;
mod watcher;

pub(crate) use self::file_control::{FileControl, Getting, Returning, Wanted};
pub use self::smb2::{AsyncRegion, FallbackReason, Path, Region, RegionError, Smb2};
