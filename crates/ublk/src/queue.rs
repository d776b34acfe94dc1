//! One queue of a disk: a thread that fetches requests, carries them out and answers.
//!
//! ```text
//!   tag: fetch --> (the kernel has a request) --> carried out --> answer and fetch --> ...
//!              `-> (the disk ends)            --> nothing more for this tag
//! ```
//!
//! Spec: Linux `Documentation/block/ublk.rst`, "Data plane".

use std::fs::File;
use std::io;

use block::{BlockDevice, BlockError, Survives, Zeroing};
use rustix::io::Errno;

use crate::ring::{QueueRing, Requests};
use crate::uapi::{
    ANSWER_AND_FETCH, Answer, FETCH, OPERATION_DISCARD, OPERATION_FLUSH, OPERATION_READ,
    OPERATION_WRITE, OPERATION_ZEROES, REQUEST_FUA, REQUEST_KEEP, Request, offset_of_bytes,
};

/// Serves a queue until the disk ends.
pub(crate) fn serve(
    device: &dyn BlockDevice,
    file: File,
    queue: u16,
    depth: u16,
) -> io::Result<()> {
    let requests = Requests::map(&file, queue, depth)?;
    let mut ring = QueueRing::new(file, depth)?;
    for tag in 0..depth {
        ring.push(FETCH, Answer::new(queue, tag, 0))?;
    }
    let (mut left, mut found, mut bytes) = (depth, Vec::new(), Vec::new());
    while left > 0 {
        ring.wait(&mut found)?;
        for (tag, said) in found.drain(..) {
            let Some(request) = requests.get(tag).filter(|_| said == HAS_REQUEST) else {
                // The disk is stopped, or the driver gives the server up.
                left -= 1;
                continue;
            };
            let copy = Bytes { file: ring.file(), offset: offset_of_bytes(queue, tag) };
            let result = carry_out(device, request, &copy, &mut bytes);
            let result = result.unwrap_or_else(|errno| -errno);
            ring.push(ANSWER_AND_FETCH, Answer::new(queue, tag, result))?;
        }
    }
    Ok(())
}

/// Where the bytes of a request are.
struct Bytes<'f> {
    file: &'f File,
    offset: u64,
}

impl Bytes<'_> {
    fn take(&self, out: &mut [u8]) -> Result<(), i32> {
        let mut done = 0;
        while done < out.len() {
            match rustix::io::pread(self.file, &mut out[done..], self.offset + done as u64) {
                Ok(0) => return Err(Errno::IO.raw_os_error()),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.raw_os_error()),
            }
        }
        Ok(())
    }

    fn give(&self, bytes: &[u8]) -> Result<(), i32> {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(self.file, &bytes[done..], self.offset + done as u64) {
                Ok(0) => return Err(Errno::IO.raw_os_error()),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.raw_os_error()),
            }
        }
        Ok(())
    }
}

/// The bytes that were carried over, or an errno.
fn carry_out(
    device: &dyn BlockDevice,
    request: Request,
    copy: &Bytes<'_>,
    bytes: &mut Vec<u8>,
) -> Result<i32, i32> {
    let (offset, len) = (request.start.saturating_mul(SECTOR), u64::from(request.sectors) * SECTOR);
    let fua = request.operation & REQUEST_FUA != 0;
    let survives = if fua { Survives::Durable } else { Survives::Placed };
    let carried = i32::try_from(len).unwrap_or(i32::MAX);
    let operation = request.operation & 0xff;
    if matches!(operation, OPERATION_READ | OPERATION_WRITE) {
        // The driver splits what is longer.
        let len = usize::try_from(len).ok().filter(|len| *len <= LARGEST);
        bytes.resize(len.ok_or_else(|| Errno::INVAL.raw_os_error())?, 0);
    }
    match operation {
        OPERATION_READ => {
            device.read(offset, bytes).map_err(BlockError::errno)?;
            copy.give(bytes)?;
            Ok(carried)
        }
        OPERATION_WRITE => {
            copy.take(bytes)?;
            device.write(offset, bytes, survives).map_err(BlockError::errno)?;
            Ok(carried)
        }
        OPERATION_FLUSH => device.flush().map(|()| 0).map_err(BlockError::errno),
        OPERATION_DISCARD => {
            device.trim(offset, len, survives).map(|()| 0).map_err(BlockError::errno)
        }
        OPERATION_ZEROES => {
            let keeps = request.operation & REQUEST_KEEP != 0;
            let zeroing = if keeps { Zeroing::KeepSpace } else { Zeroing::MayFree };
            let zeroed = device.write_zeroes(offset, len, zeroing, survives);
            zeroed.map(|()| 0).map_err(BlockError::errno)
        }
        _ => Err(Errno::OPNOTSUPP.raw_os_error()),
    }
}

/// The driver's unit.
pub(crate) const SECTOR: u64 = 512;
/// Bytes of the longest read or write.
pub(crate) const LARGEST: usize = 512 << 10;
/// What the driver says of a tag with a request.
const HAS_REQUEST: i32 = 0;
