//! The protocol without a socket: a [`Handshake`] until an export is chosen, a [`Session`] from then on.
//!
//! Both take the bytes that have arrived and say how many of them they have used. What they answer they append to an
//! [`Output`]. All bounds of what a client can cause stand in `limits`.

mod error;
mod handshake;
mod limits;
mod meta;
mod option;
mod output;
mod reply;
mod request;
mod session;

pub use error::PeerError;
pub use handshake::{Agreed, Event, Handshake, TlsPolicy};
pub use limits::{EXTENTS_MAX, OPTION_LEN_MAX, OPTIONS_MAX, PAYLOAD_MAX};
pub use output::Output;
pub use request::{Command, Request};
pub use session::{Session, Step};
