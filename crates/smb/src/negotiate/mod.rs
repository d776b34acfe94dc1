//! NEGOTIATE: dialect, capabilities, sizes and, in 3.1.1, contexts.
//!
//! Spec: MS-SMB2 §2.2.3 and §2.2.4.

mod algorithms;
mod context;
mod request;
mod response;

pub use algorithms::{CipherId, CompressionId, HashId, RdmaTransformId, SigningId};
pub use context::{ALGORITHMS_MAX, CONTEXTS_MAX, NegotiateContext, SALT_MAX};
pub use request::{DIALECTS_MAX, NegotiateRequest};
pub use response::NegotiateResponse;

use crate::open_set::open_set;

open_set! {
    /// A dialect revision. Ordered: a later dialect compares greater, the wildcard excepted.
    pub struct Dialect(u16) {
        /// SMB 2.0.2.
        SMB_2_0_2 = 0x0202,
        /// SMB 2.1.
        SMB_2_1 = 0x0210,
        /// Answer to a multi-protocol negotiate: negotiate again.
        WILDCARD = 0x02ff,
        /// SMB 3.0.
        SMB_3_0 = 0x0300,
        /// SMB 3.0.2.
        SMB_3_0_2 = 0x0302,
        /// SMB 3.1.1.
        SMB_3_1_1 = 0x0311,
    }
}

bitflags::bitflags! {
    /// SecurityMode of NEGOTIATE (16 bits) and SESSION_SETUP (8 bits).
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct SecurityMode: u16 {
        /// Can sign.
        const SIGNING_ENABLED = 0x0001;
        /// Insists on it.
        const SIGNING_REQUIRED = 0x0002;
        const _ = !0;
    }

    /// Capabilities of a client or a server.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct Capabilities: u32 {
        /// Distributed file system.
        const DFS = 0x0000_0001;
        /// File leases.
        const LEASING = 0x0000_0002;
        /// Requests over 64 KiB.
        const LARGE_MTU = 0x0000_0004;
        /// Several connections per session.
        const MULTI_CHANNEL = 0x0000_0008;
        /// Persistent handles.
        const PERSISTENT_HANDLES = 0x0000_0010;
        /// Directory leases.
        const DIRECTORY_LEASING = 0x0000_0020;
        /// Encryption (3.0 and 3.0.2; 3.1.1 has a context for it).
        const ENCRYPTION = 0x0000_0040;
        /// Server-to-client notifications.
        const NOTIFICATIONS = 0x0000_0080;
        const _ = !0;
    }
}
