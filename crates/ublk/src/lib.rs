//! Block devices as disks of this machine's kernel: `/dev/ublkbN`, by the driver `ublk_drv` (Linux 6.3 and later).
//!
//! ```text
//!   file systems, programs
//!        |
//!   /dev/ublkbN            the kernel's disk
//!        |  requests in shared memory, bytes by pread and pwrite of /dev/ublkcN
//!   queue threads (queue)  <-- io_uring commands (ring) -->  /dev/ublk-control (control)
//!        |
//!   block::BlockDevice
//! ```
//!
//! Start at [`Disk`]. The disk outlives its server: if the server dies, requests wait in the kernel, and the next
//! [`Disk::start`] of the same number for the same volume takes the disk over and is given them again. A request is
//! carried out twice then, or once, which is the same for reads, writes, zeroes and flushes.
//!
//! Spec: Linux `Documentation/block/ublk.rst`, `include/uapi/linux/ublk_cmd.h`.

mod control;
mod disk;
mod queue;
mod ring;
mod uapi;
mod users;

pub use disk::{Disk, DiskError, Identity};
pub use users::User;
