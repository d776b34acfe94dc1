//! SMB over TCP: one task per connection, one read buffer, one write per batch of answers.
//!
//! ```text
//!          +---------------- select ----------------+
//!          v                                        |
//!  readable: read once, handle every whole frame, answers go into one buffer, write it
//!  outbox:   take everything queued, write it
//!  deadline: not authenticated in time: close
//! ```
//!
//! A request that can be answered now costs one read and one write on one task: no hop, no lock
//! another connection can hold, no copy of the data beyond the kernel's. While a peer does not
//! take its answers nothing more is read from it. The outbox needs no bound of its own: every
//! frame in it answers a request that took a credit, or breaks a lease once.
//!
//! Spec: MS-SMB2 §2.1 (direct TCP).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use smb::framing;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::Outbox;
use super::admission::Admission;
use super::input::Input;
use super::write_buffer::{self, WriteBuffer};
use crate::limits::UNAUTHENTICATED_FRAME_MAX;
use crate::service::Core;
use crate::share::{Remainder, ShareError};
use crate::state::{Connection, Link, Violation};

/// Accepts connections until told to stop, then waits for them to end.
pub(crate) async fn serve(core: Arc<Core>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = told(&mut stop) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let evicted = Arc::new(Notify::new());
                if let Some(admission) = Admission::ask(&core, Arc::clone(&evicted) as _) {
                    let peer = Peer::new(&core, stream, peer, (admission, evicted));
                    connections.spawn(peer.run(stop.clone()));
                }
            }
            Err(error) => {
                // Out of handles, most likely: give those that close a chance.
                warn!(%error, "cannot accept connections; raise the limit of open files");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all_gone = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(core.limits.shutdown_grace, all_gone).await.is_err() {
        warn!("some connections did not end in time");
    }
}

// The server stops, or is gone, which is the same.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// What others put into a connection's queue.
#[derive(Debug)]
enum Outgoing {
    Frame(Vec<u8>),
    Close,
}

#[derive(Debug)]
struct Queue(UnboundedSender<Outgoing>);

impl Outbox for Queue {
    fn deliver(&self, frame: Vec<u8>) {
        // The connection may have ended: then nobody waits for the answer.
        let _ = self.0.send(Outgoing::Frame(frame));
    }

    fn close(&self) {
        let _ = self.0.send(Outgoing::Close);
    }
}

/// One connection.
#[derive(Debug)]
struct Peer {
    stream: TcpStream,
    address: SocketAddr,
    connection: Connection,
    queue: UnboundedReceiver<Outgoing>,
    input: Input,
    out: WriteBuffer,
    admission: Admission,
    /// Rung when the connection has to make room for a newcomer.
    evicted: Arc<Notify>,
}

impl Peer {
    fn new(
        core: &Arc<Core>,
        stream: TcpStream,
        address: SocketAddr,
        (admission, evicted): (Admission, Arc<Notify>),
    ) -> Self {
        let (sender, queue) = unbounded_channel();
        let local = stream.local_addr().unwrap_or(address);
        let link = Link::new(Arc::clone(core), address, local, Box::new(Queue(sender)), None);
        // Answers leave at once; a refusal costs latency only.
        let _ = stream.set_nodelay(true);
        Self {
            stream,
            address,
            connection: Connection::streaming(Arc::new(link)),
            queue,
            input: Input::new(),
            out: WriteBuffer::default(),
            admission,
            evicted,
        }
    }

    async fn run(mut self, stop: watch::Receiver<bool>) {
        debug!(peer = %self.address, "connected");
        match self.converse(stop).await {
            Ok(()) => debug!(peer = %self.address, "disconnected"),
            Err(end) => info!(peer = %self.address, reason = %end, "connection ended"),
        }
        let Self { connection, admission, .. } = self;
        if connection.has_sessions() {
            let _ = tokio::task::spawn_blocking(move || connection.end()).await;
        } else {
            connection.end();
        }
        drop(admission);
    }

