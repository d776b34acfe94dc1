//! The seam between the users of RDMA and its providers.
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

    /// Whether a device reaches memory by itself: then only media that are memory can be registered
    /// ([`Medium::direct`]), and only memory that the host pins.
    fn is_device(&self) -> bool {
        false
    }

    /// Opens an engine.
    fn open_engine(&self, config: EngineConfig) -> Result<Box<dyn Engine>, EngineError>;
}

/// A request on its way from one engine to another. A dropped request is closed.
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

    /// Accepts a request. The owner may register memory and post receives at once, before the peer
    /// learns of the answer; sends wait for `Event::Established`, because the peer speaks first.
    fn accept(
        &mut self,
        request: ConnectionId,
        config: QpConfig,
        private_data: &[u8],
    ) -> Result<QpId, EngineError>;

    /// Rejects a request. A request that is gone is no error.
    fn reject(&mut self, request: ConnectionId, private_data: &[u8]);

    /// Releases an unanswered request for another engine of the same provider to take. `None`,
    /// without effect, if the request is gone, or if a wire hook watches the engine: a hook sees
    /// its streams whole.
    fn hand_over(&mut self, request: ConnectionId) -> Option<Handover>;

    /// Takes a request that another engine released. The request gets another name, and the
    /// handshake time of this engine; no event reports it. `None`: there is no room, and the
    /// request is closed.
    fn take_over(&mut self, handover: Handover) -> Option<ConnectionId>;

    /// Lets `qp` use a range of a medium. Constant time for any length.
    fn register(
        &mut self,
        qp: QpId,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError>;

    /// Ends a region. No operation on the region begins after the call; a later use by the peer,
    /// and the peer's operations that were still queued for it, end the peer's connection.
    fn deregister(&mut self, qp: QpId, rkey: Rkey) -> Result<Deregistration, RegisterError>;

    /// Queues an operation. Nothing is transmitted before the next `poll` or `wait`, so that
    /// requests posted together travel together.
    fn post_send(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError>;

    /// Queues a buffer for a message of the peer. Its region needs `Access::RECEIVE`.
    fn post_recv(&mut self, qp: QpId, wr_id: u64, buffer: LocalSlice) -> Result<(), PostError>;

    /// Ends a connection: bytes that TCP still takes leave, unanswered requests are flushed, then
    /// `Event::Disconnected` comes. No effect if the connection is gone already.
    fn disconnect(&mut self, qp: QpId);

    /// Does a bounded amount of work, fair between queue pairs, without blocking. Appends the
    /// events to `events` and returns their number.
    fn poll(&mut self, events: &mut Vec<Event>) -> usize;

    /// Works until there is an event to poll, a [`Waker`] calls or `timeout` is over; spins or
    /// sleeps in the meantime, as [`super::PollPolicy`] says. Never sleeps while work is queued.
    fn wait(&mut self, timeout: Option<Duration>);

    /// A handle that ends a `wait` from another thread.
    fn waker(&self) -> Waker;

    /// What an established connection can do; `None` before that.
    fn capabilities(&self, qp: QpId) -> Option<QpCapabilities>;

    /// Longest inline payload, in bytes.
    fn inline_max(&self) -> usize;

    /// Counters of the engine.
    fn stats(&self) -> EngineStats;
}
