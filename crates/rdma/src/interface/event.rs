//! The events that an engine reports to its owner.

use std::fmt;
use std::net::SocketAddr;

use super::ids::{ConnectionId, QpId, Rkey};
use super::work::WorkCompletion;

/// An event. Connection events hold small vectors; completions allocate nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// A peer asks for a connection: answer with `accept` or `reject` before its deadline.
    ConnectRequest {
        /// The request to answer.
        id: ConnectionId,
        /// The peer's address.
        peer: SocketAddr,
        /// The address it dialled.
        local: SocketAddr,
        /// The private data of the request.
        private_data: Vec<u8>,
    },
    /// A request was withdrawn or ran out of time before it was answered.
    ConnectRequestGone {
        /// The request, no longer valid.
        id: ConnectionId,
    },
    /// A queue pair may be used. On the accepting side the peer has sent its first frame, so sends
    /// may leave.
    Established {
        /// The queue pair.
        qp: QpId,
        /// The private data of the acceptor's answer; empty on the accepting side.
        private_data: Vec<u8>,
    },
    /// A `connect` ended without a connection.
    ConnectFailed {
        /// The queue pair, no longer valid.
        qp: QpId,
        /// The reason.
        reason: ConnectFailure,
        /// The private data of the peer's rejection.
        private_data: Vec<u8>,
    },
    /// A work request ended.
    Completion(WorkCompletion),
    /// The last operation that was at work on a region when it was deregistered has ended.
    Deregistered {
        /// The queue pair.
        qp: QpId,
        /// The region, gone for good.
        rkey: Rkey,
    },
    /// A queue pair is gone. Every work request has been completed before this.
    Disconnected {
        /// The queue pair, no longer valid.
        qp: QpId,
        /// The reason.
        reason: DisconnectReason,
    },
}

/// Why no connection came about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConnectFailure {
    /// Nothing answered at the address, or the host could not dial it.
    HostIo {
        /// The error number of the host.
        errno: i32,
    },
    /// The peer rejected the request; its private data may hold the reason.
    PeerRejected,
    /// The peer closed without an answer in every form of start-up.
    PeerClosed,
    /// The peer did not answer in time.
    PeerSilent,
    /// The peer's answer was not MPA, or asked for something that this end cannot do.
    PeerHandshake,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DisconnectReason {
    /// Our side called `disconnect`.
    Local,
    /// The peer closed.
    PeerClosed,
    /// The peer reported an error of this end.
    PeerTerminated(TerminateCode),
    /// This end reported an error of the peer.
    PeerViolation(TerminateCode),
    /// A medium of this end failed under the peer's operation; the peer got a Terminate.
    MediaFailed(TerminateCode),
    /// Memory of our own requests or receives was gone or failed; the peer got a Terminate.
    LocalFault(TerminateCode),
    /// The host lost the connection.
    HostIo {
        /// The error number of the host.
        errno: i32,
    },
    /// The adapter beneath the connection failed.
    HostAdapter(AdapterFault),
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("closed at this end"),
            Self::PeerClosed => f.write_str("the other end closed it"),
            Self::PeerTerminated(code) => {
                write!(f, "the other end refused an operation, Terminate {code}")
            }
            Self::PeerViolation(code) => {
                write!(f, "the other end broke the protocol, Terminate {code}")
            }
            Self::MediaFailed(code) => write!(f, "a medium of this end failed, Terminate {code}"),
            Self::LocalFault(code) => write!(f, "memory of this end failed, Terminate {code}"),
            Self::HostIo { errno } => {
                write!(f, "network: {}", std::io::Error::from_raw_os_error(*errno))
            }
            Self::HostAdapter(fault) => write!(f, "the adapter failed: {fault:?}"),
        }
    }
}

/// The fault of an adapter that ended a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AdapterFault {
    /// The port has lost its link.
    PortDown,
    /// The queue pair has failed, and the peer is not to blame.
    QueuePair,
    /// The completion queue has failed.
    CompletionQueue,
    /// The whole adapter has failed.
    Device,
    /// The adapter is being removed.
    Removed,
}

/// Layer, type and code of a Terminate message (RFC 5040 §4.8).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TerminateCode {
    /// 0 RDMAP, 1 DDP, 2 MPA.
    pub layer: u8,
    /// Error type within the layer.
    pub etype: u8,
    /// Error code within the type.
    pub code: u8,
}

impl fmt::Display for TerminateCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}/{:x}/{:x}", self.layer, self.etype, self.code)
    }
}