    async fn converse(&mut self, mut stop: watch::Receiver<bool>) -> Result<(), End> {
        let patience = self.admission.core.limits.authentication_timeout;
        let deadline = Instant::now() + patience;
        // One timer for all pauses: it is set again only when it has fired, not for each request.
        let pause = tokio::time::sleep(write_buffer::IDLE);
        tokio::pin!(pause);
        let mut was_busy = true;
        loop {
            tokio::select! {
                biased;
                read = self.input.read(&mut self.stream) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    was_busy = true;
                    self.connection.link.hear();
                    self.handle_input().await?;
                }
                Some(outgoing) = self.queue.recv() => {
                    was_busy = true;
                    self.take_queue(outgoing).await?;
                }
                () = tokio::time::sleep_until(deadline), if self.admission.is_stranger() => {
                    return Err(End::PeerSlowToAuthenticate);
                }
                () = self.evicted.notified(), if self.admission.is_evictable() => {
                    return Err(End::Evicted);
                }
                () = &mut pause, if self.out.is_large() || self.input.is_large() => {
                    if !std::mem::take(&mut was_busy) {
                        self.out.idle();
                        self.input.idle();
                    }
                    pause.as_mut().reset(Instant::now() + write_buffer::IDLE);
                }
                () = told(&mut stop) => return Err(End::ServerStops),
            }
        }
    }

    async fn handle_input(&mut self) -> Result<(), End> {
        let limit = if self.admission.is_stranger() {
            UNAUTHENTICATED_FRAME_MAX
        } else {
            let io_size = self.admission.core.limits.io_size_max;
            usize::try_from(io_size)
                .unwrap_or(usize::MAX)
                .saturating_add(framing::FRAME_OVERHEAD_MAX)
        };
        while let Some(frame) = self.input.next_frame(limit)? {
            self.connection.handle(frame, self.out.bytes())?;
            if let Some(rest) = self.connection.take_rest() {
                self.stream(rest)?;
            }
            if self.out.as_slice().len() > WRITE_AT {
                self.write().await?;
            }
        }
        self.admission.look(&self.connection.link);
        // What finished meanwhile travels with it.
        while let Ok(outgoing) = self.queue.try_recv() {
            match outgoing {
                Outgoing::Frame(frame) => self.out.bytes().extend_from_slice(&frame),
                Outgoing::Close => return Err(End::Closed),
            }
        }
        self.write().await
    }

    async fn take_queue(&mut self, first: Outgoing) -> Result<(), End> {
        let mut next = Some(first);
        while let Some(outgoing) = next {
            match outgoing {
                // A large answer is not copied: it leaves behind what was gathered.
                Outgoing::Frame(frame) if frame.len() > WRITE_AT => {
                    self.write().await?;
                    self.out.replace(frame);
                }
                Outgoing::Frame(frame) => self.out.bytes().extend_from_slice(&frame),
                Outgoing::Close => {
                    self.write().await?;
                    return Err(End::Closed);
                }
            }
            next = self.queue.try_recv().ok();
        }
        // By an answer that was held back.
        self.admission.look(&self.connection.link);
        self.write().await
    }

    /// Gathers the rest of an answer, and sends all but the last of it piece by piece as long as
    /// the socket takes that without waiting. Then the rest is read at once: an answer says what
    /// the file was when the request came, however slow the peer is.
    fn stream(&mut self, mut rest: Remainder) -> Result<(), End> {
        let mut piece = PIECE;
        while rest.left() > 0 {
            rest.try_read(self.out.bytes(), piece).map_err(End::File)?;
            if rest.left() > 0 && piece == PIECE && !self.try_write()? {
                piece = rest.left();
            }
        }
        Ok(())
    }

    async fn write(&mut self) -> Result<(), End> {
        // Almost always the kernel takes it all at once, and no timer is needed.
        if !self.try_write()? {
            let rest = self.stream.write_all(self.out.as_slice());
            tokio::time::timeout(WRITE_TIMEOUT, rest).await.map_err(|_| End::PeerDoesNotRead)??;
            self.out.sent();
        }
        Ok(())
    }

    /// Sends what the socket takes now. Whether that was all.
    fn try_write(&mut self) -> Result<bool, End> {
        let out = self.out.as_slice();
        if out.is_empty() {
            return Ok(true);
        }
        let sent = match self.stream.try_write(out) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        if sent < out.len() {
            self.out.advance(sent);
            return Ok(false);
        }
        self.out.sent();
        Ok(true)
    }
}

/// Why a conversation ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error("peer did not authenticate in time")]
    PeerSlowToAuthenticate,
    #[error("too many connections over which no user has logged on: the oldest makes room")]
    Evicted,
    #[error("peer does not take its answers")]
    PeerDoesNotRead,
    #[error("a file could not be read to the end that was promised: {0}")]
    File(ShareError),
    #[error("{0}")]
    HostIo(#[from] io::Error),
    #[error("the server ends it")]
    Closed,
    #[error("the server stops")]
    ServerStops,
}

/// Answers gathered before they are written, in bytes.
const WRITE_AT: usize = 128 * 1024;
/// Of an answer that is read while it is sent: what stays in the cache of a core between.
const PIECE: usize = 512 * 1024;
/// A peer that takes nothing for this long is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
