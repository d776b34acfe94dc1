//! What a region needs of the SMB side of its file: mapping, and plain reads and writes.
//!
//! A seam, so that tests drive the region's change of paths with a control side that fails on cue.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use pmem::DurabilityClass;
use rdma::{PeerOperations, Rkey};

use super::path::FallbackReason;
use super::recall::Recall;
use crate::error::ClientError;

/// The SMB side of a mapped file. Calls block.
pub(crate) trait Control: Debug + Send {
    /// Asks for a new token for one push connection.
    fn invite(&mut self) -> Result<Invitation, FallbackReason>;

    /// The id of a push connection, from the private data of the server's answer.
    fn connection(&self, reply: &[u8]) -> Option<u64>;

    /// Maps the region on an accepted push connection. From now on `recall` gets the recalls of the
    /// server.
    fn map(&mut self, connection: u64, recall: &Arc<Recall>) -> Result<Mapping, ClientError>;

    /// Returns the registration to the server. No effect without a registration. The client keeps
    /// the lease, as long as the grace allows, until [`Control::settle`].
    fn unmap(&mut self) -> Result<(), ClientError>;

    /// Whether the client has held the lease, unbroken, since the latest mapping: only then can a
    /// replay overwrite no bytes of another client. Asked after [`Control::unmap`].
    fn may_replay(&mut self) -> bool;

    /// SMB2 WRITE of bytes that were written under the latest mapping; `false`, without a write, if
    /// the client has given the lease away.
    fn write_again(&mut self, file_offset: u64, bytes: &[u8]) -> Result<bool, ClientError>;

    /// Notes that no byte of the latest mapping is left to be written: the lease may go to a
    /// waiting client.
    fn settle(&mut self);

    /// SMB2 READ, whole or failed.
    fn read(&mut self, file_offset: u64, out: &mut [u8]) -> Result<(), ClientError>;

    /// SMB2 WRITE, whole or failed.
    fn write(&mut self, file_offset: u64, bytes: &[u8]) -> Result<(), ClientError>;

    /// COMMIT_REMOTE_REGION of a range of the file that lies in the mapped region.
    ///
    /// # Durability
    ///
    /// Whatever was placed in the range before is durable in the server's class for the file.
    fn commit(&mut self, range: Range<u64>) -> Result<(), ClientError>;

    /// SMB2 FLUSH.
    ///
    /// # Durability
    ///
    /// All writes before it are durable in the server's class for the file.
    fn flush(&mut self) -> Result<(), ClientError>;
}

/// How to make a push connection.
#[derive(Clone, Debug)]
pub(crate) struct Invitation {
    /// The addresses of the server's push listener, the best first.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The name under which a process of the server's host finds it, through shared memory.
    pub(crate) same_host: Option<SocketAddr>,
    /// The private data to send: holds the single-use token.
    pub(crate) private_data: Vec<u8>,
    /// The durability class of a commit.
    pub(crate) class: DurabilityClass,
    /// The class is volatile and the server emulates persistence.
    pub(crate) is_emulated: bool,
}

/// A registered region.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    /// The operations, beyond writes and reads, that the other side answers on the region and allows.
    pub(crate) operations: PeerOperations,
    /// The pieces of the region in order, all under one key.
    pub(crate) pieces: Vec<Piece>,
}

/// A piece of a region, by its name on the push connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// The name of the memory in requests.
    pub(crate) rkey: Rkey,
    /// The address of the first byte.
    pub(crate) remote_addr: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}
