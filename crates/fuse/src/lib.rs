//! Block devices as files: a FUSE file system with one file for each device, and loop devices on the files, for kernels
//! without NBD or ublk.
//!
//! ```text
//!   programs, mkfs, mount            programs
//!        |                              |
//!    /dev/loopN   -- direct I/O -->   MOUNTPOINT/NAME   (FUSE, no cache of its own)
//!                                       |
//!                                  block::BlockDevice
//! ```
//!
//! Start at [`Mounted`]. Every read and write of a file is one of its device: the kernel keeps no pages of it. `fsync` is
//! the device's flush; a write through an `O_SYNC` or `O_DSYNC` descriptor is durable when it returns. Punching a hole trims. What the
//! kernel's loop driver asks for (flush, discard, write zeroes) comes as these calls.

mod files;
mod loop_device;
mod mounted;

pub use loop_device::LoopDevice;
pub use mounted::{MountError, Mounted, Options};
