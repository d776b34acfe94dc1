//! What an operator decides about links, and what nobody does.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An end has to prove who it is within this time.
pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// An address that does not answer for so long is given up.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Addresses of one member that are tried at most, those of all its names together.
pub const ADDRESSES_MAX: usize = 32;

/// A cap on the bytes that links send in a second, which may change while they do. Clones are one cap.
#[derive(Clone, Debug, Default)]
pub struct Cap(Arc<AtomicU64>);

impl Cap {
    /// Caps, or no more, what is sent from now on.
    pub fn set(&self, per_second: Option<NonZeroU64>) {
        self.0.store(per_second.map_or(0, NonZeroU64::get), Ordering::Relaxed);
    }

    /// Bytes in a second.
    pub fn per_second(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.0.load(Ordering::Relaxed))
    }
}

impl From<Option<NonZeroU64>> for Cap {
    fn from(per_second: Option<NonZeroU64>) -> Self {
        let cap = Self::default();
        cap.set(per_second);
        cap
    }
}

/// What an operator decides about links.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// The address of this machine from which connections are made, where it matters.
    pub local: Option<IpAddr>,
    /// Bytes that a link sends in a second at most, with what TLS adds.
    pub bandwidth: Cap,
    /// Connections of a link that this member makes, 1 to [`super::CONNECTIONS_MAX`]. The other end takes as many as come.
    pub connections: usize,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self { local: None, bandwidth: Cap::default(), connections: 1 }
    }
}
