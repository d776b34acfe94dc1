//! Where a redb database may lie: on a file with a log ([`LoggedBackend`]), or in memory that is persistent
//! ([`MemoryBackend`]), of this machine or of another one.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # fn open(base: Arc<dyn logged::Base>, side: Arc<dyn logged::Base>, members: logged::Members)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let file = logged::Logged::open(base, side, &members, &logged::Options::default())?;
//! let database = redb::Builder::new().create_with_backend(redb_backend::LoggedBackend::new(file))?;
//! # Ok(()) }
//! ```
//!
//! docs/databases.md says what each commit survives.
#![forbid(unsafe_code)]

mod logged_file;
mod memory;

pub use logged_file::LoggedBackend;
pub use memory::MemoryBackend;
