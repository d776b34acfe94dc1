//! Why there is no one-sided way, or no more.

use rdma::{ConnectFailure, DisconnectReason, EngineError, PostError, RegisterError};
use remote::host::{HostError, TokenError};
use thiserror::Error;

/// Why there is no one-sided way, or no more.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum OneSidedError {
    /// The machine has no such engine.
    #[error("no RDMA engine: {0}")]
    Engine(#[from] EngineError),
    /// Nothing answers there.
    #[error("the member's RDMA engine cannot be reached: {0:?}")]
    Unreachable(ConnectFailure),
    /// No answer in time.
    #[error("the member's RDMA engine does not answer")]
    Silent,
    /// The connection has ended.
    #[error("the RDMA connection has ended: {0}")]
    Ended(DisconnectReason),
    /// The other end makes nothing durable by itself.
    #[error("the member's RDMA engine has no RDMA Flush")]
    NoFlush,
    /// The other end does not map its ring.
    #[error("the member does not map its log")]
    NotMapped,
    /// An operation cannot be posted.
    #[error("an operation cannot be posted: {0:?}")]
    Post(PostError),
    /// Memory cannot be registered.
    #[error("the log cannot be registered: {0}")]
    Register(#[from] RegisterError),
    /// The engine's thread did not do it.
    #[error("the RDMA engine: {0}")]
    Host(#[from] HostError),
    /// The connection was admitted for somebody else, or is gone.
    #[error("the connection is none of this peer's")]
    OtherBearer,
    /// No ticket can be issued.
    #[error("no ticket: {0}")]
    Ticket(#[from] TokenError),
    /// A thread, or its surroundings.
    #[error("the operating system: {0}")]
    System(String),
}
