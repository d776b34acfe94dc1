//! SMB 2 and 3 without sockets.
#![forbid(unsafe_code)]

pub mod auth;
pub mod crypto;
pub mod status;
