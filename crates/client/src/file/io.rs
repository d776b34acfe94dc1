//! READ, WRITE and FLUSH, many of them under way at once.
//!
//! A call that needs several requests sends as many as credits and [`WINDOW`] allow before it
//! waits for the first answer, and takes the answers in order.
//!
//! Spec: MS-SMB2 §3.2.4.6, §3.2.4.7, §3.2.4.10.

use std::collections::VecDeque;

use smb::{
    Channel, Command, Empty, FlushRequest, NtStatus, ReadFlags, ReadRequest, ReadResponse,
    WriteFlags, WriteRequest, WriteResponse,
};

use super::File;
use crate::connection::{PendingResponse, Response};
use crate::error::ClientError;

impl File {
    /// Reads into `out` from `offset` on and returns how many bytes there were: fewer than asked
    /// only at the end of the file.
    ///
    /// # Errors
    /// The server's status.
    pub async fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize, ClientError> {
        let size = self.read_size();
        let mut chunks = out.chunks_mut(size);
        let mut window = VecDeque::new();
        let (mut at, mut total) = (offset, 0);
        let mut ended = false;
        loop {
            while window.len() < WINDOW && !ended {
                let Some(chunk) = chunks.next() else { break };
                let pending = self.submit_read(at, chunk.len()).await?;
                at += as_u64(chunk.len());
                window.push_back((chunk, pending));
            }
            let Some((chunk, pending)) = window.pop_front() else { return Ok(total) };
            let count = finish_read(pending.await?, chunk)?;
            // What was sent beyond the end answers END_OF_FILE, and is only waited for.
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
    /// As far as the server keeps its word for WRITE_THROUGH (2.1 and later). Part of the data
    /// may survive a crash before the answer.
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
    /// The server's status; then nothing is known about any of it.
    pub async fn flush(&self) -> Result<(), ClientError> {
        let request = FlushRequest { file_id: self.id };
        let response = self.tree.call(Command::FLUSH, 0, |out| request.emit(out)).await?;
        response.parse(Empty::parse).map(drop)
    }

    async fn write_with(
        &self,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<(), ClientError> {
        let negotiated = self.tree.connection().negotiated();
        let size = self.tree.connection().io_size(negotiated.write_size_max());
        let mut window = VecDeque::new();
        let mut at = offset;
        for chunk in data.chunks(as_usize(size)) {
            if window.len() == WINDOW {
                finish_write(window.pop_front()).await?;
            }
            let request = WriteRequest {
                offset: at,
                file_id: self.id,
                channel: Channel::NONE,
                remaining_bytes: 0,
                flags,
                data: chunk,
                channel_info: &[],
            };
            let pending =
                self.tree.submit(Command::WRITE, chunk.len(), |out| request.emit(out)).await?;
            at += as_u64(chunk.len());
            window.push_back((pending, chunk.len()));
        }
        while !window.is_empty() {
            finish_write(window.pop_front()).await?;
        }
        Ok(())
    }

    fn read_size(&self) -> usize {
        let negotiated = self.tree.connection().negotiated();
        as_usize(self.tree.connection().io_size(negotiated.read_size_max()))
    }

    async fn submit_read(&self, offset: u64, len: usize) -> Result<PendingResponse, ClientError> {
        let request = ReadRequest {
            flags: ReadFlags::empty(),
            length: u32::try_from(len).expect("a chunk is at most read_size_max"),
            offset,
            file_id: self.id,
            minimum_count: 0,
            channel: Channel::NONE,
            remaining_bytes: 0,
            channel_info: &[],
        };
        Ok(self.tree.submit(Command::READ, len, |out| request.emit(out)).await?)
    }
}

fn finish_read(response: Response, out: &mut [u8]) -> Result<usize, ClientError> {
    let response = response.accept(&[NtStatus::END_OF_FILE])?;
    if response.header().status == NtStatus::END_OF_FILE {
        return Ok(0);
    }
    let data = response.parse(ReadResponse::parse)?.data;
    // A server that sends more than was asked is cut.
    let count = data.len().min(out.len());
    out[..count].copy_from_slice(&data[..count]);
    Ok(count)
}

async fn finish_write(oldest: Option<(PendingResponse, usize)>) -> Result<(), ClientError> {
    let Some((pending, len)) = oldest else { return Ok(()) };
    let response = pending.await?.success()?;
    let taken = response.parse(WriteResponse::parse)?.count;
    let given = u32::try_from(len).expect("a chunk is at most write_size_max");
    match taken == given {
        true => Ok(()),
        false => Err(ClientError::PeerShortWrite { taken, given }),
    }
}

fn as_u64(len: usize) -> u64 {
    u64::try_from(len).expect("usize fits u64")
}

fn as_usize(len: u32) -> usize {
    usize::try_from(len).expect("u32 fits usize")
}

/// Requests of one call under way at once; more only fill queues.
const WINDOW: usize = 16;
