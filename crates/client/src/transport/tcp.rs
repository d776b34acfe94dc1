//! Frames over TCP.
//!
//! A sender writes to the socket itself when nothing is queued, so that the common case costs no
//! task switch; a writer task sends what the socket does not take at once. Neither half holds a
//! lock across an await: a cancelled caller can never leave half a frame behind.
//!
//! `close` frees everything at once: the queue, the writer task, which may wait for a peer that takes nothing, and
//! the receiver's end with the socket.
//!
//! Spec: MS-SMB2 §2.1.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use smb::frame_memory::{InFrame, Spares};
use smb::framing::{PREFIX_LEN, frame_len};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};

use super::{FrameLimits, FrameReceiver, FrameSender, OutFrame, Transport};
use crate::error::ConnectionError;

/// Dials `address`.
///
/// # Errors
/// The error of the host's network.
pub async fn connect(address: SocketAddr) -> Result<Transport, ConnectionError> {
    let stream = TcpStream::connect(address).await?;
    // A request is complete when it is sent; waiting for more would only delay it.
    stream.set_nodelay(true)?;
    // A caller that waits for an answer has its own timeout; without this probe a caller would wait for
    // ever for a change notification of a server that is gone.
    rdma::watch_peer(&stream, Some(rdma::SILENCE_MAX))?;
    let (read, write) = stream.into_split();
    let (open, closed) = oneshot::channel();
    let queue = Queue {
        frames: VecDeque::new(),
        failed: None,
        write: Some(Arc::new(write)),
        open: Some(open),
    };
    let shared = Arc::new(Shared { queue: Mutex::new(queue), work: Notify::new() });
    tokio::spawn(drain(Arc::clone(&shared)));
    let receiver = Box::new(Receiver {
        read,
        closed,
        buffer: vec![0; BUFFER],
        start: 0,
        end: 0,
        frame: None,
        spares: Arc::default(),
    });
    let (sender, peer) = (Box::new(Sender(shared)), Some(address.ip()));
    Ok(Transport { sender, receiver, pool: None, peer, limits: FrameLimits::NONE })
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    work: Notify,
}

#[derive(Debug)]
struct Queue {
    /// Frames, each with the number of its bytes that are sent.
    frames: VecDeque<(Vec<u8>, usize)>,
    failed: Option<ConnectionError>,
    /// Gone with the connection.
    write: Option<Arc<OwnedWriteHalf>>,
    /// The receiver ends when this is dropped.
    open: Option<oneshot::Sender<()>>,
}

#[derive(Debug)]
struct Sender(Arc<Shared>);

impl FrameSender for Sender {
    fn send(&self, frame: OutFrame) -> Result<(), ConnectionError> {
        let mut queue = self.0.lock();
        if let Some(error) = queue.failed {
            return Err(error);
        }
        queue.frames.push_back(frame.into_tcp());
        if queue.frames.len() == 1 {
            queue.write_some()?;
        }
        if !queue.frames.is_empty() {
            self.0.work.notify_one();
        }
        Ok(())
    }

