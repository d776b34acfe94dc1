//! What lies between two members: frames, and links whose ends have proved who they are.
//!
//! [`codec`] turns messages into bytes and back. An [`Identity`] says who a member is and how that is proved. [`dial`]
//! makes a [`Link`] to another member, [`Listener`] takes in those that others make. Behind the proof a link is two
//! halves, a [`Sender`] and a [`Receiver`], each for a thread of its own. [`compress`] makes the payloads of records smaller.
//!
//! docs/replica-wire.md has the bytes.

mod bundle;
pub mod codec;
mod compress;
mod denial;
mod dial;
mod ends;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod greeting;
mod handshake;
mod identity;
mod keys;
mod link;
mod listener;
mod options;
mod pace;
mod record;
mod socket;
#[cfg(test)]
mod tests;
mod verify;

pub use self::bundle::{AHEAD_MAX, CONNECTIONS_MAX, FRAMES_AHEAD_MAX, Flow, Frame};
pub use self::codec::{PAYLOAD_MAX, WireError};
pub use self::compress::{ExpandError, Policy, SKIPS_MAX, compress, expand, expands};
pub use self::denial::Denial;
pub use self::ends::{Closer, Link, Receiver, Sender, dial};
pub use self::error::LinkError;
pub use self::identity::{Identity, IdentityError, SECRET_MAX, SECRET_MIN, fingerprint_of};
pub use self::keys::Fingerprint;
pub use self::listener::{LINKS_MAX, Listener, Listening, STRANGERS_MAX};
pub use self::options::{ADDRESSES_MAX, CONNECT_LIMIT, Cap, HANDSHAKE_LIMIT, LinkOptions};
pub use self::record::RecordError;
