//! Memory of many servers as named, striped regions with one to three copies.
//!
//! - [`Store`] is a client of a store: [`Store::create`], [`Store::map`], [`Store::free`], [`Store::rebuild`], tokens.
//! - [`Region`] is a mapped region: [`Region::read`] and [`Region::write`], vectors of them, atomic words, commits;
//!   submitted operations with completions by a queue; counters and barriers between clients. After the map no metadata is
//!   asked until a server is lost or the region changes. Calls block; [`Region::submit_read`], [`Region::submit_write`]
//!   and [`Region::next_completion`] do not have to.
//! - [`data`] has structures on regions: append stream, table, shuffle.
//! - [`StoreServer`] is the other side: a daemon that holds pieces of regions, on memory or files of one directory.
//! - [`meta`] is what both know of each other: files of one machine, or etcd ([`meta::open`] takes either by its place).
//! - [`token`] has the store's key and capability tokens; daemons enforce them ([`host`] says how).
//!
//! ```no_run
//! use std::time::Duration;
//! use store::meta::record::Class;
//! use store::{Allocation, Rights, Store, StoreKey, StoreOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let meta = store::meta::open("/srv/store/meta")?;
//! let key = StoreKey::read("/srv/store/meta/key".as_ref())?;
//! let store = Store::open(StoreOptions::new(meta, Some(key)))?;
//! let wanted = Allocation { copies: 2, ..Allocation::new(1 << 30, Class::Storage) };
//! store.create("results", &wanted)?;
//! let region = store.map("results", Rights::READ | Rights::WRITE)?;
//! region.write(4096, b"visible at both copies when this returns")?;
//! region.commit(4096, 40)?; // durable at both
//! let ticket = region.submit_read(4096, 7)?;
//! let done = region.next_completion(Duration::from_secs(1))?;
//! assert_eq!(done.ticket, ticket);
//! # Ok(())
//! # }
//! ```
//!
//! docs/store.md says what is promised when a server or client is lost, who enforces what, and has all formats.
#![forbid(unsafe_code)]

mod client;
pub mod data;
mod error;
pub mod host;
pub mod ids;
pub mod layout;
pub mod meta;
pub mod place;
pub mod token;
pub mod wire;

pub use client::{
    Allocation, CLIENT_LEASE, CallError, Completion, OUTSTANDING_MAX, Outcome, PATIENCE, Rebuilt,
    Region, Store, StoreOptions, Ticket,
};
pub use error::StoreError;
pub use host::{HostError, ServerOptions, StoreServer};
pub use token::{Claims, Rights, StoreKey, Token};
