//! Batches of reads and writes by io_uring: one system call begins a batch and waits for its end.
//!
//! A ring serves one batch at a time, and [`Rings`] keeps some of them, so that threads do not wait for each other. Neither
//! files nor buffers are registered: a batch costs its descriptor's look-up once for each transfer, some 50 ns of the 60 us
//! that a page of flash takes, and a registration would tie rings to files, of which there may be thousands.
//!
//! # Safety rules of this module
//!
//! The kernel reads and writes the memory of a transfer from the submission to the completion of its entry. That memory
//! belongs to the batch, which is borrowed for the whole of [`Ring::run`], and `run` returns only when as many entries have
//! completed as were submitted; where it cannot know that, it ends the process rather than give the memory back. The transfers
//! and the descriptor of a [`Flight`] belong to it from [`Flight::begin`] on, and leave it with their completion; a flight that
//! is dropped with transfers under way leaks them.
//!
//! Spec: io_uring_enter(2), io_uring_setup(2).
#![allow(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use io_uring::{IoUring, opcode, squeue, types};

use crate::device::Transfer;

/// The rings of this process that are free.
pub(crate) struct Rings {
    free: Mutex<Vec<Ring>>,
}

impl Rings {
    /// `None` where the kernel or the container refuses io_uring.
    pub(crate) fn open() -> Option<Self> {
        match Ring::new() {
            Ok(first) => Some(Self { free: Mutex::new(vec![first]) }),
            Err(error) => {
                tracing::info!(%error, "io_uring is refused here: threads read and write batches");
                None
            }
        }
    }

    /// Carries out a batch; `false` if there is no ring for it.
    pub(crate) fn run(&self, file: &impl AsRawFd, batch: &mut [Transfer]) -> bool {
        let free = self.lock().pop();
        let Some(mut ring) = free.or_else(|| Ring::new().ok()) else { return false };
        for part in batch.chunks_mut(ENTRIES) {
            ring.run(file.as_raw_fd(), part);
        }
        let mut free = self.lock();
        if free.len() < FREE_MAX {
            free.push(ring);
        }
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Ring>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rings").finish_non_exhaustive()
    }
}

struct Ring(IoUring);

impl Ring {
    fn new() -> io::Result<Self> {
        let entries = u32::try_from(ENTRIES).expect("few");
        IoUring::builder().dontfork().build(entries).map(Self)
    }

    fn run(&mut self, file: RawFd, batch: &mut [Transfer]) {
        let count = batch.len();
        for (index, transfer) in batch.iter_mut().enumerate() {
            let entry = entry_of(file, index, transfer);
            // SAFETY: the memory of the entry is the transfer's, which outlives the wait below.
            let pushed = unsafe { self.0.submission().push(&entry) };
            debug_assert!(pushed.is_ok(), "a batch fits the ring, which is empty");
        }
        let mut completed = 0;
        while completed < count {
            match self.0.submit_and_wait(count - completed) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                // The kernel may still write to memory that would be given back: nothing is safe any more.
                Err(error) => {
                    tracing::error!(%error, "io_uring cannot be waited for, with transfers under way");
                    std::process::abort();
                }
            }
            for entry in self.0.completion() {
                let index = usize::try_from(entry.user_data()).expect("an index");
                if let Some(transfer) = batch.get_mut(index) {
                    let result = usize::try_from(entry.result());
                    let failed = || io::Error::from_raw_os_error(entry.result().saturating_neg());
                    transfer.result = result.map_err(|_| failed());
                }
                completed += 1;
            }
        }
    }
}

/// Reads that are under way while their thread does other things.
pub(crate) struct Flight {
    ring: IoUring,
    /// What the kernel may be writing to, by the number of the place.
    places: Vec<Option<(Transfer, Arc<File>)>>,
    free: Vec<usize>,
    /// Entries that the kernel has not taken.
    queued: usize,
}

