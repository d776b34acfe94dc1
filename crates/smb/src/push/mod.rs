//! Push mode: our own extension of SMB2 that maps a region of a file for one-sided RDMA.
//!
//! ```text
//!  CREATE + context  --> granted? durability class, listener addresses, one-time token
//!  push connection   --> proof of the token in the MPA private data, push connection id comes back
//!  MAP               --> registration, generation, buffer descriptors
//!  RDMA Write, Flush --> no message of this crate
//!  COMMIT            --> the server's own commit, for peers without RDMA Flush
//!  WAIT_RECALL       --> pending until the server wants registrations back
//!  UNMAP             --> the registration is gone; what the lease of its open is
//! ```
//!
//! Every payload begins with `version u16, size u16`: size counts the fixed part its sender wrote.
//! A receiver refuses another version, accepts a larger size and ignores what it does not know.
//!
//! Spec: docs/push-mode.md of this repository. Little-endian.

mod commit;
mod connect;
mod context;
mod layout;
mod map;
mod query;
mod recall;
mod terms;
mod token;
mod under_lease;
mod unmap;

pub use commit::{CommitRange, CommitRequest, CommitResponse, RANGES_MAX};
pub use connect::{PushAccept, PushConnect, PushProof};
pub use context::{
    ADDRESSES_MAX, CREATE_CONTEXT_NAME, PushAddress, PushGrant, PushRefusal, PushRequest,
    PushResponse,
};
pub use map::{MAP_DESCRIPTORS_MAX, MapRequest, MapResponse};
pub use query::{QUERY_ENTRIES_MAX, QueryRequest, QueryResponse, RegionEntry};
pub use recall::{RECALLS_MAX, Recall, RecallRequest, RecallResponse};
pub use terms::{
    Capabilities, Durability, Generation, PushConnectionId, RecallReason, Refusal, RegionState,
    RegistrationId, Rights,
};
pub use token::{PushToken, TOKEN_LEN};
pub use under_lease::WriteUnderLease;
pub use unmap::UnmapRequest;

use crate::ioctl::ControlCode;

/// The layout version of every payload here.
pub const VERSION: u16 = 1;

// CTL_CODE(device 0xCC46, function 0x800.., METHOD_BUFFERED, FILE_READ_DATA | FILE_WRITE_DATA).
// Devices from 0x8000 and functions from 0x800 belong to vendors; 0x8384 is smbtorture's.
impl ControlCode {
    /// Registers a region of the open for one-sided access.
    pub const MAP_REMOTE_REGION: Self = Self(0xcc46_e000);
    /// Ends a registration.
    pub const UNMAP_REMOTE_REGION: Self = Self(0xcc46_e004);
    /// Makes ranges of a registration durable.
    pub const COMMIT_REMOTE_REGION: Self = Self(0xcc46_e008);
    /// Lists the registrations of the open.
    pub const QUERY_REMOTE_REGIONS: Self = Self(0xcc46_e00c);
    /// Stays pending until the server recalls registrations of the open.
    pub const WAIT_REGION_RECALL: Self = Self(0xcc46_e010);
    /// Writes bytes if the open still holds its lease as it did.
    pub const WRITE_UNDER_LEASE: Self = Self(0xcc46_e014);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_codes_are_vendor_codes_buffered_and_need_read_and_write_access() {
        let codes = [
            ControlCode::MAP_REMOTE_REGION,
            ControlCode::UNMAP_REMOTE_REGION,
            ControlCode::COMMIT_REMOTE_REGION,
            ControlCode::QUERY_REMOTE_REGIONS,
            ControlCode::WAIT_REGION_RECALL,
            ControlCode::WRITE_UNDER_LEASE,
        ];
        for (index, code) in (0..).zip(codes) {
            let (device, access) = (code.0 >> 16, code.0 >> 14 & 3);
            let (function, method) = (code.0 >> 2 & 0xfff, code.0 & 3);
            assert_eq!((device, access, function, method), (0xcc46, 3, 0x800 + index, 0));
        }
    }
}
