//! Files as memory with a known durability class.
//!
//! Start at [`Medium`], the trait that every crate above uses. [`map_file`] opens a file as a medium
//! of the best class that the file can hold, [`classify`] names that class, [`anonymous()`] makes memory.
//! A structure that is to work on remote memory too is written against [`Memory`].
//!
//! | class | backing | place | persist |
//! |---|---|---|---|
//! | [`DurabilityClass::Pmem`] | MAP_SYNC mapping, devdax | streamed stores, or cached ones and write-back | fence |
//! | [`DurabilityClass::Storage`] | other regular files | `pwrite` | group-committed `fdatasync` |
//! | [`DurabilityClass::Volatile`] | tmpfs, ramfs, file systems over memory, anonymous memory | cached stores | refused, or emulated |
//!
//! Inside, from the trait down: `lines` (media made of memory) over `mapped` and `anonymous`, over
//! `mapping`, `window`, `presence`, `guard`, over `arch` (the CPU); and `storage` (media made of
//! system calls) over `commit_group`, which remembers failures in `poisoned`. The recorder of [`crash`] stands in for the memory and for the
//! system calls, so that crash images are made from the code that runs in production.
//!
//! `unsafe` is confined to `arch`, `guard`, `mapping` and `window`.

mod anonymous;
mod arch;
mod atomic;
mod bare;
mod beneath;
mod commit_group;
pub mod crash;
mod fetcher;
mod frames;
mod guard;
mod lines;
mod mapped;
mod mapping;
mod medium;
mod memory;
mod open;
mod poisoned;
mod presence;
mod storage;
mod window;

pub use anonymous::{anonymous, anonymous_with};
pub use atomic::AtomicOp;
pub use beneath::is_in_memory;
pub use commit_group::CommitGroup;
pub use fetcher::Fetcher;
pub use frames::Frames;
pub use medium::{Backing, DirectMemory, DurabilityClass, Medium, MediumError, StoreGranularity};
pub use memory::{LocalMemory, Memory};
pub use open::{MapError, OpenOptions, classify, length, map_file, map_range};
pub use poisoned::{Inode, Noted, Poisoned};
