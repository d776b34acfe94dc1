//! SQLite on shares, and with its write-ahead log in the tail of a log: a loadable extension.
//!
//! ```text
//!   .load ./liblandfast_sqlite
//!   .open file:/var/lib/app.db?vfs=landfast&log=/mnt/pmem/app.log
//!   PRAGMA journal_mode=WAL;
//! ```
//!
//! ```text
//!   abi, entry  SQLite's C interface; all unsafe code
//!   vfs         opens files:   database of this machine -> SQLite's own VFS, with hooks on its locks
//!                              database of a share      -> share
//!                              -wal with `log=`         -> wal
//!   wal         the -wal file over `logged`; who of several processes owns the log
//!   params      what the URI says
//! ```
//!
//! The interface to SQLite is written by hand: three structures and seven of the functions of `sqlite3ext.h`, whose layout SQLite
//! freezes for ever; a test compares them with the header of the system. `libsqlite3-sys` has them too, but its feature
//! `loadable_extension` turns every function of SQLite in the whole build into a call through a table that only a
//! loaded extension has, and Cargo unites features: one other crate of the workspace that uses SQLite would break.
//!
//! docs/databases.md says what a commit survives, and which locking modes there are.

mod abi;
mod entry;
mod fault;
mod hold;
mod params;
mod share;
mod vfs;
mod wal;

pub use params::{LOGS_MAX, ParamError, Params};
