//! The seam between those who use RDMA and those who provide it.
//!
//! ```text
//!   owner thread                       engine                        peer
//!   ------------                       ------                        ----
//!   post_send / post_recv  --------->  queues
//!   poll(&mut events)      --------->  transmit, receive, place  <-> TCP
//!                          <---------  Completion, ConnectRequest, ..
//!   wait(timeout)          --------->  spins, then sleeps
//!   any thread: waker.wake() ------->  ends a wait
//! ```
//!
//! An engine has one owner at a time and takes `&mut self`: no lock, and no allocation per data
//! operation. One-sided operations of peers are carried out inside `poll` and `wait` and cause no
//! event at all.

use std::any::Any;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pmem::Medium;

use super::config::{EngineConfig, QpCapabilities, QpConfig};
use super::error::{Deregistration, EngineError, PostError, RegisterError};
use super::event::Event;
use super::ids::{ConnectionId, QpId, Rkey};
use super::region::{Access, LocalSlice, MemoryRegion};
use super::stats::EngineStats;
use super::waker::Waker;
use super::work::WorkRequest;

/// A way to do RDMA on this machine.
pub trait Provider: Debug + Send + Sync {
    /// A short name for logs and reports.
    fn name(&self) -> &'static str;

    /// Whether a device reaches memory by itself: then only media that are memory can be
    /// registered ([`Medium::direct`]), and only those that the host pins.
    fn is_device(&self) -> bool {
        false
    }

    /// Opens an engine.
    fn open_engine(&self, config: EngineConfig) -> Result<Box<dyn Engine>, EngineError>;
}

/// A request on its way from one engine to another. Dropped, it is closed.
#[derive(Debug)]
pub struct Handover(pub(crate) Box<dyn Any + Send>);

/// Queue pairs, their connections and their memory, driven by one owner.
pub trait Engine: Debug + Send {
    /// Takes connections at `addr`; returns the address with its real port.
    fn listen(&mut self, addr: SocketAddr) -> Result<SocketAddr, EngineError>;

    /// Dials. Ends in `Event::Established` or `Event::ConnectFailed`.
    fn connect(
        &mut self,
        addr: SocketAddr,
        config: QpConfig,
        private_data: &[u8],
    ) -> Result<QpId, EngineError>;

    /// Answers a request with yes. Memory may be registered and receives posted at once, before
    /// the peer can know; sending waits for `Event::Established`, as the peer speaks first.
    fn accept(
        &mut self,
        request: ConnectionId,
        config: QpConfig,
        private_data: &[u8],
    ) -> Result<QpId, EngineError>;

    /// Answers a request with no. A request that is gone is nothing to complain about.
    fn reject(&mut self, request: ConnectionId, private_data: &[u8]);

    /// Lets a request go that was not answered, for another engine of the same provider to take.
    /// `None`, and nothing has happened, if it is gone, or if a wire hook watches the engine: a
    /// hook sees its streams whole.
    fn hand_over(&mut self, request: ConnectionId) -> Option<Handover>;

    /// Takes a request that another engine let go. It has another name here, and the time that
    /// this engine gives; no event tells of it. `None`: there is no room, and it is closed.
    fn take_over(&mut self, handover: Handover) -> Option<ConnectionId>;

    /// Lets `qp` use a range of a medium. Constant time for any length.
    fn register(
        &mut self,
        qp: QpId,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError>;

    /// Ends a region. After the call no operation on it begins; a peer's later use of it, and
    /// what of the peer's was still queued for it, ends the peer's connection.
    fn deregister(&mut self, qp: QpId, rkey: Rkey) -> Result<Deregistration, RegisterError>;

    /// Queues an operation. Nothing is transmitted before the next `poll` or `wait`, so that
    /// requests posted together travel together.
    fn post_send(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError>;

    /// Queues a buffer for a message of the peer's. Its region needs `Access::LOCAL_WRITE`.
    fn post_recv(&mut self, qp: QpId, wr_id: u64, buffer: LocalSlice) -> Result<(), PostError>;

    /// Ends a connection: what TCP can still take leaves, what is not answered is flushed, then
    /// `Event::Disconnected` comes. Nothing happens if it is gone already.
    fn disconnect(&mut self, qp: QpId);

    /// Does a bounded amount of work, fair between queue pairs, without blocking. Appends what
    /// happened to `events` and returns how much that was.
    fn poll(&mut self, events: &mut Vec<Event>) -> usize;

    /// Works until there is an event to poll, a [`Waker`] calls or `timeout` is over; spins or
    /// sleeps meanwhile, as [`super::PollPolicy`] says. Never sleeps while work is queued.
    fn wait(&mut self, timeout: Option<Duration>);

    /// Something that ends a `wait` from another thread.
    fn waker(&self) -> Waker;

    /// What an established connection can do; `None` before that.
    fn capabilities(&self, qp: QpId) -> Option<QpCapabilities>;

    /// Longest inline payload, in bytes.
    fn inline_max(&self) -> usize;

    /// What the engine did so far.
    fn stats(&self) -> EngineStats;
}
