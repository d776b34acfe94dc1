//! What a connection has of its transport: the way out for answers that come later, and the peer's memory.

use std::fmt::Debug;
use std::pin::Pin;

use smb::NtStatus;

use crate::state::account::Room;

/// Where answers that are not given at once go. Frames carry their four-byte length prefix.
pub(crate) trait Outbox: Debug + Send + Sync {
    /// Sends a frame after whatever is queued. A frame to a peer that is gone is dropped.
    fn deliver(&self, parcel: Parcel);

    /// Ends the connection; what is queued still leaves if the peer takes it.
    fn close(&self);
}

/// A frame on its way, and the room its bytes take until they have left.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) frame: Vec<u8>,
    pub(crate) room: Option<Room>,
}

impl From<Vec<u8>> for Parcel {
    fn from(frame: Vec<u8>) -> Self {
        Self { frame, room: None }
    }
}

/// The peer's memory, as READ and WRITE requests with an RDMA channel name it.
pub(crate) trait RemoteMemory: Debug + Send + Sync {
    /// An empty buffer for a transfer of so many bytes, one that was used before if there is one.
    fn buffer(&self, len: usize) -> Vec<u8>;

    /// Takes a buffer back that is not needed any more.
    fn recycle(&self, buffer: Vec<u8>);

    /// [`RemoteMemory::push`] where that needs no waiting; `None` where it does.
    fn try_push(
        &self,
        data: Vec<u8>,
        descriptors: &[u8],
        room: Option<Room>,
    ) -> Option<Result<(), NtStatus>>;

    /// What [`RemoteMemory::pull`] would bring, if it is here already.
    fn try_pull(&self, len: u32, descriptors: &[u8]) -> Option<Vec<u8>>;

    /// The final answer to a message, which is queued from now on, invalidates the first token.
    fn invalidate_by_answer(&self, message_id: u64, descriptors: &[u8]);

    /// Writes `data` across the peer's buffers, in their order. The data has `room` until all of it has left.
    fn push(&self, data: Vec<u8>, descriptors: &[u8], room: Option<Room>) -> Transfer<()>;

    /// Reads `len` bytes out of the peer's buffers, in their order.
    fn pull(&self, len: u32, descriptors: &[u8]) -> Transfer<Vec<u8>>;
}

/// A transfer under way.
pub(crate) type Transfer<T> = Pin<Box<dyn Future<Output = Result<T, NtStatus>> + Send>>;
