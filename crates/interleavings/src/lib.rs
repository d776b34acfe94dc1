//! What threads of server and client share without a lock, over all orders in which they may run.
//!
//! The files below are those of the crates that run in production, compiled once more: `crate::shared`, from which they
//! take atomics and locks, is here that of loom, and `tokio`, `rdma` and `basics` are this crate. loom gives each load every
//! value that the memory model allows, so a fence that is missing shows as a wake-up that is lost.
//!
//! | source | promise |
//! |---|---|
//! | `rdma/src/interface/waker.rs` | [`a_call_ends_the_sleep`], [`each_of_two_calls_ends_a_sleep`] |
//! | `rdma/src/soft/done.rs` | [`all_that_workers_hand_back_arrives`] |
//! | `remote/src/region/recall.rs` | [`a_recall_ends_the_sleep_of_its_owner`], [`one_side_gives_the_region_back`] |
//! | `flash/src/header.rs` | [`a_reader_gets_its_page_or_none`], [`no_placed_byte_leaves_unwritten`], [`a_page_placed_during_its_write_back_stays_dirty`] |
//! | `flash/src/stack.rs` | [`who_placed_in_a_page_finds_it_to_write`] |
//! | `server/src/connections/work.rs`, `basics/src/event.rs` | [`who_waits_for_the_end_sees_it`], [`nothing_begins_behind_the_end`] |
//!
//! Short form: `cargo test --release -p landfast-interleavings`, with at most two preemptions of a thread. Long form:
//! `cargo xtask interleavings`, with as many as there are.
#![forbid(unsafe_code)]
// Checks of all targets compile the library with tests, whatever its manifest says.
#![cfg(not(test))]

extern crate self as basics;
extern crate self as rdma;
extern crate self as tokio;

#[allow(unreachable_pub, reason = "what other crates name there is this crate's alone here")]
mod interface;
mod models;
mod notify;
mod pages;
mod shared;
mod soft;

#[path = "../../basics/src/event.rs"]
mod event;
#[path = "../../flash/src/header.rs"]
#[expect(dead_code, reason = "a pool has more to do with it than the models")]
mod header;
#[allow(unreachable_pub, reason = "what other crates name there is this crate's alone here")]
#[expect(dead_code, reason = "a region has more to do with it than the models")]
#[path = "../../remote/src/region/recall.rs"]
mod recall;
#[path = "../../flash/src/stack.rs"]
mod stack;
#[path = "../../server/src/connections/work.rs"]
#[expect(dead_code, reason = "a session asks more of it than the models")]
mod work;

pub use event::{found, until};
pub use interface::Waker;
pub use models::*;
pub use pages::*;

/// In the place of tokio's.
pub mod sync {
    pub use crate::notify::{Notified, Notify};
}
