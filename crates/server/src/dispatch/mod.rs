//! From frames to commands, and the commands: one file each, reached through two doors.
//!
//! [`connection`] is a peer; [`receive`] takes each frame of it, [opens and proves](proof) it, and goes through its requests.
//! [`router::answer_now`] takes what is on the data path (READ, WRITE, FLUSH, ECHO) and answers it on the
//! calling thread without allocating, if it cannot block. Everything else, and what would have
//! blocked, becomes a [`job`] and goes through [`router::dispatch`].

pub(crate) mod call;
pub(crate) mod connection;
pub(crate) mod frame;
pub(crate) mod job;
pub(crate) mod negotiate;
pub(crate) mod oplock_break;
pub(crate) mod session_setup;

mod asked;
mod asker;
mod binding;
mod break_notice;
mod change_notify;
mod close;
mod create;
mod extended;
mod farewell;
mod flush;
mod interfaces;
mod ioctl;
mod levels;
mod lock;
mod logoff;
mod persist;
mod pipe;
mod posix;
mod prepared;
mod proof;
mod push;
mod query_directory;
mod query_info;
mod read;
mod receive;
mod router;
mod set_info;
mod shift;
mod tree;
mod write;

pub(crate) use self::connection::{Connection, Violation};
pub(crate) use self::farewell::end_of_connection;
pub(crate) use self::proof::Unproven;
#[cfg(test)]
pub(crate) use self::router::dispatch;
