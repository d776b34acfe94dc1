//! READ, WRITE and FLUSH, many of them in flight at once.
//!
//! A call that needs several requests sends as many as credits and [`WINDOW`] allow before it
//! waits for the first answer, and takes the answers in order.
//!
//! ```text
//!   data in the message                      SMB Direct, [`RDMA_LEN_MIN`] bytes and more, not
//!   client --WRITE(data)--> server           encrypted: the message names memory, the server
//!   client <--READ(data)--- server           moves the data by RDMA before it answers
//! ```
//!
//! Signatures and encryption do not cover RDMA: the data of an encrypted share never travels that
//! way.
//!
//! Spec: MS-SMB2 §3.2.4.6, §3.2.4.7, §3.2.4.10, §3.2.4.19.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use smb::negotiate::Dialect;
use smb::{
    Channel, Command, Empty, FlushRequest, LockElement, LockFlags, LockRequest, NtStatus,
    ReadFlags, ReadRequest, ReadResponse, WriteFlags, WriteRequest, WriteResponse,
};

use super::File;
use crate::connection::{Leftover, PendingResponse};
use crate::error::{ClientError, ConnectionError};
use crate::transport::direct::{Pool, RDMA_LEN_MIN, Slots};

/// What to do with a range of bytes of a file, as [`File::lock`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RangeLock {
    /// Others may read the range, and lock it in the same way.
    Shared,
    /// Others may neither read nor write the range.
    Exclusive,
    /// Give back exactly this range.
    Unlock,
}

/// A request for one piece of a call.
struct Piece {
    pending: PendingResponse,
    /// Memory lent to the server; if there is none, the data is in the message.
    slots: Option<Slots>,
}

impl File {
    /// Reads into `out` from `offset` on and returns the number of bytes: fewer than asked only at
    /// the end of the file.
    ///
    /// # Errors
    /// The server's status, or no file has a byte there.
    pub async fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize, ClientError> {
        check_range(offset, out.len())?;
        let connection = self.tree.connection();
        let size = self.io_size(connection.negotiated().read_size_max(), connection.receives_max());
        let mut chunks = out.chunks_mut(size);
        let mut next = chunks.next();
        let mut window = VecDeque::new();
        let (mut at, mut total) = (offset, 0);
        let mut ended = false;
        loop {
            while let Some(chunk) = next.take_if(|_| window.len() < WINDOW && !ended) {
                let loan = self.lend(chunk.len(), window.is_empty()).await?;
                if let Loan::Later = loan {
                    next = Some(chunk);
                    break;
                }
                let piece = self.submit_read(at, chunk.len(), loan).await?;
                at += as_u64(chunk.len());
                window.push_back((chunk, piece));
                next = chunks.next();
            }
            let Some((chunk, piece)) = window.pop_front() else { return Ok(total) };
            let count = piece.finish_read(chunk).await?;
            // Requests beyond the end are answered END_OF_FILE; the call only waits for these
            // answers.
            if !ended {
                total += count;
            }
            ended |= count < chunk.len();
        }
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Durability
    /// None: see [`File::flush`].
    ///
    /// # Errors
    /// The server's status; any part may have been written.
    pub async fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        self.write_with(offset, data, WriteFlags::empty()).await
    }

    /// Writes all of `data` at `offset` and returns when the server says it is durable.
    ///
    /// # Durability
    /// As far as the server honours WRITE_THROUGH (2.1 and later). Part of the data may survive a
    /// crash before the answer.
    ///
    /// # Errors
    /// The server's status; any part may have been written.
    pub async fn write_through_at(&self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        self.write_with(offset, data, WriteFlags::WRITE_THROUGH).await
    }

    /// Returns when everything written through this open is durable.
    ///
    /// # Durability
    /// Every write that was answered before the call survives a crash of the server after it.
    ///
    /// # Errors
    /// The server's status; then it is unknown which of the writes are durable.
    pub async fn flush(&self) -> Result<(), ClientError> {
        let request = FlushRequest { file_id: self.id };
        let response = self.tree.call(Command::FLUSH, 0, |out| request.emit(out)).await?;
        response.parse(Empty::parse).map(drop)
    }

