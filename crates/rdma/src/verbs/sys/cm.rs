//! Connections: event channels and the identifiers on them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use super::address::{from_storage, to_storage};
use super::device::Device;
use super::library::{Functions, functions};
use super::{abi, checked, last_error};
use crate::interface::EngineError;

/// The channel on which the connection manager reports events. Calls on it do not block.
#[derive(Debug)]
pub(in crate::verbs) struct Channel {
    raw: NonNull<abi::EventChannel>,
}

// SAFETY: librdmacm may be called from any thread.
unsafe impl Send for Channel {}
// SAFETY: librdmacm locks what its calls share.
unsafe impl Sync for Channel {}

impl Channel {
    /// Opens a channel.
    ///
    /// # Errors
    ///
    /// The libraries are missing, the machine has no device, or the host refuses.
    pub(in crate::verbs) fn open() -> Result<Self, EngineError> {
        let functions = functions()?;
        super::device::check_any(functions)?;
        // SAFETY: no precondition.
        let raw = unsafe { (functions.create_event_channel)() };
        let raw =
            NonNull::new(raw).ok_or_else(|| match last_error("rdma_create_event_channel") {
                EngineError::HostIo { errno: libc::ENODEV | libc::ENOENT, .. } => {
                    EngineError::HostNoDevice
                }
                other => other,
            })?;
        let channel = Self { raw };
        let set = rustix::fs::fcntl_setfl(&channel, rustix::fs::OFlags::NONBLOCK);
        set.map_err(crate::common::poller::host_io("fcntl"))?;
        Ok(channel)
    }

    /// The next event.
    pub(in crate::verbs) fn next(self: &Arc<Self>) -> Option<Happened> {
        let functions = loaded();
        let mut event = std::ptr::null_mut();
        // SAFETY: the channel is ours and open; the library writes a pointer on success.
        let outcome = unsafe { (functions.get_cm_event)(self.raw.as_ptr(), &raw mut event) };
        let event = NonNull::new(event).filter(|_| outcome == 0)?;
        // SAFETY: valid until it is acknowledged, which happens below.
        let inner = unsafe { event.as_ref() };
        let happened = self.copy(inner);
        // SAFETY: handed out by the library and acknowledged once.
        unsafe { (functions.ack_cm_event)(event.as_ptr()) };
        happened
    }

