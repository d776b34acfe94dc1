//! Block devices whose sectors are never torn, over a [`pmem::Medium`]: the layout of Linux's BTT driver, byte for byte.
//!
//! [`create()`] writes the layout, [`Volume::open`] recovers and serves it as a [`block::BlockDevice`], [`check()`] and
//! [`repair()`] look at all of it while nobody serves it. docs/volumes.md has the byte map and says which store commits.
//!
//! ```text
//!  medium  | 4 KiB free | arena 0, at most 512 GiB | arena 1 | ...        (layout 1.1; 2.0 begins at byte 0)
//!  arena   | info | data blocks ................ | map | flog | info copy |
//! ```
//!
//! A write goes to a free block, then a note of it into the flog, then the number of the block into the map. The block
//! that the map named before is the free block of the next write.
//!
//! Inside, from the bytes up: `info`, `map_entry` and `flog_entry` (formats), `layout` (where they lie); `access` (reads
//! and writes them on the medium); `lanes`, `readers`, `map_locks` (who may use what at the same time); `recovery` and
//! `arena`, of which a `volume` is made.
//!
//! Spec: Linux Documentation/driver-api/nvdimm/btt.rst; UEFI 2.7 §6 "Block Translation Table (BTT) Layout".

mod access;
mod arena;
mod check;
mod create;
mod damage;
mod error;
mod flog_entry;
mod grow;
mod info;
mod lanes;
mod layout;
mod map_entry;
mod map_locks;
mod open;
mod readers;
mod recovery;
mod repair;
mod volume;

#[cfg(test)]
#[path = "../tests/support/hooked.rs"]
mod hooked;
#[cfg(test)]
mod reuse;

pub use check::{DAMAGE_MAX, Report, check};
pub use create::{Format, create};
pub use damage::{Damage, Fault};
pub use error::VolumeError;
pub use info::{LayoutVersion, has_signature};
pub use open::Access;
pub use repair::repair;
pub use volume::{ArenaFacts, Volume};

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
