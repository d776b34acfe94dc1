//! The descriptor that a sleeping engine waits for. `landfast-interleavings` compiles `waker.rs` over a doorbell that has none.

use std::os::fd::{AsFd, BorrowedFd};

use super::waker::WakeReceiver;

impl AsFd for WakeReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell().as_fd()
    }
}