    fn copy(self: &Arc<Self>, event: &abi::CmEvent) -> Option<Happened> {
        let of = event.id.addr();
        let what = match event.event {
            EVENT_ADDR_RESOLVED => What::AddressResolved,
            EVENT_ROUTE_RESOLVED => What::RouteResolved,
            EVENT_CONNECT_REQUEST => {
                let id = CmId { raw: NonNull::new(event.id)?, channel: Arc::clone(self) };
                What::Requested { id, terms: terms(&event.conn) }
            }
            EVENT_ESTABLISHED => What::Established(terms(&event.conn)),
            EVENT_REJECTED => What::Rejected { status: event.status, terms: terms(&event.conn) },
            EVENT_DISCONNECTED => What::Disconnected,
            EVENT_DEVICE_REMOVAL => What::DeviceRemoved,
            EVENT_ADDR_ERROR | EVENT_ROUTE_ERROR | EVENT_CONNECT_ERROR | EVENT_UNREACHABLE => {
                What::Failed { status: event.status }
            }
            // The end of a connection's time-wait state, other addresses of a bond: nothing to do.
            _ => return None,
        };
        Some(Happened { of, what })
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: valid as long as the channel is.
        let fd = unsafe { self.raw.as_ref() }.fd;
        // SAFETY: open as long as the channel is.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: every identifier on it held it alive, so there is none left; events were
        // acknowledged.
        unsafe { (loaded().destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// An event of the identifier `of` (see [`CmId::name`]).
#[derive(Debug)]
pub(in crate::verbs) struct Happened {
    pub(in crate::verbs) of: usize,
    pub(in crate::verbs) what: What,
}

/// What happened to the identifier.
#[derive(Debug)]
pub(in crate::verbs) enum What {
    AddressResolved,
    RouteResolved,
    Requested { id: CmId, terms: Terms },
    Established(Terms),
    Rejected { status: i32, terms: Terms },
    Disconnected,
    DeviceRemoved,
    Failed { status: i32 },
}

/// The private data of the peer, and how many reads may be open, seen from this end.
#[derive(Clone, Debug, Default)]
pub(in crate::verbs) struct Terms {
    pub(in crate::verbs) private_data: Vec<u8>,
    pub(in crate::verbs) responder_resources: u8,
    pub(in crate::verbs) initiator_depth: u8,
}

fn terms(conn: &abi::ConnParam) -> Terms {
    let len = usize::from(conn.private_data_len);
    let private_data = if conn.private_data.is_null() || len == 0 {
        Vec::new()
    } else {
        let start = conn.private_data.cast::<u8>();
        // SAFETY: an event that is not acknowledged yet says where its private data lies.
        unsafe { std::slice::from_raw_parts(start, len) }.to_vec()
    };
    Terms {
        private_data,
        responder_resources: conn.responder_resources,
        initiator_depth: conn.initiator_depth,
    }
}

/// A listener, or one end of a connection.
#[derive(Debug)]
pub(in crate::verbs) struct CmId {
    raw: NonNull<abi::CmId>,
    channel: Arc<Channel>,
}

// SAFETY: librdmacm may be called from any thread; the identifier itself has one owner.
unsafe impl Send for CmId {}

impl CmId {
    /// A new identifier, bound to a local address, and by that address to a device unless the
    /// address is unspecified.
    pub(in crate::verbs) fn bound(
        channel: &Arc<Channel>,
        address: SocketAddr,
    ) -> Result<Self, EngineError> {
        let functions = functions()?;
        let mut raw = std::ptr::null_mut();
        let nobody = std::ptr::null_mut();
        // SAFETY: the channel is open; the library writes a pointer on success.
        let outcome = unsafe {
            (functions.create_id)(channel.raw.as_ptr(), &raw mut raw, nobody, abi::PS_TCP)
        };
        checked("rdma_create_id", outcome)?;
        let raw = NonNull::new(raw).ok_or(EngineError::HostNoDevice)?;
        let id = Self { raw, channel: Arc::clone(channel) };
        let mut storage = to_storage(address);
        // SAFETY: the identifier is ours; the address is read during the call only.
        let outcome = unsafe { (functions.bind_addr)(raw.as_ptr(), (&raw mut storage).cast()) };
        checked("rdma_bind_addr", outcome).map_err(|error| match error {
            EngineError::HostIo { errno: libc::ENODEV | libc::EADDRNOTAVAIL, .. } => {
                EngineError::ConfigNoDeviceAt(address)
            }
            other => other,
        })?;
        Ok(id)
    }

    /// The name by which [`Happened`] tells this identifier from others, as long as it lives.
    pub(in crate::verbs) fn name(&self) -> usize {
        self.raw.addr().get()
    }

    pub(in crate::verbs) fn listen(&self, backlog: i32) -> Result<(), EngineError> {
        // SAFETY: the identifier is ours.
        checked("rdma_listen", unsafe { (loaded().listen)(self.raw.as_ptr(), backlog) })
    }

    /// The device that the identifier is bound to.
    pub(in crate::verbs) fn device(&self) -> Option<Device> {
        // SAFETY: the identifier is ours, so its structure is valid.
        let context = unsafe { (*self.raw.as_ptr()).verbs };
        NonNull::new(context).map(Device::new)
    }

    /// The port of that device, counted from 1; 0 while there is none.
    pub(in crate::verbs) fn port(&self) -> i32 {
        // SAFETY: as in device().
        i32::from(unsafe { (*self.raw.as_ptr()).port_num })
    }

    pub(in crate::verbs) fn local(&self) -> SocketAddr {
        // SAFETY: as in device(); the library changes addresses in calls of this owner only.
        from_storage(unsafe { &(*self.raw.as_ptr()).src_addr })
    }

    pub(in crate::verbs) fn peer(&self) -> SocketAddr {
        // SAFETY: as in local().
        from_storage(unsafe { &(*self.raw.as_ptr()).dst_addr })
    }

    /// Resolves an address into the route to its next hop.
    pub(in crate::verbs) fn resolve_address(
        &self,
        address: SocketAddr,
        timeout_ms: i32,
    ) -> Result<(), EngineError> {
        let mut storage = to_storage(address);
        let (any, target) = (std::ptr::null_mut(), (&raw mut storage).cast());
        // SAFETY: the identifier is ours; the address is read during the call only.
        let outcome =
            unsafe { (loaded().resolve_addr)(self.raw.as_ptr(), any, target, timeout_ms) };
        checked("rdma_resolve_addr", outcome)
    }

    pub(in crate::verbs) fn resolve_route(&self, timeout_ms: i32) -> Result<(), EngineError> {
        // SAFETY: the identifier is ours.
        let outcome = unsafe { (loaded().resolve_route)(self.raw.as_ptr(), timeout_ms) };
        checked("rdma_resolve_route", outcome)
    }

    pub(in crate::verbs) fn connect(&self, terms: &Terms) -> Result<(), EngineError> {
        let mut param = param(terms);
        // SAFETY: the identifier is ours; parameters and data are read during the call only.
        checked("rdma_connect", unsafe { (loaded().connect)(self.raw.as_ptr(), &raw mut param) })
    }

    pub(in crate::verbs) fn accept(&self, terms: &Terms) -> Result<(), EngineError> {
        let mut param = param(terms);
        // SAFETY: as in connect().
        checked("rdma_accept", unsafe { (loaded().accept)(self.raw.as_ptr(), &raw mut param) })
    }

    pub(in crate::verbs) fn reject(&self, private_data: &[u8]) {
        let len = u8::try_from(private_data.len()).unwrap_or(0);
        let data = private_data.as_ptr().cast();
        // SAFETY: the identifier is ours; the data is read during the call only. A request that is
        // gone is nothing to complain about.
        let _ = unsafe { (loaded().reject)(self.raw.as_ptr(), data, len) };
    }

    /// Ends the connection; what is queued on its queue pair is flushed.
    pub(in crate::verbs) fn disconnect(&self) {
        // SAFETY: the identifier is ours. One that is not connected any more refuses.
        let _ = unsafe { (loaded().disconnect)(self.raw.as_ptr()) };
    }

    /// Reports the events of this identifier on another channel from now on.
    pub(in crate::verbs) fn migrate(&mut self, channel: &Arc<Channel>) -> Result<(), EngineError> {
        // SAFETY: identifier and channel are open.
        let outcome = unsafe { (loaded().migrate_id)(self.raw.as_ptr(), channel.raw.as_ptr()) };
        checked("rdma_migrate_id", outcome)?;
        self.channel = Arc::clone(channel);
        Ok(())
    }

    pub(super) fn raw(&self) -> *mut abi::CmId {
        self.raw.as_ptr()
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        let functions = loaded();
        // SAFETY: the identifier is ours, so its structure is valid.
        if !unsafe { (*self.raw.as_ptr()).qp }.is_null() {
            // SAFETY: it has a queue pair, made by queue::QueuePair, which is being dropped too.
            unsafe { (functions.destroy_qp)(self.raw.as_ptr()) };
        }
        // SAFETY: given back once, after its queue pair and with its events acknowledged.
        unsafe { (functions.destroy_id)(self.raw.as_ptr()) };
    }
}

fn param(terms: &Terms) -> abi::ConnParam {
    abi::ConnParam {
        private_data: terms.private_data.as_ptr().cast(),
        private_data_len: u8::try_from(terms.private_data.len()).unwrap_or(0),
        responder_resources: terms.responder_resources,
        initiator_depth: terms.initiator_depth,
        flow_control: 0,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES_NOT_READY,
        srq: 0,
        qp_num: 0,
    }
}

/// The functions of the libraries, which the existence of a handle proves to be open.
pub(super) fn loaded() -> &'static Functions {
    functions().expect("a handle exists, so the libraries are open")
}

/// Entries by the name of their identifier.
pub(in crate::verbs) type ByName<T> = HashMap<usize, T>;

/// Transmissions of a packet before the device gives the connection up; the greatest value there
/// is.
const RETRIES: u8 = 7;
/// How often a message waits for a receive to be posted (7 is for ever). A sender that breaks the
/// rules of credits loses the connection, as it would over iWARP.
const RETRIES_NOT_READY: u8 = 3;

// Numbers of events (rdma_get_cm_event(3)).
const EVENT_ADDR_RESOLVED: i32 = 0;
const EVENT_ADDR_ERROR: i32 = 1;
const EVENT_ROUTE_RESOLVED: i32 = 2;
const EVENT_ROUTE_ERROR: i32 = 3;
const EVENT_CONNECT_REQUEST: i32 = 4;
const EVENT_CONNECT_ERROR: i32 = 6;
const EVENT_UNREACHABLE: i32 = 7;
const EVENT_REJECTED: i32 = 8;
const EVENT_ESTABLISHED: i32 = 9;
const EVENT_DISCONNECTED: i32 = 10;
const EVENT_DEVICE_REMOVAL: i32 = 11;
