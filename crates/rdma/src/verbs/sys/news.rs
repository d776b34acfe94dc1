//! Asynchronous events of a device: queue pairs and ports that fail, the end of the device itself.
//!
//! ```text
//!   device --> one descriptor of the process --> whoever looks first --> a reader for each engine
//! ```
//!
//! librdmacm opens a device once for a whole process, and the kernel reports each event once. So
//! the engine that takes an event hands it to every engine that uses the device, and wakes those
//! that sleep.
//!
//! Spec: ibv_get_async_event(3).

use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::abi;
use super::cm::loaded;
use super::device::Device;
use crate::common::poller::host_io;
use crate::interface::{EngineError, Waker};

/// An asynchronous event of a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::verbs) enum News {
    /// The queue pair of this number has failed; `by_peer`: the peer asked for an operation that it
    /// may not do.
    QueuePair { number: u32, by_peer: bool },
    /// A completion queue has failed ([`super::queue::QueuePair::completions_name`]).
    Completions { name: usize },
    /// A port has lost its link.
    PortDown { port: c_int },
    /// The device has failed, or is gone.
    Device,
}

/// One engine's reader of the events of a device.
#[derive(Debug)]
pub(in crate::verbs) struct Reader {
    hub: &'static Hub,
    unread: Mutex<Vec<News>>,
    has_unread: AtomicBool,
    waker: Waker,
}

impl Reader {
    /// Reads the events of `device` from now on; `waker` wakes the owner of the reader.
    pub(in crate::verbs) fn open(device: Device, waker: Waker) -> Result<Arc<Self>, EngineError> {
        let hub = Hub::of(device)?;
        let (unread, has_unread) = (Mutex::default(), AtomicBool::new(false));
        let reader = Arc::new(Self { hub, unread, has_unread, waker });
        let mut readers = locked(&hub.readers);
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(Arc::downgrade(&reader));
        Ok(reader)
    }

    /// Asks the device for events, for all its readers. `false`: it will report no more.
    pub(in crate::verbs) fn ask(&self) -> bool {
        self.hub.ask()
    }

    /// Whether an event is unread. Costs a load.
    pub(in crate::verbs) fn has_unread(&self) -> bool {
        self.has_unread.load(Ordering::Acquire)
    }

    /// The unread events, oldest first.
    pub(in crate::verbs) fn take(&self) -> Vec<News> {
        let mut unread = locked(&self.unread);
        self.has_unread.store(false, Ordering::Release);
        std::mem::take(&mut *unread)
    }
}

impl AsFd for Reader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.hub.as_fd()
    }
}

/// A device and its readers; lives as long as the process.
#[derive(Debug)]
struct Hub {
    device: Device,
    /// Locked while the device is asked, so that its events reach every reader in the same order.
    readers: Mutex<Vec<Weak<Reader>>>,
}

impl Hub {
    /// The hub of this device. There are as many hubs as the machine has devices.
    fn of(device: Device) -> Result<&'static Self, EngineError> {
        static HUBS: Mutex<Vec<&'static Hub>> = Mutex::new(Vec::new());
        let mut hubs = locked(&HUBS);
        if let Some(hub) = hubs.iter().find(|hub| hub.device == device) {
            return Ok(hub);
        }
        let hub: &'static Self = Box::leak(Box::new(Self { device, readers: Mutex::default() }));
        let set = rustix::fs::fcntl_setfl(hub, rustix::fs::OFlags::NONBLOCK);
        set.map_err(host_io("fcntl"))?;
        hubs.push(hub);
        Ok(hub)
    }

    fn ask(&self) -> bool {
        let readers = locked(&self.readers);
        loop {
            let (news, goes_on) = match self.next() {
                Next::News(news) => (news, true),
                Next::Irrelevant => continue,
                Next::Nothing => return true,
                Next::End => (News::Device, false),
            };
            for reader in readers.iter().filter_map(Weak::upgrade) {
                reader.tell(news);
            }
            if !goes_on {
                return false;
            }
        }
    }

    fn next(&self) -> Next {
        let mut event =
            abi::AsyncEvent { element: abi::EventElement { port_num: 0 }, event_type: c_int::MAX };
        // SAFETY: the context is open; the library fills the structure on success.
        let outcome = unsafe { (loaded().get_async_event)(self.device.context(), &raw mut event) };
        if outcome != 0 {
            let error = std::io::Error::last_os_error();
            let again = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR));
            return if again { Next::Nothing } else { Next::End };
        }
        let news = read(&event);
        // SAFETY: handed out a moment ago and acknowledged once. The object that the event names existed
        // until now, because the call that destroys the object waits for this acknowledgement.
        unsafe { (loaded().ack_async_event)(&raw mut event) };
        news.map_or(Next::Irrelevant, Next::News)
    }
}

impl AsFd for Hub {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: contexts stay open.
        let fd = unsafe { (*self.device.context()).async_fd };
        // SAFETY: open as long as its context.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Reader {
    fn tell(&self, news: News) {
        let mut unread = locked(&self.unread);
        // A reader with so much unread has the events that matter: the first ones give the reason.
        if unread.len() < UNREAD_MAX {
            unread.push(news);
        }
        self.has_unread.store(true, Ordering::Release);
        drop(unread);
        self.waker.nudge();
    }
}

enum Next {
    News(News),
    /// An event that no engine uses.
    Irrelevant,
    /// No event for now.
    Nothing,
    /// No event any more.
    End,
}

/// The meaning of an event that is not acknowledged yet.
fn read(event: &abi::AsyncEvent) -> Option<News> {
    let queue_pair = |by_peer| {
        // SAFETY: an event of this type names a queue pair.
        let qp = unsafe { event.element.qp };
        // SAFETY: it exists until the acknowledgement.
        let number = unsafe { (*qp).qp_num };
        Some(News::QueuePair { number, by_peer })
    };
    match event.event_type {
        EVENT_QP_FATAL => queue_pair(false),
        EVENT_QP_REQUEST_ERROR | EVENT_QP_ACCESS_ERROR => queue_pair(true),
        // SAFETY: an event of this type names a completion queue.
        EVENT_CQ_ERROR => Some(News::Completions { name: unsafe { event.element.cq }.addr() }),
        // SAFETY: an event of this type names a port.
        EVENT_PORT_ERROR => Some(News::PortDown { port: unsafe { event.element.port_num } }),
        EVENT_DEVICE_FATAL => Some(News::Device),
        // A port that is back, a queue that is empty, other addresses: nothing to do.
        _ => None,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Unread events that are kept for an engine that does not read.
const UNREAD_MAX: usize = 4096;

// Types of events (ibv_get_async_event(3)).
const EVENT_CQ_ERROR: c_int = 0;
const EVENT_QP_FATAL: c_int = 1;
const EVENT_QP_REQUEST_ERROR: c_int = 2;
const EVENT_QP_ACCESS_ERROR: c_int = 3;
const EVENT_DEVICE_FATAL: c_int = 8;
const EVENT_PORT_ERROR: c_int = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event_type: c_int, port_num: c_int) -> abi::AsyncEvent {
        abi::AsyncEvent { element: abi::EventElement { port_num }, event_type }
    }

    #[test]
    fn port_down_and_device_fatal_are_reported() {
        assert_eq!(read(&event(EVENT_PORT_ERROR, 2)), Some(News::PortDown { port: 2 }));
        assert_eq!(read(&event(EVENT_DEVICE_FATAL, 0)), Some(News::Device));
        // PORT_ACTIVE, SQ_DRAINED, GID_CHANGE.
        for other in [9, 5, 18] {
            assert_eq!(read(&event(other, 1)), None);
        }
    }
}
