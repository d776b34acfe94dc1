//! Files far larger than memory as media: the region is the file, and its pages come from flash when they are asked for.
//!
//! Start at [`map_file`], which makes a [`FlashMedium`] of a file in constant time and pins nothing, and at [`Pool`], the
//! budget of memory that all of them share. What an access without waiting finds in memory it gets; for the rest the
//! caller asks again on a thread that may wait, which is how an engine of `rdma` treats every medium.
//!
//! Inside, from the trait down: `medium` over `file` (the ways to a page; `bring` and `write_back` have those that wait, `fetch` those of an engine that does not), over `pool` (frames, budget, claims), over `table`
//! and `header` (what an engine looks at without a lock) and `policy` (who leaves); `dirt` and `lane` bring bytes back to
//! the file, `streams` and `ahead` bring pages before they are asked for, `holes` remembers where there is nothing to bring. Below is the
//! [`Device`]: a file by `disk`, with a faster directory before it where there is one (`tier`, `tiered`), with batches by `ring` or `hands`; or a medium of the crash recorder. `registry` keeps one
//! file for each inode, and `plain` those that the kernel changes from becoming one.
//!
//! `unsafe` is confined to `ring`.

mod ahead;
mod bell;
mod bring;
mod budget;
mod device;
mod dirt;
mod disk;
mod fetch;
mod file;
mod hands;
mod header;
mod holes;
mod lane;
mod map;
mod medium;
mod pieces;
mod plain;
mod policy;
mod pool;
mod queue;
mod registry;
mod ring;
mod shared;
mod stack;
mod stats;
mod streams;
mod table;
mod tier;
mod tiered;
mod write_back;

pub use budget::Budget;
pub use device::{Device, Extent, How, MediumDevice, Transfer};
pub use disk::Disk;
pub use file::FlashFile;
pub use map::{map_device, map_file, map_found};
pub use medium::FlashMedium;
pub use plain::{Changing, Deciding, Way, to_change};
pub use pool::{BUDGET_MIN, Pool, PoolError, Share};
pub use registry::{Use, find};
pub use stats::{FileStats, PoolStats};
pub use tier::{TIER_MAX, TIER_MIN, Tier, TierStats};
