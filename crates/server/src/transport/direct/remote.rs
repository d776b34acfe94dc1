//! The peer as the rest of the server sees it: the destination of answers, and the memory that it
//! offers.

use std::future::ready;
use std::sync::Arc;

use smb::NtStatus;
use smbdirect::Descriptors;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::cursor::Cursor;
use super::mailbox::{Item, Mailbox};
use super::transfers::{Pull, PullEnd, Push};
use crate::connections::{Outbox, Parcel, RemoteMemory, Transfer};
use crate::state::Room;

/// Sends answers, through the mailbox.
#[derive(Debug)]
pub(super) struct Answers(pub(super) Arc<Mailbox>);

impl Outbox for Answers {
    fn deliver(&self, parcel: Parcel) {
        // The connection may have ended: then no peer waits for the answer.
        let _ = self.0.post(Item::Frames(parcel));
    }

    fn close(&self) {
        self.0.close_in_order();
    }
}

/// The buffers that a peer names in READ and WRITE.
#[derive(Debug)]
pub(super) struct Buffers {
    mailbox: Arc<Mailbox>,
    room: Arc<Semaphore>,
}

impl Buffers {
    pub(super) fn new(mailbox: Arc<Mailbox>, room: Arc<Semaphore>) -> Self {
        Self { mailbox, room }
    }

    /// Room for the bytes of pushes that are not posted yet, in KiB. Closed with the connection.
    pub(super) fn room() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(PUSH_ROOM_KIB))
    }
}

/// The destination of the bytes of a push.
fn destination(data: &[u8], descriptors: &[u8]) -> Result<Cursor, NtStatus> {
    Cursor::new(descriptors, u64::try_from(data.len()).expect("lengths fit 64 bits"))
}

/// The room that the bytes take until they are posted: all of their memory, and what is queued beside it.
fn kib(data: &Vec<u8>, cursor: &Cursor) -> u32 {
    let kib = (data.capacity() + cursor.held()).div_ceil(1024).min(PUSH_ROOM_KIB);
    u32::try_from(kib).expect("bounded by a small constant")
}

impl RemoteMemory for Buffers {
    fn buffer(&self, len: usize) -> Vec<u8> {
        self.mailbox.buffer(len)
    }

    fn recycle(&self, buffer: Vec<u8>) {
        self.mailbox.recycle(buffer);
    }

    fn try_push(
        &self,
        data: Vec<u8>,
        descriptors: &[u8],
        counted: Option<Room>,
    ) -> Option<Result<(), NtStatus>> {
        let cursor = match destination(&data, descriptors) {
            Ok(cursor) => cursor,
            Err(status) => {
                self.mailbox.recycle(data);
                return Some(Err(status));
            }
        };
        match Arc::clone(&self.room).try_acquire_many_owned(kib(&data, &cursor)) {
            Ok(room) => Some(post(&self.mailbox, cursor, data, (room, counted))),
            Err(_) => {
                self.mailbox.recycle(data);
                None
            }
        }
    }

    fn try_pull(&self, len: u32, descriptors: &[u8]) -> Option<Vec<u8>> {
        let len = usize::try_from(len).expect("32 bits fit usize");
        self.mailbox.take_fetched(len, descriptors)
    }

    fn invalidate_by_answer(&self, message_id: u64, descriptors: &[u8]) {
        let Ok(descriptors) = Descriptors::parse(descriptors) else { return };
        let token = descriptors.first_token();
        // A connection that has ended sends no answer.
        let _ = self.mailbox.post(Item::Invalidate { message_id, token });
    }

    // Done when the bytes are queued: RDMA delivers them before any answer that is queued later.
    fn push(&self, data: Vec<u8>, descriptors: &[u8], counted: Option<Room>) -> Transfer<()> {
        let cursor = match destination(&data, descriptors) {
            Ok(cursor) => cursor,
            Err(status) => return Box::pin(ready(Err(status))),
        };
        let kib = kib(&data, &cursor);
        let mailbox = Arc::clone(&self.mailbox);
        match Arc::clone(&self.room).try_acquire_many_owned(kib) {
            Ok(room) => Box::pin(ready(post(&mailbox, cursor, data, (room, counted)))),
            Err(_) => {
                let room = Arc::clone(&self.room);
                Box::pin(async move {
                    let room = room.acquire_many_owned(kib).await;
                    let room = room.map_err(|_| NtStatus::CONNECTION_DISCONNECTED)?;
                    post(&mailbox, cursor, data, (room, counted))
                })
            }
        }
    }

    fn pull(&self, len: u32, descriptors: &[u8]) -> Transfer<Vec<u8>> {
        if let Some(data) = self.try_pull(len, descriptors) {
            return Box::pin(ready(Ok(data)));
        }
        let cursor = match Cursor::new(descriptors, u64::from(len)) {
            Ok(cursor) if cursor.is_done() => return Box::pin(ready(Ok(Vec::new()))),
            Ok(cursor) => cursor,
            Err(status) => return Box::pin(ready(Err(status))),
        };
        let (reply, answer) = oneshot::channel();
        let pull = Pull::new(cursor, len, PullEnd::Reply(reply));
        // A closed mailbox drops the pull, and the reply with it.
        let _ = self.mailbox.post(Item::Pull(pull));
        Box::pin(async move { answer.await.unwrap_or(Err(NtStatus::CONNECTION_DISCONNECTED)) })
    }
}

fn post(
    mailbox: &Mailbox,
    cursor: Cursor,
    data: Vec<u8>,
    (room, counted): (OwnedSemaphorePermit, Option<Room>),
) -> Result<(), NtStatus> {
    if counted.is_none() {
        mailbox.add_uncounted(data.capacity() + cursor.held());
    }
    let push = Push { cursor, data, posted: 0, _room: room, counted };
    mailbox.post(Item::Push(push)).map_err(|_| NtStatus::CONNECTION_DISCONNECTED)
}

/// Bytes of pushes that wait in a connection's queue: 16 MiB. The next READ waits for room, and
/// keeps its credits while it waits.
const PUSH_ROOM_KIB: usize = 16 * 1024;
