//! What lies between two members: frames, links that prove who is at the other end, compressed payloads.
//!
//! [`codec`] turns messages into bytes and back.

pub mod codec;