    fn close(&self) {
        self.0.lock().end(ConnectionError::Closed);
        self.0.work.notify_one();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Writes until the socket is full or the queue is empty.
    fn write_some(&mut self) -> Result<(), ConnectionError> {
        let Some(write) = &self.write else { return Ok(()) };
        while let Some((bytes, sent)) = self.frames.front_mut() {
            match write.try_write(&bytes[*sent..]) {
                Ok(count) => *sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(self.end(error.into())),
            }
            if *sent == bytes.len() {
                self.frames.pop_front();
            }
        }
        Ok(())
    }

    /// Frees what the connection holds; returns the first error, which counts.
    fn end(&mut self, error: ConnectionError) -> ConnectionError {
        self.frames = VecDeque::new();
        (self.write, self.open) = (None, None);
        *self.failed.get_or_insert(error)
    }
}

/// The writer task: sends what the socket did not take at once. The task ends with the connection,
/// and dropping the write half shuts the stream down.
async fn drain(shared: Arc<Shared>) {
    loop {
        let blocked = {
            let mut queue = shared.lock();
            let written = queue.write_some();
            let Some(write) = queue.write.as_ref().filter(|_| written.is_ok()) else { return };
            (!queue.frames.is_empty()).then(|| Arc::clone(write))
        };
        match blocked {
            None => shared.work.notified().await,
            Some(write) => tokio::select! {
                // The next attempt to write tells what is wrong.
                _ = write.writable() => {}
                // The connection was closed, or more was queued.
                () = shared.work.notified() => {}
            },
        }
    }
}

#[derive(Debug)]
struct Receiver {
    read: OwnedReadHalf,
    /// Ends when this end closes the connection.
    closed: oneshot::Receiver<()>,
    buffer: Vec<u8>,
    /// Start of the bytes in `buffer` that were read from the socket and not handed out.
    start: usize,
    end: usize,
    /// A frame longer than the buffer, and the number of its bytes received.
    frame: Option<(InFrame, usize)>,
    spares: Arc<Spares>,
}

impl FrameReceiver for Receiver {
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        len_max: usize,
    ) -> Poll<Result<InFrame, ConnectionError>> {
        if Pin::new(&mut self.closed).poll(cx).is_ready() {
            return Poll::Ready(Err(ConnectionError::Closed));
        }
        loop {
            if let Some((frame, filled)) = &mut self.frame {
                while *filled < frame.len() {
                    *filled += ready!(poll_read(&mut self.read, cx, &mut frame[*filled..]))?;
                }
                let (frame, _) = self.frame.take().expect("it was there above");
                return Poll::Ready(Ok(frame));
            }
            if let Some(frame) = self.take_frame(len_max)? {
                return Poll::Ready(Ok(frame));
            }
            if self.frame.is_none() {
                ready!(self.poll_fill(cx))?;
            }
        }
    }
}

impl Receiver {
    /// A whole frame of the buffer; a longer one is moved out to be read in place.
    fn take_frame(&mut self, len_max: usize) -> Result<Option<InFrame>, ConnectionError> {
        let bytes = &self.buffer[self.start..self.end];
        let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_LEN>() else {
            return Ok(None);
        };
        let len = frame_len(*prefix, len_max)?;
        if let Some(frame) = rest.get(..len) {
            let frame = frame.to_vec();
            self.start += PREFIX_LEN + len;
            return Ok(Some(frame.into()));
        }
        if PREFIX_LEN + len > BUFFER {
            let mut frame = self.spares.frame(len);
            let filled = rest.len();
            frame[..filled].copy_from_slice(rest);
            self.start = self.end;
            self.frame = Some((frame, filled));
        }
        Ok(None)
    }

    /// Reads more behind what is left.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        self.end += ready!(poll_read(&mut self.read, cx, &mut self.buffer[self.end..]))?;
        Poll::Ready(Ok(()))
    }
}

fn poll_read(
    read: &mut OwnedReadHalf,
    cx: &mut Context<'_>,
    target: &mut [u8],
) -> Poll<Result<usize, ConnectionError>> {
    let mut buffer = ReadBuf::new(target);
    ready!(Pin::new(read).poll_read(cx, &mut buffer))?;
    match buffer.filled().len() {
        0 => Poll::Ready(Err(ConnectionError::PeerClosed)),
        count => Poll::Ready(Ok(count)),
    }
}

/// Small answers arrive several at a time; a longer answer is read into its final place.
const BUFFER: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_transport_that_is_dropped_ends_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let transport = connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        drop(transport);
        let end = tokio::time::timeout(Duration::from_secs(10), peer.read_u8()).await;
        assert_eq!(end.unwrap().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn a_connection_that_is_given_up_holds_neither_queue_nor_socket() {
        // The peer takes nothing, so the writer task waits for it.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut transport = connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let shared = {
            let queued = || OutFrame::new(0, |out| out.resize(8 << 20, 1));
            (0..4).for_each(|_| transport.sender.send(queued()).unwrap());
            let sender: &dyn std::any::Any = &*transport.sender;
            Arc::downgrade(&sender.downcast_ref::<Sender>().unwrap().0)
        };
        let ends = async {
            transport.sender.close();
            let end = std::future::poll_fn(|cx| transport.receiver.poll_receive(cx, 1)).await;
            assert_eq!(end.unwrap_err(), ConnectionError::Closed);
            assert!(shared.upgrade().unwrap().lock().frames.is_empty());
            drop(transport);
            while shared.strong_count() > 0 {
                tokio::task::yield_now().await;
            }
            let mut rest = Vec::new();
            peer.read_to_end(&mut rest).await.unwrap();
        };
        tokio::time::timeout(Duration::from_secs(10), ends).await.unwrap();
    }
}