    /// Takes or gives back a range of bytes; of a range that another open holds, the server refuses at once.
    ///
    /// Returns whether the range was granted. All locks of an open end with the open.
    ///
    /// # Errors
    /// The server's status.
    pub async fn lock(&self, range: Range<u64>, kind: RangeLock) -> Result<bool, ClientError> {
        let flags = match kind {
            RangeLock::Shared => LockFlags::SHARED | LockFlags::FAIL_IMMEDIATELY,
            RangeLock::Exclusive => LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY,
            RangeLock::Unlock => LockFlags::UNLOCK,
        };
        let length = range.end.saturating_sub(range.start);
        let locks = vec![LockElement { offset: range.start, length, flags }];
        let request = LockRequest { lock_sequence: 0, file_id: self.id, locks };
        let refused = [NtStatus::LOCK_NOT_GRANTED];
        let emit = |out: &mut Vec<u8>| request.emit(out);
        let response = self.tree.call_accepting(Command::LOCK, 0, &refused, emit).await?;
        if response.header().status == NtStatus::LOCK_NOT_GRANTED {
            return Ok(false);
        }
        response.parse(Empty::parse).map(|_| true)
    }

    async fn write_with(
        &self,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<(), ClientError> {
        check_range(offset, data.len())?;
        let connection = self.tree.connection();
        let size = self.io_size(connection.negotiated().write_size_max(), connection.sends_max());
        let mut chunks = data.chunks(size);
        let mut next = chunks.next();
        let mut window = VecDeque::new();
        let mut at = offset;
        loop {
            while let Some(chunk) = next.take_if(|_| window.len() < WINDOW) {
                let loan = self.lend(chunk.len(), window.is_empty()).await?;
                if let Loan::Later = loan {
                    next = Some(chunk);
                    break;
                }
                let piece = self.submit_write(at, chunk, flags, loan).await?;
                at += as_u64(chunk.len());
                window.push_back((chunk.len(), piece));
                next = chunks.next();
            }
            let Some((len, piece)) = window.pop_front() else { return Ok(()) };
            piece.finish_write(len).await?;
        }
    }

    fn pool(&self) -> Option<&Arc<Pool>> {
        let connection = self.tree.connection();
        let allowed = connection.negotiated().dialect >= Dialect::SMB_3_0;
        connection.pool().filter(|pool| allowed && pool.is_of_use() && !self.tree.is_encrypted())
    }

    /// Bytes of one request, at most `max`, and at most `message_max` in a message.
    fn io_size(&self, max: u32, message_max: u32) -> usize {
        let max = max.min(self.pool().map_or(message_max, |pool| pool.io_size_max()));
        as_usize(self.tree.connection().io_size(max))
    }

    /// Memory for a piece. Only a call that holds no memory may wait for it.
    async fn lend(&self, len: usize, holds_none: bool) -> Result<Loan, ConnectionError> {
        let Some(pool) = self.pool().filter(|_| len >= as_usize(RDMA_LEN_MIN)) else {
            return Ok(Loan::Unneeded);
        };
        match pool.try_take(as_u32(len)) {
            Some(slots) => Ok(Loan::Granted(slots)),
            None if holds_none => pool.take(as_u32(len)).await.map(Loan::Granted),
            None => Ok(Loan::Later),
        }
    }

    async fn submit_read(&self, offset: u64, len: usize, loan: Loan) -> Result<Piece, ClientError> {
        let slots = loan.slots();
        let channel_info = slots.as_ref().map(Slots::channel_info).unwrap_or_default();
        let request = ReadRequest {
            flags: ReadFlags::empty(),
            length: as_u32(len),
            offset,
            file_id: self.id,
            minimum_count: 0,
            channel: channel(&channel_info),
            remaining_bytes: 0,
            channel_info: &channel_info,
        };
        let pending = self.tree.submit(Command::READ, len, |out| request.emit(out)).await?;
        Ok(Piece { pending, slots })
    }

    async fn submit_write(
        &self,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        loan: Loan,
    ) -> Result<Piece, ClientError> {
        let slots = loan.slots();
        if let Some(slots) = &slots {
            slots.fill(data).map_err(ConnectionError::from)?;
        }
        let channel_info = slots.as_ref().map(Slots::channel_info).unwrap_or_default();
        // MS-SMB2 §3.2.4.7: with a channel, Length is 0 and RemainingBytes holds the length.
        let (inline, remaining_bytes) =
            if slots.is_some() { (&[][..], as_u32(data.len())) } else { (data, 0) };
        let request = WriteRequest {
            offset,
            file_id: self.id,
            channel: channel(&channel_info),
            remaining_bytes,
            flags,
            data: inline,
            channel_info: &channel_info,
        };
        let pending = self.tree.submit(Command::WRITE, data.len(), |out| request.emit(out)).await?;
        Ok(Piece { pending, slots })
    }
}

/// A range whose end no number of 64 bits names is refused before anything of it is sent.
fn check_range(offset: u64, len: usize) -> Result<(), ClientError> {
    match offset.checked_add(as_u64(len)) {
        Some(_) => Ok(()),
        None => Err(ClientError::ConfigRange { offset, len }),
    }
}

/// Whether a piece travels by RDMA.
enum Loan {
    /// The data of the piece is in the message.
    Unneeded,
    /// The server uses this memory.
    Granted(Slots),
    /// The piece should travel by RDMA, but no memory is free: take in an answer first.
    Later,
}

impl Loan {
    fn slots(self) -> Option<Slots> {
        match self {
            Self::Granted(slots) => Some(slots),
            Self::Unneeded | Self::Later => None,
        }
    }
}

/// A piece that its caller has given up: the server may use the memory until it answers.
impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.take() {
            self.pending.leave(Leftover::Memory(slots));
        }
    }
}

