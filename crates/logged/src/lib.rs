//! A file whose writes are durable in the tail of a log before they are in the file.
//!
//! Start at [`Logged`]: write, read, set the length, commit. A commit is that of the log. The file below, the *base*
//! ([`Base`]), gets the bytes later, in blocks that the system writes back, and the log is trimmed when they are durable there.
//!
//! ```text
//!   write --> record in the log (staged) + overlay in memory
//!   commit -> log: durable                      overlay --> base --> flushed --> log trimmed
//!   open ---> records of the log --> overlay --> base
//! ```
//!
//! Every record says again what the file's bytes become, so recovery may repeat all of them any number of times.
//! The databases that use it are SQLite (crate `sqlite`) and redb (crate `redb-backend`); docs/databases.md.
#![forbid(unsafe_code)]

mod base;
mod error;
mod logged;
mod members;
mod options;
mod overlay;
mod record;
mod side;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;

pub use base::{Base, LocalBase, ShareBase};
pub use error::LoggedError;
pub use log::MemberSet;
pub use logged::{Logged, Status};
pub use members::{LOG_LEN_DEFAULT, LOG_LEN_MAX, LOG_LEN_MIN, Members, Place, PlaceError};
pub use options::{Apply, Options};
pub use record::{Change, RecordError};
pub use side::{Side, SideError, SideState};
