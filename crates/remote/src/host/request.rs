//! A peer's request for a connection.

use std::net::SocketAddr;

use rdma::ConnectionId;

/// A request that waits for an answer.
#[derive(Debug)]
pub struct Request {
    /// The name of the request at the engine of this thread.
    pub id: ConnectionId,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The address that the peer dialled.
    pub local: SocketAddr,
    /// The private data of the request.
    pub private_data: Vec<u8>,
    /// The request came through memory that only processes of this host share.
    pub is_same_host: bool,
}
