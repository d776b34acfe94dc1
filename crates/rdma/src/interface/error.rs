//! The errors of refused calls. Faults of peers arrive as events instead.

use std::net::SocketAddr;

use thiserror::Error;

use super::ids::{ConnectionId, Lkey, QpId, Rkey};

/// A control call failed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum EngineError {
    /// The host refused a system call.
    #[error("{call}: {}", std::io::Error::from_raw_os_error(*errno))]
    HostIo {
        /// The call.
        call: &'static str,
        /// The error number of the host.
        errno: i32,
    },
    /// A library that the provider calls is not on this machine.
    #[error(
        "{library} is not installed: \
         apt-get install libibverbs1 librdmacm1 verbs-providers"
    )]
    HostNoLibrary {
        /// The file name of the library.
        library: &'static str,
    },
    /// A library lacks a function that the provider calls.
    #[error("{library} is too old: rdma-core 24 or later is needed")]
    HostOldLibrary {
        /// The file name of the library.
        library: &'static str,
    },
    /// The machine has no RDMA device, or its driver is not loaded.
    #[error(
        "this machine has no RDMA device (see `rdma link`): load its driver, or make one, \
         for example with `rdma link add rxe0 type rxe netdev eth0`"
    )]
    HostNoDevice,
    /// No RDMA device has the address, so no engine can listen or dial there.
    #[error("no RDMA device has the address {}: see `rdma link` and `ip address`", .0.ip())]
    ConfigNoDeviceAt(SocketAddr),
    /// The configuration asks for a capture or for faults, and this provider shows no bytes.
    #[error("this provider has no byte stream to hook into")]
    ConfigWireHook,
    /// A queue depth is zero or above its limit.
    #[error("queue depth {depth} is not between 1 and {max}")]
    ConfigQueueDepth {
        /// The depth that was asked for.
        depth: u16,
        /// The limit.
        max: u16,
    },
    /// A read limit is above what the wire can say.
    #[error("{asked} reads at once are above the limit of {max}")]
    ConfigReadLimit {
        /// The limit that was asked for.
        asked: u8,
        /// The limit.
        max: u8,
    },
    /// The wanted FPDU is shorter than the shortest that the specification requires every end to
    /// take.
    #[error("an FPDU of {asked} bytes is below the least allowed, {min}")]
    ConfigFpdu {
        /// The length that was asked for.
        asked: u16,
        /// The shortest allowed length.
        min: u16,
    },
    /// The application's private data does not fit.
    #[error("{len} bytes of private data, at most {max} fit")]
    ConfigPrivateData {
        /// The length of the data.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// As many queue pairs as the configuration allows exist.
    #[error("all {max} queue pairs are in use")]
    QpsExhausted {
        /// The limit.
        max: u32,
    },
    /// The connection request does not exist, or no longer.
    #[error("no such request: {0}")]
    UnknownConnection(ConnectionId),
    /// The queue pair does not exist, or no longer.
    #[error("no such queue pair: {0}")]
    UnknownQp(QpId),
}

/// A region was not registered or deregistered.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The queue pair does not exist, or no longer.
    #[error("no such queue pair: {0}")]
    UnknownQp(QpId),
    /// The range is empty or reaches beyond the medium.
    #[error("{start}..{end} is not a range of a medium of {len} bytes")]
    ConfigRange {
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
        /// Length of the medium.
        len: u64,
    },
    /// As many regions as the configuration allows exist.
    #[error("all {max} regions are in use")]
    RegionsExhausted {
        /// The limit.
        max: u32,
    },
    /// The queue pair has no such region.
    #[error("no such region: {0}")]
    UnknownRegion(Rkey),
    /// The host gave no random numbers.
    #[error("the host has no random numbers")]
    HostRandom,
    /// The medium is reached by system calls, and the device reaches only memory.
    #[error("the medium is not memory, which is all that an RDMA device reaches")]
    MediumNotMemory,
    /// The host does not pin the memory for the device.
    #[error(
        "the host does not pin this memory for the RDMA device: {}{}",
        std::io::Error::from_raw_os_error(*errno),
        pin_advice(*errno)
    )]
    HostPin {
        /// The error number of the host.
        errno: i32,
    },
}

/// The state of a region after its deregistration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Deregistration {
    /// No operation touches the region any more.
    Done,
    /// Operations that a worker had begun still touch the region: `Event::Deregistered` follows.
    Pending,
}

/// A work request was not taken. Nothing happened to the queue pair.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum PostError {
    /// The queue or its buffer is full: poll, then post again. Ordinary back-pressure.
    #[error("the queue is full")]
    QueueFull,
    /// The queue pair does not exist, or no longer.
    #[error("no such queue pair: {0}")]
    UnknownQp(QpId),
    /// The queue pair is not established, or is closing.
    #[error("{0} is not connected")]
    NotConnected(QpId),
    /// An inline payload is too long.
    #[error("{len} inline bytes, at most {max} are taken")]
    ConfigInline {
        /// The length of the payload.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The slice names a region this queue pair does not have.
    #[error("no such region: {0}")]
    ConfigLocalKey(Lkey),
    /// The slice reaches beyond its region.
    #[error("the slice reaches beyond {0}")]
    ConfigLocalBounds(Lkey),
    /// The region may not be written locally.
    #[error("{0} may not be written by receives and reads")]
    ConfigLocalAccess(Lkey),
    /// The peer never announced this operation, or allows no reads at all.
    #[error("the peer does not support this operation")]
    PeerUnsupported,
    /// The remote range passes the end of 64 bits.
    #[error("the remote range at {0:#x} passes the end of 64 bits")]
    ConfigRemoteWrap(u64),
    /// An atomic's address is not a multiple of 8.
    #[error("address {0:#x} of an atomic is not a multiple of 8")]
    ConfigMisaligned(u64),
}

impl RegisterError {
    /// Whether the provider never registers such memory, however much memory the host can pin.
    pub fn is_for_good(&self) -> bool {
        match *self {
            Self::MediumNotMemory => true,
            // A DAX file, or one whose pages are written back.
            Self::HostPin { errno } => [libc::EOPNOTSUPP, libc::EFAULT].contains(&errno),
            _ => false,
        }
    }
}

fn pin_advice(errno: i32) -> &'static str {
    match errno {
        libc::EAGAIN | libc::ENOMEM => {
            " (raise the limit of locked memory: ulimit -l, LimitMEMLOCK=)"
        }
        libc::EFAULT | libc::EOPNOTSUPP => {
            " (only tmpfs, anonymous memory and devdax can be pinned)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_can_never_be_pinned_is_distinguished_from_too_much_memory() {
        let dax = RegisterError::HostPin { errno: libc::EOPNOTSUPP };
        assert!(dax.is_for_good() && dax.to_string().contains("devdax"), "{dax}");
        let locked = RegisterError::HostPin { errno: libc::ENOMEM };
        assert!(!locked.is_for_good() && locked.to_string().contains("ulimit -l"), "{locked}");
    }
}
