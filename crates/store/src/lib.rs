//! Memory of many servers as named, striped regions.
#![forbid(unsafe_code)]
pub mod client;
mod error;
pub mod host;
pub mod ids;
pub mod layout;
pub mod meta;
pub mod place;
pub mod token;
pub mod wire;
pub use client::{Allocation, Completion, Outcome, Region, Store, StoreOptions, Ticket};
pub use error::StoreError;
pub use host::{ServerOptions, StoreServer};
pub use token::{Rights, StoreKey, Token};
