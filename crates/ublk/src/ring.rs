//! io_uring commands to the driver, and the memory in which it describes requests.
//!
//! # Safety rules of this module
//!
//! A command names memory of this process only in [`Control::run`], which borrows that memory until the command has
//! completed, and ends the process where it cannot know that. The commands of [`QueueRing`] name none: the bytes of
//! requests are copied by `pread` and `pwrite`.
//!
//! The driver writes the descriptions of requests in memory that it shares read-only with us. They are copied out field by
//! field, by volatile reads, and no reference points there.
//!
//! Spec: io_uring_enter(2); Linux `Documentation/block/ublk.rst`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr::{self, NonNull};
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use zerocopy::IntoBytes as _;

use crate::uapi::{Answer, ControlCommand, Request, offset_of_requests};

/// The control device.
pub(crate) struct Control {
    file: File,
    ring: IoUring<squeue::Entry128>,
}

impl Control {
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let ring = IoUring::<squeue::Entry128>::builder().dontfork().build(2)?;
        Ok(Self { file, ring })
    }

    /// Carries out a command, with `memory` as its argument, and waits for its end.
    pub(crate) fn run(
        &mut self,
        operation: u32,
        command: ControlCommand,
        memory: &mut [u8],
    ) -> io::Result<()> {
        let len = u16::try_from(memory.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let address = if memory.is_empty() { 0 } else { memory.as_mut_ptr().expose_provenance() };
        let command = ControlCommand { len, address: address as u64, ..command };
        let mut bytes = [0; 80];
        bytes[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd80::new(file, operation).cmd(bytes).build();
        // SAFETY: the memory that the command names is borrowed until the loop below has seen its end.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| io::ErrorKind::ResourceBusy)?;
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // The driver may still write to memory that would be given back.
                    tracing::error!(%error, "a command to ublk cannot be waited for");
                    std::process::abort();
                }
            }
            if let Some(done) = self.ring.completion().next() {
                let result = done.result();
                return if result < 0 {
                    Err(io::Error::from_raw_os_error(-result))
                } else {
                    Ok(())
                };
            }
        }
    }
}

/// The ring of a queue; it belongs to the queue's thread, which alone may fetch and answer.
pub(crate) struct QueueRing {
    ring: IoUring,
    file: File,
}

impl QueueRing {
    pub(crate) fn new(file: File, depth: u16) -> io::Result<Self> {
        let ring = IoUring::builder().dontfork().build(u32::from(depth))?;
        Ok(Self { ring, file })
    }

    /// Tells the driver about a tag once [`QueueRing::wait`] is called.
    pub(crate) fn push(&mut self, operation: u32, answer: Answer) -> io::Result<()> {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(answer.as_bytes());
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd16::new(file, operation).cmd(bytes).build();
        let entry = entry.user_data(u64::from(answer.tag));
        // SAFETY: the command names no memory.
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|_| io::ErrorKind::ResourceBusy.into())
    }

    /// Submits what was pushed and waits; each tag that has a request, or that ended, with what the driver says.
    pub(crate) fn wait(&mut self, found: &mut Vec<(u16, i32)>) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The kernel is short of memory for the moment: what was pushed stays in the ring for the next call.
            Err(error) if PASSES.iter().any(|errno| is(&error, *errno)) => thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
        let done = self
            .ring
            .completion()
            .map(|done| (u16::try_from(done.user_data()).expect("a tag was given"), done.result()));
        found.extend(done);
        Ok(())
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

/// The descriptions of a queue's requests.
pub(crate) struct Requests {
    start: NonNull<Request>,
    len: usize,
    depth: u16,
}

// SAFETY: the memory is mapped for the whole process, and is only read.
unsafe impl Send for Requests {}

impl Requests {
    pub(crate) fn map(file: &File, queue: u16, depth: u16) -> io::Result<Self> {
        let len = (usize::from(depth) * size_of::<Request>())
            .next_multiple_of(rustix::param::page_size());
        let offset = offset_of_requests(queue);
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory that is in use.
        let mapped = unsafe {
            rustix::mm::mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, offset)
        }?;
        let start = NonNull::new(mapped.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len, depth })
    }

    /// The request of a tag that has one.
    pub(crate) fn get(&self, tag: u16) -> Option<Request> {
        if tag >= self.depth {
            return None;
        }
        // SAFETY: the mapping has `depth` descriptions, and the tag is less.
        let request = unsafe { self.start.add(usize::from(tag)) };
        // SAFETY: the mapping is readable while it stands, and any bytes are a `Request`.
        Some(unsafe { request.read_volatile() })
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, whole, and nothing points into it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "it was mapped");
    }
}

/// Whether an error is this errno.
pub(crate) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// What `io_uring_enter` says where the same call can succeed later.
const PASSES: [Errno; 3] = [Errno::AGAIN, Errno::BUSY, Errno::NOMEM];
const PAUSE: Duration = Duration::from_millis(1);
