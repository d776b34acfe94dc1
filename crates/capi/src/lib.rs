//! `liblandfast`: files and push regions for programs in C.
//!
//! ```text
//!   landfast_connect -> landfast_client --landfast_open--> landfast_file     read, write, flush
//!                                       --landfast_map---> landfast_region   write, commit, read, atomic write,
//!                                                                            submit ... wait or poll
//!   landfast_store_open -> landfast_store --landfast_store_map--> landfast_store_region   read, write, vectors, words
//! ```
//!
//! - [`entries`] are the functions of the header `include/landfast.h`, which cbindgen makes of them.
//! - [`handles`]: a handle is a number and never a pointer, so that one that was closed is an error and no crash.
//! - [`fault`]: each function returns a [`Status`]; the text of a thread's latest failure is kept for it.
//! - [`at_fork`]: a child of a fork is refused what its parent has open.
//! - [`border`]: the one place where pointers of C become references, and where a panic ends.

#![deny(unsafe_op_in_unsafe_fn)]

mod at_fork;
mod border;
pub mod entries;
mod fault;
mod forks;
mod handles;
mod kind;
mod status;
pub mod store_types;
mod stored;
pub mod types;
mod waiting;

pub use fault::Fault;
pub use handles::{ClientHandle, FileHandle, RegionHandle, StoreHandle, StoreRegionHandle};
pub use kind::Kind;
pub use status::Status;
pub use store_types::{StoreAllocation, StoreSpan};
pub use types::{
    Class, Completion, Entry, EntryFunction, FileInfo, Lost, MapOptions, Mode, RegionInfo,
};
