//! What a region needs of the control side of its file: mapping, and plain reads and writes.
//!
//! A region knows none of the messages: [`Messages`] says what their answers and failures are, and a
//! [`Control`] sends them.

use std::error::Error;
use std::fmt::{Debug, Display};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use pmem::DurabilityClass;
use rdma::{PeerOperations, Rkey};

use super::path::{FallbackReason, Promise};
use super::recall::Recall;

/// The messages of a kind of control side: a type without values that stands for their protocol.
pub trait Messages: Copy + Debug + Eq + Send + Sync + 'static {
    /// Why a request failed.
    type Error: Error + Send + Sync + 'static;
    /// Why a peer that knows push mode does not push a file.
    type Refusal: Copy + Debug + Display + Eq + Send + Sync;
    /// The status of an answer that refuses a request.
    type Status: Copy + Debug + Display + Eq + Send + Sync;

    /// The name of the protocol.
    const NAME: &'static str;
    /// The messages that carry a region's operations while it is not mapped.
    const PLAIN: &'static str;
    /// The message that carries a commit where the push connection cannot.
    const COMMIT: &'static str;

    /// Why a failed request ends push mode.
    fn reason(error: &Self::Error) -> FallbackReason<Self>;
}

/// The control side of a mapped file. Calls block.
pub trait Control<M: Messages>: Debug + Send {
    /// Asks for a new token for one push connection.
    fn invite(&mut self) -> Result<Invitation, FallbackReason<M>>;

    /// What the server says that a commit of the file is worth, now; `None` where it does not say.
    fn promise(&self) -> Option<Promise>;

    /// Whether the caller takes that for a commit. A file without commits is nothing that a caller can take.
    fn takes(&self, promise: Promise) -> bool {
        promise.can_commit()
    }

    /// The id of a push connection, from the private data of the server's answer.
    fn connection(&self, reply: &[u8]) -> Option<u64>;

    /// Maps the region on an accepted push connection. From now on `recall` gets the recalls of the
    /// server.
    fn map(&mut self, connection: u64, recall: &Arc<Recall>) -> Result<Mapping, M::Error>;

    /// Returns the registration to the server. No effect without a registration. The client keeps
    /// the lease, as long as the grace allows, until [`Control::settle`].
    fn unmap(&mut self) -> Result<(), M::Error>;

    /// Whether there is a lease under which bytes of the latest mapping could be written again: only while it is held can a
    /// replay overwrite no bytes of another client. Asked after [`Control::unmap`].
    fn may_replay(&mut self) -> bool;

    /// Writes bytes again that were written under the latest mapping, by messages; `false`, with no more than a beginning
    /// written, if the lease is not any more what it was then. It is the server that looks, when it writes: what a client
    /// knows of its lease may be old, and a write may be on its way for long.
    fn write_again(&mut self, file_offset: u64, bytes: &[u8]) -> Result<bool, M::Error>;

    /// Notes that no byte of the latest mapping is left to be written: the lease may go to a
    /// waiting client.
    fn settle(&mut self);

    /// Reads by messages, whole or failed.
    fn read(&mut self, file_offset: u64, out: &mut [u8]) -> Result<(), M::Error>;

    /// Writes by messages, whole or failed.
    fn write(&mut self, file_offset: u64, bytes: &[u8]) -> Result<(), M::Error>;

    /// Commits, by a message, a range of the file that lies in the mapped region.
    ///
    /// # Durability
    ///
    /// Whatever was placed in the range before is durable in the server's class for the file.
    fn commit(&mut self, range: Range<u64>) -> Result<(), M::Error>;

    /// Makes the file durable by a message.
    ///
    /// # Durability
    ///
    /// All writes by messages before it are durable in the server's class for the file.
    fn flush(&mut self) -> Result<(), M::Error>;

    /// Gives the file back, and waits until the server has let go of it: no call follows.
    ///
    /// # Errors
    /// The server's. The file is given back all the same.
    fn close(&mut self) -> Result<(), M::Error>;
}

/// How to make a push connection.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// The server's push listeners, the best first.
    pub listeners: Vec<Listener>,
    /// The listener that a process of the server's host finds, through shared memory.
    pub same_host: Option<Listener>,
    /// The durability class of a commit.
    pub class: DurabilityClass,
    /// The class is volatile and the server emulates persistence.
    pub is_emulated: bool,
}

/// Where to dial, and what to show there.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The address to dial.
    pub address: SocketAddr,
    /// The private data to send: shows that this client may connect.
    pub private_data: Vec<u8>,
}

/// A registered region.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// The operations, beyond writes and reads, that the other side answers on the region and allows.
    pub operations: PeerOperations,
    /// The pieces of the region in order, all under one key.
    pub pieces: Vec<Piece>,
}

/// A piece of a region, by its name on the push connection.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The name of the memory in requests.
    pub rkey: Rkey,
    /// The address of the first byte.
    pub remote_addr: u64,
    /// Length in bytes.
    pub len: u64,
}
