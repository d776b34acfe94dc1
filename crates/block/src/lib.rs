//! Block devices: the trait that volumes, replicas, plain files and memory implement, and that every front-end serves.
//!
//! Start at [`BlockDevice`]. [`FileDevice`] is a file or a block device of this machine, [`MemoryDevice`] the bytes of
//! a [`pmem::Medium`]; [`AnyAlignment`] lets requests of any offset and length reach a device with larger blocks.
//! [`BlockError`] says what went wrong and whose fault that is; its number for clients is made in one place,
//! [`BlockError::errno`].
//!
//! The crate knows no wire and no share: front-ends translate.

mod any_alignment;
mod device;
mod error;
mod file;
mod memory;
mod range;
mod shared;

pub use any_alignment::AnyAlignment;
pub use device::{BlockDevice, Extent, Geometry, State, Survives, Zeroing};
pub use error::BlockError;
pub use file::{FileDevice, OpenFailure};
pub use memory::MemoryDevice;
