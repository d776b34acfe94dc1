//! Replicated volumes: block devices whose writes are durable at several machines before they are answered, or
//! follow there in order.
//!
//! A *group* is some volumes with one order of changes, and the *members* that hold copies of them. One member is
//! the *source*: it takes the writes of applications. The others are *destinations*. Every member has a ring of
//! records, and a record lies at the same place of each.
//!
//! ```text
//!   application        source                              destination
//!      write  ---->  record at LSN n -- ring, durable       ring, durable <-- same bytes, same place
//!                         |         \----------------------->      |
//!                    committed: durable here and at all members in sync
//!                         |                                       |
//!      answer <----  applied to the volume                   applied to the volume, once it is committed
//! ```
//!
//! Start at [`core::Core`], which decides everything and does nothing: events go in, actions come out, and it has
//! no clock, thread, socket or random number. [`format`] is what lies in memory and on disks.

pub mod core;
pub mod digest;
pub mod dirty;
pub mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod message;
mod names;
pub mod one_sided;
pub mod overlay;
#[cfg(test)]
mod planted;
pub mod ring;
pub mod runtime;
pub mod snapshot;
#[cfg(test)]
mod testing;
pub mod topology;
pub mod view;
pub mod wire;
pub mod witness;

pub use log::Lsn;

pub use crate::names::{
    EPOCHS_MAX, Epoch, EpochStart, GroupId, History, MEMBERS_MAX, MemberId, MemberSet,
};
