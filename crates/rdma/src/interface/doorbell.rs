//! What a sleeping engine waits for beside its sockets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use super::error::EngineError;

/// An eventfd.
#[derive(Debug)]
pub(super) struct Doorbell(OwnedFd);

impl Doorbell {
    pub(super) fn new() -> Result<Self, EngineError> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        made.map(Self)
            .map_err(|errno| EngineError::HostIo { call: "eventfd", errno: errno.raw_os_error() })
    }

    /// Makes it readable.
    pub(super) fn ring(&self) {
        // A write to an eventfd is refused only when its counter is full: then the eventfd is
        // readable anyway.
        #[expect(clippy::host_endian_bytes, reason = "eventfd(2) counts in host order")]
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub(super) fn silence(&self) {
        let mut count = [0; 8];
        // Non-blocking; an empty eventfd is no error.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
