//! Reports which of many sockets are ready: epoll, level-triggered.
//!
//! Level-triggered, so that a queue pair that had its share of a round and still has input is
//! reported again in the next round. A queue pair that must not be reported (a parked one) leaves
//! the interest set. The kernel reports errors and hang-ups in any case: a caller that takes no
//! input has to act on [`Ready::broken`], or the next poll reports it again at once.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::interface::EngineError;

/// An epoll instance and the readiness it last reported.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    ready: Vec<Ready>,
}

/// What a reported socket is ready for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ready {
    pub(crate) token: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The connection is lost; epoll reports this for as long as the socket is watched, whatever the
    /// interest.
    pub(crate) broken: bool,
}

/// What to report about a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Interest {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Interest {
    pub(crate) const READ: Self = Self { read: true, write: false };
    pub(crate) const NONE: Self = Self { read: false, write: false };
    pub(crate) const WRITE: Self = Self { read: false, write: true };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN | EventFlags::RDHUP, self.read);
        flags.set(EventFlags::OUT, self.write);
        flags
    }
}

impl Poller {
    pub(crate) fn new() -> Result<Self, EngineError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(host_io("epoll_create"))?;
        // A kernel before 5.11 lacks the call and refuses here, where that is an error; later the
        // engine would never sleep.
        let mut none = [MaybeUninit::<epoll::Event>::uninit(); 1];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&epoll, &mut none[..], Some(&now)).map_err(host_io("epoll_pwait2"))?;
        Ok(Self { epoll, ready: Vec::with_capacity(READY_MAX) })
    }

    pub(crate) fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, EventData::new_u64(token), interest.flags())
    }

    pub(crate) fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) {
        // The socket is in the set and open: epoll_ctl has nothing left to refuse but memory it
        // already holds.
        let _ = epoll::modify(&self.epoll, fd, EventData::new_u64(token), interest.flags());
    }

    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Asks the kernel, waiting at most `timeout` (`None`: until something comes). What is ready
    /// is then taken by index, so that the caller may use the poller meanwhile.
    pub(crate) fn poll(&mut self, timeout: Option<Duration>) -> usize {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); READY_MAX];
        self.ready.clear();
        // Interrupted by a signal counts as nothing found.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) else {
            return 0;
        };
        for event in events.iter() {
            let flags = event.flags;
            // Reading from the socket shows errors and hang-ups.
            let broken = EventFlags::ERR | EventFlags::HUP;
            self.ready.push(Ready {
                token: event.data.u64(),
                readable: flags.intersects(EventFlags::IN | EventFlags::RDHUP | broken),
                writable: flags.intersects(EventFlags::OUT | broken),
                broken: flags.intersects(broken),
            });
        }
        self.ready.len()
    }

    /// One of the sockets that the last [`Poller::poll`] found.
    pub(crate) fn ready(&self, index: usize) -> Option<Ready> {
        self.ready.get(index).copied()
    }
}

/// Adds to an error the name of the call in which the host failed.
pub(crate) fn host_io(call: &'static str) -> impl Fn(Errno) -> EngineError {
    move |errno| EngineError::HostIo { call, errno: errno.raw_os_error() }
}

/// Sockets served per round; the next round reports the rest.
const READY_MAX: usize = 64;
