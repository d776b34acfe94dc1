//! SMB 2 and 3 without sockets.
#![forbid(unsafe_code)]

pub mod crypto;
