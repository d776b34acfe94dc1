//! What an operator decides about links, and what nobody does.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::time::Duration;

/// An end has to prove who it is within this time.
pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// An address that does not answer for so long is given up.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Addresses of one member that are tried at most, those of all its names together.
pub const ADDRESSES_MAX: usize = 32;

/// What an operator decides about links.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LinkOptions {
    /// The address of this machine from which connections are made, where it matters.
    pub local: Option<IpAddr>,
    /// Bytes that a link sends in a second at most, with what TLS adds.
    pub bandwidth: Option<NonZeroU64>,
}
