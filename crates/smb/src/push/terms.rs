//! The words of push mode: rights, classes, states, reasons, ids.
//!
//! Spec: docs/push-mode.md, "Constants".

use crate::open_set::open_set;

bitflags::bitflags! {
    /// What may be done with a region.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct Rights: u32 {
        /// RDMA Read.
        const READ = 0x01;
        /// RDMA Write.
        const WRITE = 0x02;
        /// RDMA Flush, and COMMIT.
        const FLUSH = 0x04;
        /// RDMA Atomic Write.
        const ATOMIC_WRITE = 0x08;
        /// RDMA Verify.
        const VERIFY = 0x10;
        /// Fetch-and-add, compare-and-swap.
        const ATOMIC = 0x20;
        const _ = !0;
    }

    /// What the server's side of a push connection can do.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct Capabilities: u32 {
        /// Answers RDMA Flush.
        const FLUSH = 0x01;
        /// Answers RDMA Verify.
        const VERIFY = 0x02;
        /// Answers RDMA Atomic Write.
        const ATOMIC_WRITE = 0x04;
        /// Answers RDMA atomics.
        const ATOMIC = 0x08;
        /// The class is volatile and the operator chose to answer commits all the same: what is
        /// committed does NOT survive power loss.
        const EMULATED_PERSISTENCE = 0x10;
        const _ = !0;
    }
}

open_set! {
    /// How much a commit promises. Ordered: a client that asks for a class takes any above it.
    pub struct Durability(u32) {
        /// In a request: any.
        ANY = 0,
        /// Memory: gone with power. Commits are refused unless persistence is emulated.
        VOLATILE = 1,
        /// A disk file system: durable after the server's fdatasync.
        STORAGE = 2,
        /// Persistent memory: durable after flush and drain.
        PMEM = 3,
    }
}

open_set! {
    /// Why push mode was not granted.
    pub struct Refusal(u32) {
        /// It was granted.
        NONE = 0,
        /// The layout version is not spoken here.
        VERSION = 1,
        /// The share's file system cannot be mapped.
        SHARE_NOT_CAPABLE = 2,
        /// Guests and anonymous users never get it.
        GUEST = 3,
        /// The session does not sign.
        UNSIGNED_SESSION = 4,
        /// Session or share require encryption and the push connection has none.
        ENCRYPTION_REQUIRED = 5,
        /// The administrator switched it off.
        DISABLED = 6,
        /// A limit of regions, connections or memory is reached.
        RESOURCES = 7,
        /// The class asked for is above the file's.
        DURABILITY = 8,
        /// The open's access does not cover the rights asked for.
        ACCESS = 9,
        /// A directory, pipe or stream.
        NOT_A_FILE = 10,
        /// The dialect is below 3.0.
        DIALECT = 11,
        /// The open holds no lease with read, write and handle caching.
        LEASE_REQUIRED = 12,
        /// The server has no RDMA listener.
        NO_LISTENER = 13,
        /// Another push of the file conflicts.
        CONFLICT = 14,
    }
}

open_set! {
    /// Why a registration is recalled.
    pub struct RecallReason(u32) {
        /// It is not.
        NONE = 0,
        /// Another open conflicts.
        SHARING_CONFLICT = 1,
        /// The file is to be truncated.
        TRUNCATION = 2,
        /// Another file is to take its name.
        RENAME_OVER = 3,
        /// Its name is to go.
        UNLINK = 4,
        /// The server must map it anew.
        REMAP = 5,
        /// Memory or registrations run short.
        RESOURCES = 6,
        /// The server stops.
        SHUTDOWN = 7,
        /// The administrator says so.
        ADMINISTRATOR = 8,
        /// The medium failed: what was not yet committed is lost.
        MEDIA_FAILURE = 9,
        /// The ticket behind the session has ended.
        SESSION_EXPIRED = 10,
    }
}

open_set! {
    /// Where a registration is in its life.
    pub struct RegionState(u32) {
        /// In use.
        ACTIVE = 1,
        /// To be given back before its grace ends.
        RECALLING = 2,
        /// Gone; only its trace is left until it is unmapped.
        REVOKED = 3,
    }
}

/// A registered region, named by the server; unique among all it ever named since it started.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RegistrationId(pub u64);

/// Tells one life of a registration id from another.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Generation(pub u64);

/// An accepted push connection.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PushConnectionId(pub u64);