impl Flight {
    /// # Errors
    ///
    /// The kernel or the container refuses io_uring, or has no memory.
    pub(crate) fn new() -> io::Result<Self> {
        let entries = u32::try_from(FLIGHT_MAX).expect("few");
        let ring = IoUring::builder().dontfork().build(entries)?;
        let places = (0..FLIGHT_MAX).map(|_| None).collect();
        Ok(Self { ring, places, free: (0..FLIGHT_MAX).rev().collect(), queued: 0 })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(crate) fn under_way(&self) -> usize {
        FLIGHT_MAX - self.free.len()
    }

    /// The place of the next read. The caller has asked [`Flight::is_full`].
    pub(crate) fn next_place(&self) -> usize {
        self.free.last().copied().unwrap_or(0)
    }

    /// Queues a read, in [`Flight::next_place`]. The caller has asked [`Flight::is_full`].
    pub(crate) fn begin(&mut self, file: &Arc<File>, mut transfer: Transfer) {
        let place = self.free.pop().expect("the flight is not full");
        let entry = entry_of(file.as_raw_fd(), place, &mut transfer);
        self.places[place] = Some((transfer, Arc::clone(file)));
        // SAFETY: the memory of the entry is a mapping of the transfer's, which stays where it is while the transfer is moved,
        // and the place keeps the transfer until the entry has completed.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        debug_assert!(pushed.is_ok(), "there are as many entries as places");
        self.queued += 1;
    }

    /// Hands queued reads to the kernel. `false`: some are left.
    pub(crate) fn submit(&mut self) -> bool {
        if self.queued > 0 {
            // What was refused for a passing reason is tried again.
            let taken = self.ring.submit().unwrap_or(0);
            self.queued -= taken.min(self.queued);
        }
        self.queued == 0
    }

    /// Waits until a read has ended, if one is under way.
    pub(crate) fn wait(&mut self) {
        if self.under_way() > 0 {
            let taken = self.ring.submit_and_wait(1).unwrap_or(0);
            self.queued -= taken.min(self.queued);
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// The next read that has ended.
    pub(crate) fn next_ended(&mut self) -> Option<(usize, Transfer)> {
        let entry = self.ring.completion().next()?;
        let place = usize::try_from(entry.user_data()).expect("an index");
        let (mut transfer, _) = self.places.get_mut(place)?.take()?;
        self.free.push(place);
        let result = usize::try_from(entry.result());
        let failed = || io::Error::from_raw_os_error(entry.result().saturating_neg());
        transfer.result = result.map_err(|_| failed());
        Some((place, transfer))
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring has its descriptor open as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.under_way() > 0 {
            mem::forget(mem::take(&mut self.places));
        }
    }
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").field("under_way", &self.under_way()).finish_non_exhaustive()
    }
}

fn entry_of(file: RawFd, index: usize, transfer: &mut Transfer) -> squeue::Entry {
    let (offset, is_write) = (transfer.offset, transfer.is_write);
    let bytes = transfer.bytes();
    let len = u32::try_from(bytes.len()).expect("a transfer is short");
    let file = types::Fd(file);
    let entry = if is_write {
        opcode::Write::new(file, bytes.as_ptr(), len).offset(offset).build()
    } else {
        opcode::Read::new(file, bytes.as_mut_ptr(), len).offset(offset).build()
    };
    entry.user_data(u64::try_from(index).expect("64 address bits at most"))
}

fn is_passing(error: &io::Error) -> bool {
    // EAGAIN and EBUSY: the kernel has no memory for more at this moment, or completions to hand over first.
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

/// Transfers of one batch that are under way at once.
const ENTRIES: usize = 32;
/// Reads of one flight: the depth at which a flash drive has its full speed. Each takes up to [`Transfer::LEN_MAX`] bytes.
const FLIGHT_MAX: usize = 128;
/// Rings kept for the next batch; each costs some KiB.
const FREE_MAX: usize = 8;