impl Piece {
    async fn finish_read(mut self, out: &mut [u8]) -> Result<usize, ClientError> {
        let response = (&mut self.pending).await?;
        let slots = self.slots.take();
        let response = response.accept(&[NtStatus::END_OF_FILE])?;
        if response.header().status == NtStatus::END_OF_FILE {
            return Ok(0);
        }
        let answer = response.parse(ReadResponse::parse)?;
        if let Some(slots) = slots {
            let count = as_usize(answer.data_remaining).min(out.len());
            slots.copy_to(&mut out[..count]).map_err(ConnectionError::from)?;
            return Ok(count);
        }
        // Bytes of a READ answer beyond those asked for are cut off.
        let count = answer.data.len().min(out.len());
        out[..count].copy_from_slice(&answer.data[..count]);
        Ok(count)
    }

    async fn finish_write(mut self, len: usize) -> Result<(), ClientError> {
        let response = (&mut self.pending).await?;
        drop(self.slots.take());
        let response = response.success()?;
        let taken = response.parse(WriteResponse::parse)?.count;
        let given = as_u32(len);
        match taken == given {
            true => Ok(()),
            false => Err(ClientError::PeerShortWrite { taken, given }),
        }
    }
}

fn channel(channel_info: &[u8]) -> Channel {
    if channel_info.is_empty() { Channel::NONE } else { Channel::RDMA_V1 }
}

fn as_u64(len: usize) -> u64 {
    u64::try_from(len).expect("usize fits u64")
}

fn as_u32(len: usize) -> u32 {
    u32::try_from(len).expect("a piece is at most IO_SIZE_MAX")
}

fn as_usize(len: u32) -> usize {
    usize::try_from(len).expect("u32 fits usize")
}

/// Requests of one call in flight at once; more would only fill queues.
const WINDOW: usize = 16;
